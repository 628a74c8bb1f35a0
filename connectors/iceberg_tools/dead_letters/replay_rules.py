"""Whether dead letters may be tried again, given how the tables of a connector are written."""

from __future__ import annotations

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import ORDERING_COLUMNS
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.table.table import WriteMode


def check_merged(config: IcebergSinkConfig, *, only_missing_keys: bool) -> None:
    """Let a replay pass that cannot put an older row in the place of a newer one.

    Raises:
        ConfigError: It could, or `only_missing_keys` says something that is not so.
    """
    unordered = config.mode is WriteMode.MERGE and not config.ordering_columns
    if unordered and not only_missing_keys:
        raise ConfigError(
            "",
            f"a dead letter may be older than the row of its key, and only {ORDERING_COLUMNS} "
            "would show it: with --only-missing-keys rows are inserted whose key is not there",
        )
    if only_missing_keys and not unordered:
        how = "appended" if config.mode is WriteMode.APPEND else f"ordered by {ORDERING_COLUMNS}"
        raise ConfigError(
            "", f"--only-missing-keys is for merged tables without an order; these rows are {how}"
        )

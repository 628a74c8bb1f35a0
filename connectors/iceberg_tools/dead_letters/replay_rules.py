"""Check whether dead-letter records may be replayed in a connector's write mode."""

from __future__ import annotations

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.keys import ORDERING_COLUMNS
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.table.table import WriteMode


def check_merged(config: IcebergSinkConfig, *, only_missing_keys: bool) -> None:
    """Reject a replay that could replace a newer row with an older one.

    Raises:
        ConfigError: The replay could replace newer rows, or `only_missing_keys` does not apply to
            the write mode.
    """
    unordered = config.mode is WriteMode.MERGE and not config.ordering_columns
    if unordered and not only_missing_keys:
        raise ConfigError(
            "",
            "a dead-letter record may be older than the row with its key, and without "
            f"{ORDERING_COLUMNS} this cannot be detected; --only-missing-keys inserts only rows "
            "whose key does not exist",
        )
    if only_missing_keys and not unordered:
        how = "appended" if config.mode is WriteMode.APPEND else f"ordered by {ORDERING_COLUMNS}"
        raise ConfigError(
            "",
            "--only-missing-keys requires MERGE mode without ordering columns; rows of this "
            f"connector are {how}",
        )

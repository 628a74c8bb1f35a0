"""`RefSetting`: a setting that requires branches or tags, which some catalogs do not support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from connectors.iceberg.config.expectations import EXPECT, ExpectationAction
from connectors.iceberg.config.keys import (
    COMMIT_BRANCH,
    EXPECT_PREFIX,
    MAINTENANCE_PREFIX,
    TABLE_PREFIX,
    TAGS,
)

if TYPE_CHECKING:
    from connectors.iceberg.config.sink_config import IcebergSinkConfig
    from connectors.iceberg.config.table_config import TableConfig


@dataclass(frozen=True, slots=True)
class RefSetting:
    """Setting that makes commits change a tag, or a branch other than main."""

    key: str  # connector key
    setting: str  # table key without the prefix `iceberg.table.<table>.`
    reason: str

    def keys_of(self, table: str) -> str:
        """Return the table key and the connector key for the setting, for use in error messages."""
        return f"{TABLE_PREFIX}{table}.{self.setting} or {self.key}"


BRANCH: Final = RefSetting(COMMIT_BRANCH, "commit-branch", "requires a branch")
HOLD: Final = RefSetting(
    f"{EXPECT_PREFIX}<name>",
    f"{EXPECT}.<name>",
    "requires a branch for commits that await approval (action hold)",
)
SCHEDULED_TAGS: Final = RefSetting(TAGS, "tags", "requires tags")
FULL_MAINTENANCE: Final = RefSetting(
    f"{MAINTENANCE_PREFIX}enabled",
    "maintenance.enabled",
    "requires a tag at the last commit (value true)",
)


def ref_settings(config: IcebergSinkConfig) -> Iterator[tuple[str, str]]:
    """Iterate over a connector's keys that require branches or tags, with the reasons."""
    default = config.default_table
    for ref_setting, name in _uses(default):
        yield ref_setting.key.replace("<name>", name), ref_setting.reason
    for table in [config.table(name) for name in config.tables or ()]:
        for ref_setting, name in _uses(table, default):
            setting = ref_setting.setting.replace("<name>", name)
            yield f"{TABLE_PREFIX}{table.name}.{setting}", ref_setting.reason


def _uses(
    table: TableConfig, default: TableConfig | None = None
) -> Iterator[tuple[RefSetting, str]]:
    """Iterate over a table's settings that require a ref and differ from the default.

    The second item is the name of the expectation, or empty for other settings.
    """
    if table.commit_branch and (default is None or table.commit_branch != default.commit_branch):
        yield BRANCH, ""
    expectations = table.rules.expectations if default is None else table.expectations
    for expectation in expectations:
        is_inherited = default is not None and expectation in default.rules.expectations
        if expectation.action is ExpectationAction.HOLD and not is_inherited:
            yield HOLD, expectation.name
    if table.tags and (default is None or table.tags != default.tags):
        yield SCHEDULED_TAGS, ""
    if table.maintenance.is_full and (default is None or not default.maintenance.is_full):
        yield FULL_MAINTENANCE, ""

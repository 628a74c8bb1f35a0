"""Rebuild a table from its change log on a branch, compare it, and optionally publish it."""

from __future__ import annotations

from dataclasses import dataclass

from connect_py.api.errors import ConfigError
from connect_py.plurals import pluralize
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.ledger import ledger_key
from connectors.iceberg_tools.history.changelog_rebuild import (
    RebuildRequest,
    RebuildResult,
    publish,
    remove_branch,
)
from connectors.iceberg_tools.history.changelog_rebuild import rebuild as rebuild_table
from connectors.iceberg_tools.history.table_diff import RowChange, TableDiff
from connectors.iceberg_tools.history.table_point import LAST, find_point
from connectors.iceberg_tools.operations.diff import key_columns
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    Rows,
    TableArguments,
    TableOperation,
    TableTarget,
)


class RebuildArguments(TableArguments, frozen=True, kw_only=True):
    """Selects the change log to rebuild the table from, and the output."""

    # None for the table's name followed by the connector's change log suffix
    changelog: Name | None = None
    at: str = LAST
    keys: tuple[Name, ...] = ()
    limit: Rows = 20
    create: bool = False  # create a new table from all changes
    publish: bool = False  # replace the table's rows with the rebuilt rows
    allow_missing: bool = False  # publish even if the rebuilt rows lack keys of the table


@dataclass(frozen=True, slots=True)
class RebuildOutcome:
    """The result of a rebuild."""

    request: RebuildRequest
    rebuilt: RebuildResult
    published: bool
    refused: str | None  # reason why a requested publication was refused

    @property
    def different(self) -> bool:
        """Return True if the rebuilt rows differ from the rows of the table."""
        return self.rebuilt.difference is not None and self.rebuilt.difference.total > 0


def rebuild(target: TableTarget, arguments: RebuildArguments) -> RebuildOutcome:
    """Rebuild a table from its change log.

    Raises:
        ConfigError: The arguments are invalid for this connector or table.
        NotInHistoryError: The snapshot does not exist.
        TableUnsuitableError: The change log does not determine the contents of the table.
    """
    if arguments.publish and arguments.create:
        raise ConfigError("--create", "cannot be combined with --publish")
    request = _request(target, arguments)
    target.progress("rebuilding the table from its change log")
    rebuilt: RebuildResult = target.lake.run(target.table, rebuild_table, request)
    difference = rebuilt.difference
    different = difference is not None and difference.total > 0
    refused = None
    if difference is not None and arguments.publish and not arguments.allow_missing:
        refused = missing_rows(difference)
    published = arguments.publish and different and not refused
    if published:
        target.lake.run(target.table, publish, request, rebuilt.snapshot)
    if difference is not None and not different:
        target.lake.run(target.table, remove_branch)
    return RebuildOutcome(request, rebuilt, published, refused)


def missing_rows(difference: TableDiff) -> str | None:
    """Return the reason why publication requires a user's consent, or None if no key is missing."""
    count = difference.counts.get(RowChange.DELETED, 0)
    return (
        f"{pluralize(count, 'row', grouped=True)} of the table would be missing; "
        "--allow-missing publishes anyway"
        if count
        else None
    )


def _request(target: TableTarget, arguments: RebuildArguments) -> RebuildRequest:
    connector, table = target.connector, target.table
    if connector is None:
        raise ConfigError(
            "use_connector", "must be true, because a connector writes the change log"
        )
    if connector.marks_deletes(table):
        raise ConfigError(
            "--config",
            f"{table} retains deleted rows, which a change log does not identify",
        )
    suffix = connector.changelog_suffix
    if arguments.changelog is None and suffix is None:
        raise ConfigError(
            "--changelog",
            "is required if the connector does not set `iceberg.ext.changelog-suffix`",
        )
    name = arguments.changelog or f"{table}{suffix}"
    keys = arguments.keys or tuple(connector.table(table).id_columns)
    snapshot = None
    if not arguments.create:
        metadata = target.metadata()
        if metadata.has_unpublished(target.ref):
            raise ConfigError(
                "",
                f"{table} has unpublished commits; publish or reject them with `connect-py gate`",
            )
        snapshot = find_point(metadata, arguments.at, target.ref)
        keys = keys or key_columns(target, metadata, (snapshot, snapshot))
    branch = connector.table(name).commit_branch or MAIN
    return RebuildRequest(
        name,
        branch,
        ledger_key(connector.connect_group),
        keys,
        target.ref,
        snapshot,
        connector.apply_truncates,
        arguments.limit,
    )


REBUILD = TableOperation("rebuild", RebuildArguments, RebuildOutcome, rebuild)

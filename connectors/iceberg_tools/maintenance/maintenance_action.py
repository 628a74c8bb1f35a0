"""Maintenance actions in the Spark driver: Iceberg procedures (called through SQL) and tiering.

A crash during a compaction leaves data files that no snapshot references. Completed commits of the
compaction (`partial-progress`) remain. A crash during an expiration leaves behind the files of
expired snapshots. In both cases, the files are orphans and are removed later. The next run
reexamines the table to determine which actions are due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from connect_py.api.errors import ConnectError
from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.sql_names import literal, quoted, relation
from connectors.iceberg.maintenance.compaction import SMALL
from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg_tools.maintenance.cold_partitions import (
    cold_location,
    cold_partitions,
    move_partitions,
)
from connectors.iceberg_tools.maintenance.maintenance_plan import MaintenanceAction, MaintenanceKind
from connectors.iceberg_tools.maintenance.maintenance_result import MaintenanceResult
from connectors.iceberg_tools.maintenance.operations_table import record_operation
from connectors.iceberg_tools.maintenance.orphan_search import (
    orphans_of,
    own_files,
    why_not_removed,
)
from connectors.iceberg_tools.maintenance.table_state import (
    ORPHANS_CHECKED_KEY,
    TableState,
    measure,
)

if TYPE_CHECKING:
    from connectors.iceberg.catalog.java_catalog import JavaTable
    from connectors.iceberg.config.maintenance_policy import MaintenancePolicy
    from connectors.iceberg.driver.lake_session import LakeSession
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)
# maximum number of commits per compaction; an interruption does not undo completed commits
_PARTIAL_COMMITS: Final = 10
_MINIMUM_INPUT: Final = 2  # minimum number of small files to merge
_MAX_PARTITIONS: Final = 50  # maximum number of partitions that one action moves


@dataclass(frozen=True, slots=True)
class MaintenanceRequest:
    """One action on one table."""

    action: MaintenanceAction
    policy: MaintenancePolicy
    ref: str = MAIN
    # maximum total size of the files that are rewritten and committed together
    group_bytes: int = 1 << 30
    by: str = "connect-py maintain"


def maintain(session: LakeSession, name: str, request: MaintenanceRequest) -> MaintenanceResult:
    """Perform one action and record it in the operations table if possible.

    Raises:
        TableUnsuitableError: The catalog or the table does not allow the action.
        CatalogUnavailableError: The catalog does not respond, or a commit by another writer
            conflicted.
    """
    started, started_at = time.monotonic(), time.time()
    table = session.table(name)
    before = measure(session, name, request.ref, request.policy)
    skipped = _why_not(table.metadata(), request, before)
    counts: dict[str, int] = {}
    if not skipped:
        counts, skipped = _perform(session, table, request, before)
    after = measure(session, name, request.ref, request.policy)
    result = MaintenanceResult(
        request.action, before, after, time.monotonic() - started, counts, skipped
    )
    if request.policy.operations_table is not None:
        operations_table = request.policy.operations_table or f"{name}_operations"
        try:
            with translating(operations_table):
                record_operation(session, operations_table, name, started_at, request.by, result)
        except ConnectError as error:  # the action itself has succeeded
            log.warning(
                "table %s: cannot record %s in the operations table: %s",
                name,
                request.action.kind.value,
                error,
            )
    return result


def why_not(session: LakeSession, name: str, request: MaintenanceRequest, state: TableState) -> str:
    """Return the reason an action would be skipped, or an empty string if it would be performed.

    For the removal of orphan files, the function has to search for these files.
    """
    table = session.table(name)
    skipped = _why_not(table.metadata(), request, state)
    if skipped or request.action.kind is not MaintenanceKind.ORPHANS:
        return skipped
    return _search(session, table, request, state)[1]


def statement(
    catalog: str,
    name: str,
    metadata: TableMetadata,
    request: MaintenanceRequest,
    location: str | None = None,
) -> str:
    """Return the SQL statement that calls the procedure for an action.

    `location` is the folder to search for orphan files, or None for the location of the table.
    """
    policy, kind = request.policy, request.action.kind
    arguments = {"table": literal(relation(catalog, name))}
    if kind is MaintenanceKind.EXPIRE:
        procedure = "expire_snapshots"
        arguments |= {
            "older_than": _time(policy.keep_ms),
            "retain_last": str(policy.keep_snapshots),
        }
    elif kind is MaintenanceKind.COMPACT:
        procedure = "rewrite_data_files"
        if request.ref != MAIN:
            arguments["branch"] = literal(request.ref)
        if metadata.is_sorted:
            arguments["strategy"] = literal("sort")
        arguments["options"] = _options(_compaction(metadata, request))
    elif kind is MaintenanceKind.COMPACT_DELETES:
        procedure = "rewrite_position_delete_files"
        arguments["options"] = _options({"rewrite-all": "true", "partial-progress.enabled": "true"})
    elif kind is MaintenanceKind.MANIFESTS:
        procedure = "rewrite_manifests"
    else:
        procedure = "remove_orphan_files"
        arguments |= {"older_than": _time(policy.orphan_age_ms or 0), "dry_run": "true"}
        if location is not None:
            arguments["location"] = literal(location)
    argument_list = ", ".join(f"{key} => {value}" for key, value in arguments.items())
    return f"CALL {quoted(catalog)}.system.{procedure}({argument_list})"


def _why_not(metadata: TableMetadata, request: MaintenanceRequest, state: TableState) -> str:
    """Return the reason an action is skipped, or an empty string if it may be performed."""
    if state.unpublished:  # this may have changed since the action became due
        return f"commits on top of {request.ref} await approval; publish or reject them first"
    removes = request.action.kind in (MaintenanceKind.EXPIRE, MaintenanceKind.ORPHANS)
    if removes and metadata.properties.get("gc.enabled", "true").lower() == "false":
        return "the table property gc.enabled is false"
    if request.ref != MAIN and request.action.kind in (
        MaintenanceKind.COMPACT_DELETES,
        MaintenanceKind.MANIFESTS,
    ):
        return f"Iceberg supports this only for main, but the connector commits to {request.ref}"
    return ""


def _perform(
    session: LakeSession, table: JavaTable, request: MaintenanceRequest, before: TableState
) -> tuple[dict[str, int], str]:
    """Run the action. Return its counts and, if it was skipped, the reason."""
    metadata, policy = table.metadata(), request.policy
    if request.action.kind is MaintenanceKind.MOVE:
        head = metadata.head(request.ref)
        if head is None:
            return {}, ""
        snapshot, now_ms = int(head["snapshot-id"]), int(time.time() * 1000)
        due, _ = cold_partitions(session, table.name, metadata, snapshot, policy, now_ms)
        return move_partitions(session, table.name, request.ref, policy, due[:_MAX_PARTITIONS]), ""
    if request.action.kind is not MaintenanceKind.ORPHANS:
        rows = session.spark.sql(
            statement(session.catalog_name, table.name, metadata, request)
        ).collect()
        return {
            key: int(value)
            for row in rows
            for key, value in row.asDict().items()
            if value is not None
        }, ""
    orphans, skipped = _search(session, table, request, before)
    removed_files = [] if policy.orphan_dry_run or skipped else orphans
    for path in removed_files:
        table.delete_file(path)
    session.set_properties(table.name, {ORPHANS_CHECKED_KEY: str(int(time.time() * 1000))})
    return (
        {}
        if skipped
        else {"orphan_files_found": len(orphans), "orphan_files_removed": len(removed_files)}
    ), skipped


def _search(
    session: LakeSession, table: JavaTable, request: MaintenanceRequest, state: TableState
) -> tuple[list[str], str]:
    """Return the orphan files and the reason why they must not be removed.

    The reason is empty if they may be removed.
    """
    metadata, policy = table.metadata(), request.policy
    cold_locations = (
        [cold_location(metadata, policy, table.name)]
        if state.cold_files and policy.tiering_location
        else []
    )
    unreferenced: list[str] = []
    for location in (None, *cold_locations):
        rows = session.spark.sql(
            statement(session.catalog_name, table.name, metadata, request, location)
        ).collect()
        paths = [str(row[0]) for row in rows]
        unreferenced.extend(paths if location is not None else own_files(table, paths))
    return orphans_of(metadata, unreferenced), why_not_removed(table, unreferenced)


def _compaction(metadata: TableMetadata, request: MaintenanceRequest) -> dict[str, str]:
    """Return the options of `rewrite_data_files`."""
    policy = request.policy
    options = {
        "min-input-files": str(max(_MINIMUM_INPUT, min(policy.small_files or 5, 5))),
        "max-file-group-size-bytes": str(request.group_bytes),
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": str(_PARTIAL_COMMITS),
        "rewrite-job-order": "files-desc",
    }
    if policy.target_file_size_bytes is not None:
        size = policy.target_file_size_bytes
        options |= {
            "target-file-size-bytes": str(size),
            "min-file-size-bytes": str(int(size * SMALL)),
        }
    if policy.delete_ratio:
        options["delete-ratio-threshold"] = str(policy.delete_ratio)
    if metadata.format_version == 2:
        options["remove-dangling-deletes"] = "true"
    return options


def _options(values: Mapping[str, str]) -> str:
    return f"map({', '.join(f'{literal(key)}, {literal(text)}' for key, text in values.items())})"


def _time(age_ms: int) -> str:
    timestamp = datetime.fromtimestamp(max(time.time() - age_ms / 1000, 0), UTC)
    # with a time zone because the session may use a different one
    return f"TIMESTAMP {literal(timestamp.strftime('%Y-%m-%d %H:%M:%S.%f')[:-3] + 'Z')}"

"""Change the refs of a table. Runs in the Spark driver.

Tags and branches are changed with Spark SQL. A rollback is a compare-and-swap.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from connectors.iceberg.catalog.java_errors import REFUSED, is_a
from connectors.iceberg.catalog.sql_names import quoted, relation
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg_tools.refs.ledger_check import effects

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connectors.iceberg.catalog.table_update import TableUpdate
    from connectors.iceberg.driver.lake_session import LakeSession
    from connectors.iceberg.protocol.table_metadata import TableMetadata

log = logging.getLogger(__name__)
_MINUTE = 60_000


def create_sql(
    catalog: str,
    table: str,
    kind: str,
    name: str,
    snapshot: int,
    keep_ms: int | None,
    *,
    move: bool,
) -> str:
    """Return the statement that creates or moves a tag or a branch (`kind`)."""
    verb = "CREATE OR REPLACE" if move else "CREATE"
    retain = "" if keep_ms is None else f" RETAIN {max(keep_ms // _MINUTE, 1)} MINUTES"
    at = f"{kind.upper()} {quoted(name)} AS OF VERSION {snapshot}{retain}"
    return f"ALTER TABLE {relation(catalog, table)} {verb} {at}"


def drop_sql(catalog: str, table: str, kind: str, name: str) -> str:
    """Return the statement that removes a tag or a branch."""
    return f"ALTER TABLE {relation(catalog, table)} DROP {kind.upper()} {quoted(name)}"


def run_sql(session: LakeSession, name: str, statement: str) -> None:
    """Run a SQL statement that changes the table `name`."""
    session.spark.sql(statement)


def move_branch(
    session: LakeSession,
    name: str,
    ref: str,
    head: int,
    snapshot: int,
    group_refs: Mapping[str, str] | None = None,
) -> None:
    """Move a branch to an existing snapshot with one compare-and-swap, like a commit.

    A crash before the swap leaves the table unchanged; a crash after it leaves the branch moved. A
    repeated call fails if the branch has moved.

    Args:
        head: The expected head of the branch.
        snapshot: The new head of the branch.
        group_refs: See `effects`.

    Raises:
        TableUnsuitableError: See `prepare_back`.
    """
    prepared, _ = prepare_back(session, name, ref, head, snapshot, group_refs)
    prepared.publish(ref, snapshot)
    swap_once(prepared, name, ref, {})
    log.info("table %s: %s moved from snapshot %d to %d", name, ref, head, snapshot)


def prepare_at(
    session: LakeSession, name: str, ref: str, head: int, snapshot: int
) -> tuple[TableUpdate, TableMetadata]:
    """Return an update that moves a branch to an existing snapshot, and its base metadata.

    Raises:
        TableUnsuitableError: The branch has moved since `head` was read, or the snapshot has
            expired.
    """
    prepared = session.table(name).new_update()
    base = prepared.base()
    current_head = base.head(ref)
    if current_head is None or current_head["snapshot-id"] != head:
        raise TableUnsuitableError(name, f"{ref} has changed; check the table again")
    if snapshot not in base.snapshots:
        raise TableUnsuitableError(name, f"snapshot {snapshot} has expired")
    # Otherwise, the connector would continue after the unpublished commits, and readers would see
    # its commits when the branch is published.
    if base.has_unpublished(ref):
        raise TableUnsuitableError(
            name, "has unpublished commits; publish or reject them first with `connect-py gate`"
        )
    return prepared, base


def prepare_back(
    session: LakeSession,
    name: str,
    ref: str,
    head: int,
    snapshot: int,
    group_refs: Mapping[str, str] | None,
) -> tuple[TableUpdate, TableMetadata]:
    """Return the update for a rollback, after checking the ledgers again.

    Raises:
        TableUnsuitableError: The rollback is no longer possible, or a connector could not resume
            from the snapshot.
    """
    prepared, base = prepare_at(session, name, ref, head, snapshot)
    for each in effects(base, ref, snapshot, group_refs):
        if each.refused:
            raise TableUnsuitableError(name, f"connector group {each.group}: {each.refused}")
    return prepared, base


def swap_once(prepared: TableUpdate, name: str, ref: str, properties: Mapping[str, str]) -> None:
    """Commit a prepared update.

    Raises:
        TableUnsuitableError: Another commit changed the table first.
    """
    try:
        prepared.swap(properties)
    except Exception as error:
        if is_a(error, REFUSED):
            raise TableUnsuitableError(name, f"{ref} has changed; check the table again") from error
        raise

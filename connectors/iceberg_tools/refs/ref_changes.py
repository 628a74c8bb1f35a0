"""Changes of refs, made in the Spark driver: tags and branches by Spark SQL, a roll-back by one
compare-and-swap."""

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
    """The statement that makes a tag or a branch (`kind`), or moves it."""
    verb = "CREATE OR REPLACE" if move else "CREATE"
    retain = "" if keep_ms is None else f" RETAIN {max(keep_ms // _MINUTE, 1)} MINUTES"
    at = f"{kind.upper()} {quoted(name)} AS OF VERSION {snapshot}{retain}"
    return f"ALTER TABLE {relation(catalog, table)} {verb} {at}"


def drop_sql(catalog: str, table: str, kind: str, name: str) -> str:
    """The statement that removes a tag or a branch."""
    return f"ALTER TABLE {relation(catalog, table)} DROP {kind.upper()} {quoted(name)}"


def run_sql(session: LakeSession, name: str, statement: str) -> None:
    """Run a statement about a table."""
    session.spark.sql(statement)


def move_branch(
    session: LakeSession,
    name: str,
    ref: str,
    head: int,
    snapshot: int,
    own: Mapping[str, str] | None = None,
) -> None:
    """Make a snapshot that is there the head of a branch: one compare-and-swap, as a commit's.

    A crash before it leaves the table as it was, one after it the table moved: running it again
    says which.

    Args:
        own: As for `effects`.

    Raises:
        TableUnsuitableError: `prepare_back`.
    """
    prepared, _ = prepare_back(session, name, ref, head, snapshot, own)
    prepared.publish(ref, snapshot)
    swap_once(prepared, name, ref, {})
    log.info("table %s: %s moved from snapshot %d to %d", name, ref, head, snapshot)


def prepare_at(
    session: LakeSession, name: str, ref: str, head: int, snapshot: int
) -> tuple[TableUpdate, TableMetadata]:
    """A change of a branch that stands where it was looked at, to a snapshot that is there; and its
    base.

    Raises:
        TableUnsuitableError: One of them is so no more.
    """
    prepared = session.table(name).new_update()
    base = prepared.base()
    found = base.head(ref)
    if found is None or found["snapshot-id"] != head:
        raise TableUnsuitableError(name, f"{ref} was committed to meanwhile: look again")
    if snapshot not in base.snapshots:
        raise TableUnsuitableError(name, f"snapshot {snapshot} was expired meanwhile")
    # a connector would go on with them, in front of readers once they are published
    if base.has_unpublished(ref):
        raise TableUnsuitableError(
            name, "has unpublished commits: decide about them first, with `connect-py gate`"
        )
    return prepared, base


def prepare_back(
    session: LakeSession,
    name: str,
    ref: str,
    head: int,
    snapshot: int,
    own: Mapping[str, str] | None,
) -> tuple[TableUpdate, TableMetadata]:
    """The same for a way back, judged again: an expiry may have taken ledgers since the user
    looked.

    Raises: TableUnsuitableError: It is not possible any more, or a connector could not go on from
        there.
    """
    prepared, base = prepare_at(session, name, ref, head, snapshot)
    for each in effects(base, ref, snapshot, own):
        if each.refused:
            raise TableUnsuitableError(name, f"connector group {each.group}: {each.refused}")
    return prepared, base


def swap_once(prepared: TableUpdate, name: str, ref: str, properties: Mapping[str, str]) -> None:
    """Make a prepared change visible.

    Raises:
        TableUnsuitableError: A commit came in between.
    """
    try:
        prepared.swap(properties)
    except Exception as error:
        if is_a(error, REFUSED):
            raise TableUnsuitableError(
                name, f"{ref} was committed to meanwhile: look again"
            ) from error
        raise

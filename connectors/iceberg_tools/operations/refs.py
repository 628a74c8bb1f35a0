"""Tags and branches of a table: list them, or create, move, and remove one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from connectors.iceberg.protocol.commit_request import MAIN
from connectors.iceberg.protocol.own_refs import OWN_REFS
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg_tools.history.snapshot_entry import SnapshotEntry, entries
from connectors.iceberg_tools.history.table_point import FIRST, LAST, find_point
from connectors.iceberg_tools.operations.table_operation import (
    Name,
    TableArguments,
    TableOperation,
    TableTarget,
)
from connectors.iceberg_tools.refs.ledger_check import ConnectorEffect, effects
from connectors.iceberg_tools.refs.ref_changes import create_sql, drop_sql, run_sql

_MAX_KEEP_MS = 2**53


class RefsArguments(TableArguments, frozen=True, kw_only=True):
    """Which refs to list."""

    kind: Literal["tag", "branch"]


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """A tag or a branch, and its snapshot."""

    name: str
    entry: SnapshotEntry


def refs(target: TableTarget, arguments: RefsArguments) -> list[NamedSnapshot]:
    """List the tags or the branches by the age of their snapshots, newest first, without those of
    the sink itself."""
    metadata = target.metadata()
    snapshots = {entry.id: entry for entry in entries(metadata, everything=True)}
    named = [
        NamedSnapshot(name, snapshots[number])
        for name, number in metadata.refs.items()
        if (name in metadata.tags) == (arguments.kind == "tag") and not name.startswith(OWN_REFS)
    ]
    return sorted(named, key=lambda each: (each.entry.timestamp_ms, each.name), reverse=True)


class ChangeRefArguments(TableArguments, frozen=True, kw_only=True):
    """A change of one tag or branch."""

    kind: Literal["tag", "branch"]
    name: str
    at: str = LAST
    # age at which an expiry removes it
    keep_ms: Annotated[int, msgspec.Meta(ge=0, le=_MAX_KEEP_MS)] | None = None
    move: bool = False  # it may exist, and is moved
    delete: bool = False
    branch: Name | None = None  # whose history `at` is a point of


@dataclass(frozen=True, slots=True)
class RefChange:
    """A change of a ref that was made, or refused."""

    snapshot: int | None  # where the ref is now; None: it is removed
    sql: str
    effects: list[ConnectorEffect]
    refused: str  # empty: the change was made


def change_ref(target: TableTarget, arguments: ChangeRefArguments) -> RefChange:
    """Change a ref, unless a connector could not continue from there.

    Raises:
        NotInHistoryError: The snapshot does not exist.
    """
    metadata, kind, name = target.metadata(), arguments.kind, arguments.name
    point = None
    if not arguments.delete:
        point = find_point(metadata, arguments.at, target.commit_ref(metadata, arguments.branch))
    changed = effects(metadata, name, point, target.own_ref) if kind == "branch" else []
    if why := refusal(kind, metadata, name, changed, move=arguments.move, delete=arguments.delete):
        return RefChange(point, "", changed, why)
    names = target.catalog, target.table, kind, name
    sql = (
        drop_sql(*names)
        if point is None
        else create_sql(*names, point, arguments.keep_ms, move=arguments.move)
    )
    target.lake.run(target.table, run_sql, sql)
    return RefChange(point, sql, changed, "")


def refusal(
    kind: str,
    metadata: TableMetadata,
    name: str,
    changed: Sequence[ConnectorEffect],
    *,
    move: bool,
    delete: bool,
) -> str:
    """Return the reason why a change must not be made; empty if it may be made."""
    other = "tag" if kind == "branch" else "branch"
    if not delete and (name in ("", FIRST, LAST) or name.isdecimal()):
        return f"{name or 'an empty text'} is no name: options would take it for something else"
    if name.startswith(OWN_REFS):
        return (
            f"names that begin with {OWN_REFS} are the sink's own, and its commits set and "
            f"remove them"
        )
    if name in metadata.refs and (name in metadata.tags) != (kind == "tag"):
        return f"{name} is a {other}"
    if delete and name not in metadata.refs:
        return f"there is no {kind} {name}"
    if not delete and name in metadata.refs and not move:
        return f"{kind} {name} exists, at snapshot {metadata.refs[name]}; --move moves it"
    if name == MAIN:
        return "main is moved by `connect-py rollback`, and is never removed"
    for each in changed:
        if delete and each.again:
            return (
                f"connector group {each.group} commits to {name}: its rows would be read again, "
                f"to a branch of main"
            )
    return next(
        (f"connector group {each.group}: {each.refused}" for each in changed if each.refused), ""
    )


REFS = TableOperation("refs", RefsArguments, list[NamedSnapshot], refs)
CHANGE_REF = TableOperation("change-ref", ChangeRefArguments, RefChange, change_ref)

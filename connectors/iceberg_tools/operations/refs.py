"""List the tags or branches of a table, or create, move, or remove one."""

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
    """Selects the refs to list."""

    kind: Literal["tag", "branch"]


@dataclass(frozen=True, slots=True)
class NamedSnapshot:
    """A tag or branch and its snapshot."""

    name: str
    entry: SnapshotEntry


def refs(target: TableTarget, arguments: RefsArguments) -> list[NamedSnapshot]:
    """List the tags or the branches, newest snapshot first, without the sink's internal refs."""
    metadata = target.metadata()
    snapshots = {entry.id: entry for entry in entries(metadata, everything=True)}
    selected = [
        NamedSnapshot(name, snapshots[number])
        for name, number in metadata.refs.items()
        if (name in metadata.tags) == (arguments.kind == "tag") and not name.startswith(OWN_REFS)
    ]
    return sorted(selected, key=lambda each: (each.entry.timestamp_ms, each.name), reverse=True)


class ChangeRefArguments(TableArguments, frozen=True, kw_only=True):
    """Describes a change to one tag or branch."""

    kind: Literal["tag", "branch"]
    name: str
    at: str = LAST
    # age in milliseconds at which snapshot expiration removes the ref
    keep_ms: Annotated[int, msgspec.Meta(ge=0, le=_MAX_KEEP_MS)] | None = None
    move: bool = False  # move the ref if it exists
    delete: bool = False
    branch: Name | None = None  # history that `at` refers to


@dataclass(frozen=True, slots=True)
class RefChange:
    """An applied or refused change to a ref."""

    snapshot: int | None  # the ref's snapshot, or None if the ref was removed
    sql: str
    effects: list[ConnectorEffect]
    refused: str  # reason for the refusal, or empty if the change was applied


def change_ref(target: TableTarget, arguments: ChangeRefArguments) -> RefChange:
    """Change a ref unless a connector could not resume from its new snapshot.

    Raises:
        NotInHistoryError: The snapshot does not exist.
    """
    metadata, kind, name = target.metadata(), arguments.kind, arguments.name
    point = None
    if not arguments.delete:
        point = find_point(metadata, arguments.at, target.commit_ref(metadata, arguments.branch))
    changed = effects(metadata, name, point, target.own_ref) if kind == "branch" else []
    if reason := refusal(
        kind, metadata, name, changed, move=arguments.move, delete=arguments.delete
    ):
        return RefChange(point, "", changed, reason)
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
    """Return the reason why a change must not be applied, or an empty string if it is allowed."""
    other = "tag" if kind == "branch" else "branch"
    if not delete and (name in ("", FIRST, LAST) or name.isdecimal()):
        return f"invalid name {name or '(empty)'}: it would be ambiguous in options"
    if name.startswith(OWN_REFS):
        return (
            f"names that begin with {OWN_REFS} are reserved for the sink, whose commits set and "
            "remove them"
        )
    if name in metadata.refs and (name in metadata.tags) != (kind == "tag"):
        return f"{name} is a {other}"
    if delete and name not in metadata.refs:
        return f"{kind} {name} does not exist"
    if not delete and name in metadata.refs and not move:
        return f"{kind} {name} exists at snapshot {metadata.refs[name]}; use --move to move it"
    if name == MAIN:
        return "main can only be moved by `connect-py rollback` and is never removed"
    for each in changed:
        if delete and each.again:
            return (
                f"connector group {each.group} commits to {name} and would read rows again and "
                "write them to a new branch of main"
            )
    return next(
        (f"connector group {each.group}: {each.refused}" for each in changed if each.refused), ""
    )


REFS = TableOperation("refs", RefsArguments, list[NamedSnapshot], refs)
CHANGE_REF = TableOperation("change-ref", ChangeRefArguments, RefChange, change_ref)

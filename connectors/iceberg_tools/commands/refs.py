"""`connect-py tag` and `connect-py branch`: manage the tags and branches of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.table_options import At, Branch, TableOptions
from connectors.iceberg_tools.commands.table_session import table_session

if TYPE_CHECKING:
    from connectors.iceberg_tools.operations.refs import NamedSnapshot
    from connectors.iceberg_tools.refs.ledger_check import ConnectorEffect

REFUSED, UNDECIDED = 1, 2


@dataclass(frozen=True, slots=True)
class RefOptions:
    """A ref and the change to make to it."""

    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="If omitted, all refs are listed.")
    ] = None
    at: At = "last"
    keep: Annotated[
        str | None,
        typer.Option(
            help="Snapshot age at which expiration removes the ref: 30m, 36h, 14d, 4w.",
            show_default="never",
        ),
    ] = None
    move: Annotated[bool, typer.Option("--move", help="Move the ref if it exists.")] = False
    delete: Annotated[
        bool, typer.Option("--delete", help="Remove the ref. Its snapshot may expire afterward.")
    ] = False


@command(worker=True, json=True, failure_status=UNDECIDED)
def tag(
    context: CommandContext, source: TableOptions, ref: RefOptions, branch: Branch = None
) -> None:
    """Tag a snapshot to protect it from expiration, or list, move, and remove tags.

    Exit status 0: done; 1: refused; 2: unknown (the table does not exist, or the catalog does not
    respond).
    """
    _change(context, "tag", source, ref, branch)


@command(worker=True, json=True, failure_status=UNDECIDED)
def branch(context: CommandContext, source: TableOptions, ref: RefOptions) -> None:
    """Create a branch at a snapshot of a table, or list, move, and remove branches.

    A change is refused if the ledgers show that a connector that commits to the branch could not
    resume from there. Exit status 0: done; 1: refused; 2: unknown (the table does not exist, or the
    catalog does not respond).
    """
    _change(context, "branch", source, ref, None)


def _change(
    context: CommandContext,
    kind: Literal["tag", "branch"],
    source: TableOptions,
    ref: RefOptions,
    history_branch: str | None,
) -> None:
    from connectors.iceberg.config.tag_schedule import parse_duration
    from connectors.iceberg_tools.history.table_point import LAST
    from connectors.iceberg_tools.operations.refs import (
        CHANGE_REF,
        REFS,
        ChangeRefArguments,
        RefsArguments,
    )

    table = source.table
    keep_ms = None if ref.keep is None else _parse("--keep", ref.keep, parse_duration)
    if ref.name is None:
        if ref.move or ref.delete or ref.keep is not None or ref.at != LAST:
            raise ConfigError("NAME", f"is missing; specify the name of the {kind}")
        with table_session(context, source) as session:
            refs = session.run(REFS, RefsArguments(table=table, kind=kind))
        document = [{"name": each.name, **each.entry.to_json()} for each in refs]
        context.show({"table": table, "refs": document}, _ref_lines(kind, table, refs))
        return
    with table_session(context, source) as session:
        change = session.run(
            CHANGE_REF,
            ChangeRefArguments(
                table=table,
                kind=kind,
                name=ref.name,
                at=ref.at,
                keep_ms=keep_ms,
                move=ref.move,
                delete=ref.delete,
                branch=history_branch,
            ),
        )
    if change.refused:
        context.warn(f"table {table}: {change.refused}")
        raise typer.Exit(REFUSED)
    effects = [each.to_json() for each in change.effects]
    outcome = "is removed" if change.snapshot is None else f"is at snapshot {change.snapshot}"
    context.show(
        {
            "table": table,
            kind: ref.name,
            "snapshot": change.snapshot,
            "sql": change.sql,
            "connectors": effects,
        },
        [f"{table}: {kind} {ref.name} {outcome}", *effect_lines(change.effects)],
    )


def _parse(option: str, value: str, read: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ConfigError(option, str(error)) from error


def effect_lines(effects: list[ConnectorEffect]) -> Iterator[str]:
    """Yield one line per offset range that a connector reads again after the change."""
    for each in effects:
        for part in each.again:
            first = "the first offset of the table" if part.first is None else str(part.first)
            yield (
                f"{each.group} reads {part.partition.topic}-{part.partition.partition} again "
                f"from {first} to {part.next}"
            )


def _ref_lines(kind: str, table: str, refs: list[NamedSnapshot]) -> Iterator[str]:
    from connectors.iceberg_tools.history.snapshot_entry import utc

    yield f"{table}, {'branches' if kind == 'branch' else 'tags'}: {len(refs)}"
    for each in refs:
        entry = each.entry
        offsets = " ".join(
            f"{t}-{p}:{n}" for t, parts in entry.offsets.items() for p, n in parts.items()
        )
        yield f"{each.name:<24} {utc(entry.timestamp_ms)[:19]}Z  {entry.id}  {offsets}".rstrip()

"""`connect-py tag` and `connect-py branch`: names for states of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from connect_py.api.command import asks_worker, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import (
    POINT,
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    Worker,
)
from connectors.iceberg_tools.commands.table_session import TableOptions, table_session

if TYPE_CHECKING:
    from connectors.iceberg_tools.operations.refs import NamedSnapshot
    from connectors.iceberg_tools.refs.ledger_check import ConnectorEffect

REFUSED, UNDECIDED = 1, 2
Name = Annotated[
    str | None, typer.Argument(metavar="[NAME]", help="Without a name they are listed.")
]
At = Annotated[str, typer.Option("--at", help=f"Which state: {POINT}.")]
Keep = Annotated[
    str | None,
    typer.Option(
        help="Age of its snapshot at which an expiry removes it: 30m, 36h, 14d, 4w.",
        show_default="never",
    ),
]
Move = Annotated[bool, typer.Option("--move", help="It may exist already, and is moved then.")]
Delete = Annotated[
    bool, typer.Option("--delete", help="Remove it. Its snapshot may be expired then.")
]


@asks_worker
@uses_java
def tag(
    table: Table,
    name: Name = None,
    at: At = "last",
    keep: Keep = None,
    move: Move = False,
    delete: Delete = False,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Give a state of a table a name, which keeps it from being expired; or list, move and remove
    such names.

    Exit status 0: done; 1: refused, and why; 2: not known (no such table, no answer from the
    catalog).
    """
    with errors_exit(UNDECIDED):
        options = TableOptions(table, config, worker, catalog_property, catalog)
        _change("tag", options, name, at, keep, branch, move=move, delete=delete, as_json=as_json)


@asks_worker
@uses_java
def branch(
    table: Table,
    name: Name = None,
    at: At = "last",
    keep: Keep = None,
    move: Move = False,
    delete: Delete = False,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    as_json: AsJson = False,
) -> None:
    """Begin a branch at a state of a table; or list, move and remove branches.

    The ledgers say what a branch means to the connectors that commit to it: one that they could not
    go on from is refused. Exit status 0: done; 1: refused, and why; 2: not known (no such table, no
    answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        options = TableOptions(table, config, worker, catalog_property, catalog)
        _change("branch", options, name, at, keep, None, move=move, delete=delete, as_json=as_json)


def _change(
    kind: Literal["tag", "branch"],
    options: TableOptions,
    name: str | None,
    at: str,
    keep: str | None,
    line: str | None,
    *,
    move: bool,
    delete: bool,
    as_json: bool,
) -> None:
    from connectors.iceberg.config.tag_schedule import parse_duration
    from connectors.iceberg_tools.history.table_point import LAST
    from connectors.iceberg_tools.operations.refs import (
        CHANGE_REF,
        REFS,
        ChangeRefArguments,
        RefsArguments,
    )

    table = options.table
    keep_ms = None if keep is None else _parsed("--keep", keep, parse_duration)
    if name is None and (move or delete or keep is not None or at != LAST):
        raise ConfigError("NAME", f"is missing: which {kind}?")
    with table_session(options) as session:
        if name is None:
            refs = session.run(REFS, RefsArguments(table=table, kind=kind))
        else:
            change = session.run(
                CHANGE_REF,
                ChangeRefArguments(
                    table=table,
                    kind=kind,
                    name=name,
                    at=at,
                    keep_ms=keep_ms,
                    move=move,
                    delete=delete,
                    branch=line,
                ),
            )
    if name is None:
        _print_refs(kind, table, refs, as_json=as_json)
        return
    if change.refused:
        typer.echo(f"connect-py: table {table}: {change.refused}", err=True)
        raise typer.Exit(REFUSED)
    point = change.snapshot
    if as_json:
        document = {"table": table, kind: name, "snapshot": point, "sql": change.sql}
        typer.echo(
            json.dumps(
                {**document, "connectors": [each.to_json() for each in change.effects]}, indent=2
            )
        )
        return
    typer.echo(
        f"{table}: {kind} {name} " + ("is removed" if point is None else f"is at snapshot {point}")
    )
    for line_ in effect_lines(change.effects):
        typer.echo(line_)


def _parsed(option: str, text: str, read: Any) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(option, str(error)) from error


def effect_lines(found: list[ConnectorEffect]) -> Iterator[str]:
    """What connectors do afterwards, for people."""
    for each in found:
        for part in each.again:
            first = "its first offset of this table" if part.first is None else str(part.first)
            yield (
                f"{each.group} reads {part.partition.topic}-{part.partition.partition} again "
                f"from {first} to {part.next}"
            )


def _print_refs(kind: str, table: str, refs: list[NamedSnapshot], *, as_json: bool) -> None:
    from connectors.iceberg_tools.history.snapshot_entry import utc

    if as_json:
        listed = [{"name": each.name, **each.entry.to_json()} for each in refs]
        typer.echo(json.dumps({"table": table, "refs": listed}, indent=2))
        return
    typer.echo(f"{table}, {'branches' if kind == 'branch' else 'tags'}: {len(refs)}")
    for each in refs:
        entry = each.entry
        offsets = " ".join(
            f"{t}-{p}:{n}" for t, parts in entry.offsets.items() for p, n in parts.items()
        )
        typer.echo(
            f"{each.name:<24} {utc(entry.timestamp_ms)[:19]}Z  {entry.id}  {offsets}".rstrip()
        )

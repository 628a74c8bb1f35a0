"""`connect-py tag` and `connect-py branch`: names for states of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg.commands.exit_status import errors_exit
from connectors.iceberg.commands.table_options import (
    POINT,
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    TablePlace,
    Worker,
    known_branch,
    table_place,
)

if TYPE_CHECKING:
    from connectors.iceberg.protocol.table_metadata import TableMetadata
    from connectors.iceberg.refs.ledger_check import ConnectorEffect

REFUSED, UNDECIDED = 1, 2
Name = Annotated[str | None, typer.Argument(metavar="[NAME]", help="Without a name they are listed.")]
At = Annotated[str, typer.Option("--at", help=f"Which state: {POINT}.")]
Keep = Annotated[
    str | None,
    typer.Option(help="Age of its snapshot at which an expiry removes it: 30m, 36h, 14d, 4w.", show_default="never"),
]
Move = Annotated[bool, typer.Option("--move", help="It may exist already, and is moved then.")]
Delete = Annotated[bool, typer.Option("--delete", help="Remove it. Its snapshot may be expired then.")]


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
    """Give a state of a table a name, which keeps it from being expired; or list, move and remove such names.

    Exit status 0: done; 1: refused, and why; 2: not known (no such table, no answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        place = table_place(table, config, worker, catalog_property, catalog)
        _change("tag", place, name, at, keep, branch, move=move, delete=delete, as_json=as_json)


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

    The ledgers say what a branch means to the connectors that commit to it: one that they could not go on from is
    refused. Exit status 0: done; 1: refused, and why; 2: not known (no such table, no answer from the catalog).
    """
    with errors_exit(UNDECIDED):
        place = table_place(table, config, worker, catalog_property, catalog)
        _change("branch", place, name, at, keep, None, move=move, delete=delete, as_json=as_json)


def _change(
    kind: str, place: TablePlace, name: str | None, at: str, keep: str | None, line: str | None,
    *, move: bool, delete: bool, as_json: bool,
) -> None:  # fmt: skip
    from connectors.iceberg.config.tag_schedule import parse_duration
    from connectors.iceberg.history.table_diff import read_metadata
    from connectors.iceberg.history.table_point import LAST, find_point
    from connectors.iceberg.refs.ref_changes import create_sql, drop_sql, run_sql

    keep_ms = None if keep is None else _parsed("--keep", keep, parse_duration)
    if name is None and (move or delete or keep is not None or at != LAST):
        raise ConfigError("NAME", f"is missing: which {kind}?")
    with place.open() as lake:
        metadata = lake.run(place.table, read_metadata)
        if name is None:
            _print_refs(kind, place.table, metadata, as_json=as_json)
            return
        point = None if delete else find_point(metadata, at, known_branch(metadata, line, place))
        found = _effects(place, metadata, name, point) if kind == "branch" else []
        if why := refusal(kind, metadata, name, found, move=move, delete=delete):
            typer.echo(f"connect-py: table {place.table}: {why}", err=True)
            raise typer.Exit(REFUSED)
        names = place.spark.catalog, place.table, kind, name
        sql = drop_sql(*names) if point is None else create_sql(*names, point, keep_ms, move=move)
        lake.run(place.table, run_sql, sql)
    if as_json:
        document = {"table": place.table, kind: name, "snapshot": point, "sql": sql}
        typer.echo(json.dumps({**document, "connectors": [each.to_json() for each in found]}, indent=2))
        return
    typer.echo(f"{place.table}: {kind} {name} " + ("is removed" if point is None else f"is at snapshot {point}"))
    for line_ in effect_lines(found):
        typer.echo(line_)


def _parsed(option: str, text: str, read: Any) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise ConfigError(option, str(error)) from error


def _effects(place: TablePlace, metadata: TableMetadata, name: str, point: int | None) -> list[ConnectorEffect]:
    from connectors.iceberg.refs.ledger_check import effects

    return effects(metadata, name, point, {place.group: place.ref} if place.group is not None else None)


def refusal(
    kind: str, metadata: TableMetadata, name: str, found: list[ConnectorEffect], *, move: bool, delete: bool
) -> str:
    """Why this must not be done; empty: it may."""
    from connectors.iceberg.history.table_point import FIRST, LAST
    from connectors.iceberg.protocol.own_refs import OWN_REFS

    other = "tag" if kind == "branch" else "branch"
    if not delete and (name in ("", FIRST, LAST) or name.isdecimal()):
        return f"{name or 'an empty text'} is no name: options would take it for something else"
    if name.startswith(OWN_REFS):
        return f"names that begin with {OWN_REFS} are the sink's own, and its commits set and remove them"
    if name in metadata.refs and (name in metadata.tags) != (kind == "tag"):
        return f"{name} is a {other}"
    if delete and name not in metadata.refs:
        return f"there is no {kind} {name}"
    if not delete and name in metadata.refs and not move:
        return f"{kind} {name} exists, at snapshot {metadata.refs[name]}; --move moves it"
    if name == "main":
        return "main is moved by `connect-py rollback`, and is never removed"
    for each in found:
        if delete and each.again:
            return f"connector group {each.group} commits to {name}: its rows would be read again, to a branch of main"
    return next((f"connector group {each.group}: {each.refused}" for each in found if each.refused), "")


def effect_lines(found: list[ConnectorEffect]) -> Iterator[str]:
    """What connectors do afterwards, for people."""
    for each in found:
        for part in each.again:
            first = "its first offset of this table" if part.first is None else str(part.first)
            yield (
                f"{each.group} reads {part.partition.topic}-{part.partition.partition} again "
                f"from {first} to {part.next}"
            )  # fmt: skip


def _print_refs(kind: str, table: str, metadata: TableMetadata, *, as_json: bool) -> None:
    """Those of a kind, by age of their snapshots."""
    from connectors.iceberg.history.snapshot_entry import entries, utc
    from connectors.iceberg.protocol.own_refs import OWN_REFS

    known = {entry.id: entry for entry in entries(metadata, everything=True)}
    chosen = [
        (known[number], name)
        for name, number in metadata.refs.items()
        if (name in metadata.tags) == (kind == "tag") and not name.startswith(OWN_REFS)
    ]
    chosen.sort(key=lambda each: (each[0].timestamp_ms, each[1]), reverse=True)
    if as_json:
        listed = [{"name": name, **entry.to_json()} for entry, name in chosen]
        typer.echo(json.dumps({"table": table, "refs": listed}, indent=2))
        return
    typer.echo(f"{table}, {'branches' if kind == 'branch' else 'tags'}: {len(chosen)}")
    for entry, name in chosen:
        offsets = " ".join(f"{t}-{p}:{n}" for t, parts in entry.offsets.items() for p, n in parts.items())
        typer.echo(f"{name:<24} {utc(entry.timestamp_ms)[:19]}Z  {entry.id}  {offsets}".rstrip())

"""`connect-py rollback`: a table goes back to an earlier state, and connectors refill it from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from connect_py.api.command import confirmed, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg.commands.exit_status import errors_exit
from connectors.iceberg.commands.refs import effect_lines
from connectors.iceberg.commands.table_options import (
    POINT,
    AsJson,
    Branch,
    Catalog,
    CatalogProperties,
    Config,
    Table,
    Worker,
    table_place,
)

if TYPE_CHECKING:
    from connectors.iceberg.history.snapshot_entry import SnapshotEntry
    from connectors.iceberg.protocol.table_metadata import TableMetadata
    from connectors.iceberg.refs.ledger_check import ConnectorEffect

REFUSED, UNDECIDED = 1, 2


@dataclass(frozen=True, slots=True)
class Preview:
    """What a roll-back would do."""

    table: str
    ref: str
    head: int
    snapshot: int
    leaving: list[SnapshotEntry]  # newest first
    effects: list[ConnectorEffect]
    refused: str

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table, "ref": self.ref, "from": self.head, "to": self.snapshot,
            "leaving": [entry.to_json() for entry in self.leaving],
            "connectors": [each.to_json() for each in self.effects], "refused": self.refused or None,
        }  # fmt: skip


@uses_java
def rollback(
    table: Table,
    to: Annotated[str, typer.Option(help=f"The state to go back to: {POINT}.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Take a table back to an earlier snapshot of its history. Connectors then read again what is missing.

    The ledgers decide: a state from which a connector of the table could not go on is refused. Rows of other writers
    that leave do not come back. Exit status 0: done, or it may be done; 1: refused, and why; 2: not known.
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg.history.table_diff import read_metadata
        from connectors.iceberg.refs.ref_changes import move_branch

        if as_json and not (yes or dry_run):
            raise ConfigError("--json", "needs --yes or --dry-run")
        place = table_place(table, config, worker, catalog_property, catalog)
        ref = branch or place.ref
        with place.open() as lake:
            metadata = lake.run(table, read_metadata)
            own = {place.group: place.ref} if place.group is not None else None
            preview = look(table, metadata, ref, to, own)
            if not as_json:
                for line in preview_lines(preview):
                    typer.echo(line)
            if preview.refused:
                typer.echo(f"connect-py: table {table}: {preview.refused}", err=True)
            elif not dry_run and preview.leaving:
                if not yes and not confirmed("Go back?"):
                    raise typer.Exit(REFUSED)
                lake.run(table, move_branch, ref, preview.head, preview.snapshot, own)
    done = not preview.refused and not dry_run
    if as_json:
        typer.echo(json.dumps({**preview.to_json(), "done": done}, indent=2))
    elif done:
        typer.echo(f"{ref} is at snapshot {preview.snapshot}")
    raise typer.Exit(REFUSED if preview.refused else 0)


def look(table: str, metadata: TableMetadata, ref: str, to: str, own: dict[str, str] | None) -> Preview:
    """Say what a roll-back would do.

    Raises:
        NotInHistoryError: There is no such state, or no such branch.
    """
    from connectors.iceberg.history.snapshot_entry import entries
    from connectors.iceberg.history.table_point import NotInHistoryError, find_point, known_ref
    from connectors.iceberg.refs.ledger_check import effects

    head = known_ref(metadata, ref)
    if metadata.has_unpublished(ref):
        raise NotInHistoryError("commits of the table are unpublished: decide about them first, with `connect-py gate`")
    if ref in metadata.tags:
        raise NotInHistoryError(f"{ref} is a tag; `connect-py tag --move` moves it")
    snapshot = find_point(metadata, to, ref)
    history = entries(metadata, ref)
    numbers = [entry.id for entry in history]
    if snapshot not in numbers:
        refused = f"snapshot {snapshot} is not in the history of {ref}: this would not be a way back"
        return Preview(table, ref, head, snapshot, [], [], refused)
    found = effects(metadata, ref, snapshot, own) if snapshot != head else []
    refused = next((f"connector group {each.group}: {each.refused}" for each in found if each.refused), "")
    return Preview(table, ref, head, snapshot, history[: numbers.index(snapshot)], found, refused)


def preview_lines(preview: Preview, *, skips: bool = False) -> Iterator[str]:
    """The preview for people. `skips`: what leaves is not read again."""
    from connectors.iceberg.history.snapshot_entry import REWRITE, utc

    yield f"{preview.table} ({preview.ref}): {preview.head} -> {preview.snapshot}"
    for entry in preview.leaving:
        counts = f"{entry.rows_in} in, {entry.rows_out} out"
        yield f"leaves  {utc(entry.timestamp_ms)[:19]}Z  {entry.id}  {counts}, by {entry.writer.name}"
    foreign = [entry for entry in preview.leaving if entry.writer.kind != "connector" and entry.operation != REWRITE]
    if foreign:
        yield f"{len(foreign)} of these are commits of other writers: their rows do not come back"
    for line in effect_lines(preview.effects):
        yield line.replace(" reads ", " skips ").replace(" again from ", " from ") if skips else line

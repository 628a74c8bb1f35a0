"""`connect-py rollback`: a table goes back to an earlier state, and connectors refill it from
there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import asks_worker, confirmed, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.refs import effect_lines
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
    from connectors.iceberg_tools.operations.rollback import RollbackPreview

REFUSED, UNDECIDED = 1, 2


@asks_worker
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
    """Take a table back to an earlier snapshot of its history. Connectors then read again what is
    missing.

    The ledgers decide: a state from which a connector of the table could not go on is refused. Rows
    of other writers that leave do not come back. Exit status 0: done, or it may be done; 1:
    refused, and why; 2: not known.
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.rollback import (
            PREVIEW_ROLLBACK,
            ROLLBACK,
            PreviewRollbackArguments,
            RollbackArguments,
        )

        if as_json and not (yes or dry_run):
            raise ConfigError("--json", "needs --yes or --dry-run")
        with table_session(
            TableOptions(table, config, worker, catalog_property, catalog)
        ) as session:
            preview = session.run(
                PREVIEW_ROLLBACK, PreviewRollbackArguments(table=table, to=to, branch=branch)
            )
            ref = preview.ref
            session.pause_status()
            if not as_json:
                for line in preview_lines(preview):
                    typer.echo(line)
            if preview.refused:
                typer.echo(f"connect-py: table {table}: {preview.refused}", err=True)
            elif not dry_run and preview.leaving:
                if not yes and not confirmed("Go back?"):
                    raise typer.Exit(REFUSED)
                session.run(
                    ROLLBACK,
                    RollbackArguments(
                        table=table, ref=ref, head=preview.head, snapshot=preview.snapshot
                    ),
                )
    done = not preview.refused and not dry_run
    if as_json:
        typer.echo(json.dumps({**preview.to_json(), "done": done}, indent=2))
    elif done:
        typer.echo(f"{ref} is at snapshot {preview.snapshot}")
    raise typer.Exit(REFUSED if preview.refused else 0)


def preview_lines(preview: RollbackPreview, *, skips: bool = False) -> Iterator[str]:
    """The preview for people. `skips`: what leaves is not read again."""
    from connectors.iceberg_tools.history.snapshot_entry import REWRITE, utc

    yield f"{preview.table} ({preview.ref}): {preview.head} -> {preview.snapshot}"
    for entry in preview.leaving:
        counts = f"{entry.rows_in} in, {entry.rows_out} out"
        yield (
            f"leaves  {utc(entry.timestamp_ms)[:19]}Z  {entry.id}  {counts}, by {entry.writer.name}"
        )
    foreign = [
        entry
        for entry in preview.leaving
        if entry.writer.kind != "connector" and entry.operation != REWRITE
    ]
    if foreign:
        yield f"{len(foreign)} of these are commits of other writers: their rows do not come back"
    for line in effect_lines(preview.effects):
        yield (
            line.replace(" reads ", " skips ").replace(" again from ", " from ") if skips else line
        )

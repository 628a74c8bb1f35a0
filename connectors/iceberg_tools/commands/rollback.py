"""`connect-py rollback`: resets a table to an earlier snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connect_py.plurals import pluralize
from connectors.iceberg_tools.commands.refs import effect_lines
from connectors.iceberg_tools.commands.table_options import POINT, Branch, TableOptions, Yes
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.rollback import (
    PREVIEW_ROLLBACK,
    ROLLBACK,
    PreviewRollbackArguments,
    RollbackArguments,
)

if TYPE_CHECKING:
    from connectors.iceberg_tools.operations.rollback import RollbackPreview

REFUSED, UNDECIDED = 1, 2


@command(worker=True, json=True, failure_status=UNDECIDED)
def rollback(
    context: CommandContext,
    source: TableOptions,
    to: Annotated[str, typer.Option(help=f"Snapshot to roll back to: {POINT}.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the effects.")] = False,
    yes: Yes = False,
    branch: Branch = None,
) -> None:
    """Reset a table to an earlier snapshot of its history.

    Connectors then read the missing records again. The rollback is refused if the ledgers show that
    a connector could not resume from the snapshot. Removed rows of other writers are lost. Exit
    status 0: done, or possible; 1: refused; 2: unknown.
    """
    if context.as_json and not (yes or dry_run):
        raise ConfigError("--json", "needs --yes or --dry-run")
    arguments = PreviewRollbackArguments(table=source.table, to=to, branch=branch)
    with table_session(context, source) as session:
        preview = session.run(PREVIEW_ROLLBACK, arguments)
        session.pause_status()
        if not context.as_json:
            for line in preview_lines(preview):
                typer.echo(line)
        if preview.refused:
            context.warn(f"table {source.table}: {preview.refused}")
        elif not dry_run and preview.leaving:
            if not yes and not context.confirm("Roll back?"):
                raise typer.Exit(REFUSED)
            session.run(
                ROLLBACK,
                RollbackArguments(
                    table=source.table,
                    ref=preview.ref,
                    head=preview.head,
                    snapshot=preview.snapshot,
                ),
            )
    applied = not preview.refused and not dry_run
    outcome = [f"{preview.ref} is at snapshot {preview.snapshot}"] if applied else []
    context.show({**preview.to_json(), "done": applied}, outcome)
    raise typer.Exit(REFUSED if preview.refused else 0)


def preview_lines(preview: RollbackPreview, *, skips: bool = False) -> Iterator[str]:
    """Yield the lines of a preview.

    Args:
        preview: The preview.
        skips: True if the removed records are not read again.
    """
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
        commits = pluralize(
            len(foreign),
            "of these is a commit by another writer; its",
            "of these are commits by other writers; their",
        )
        yield f"{commits} rows are not restored"
    for line in effect_lines(preview.effects):
        yield (
            line.replace(" reads ", " skips ").replace(" again from ", " from ") if skips else line
        )

"""`connect-py maintain`: shows or performs the maintenance that is due for a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.table_options import Branch, TableOptions
from connectors.iceberg_tools.commands.table_session import table_session
from connectors.iceberg_tools.operations.maintain import (
    MAINTAIN,
    PREVIEW_MAINTENANCE,
    MaintenanceArguments,
)

if TYPE_CHECKING:
    from connectors.iceberg_tools.operations.maintain import Maintenance

FAILED, UNDECIDED = 1, 2


@command(worker=True, json=True, failure_status=UNDECIDED)
def maintain(
    context: CommandContext,
    source: TableOptions,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which actions are due, and why.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Perform the actions that are due, at any time of day.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A setting without its prefix `iceberg.ext.maintenance.`; may be repeated.",
        ),
    ] = None,
    timeout: Annotated[
        int, typer.Option(help="Maximum number of seconds per action.", min=1)
    ] = 3600,
    branch: Branch = None,
) -> None:
    """Compact, expire, and clean up a table according to the connector's configuration and --set.

    Exit status 0: done, or nothing was due; 1: an action failed; 2: unknown (the table does not
    exist, or the catalog does not respond).
    """
    if dry_run == now:
        raise ConfigError("", "specify either --dry-run or --now")
    arguments = MaintenanceArguments(
        table=source.table, branch=branch, settings=tuple(setting or ())
    )
    with table_session(context, source, timeout) as session:
        result = session.run(MAINTAIN if now else PREVIEW_MAINTENANCE, arguments)
    for error in result.errors:
        context.warn(error)
    context.show(
        {
            "table": source.table,
            "ref": result.ref,
            "state": result.state.to_json(),
            "due": [each.to_json() for each in result.due],
            "left_out": result.left_out,
            "done": [each.to_json() for each in result.results],
            "failed": result.failures,
        },
        _lines(source.table, result),
    )
    raise typer.Exit(FAILED if result.failures else 0)


def _lines(table: str, maintenance: Maintenance) -> Iterator[str]:
    from connectors.iceberg_tools.maintenance.maintenance_result import COUNTED

    yield f"{table} ({maintenance.ref})"
    for name in (*COUNTED, "expirable"):
        yield f"{name.replace('_', ' '):<16} {maintenance.state.to_json()[name]}"
    for action in maintenance.due:
        yield f"due: {action.kind.value} ({action.reason})"
        if action.kind.value in maintenance.left_out:
            yield f"     skipped: {maintenance.left_out[action.kind.value]}"
    if not maintenance.due:
        yield "nothing is due"
    if maintenance.lacks_time:
        yield "tiering: the table has no time partition field: hour, day, month, year, or a date"
    for result in maintenance.results:
        yield result.line()

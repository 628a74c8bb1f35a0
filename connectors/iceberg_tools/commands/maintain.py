"""`connect-py maintain`: what is due at a table, and do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.command import asks_worker, uses_java
from connect_py.api.errors import ConfigError
from connectors.iceberg_tools.commands.exit_status import errors_exit
from connectors.iceberg_tools.commands.table_options import (
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
    from connectors.iceberg_tools.operations.maintain import Maintenance

FAILED, UNDECIDED = 1, 2


@asks_worker
@uses_java
def maintain(
    table: Table,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what is due, and why.")
    ] = False,
    now: Annotated[bool, typer.Option("--now", help="Do what is due, at any hour.")] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="As after `iceberg.ext.maintenance.`; may be repeated.",
        ),
    ] = None,
    timeout: Annotated[int, typer.Option(help="Seconds that one action may take.", min=1)] = 3600,
    config: Config = None,
    worker: Worker = None,
    catalog_property: CatalogProperties = None,
    catalog: Catalog = "iceberg",
    branch: Branch = None,
    as_json: AsJson = False,
) -> None:
    """Compact, expire and clean a table by its policy: that of the connector's configuration, and
    --set.

    Exit status 0: done, or nothing was due; 1: an action failed; 2: not known (no such table, no
    answer).
    """
    with errors_exit(UNDECIDED):
        from connectors.iceberg_tools.operations.maintain import (
            MAINTAIN,
            PREVIEW_MAINTENANCE,
            MaintenanceArguments,
        )

        if dry_run == now:
            raise ConfigError("", "say one of --dry-run and --now")
        arguments = MaintenanceArguments(table=table, branch=branch, settings=tuple(setting or ()))
        options = TableOptions(table, config, worker, catalog_property, catalog, timeout)
        with table_session(options) as session:
            found = session.run(MAINTAIN if now else PREVIEW_MAINTENANCE, arguments)
    for error in found.errors:
        typer.echo(f"connect-py: {error}", err=True)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "table": table,
                    "ref": found.ref,
                    "state": found.state.to_json(),
                    "due": [each.to_json() for each in found.due],
                    "left_out": found.left_out,
                    "done": [each.to_json() for each in found.results],
                    "failed": found.failures,
                },
                indent=2,
            )
        )
    else:
        for line in _lines(table, found):
            typer.echo(line)
    raise typer.Exit(FAILED if found.failures else 0)


def _lines(table: str, found: Maintenance) -> Iterator[str]:
    from connectors.iceberg.maintenance.maintenance_result import COUNTED

    yield f"{table} ({found.ref})"
    for name in (*COUNTED, "expirable"):
        yield f"{name.replace('_', ' '):<16} {found.state.to_json()[name]}"
    for action in found.due:
        yield f"due: {action.kind.value} ({action.reason})"
        if action.kind.value in found.left_out:
            yield f"     left out, {found.left_out[action.kind.value]}"
    if not found.due:
        yield "nothing is due"
    if found.lacks_time:
        yield "tiering: the table has no partition field of time: hour, day, month, year, or a date"
    for result in found.results:
        yield result.line()

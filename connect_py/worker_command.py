"""`connect-py worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.daemon import become_daemon
from connect_py.early_start import start_fork_server
from connect_py.log_context import parse_log_level


@command()
def worker(
    _context: CommandContext,
    properties: Annotated[
        Path,
        typer.Argument(
            metavar="WORKER.PROPERTIES",
            help="The worker's properties.",
            exists=True,
            dir_okay=False,
        ),
    ],
    connectors: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONNECTOR...", help="With --standalone: connector files."),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Run one worker without a group.")
    ] = False,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="Run in the background and log to $LOG_DIR.")
    ] = False,
    log_level: Annotated[
        list[str] | None,
        typer.Option(metavar="[LOGGER=]LEVEL", help="Overrides the properties. Repeatable."),
    ] = None,
) -> None:
    """Run a worker, like connect-distributed and connect-standalone.

    Exit status 0: stopped by a signal; 1: the worker ended without a signal; 2: it could not start,
    or wrong usage; 3: its start failed late, or a connector of the command line failed.
    """
    levels: dict[str, str] = {}
    for argument in log_level or ():
        try:
            levels |= parse_log_level(argument)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--log-level") from error
    if connectors and not standalone:
        raise typer.BadParameter(
            "a worker of a group gets its connectors over REST", param_hint="CONNECTOR"
        )
    if daemon:
        become_daemon("connectStandalone.out" if standalone else "connectDistributed.out")
    start_fork_server()  # it imports its modules while this process imports the worker
    if standalone:
        from connect_py.standalone_worker import run_standalone

        raise typer.Exit(run_standalone(properties, connectors or [], levels))
    from connect_py.distributed_worker import run_distributed

    raise typer.Exit(run_distributed(properties, levels))

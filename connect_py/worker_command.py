"""`connect-py worker`: runs a distributed or standalone worker."""

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
            help="Worker properties file.",
            exists=True,
            dir_okay=False,
        ),
    ],
    connectors: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CONNECTOR...", help="Connector files, only with --standalone."),
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Run a single worker without a group.")
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

    The exit status is 0 if a signal stopped the worker; 1 if the worker ended without a signal; 2
    if it could not start or the usage is wrong; 3 if it failed late during its start or a connector
    from the command line failed.
    """
    levels: dict[str, str] = {}
    for argument in log_level or ():
        try:
            levels |= parse_log_level(argument)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--log-level") from error
    if connectors and not standalone:
        raise typer.BadParameter(
            "is only valid with --standalone; a distributed worker receives connectors over REST",
            param_hint="CONNECTOR",
        )
    if daemon:
        become_daemon("connectStandalone.out" if standalone else "connectDistributed.out")
    start_fork_server()  # the server imports its modules while this process imports the worker
    if standalone:
        from connect_py.standalone_worker import run_standalone

        raise typer.Exit(run_standalone(properties, connectors or [], levels))
    from connect_py.distributed_worker import run_distributed

    raise typer.Exit(run_distributed(properties, levels))

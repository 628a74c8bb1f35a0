"""`connect-py demo`: runs the demonstration until it ends or is interrupted."""

from __future__ import annotations

import signal
import tarfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from connect_py.api.command import CommandContext, command
from connect_py.api.errors import ConnectError
from connect_py.demo.demo import Demo
from connect_py.demo.tour import take_tour


@command()
def demo(
    _context: CommandContext,
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Directory for data, tables, and logs. It is emptied first."),
    ] = Path("demo-data"),
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="End this long after the first rows arrive, and compare all tables."
        ),
    ] = None,
    tour: Annotated[
        bool, typer.Option("--tour", help="Run all steps without input, and exit.")
    ] = False,
) -> None:
    """Land a PostgreSQL database in Iceberg with Debezium, all on this machine.

    Requires an installed PostgreSQL server, which runs in a dedicated directory. The exit status is
    0 if every table equals PostgreSQL's, or if Ctrl-C ends the demonstration before the comparison.
    """
    if tour and seconds is not None:
        raise typer.BadParameter("cannot be combined with --tour", param_hint="--seconds")
    raise typer.Exit(_run(directory, seconds, tour=tour))


def _run(directory: Path, seconds: float | None, *, tour: bool) -> int:
    """Run the demonstration and return its exit status, 1 if the tables are not equal."""
    console = Console()
    demonstration = Demo(directory.resolve(), seconds, console)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: demonstration.interrupted.set())
    try:
        return 0 if demonstration.run(take_tour if tour else None) else 1
    except (ConnectError, tarfile.TarError) as error:
        if demonstration.interrupted.is_set():  # Ctrl-C also reaches the child processes
            console.print("Stopped before the end.")
            return 1
        console.print("[bold red]demo failed:[/]", escape(str(error)), highlight=False)
        return 1

"""`connect-py quickstart`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from connect_py.api.command import CommandContext, command
from connect_py.quickstart.quickstart import main


@command()
def quickstart(
    _context: CommandContext,
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Directory for topics, tables, and logs. It is emptied first."),
    ] = Path("quickstart-data"),
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="End after this time and compare the tables with the produced changes."
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Changes per second.")] = 200,
) -> None:
    """Run Kafka, a worker, and a demo shop here, and watch its changes arrive in Iceberg."""
    raise typer.Exit(main(directory, seconds, rate))

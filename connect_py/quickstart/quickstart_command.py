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
        typer.Option("--dir", help="Directory of topics, tables, and logs. Emptied at the start."),
    ] = Path("quickstart-data"),
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1, help="End after this time and compare the tables with the produced changes."
        ),
    ] = None,
    rate: Annotated[float, typer.Option(min=1, max=5000, help="Changes per second.")] = 200,
) -> None:
    """Start everything on this machine and watch the changes of a small shop arrive in Iceberg."""
    raise typer.Exit(main(directory, seconds, rate))

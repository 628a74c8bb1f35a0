"""`connect-py top`: shows the activity of connectors and tasks, updated every second."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from connect_py.api.command import command
from connect_py.api.errors import ConnectError
from connect_py.clock import SystemClock
from connect_py.terminal.command_context import LocalContext
from connect_py.terminal.tables import console
from connect_py.terminal.top_view import top_frame


@command(worker=True)
def top(
    context: LocalContext,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and exit.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between frames.")] = 1.0,
) -> None:
    """Watch throughput, lag, freshness, and dead-letter records of all connectors and tasks.

    The values are read from the metrics of all workers in the group. REC/S: records that tasks
    read per second, averaged over the last 30 seconds. LAG: records that the consumer has not
    read. COMMIT: time since an Iceberg sink last committed to a table. DEAD: dead-letter
    records since the task started. Ctrl-C exits. The exit status is 2 if no worker responds.
    """
    worker, clock, output = context.rest_client(), SystemClock(), console()
    first = top_frame(worker, clock.time_ms() / 1000)
    if once:
        output.print(first)
        return

    def frame() -> RenderableType:
        try:
            return top_frame(worker, clock.time_ms() / 1000)
        except ConnectError as error:
            return Text(str(error), "bold red")

    try:
        with Live(first, console=output, auto_refresh=False, screen=True) as live:
            while True:
                clock.sleep(interval)
                live.update(frame(), refresh=True)
    except KeyboardInterrupt:
        return

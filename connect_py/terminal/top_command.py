"""`connect-py top`: connectors and tasks at work, drawn again each second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from connect_py.api.errors import ConnectError
from connect_py.terminal.rest_client import RestClient
from connect_py.terminal.worker_options import asks_worker

if TYPE_CHECKING:
    from rich.console import RenderableType


@asks_worker
def top(
    worker: RestClient,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two frames.")] = 1.0,
) -> None:
    """Watch records per second, lag, the age of the last commit and dead letters of all connectors
    and tasks.

    Figures come from the metrics of all workers of the group. REC/S: records that tasks read,
    averaged by Connect over the last 30 seconds. LAG: records that the consumer has not read.
    COMMIT: time since the last commit to a table of an Iceberg sink. DEAD: dead letters since the
    task started. Ctrl-C ends it. Exit status 2: no worker answers.
    """
    from rich.live import Live

    from connect_py.clock import SystemClock
    from connect_py.terminal.tables import console
    from connect_py.terminal.top_view import top_frame

    clock = SystemClock()
    shown = console()
    first = top_frame(worker, clock.time_ms() / 1000)
    if once:
        shown.print(first)
        return

    def frame() -> RenderableType:
        from rich.text import Text

        try:
            return top_frame(worker, clock.time_ms() / 1000)
        except ConnectError as error:
            return Text(str(error), "bold red")

    try:
        with Live(first, console=shown, auto_refresh=False, screen=True) as live:
            while True:
                clock.sleep(interval)
                live.update(frame(), refresh=True)
    except KeyboardInterrupt:
        return

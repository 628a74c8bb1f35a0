"""`LoadView`: shows the progress of a load on the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from connect_py.api.record import TopicPartition
from connectors.iceberg_tools.load.load import LoadProgress


class LoadView(AbstractContextManager["LoadView"]):
    """Prints waits and steps unless `quiet` is set, and draws progress bars on a terminal."""

    def __init__(
        self, ends: Mapping[TopicPartition, int], *, mask: Callable[[str], str], quiet: bool
    ) -> None:
        self._mask = mask
        self._ends = ends
        self._console = console = Console(stderr=True, quiet=quiet)
        columns = [
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        ]
        self._bars = Progress(*columns, console=console, disable=quiet or not console.is_terminal)
        visible = len(ends) <= console.height - 4
        self._tasks = {
            tp: self._bars.add_task(str(tp), total=None, visible=visible) for tp in sorted(ends)
        }
        self._waiting: Mapping[str, str] = {}
        self._steps = 0
        self._started = time.monotonic()

    def __enter__(self) -> LoadView:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, progress: LoadProgress) -> None:
        """Show the progress of the load."""
        for tp, begin in progress.begins.items():
            read = max(0, progress.committed.get(tp, 0) - begin)
            self._bars.update(self._tasks[tp], total=max(0, self._ends[tp] - begin), completed=read)
        for subject, reason in progress.waiting.items():
            if self._waiting.get(subject) != reason:
                self._console.print(
                    self._mask(f"waiting for {subject}: {reason}"), highlight=False, markup=False
                )
        self._waiting = progress.waiting
        if progress.steps != self._steps:
            self._steps = progress.steps
            begin = sum(progress.begins.values())
            read, total = sum(progress.staged.values()) - begin, sum(self._ends.values()) - begin
            seconds = time.monotonic() - self._started
            line = f"step {progress.steps}: {read:,} of {total:,} offsets read, {seconds:.0f} s"
            self._console.print(line, highlight=False)

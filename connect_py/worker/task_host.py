"""`TaskHost`: runs one task somewhere else than on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from connect_py.metrics.task_report import TaskReport
from connect_py.model import TargetState
from connect_py.task.messages import Answer, FromTask, TaskSpec

TaskNews: TypeAlias = Callable[[FromTask, Callable[[Answer], None]], None]
"""Hears what one task says, in order, on a thread of the host; nothing follows `Stopped`, `Failed`
or `cancel`.

It returns at once. Questions are answered by calling the second argument, on any thread.
"""


class TaskHost(Protocol):
    """One life of one task. Every method returns at once and may be called from any thread, `wait`
    excepted."""

    @property
    def spec(self) -> TaskSpec:
        """What is run."""

    @property
    def report(self) -> TaskReport:
        """The latest measurements."""

    def start(self) -> None:
        """Begin; who listens hears the rest."""

    def set_target_state(self, target: TargetState) -> None:
        """Tell the task to pause or to go on."""

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change levels where the task runs."""

    def extend_lease(self, until: float | None) -> None:
        """Say by when the task must have ended by itself, on the machine's monotonic clock; None:
        never."""

    def stop(self) -> None:
        """Ask the task to end in order."""

    def cancel(self) -> None:
        """Give up waiting: end it for certain, without a final commit and without further news."""

    def wait(self, timeout: float) -> bool:
        """Wait until nothing of the task is left; False when the time is over first."""

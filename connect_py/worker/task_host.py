"""`TaskHost`: runs one task outside of the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from connect_py.metrics.task_report import TaskReport
from connect_py.model import TargetState
from connect_py.task.messages import FromTask, TaskSpec

TaskListener: TypeAlias = Callable[[FromTask], Future[Any] | None]
"""Receives the messages from one task, in order, on one of the host's threads.

No messages follow `Stopped`, `Failed`, or a call to `cancel`. The listener must not block. It
returns a future for the result of a `TaskCall`.
"""


class TaskHost(Protocol):
    """One run of one task. All methods except `wait` are thread-safe and never block."""

    @property
    def spec(self) -> TaskSpec:
        """Specification of the task."""

    @property
    def report(self) -> TaskReport:
        """Latest metrics of the task."""

    def start(self) -> None:
        """Start the task. The listener receives its messages."""

    def set_target_state(self, target: TargetState) -> None:
        """Pause or resume the task."""

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change log levels in the task."""

    def extend_lease(self, until: float | None) -> None:
        """Set the time by which the task must have exited, or None if it need not exit.

        The time is in seconds on the machine's monotonic clock.
        """

    def stop(self) -> None:
        """Request a graceful stop of the task."""

    def cancel(self) -> None:
        """Kill the task without a final commit. The listener receives no further messages."""

    def wait(self, timeout: float) -> bool:
        """Wait until the task has ended completely. Return False on timeout."""

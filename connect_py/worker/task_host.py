"""`TaskHost`: runs one task somewhere else than on the caller's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from connect_py.metrics.task_report import TaskReport
from connect_py.model import ConnectorTaskId, TargetState, Waiting
from connect_py.task.messages import (
    Answer,
    CopySourceOffsets,
    Failed,
    Paused,
    Question,
    ReleaseService,
    RequestService,
    Resumed,
    Started,
    Stopped,
    TaskSpec,
    TopicUsed,
    Waits,
)


class TaskHostListener(Protocol):
    """News of one task, in order, on a thread of the host; nothing follows `on_stopped`, `on_failed` or `cancel`."""

    def on_started(self, id: ConnectorTaskId) -> None: ...  # noqa: A002 - Connect's word

    def on_paused(self, id: ConnectorTaskId) -> None: ...  # noqa: A002 - Connect's word

    def on_resumed(self, id: ConnectorTaskId) -> None: ...  # noqa: A002 - Connect's word

    def on_stopped(self, id: ConnectorTaskId) -> None: ...  # noqa: A002 - Connect's word

    def on_failed(self, id: ConnectorTaskId, trace: str) -> None: ...  # noqa: A002 - Connect's word

    def on_waiting(self, id: ConnectorTaskId, waiting: Waiting | None) -> None: ...  # noqa: A002 - Connect's word

    def on_topic_used(self, id: ConnectorTaskId, topic: str) -> None: ...  # noqa: A002 - Connect's word

    def on_offsets_written(self, message: CopySourceOffsets) -> None:
        """The task wrote offsets to its connector's own topic."""

    def on_service_wanted(self, message: RequestService | ReleaseService) -> None:
        """The task wants a shared service to be started, or uses it no more."""

    def answer(self, question: Question, reply: Callable[[Answer], None]) -> None:
        """Answer a question of the task by calling `reply`, on any thread; returns at once."""


class TaskHost(Protocol):
    """One life of one task. Every method returns at once and may be called from any thread, `wait` excepted."""

    @property
    def spec(self) -> TaskSpec:
        """What is run."""

    @property
    def report(self) -> TaskReport:
        """The latest measurements."""

    def start(self) -> None:
        """Begin; the listener hears the rest."""

    def set_target_state(self, target: TargetState) -> None:
        """Tell the task to pause or to go on."""

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        """Change levels where the task runs."""

    def extend_lease(self, until: float | None) -> None:
        """Say by when the task must have ended by itself, on the machine's monotonic clock; None: never."""

    def stop(self) -> None:
        """Ask the task to end in order."""

    def cancel(self) -> None:
        """Give up waiting: end it for certain, without a final commit and without further news."""

    def wait(self, timeout: float) -> bool:
        """Wait until nothing of the task is left; False when the time is over first."""


def pass_on(
    message: object, task: ConnectorTaskId, listener: TaskHostListener, reply: Callable[[Answer], None]
) -> None:
    """Tell the listener what a task said; `reply` takes answers to its questions."""
    match message:
        case Started():
            listener.on_started(task)
        case Paused():
            listener.on_paused(task)
        case Resumed():
            listener.on_resumed(task)
        case Waits(waiting):
            listener.on_waiting(task, waiting)
        case TopicUsed(topic):
            listener.on_topic_used(task, topic)
        case Failed(trace):
            listener.on_failed(task, trace)
        case Stopped():
            listener.on_stopped(task)
        case CopySourceOffsets():
            listener.on_offsets_written(message)
        case RequestService() | ReleaseService():
            listener.on_service_wanted(message)
        case _ if isinstance(message, Question):
            listener.answer(message, reply)

"""Messages between the worker and a task process: plain data, never records.

`TaskCall` lists the calls; all other messages are notifications.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from connect_py.api.errors import ConnectError
from connect_py.api.schema import Value
from connect_py.api.service import SharedService
from connect_py.model import ConnectorTaskId, TargetState, Waiting
from connect_py.plugins.plugin_table import PluginTable


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """Specification of a task, sent to its process at the start."""

    id: ConnectorTaskId
    worker_props: Mapping[str, str]  # all placeholders in this message are resolved
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str]
    target: TargetState
    start_number: int
    plugins: Sequence[PluginTable]
    log_levels: Mapping[str, int] = field(default_factory=dict)  # by logger; "" is the root
    secrets: Sequence[str] = ()  # values from config providers, to be masked in all output


class TaskNotWantedError(ConnectError):
    """The task should not run on this worker, at least not with this start number."""


# From the worker to the task.


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Pause or resume the task."""

    target: TargetState


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the task in order; cannot be revoked."""


# From the task to the worker.


@dataclass(frozen=True, slots=True)
class Started:
    """The task's `start` has returned."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The task has applied the target state PAUSED."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The task has resumed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task has stopped as requested. This is the last message."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The task has failed. This is the last message."""

    trace: str


@dataclass(frozen=True, slots=True)
class Waits:
    """The reason why the task is waiting has changed. None: it is not waiting."""

    waiting: Waiting | None


@dataclass(frozen=True, slots=True)
class Warns:
    """The warnings of the running task have changed."""

    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestStop:
    """The task requests that its connector be stopped. There is no response."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicUsed:
    """The task has read from or written to a topic for the first time."""

    topic: str


SourceEntry: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ReadSourceOffsets:
    """Request the stored offsets of source partitions; the reply is a list in order.

    They include all previous writes.
    """

    partitions: Sequence[SourceEntry]


@dataclass(frozen=True, slots=True)
class WriteSourceOffsets:
    """Request to store offsets. The response confirms that they are stored."""

    offsets: Sequence[tuple[SourceEntry, SourceEntry]]


@dataclass(frozen=True, slots=True)
class MakeOffsetKeys:
    """Request the offset-topic keys of source partitions; returns bytes in order."""

    partitions: Sequence[SourceEntry]


@dataclass(frozen=True, slots=True)
class CopySourceOffsets:
    """Offsets that a task has written to its connector's own offset topic, for the worker's topic.

    There is no response.
    """

    offsets: Sequence[tuple[SourceEntry, SourceEntry]]


@dataclass(frozen=True, slots=True)
class FenceZombies:
    """Request to fence all producers of earlier task sets."""


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Request to verify that this task of this task set should run here.

    The response is its offset topic, or a TaskNotWantedError.
    """


@dataclass(frozen=True, slots=True)
class AcquireService:
    """Request the address of a shared service.

    The response is sent when it is ready, or after the timeout.
    """

    service: SharedService
    broken: int | None  # generation that the sender cannot reach
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class RequestService:
    """Start a shared service.

    There is no response. Without `hold`, the sender is not counted as a user yet.
    """

    service: SharedService
    hold: bool = True


@dataclass(frozen=True, slots=True)
class ReleaseService:
    """Stop using a shared service. There is no response."""

    service: SharedService


SourceTaskCall: TypeAlias = (
    ReadSourceOffsets | WriteSourceOffsets | MakeOffsetKeys | FenceZombies | VerifyTask
)
TaskCall: TypeAlias = SourceTaskCall | AcquireService
FromTask: TypeAlias = (
    Started
    | Paused
    | Resumed
    | Stopped
    | Failed
    | Waits
    | Warns
    | RequestStop
    | TopicUsed
    | TaskCall
    | CopySourceOffsets
    | RequestService
    | ReleaseService
)

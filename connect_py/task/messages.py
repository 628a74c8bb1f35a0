"""Messages between the worker and a task process.

Messages are plain data and never contain records. The messages in `TaskCall` are calls, which have
a response. All other messages are notifications.
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
    """Task specification, which the worker sends to the task process at startup."""

    id: ConnectorTaskId
    # placeholders are resolved in all three configurations
    worker_props: Mapping[str, str]
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str]
    target: TargetState
    # offset of the config topic record that last started or changed the connector
    start_number: int
    plugins: Sequence[PluginTable]
    # log level by logger name; "" is the root logger
    log_levels: Mapping[str, int] = field(default_factory=dict)
    secrets: Sequence[str] = ()  # values from config providers, to be masked in all output


class TaskNotWantedError(ConnectError):
    """Raised unless the task is assigned to this worker with the start number in its `TaskSpec`."""


# Messages from the worker to the task.


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Pause or resume the task."""

    target: TargetState


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the task gracefully. A stop cannot be canceled."""


# Messages from the task to the worker.


@dataclass(frozen=True, slots=True)
class Started:
    """The task's `start` method has returned."""


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
    """The reason why the task is waiting has changed, or the wait has ended (None)."""

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
    """The task uses a topic. Sent at the first use and periodically afterward."""

    topic: str


SourceEntry: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ReadSourceOffsets:
    """Read the stored offsets of source partitions.

    The response is a list in the order of `partitions`. It reflects all previous writes.
    """

    partitions: Sequence[SourceEntry]


@dataclass(frozen=True, slots=True)
class WriteSourceOffsets:
    """Store source offsets. The response confirms that they are stored."""

    offsets: Sequence[tuple[SourceEntry, SourceEntry]]


@dataclass(frozen=True, slots=True)
class MakeOffsetKeys:
    """Create the keys that identify source partitions in the offset topic.

    The response is a list of encoded keys in the order of `partitions`.
    """

    partitions: Sequence[SourceEntry]


@dataclass(frozen=True, slots=True)
class CopySourceOffsets:
    """Copy offsets from the connector's own offset topic to the worker's offset topic.

    There is no response.
    """

    offsets: Sequence[tuple[SourceEntry, SourceEntry]]


@dataclass(frozen=True, slots=True)
class FenceZombies:
    """Fence all producers from the connector's earlier task sets."""


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Verify that the task is still assigned to this worker with the same start number.

    The response is the name of the task's offset topic. The call fails with a TaskNotWantedError
    if the task is not assigned.
    """


@dataclass(frozen=True, slots=True)
class AcquireService:
    """Request a shared service's address.

    The worker responds when the service is ready or the timeout expires.
    """

    service: SharedService
    broken: int | None  # generation of the service instance that the sender cannot reach, if any
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class RequestService:
    """Start a shared service.

    There is no response. If `hold` is False, the sender is not yet counted as a user of the
    service.
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

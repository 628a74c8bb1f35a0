"""What travels on the pipe between the worker and a task process: few kinds, plain data, never a
record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from connect_py.api.schema import Value
from connect_py.api.service import SharedService
from connect_py.log_context import LogLine
from connect_py.metrics.task_report import TaskReport
from connect_py.model import ConnectorTaskId, TargetState, Waiting
from connect_py.plugins.plugin_table import PluginTable


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """All that a task process needs to know to begin."""

    id: ConnectorTaskId
    worker_props: Mapping[str, str]  # placeholders resolved, as everywhere here
    connector_config: Mapping[str, str]
    task_config: Mapping[str, str]
    target: TargetState
    start_number: int
    plugins: Sequence[PluginTable]
    log_levels: Mapping[str, int] = field(default_factory=dict)  # by logger; "" is the root
    secrets: Sequence[
        str
    ] = ()  # what configuration providers gave of all this; texts do not show it


# From the worker to the task.


@dataclass(frozen=True, slots=True)
class SetTargetState:
    """Pause or go on."""

    target: TargetState


@dataclass(frozen=True, slots=True)
class Stop:
    """End in order; there is no way back."""


@dataclass(frozen=True, slots=True)
class SetLogLevels:
    """Levels by logger name; "" is the root, None takes a logger's own level away."""

    levels: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class ExtendLease:
    """The process must have ended by this time on the machine's monotonic clock, unless a later
    message comes.

    None: there is no such time.
    """

    until: float | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a `Question`: a value, or an error's text."""

    number: int
    value: Any = None
    error: str | None = None
    refused: bool = False  # the error is final: asking again would change nothing
    retriable: bool = False  # the error may be gone soon: the caller gets a RetriableError


# From the task to the worker.


@dataclass(frozen=True, slots=True)
class Started:
    """`start` of the task returned."""


@dataclass(frozen=True, slots=True)
class Paused:
    """The task noticed that its target is PAUSED."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """The task noticed that it may go on."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The task ended as asked; nothing follows."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The task ended with an error; nothing follows."""

    trace: str


@dataclass(frozen=True, slots=True)
class Waits:
    """What the task waits for has changed; None: nothing."""

    waiting: Waiting | None


@dataclass(frozen=True, slots=True)
class Warns:
    """The warnings of the running task have changed."""

    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestStop:
    """The task wants its connector stopped; not answered."""

    reason: str


@dataclass(frozen=True, slots=True)
class TopicUsed:
    """The task read from or wrote to a topic for the first time."""

    topic: str


@dataclass(frozen=True, slots=True)
class Beat:
    """The process lives; every now and then with the task's measurements."""

    report: TaskReport | None = None


SourceEntry: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class ReadSourceOffsets:
    """Asks for the stored offsets of source partitions, everything written so far included; a list,
    in order."""

    number: int
    partitions: Sequence[SourceEntry]


@dataclass(frozen=True, slots=True)
class WriteSourceOffsets:
    """Asks to store offsets; answered when they are safe."""

    number: int
    offsets: Sequence[tuple[SourceEntry, SourceEntry]]


@dataclass(frozen=True, slots=True)
class MakeOffsetKeys:
    """Asks under which keys of the offset topic the offsets of source partitions are stored; bytes,
    in order."""

    number: int
    partitions: Sequence[SourceEntry]


@dataclass(frozen=True, slots=True)
class CopySourceOffsets:
    """What a task wrote to its connector's own offset topic, for the worker's topic; not
    answered."""

    offsets: Sequence[tuple[SourceEntry, SourceEntry]]


@dataclass(frozen=True, slots=True)
class FenceZombies:
    """Asks that no producer of an earlier task set can write any more."""

    number: int


@dataclass(frozen=True, slots=True)
class VerifyTask:
    """Asks whether this task of this task set is still wanted here; the answer is its offset topic,
    or a refusal."""

    number: int


@dataclass(frozen=True, slots=True)
class AcquireService:
    """Asks for the address of a shared service; answered once it is ready, or when the time is
    over."""

    number: int
    service: SharedService
    broken: int | None  # the generation that the asker cannot reach
    timeout_seconds: float


@dataclass(frozen=True, slots=True)
class RequestService:
    """Have a shared service started; not answered. Without `hold` the sender is no user of it
    yet."""

    service: SharedService
    hold: bool = True


@dataclass(frozen=True, slots=True)
class ReleaseService:
    """Be a user of a shared service no more; not answered."""

    service: SharedService


SourceQuestion: TypeAlias = (
    ReadSourceOffsets | WriteSourceOffsets | MakeOffsetKeys | FenceZombies | VerifyTask
)
Question: TypeAlias = SourceQuestion | AcquireService
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
    | Beat
    | LogLine
    | Question
    | CopySourceOffsets
    | RequestService
    | ReleaseService
)

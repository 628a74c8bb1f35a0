"""`FailedRecord`: a consumed or produced record that failed, and why; what reporters get."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from connect_py.api.dead_letter import Replay, without_replay
from connect_py.api.errors import ConnectError, DataError, FailureReason
from connect_py.api.record import RecordOrigin, TimestampType
from connect_py.error_handling.stage import Stage

CAUSED_BY = "\nCaused by: "
_DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
_REASONS = {
    Stage.KEY_CONVERTER: FailureReason.KEY_CONVERTER,
    Stage.VALUE_CONVERTER: FailureReason.VALUE_CONVERTER,
    Stage.HEADER_CONVERTER: FailureReason.HEADER_CONVERTER,
    Stage.TRANSFORMATION: FailureReason.TRANSFORMATION,
}


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """One failure. `origin` is None for a source's record, then `source_record` names it."""

    stage: Stage
    class_name: str  # as the user configured it
    error: Exception
    origin: RecordOrigin | None = None
    timestamp: int | None = None  # ms since the epoch
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    source_record: str | None = None  # topic and source partition; never key or value
    # whose records may say that they are dead letters; the handler of errors knows it
    replay_topic: str = ""

    @property
    def reason(self) -> FailureReason:
        """Why, in one of few words: the stage, or what the sink task says of its own errors."""
        if self.stage is Stage.TASK_PUT:
            said = self.error.reason if isinstance(self.error, DataError) else None
            return said or FailureReason.SINK
        return _REASONS.get(self.stage, FailureReason.SINK)

    @property
    def replay(self) -> Replay | None:
        """The first place of a dead letter that was tried again; the header counts in the replay
        topic only."""
        origin = self.origin
        return (
            None
            if origin is None or origin.topic != self.replay_topic
            else Replay.of(origin.headers)
        )

    def shown(self) -> RecordOrigin | None:
        """The record as its readers know it: at its first place, if it was tried again."""
        origin, replay = self.origin, self.replay
        if origin is None or replay is None:
            return origin
        headers = without_replay(origin.headers)
        return RecordOrigin(
            replay.topic, replay.partition, replay.offset, origin.key, origin.value, headers
        )

    def place(self) -> str:
        """Which record it is, in words."""
        shown = self.shown()
        if shown is None:
            return self.source_record or "a record without a place"
        return f"topic '{shown.topic}' partition {shown.partition} at offset {shown.offset}"


def error_class_name(error: BaseException) -> str:
    """The Java name where one corresponds, else the Python one."""
    if isinstance(error, ConnectError):
        return error.java_name
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def stack_trace(error: BaseException) -> str:
    """The error and its causes in Java's form, for tools that read it, then Python's own text.

    Java's form is `class: message`, and a line `Caused by: class: message` for each cause, the
    innermost last.
    """
    chain = _chain(error)
    java = CAUSED_BY.join(_in_java(link) for link in chain)
    return f"{java}\n\n{_python_trace(chain)}"


def message_with_causes(error: BaseException) -> str:
    """The error's message, and a line `Caused by: class: message` for each cause, which it may
    leave out itself.

    Empty: the error says nothing and has no cause.
    """
    first, *causes = _chain(error)
    return CAUSED_BY.join([str(first), *map(_in_java, causes)])


def _chain(error: BaseException) -> list[BaseException]:
    """The error and its causes, the innermost last."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    return chain


def _in_java(error: BaseException) -> str:
    message = str(error)
    return f"{error_class_name(error)}: {message}" if message else error_class_name(error)


def _python_trace(chain: Sequence[BaseException]) -> str:
    """The text that Python prints.

    It is made here, in a tenth of the time: the library looks at every source file on disk first,
    for each error.
    """
    texts = []
    for number, link in enumerate(reversed(chain), 1):
        texts.append("".join([*_frames(link), *traceback.format_exception_only(link)]))
        if number < len(chain):
            texts.append(_DIRECT if chain[-number - 1].__cause__ is link else _DURING)
    return "".join(texts)


def _frames(error: BaseException) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {line}, in {code.co_name}\n'
        source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        if source:
            yield f"    {source}\n"

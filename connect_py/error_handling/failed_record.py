"""`FailedRecord`: a failed record and the reason for the failure, as passed to reporters."""

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
    """One failure of a record.

    `origin` is None for source records, which `source_record` identifies instead.
    """

    stage: Stage
    class_name: str  # as configured by the user
    error: Exception
    origin: RecordOrigin | None = None
    timestamp: int | None = None  # ms since the epoch
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    source_record: str | None = None  # topic and source partition; never key or value
    # Topic whose records may be retries of dead-letter records. Set by the error handler.
    replay_topic: str = ""

    @property
    def reason(self) -> FailureReason:
        """Reason for the failure, as reported by the sink task or derived from the stage."""
        if self.stage is Stage.TASK_PUT:
            reported_reason = self.error.reason if isinstance(self.error, DataError) else None
            return reported_reason or FailureReason.SINK
        return _REASONS.get(self.stage, FailureReason.SINK)

    @property
    def replay(self) -> Replay | None:
        """Original location of a retried dead-letter record, or None for any other record.

        The header with the location is valid only in the replay topic.
        """
        origin = self.origin
        return (
            None
            if origin is None or origin.topic != self.replay_topic
            else Replay.of(origin.headers)
        )

    def original(self) -> RecordOrigin | None:
        """Return the record's origin. A retried dead-letter record has its original location."""
        origin, replay = self.origin, self.replay
        if origin is None or replay is None:
            return origin
        headers = without_replay(origin.headers)
        return RecordOrigin(
            replay.topic, replay.partition, replay.offset, origin.key, origin.value, headers
        )

    def location(self) -> str:
        """Return a description of the record's location."""
        original = self.original()
        if original is None:
            return self.source_record or "a record without location"
        return (
            f"topic '{original.topic}' partition {original.partition} at offset {original.offset}"
        )


def error_class_name(error: BaseException) -> str:
    """Return the corresponding Java class name if there is one, otherwise the Python class name."""
    if isinstance(error, ConnectError):
        return error.java_name
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def stack_trace(error: BaseException) -> str:
    """Return the error and its causes in Java's format, followed by Python's traceback.

    Java's format, which tools parse, is `class: message`, followed by a line
    `Caused by: class: message` for each cause. The innermost cause is last.
    """
    chain = _chain(error)
    java = CAUSED_BY.join(_in_java(link) for link in chain)
    return f"{java}\n\n{_python_trace(chain)}"


def message_with_causes(error: BaseException) -> str:
    """Return the error's message, followed by a line `Caused by: class: message` for each cause.

    The result is empty if the error has neither a message nor a cause.
    """
    first, *causes = _chain(error)
    return CAUSED_BY.join([str(first), *map(_in_java, causes)])


def _chain(error: BaseException) -> list[BaseException]:
    """Return the error and its causes. The innermost cause is last."""
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
    """Return Python's traceback.

    This is ten times as fast as the standard library, which checks every source file on disk for
    each error.
    """
    sections = []
    for number, link in enumerate(reversed(chain), 1):
        sections.append("".join([*_frames(link), *traceback.format_exception_only(link)]))
        if number < len(chain):
            sections.append(_DIRECT if chain[-number - 1].__cause__ is link else _DURING)
    return "".join(sections)


def _frames(error: BaseException) -> Iterator[str]:
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {line}, in {code.co_name}\n'
        source = linecache.getline(code.co_filename, line, frame.f_globals).strip()
        if source:
            yield f"    {source}\n"

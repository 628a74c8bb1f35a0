"""Log context: the connector and the task that are added to each log line."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from connect_py.secret_mask import masked

TRACE: Final = 5
logging.addLevelName(TRACE, "TRACE")
LEVELS: Final[Mapping[str, int]] = {  # Connect's level names, starting with the least verbose
    "OFF": 2 * logging.CRITICAL,  # above all other levels
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
    "ALL": logging.NOTSET + 1,
}

# INFO messages from these loggers are of no use to operators. HTTP clients log URLs with passwords.
NOISY_LOGGERS: Final = ("py4j", "uvicorn.error", "httpx", "httpx2", "httpcore", "httpcore2")

# Attributes of every log record. All other attributes were passed as `extra` and appear in JSON.
STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "connector_context",
    "context",
    "shown_level",
}


def parse_log_level(argument: str) -> dict[str, str]:
    """Parse `LOGGER=LEVEL`, or `LEVEL` for the root logger.

    Raises:
        ValueError: The level is unknown.
    """
    logger, _, level = argument.rpartition("=")
    if level.upper() not in LEVELS:
        raise ValueError(f"unknown log level {level!r}: expected one of {', '.join(LEVELS)}")
    return {logger or "root": level.upper()}


@dataclass(frozen=True, slots=True)
class LogContext:
    """A connector and a task or scope within it. All fields are None outside of connectors."""

    connector: str | None = None
    task: int | None = None
    scope: str | None = None  # `worker`, `validate`, or `offsets`

    @property
    def prefix(self) -> str:
        """Connect's prefix, such as `[orders|task-0] `. Empty outside of connectors."""
        if self.connector is None:
            return ""
        parts = [self.connector]
        if self.task is not None:
            parts.append(f"task-{self.task}")
        if self.scope is not None:
            parts.append(self.scope)
        return f"[{'|'.join(parts)}] "


NOTHING: Final = LogContext()
_current: ContextVar[LogContext | None] = ContextVar("log_context", default=None)


class _ProcessContext:
    """Default context for all threads. In a task process, it is the task."""

    value = NOTHING


def set_process_context(context: LogContext) -> None:
    """Set the default context for all threads, including client library threads."""
    _ProcessContext.value = context


def current_context() -> LogContext:
    """Return the context of the calling thread."""
    return _current.get() or _ProcessContext.value


@contextmanager
def log_context(
    connector: str, task: int | None = None, scope: str | None = None
) -> Iterator[None]:
    """Set the context for log lines that the calling thread writes inside the `with` block."""
    token = _current.set(LogContext(connector, task, scope))
    try:
        yield
    finally:
        _current.reset(token)


class ContextFilter(logging.Filter):
    """Adds `context` to every record, and `connector_context` for format strings."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = getattr(record, "context", None) or current_context()
        record.context = context
        record.connector_context = context.prefix
        return True


def shown_level(record: logging.LogRecord) -> str:
    """Return Connect's name for the record's level."""
    return {"WARNING": "WARN", "CRITICAL": "FATAL"}.get(record.levelname, record.levelname)


class TextFormatter(logging.Formatter):
    """Formats log lines with Connect's default pattern.

    For example, `[2026-08-22 10:00:00,123] INFO [orders|task-0] message (module:123)`.
    """

    def __init__(self) -> None:
        super().__init__(
            "[%(asctime)s] %(shown_level)s %(connector_context)s%(message)s (%(name)s:%(lineno)d)"
        )

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - required by logging
        record.shown_level = shown_level(record)
        if not hasattr(record, "connector_context"):
            record.connector_context = current_context().prefix
        return super().formatMessage(record)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log record as plain data, which a child process sends to the worker."""

    name: str
    level: int
    text: str  # formatted message, without stack trace
    created: float  # seconds since the epoch
    line: int
    thread: str
    context: LogContext
    trace: str | None = None
    fields: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)

    @classmethod
    def of(cls, record: logging.LogRecord) -> LogLine:
        """Convert a log record to plain data."""
        trace = None
        if record.exc_info and record.exc_info[0] is not None:
            trace = logging.Formatter().formatException(record.exc_info)
        fields = {
            name: value if isinstance(value, str | int | float | bool | None) else str(value)
            for name, value in vars(record).items()
            if name not in STANDARD_FIELDS
        }
        context = getattr(record, "context", None) or current_context()
        return cls(
            record.name,
            record.levelno,
            record.getMessage(),
            record.created,
            record.lineno,
            record.threadName or "",
            context,
            trace,
            fields,
        )

    def emit(self) -> None:
        """Log the line in this process if its log levels permit."""
        logger = logging.getLogger(self.name)
        if not logger.isEnabledFor(self.level):
            return
        record = logger.makeRecord(self.name, self.level, self.name, self.line, self.text, (), None)
        record.created = self.created
        record.msecs = (self.created - int(self.created)) * 1000
        record.threadName = self.thread
        record.context = self.context
        record.connector_context = self.context.prefix
        record.exc_text = self.trace
        for name, value in self.fields.items():
            setattr(record, name, value)
        logger.handle(record)

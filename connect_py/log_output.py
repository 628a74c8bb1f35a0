"""A worker's log output, in Connect's format or as JSON, and its log levels."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from connect_py.log_context import (
    LEVELS,
    NOISY_LOGGERS,
    STANDARD_FIELDS,
    ContextFilter,
    LogContext,
    TextFormatter,
    shown_level,
)
from connect_py.secret_mask import masked

ROOT: Final = "root"


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        context: LogContext = record.context  # type: ignore[attr-defined]  # set by ContextFilter
        entry: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": shown_level(record),
            "logger": record.name,
            "message": record.getMessage(),
            "thread": record.threadName,
        }
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        extras = {
            name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS
        }
        source = {
            "connector": context.connector,
            "task": context.task,
            "scope": context.scope,
            "trace": record.exc_text,
        }
        entry |= {name: value for name, value in source.items() if value is not None}
        return masked(json.dumps({**extras, **entry}, ensure_ascii=False, default=str))


def configure_logging(form: str = "text") -> None:
    """Log to standard output as `text` or `json`, including lines from child processes."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(ContextFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def set_log_levels(levels: Mapping[str, str]) -> None:
    """Set logger levels, which are specified with Connect's level names.

    `root` is the default for all other loggers. The herder also sets the levels in child processes.
    """
    for name, level in levels.items():
        logging.getLogger(None if name.lower() == ROOT else name).setLevel(LEVELS[level.upper()])

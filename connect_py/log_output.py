"""Where a worker's log goes: lines on standard output, as text in Connect's pattern or as JSON; and
whose are shown."""

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
    """One JSON object a line: time, level, logger, message; connector, task, scope, trace; what
    else the line has."""

    def format(self, record: logging.LogRecord) -> str:
        context: LogContext = record.context  # type: ignore[attr-defined]  # ContextFilter put it there
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
        own = {name: value for name, value in vars(record).items() if name not in STANDARD_FIELDS}
        about = {
            "connector": context.connector,
            "task": context.task,
            "scope": context.scope,
            "trace": record.exc_text,
        }
        entry |= {name: value for name, value in about.items() if value is not None}
        return masked(json.dumps({**own, **entry}, ensure_ascii=False, default=str))


def configure_logging(form: str = "text") -> None:
    """Log to standard output, `text` or `json`, for this process and what its children send."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    handler.addFilter(ContextFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


def set_log_levels(levels: Mapping[str, str]) -> None:
    """Give loggers levels in Connect's words; `root` is all that have none of their own. The herder
    tells children."""
    for name, level in levels.items():
        logging.getLogger(None if name.lower() == ROOT else name).setLevel(LEVELS[level.upper()])

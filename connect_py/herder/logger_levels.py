"""`LoggerLevels`: implements `/admin/loggers` for this process and its child processes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from connect_py.api.errors import NotFoundError
from connect_py.clock import Clock
from connect_py.herder.herder import LoggerLevel
from connect_py.log_context import LEVELS

ROOT: Final = "root"

log = logging.getLogger(__name__)


class LoggerLevels:
    """Reads and sets logger levels, using Kafka Connect's logger names. Thread-safe.

    Changes are forwarded to child processes. A logger is listed once this process has used it or a
    child process has logged a message with it.
    """

    def __init__(self, clock: Clock, forward: Callable[[Mapping[str, int | None]], None]) -> None:
        """Create the object and forward the current levels to the child processes.

        This is necessary because the child processes do not receive the command-line options that
        set these levels.

        Args:
            clock: Source of the modification times.
            forward: Called with log levels by logger name; "" is the root logger.
        """
        self._clock = clock
        self._forward = forward
        self._modified: dict[str, int] = {}  # last change by logger name, in ms since the epoch
        self._lock = threading.Lock()
        levels = {
            name: logger.level
            for name, logger in self._loggers().items()
            if logger.level != logging.NOTSET
        }
        forward({"" if name == ROOT else name: level for name, level in levels.items()})

    def _loggers(self) -> dict[str, logging.Logger]:
        # copy the dict in one step, because other threads may add loggers
        loggers = logging.Logger.manager.loggerDict.copy().items()
        return {
            ROOT: logging.getLogger(),
            **{n: item for n, item in loggers if isinstance(item, logging.Logger)},
        }

    def all(self) -> dict[str, LoggerLevel]:
        """Return the levels of all loggers that are not off, sorted by name."""
        levels = {
            name: self._level_of(name, logger) for name, logger in sorted(self._loggers().items())
        }
        return {name: level for name, level in levels.items() if level.level != "OFF"}

    def of(self, name: str) -> LoggerLevel:
        """Return the level of one logger. `root` is case-insensitive.

        Raises:
            NotFoundError: The logger has not been used.
        """
        canonical_name = _canonical(name)
        logger = self._loggers().get(canonical_name)
        if logger is None:
            raise NotFoundError(f"Logger {name} not found.")
        return self._level_of(canonical_name, logger)

    def _level_of(self, name: str, logger: logging.Logger) -> LoggerLevel:
        return LoggerLevel(_name_of(logger.getEffectiveLevel()), self._modified.get(name))

    def set(self, namespace: str, level: str) -> list[str]:
        """Set the level of a logger and of all loggers whose names start with its name.

        The logger is created if necessary. `level` is one of `LEVELS`. Returns the sorted names of
        the loggers whose level has changed.
        """
        number = LEVELS[level]
        with self._lock:
            name = _canonical(namespace)
            loggers = self._loggers()
            if name not in loggers:
                loggers[name] = logging.getLogger(name)
            affected = {n: item for n, item in loggers.items() if n == name or n.startswith(name)}
            changed = sorted(
                n for n, item in affected.items() if item.getEffectiveLevel() != number
            )
            for each in changed:
                affected[each].setLevel(number)
                self._modified[each] = self._clock.time_ms()
        if changed:
            log.info(
                "set the level of logger %s to %s (changed loggers: %d)",
                namespace,
                level,
                len(changed),
            )
            self._forward({"" if each == ROOT else each: number for each in changed})
        return changed


def _canonical(name: str) -> str:
    return ROOT if name.lower() == ROOT else name


def _name_of(level: int) -> str:
    """Return the name of a level, or of the closest lower level that has a name."""
    return next((name for name, number in LEVELS.items() if level >= number), "ALL")

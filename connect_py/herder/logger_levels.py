"""`LoggerLevels`: the levels of loggers as `/admin/loggers` shows and changes them, here and in all
child processes."""

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
    """Levels of this process, by Connect's names; changes go on to child processes. Safe on any
    thread.

    A logger is known once something in this process, or a line from a child process, has used it.
    """

    def __init__(
        self, clock: Clock, tell_children: Callable[[Mapping[str, int | None]], None]
    ) -> None:
        """Tell the children what is set here already: they know nothing of the command line's
        levels.

        `tell_children` gets levels by logger; "" is the root.
        """
        self._clock = clock
        self._tell_children = tell_children
        self._modified: dict[str, int] = {}  # ms since the epoch, by name
        self._lock = threading.Lock()
        own = {
            name: logger.level
            for name, logger in self._loggers().items()
            if logger.level != logging.NOTSET
        }
        tell_children({"" if name == ROOT else name: level for name, level in own.items()})

    def _loggers(self) -> dict[str, logging.Logger]:
        # copied at once: other threads add to it
        named = logging.Logger.manager.loggerDict.copy().items()
        return {
            ROOT: logging.getLogger(),
            **{n: item for n, item in named if isinstance(item, logging.Logger)},
        }

    def all(self) -> dict[str, LoggerLevel]:
        """The loggers that are not off, sorted by name."""
        found = {
            name: self._shown(name, logger) for name, logger in sorted(self._loggers().items())
        }
        return {name: level for name, level in found.items() if level.level != "OFF"}

    def of(self, name: str) -> LoggerLevel:
        """The level of one logger; `root` in any case.

        Raises:
            NotFoundError: Nothing has used this logger.
        """
        known = _canonical(name)
        logger = self._loggers().get(known)
        if logger is None:
            raise NotFoundError(f"Logger {name} not found.")
        return self._shown(known, logger)

    def _shown(self, name: str, logger: logging.Logger) -> LoggerLevel:
        return LoggerLevel(_name_of(logger.getEffectiveLevel()), self._modified.get(name))

    def set(self, namespace: str, level: str) -> list[str]:
        """Give a logger, made if it is unknown, and all whose names begin like its own this level.

        `level` is one of `LEVELS`. Returns the names of those whose level really changed, sorted.
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
                "level of logger %s is now %s (%d loggers changed)", namespace, level, len(changed)
            )
            self._tell_children({"" if each == ROOT else each: number for each in changed})
        return changed


def _canonical(name: str) -> str:
    return ROOT if name.lower() == ROOT else name


def _name_of(level: int) -> str:
    """The name of a level, of the next lower one for those between."""
    return next((name for name, number in LEVELS.items() if level >= number), "ALL")

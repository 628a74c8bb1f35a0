"""The child's side of `Child`: setup, log forwarding, heartbeats, and the worker's lease.

A child exits when its channel ends, when the worker thread that started it ends (Linux), or when
the worker's lease in its group expires, even if the worker is suspended.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from connect_py.clock import Clock, SystemClock
from connect_py.log_context import (
    NOISY_LOGGERS,
    ContextFilter,
    LogContext,
    LogLine,
    set_process_context,
)
from connect_py.process.channel import Channel, Handler
from connect_py.process.child_launcher import die_with_parent

EXIT_WORKER_LOST: Final = 70
EXIT_LEASE_ENDED: Final = 71
HEARTBEAT_SECONDS: Final = 1.0
# short, because time that the machine spends suspended does not count toward a wait
_LEASE_CHECK_SECONDS: Final = 0.5
_RETAINED_BYTES: Final = 64 << 20
_COLLECTOR_THRESHOLDS: Final = (100_000, 50, 100)
# constants from glibc's malloc.h
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2  # each arena retains freed memory
_MMAP_BYTES: Final = 32 << 20  # the largest threshold that glibc accepts


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Notification that a child is running, with an optional report such as metrics."""

    report: Any = None


@dataclass(frozen=True, slots=True)
class SetLogLevels:
    """Sets log levels by logger name. "" is the root logger; None resets a level."""

    levels: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class ExtendLease:
    """Sets the time by which the process must exit, unless a later message changes it.

    The time is in seconds on the machine's monotonic clock, or None if the process need not exit.
    """

    until: float | None


def run_child(
    main: str, environment: Mapping[str, str], connection: Connection[Any, Any], argument: object
) -> None:
    """Call `module:function` with the channel and one argument, using the worker's environment.

    This function is the entry point of a forked process. It imports the main function by name, so
    the worker does not need to import it.
    """
    # This process has inherited the environment with which the fork server was started.
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    threading.current_thread().name = main.partition(":")[2]
    module, _, function = main.partition(":")
    getattr(importlib.import_module(module), function)(Channel(connection), argument)


def prepare_child(
    channel: Channel, context: LogContext, log_levels: Mapping[str, int | None]
) -> None:
    """Make a forked process ignore signals, log to the channel, and limit Arrow to one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker itself stops its children, in order
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent()
    set_process_context(context)
    relay_logs(channel)
    set_levels(log_levels)
    if "pyarrow" in sys.modules:
        import pyarrow as pa  # slow to import, and not used by all children

        # a task uses only one thread; larger pools add context switches and memory
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)


def relay_logs(channel: Channel) -> None:
    """Send log records to the channel. The worker applies its own levels and format."""
    root = logging.getLogger()
    root.handlers = [_ChannelHandler(channel)]
    root.filters = [_is_relevant]
    root.setLevel(logging.INFO)
    set_levels(dict.fromkeys(NOISY_LOGGERS, logging.WARNING))


class _ChannelHandler(logging.Handler):
    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self.addFilter(ContextFilter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.notify(LogLine.of(record))
        except Exception:  # noqa: BLE001 - logging must not raise an error in its caller
            self.handleError(record)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return True unless the record is py4j debug output, which py4j writes to the root logger."""
    return record.levelno >= logging.WARNING or "py4j" not in Path(record.pathname).parts


def set_levels(levels: Mapping[str, int | None]) -> None:
    """Set log levels by logger name. "" is the root logger; None resets a logger's level."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(logging.NOTSET if level is None else level)


def serve_worker(channel: Channel, handle: Handler, make_report: Callable[[], Any]) -> None:
    """Start one thread that processes the worker's messages and one that sends heartbeats.

    The process exits when the channel ends. `make_report` returns the report for each heartbeat.

    If several leases have already arrived, only the last one is applied, because earlier ones may
    have expired while this process was starting.
    """
    lease = LeaseGuard()
    first_leases: list[float | None] = []
    extend_lease: Callable[[float | None], None] = first_leases.append

    def process(message: Any) -> Future[Any] | None:
        match message:
            case SetLogLevels(levels):
                set_levels(levels)
            case ExtendLease(until):
                extend_lease(until)
            case _:
                return handle(message)
        return None

    def send_heartbeats() -> None:
        never = threading.Event()
        while True:
            channel.notify(Heartbeat(make_report()))
            never.wait(HEARTBEAT_SECONDS)

    while channel.has_message() and channel.receive(process):
        pass
    extend_lease = lease.extend
    if first_leases:
        lease.extend(first_leases[-1])
    channel.start_reading(process, on_end=lambda: os._exit(EXIT_WORKER_LOST))
    threading.Thread(target=send_heartbeats, name="heartbeat", daemon=True).start()


class LeaseGuard:
    """Exits the process when the lease expires.

    The guard is necessary because a suspended or blocked worker cannot stop its children in time.
    The worker and its children share the machine's monotonic clock. The guard's thread is started
    when the first lease is set.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._until: float | None = None
        self._thread: threading.Thread | None = None

    def extend(self, until: float | None) -> None:
        """Set the time by which this process must exit, or None if it need not exit."""
        with self._changed:
            self._until = until
            self._changed.notify()
            if self._thread is None and until is not None:
                self._thread = threading.Thread(target=self._watch, name="lease-guard", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        with self._changed:
            while True:
                remaining = None if self._until is None else self._until - self._clock.monotonic()
                if remaining is not None and remaining <= 0:
                    # exit immediately, because another worker may start the same tasks
                    os._exit(EXIT_LEASE_ENDED)
                self._changed.wait(
                    None if remaining is None else min(remaining, _LEASE_CHECK_SECONDS)
                )


def collect_rarely() -> None:
    """Make Python's garbage collector run less often, and exclude all existing objects from it.

    A task has thousands of messages in memory, none of which is part of a reference cycle. With the
    default thresholds, the collector traverses them several times per poll, which takes 10% to 20%
    of the task's CPU time.
    """
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)


def keep_freed_memory() -> None:
    """Configure glibc to retain up to `_RETAINED_BYTES` of freed memory per arena.

    Each poll can then reuse the memory that the previous poll freed. Without this setting, a third
    of a task's page faults occur because this memory has been returned to the kernel.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _RETAINED_BYTES)


def exit_now() -> None:
    """Exit immediately with status 0, even if plugin threads are still running."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

"""Setup of every child process: signals, logging to the worker, and exit when the worker exits."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from connect_py.log_context import NOISY_LOGGERS, LogContext, set_process_context
from connect_py.process.child_launcher import die_with_parent
from connect_py.task.channel import Channel, ChannelHandler

EXIT_WORKER_LOST: Final = 70
RETAINED_BYTES: Final = 64 << 20
COLLECTOR_THRESHOLDS: Final = (100_000, 50, 100)
_M_TRIM_THRESHOLD: Final = -1  # glibc's
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2  # each arena retains freed memory
_MMAP_BYTES: Final = 32 << 20  # the largest threshold that glibc accepts


def prepare_child(
    channel: Channel, context: LogContext, log_levels: Mapping[str, int | None]
) -> None:
    """Set up a new child process: ignore signals, log to the channel, and limit Arrow to one
    thread.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker stops its children in order
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent()
    set_process_context(context)
    root = logging.getLogger()
    root.handlers = [ChannelHandler(channel)]
    root.filters = [_is_relevant]
    root.setLevel(logging.INFO)
    set_levels(dict.fromkeys(NOISY_LOGGERS, logging.WARNING))
    set_levels(log_levels)
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        # a task has work for one thread; pools only add context switches and memory
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return True unless the record is py4j debug output, which py4j writes to the root logger."""
    return record.levelno >= logging.WARNING or "py4j" not in Path(record.pathname).parts


def collect_rarely() -> None:
    """Make Python's garbage collector run less often, and exclude all existing objects.

    A task holds thousands of messages, none of which is part of a cycle. With the default
    thresholds, the collector traverses them several times per poll, which costs 10 to 20 % of the
    CPU time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def keep_freed_memory() -> None:
    """Make glibc retain up to `RETAINED_BYTES` of freed memory per arena instead of returning it
    immediately.

    Each poll reuses the memory that the previous one freed; otherwise this causes a third of a
    task's page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, RETAINED_BYTES)


def set_levels(levels: Mapping[str, int | None]) -> None:
    """Set log levels by logger name. "" is the root logger; None resets a level."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(logging.NOTSET if level is None else level)


def read_until_worker_ends(channel: Channel, handle: Callable[[Any], None]) -> threading.Thread:
    """Start the thread that receives messages. It exits the process when the channel is closed."""

    def read() -> None:
        while True:
            try:
                message = channel.receive()
            except EOFError:
                os._exit(EXIT_WORKER_LOST)
            handle(message)

    thread = threading.Thread(target=read, name="channel-reader", daemon=True)
    thread.start()
    return thread


def beat(
    channel: Channel, make_message: Callable[[], object], interval_seconds: float
) -> threading.Thread:
    """Start the thread that sends heartbeats to the worker."""
    never = threading.Event()

    def run() -> None:
        while True:
            channel.send(make_message())
            never.wait(interval_seconds)

    thread = threading.Thread(target=run, name="beat", daemon=True)
    thread.start()
    return thread


def leave(status: int = 0) -> None:
    """Exit the process immediately, regardless of threads that plugins have started."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

"""What every child process of the worker does first: live quietly, log upwards, and end when the
worker ends."""

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
KEPT_BYTES: Final = 64 << 20
COLLECTOR_THRESHOLDS: Final = (100_000, 50, 100)
_M_TRIM_THRESHOLD: Final = -1  # glibc's
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2  # each keeps what was freed in it
_MMAP_BYTES: Final = 32 << 20  # the largest that glibc takes


def prepare_child(
    channel: Channel, context: LogContext, log_levels: Mapping[str, int | None]
) -> None:
    """Set up a fresh child: signals are the parent's to send, logs go up the channel, Arrow keeps
    to one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the worker stops its children itself, in order
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with_parent()
    set_process_context(context)
    root = logging.getLogger()
    root.handlers = [ChannelHandler(channel)]
    root.filters = [_is_no_chatter]
    root.setLevel(logging.INFO)
    set_levels(dict.fromkeys(NOISY_LOGGERS, logging.WARNING))
    set_levels(log_levels)
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        # a task has one thread's worth of work; pools only add switching and memory
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)


def _is_no_chatter(record: logging.LogRecord) -> bool:
    """py4j tells of its second tries, with their traces, on the root logger itself: only such lines
    pass here."""
    return record.levelno >= logging.WARNING or "py4j" not in Path(record.pathname).parts


def collect_rarely() -> None:
    """Have Python's collector look for cycles less often, and never at what exists already.

    Thousands of messages live at a time in a task, none of them in a cycle; with Python's
    thresholds the collector goes over them several times per poll, a tenth to a fifth of all CPU
    time.
    """
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


def keep_freed_memory() -> None:
    """Have glibc keep up to `KEPT_BYTES` of what was freed in an arena, instead of giving it back
    at once.

    What one poll frees the next one takes again, page by page: a third of a task's page faults.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if sys.platform == "linux" and mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


def set_levels(levels: Mapping[str, int | None]) -> None:
    """Set loggers' levels; "" is the root, None takes a logger's own level away."""
    for name, level in levels.items():
        logging.getLogger(name or None).setLevel(logging.NOTSET if level is None else level)


def read_until_worker_ends(channel: Channel, handle: Callable[[Any], None]) -> threading.Thread:
    """Start the thread that takes messages; it ends the process at once when the channel closes."""

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


def beat(channel: Channel, make: Callable[[], object], interval_seconds: float) -> threading.Thread:
    """Start the thread that says that this process lives."""
    never = threading.Event()

    def run() -> None:
        while True:
            channel.send(make())
            never.wait(interval_seconds)

    thread = threading.Thread(target=run, name="beat", daemon=True)
    thread.start()
    return thread


def leave(status: int = 0) -> None:
    """End this process now: threads that plugins left behind cannot hold it."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

"""The main function of a task process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any, Final

import pyarrow  # noqa: F401 - so that a process forked from a server that did not preload it keeps to one thread too

from connect_py.log_context import LogContext
from connect_py.task.channel import Channel
from connect_py.task.child_process import (
    beat,
    collect_rarely,
    keep_freed_memory,
    leave,
    prepare_child,
    read_until_worker_ends,
    set_levels,
)
from connect_py.task.lease_guard import LeaseGuard
from connect_py.task.messages import (
    Answer,
    Beat,
    ExtendLease,
    SetLogLevels,
    SetTargetState,
    Stop,
    TaskSpec,
)
from connect_py.task.task_control import TaskControl
from connect_py.task.task_main import TaskMain

BEAT_SECONDS: Final = 1.0
REPORT_BEATS: Final = 3  # every Nth beat contains metrics


def run_task_process(connection: Connection[Any, Any], spec: TaskSpec) -> None:
    """Run one task to its end and exit. All messages to the worker are sent on `connection`."""
    channel = Channel(connection)
    levels: Mapping[str, int | None] = dict(spec.log_levels)
    prepare_child(channel, LogContext(spec.id.connector, spec.id.task), levels)
    collect_rarely()
    keep_freed_memory()
    threading.current_thread().name = f"task-thread-{spec.id}"
    control = TaskControl(spec.target, channel.send)
    main = TaskMain(spec, control)
    guard = LeaseGuard()

    def handle(message: object) -> None:
        match message:
            case SetTargetState(target):
                control.set_target(target)
            case Stop():
                control.stop()
            case SetLogLevels(changed):
                set_levels(changed)
            case ExtendLease(until):
                guard.extend(until)
            case Answer():
                control.answer(message)

    read_until_worker_ends(channel, handle)
    beats = itertools.count()

    def make_beat() -> Beat:
        main.send_waiting()
        return Beat(main.report() if next(beats) % REPORT_BEATS == 0 else None)

    beat(channel, make_beat, BEAT_SECONDS)
    main.execute()
    leave()

"""The main function of a task process."""

from __future__ import annotations

import itertools
import threading
from typing import Final

import pyarrow  # noqa: F401 - prepare_child limits pyarrow's threads only if pyarrow is imported

from connect_py.log_context import LogContext
from connect_py.metrics.task_report import TaskReport
from connect_py.process.channel import Channel
from connect_py.process.child_runtime import (
    collect_rarely,
    exit_now,
    keep_freed_memory,
    prepare_child,
    serve_worker,
)
from connect_py.task.messages import SetTargetState, Stop, TaskSpec
from connect_py.task.task_control import TaskControl
from connect_py.task.task_main import TaskMain

REPORT_HEARTBEATS: Final = 3  # every Nth heartbeat contains metrics


def run_task_process(channel: Channel, spec: TaskSpec) -> None:
    """Run one task until it ends, and exit the process."""
    prepare_child(channel, LogContext(spec.id.connector, spec.id.task), dict(spec.log_levels))
    collect_rarely()
    keep_freed_memory()
    threading.current_thread().name = f"task-thread-{spec.id}"
    control = TaskControl(spec.target, channel.call, channel.notify)
    main = TaskMain(spec, control)
    heartbeats = itertools.count()

    def handle(message: object) -> None:
        match message:
            case SetTargetState(target):
                control.set_target(target)
            case Stop():
                control.stop()

    def make_report() -> TaskReport | None:
        main.send_waiting()
        return main.report() if next(heartbeats) % REPORT_HEARTBEATS == 0 else None

    serve_worker(channel, handle, make_report)
    main.execute()
    exit_now()

"""`ProcessTaskHost`: runs a task in its own process, supervised by a thread of the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.futures import failed
from connect_py.log_context import log_context
from connect_py.metrics.task_report import TaskReport
from connect_py.model import TargetState
from connect_py.process.child import Child
from connect_py.process.child_runtime import ExtendLease, SetLogLevels
from connect_py.process.fork_server import ForkServer
from connect_py.task.messages import Failed, FromTask, SetTargetState, Stop, Stopped, TaskSpec
from connect_py.worker.task_host import TaskListener

TASK_MAIN: Final = "connect_py.task.task_process:run_task_process"

log = logging.getLogger(__name__)


class ProcessTaskHost:
    """Implements `TaskHost`. Kills the process if its heartbeats stop for `liveness_seconds`."""

    def __init__(
        self,
        spec: TaskSpec,
        on_message: TaskListener,
        server: ForkServer,
        clock: Clock,
        liveness_seconds: float,
    ) -> None:
        self._spec = spec
        self._on_message = on_message
        self._child = Child(
            f"task-{spec.id}",
            partial(server.launch, f"task-{spec.id}", TASK_MAIN, spec),
            clock,
            liveness_seconds,
            on_heartbeat=self._set_report,
        )
        self._lock = threading.Lock()
        self._reported = False  # True if no more messages may be forwarded
        self._ended = threading.Event()
        self._report = TaskReport()
        self._thread = threading.Thread(
            target=self._supervise, name=f"task-host-{spec.id}", daemon=True
        )

    @property
    def spec(self) -> TaskSpec:
        return self._spec

    @property
    def report(self) -> TaskReport:
        return self._report

    @property
    def pid(self) -> int | None:
        """ID of the process, or None if it has not been started."""
        return self._child.pid

    def start(self) -> None:
        self._thread.start()

    def set_target_state(self, target: TargetState) -> None:
        self._child.channel.notify(SetTargetState(target))

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        self._child.channel.notify(SetLogLevels(dict(levels)))

    def extend_lease(self, until: float | None) -> None:
        self._child.channel.notify(ExtendLease(until))

    def stop(self) -> None:
        self._child.channel.notify(Stop())

    def cancel(self) -> None:
        with self._lock:
            self._reported = True
        self._child.kill()

    def wait(self, timeout: float) -> bool:
        return self._ended.wait(timeout)

    # The supervisor's thread

    def _supervise(self) -> None:
        with log_context(self._spec.id.connector, self._spec.id.task):
            try:
                self._child.run(self._handle)
                self._fail(f"process {self._child.pid} of the task {self._child.outcome}")
            except Exception as error:
                log.exception("unexpected error while supervising the task's process")
                self._fail(f"failed to start or supervise the task's process: {error}")
            finally:
                self._child.close(ConnectError("the task has ended"))
                self._ended.set()

    def _set_report(self, report: TaskReport | None) -> None:
        self._report = report or self._report

    def _handle(self, message: FromTask) -> Future[Any] | None:
        is_last = isinstance(message, Stopped | Failed)
        if is_last:
            self._child.expect_exit()
        with self._lock:
            if self._reported:
                return failed(ConnectError("the task has ended"))
            self._reported = is_last
        return self._on_message(message)

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self._reported:
                return
            self._reported = True
        log.error("%s", reason, extra={"action": "task_process_died"})
        self._on_message(Failed(stack_trace(ConnectError(reason))))

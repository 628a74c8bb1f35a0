"""`ProcessTaskHost`: runs a task in its own process, watched by a thread of the worker."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for_any
from multiprocessing.context import ForkServerProcess
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock
from connect_py.error_handling.failed_record import stack_trace
from connect_py.log_context import LogLine, log_context
from connect_py.metrics.task_report import TaskReport
from connect_py.model import TargetState
from connect_py.task.lease_guard import EXIT_LEASE_ENDED
from connect_py.task.messages import (
    Answer,
    Beat,
    ExtendLease,
    Failed,
    FromTask,
    SetLogLevels,
    SetTargetState,
    Stop,
    Stopped,
    TaskSpec,
)
from connect_py.worker.child_channel import ChildChannel
from connect_py.worker.fork_server import ForkServer
from connect_py.worker.task_host import TaskListener

TASK_MAIN: Final = "connect_py.task.task_process:run_task_process"
CHECK_SECONDS: Final = 1.0  # interval for checking heartbeats
# time from a task's last message to the exit of its process; then it is killed
EXIT_SECONDS: Final = 3.0

log = logging.getLogger(__name__)


class ProcessTaskHost:
    """Implements `TaskHost`. Kills the process after a session timeout without a heartbeat."""

    def __init__(
        self,
        spec: TaskSpec,
        on_message: TaskListener,
        server: ForkServer,
        clock: Clock,
        silence_seconds: float,
    ) -> None:
        self._spec = spec
        self._on_message = on_message
        self._server = server
        self._clock = clock
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._channel: ChildChannel | None = None
        self._process: ForkServerProcess | None = None
        self._target = spec.target
        self._lease_until: float | None = None
        self._levels: dict[str, int | None] = {}  # changed since the task was specified
        self._stopping = False
        self._cancelled = False
        self._reported = False  # the last message was forwarded, or no more are
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
        """ID of the process, if it is running."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> None:
        self._thread.start()

    def set_target_state(self, target: TargetState) -> None:
        with self._lock:
            self._target = target
            self._send(SetTargetState(target))

    def set_log_levels(self, levels: Mapping[str, int | None]) -> None:
        with self._lock:
            self._levels |= levels
            self._send(SetLogLevels(dict(levels)))

    def extend_lease(self, until: float | None) -> None:
        with self._lock:
            self._lease_until = until
            self._send(ExtendLease(until))

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
            self._send(Stop())

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            self._reported = True
            if self._process is not None:
                self._process.kill()

    def wait(self, timeout: float) -> bool:
        return self._ended.wait(timeout)

    def _send(self, message: object) -> None:
        if self._channel is not None:
            self._channel.send(message)

    # The supervisor's thread

    def _supervise(self) -> None:
        with log_context(self._spec.id.connector, self._spec.id.task):
            try:
                started = self._spawn()
                if started is not None:
                    self._watch(*started)
            except Exception as error:
                log.exception("unexpected error while watching the process of the task")
                self._fail(f"failed to start or watch the process of the task: {error}")
            finally:
                self._ended.set()

    def _spawn(self) -> tuple[ForkServerProcess, Connection[Any, Any]] | None:
        with self._lock:
            if self._cancelled:
                return None
        process, connection = self._server.spawn(f"task-{self._spec.id}", TASK_MAIN, self._spec)
        with self._lock:
            self._process = process
            self._channel = ChildChannel(connection, f"task-pipe-{self._spec.id}")
            if self._cancelled:
                process.kill()
            if self._lease_until is not None:
                self._send(ExtendLease(self._lease_until))
            if self._target is not self._spec.target:
                self._send(SetTargetState(self._target))
            if self._levels:
                self._send(SetLogLevels(dict(self._levels)))
            if self._stopping:
                self._send(Stop())
        return process, connection

    def _watch(self, process: ForkServerProcess, connection: Connection[Any, Any]) -> None:
        last_message_at = self._clock.monotonic()
        open_ = True
        try:
            while open_:
                ready = wait_for_any([connection, process.sentinel], CHECK_SECONDS)
                if connection in ready:
                    open_ = self._read(connection)
                    last_message_at = self._clock.monotonic()
                elif process.sentinel in ready:
                    break
                elif self._clock.monotonic() - last_message_at > self._silence_seconds:
                    self._fail(
                        f"the process {process.pid} of the task was killed after "
                        f"{self._silence_seconds:.0f} s without a heartbeat"
                    )
                    process.kill()
                    break
            process.join(EXIT_SECONDS)
            if process.exitcode is None:
                log.warning("process %s did not exit in time, killing it", process.pid)
                process.kill()
                process.join()
            while open_ and connection.poll(0):  # remaining messages of an exited process
                open_ = self._read(connection)
            self._fail(
                f"the process {process.pid} of the task ended unexpectedly: "
                f"{exit_reason(process.exitcode)}"
            )
        finally:
            with self._lock:
                if self._channel is not None:
                    self._channel.close()
                    self._channel = None

    def _read(self, connection: Connection[Any, Any]) -> bool:
        try:
            message = connection.recv()
        except (EOFError, OSError):
            return False
        self._handle(message)
        return not isinstance(message, Stopped | Failed)

    def _handle(self, message: FromTask) -> None:
        if isinstance(message, LogLine):
            message.emit()
            return
        if isinstance(message, Beat):
            self._report = message.report or self._report
            return
        with self._lock:
            if self._reported:
                return
            self._reported = isinstance(message, Stopped | Failed)
        self._on_message(message, self._reply)

    def _reply(self, answer: Answer) -> None:
        with self._lock:
            self._send(answer)

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self._reported:
                return
            self._reported = True
        log.error("%s", reason, extra={"action": "task_process_died"})
        self._on_message(Failed(stack_trace(ConnectError(reason))), self._reply)


def exit_reason(code: int | None) -> str:
    """Return a message that explains how a process ended."""
    if code is None:
        return "still running"
    if code < 0:
        name = (
            signal.Signals(-code).name
            if -code in {s.value for s in signal.Signals}
            else f"signal {-code}"
        )
        hint = ", possibly out of memory" if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    if code == EXIT_LEASE_ENDED:
        return "the worker's lease in its group ended"
    if code == 255:
        return "exit status 255, or the fork server exited"
    return f"exit status {code}"

"""`ProcessTaskHost`: a task in a process of its own, watched from a thread of the worker."""

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
from connect_py.worker.task_host import TaskNews

TASK_MAIN: Final = "connect_py.task.task_process:run_task_process"
LOOK_SECONDS: Final = 1.0  # how often silence is noticed
# from a task's last message to the end of its process; then it is killed
LEAVE_SECONDS: Final = 3.0

log = logging.getLogger(__name__)


class ProcessTaskHost:
    """Satisfies `TaskHost`. The process is killed when it is silent for longer than the session
    time-out."""

    def __init__(
        self,
        spec: TaskSpec,
        tell: TaskNews,
        server: ForkServer,
        clock: Clock,
        silence_seconds: float,
    ) -> None:
        self._spec = spec
        self._tell = tell
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
        self._reported = False  # the last news was passed on, or none is any more
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
        """The process's id while there is one."""
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

    # The supervisor's thread.

    def _supervise(self) -> None:
        with log_context(self._spec.id.connector, self._spec.id.task):
            try:
                started = self._spawn()
                if started is not None:
                    self._watch(*started)
            except Exception as error:
                log.exception("the task's process could not be watched")
                self._fail(f"the task's process could not be started or watched: {error}")
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
        heard = self._clock.monotonic()
        open_ = True
        try:
            while open_:
                ready = wait_for_any([connection, process.sentinel], LOOK_SECONDS)
                if connection in ready:
                    open_ = self._read(connection)
                    heard = self._clock.monotonic()
                elif process.sentinel in ready:
                    break
                elif self._clock.monotonic() - heard > self._silence_seconds:
                    self._fail(
                        f"the task's process {process.pid} was silent for "
                        f"{self._silence_seconds:.0f} s; killed"
                    )
                    process.kill()
                    break
            process.join(LEAVE_SECONDS)
            if process.exitcode is None:
                log.warning("process %s did not leave and is killed", process.pid)
                process.kill()
                process.join()
            while open_ and connection.poll(0):  # the last words of a process that is gone
                open_ = self._read(connection)
            self._fail(
                f"the task's process {process.pid} ended without a word: "
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
        self._tell(message, self._reply)

    def _reply(self, answer: Answer) -> None:
        with self._lock:
            self._send(answer)

    def _fail(self, why: str) -> None:
        with self._lock:
            if self._reported:
                return
            self._reported = True
        log.error("%s", why, extra={"action": "task_process_died"})
        self._tell(Failed(stack_trace(ConnectError(why))), self._reply)


def exit_reason(code: int | None) -> str:
    """How a process ended, for people."""
    if code is None:
        return "it still runs"
    if code < 0:
        name = (
            signal.Signals(-code).name
            if -code in {s.value for s in signal.Signals}
            else f"signal {-code}"
        )
        hint = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    if code == EXIT_LEASE_ENDED:
        return "the worker's lease in its group ended first"
    if code == 255:
        return "exit status 255, or the fork server died"
    return f"exit status {code}"

"""`Child`: runs a child process, exchanges messages with it, and monitors its liveness."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final, Protocol, TypeAlias

from connect_py.clock import Clock
from connect_py.log_context import LogLine
from connect_py.process.channel import Channel, Handler
from connect_py.process.child_runtime import EXIT_LEASE_ENDED, Heartbeat

CHECK_SECONDS: Final = 1.0  # interval between liveness checks
EXIT_SECONDS: Final = 3.0  # time to exit after the last message before the process is killed

log = logging.getLogger(__name__)


class RunningProcess(Protocol):
    """A started process. Only one thread may use `status` and `wait`."""

    @property
    def pid(self) -> int:
        """ID of the process."""

    @property
    def status(self) -> int | None:
        """Exit status (negative after a signal), or None while the process is running."""

    @property
    def sentinel(self) -> int:
        """A file descriptor that becomes readable when the process exits."""

    @property
    def output(self) -> Connection[Any, Any] | None:
        """Pipe with the captured output, or None if none is captured. The caller closes it."""

    def send_kill(self) -> None:
        """Send SIGKILL without waiting. Does nothing if the process has exited."""

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the process to exit. Return False on timeout."""


Launch: TypeAlias = "Callable[[Connection[Any, Any]], RunningProcess]"
"""Starts a process that inherits the given end of a pipe."""


class Child:
    """Runs one child process.

    A single owner thread calls `run` (or `launch`, `step`, and `finish`) and then `close`, and
    processes the child's messages. Any thread may use `kill` and `channel`. The channel accepts
    messages even before the process has started and after it has exited.
    """

    def __init__(
        self,
        name: str,
        launch: Launch,
        clock: Clock,
        liveness_seconds: float | None,
        *,
        on_heartbeat: Callable[[Any], None] = lambda _: None,
        on_output: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the channel without starting the process.

        Args:
            name: Prefix of the thread names.
            launch: Starts the process.
            clock: Source of monotonic time.
            liveness_seconds: Time without a message after which the process is killed, or None for
                no limit. `require_messages` changes it.
            on_heartbeat: Called with the report in each heartbeat.
            on_output: Called with each line of captured output.
        """
        self._launch = launch
        self._clock = clock
        self._liveness_seconds = liveness_seconds
        self._on_heartbeat = on_heartbeat
        self._output = LineSplitter(on_output)
        ours, self._theirs = Pipe()
        self._ours: Connection[Any, Any] | None = ours  # None after the channel has ended
        self.channel = Channel(ours, name=name, buffered=True)
        self._lock = threading.Lock()  # guards `_process` and `_killed_because`
        self._process: RunningProcess | None = None
        self._output_pipe: Connection[Any, Any] | None = None
        self._killed_because: str | None = None
        self._silent_seconds = 0.0
        self._exit_deadline: float | None = None

    @property
    def pid(self) -> int | None:
        """ID of the process, or None if it has not been started."""
        return None if self._process is None else self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status (negative after a signal), or None while the process is running."""
        return None if self._process is None else self._process.status

    @property
    def outcome(self) -> str:
        """Message that explains how the process ended."""
        return self._killed_because or f"ended unexpectedly: {exit_reason(self.status)}"

    @property
    def killed(self) -> bool:
        """Return True if the process was killed."""
        return self._killed_because is not None

    def require_messages(self, seconds: float | None) -> None:
        """Kill the process if no message arrives for this long. None removes the limit."""
        self._liveness_seconds = seconds
        self._silent_seconds = 0.0

    def expect_exit(self, seconds: float = EXIT_SECONDS) -> None:
        """Kill the process if it is still running after this many seconds."""
        if self._exit_deadline is None:
            self._exit_deadline = self._clock.monotonic() + seconds

    def kill(self, reason: str | None = None) -> None:
        """Kill the process, or prevent it from being started. Never blocks."""
        with self._lock:
            self._killed_because = self._killed_because or reason or "was killed"
            if self._process is not None:
                self._process.send_kill()

    def run(self, handle: Handler) -> None:
        """Run the process until it exits. The owner calls `close` afterward.

        Raises:
            OSError: The process could not be started.
        """
        try:
            if self.launch():
                while self.status is None:
                    self.step(handle, CHECK_SECONDS)
        finally:
            self.finish(handle)

    def launch(self) -> bool:
        """Start the process. Return False if `kill` has already been called."""
        with self._lock:
            if self._killed_because is not None:
                return False
        process = self._launch(self._theirs)  # may be slow
        self._theirs.close()
        self._output_pipe = process.output
        with self._lock:
            self._process = process
            if self._killed_because is not None:  # `kill` was called during the launch
                process.send_kill()
        return True

    def step(self, handle: Handler, timeout: float, *wake: int) -> None:
        """Wait for a message, output, process exit, or a readable `wake` descriptor, and handle it.

        Kills the process if its liveness timeout or exit deadline has passed. A wait without a
        message counts toward the liveness timeout for at most `timeout` seconds, because a longer
        wait means that the worker itself was suspended and could not read messages.
        """
        process = self._process
        assert process is not None
        timeout = min(timeout, CHECK_SECONDS)
        started_at = self._clock.monotonic()
        sources = [self._ours, self._output_pipe, process.sentinel, *wake]
        ready = wait([source for source in sources if source is not None], timeout)
        now = self._clock.monotonic()
        if self._output_pipe in ready:
            self._read_output()
        if self._ours in ready:
            self._silent_seconds = 0.0
            self._receive(handle)
        elif process.sentinel in ready:
            process.wait()
            return
        else:
            self._silent_seconds += min(now - started_at, timeout)
        limit = self._liveness_seconds
        if self._exit_deadline is not None and now >= self._exit_deadline:
            log.warning("process %d did not exit in time, killing it", process.pid)
            self.kill("did not exit in time and was killed")
            self._exit_deadline = None
        elif limit is not None and self._silent_seconds >= limit:
            self.kill(f"was killed after {limit:.0f} s without a heartbeat")

    def finish(self, handle: Handler) -> None:
        """Kill the process if it is running, and process its remaining messages and output."""
        process = self._process
        if process is not None:
            if process.status is None:
                self.kill()
                process.wait()
            while self._ours is not None and self._ours.poll():
                self._receive(handle)
            while self._output_pipe is not None and wait([self._output_pipe], 0):
                self._read_output()
            self._output.end()

    def close(self, reason: Exception) -> None:
        """Close the channel after `finish`. Calls in progress fail with `reason`."""
        self._theirs.close()
        if self._output_pipe is not None:
            self._output_pipe.close()
        self.channel.close(reason)

    def _receive(self, handle: Handler) -> None:
        def process(message: Any) -> Any:
            if isinstance(message, LogLine):
                message.emit()
            elif isinstance(message, Heartbeat):
                self._on_heartbeat(message.report)
            else:
                return handle(message)
            return None

        if not self.channel.receive(process):
            self._ours = None
            self.expect_exit()

    def _read_output(self) -> None:
        assert self._output_pipe is not None
        if data := os.read(self._output_pipe.fileno(), 1 << 16):
            self._output.feed(data)
        else:
            self._output_pipe.close()
            self._output_pipe = None


class LineSplitter:
    """Splits output into lines."""

    MAX_BYTES: Final = 1 << 20  # longer lines are split

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self._on_line = on_line
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add output, and emit all complete lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode(errors="replace"))
        if len(self._rest) > self.MAX_BYTES:
            self.end()

    def end(self) -> None:
        """Emit the incomplete last line, if any."""
        rest, self._rest = self._rest, b""
        if rest:
            self._on_line(rest.decode(errors="replace"))


def exit_reason(status: int | None) -> str:
    """Return a message that explains how a process ended."""
    if status is None:
        return "still running"
    if status < 0:
        name = (
            signal.Signals(-status).name
            if -status in {s.value for s in signal.Signals}
            else f"signal {-status}"
        )
        hint = ", possibly out of memory" if -status == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    if status == EXIT_LEASE_ENDED:
        return "the worker's lease in its group expired"
    if status == 255:
        return "exit status 255, or the fork server exited"
    return f"exit status {status}"

"""`ServiceProcess`: one process of a shared service and its output."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

from connect_py.clock import Clock
from connect_py.log_context import LEVELS, NOTHING, LogContext, LogLine

READ_BYTES: Final = 1 << 16
LINE_BYTES: Final = 1 << 20  # longer lines are truncated
POLL_SECONDS: Final = 0.2  # polling interval where the kernel does not report the exit of a process
# for a killed process to exit; only an uninterruptible disk wait takes longer
KILLED_SECONDS: Final = 10.0


def launch_command(program: str, location: str | None) -> list[str]:
    """Return the command that runs a module as a service of this process."""
    launcher = [
        sys.executable,
        "-P",
        "-m",
        "connect_py.worker.service_launcher",
        str(os.getpid()),
        program,
    ]
    return launcher if location is None else [*launcher, location]


class ServiceProcess:
    """A process that is created, watched, and stopped by one thread. The kernel kills it when that
    thread exits.

    The process has its own session. After its exit, its process group is killed, including
    everything that it started.
    """

    def __init__(
        self,
        command: Sequence[str],
        first_line: bytes,
        wake: int,
        on_line: Callable[[str], None],
        name: str,
        clock: Clock,
    ) -> None:
        """Start the process.

        Args:
            command: Command line; visible to all users of the machine.
            first_line: First line of its standard input.
            wake: A file descriptor; `wait` returns when it becomes readable.
            on_line: Receives each line of its standard output.
            name: Name of the service, under which standard error is logged.
            clock: Source of timestamps for log lines.

        Raises:
            OSError: The process could not be started.
        """
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._unsent = first_line
        self._clock = clock
        self._logger = f"connect_py.service.{name}"
        self._wake = wake
        self._selector = selectors.DefaultSelector()
        self._selector.register(wake, selectors.EVENT_READ)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin: IO[bytes] | None = self._process.stdin
        self._outputs = {
            self._process.stdout: _Lines(on_line),
            self._process.stderr: _Lines(self._log),
        }
        for pipe in (self._process.stdin, *self._outputs):
            os.set_blocking(pipe.fileno(), False)
        self._selector.register(self._process.stdin, selectors.EVENT_WRITE)
        for output in self._outputs:
            self._selector.register(output, selectors.EVENT_READ)
        self._end = -1
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # a kernel before 5.3, or a sandbox
                self._end = os.pidfd_open(self._process.pid)
                self._selector.register(self._end, selectors.EVENT_READ)

    @property
    def pid(self) -> int:
        """ID of the process."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Exit status, negative for a signal; valid after `finish`."""
        return self._process.returncode

    def wait(self, timeout: float) -> bool:
        """Wait for an event and read the output. Return True if the process has written any."""
        if self._end < 0:
            timeout = min(timeout, POLL_SECONDS)
        wrote = False
        for key, _ in self._selector.select(max(0.0, timeout)):
            if key.fileobj == self._wake:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, READ_BYTES)
            elif key.fileobj is self._stdin:
                self._feed()
            elif key.fileobj != self._end:
                wrote = self._read(key.fileobj) or wrote
        return wrote

    def exited(self) -> bool:
        """Return True if the process has exited. Its ID is not reused before `finish`."""
        if self._process.returncode is None and hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return self._process.poll() is not None

    def close_stdin(self) -> None:
        """Ask the process to exit."""
        if self._stdin is not None:
            if self._stdin in self._selector.get_map():
                self._selector.unregister(self._stdin)
            self._stdin.close()
            self._stdin = None

    def kill(self) -> None:
        """Kill the process and everything that it started. `exited` reports the exit."""
        # macOS raises PermissionError for a zombie
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def finish(self) -> None:
        """Read the remaining output, kill the rest of the group, and close everything."""
        for output in list(self._outputs):
            while output in self._outputs and self._read(output):
                pass
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLED_SECONDS)
        self.close_stdin()
        for output, lines in self._outputs.items():
            lines.end()
            output.close()
        self._selector.close()
        if self._end >= 0:
            os.close(self._end)

    def _feed(self) -> None:
        assert self._stdin is not None
        try:
            self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except OSError:  # it does not read its input; its exit explains why
            self._unsent = b""
        if not self._unsent:
            self._selector.unregister(self._stdin)

    def _read(self, output: Any) -> bool:
        """Return True if any output was read."""
        try:
            data = os.read(output.fileno(), READ_BYTES)
        except BlockingIOError:
            return False
        if data:
            self._outputs[output].feed(data)
            return True
        self._outputs.pop(output).end()
        self._selector.unregister(output)
        output.close()
        return False

    def _log(self, output: str) -> None:
        if line := output.rstrip():
            log_line(self._logger, line, self._clock.time_ms() / 1000).emit()


def log_line(logger: str, text: str, created: float) -> LogLine:
    """Convert a line of standard error to a log record: a JSON object as in the contract, or plain
    text.
    """
    fields: Any = None
    if text.startswith("{"):
        with contextlib.suppress(ValueError):
            fields = json.loads(text)
    level, context = logging.INFO, NOTHING
    if isinstance(fields, dict) and isinstance(fields.get("message"), str):
        text = fields["message"]
        logger = str(fields.get("logger") or logger)
        level_name = str(fields.get("level", "INFO")).upper()
        level = LEVELS.get(level_name) or logging.getLevelNamesMapping().get(
            level_name, logging.INFO
        )
        if connector := fields.get("connector"):
            context = LogContext(str(connector), scope="service")
    return LogLine(logger, level, text, created, 0, threading.current_thread().name, context)


class _Lines:
    """Splits output into lines."""

    def __init__(self, take: Callable[[str], None]) -> None:
        self._take = take
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Pass on complete lines."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))
        if len(self._rest) > LINE_BYTES:
            self.end()

    def end(self) -> None:
        """Pass on an incomplete last line."""
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest.decode(errors="replace"))

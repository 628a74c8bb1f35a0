"""`ChildProcess`: a program that runs as a child and does not outlive this process.

On Linux, the kernel kills the child (PR_SET_PDEATHSIG) when the *thread* that forked it ends.
Therefore, each child has a dedicated thread, which forks it and ends when it exits.
`child_launcher` requests the signal and then executes the program, because running Python code
between fork and exec is not safe in a multithreaded process. On other systems, a child that reads
its standard input can detect that this process has exited.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

from connect_py.process import child_launcher

_KILL_SECONDS: Final = 10.0


class ChildProcess:
    """One running program. Implements `RunningProcess`; all methods are thread-safe."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log_path: Path | None,
        *,
        detached: bool = False,
        environment: Mapping[str, str] | None = None,
        output_path: Path | None = None,
        captured: bool = False,
        connection: Connection[Any, Any] | None = None,
    ) -> None:
        """Start the program in its own session, which protects it from Ctrl-C in the terminal.

        Args:
            command: Absolute path of the executable, followed by its arguments.
            log_path: File to which standard output and standard error are appended. If it is None,
                the child inherits both from this process.
            detached: True if the child may outlive this process, as a daemon with a PID file does.
                Otherwise, the rest of its process group is killed when it exits.
            environment: Environment variables in addition to the current ones.
            output_path: New file that receives only standard output.
            captured: True to write standard output and standard error to the pipe `output`, which
                the caller reads.
            connection: Pipe that the child inherits. `command` must contain its file descriptor.

        Raises:
            OSError: The program could not be started.
        """
        launcher = (
            []
            if detached
            else [sys.executable, "-I", "-S", child_launcher.__file__, str(os.getpid())]
        )
        self._command = [*launcher, *map(str, command)]
        self._log_path = log_path
        self._output_path = output_path
        self._detached = detached
        self._environment = {**os.environ, **(environment or {})}
        self._inherited = () if connection is None else (connection.fileno(),)
        self.output: Connection[Any, Any] | None = None
        self._errors: Connection[Any, Any] | None = None
        if captured:
            self.output, self._errors = Pipe(duplex=False)
        self._exit, self._running = Pipe(duplex=False)  # `_running` is closed when the child exits
        self._lock = threading.Lock()  # held while the process ID must remain valid
        self._started = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"child-{Path(command[0]).name}", daemon=True
        )
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        with self._running:
            try:
                self._process = self._start()
            except OSError as error:
                self._error = error
                return
            finally:
                self._started.set()
            with self._process:
                self._wait_for_exit(self._process)

    def _start(self) -> subprocess.Popen[bytes]:
        with ExitStack() as files:
            errors: Any = None
            if self._errors is not None:
                errors = files.enter_context(self._errors)
            elif self._log_path is not None:
                errors = files.enter_context(self._log_path.open("ab"))
            output = errors
            if self._output_path is not None:
                output = files.enter_context(self._output_path.open("xb"))
            return subprocess.Popen(
                self._command,
                # the pipe remains open as long as this process is running
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE,
                stdout=output,
                stderr=errors,
                env=self._environment,
                start_new_session=True,
                pass_fds=self._inherited,
            )

    def _wait_for_exit(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the exit, then kill the rest of the process group while its ID is still valid.

        The child is reaped only after that.
        """
        if self._detached or not hasattr(os, "waitid"):  # on macOS, `waitid` requires Python 3.13
            process.wait()
        else:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            if not self._detached:
                # macOS raises PermissionError for a process that has exited
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    @property
    def pid(self) -> int:
        """ID of the process."""
        assert self._process is not None  # the constructor has waited for the start
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Exit status (negative after a signal), or None while the process is running."""
        if not self.wait(0):
            return None
        assert self._process is not None
        return self._process.returncode

    @property
    def sentinel(self) -> int:
        """A file descriptor that becomes readable when the process exits."""
        return self._exit.fileno()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the process to exit. Return False on timeout; None waits indefinitely."""
        return bool(wait([self._exit], timeout_seconds))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal. Does nothing if the process has exited."""
        assert self._process is not None
        with self._lock:
            if self._process.returncode is None:
                os.kill(self._process.pid, number)

    def send_kill(self) -> None:
        """Send SIGKILL without waiting. Does nothing if the process has exited."""
        self.signal(signal.SIGKILL)

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, then kill the process if it does not exit within the grace period."""
        self.signal(signal.SIGTERM)
        if not self.wait(grace_seconds):
            self.kill()

    def kill(self) -> None:
        """Kill the process and wait for it to exit.

        Raises:
            TimeoutError: The process did not exit, possibly because of an uninterruptible disk
                wait.
        """
        self.send_kill()
        if not self.wait(_KILL_SECONDS):
            raise TimeoutError(
                f"process {self.pid} did not exit within {_KILL_SECONDS:.0f} s after SIGKILL"
            )
        self._thread.join(_KILL_SECONDS)

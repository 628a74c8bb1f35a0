"""A program that belongs to this process, mostly a JVM: it ends when we ask it to, and when we die.

Linux kills the child for us (PR_SET_PDEATHSIG). The kernel means the *thread* that forked when it
says parent, so each child gets a thread of its own here that forks, waits for the exit and lives
exactly as long as the child does. `child_launcher` asks for the signal and then becomes the child,
because running Python between fork and exec is not safe in a process with threads.
Where the kernel has no such call, a child that reads its standard input notices that it ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from connect_py.process import child_launcher

_KILL_SECONDS = 10.0


class ChildProcess:
    """One running command. Methods may be called from any thread."""

    def __init__(
        self,
        command: Sequence[str | Path],
        log_path: Path | None,
        *,
        detached: bool = False,
        environment: Mapping[str, str] | None = None,
        output_path: Path | None = None,
    ) -> None:
        """Start the command in a session of its own, so that Ctrl-C in a terminal does not reach
        it.

        Args:
            command: An absolute path of an executable, then its arguments.
            log_path: Output and errors are appended here. None: errors go where ours go.
            detached: The child outlives us: for daemons with a pid file.
            environment: Variables on top of ours.
            output_path: A new file for its output alone.

        Raises:
            OSError: The command could not be started.
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
        self._started = threading.Event()
        self._exited = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._error: OSError | None = None
        self._keeper = threading.Thread(
            target=self._keep, name=f"child-{Path(command[0]).name}", daemon=True
        )
        self._keeper.start()
        self._started.wait()
        if self._error is not None:
            raise self._error

    def _keep(self) -> None:
        try:
            log = nullcontext() if self._log_path is None else self._log_path.open("ab")
            own = nullcontext() if self._output_path is None else self._output_path.open("xb")
            with log as errors, own as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL
                    if self._detached
                    else subprocess.PIPE,  # open as long as we live
                    stdout=output or errors,
                    stderr=errors,
                    env=self._environment,
                    start_new_session=True,
                )
        except OSError as error:
            self._error = error
            return
        finally:
            self._started.set()
        with self._process:
            self._process.wait()
        self._exited.set()

    @property
    def pid(self) -> int:
        """The process id of the command itself (the launcher becomes it)."""
        assert self._process is not None  # the constructor waited for it
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if not self._exited.is_set():
            return None
        assert self._process is not None
        return self._process.returncode

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the exit; False if it still runs at the deadline. None: without one."""
        return self._exited.wait(timeout_seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        assert self._process is not None
        self._process.send_signal(number)  # knows whether the id is still ours

    def stop(self, grace_seconds: float) -> None:
        """Ask it to end, wait, and end it for certain after the grace."""
        self.signal(signal.SIGTERM)
        if not self.wait(grace_seconds):
            self.kill()

    def kill(self) -> None:
        """End it now and wait until the kernel has taken it away.

        Raises:
            TimeoutError: It could not be ended, which only an uninterruptible disk wait explains.
        """
        self.signal(signal.SIGKILL)
        if not self.wait(_KILL_SECONDS):
            raise TimeoutError(
                f"process {self.pid} did not end {_KILL_SECONDS:.0f} s after SIGKILL"
            )
        self._keeper.join(_KILL_SECONDS)

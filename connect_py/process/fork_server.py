"""`ForkServer`: starts children quickly by forking a process with preloaded modules."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from types import ModuleType
from typing import Any, Final

from connect_py.process.child_runtime import run_child

PRELOAD: Final = (
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "msgspec",
    "confluent_kafka",
    "confluent_kafka.admin",
    # imported by pyarrow when it first infers a type
    "dateutil.relativedelta",
    "connect_py.columns.arrow",
    "connect_py.task.task_process",
    "connect_py.worker.connector_process",
)
_starting = threading.Lock()


def _kill_children() -> None:
    """Kill child processes on exit before Python joins them, because they ignore SIGTERM."""
    for child in multiprocessing.active_children():
        child.kill()


util.Finalize(None, _kill_children, exitpriority=10)


class ForkServer:
    """Starts children that share the memory of the preloaded modules.

    All instances share one server process. It preloads the modules that are passed to whichever
    instance is used first. Children import other modules as needed. The server process creates no
    Kafka clients.
    """

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """Create the server without starting it. `preload` lists additional modules to preload."""
        self._context = multiprocessing.get_context("forkserver")
        self._preload = [*PRELOAD, *preload]

    def start(self) -> None:
        """Start the server process, which preloads modules in the background."""
        with _starting:
            self._context.set_forkserver_preload(self._preload)
            forkserver.ensure_running()

    def launch(
        self, name: str, main: str, argument: object, connection: Connection[Any, Any]
    ) -> ForkedProcess:
        """Start a child that runs `main(channel, argument)`.

        `name` is the process name. `channel` wraps `connection`, the child's end of a pipe.
        """
        process = self._context.Process(
            target=run_child,
            args=(main, dict(os.environ), connection, argument),
            name=name,
            daemon=True,
        )
        with _starting, _hidden_main():
            self._context.set_forkserver_preload(self._preload)
            process.start()
        return ForkedProcess(process)


class ForkedProcess:
    """Implements `RunningProcess` for a child of the fork server."""

    output: Final = None

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        assert self._process.pid is not None  # the process has been started
        return self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.exitcode

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def send_kill(self) -> None:
        self._process.kill()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        self._process.join(timeout_seconds)
        return self._process.exitcode is not None


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Prevent children from importing the worker's main module, which includes the web server."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main

"""`connect-py demo`: a run until its end, or until a signal."""

from __future__ import annotations

import signal
import tarfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from connect_py.api.errors import ConnectError
from connect_py.demo.demo import Demo
from connect_py.demo.tour import take_tour
from connect_py.embedded.broker import BrokerError
from connect_py.embedded.ivy import IvyError
from connect_py.embedded.jar_lock import JarLockError
from connect_py.embedded.java_runtime import JavaNotFoundError
from connect_py.embedded.postgres import PostgresError


def main(directory: Path, seconds: float | None, *, tour: bool) -> int:
    """Run the demonstration; the exit status is 1 if the tables do not equal those of
    PostgreSQL."""
    console = Console()
    demo = Demo(directory.resolve(), seconds, console)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: demo.interrupted.set())
    try:
        return 0 if demo.run(take_tour if tour else None) else 1
    except (
        ConnectError,
        PostgresError,
        BrokerError,
        JavaNotFoundError,
        JarLockError,
        IvyError,
        tarfile.TarError,
    ) as error:
        if demo.interrupted.is_set():  # Ctrl-C also reaches a command that runs
            console.print("Stopped before the end.")
            return 1
        console.print("[bold red]demo failed:[/]", escape(str(error)), highlight=False)
        return 1

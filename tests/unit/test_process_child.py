"""The life of a child process: start, liveness timeout, exit, and kill."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil
import pytest

from connect_py.clock import SystemClock
from connect_py.futures import done
from connect_py.process.channel import ChannelClosedError
from connect_py.process.child import Child
from connect_py.process.child_process import ChildProcess
from connect_py.process.child_runtime import EXIT_LEASE_ENDED, ExtendLease

SECONDS = 30.0
PROLOGUE = """
import os, subprocess, sys, time
from multiprocessing.connection import Connection
from connect_py.process.channel import Channel
channel = Channel(Connection(int(sys.argv[1])))
"""


def child_of(
    program: str, liveness_seconds: float | None = None, **callbacks: Callable[[Any], None]
) -> Child:
    """Return a child that runs a Python program with a channel."""

    def launch(connection: Connection[Any, Any]) -> ChildProcess:
        command = [sys.executable, "-c", PROLOGUE + program, str(connection.fileno())]
        return ChildProcess(command, None, captured=True, connection=connection)

    return Child("test", launch, SystemClock(), liveness_seconds, **callbacks)


def ignore(_message: Any) -> None:
    return


def test_messages_before_the_start_and_before_the_exit_arrive() -> None:
    received: list[Any] = []
    output: list[str] = []
    child = child_of(
        "print('started')\n"
        "channel.receive(lambda message: channel.notify(message.upper()))\n"
        "sys.exit(3)",
        on_output=output.append,
    )
    child.channel.notify("hello")  # the process is not running yet
    child.run(received.append)
    child.close(ChannelClosedError("the process has ended"))
    assert received == ["HELLO"]
    assert output == ["started"]
    assert child.status == 3
    assert child.outcome == "ended unexpectedly: exit status 3"


def test_calls_of_a_child_are_answered() -> None:
    child = child_of(
        "channel.start_reading(lambda _: None)\n"
        "assert channel.call(20).result(20) == 21\n"
        "os._exit(0)"
    )
    child.run(lambda number: done(number + 1))
    child.close(ChannelClosedError("the process has ended"))
    assert child.status == 0


def test_silent_process_is_killed_and_its_calls_fail_with_the_reason() -> None:
    child = child_of("time.sleep(600)", liveness_seconds=0.3)
    call = child.channel.call("hello")
    child.run(ignore)
    child.close(ChannelClosedError(f"the process {child.outcome}"))
    assert child.killed
    with pytest.raises(ChannelClosedError, match="killed after 0 s without a heartbeat"):
        call.result(SECONDS)


def test_process_that_does_not_exit_after_the_end_of_its_channel_is_killed() -> None:
    child = child_of("channel.close(); time.sleep(600)")
    child.expect_exit(0.3)
    child.run(ignore)
    child.close(ChannelClosedError("the process has ended"))
    assert child.outcome == "did not exit in time and was killed"


def test_process_that_was_killed_before_its_start_is_not_started() -> None:
    child = child_of("")
    child.kill()
    child.run(ignore)
    child.close(ChannelClosedError("the process has ended"))
    assert child.pid is None


def test_kill_by_another_thread_ends_the_process_and_its_children() -> None:
    child = child_of(
        "grandchild = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "channel.notify(grandchild.pid)\n"
        "time.sleep(600)"
    )
    grandchildren: list[psutil.Process] = []

    def handle(pid: int) -> None:
        grandchildren.append(psutil.Process(pid))
        threading.Thread(target=child.kill).start()

    child.run(handle)
    child.close(ChannelClosedError("the process has ended"))
    assert child.outcome == "was killed"
    _, running = psutil.wait_procs(grandchildren, timeout=SECONDS)
    assert not running


@pytest.mark.parametrize(
    ("leases", "status"),
    [
        ((0.0, None), 7),  # extended while the process was starting
        ((None, 0.0), EXIT_LEASE_ENDED),
    ],
)
def test_last_lease_that_was_sent_before_the_start_counts(
    leases: tuple[float | None, ...], status: int
) -> None:
    child = child_of(
        "from connect_py.process.child_runtime import serve_worker\n"
        "serve_worker(channel, lambda message: None, lambda: None)\n"
        "time.sleep(1.0)\n"
        "os._exit(7)"
    )
    for until in leases:
        child.channel.notify(ExtendLease(until))
    child.run(ignore)
    child.close(ChannelClosedError("the process has ended"))
    assert child.status == status

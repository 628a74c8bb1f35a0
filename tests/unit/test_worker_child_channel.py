"""The pipe to a child that does not read, and to one that is gone."""

from __future__ import annotations

import threading
from multiprocessing import Pipe

import pytest

from connect_py.worker.child_channel import ChildChannel

SECONDS = 30.0
LARGE = "x" * 1_000_000  # more than any pipe holds


def writer_ends(name: str) -> bool:
    thread = next((t for t in threading.enumerate() if t.name == name), None)
    if thread is not None:
        thread.join(SECONDS)
    return thread is None or not thread.is_alive()


def test_sending_to_a_busy_child_returns_at_once_without_loss() -> None:
    ours, theirs = Pipe()
    with theirs:
        channel = ChildChannel(ours, "pipe-of-a-sleeper")
        for number in range(5):
            channel.send((number, LARGE))  # would wait here, and with it the worker's hellos
        channel.close()
        received = []
        for _ in range(5):
            assert theirs.poll(SECONDS)
            received.append(theirs.recv())
        assert received == [(number, LARGE) for number in range(5)]
        assert theirs.poll(SECONDS)
        with pytest.raises(EOFError):
            theirs.recv()
    assert writer_ends("pipe-of-a-sleeper")


def test_messages_to_a_dead_child_process_are_dropped() -> None:
    ours, theirs = Pipe()
    channel = ChildChannel(ours, "pipe-of-the-dead")
    for _ in range(3):
        channel.send(LARGE)
    theirs.close()  # in the middle of a message
    channel.send("more")
    channel.close()
    assert writer_ends("pipe-of-the-dead")
    assert ours.closed

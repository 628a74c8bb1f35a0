"""Calls, replies, and notifications of a channel, and its end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from multiprocessing import Pipe
from typing import Any

import pytest

from connect_py.api.errors import ConfigError, ConnectError, RetriableError
from connect_py.futures import done, failed
from connect_py.process.channel import Channel, ChannelClosedError, Handler

SECONDS = 30.0
LARGE = "x" * 1_000_000  # larger than the buffer of any pipe


class PluginError(ConnectError):
    """An error whose class the other process cannot import."""


def ignore(_message: Any) -> None:
    return


@contextmanager
def channels(
    handle: Handler, *, error_modules: tuple[str, ...] = ("connect_py.", "builtins")
) -> Iterator[tuple[Channel, Channel]]:
    """Two ends of a connection. The second processes messages with `handle`."""
    ours, theirs = Pipe()
    caller = Channel(ours, name="caller", buffered=True)
    callee = Channel(theirs, name="callee", error_modules=error_modules)
    caller.start_reading(ignore)
    callee.start_reading(handle)
    yield caller, callee
    callee.close()
    caller.close()


def writer_ends(name: str) -> bool:
    thread = next((t for t in threading.enumerate() if t.name == name), None)
    if thread is not None:
        thread.join(SECONDS)
    return thread is None or not thread.is_alive()


def test_each_call_gets_its_reply_in_any_order() -> None:
    slow: Future[str] = Future()

    def handle(request: Any) -> Future[str]:
        return slow if request == "slow" else done(request.upper())

    with channels(handle) as (caller, _):
        late = caller.call("slow")
        assert caller.call("fast").result(SECONDS) == "FAST"
        assert not late.done()
        slow.set_result("late")
        assert late.result(SECONDS) == "late"


def test_errors_of_a_call_are_raised_by_its_caller_with_their_cause() -> None:
    def handle(request: Any) -> Future[Any]:
        if request == "raise":
            raise RetriableError("try again") from ValueError("busy")
        return failed(request)

    with channels(handle) as (caller, _):
        error = caller.call("raise").exception(SECONDS)
        assert isinstance(error, RetriableError)
        assert str(error.__cause__) == "busy"
        config_error = caller.call(ConfigError("key", "is missing")).exception(SECONDS)
        assert isinstance(config_error, ConfigError)
        assert config_error.key == "key"
        assert caller.call("next").exception(SECONDS) is not None  # `failed` got no error


def test_error_that_the_caller_cannot_import_becomes_a_connect_error() -> None:
    def handle(_request: Any) -> Future[Any]:
        return failed(PluginError("refused"))

    with channels(handle) as (caller, _):
        error = caller.call("x").exception(SECONDS)
        assert type(error) is ConnectError
        assert str(error) == "PluginError: refused"
    with channels(handle, error_modules=(__name__,)) as (caller, _):
        assert type(caller.call("x").exception(SECONDS)) is PluginError


def test_result_that_cannot_be_pickled_is_an_error_of_the_call() -> None:
    with channels(lambda _request: done(threading.Lock())) as (caller, _):
        assert "invalid result" in str(caller.call("x").exception(SECONDS))


def test_failed_notification_does_not_end_the_channel(caplog: pytest.LogCaptureFixture) -> None:
    def handle(message: Any) -> Future[Any]:
        return done(1 / message)

    with channels(handle) as (caller, _):
        caller.notify(0)
        assert caller.call(2).result(SECONDS) == 0.5
    assert "failed to process int" in caplog.text


def test_calls_in_progress_fail_when_the_channel_ends() -> None:
    never: Future[Any] = Future()
    with channels(lambda _request: never) as (caller, callee):
        call = caller.call("x")
        callee.close()
        with pytest.raises(ChannelClosedError):
            call.result(SECONDS)
        with pytest.raises(ChannelClosedError):
            caller.call("y").result(SECONDS)
        assert caller.closed


def test_sending_to_a_busy_child_returns_immediately_without_loss() -> None:
    ours, theirs = Pipe()
    channel = Channel(ours, name="busy", buffered=True)
    for number in range(5):
        channel.notify((number, LARGE))  # would wait here, and with it the worker's heartbeats
    channel.close()
    received: list[int] = []
    receiver = Channel(theirs)
    while receiver.receive(lambda message: received.append(message[0])):
        pass
    receiver.close()
    assert received == list(range(5))
    assert writer_ends("busy-writer")


def test_messages_to_an_exited_process_are_dropped() -> None:
    ours, theirs = Pipe()
    channel = Channel(ours, name="exited", buffered=True)
    for _ in range(3):
        channel.notify(LARGE)
    theirs.close()  # in the middle of a message
    channel.notify("more")
    channel.close()
    assert writer_ends("exited-writer")
    assert ours.closed

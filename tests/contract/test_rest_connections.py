"""Clients that hold connections and send nothing, or little: they are ended, and others are served
meanwhile."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from fake_herder import FakeHerder

from rest.app import create_app
from rest.http_connection import ConnectionLimits, OncePerMinute
from rest.server import Listener, RestServer, Site

LIMITS = ConnectionLimits(connections=20, head_seconds=1.0, idle_seconds=1.0)
REQUEST = b"GET /connectors HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    server = RestServer([(Site([Listener("127.0.0.1", 0)]), create_app(FakeHerder()))], LIMITS)
    server.start()
    try:
        yield "127.0.0.1", server.addresses[0].port
    finally:
        server.stop()


def connected(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    return stack.enter_context(socket.create_connection(address, timeout=10))


def ended_after(client: socket.socket, send: bytes = b"", every: float = 0.05) -> float:
    """Seconds until the server ends the connection, while pieces are sent."""
    start = time.monotonic()
    client.settimeout(every)
    while time.monotonic() - start < 10:
        try:
            if client.recv(4096) == b"":
                return time.monotonic() - start
        except TimeoutError:
            pass
        except OSError:
            return time.monotonic() - start
        try:
            client.sendall(send)
        except OSError:
            return time.monotonic() - start
    raise AssertionError("the server did not end the connection")


def test_client_is_served_while_others_exceed_the_connection_limit(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        for _ in range(60):
            connected(stack, address)
        client = connected(stack, address)
        client.sendall(REQUEST)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
    records = [record for record in caplog.records if record.name == "rest.http_connection"]
    assert [record.getMessage() for record in records] == [
        "client connections reached the limit of 20; closed since the last warning: 1"
    ]


def test_a_connection_without_a_request_is_ended(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        assert 0.8 < ended_after(connected(stack, address)) < 5


def test_a_head_that_trickles_gets_no_more_time(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        client = connected(stack, address)
        client.sendall(b"GET /connectors HTTP/1.1\r\nX-Slow: ")
        assert 0.8 < ended_after(client, b"x") < 5
        again = connected(stack, address)  # and none after an answer either
        again.sendall(REQUEST)
        assert again.recv(4096).startswith(b"HTTP/1.1 200 OK")
        again.sendall(b"GET /conn")
        assert 0.8 < ended_after(again, b"x") < 5


def test_a_body_that_does_not_come_is_not_waited_for(
    address: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    head = (
        b"POST /connectors HTTP/1.1\r\nHost: x\r\nContent-Type: "
        b"application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    with ExitStack() as stack:
        client = connected(stack, address)
        client.sendall(head + b"{")
        assert 0.8 < ended_after(client) < 5
        steady = connected(stack, address)
        steady.sendall(head)
        for _ in range(4):  # longer than the limit in all, with no pause that is longer
            time.sleep(0.4)
            steady.sendall(b" " * 250)
        # it was read: a body without JSON
        assert b"Cannot invoke" in steady.recv(4096) + steady.recv(4096)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_connection_between_two_requests_is_ended(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        client = connected(stack, address)
        client.sendall(REQUEST)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 OK")
        assert 0.8 < ended_after(client) < 5


def test_log_line_caused_by_clients_appears_once_per_minute() -> None:
    once = OncePerMinute("socket.accept() out")

    def passes(message: str, second: float) -> bool:
        record = logging.makeLogRecord({"msg": message, "created": 1000.0 + second})
        return bool(once.filter(record))

    assert [passes("socket.accept() out of system resource", s) for s in (0, 1, 59, 60, 61)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert passes("something else", 1)
    assert passes("something else", 1)

"""Spark Connect without a server: URLs, what must be installed, settings, secrets, and the hung-up line."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, Listener, Pipe
from pathlib import Path
from typing import Any

import pytest

from connect_py.api.errors import ConfigError
from connect_py.api.service import ServiceAddress
from connectors.iceberg.config import remote_url
from connectors.iceberg.config.remote_url import check_installed, remote_address
from connectors.iceberg.driver.connect_client import ConnectClient, RemoteSpark, RemoteStatement
from connectors.iceberg.driver.connect_program import _Running, masked, serve_one
from connectors.iceberg.driver.driver_protocol import Failed
from connectors.iceberg.errors import CatalogUnavailableError, TableUnsuitableError

URL = "sc://spark.example:15003/;token=a%2Fsecret%2Ftoken;use_ssl=true"
CATALOG = {
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.uri": "http://catalog",
    "spark.sql.catalog.lakes.uri": "http://another",
}


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sc://spark.example", "spark.example:15002"),
        (URL, "spark.example:15003"),
        ("sc://[::1]:7/", "[::1]:7"),
    ],
)
def test_address_of_a_server_has_no_parameter(url: str, address: str) -> None:
    assert remote_address(url) == address


@pytest.mark.parametrize(
    "url", ["http://x", "sc://", "sc://x:a", "sc://x/path", "sc://x/;token", "sc://x?a=b", "sc://me@x", "sc://x/;a=b#"]
)
def test_what_is_no_url_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.spark\.remote"):
        remote_address(url)


def test_worker_without_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_url, "_MODULES", ("grpc", "no_such_module"))
    with pytest.raises(ConfigError, match=r"pip install 'connect-py\[spark-connect\]'.*missing: no_such_module"):
        check_installed()


def test_secrets_of_url_and_settings_are_hidden_in_texts() -> None:
    asked = RemoteStatement("t", URL, {"spark.sql.catalog.lake.s3.secret-access-key": "0123456789"}, "")
    assert masked("a/secret/token and 0123456789 at x", asked) == "[hidden] and [hidden] at x"
    assert "0123456789" not in repr(asked)
    assert "token" not in repr(asked)


class _Session:
    """Settings of a server that knows some."""

    def __init__(self, known: dict[str, str]) -> None:
        self.conf = known


@pytest.mark.parametrize(
    ("known", "settings"),
    [
        ({}, CATALOG | {"spark.sql.x": "1"}),
        (
            {"spark.sql.catalog.lake": "theirs"},
            {
                "spark.sql.catalog.lake.cache-enabled": "false",
                "spark.sql.catalog.lakes.uri": "http://another",
                "spark.sql.x": "1",
            },
        ),
    ],
)
def test_catalog_known_to_the_server_keeps_settings_except_its_cache(
    known: dict[str, str], settings: dict[str, str]
) -> None:
    running = _Running(RemoteStatement("t", URL, CATALOG | {"spark.sql.x": "1"}, ""))
    running._session = _Session(known)
    assert dict(running._settings()) == settings


def test_session_is_closed_right_after_its_statement_and_never_else(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []

    class Session:
        """Garbage as PySpark's: it refers to itself, and closes itself when it is collected."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            closed.append(threading.current_thread())

    monkeypatch.setattr(_Running, "_execute", lambda running: setattr(running, "_session", Session()))
    ours, theirs = Pipe()
    ours.send(RemoteStatement("t", URL, {}, ""))
    gc.disable()
    try:
        serve_one(theirs)
    finally:
        gc.enable()
    assert ours.recv() is None
    assert closed == [threading.current_thread()]


# --- the driver's side


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[Listener]:
    with Listener(str(tmp_path / "s"), "AF_UNIX", authkey=b"secret") as made:
        yield made


def client_of(listener: Listener) -> ConnectClient:
    return ConnectClient(RemoteSpark(URL, CATALOG, ServiceAddress(str(listener.address), "secret", 1)))


def answering(listener: Listener, answer: Any, asked: list[RemoteStatement]) -> threading.Thread:
    def serve() -> None:
        with listener.accept() as connection:
            asked.append(connection.recv())
            connection.send(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_statement_carries_the_session_settings_and_its_own(listener: Listener) -> None:
    asked: list[RemoteStatement] = []
    thread = answering(listener, None, asked)
    client_of(listener).run("t", "MERGE", {"spark.sql.x": "1"})
    thread.join()
    assert asked == [RemoteStatement("t", URL, CATALOG | {"spark.sql.x": "1"}, "MERGE")]


def test_server_error_is_raised_in_the_caller_of_the_statement(listener: Listener) -> None:
    thread = answering(listener, Failed.of(TableUnsuitableError("t", "no such column")), [])
    with pytest.raises(TableUnsuitableError, match="no such column"):
        client_of(listener).run("t", "MERGE", {})
    thread.join()


def test_interrupted_statement_fails_and_its_process_sees_the_disconnect(listener: Listener) -> None:
    client, accepted = client_of(listener), []

    def serve() -> None:
        connection: Connection = listener.accept()
        with connection:
            connection.recv()
            time.sleep(0.2)  # the other thread waits for its answer
            client.interrupt()
            with pytest.raises((EOFError, OSError)):
                connection.recv()
            accepted.append(True)

    thread = threading.Thread(target=serve)
    thread.start()
    with pytest.raises(CatalogUnavailableError, match="t: the Spark Connect process is gone"):
        client.run("t", "MERGE", {})
    thread.join(10)
    assert accepted == [True]


def test_unreachable_statement_process_raises_a_retriable_error(tmp_path: Path) -> None:
    client = ConnectClient(RemoteSpark(URL, {}, ServiceAddress(str(tmp_path / "none"), "secret", 1)))
    with pytest.raises(CatalogUnavailableError):
        client.run("t", "MERGE", {})

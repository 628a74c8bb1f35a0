"""A session behind Spark Connect against a small server that speaks its protocol."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

from connect_py.api.errors import ConfigError
from connectors.iceberg.spark.connect_session import ConnectSession, RemotePlace
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    SparkDiedError,
    TableForbiddenError,
    TableUnsuitableError,
)
from connectors.iceberg.spark.session import SparkConfig, SparkDriver

ANALYSIS = ["org.apache.spark.sql.AnalysisException", "java.lang.Exception"]


class Server(base_pb2_grpc.SparkConnectServiceServicer):
    """Sessions with settings; statements are written down with the settings that hold for them."""

    def __init__(self) -> None:
        self.life = "1"
        self.settings: dict[str, dict[str, str]] = {}
        self.known: dict[str, str] = {}  # of every session
        self.ran: list[tuple[str, dict[str, str]]] = []
        self.released: list[str] = []
        self.metadata: list[dict[str, Any]] = []
        self.waits: threading.Event | None = None  # statements end when it is set
        self.on_release: Callable[[], object] = lambda: None
        self.fails: tuple[grpc.StatusCode, str, list[str]] | None = None

    def Config(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's name
        self._check(request, context)
        mine = self.settings.setdefault(request.session_id, dict(self.known))
        answer = base_pb2.ConfigResponse(session_id=request.session_id, server_side_session_id=self.life)
        operation = request.operation
        mine.update({pair.key: pair.value for pair in operation.set.pairs})
        for key in operation.unset.keys:
            mine.pop(key, None)
        for key in operation.get_option.keys:
            answer.pairs.append(base_pb2.KeyValue(key=key, value=mine.get(key)))
        return answer

    def ExecutePlan(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802 - as above
        self._check(request, context)
        if self.fails is not None:
            code, message, classes = self.fails
            info = error_details_pb2.ErrorInfo(reason=classes[0], metadata={"classes": json.dumps(classes)})
            packed = any_pb2.Any()
            packed.Pack(info)
            status = status_pb2.Status(code=code.value[0], message=message, details=[packed])
            context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
            context.abort(code, message)
        if self.waits is not None:
            self.waits.wait(60)
        self.ran.append((request.plan.command.sql_command.input.sql.query, dict(self.settings[request.session_id])))
        yield base_pb2.ExecutePlanResponse(session_id=request.session_id, server_side_session_id=self.life)

    def ReleaseSession(self, request: Any, context: Any) -> Any:  # noqa: N802 - as above
        self.on_release()
        self.released.append(request.session_id)
        return base_pb2.ReleaseSessionResponse(session_id=request.session_id)

    def _check(self, request: Any, context: Any) -> None:
        self.metadata.append(dict(context.invocation_metadata()))
        observed = request.client_observed_server_side_session_id
        if observed and observed != self.life:
            context.abort(grpc.StatusCode.INTERNAL, "[INVALID_HANDLE.SESSION_CHANGED] it was started anew")


@pytest.fixture
def served() -> Iterator[tuple[Server, str]]:
    server, service = grpc.server(ThreadPoolExecutor(2)), Server()
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield service, f"sc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


def test_settings_of_a_statement_hold_for_it_alone(served: tuple[Server, str]) -> None:
    server, url = served
    session = ConnectSession(url + "/;user_id=ann;x-team=data", {"spark.sql.a": "1"})
    session.run("db.t", "MERGE 1", {"snapshot-property.ledger": "{}"})
    session.run("db.t", "MERGE 2", {})
    session.close()
    assert server.ran == [
        ("MERGE 1", {"spark.sql.a": "1", "snapshot-property.ledger": "{}"}),
        ("MERGE 2", {"spark.sql.a": "1"}),
    ]
    assert len(server.settings) == len(server.released) == 1
    assert server.metadata[0]["x-team"] == "data"


def test_catalog_that_the_server_knows_keeps_the_servers_settings(served: tuple[Server, str]) -> None:
    server, url = served
    server.known = {"spark.sql.catalog.lake": "x.Catalog"}
    session = ConnectSession(
        url, {"spark.sql.catalog.lake": "y", "spark.sql.catalog.lake.uri": "z", "spark.sql.catalog.lake2": "w"}
    )
    session.start()
    session.close()
    (settings,) = server.settings.values()
    assert settings == {
        "spark.sql.catalog.lake": "x.Catalog", "spark.sql.catalog.lake2": "w",
        "spark.sql.catalog.lake.cache-enabled": "false",
    }, "but for tables that it would keep, without the branches of the next MERGE"  # fmt: skip


class Gateway:
    """A JVM that nobody asks."""

    pid = 1

    def __init__(self) -> None:
        self.running = True

    def kill(self) -> None:
        self.running = False

    stop = kill


def remote_driver(url: str) -> tuple[SparkDriver, Gateway]:
    driver, gateway = SparkDriver(SparkConfig("lake", spark_properties={"spark.remote": url})), Gateway()
    driver._gateway = gateway  # type: ignore[assignment]
    return driver, gateway


def test_statement_that_takes_too_long_is_given_up_and_the_jvm_lives(served: tuple[Server, str]) -> None:
    server, url = served
    driver, gateway = remote_driver(url)
    server.waits = threading.Event()
    try:
        with (
            pytest.raises(CatalogUnavailableError, match=r"db\.t: .* did not end within 1 s") as raised,
            driver.deadline(1),
        ):
            driver.sql("MERGE 1", subject="db.t")
        assert not isinstance(raised.value, SparkDiedError)
        assert gateway.running
    finally:
        server.waits.set()
    driver.sql("MERGE 2", subject="db.t")
    assert server.ran[-1][0] == "MERGE 2", "in a new session"
    driver.stop()
    assert not gateway.running


def test_driver_that_was_stopped_makes_no_session_elsewhere(served: tuple[Server, str]) -> None:
    server, url = served
    driver, _ = remote_driver(url)
    driver.start_session()
    driver.stop()
    with pytest.raises(SparkDiedError):
        driver.start_session()
    assert len(server.settings) == len(server.released) == 1


def test_stop_ends_the_jvm_before_it_waits_for_a_server(served: tuple[Server, str]) -> None:
    server, url = served
    driver, gateway = remote_driver(url)
    driver.start_session()
    lived: list[bool] = []
    server.on_release = lambda: lived.append(gateway.running)
    driver.stop()
    assert lived == [False]


def test_server_that_was_started_anew_runs_nothing_without_the_settings(served: tuple[Server, str]) -> None:
    server, url = served
    session = ConnectSession(url, {"spark.sql.a": "1"})
    session.run("db.t", "MERGE 1", {})
    server.life, server.settings = "2", {}
    with pytest.raises(CatalogUnavailableError, match="SESSION_CHANGED"):
        session.run("db.t", "MERGE 2", {})
    session.run("db.t", "MERGE 2", {})
    session.close()
    assert server.ran[1:] == [("MERGE 2", {"spark.sql.a": "1"})]
    assert len(server.settings) == 1, "a session of its own, after the one that was given up"


@pytest.mark.parametrize(
    ("code", "classes", "error"),
    [
        (grpc.StatusCode.INTERNAL, ANALYSIS, TableUnsuitableError),
        (grpc.StatusCode.INTERNAL, ["org.apache.spark.SparkException"], CatalogUnavailableError),
        (grpc.StatusCode.UNAVAILABLE, ["x"], CatalogUnavailableError),
        (grpc.StatusCode.UNAUTHENTICATED, ["x"], TableForbiddenError),
    ],
)
def test_errors_are_told_by_what_can_be_done_and_end_the_session(
    served: tuple[Server, str], code: grpc.StatusCode, classes: list[str], error: type[Exception]
) -> None:
    server, url = served
    server.fails = (code, "\nno such thing\nat line 2", classes)
    session = ConnectSession(url, {"spark.sql.a": "1"})
    with pytest.raises(error, match=r"db\.t: Spark Connect at 127.* no such thing$"):
        session.run("db.t", "MERGE", {})
    assert len(server.released) == 1, "what runs in it is stopped"
    session.close()


def test_server_that_is_away_is_waited_for() -> None:
    session = ConnectSession("sc://127.0.0.1:1", {"spark.sql.a": "1"})
    with pytest.raises(CatalogUnavailableError, match="UNAVAILABLE"):
        session.start()
    session.close()


@pytest.mark.parametrize(
    ("url", "address", "secure", "token"),
    [
        ("sc://far", "far:15002", False, ""),
        ("sc://far:1/", "far:1", False, ""),
        ("sc://far:1/;token=a%3Db", "far:1", True, "a=b"),
        ("sc://far:1/;token=t;use_ssl=false", "far:1", False, "t"),
        ("sc://[::1]:7", "[::1]:7", False, ""),
    ],
)
def test_url_says_where_and_how(url: str, address: str, secure: bool, token: str) -> None:
    place = RemotePlace.of(url)
    assert (place.address, place.secure) == (address, secure)
    assert place.metadata == ((("authorization", f"Bearer {token}"),) if token else ())


@pytest.mark.parametrize(
    "url", ["far:15002", "http://far", "sc://", "sc://far:x", "sc://far/path", "sc://far/;token", "sc://far/;token=a#b"]
)
def test_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"iceberg\.spark\.remote"):
        RemotePlace.of(url)

"""`RestClient`: repeated requests, and error messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from fixtures.rest_certificates import Authority
from fixtures.storage_fake_clock import FakeClock

from connect_py.terminal.rest_client import (
    CONFLICT_SECONDS,
    RequestRefusedError,
    RestClient,
    WorkerAddress,
    WorkerUnreachableError,
)
from connect_py.tls.tls_context import server_context

REBALANCE = (
    409,
    {
        "error_code": 409,
        "message": "Cannot complete request momentarily due to no known leader URL",
    },
)


class ScriptedWorker(ThreadingHTTPServer):
    """Answers as listed, the last answer again and again."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, object]] = []
        self.requests: list[str] = []
        self.authorization: str | None = None


class _Handler(BaseHTTPRequestHandler):
    def _answer(self) -> None:
        worker = self.server
        assert isinstance(worker, ScriptedWorker)
        worker.requests.append(f"{self.command} {self.path}")
        worker.authorization = self.headers["authorization"]
        self.rfile.read(int(self.headers["content-length"] or 0))
        status, body = worker.answers.pop(0) if len(worker.answers) > 1 else worker.answers[0]
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 - names of the library

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        pass


@pytest.fixture
def scripted() -> Iterator[ScriptedWorker]:
    server = ScriptedWorker()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join(10)
    server.server_close()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def worker(scripted: ScriptedWorker, clock: FakeClock) -> Iterator[RestClient]:
    address = WorkerAddress(f"http://127.0.0.1:{scripted.server_port}/", "ada", "secret")
    with RestClient(address, clock) as client:
        yield client


def test_request_is_repeated_while_the_group_rebalances(
    scripted: ScriptedWorker, worker: RestClient
) -> None:
    scripted.answers = [REBALANCE, REBALANCE, (204, "")]
    worker.delete("a b/c")
    assert scripted.requests == ["DELETE /connectors/a%20b%2Fc"] * 3
    assert scripted.authorization == "Basic YWRhOnNlY3JldA=="


def test_a_lasting_rebalance_ends_the_request_with_its_text(
    scripted: ScriptedWorker, worker: RestClient, clock: FakeClock
) -> None:
    scripted.answers = [REBALANCE]
    start = clock.monotonic()
    with pytest.raises(RequestRefusedError, match="no known leader URL") as refused:
        worker.restart("a", only_failed=True)
    assert refused.value.status == 409
    assert CONFLICT_SECONDS <= clock.monotonic() - start < CONFLICT_SECONDS + 1
    assert set(scripted.requests) == {
        "POST /connectors/a/restart?includeTasks=true&onlyFailed=true"
    }


def test_an_existing_connector_is_refused_without_a_repetition(
    scripted: ScriptedWorker, worker: RestClient
) -> None:
    scripted.answers = [(409, {"error_code": 409, "message": "Connector a already exists"})]
    with pytest.raises(RequestRefusedError, match=r"^Connector a already exists$"):
        worker.create("a", {"connector.class": "X"}, "STOPPED")
    assert scripted.requests == ["POST /connectors"]


def test_wrong_password_and_foreign_servers_are_named_as_such(
    scripted: ScriptedWorker, worker: RestClient
) -> None:
    scripted.answers = [(401, "User cannot access the resource.")]
    with pytest.raises(RequestRefusedError, match="--user"):
        worker.names()
    scripted.answers = [(200, "<html>hello</html>")]
    with pytest.raises(WorkerUnreachableError, match="is not from a Connect worker: <html>hello"):
        worker.names()
    scripted.answers = [(404, "<html>not here</html>")]
    with pytest.raises(RequestRefusedError, match="/connectors returned 404: <html>not here"):
        worker.names()


def test_a_new_connector_may_have_no_status_yet(
    scripted: ScriptedWorker, worker: RestClient
) -> None:
    scripted.answers = [(404, {"error_code": 404, "message": "No status found for connector a"})]
    assert worker.status("a") is None


def test_worker_that_starts_says_so_and_is_not_healthy(
    scripted: ScriptedWorker, worker: RestClient
) -> None:
    scripted.answers = [(503, {"status": "starting", "message": "Worker is still starting up."})]
    assert worker.health() == (False, "Worker is still starting up.")


def test_worker_over_https_is_asked_with_an_own_certificate(
    scripted: ScriptedWorker, tmp_path: Path
) -> None:
    authority = Authority.make()
    trusted, client_pem, server_pem = (
        tmp_path / "ca.pem",
        tmp_path / "client.pem",
        tmp_path / "server.pem",
    )
    trusted.write_text(authority.certificate_pem)
    client_pem.write_text("".join(authority.issue("ada")))
    server_pem.write_text("".join(authority.issue("worker")))
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server_pem),
        "ssl.client.auth": "required",
    }
    context = server_context(
        {**stores, "ssl.truststore.type": "PEM", "ssl.truststore.location": str(trusted)}
    )
    scripted.socket = context.wrap_socket(scripted.socket, server_side=True)
    scripted.answers = [(200, ["a"])]
    url = f"https://127.0.0.1:{scripted.server_port}"
    with RestClient(WorkerAddress(url, authorities=trusted, certificate=client_pem)) as client:
        assert client.names() == ["a"]
    with (
        RestClient(WorkerAddress(url)) as stranger,
        pytest.raises(WorkerUnreachableError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        stranger.names()

"""`POST /connectors/{c}/operations/{operation}` as HTTP clients see it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fake_herder import FakeHerder

from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.terminal.rest_client import RequestRefusedError, RestClient, WorkerAddress
from rest.app import create_app
from rest.server import Listener, RestServer, Site


@pytest.fixture
def herder() -> FakeHerder:
    herder = FakeHerder()
    herder.configs["a/b"] = {}
    return herder


@pytest.fixture
def client(herder: FakeHerder) -> Iterator[httpx.Client]:
    server = RestServer([(Site([Listener("127.0.0.1", 0)]), create_app(herder))])
    server.start()
    with httpx.Client(
        base_url=f"http://127.0.0.1:{server.addresses[0].port}", timeout=20
    ) as client:
        yield client
    server.stop()


def asked(
    client: httpx.Client, body: str, name: str = "a%2Fb", operation: str = "echo"
) -> tuple[int, object]:
    answer = client.post(
        f"/connectors/{name}/operations/{operation}",
        content=body,
        headers={"Content-Type": "application/json"},
    )
    return answer.status_code, answer.json()


def test_arguments_reach_the_connector_and_come_back(client: httpx.Client) -> None:
    assert asked(client, "") == (200, {})
    assert asked(client, '{"table":"shop.orders","rows":5,"deep":{"x":[1,null,"\u00e9"]}}') == (
        200,
        {"table": "shop.orders", "rows": "5", "deep": {"x": ["1", None, "\u00e9"]}},
    )


@pytest.mark.parametrize(
    ("body", "name", "operation", "status", "message"),
    [
        ("{}", "zz", "echo", 404, "Connector zz not found"),
        ("{}", "a%2Fb", "dance", 404, "This connector has no operation dance"),
        ('{"amount":1}', "a%2Fb", "echo", 400, "amount: is not a number"),
        ("[]", "a%2Fb", "echo", 500, "Cannot deserialize value of type"),
        ("{", "a%2Fb", "echo", 500, "Unexpected end-of-input"),
    ],
)
def test_refused_operations_answer_with_a_status(
    client: httpx.Client, body: str, name: str, operation: str, status: int, message: str
) -> None:
    code, answer = asked(client, body, name, operation)
    assert isinstance(answer, dict)
    assert (code, answer["error_code"]) == (status, status)
    assert message in answer["message"]


def test_other_methods_of_operations_are_not_allowed(client: httpx.Client) -> None:
    assert client.get("/connectors/a/operations/echo").status_code == 405


@pytest.fixture
def worker(client: httpx.Client) -> Iterator[RestClient]:
    """The client of commands."""
    with RestClient(WorkerAddress(str(client.base_url))) as worker:
        yield worker


def ignore(_step: str) -> None:
    """Show no progress."""


def eventually(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(condition())


def test_fast_operation_with_progress_is_a_plain_answer(
    client: httpx.Client, worker: RestClient
) -> None:
    answer = client.post("/connectors/a/operations/echo?progress=true", json={"rows": 5})
    assert (answer.status_code, answer.headers["content-type"], answer.json()) == (
        200,
        "application/json",
        {"rows": "5"},
    )
    assert worker.operate("a/b", "echo", {"rows": 5}, ignore) == {"rows": "5"}


@pytest.mark.parametrize(
    ("name", "operation", "arguments", "kind", "message"),
    [
        ("zz", "echo", {}, NotFoundError, "Connector zz not found"),
        ("a/b", "dance", {}, NotFoundError, "no operation dance"),
        ("a/b", "echo", {"amount": 1}, RequestRefusedError, "amount: is not a number"),
    ],
)
def test_refusals_are_errors_of_the_command(
    worker: RestClient,
    name: str,
    operation: str,
    arguments: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind, match=message):
        worker.operate(name, operation, arguments, ignore)


def test_slow_operation_streams_its_steps_and_a_large_result(
    herder: FakeHerder, worker: RestClient
) -> None:
    steps: list[str] = []

    def end_after_two_steps() -> None:
        assert eventually(lambda: herder.running)
        running = herder.running[0]
        running.show("reading manifests")
        assert eventually(lambda: "reading manifests" in steps)
        running.show("comparing")
        assert eventually(lambda: "comparing" in steps)
        running.result.set_result({"rows": ["x" * 1000] * 1000})

    thread = threading.Thread(target=end_after_two_steps)
    thread.start()
    result = worker.operate("a", "slow", {}, steps.append)
    thread.join()
    assert result == {"rows": ["x" * 1000] * 1000}
    assert steps == sorted(steps, key=["", "reading manifests", "comparing"].index)
    assert herder.canceled == []


def test_slow_operation_that_fails_ends_with_the_error_entity(
    client: httpx.Client, herder: FakeHerder, worker: RestClient
) -> None:
    def fail(step: str) -> None:
        if not herder.running[-1].result.done():
            herder.running[-1].result.set_exception(ConnectError("the catalog does not answer"))

    with pytest.raises(RequestRefusedError, match="the catalog does not answer"):
        worker.operate("a", "slow", {}, fail)
    with client.stream("POST", "/connectors/a/operations/slow?progress=true", json={}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"progress": ""}
        fail("")
        *_, last = lines
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert json.loads(last) == {"error_code": 500, "message": "the catalog does not answer"}


def test_other_requests_are_answered_while_an_operation_runs(
    herder: FakeHerder, client: httpx.Client
) -> None:
    with client.stream("POST", "/connectors/a/operations/slow?progress=true", json={}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"progress": ""}
        with httpx.Client(base_url=client.base_url, timeout=5) as other:
            assert other.get("/connectors").json() == ["a", "a/b"]
        herder.running[0].result.set_result(None)
        *_, last = lines
    assert json.loads(last) == {"result": None}


def test_operation_of_a_client_that_disconnects_is_canceled(
    herder: FakeHerder, client: httpx.Client
) -> None:
    with client.stream("POST", "/connectors/a/operations/slow?progress=true", json={}) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines)) == {"progress": ""}
        assert herder.canceled == []
    assert eventually(lambda: herder.canceled == herder.running)


def test_worker_of_task_0_gets_the_request_if_it_can_be_reached(
    herder: FakeHerder, worker: RestClient
) -> None:
    other = FakeHerder()
    server = RestServer([(Site([Listener("127.0.0.1", 0)]), create_app(other))])
    server.start()
    address = f"127.0.0.1:{server.addresses[0].port}"
    assert worker.operate("a", "echo", {}, ignore, address) == {}
    assert (len(other.running), len(herder.running)) == (1, 0)
    server.stop()
    assert worker.operate("a", "echo", {}, ignore, address) == {}
    assert (len(other.running), len(herder.running)) == (1, 1)

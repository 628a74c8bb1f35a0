"""`POST /connectors/{c}/operations/{operation}` as HTTP clients see it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fake_herder import FakeHerder

from rest.app import create_app
from rest.server import Listener, RestServer, Site


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    herder = FakeHerder()
    herder.configs["a/b"] = {}
    server = RestServer([Site(create_app(herder), [Listener("127.0.0.1", 0)])])
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.addresses[0].port}", timeout=20) as client:
        yield client
    server.stop()


def asked(client: httpx.Client, body: str, name: str = "a%2Fb", operation: str = "echo") -> tuple[int, object]:
    answer = client.post(
        f"/connectors/{name}/operations/{operation}", content=body, headers={"Content-Type": "application/json"}
    )
    return answer.status_code, answer.json()


def test_arguments_reach_the_connector_and_come_back(client: httpx.Client) -> None:
    assert asked(client, "") == (200, {})
    assert asked(client, '{"table":"shop.orders","rows":5,"deep":{"x":[1,null,"\u00e9"]}}') == (
        200, {"table": "shop.orders", "rows": "5", "deep": {"x": ["1", None, "\u00e9"]}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("body", "name", "operation", "status", "message"),
    [
        ("{}", "zz", "echo", 404, "Connector zz not found"),
        ("{}", "a%2Fb", "dance", 404, "This connector has no operation dance"),
        ('{"amount":1}', "a%2Fb", "echo", 400, "amount: is no number"),
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

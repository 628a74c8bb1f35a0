"""Two workers over HTTP, the leader and another: which of them responds, and how responses
return.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from fake_herder import FakeHerder
from rest_serving import error, serving

from connect_py.api.errors import ConnectError
from connect_py.herder.request_signature import sign
from connect_py.storage.config_state import SessionKey
from rest.app import RestOptions, create_app
from rest.basic_auth import BasicAuth
from rest.leader_client import LeaderClient

CONFIG = {"connector.class": "DemoSink", "topics": "t"}
CONFLICT = (
    409,
    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
)
NO_LEADER = (
    409,
    "Cannot complete request momentarily due to no known leader URL, likely because a rebalance "
    "was underway.",
)
KEY = SessionKey("MDEyMzQ1Njc4OWFiY2RlZg==", "HmacSHA256", 1)


@pytest.fixture
def leader() -> FakeHerder:
    return FakeHerder()


@pytest.fixture
def leading(leader: FakeHerder) -> Iterator[httpx.Client]:
    with serving(create_app(leader)) as client:
        yield client


@pytest.fixture
def follower(leading: httpx.Client) -> FakeHerder:
    herder = FakeHerder()
    herder.leader_url = f"{leading.base_url}/"
    return herder


@pytest.fixture
def following(follower: FakeHerder) -> Iterator[httpx.Client]:
    with serving(create_app(follower)) as client:
        yield client


def test_follower_forwards_and_answers_with_its_own_location(following, leader) -> None:
    created = following.post("/connectors", json={"name": "b é/1", "config": CONFIG})
    assert created.status_code == 201
    assert created.headers["location"] == f"{following.base_url}/connectors/b%20%C3%A9/1"
    assert created.json()["name"] == "b é/1"
    assert "b é/1" in leader.configs
    replaced = following.put("/connectors/b%20%C3%A9%2F1/config", json=CONFIG)
    assert (replaced.status_code, "location" in replaced.headers) == (200, False)


def test_request_with_forward_false_is_not_forwarded(following) -> None:
    body = {"name": "b", "config": CONFIG}
    assert error(following.post("/connectors?forward=false", json=body)) == CONFLICT
    assert error(following.post("/connectors?forward=junk", json=body)) == CONFLICT


def test_request_without_a_known_leader_is_a_conflict(following, follower) -> None:
    follower.leader_url = ""
    assert error(following.post("/connectors", json={"name": "b", "config": CONFIG})) == NO_LEADER


def test_a_request_makes_two_hops_at_most(following, leading, leader, follower) -> None:
    leader.leader_url = str(following.base_url)  # each believes that the other one leads
    assert error(following.post("/connectors", json={"name": "b", "config": CONFIG})) == CONFLICT
    leader.leader_url = None
    follower.leader_url = str(leading.base_url)
    assert (
        following.post("/connectors?forward=true", json={"name": "b", "config": CONFIG}).status_code
        == 201
    )


def test_refusals_of_the_leader_are_relayed_word_by_word(following) -> None:
    assert error(following.post("/connectors", json={"name": "a", "config": CONFIG})) == (
        409,
        "Connector a already exists",
    )
    assert error(following.delete("/connectors/zz")) == (404, "Connector zz not found")


def test_parameters_and_answers_without_entity_are_passed_on(following, leader) -> None:
    planned = following.post("/connectors/a/restart?includeTasks=true")
    assert (planned.status_code, planned.json()["connector"]["state"]) == (202, "RESTARTING")
    deleted = following.delete("/connectors/a")
    assert (deleted.status_code, deleted.content, "content-type" in deleted.headers) == (
        204,
        b"",
        False,
    )
    assert "a" not in leader.configs


def test_follower_answers_errors_that_need_no_leader(following) -> None:
    """PATCH and DELETE with `forward=false` are conflicts, an unknown connector's restart is
    404."""
    assert error(following.patch("/connectors/zz/config?forward=false", json={})) == CONFLICT
    assert error(following.delete("/connectors/zz?forward=false")) == CONFLICT
    assert error(following.post("/connectors/zz/restart?forward=false")) == (
        404,
        "Unknown connector: zz",
    )
    assert error(following.put("/connectors/zz/stop?forward=false")) == (
        404,
        "Unknown connector zz",
    )
    assert error(following.post("/connectors", json={"name": "x", "config": {}})) == (
        400,
        "Connector config contains no connector type",
    )


def test_a_leader_that_is_gone_is_an_io_error(following, follower) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        follower.leader_url = f"http://127.0.0.1:{reserved.getsockname()[1]}"
        status, message = error(following.delete("/connectors/a"))
    assert status == 500
    assert message.startswith("IO Error trying to forward REST request: ")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            b"302 Found\r\nLocation: http://127.0.0.1:1/",
            "Unexpected status code when handling forwarded request: 302",
        ),
        (b"502 Bad Gateway", "IO Error trying to forward REST request: "),
    ],
)
def test_invalid_leader_answer_is_500_and_redirects_are_not_followed(
    following, follower, answer, expected
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        follower.leader_url = f"http://127.0.0.1:{server.getsockname()[1]}"
        received: list[bytes] = []

        def answer_once() -> None:
            connection, _ = server.accept()
            with connection:
                received.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 " + answer + b"\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=answer_once)
        thread.start()
        status, message = error(
            following.delete("/connectors/a", headers={"Authorization": "Basic eA==", "X-Y": "z"})
        )
        thread.join(10)
    assert status == 500
    assert message.startswith(expected)
    head = received[0].decode().lower()
    assert "delete /connectors/a?forward=true http/1.1" in head
    assert "authorization: basic ea==" in head
    assert "accept: application/json" in head
    assert "user-agent: kafka-connect" in head
    assert "x-y" not in head


def test_authorization_reaches_the_leader_and_its_refusal_comes_back(follower) -> None:
    auth = BasicAuth({"ann": "secret"})
    with serving(create_app(FakeHerder(), RestOptions(auth=auth))) as leading:
        follower.leader_url = str(leading.base_url)
        with serving(create_app(follower)) as following:
            refused = following.delete("/connectors/a")
            assert refused.status_code == 401
            assert following.delete("/connectors/a", auth=("ann", "secret")).status_code == 204


# ------------------------------------------------------------------ signed requests


def test_the_leader_takes_task_configs_that_are_signed(leading, leader) -> None:
    leader.session_keys.take(KEY)
    client = LeaderClient()
    client.put_task_configs(
        str(leading.base_url), "a", [{"task.class": "T", "x": "é"}], leader.session_keys.headers
    )
    client.fence_zombies(str(leading.base_url), "a", leader.session_keys.headers)
    client.request_stop(str(leading.base_url), "a", 7, "all is read", leader.session_keys.headers)
    assert leader.published == [
        ("a", [{"task.class": "T", "x": "é"}]),
        ("a", "fence"),
        ("a", (7, "all is read")),
    ]
    with pytest.raises(ConnectError, match="Connector zz not found"):
        client.put_task_configs(str(leading.base_url), "zz", [], leader.session_keys.headers)


def test_internal_requests_without_a_right_signature_are_refused(leading, leader) -> None:
    path, body = "/connectors/a/tasks", json.dumps([{"a": "b"}]).encode()

    def post(**headers: str) -> tuple[int, str]:
        return error(
            leading.post(
                path, content=body, headers={"Content-Type": "application/json", **headers}
            )
        )

    signed = sign(body, KEY.key, "HmacSHA256")
    assert post() == (400, "Internal request missing required signature")
    assert error(leading.put("/connectors/a/fence")) == (
        400,
        "Internal request missing required signature",
    )
    stop = {"start_number": 7, "reason": "x"}
    assert error(leading.put("/connectors/a/stop-request", json=stop)) == (
        400,
        "Internal request missing required signature",
    )
    assert error(
        leading.put("/connectors/a/stop-request", json={"start_number": "7", "reason": "x"})
    ) == (400, "A stop request must have a start_number and a reason")
    assert post(**signed) == (
        503,
        "This worker is still starting up and has not been able to read a session key from the "
        "config topic yet",
    )
    leader.session_keys.take(KEY)
    assert post(**sign(body + b" ", KEY.key, "HmacSHA256")) == (
        403,
        "Internal request contained invalid signature.",
    )
    status, message = post(**sign(body, KEY.key, "HmacSHA512"))
    assert status == 400
    assert message.startswith("This worker does not support the 'HmacSHA512' key signing algorithm")
    assert post(**{**signed, "X-Connect-Request-Signature-Algorithm": "Rot13"})[0] == 400
    assert post(**{**signed, "X-Connect-Authorization": "%%%"})[0] == 400
    assert leader.published == []


def test_the_key_before_a_rotation_counts_a_while_longer(leading, leader) -> None:
    leader.session_keys.take(KEY)
    old = leader.session_keys.headers(b"")
    leader.session_keys.take(SessionKey("ZmVkY2JhOTg3NjU0MzIxMA==", "HmacSHA256", 2))
    assert leading.put("/connectors/a/fence", headers=old).status_code == 204

"""The HTTP layer over a real socket, answered by a fake herder: what clients of Kafka Connect can
see of it."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing

import httpx
import pytest
from fake_herder import FakeHerder, failed
from rest_serving import error, serving

from connect_py.herder.herder import Stage
from rest.app import create_app
from rest.server import Listener, PortInUseError, RestServer, Site

J = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def serving_herder() -> FakeHerder:
    return FakeHerder()


@pytest.fixture
def herder(serving_herder: FakeHerder) -> FakeHerder:
    """Reset the herder for each test."""
    serving_herder.__init__()  # type: ignore[misc]  # the server holds a reference to this object
    return serving_herder


@pytest.fixture(scope="module")
def served(serving_herder: FakeHerder) -> Iterator[httpx.Client]:
    with serving(create_app(serving_herder)) as client:
        yield client


@pytest.fixture
def client(served: httpx.Client, herder: FakeHerder) -> httpx.Client:
    return served


def test_root_has_exactly_three_members_in_order(client: httpx.Client) -> None:
    response = client.get("/")
    assert list(response.json()) == ["version", "commit", "kafka_cluster_id"]
    assert response.headers["content-type"] == "application/json"


def test_health_distinguishes_ready_starting_and_stuck_workers(
    client: httpx.Client, herder: FakeHerder, monkeypatch
) -> None:
    assert client.get("/health").json() == {
        "status": "healthy",
        "message": "Worker has completed startup and is ready to handle requests.",
    }
    monkeypatch.setattr("rest.deadline.HEALTH_SECONDS", 0.05)
    herder.hang, herder.is_started = True, False
    starting = client.get("/health")
    assert (starting.status_code, starting.json()["status"]) == (503, "starting")
    assert starting.json()["message"] == (
        "Worker is still starting up. The worker is currently reading to the end of the config "
        "topic, which began at 2023-11-14T22:13:20.000Z."
    )
    herder.is_started = True
    stuck = client.get("/health")
    assert (stuck.status_code, stuck.json()["status"]) == (500, "unhealthy")


def test_a_request_past_its_deadline_names_the_stage(
    client: httpx.Client, herder: FakeHerder, monkeypatch
) -> None:
    monkeypatch.setattr("rest.deadline.REQUEST_SECONDS", 0.05)
    herder.hang = True
    assert error(client.get("/connectors/a")) == (
        500,
        "Request timed out. The worker is currently reading to the end of the config topic, "
        "which began at 2023-11-14T22:13:20.000Z.",
    )


def test_list_request_before_the_first_read_times_out_naming_stage(
    client: httpx.Client, herder: FakeHerder, monkeypatch
) -> None:
    monkeypatch.setattr("rest.deadline.REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(herder, "state_read", Future)
    for path in (
        "/connectors",
        "/connectors?expand=info",
        "/connectors/a/status",
        "/connectors/zz/status",
    ):
        assert error(client.get(path)) == (
            500,
            "Request timed out. The worker is currently reading to the end of the config topic, "
            "which began at 2023-11-14T22:13:20.000Z.",
        )


def test_a_failure_of_a_worker_that_stops_is_503(
    client: httpx.Client, herder: FakeHerder, monkeypatch
) -> None:
    given_up: Future[None] = Future()
    given_up.cancel()
    monkeypatch.setattr(herder, "plugin_config", lambda *_: given_up)
    monkeypatch.setattr(
        herder, "connector_info", lambda _: failed(RuntimeError("no threads any more"))
    )
    assert error(client.get("/connectors/a")) == (500, "no threads any more")
    monkeypatch.setattr(herder, "stopping", lambda: True)
    for path in ("/connectors/a", "/connector-plugins/DemoSink/config"):
        assert error(client.get(path)) == (503, "Worker is shutting down")
    assert client.get("/connectors").status_code == 200


def test_validation_timeout_names_its_own_stage_without_a_period(
    client: httpx.Client, herder: FakeHerder, monkeypatch
) -> None:
    monkeypatch.setattr("rest.deadline.REQUEST_SECONDS", 0.05)
    herder.validation_stage = Stage(
        "validating sink connector-specific properties for the connector", 0
    )
    config = {"connector.class": "DemoSink"}
    stage = (
        "The worker is currently validating sink connector-specific properties for the connector"
    )
    since = "which began at 1970-01-01T00:00:00.000Z"
    assert error(client.put("/connector-plugins/DemoSink/config/validate", json=config)) == (
        500,
        f"Request timed out. {stage}, {since}",
    )
    assert error(client.put("/connectors/new/config", json=config)) == (
        500,
        f"Request timed out. {stage}, {since}.",
    )


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "expected"),
    [
        ("GET", "/nope", {}, None, (404, "HTTP 404 Not Found")),
        ("GET", "/connectors/a/tasks/0", {}, None, (404, "HTTP 404 Not Found")),
        ("GET", "/connectors/a/tasks/x/status", {}, None, (404, "HTTP 404 Not Found")),
        ("GET", "/connectors/a/tasks/99999999999/status", {}, None, (404, "HTTP 404 Not Found")),
        ("GET", "/connectors/a/tasks/99/status", {}, None, (404, "No status found for task a-99")),
        ("GET", "/connectors/a/tasks/-1/status", {}, None, (404, "No status found for task a--1")),
        ("POST", "/connectors/a", J, b"{}", (405, "HTTP 405 Method Not Allowed")),
        ("DELETE", "/connectors", {}, None, (405, "HTTP 405 Method Not Allowed")),
        ("TRACE", "/connectors", {}, None, (405, "HTTP 405 Method Not Allowed")),
        (
            "POST",
            "/connectors",
            {"Content-Type": "application/x-www-form-urlencoded"},
            b"{}",
            (415, "HTTP 415 Unsupported Media Type"),
        ),
        (
            "PUT",
            "/connectors/a/pause",
            {"Content-Type": "application/x-www-form-urlencoded"},
            b"",
            (415, "HTTP 415 Unsupported Media Type"),
        ),
        ("PUT", "/connectors/a/config", {}, b"{}", (415, "HTTP 415 Unsupported Media Type")),
        (
            "PATCH",
            "/connectors/a/config",
            {"Content-Type": "application/merge-patch+json"},
            b"{}",
            (415, "HTTP 415 Unsupported Media Type"),
        ),
        ("GET", "/connectors/zz", {"Accept": "text/html"}, None, (406, "HTTP 406 Not Acceptable")),
        ("GET", "/connectors/zz", {}, None, (404, "Connector zz not found")),
        ("GET", "/connectors/zz/status", {}, None, (404, "No status found for connector zz")),
        ("PUT", "/connectors/zz/pause", {}, None, (404, "Unknown connector zz")),
        ("PUT", "/connectors/zz/stop", {}, None, (404, "Unknown connector zz")),
        ("POST", "/connectors/zz/restart", {}, None, (404, "Unknown connector: zz")),
        ("PUT", "/connectors/a/topics/reset", {}, None, (403, "Topic tracking reset is disabled.")),
        ("GET", "/connector-plugins/demosink/config", {}, None, (404, "Unknown plugin demosink.")),
        ("GET", "/connectors//status", {}, None, (400, "HTTP 400 Bad Request")),
        ("GET", "/connectors/%zz", {}, None, (400, "HTTP 400 Bad Request")),
    ],
)
def test_refused_requests_answer_with_the_error_format_of_connect(
    client, method, path, headers, body, expected
) -> None:
    assert error(client.request(method, path, headers=headers, content=body)) == expected


@pytest.mark.parametrize(
    ("body", "start"),
    [
        (b"{bad", "Unexpected character ('b' (code 98))"),
        (b"", "Cannot invoke"),
        (b"null", "Cannot invoke"),
        (b"[]", "Cannot deserialize value of type"),
        (b'"x"', "Cannot construct instance of"),
        (
            b'{"name":"b","config":{"a":{}}}',
            "Cannot deserialize value of type `java.lang.String` from Object value",
        ),
        (
            b'{"name":"b","config":{"a":[]}}',
            "Cannot deserialize value of type `java.lang.String` from Array value",
        ),
        (b'{"name":"b","config":{},"foo":1}', 'Unrecognized field "foo"'),
        (b'{"name":"b","config":{}} x', "Unrecognized token 'x'"),
        (b'{"name":"b","config":{}} {}', "Trailing token (of type START_OBJECT) found after value"),
        (b'{"name":"b","config":{}}}', "Unexpected close marker '}'"),
        (b'{"name":NaN}', "Non-standard token 'NaN'"),
        (b'{"name":tru}', "Unrecognized token 'tru'"),
        (b'{"name":01}', "Invalid numeric value: Leading zeroes not allowed"),
        (b'{"name":-}', "Unexpected character ('}' (code 125)) in numeric value"),
        (b'{"name":1.}', "Unexpected character ('}' (code 125)) in numeric value"),
        (b'{"name":"\\x"}', "Unrecognized character escape 'x' (code 120)"),
        (b"}", "Unexpected close marker '}'"),
        (
            b'{"config":1}',
            "Cannot deserialize value of type `java.util.LinkedHashMap<java.lang.String,"
            "java.lang.String>` from Integer value (token `JsonToken.VALUE_NUMBER_INT`)",
        ),
        (b'{"config":"x"}', "Cannot construct instance of `java.util.LinkedHashMap` (although"),
        (b'{"name":"\n"}', "Illegal unquoted character"),
        (b'{"name":"b"', "Unexpected end-of-input"),
        (b'{"name":"\xff"}', "Invalid UTF-8 start byte 0xff"),
        (b'{"name":"b","config":{},"initial_state":"bogus"}', "Cannot construct instance of"),
        (b'{"name":"b"}', "Cannot invoke"),
    ],
)
def test_malformed_body_is_500_with_the_message_of_java(client, body, start) -> None:
    status, message = error(client.post("/connectors", content=body, headers=J))
    assert status == 500
    assert message.startswith(start)


def test_numbers_and_booleans_in_a_config_become_their_literal_strings(
    client: httpx.Client,
) -> None:
    body = '{"name":"b","config":{"connector.class":"DemoSink","tasks.max":2,"r":1.50,"e":1e3,"f":true}} \n'  # noqa: E501 - one literal
    response = client.post("/connectors", content=body, headers=J)
    assert response.status_code == 201
    assert response.headers["location"] == f"{client.base_url}/connectors/b"
    assert response.json()["config"] == {
        "connector.class": "DemoSink",
        "tasks.max": "2",
        "r": "1.50",
        "e": "1e3",
        "f": "true",
        "name": "b",
    }
    assert (response.json()["tasks"], response.json()["type"]) == ([], "sink")


def test_names_are_trimmed_on_post_and_must_match_the_config(client: httpx.Client) -> None:
    config = {"connector.class": "DemoSink"}
    assert (
        client.post("/connectors", json={"name": "  b2 \t", "config": config}).json()["name"]
        == "b2"
    )
    assert error(client.post("/connectors", json={"config": {**config, "name": "b3"}})) == (
        400,
        "Connector name configuration (b3) doesn't match connector name in the URL ()",
    )
    assert error(client.put("/connectors/a/config", json={**config, "name": "z"})) == (
        400,
        "Connector name configuration (z) doesn't match connector name in the URL (a)",
    )
    assert (
        client.put("/connectors/a/config", json={**config, "name": None}).json()["config"]["name"]
        == "a"
    )


def test_config_put_creates_a_connector_and_then_replaces_it(client: httpx.Client) -> None:
    config = {"connector.class": "DemoSink"}
    created = client.put("/connectors/new/config", json=config)
    assert (created.status_code, "location" in created.headers) == (201, True)
    replaced = client.put("/connectors/new/config", json=config)
    assert (replaced.status_code, "location" in replaced.headers) == (200, False)


def test_connector_name_with_slash_percent_and_umlaut_can_be_addressed(
    client: httpx.Client,
) -> None:
    created = client.post(
        "/connectors", json={"name": "a/b %é", "config": {"connector.class": "DemoSink"}}
    )
    assert created.headers["location"].endswith("/connectors/a/b%20%25%C3%A9")
    assert client.get("/connectors/a%2Fb%20%25%C3%A9").json()["name"] == "a/b %é"


def test_trailing_slash_and_matrix_parameters_are_served_in_place(client: httpx.Client) -> None:
    assert client.get("/connectors/").json() == ["a"]
    assert client.get("/connectors/a;v=1/").json()["name"] == "a"
    assert client.get("/connectors/a/tasks/%2B00/status").json()["id"] == 0


def test_empty_response_has_no_content_type(client: httpx.Client) -> None:
    paused = client.put("/connectors/a/pause")
    assert (paused.status_code, paused.headers.get("content-length"), paused.content) == (
        202,
        "0",
        b"",
    )
    assert "content-type" not in paused.headers
    stopped = client.put("/connectors/a/stop")
    assert stopped.status_code == 204
    assert not {"content-type", "content-length"} & set(stopped.headers)
    assert client.get("/connectors/a/tasks").json() == []


def test_endpoint_without_a_request_body_ignores_a_body(client: httpx.Client) -> None:
    assert client.put("/connectors/a/pause", content=b"{bad", headers=J).status_code == 202
    assert client.request("PUT", "/connectors/a/pause", content=b"x").status_code == 202
    assert client.post("/connectors/a/restart", content=b"{bad", headers=J).status_code == 204


def test_boolean_query_parameter_is_true_only_for_true(client: httpx.Client) -> None:
    assert client.post("/connectors/a/restart?includeTasks=yes").status_code == 204
    planned = client.post("/connectors/a/restart?includeTasks=TRUE")
    assert (planned.status_code, planned.json()["connector"]["state"]) == (202, "RESTARTING")
    assert len(client.get("/connector-plugins?connectorsOnly=").json()) == 1
    assert client.get("/connector-plugins?connectorsOnly=no").json()[1] == {
        "class": "com.example.P",
        "type": "predicate",
    }


def test_expand_parameter_accepts_repetition_but_no_comma_separated_list(
    client: httpx.Client,
) -> None:
    both = client.get("/connectors?expand=status&expand=info").json()["a"]
    assert list(both) == ["status", "info"]
    assert both["status"]["tasks"][0] == {
        "id": 0,
        "state": "FAILED",
        "worker_id": "h:1",
        "version": "1.0",
        "trace": "trace text",
    }
    assert "trace" not in both["status"]["connector"]
    assert client.get("/connectors?expand=info,status").json() == {"a": {}}
    assert client.get("/connectors?expand").json() == {"a": {}}


def test_options_lists_methods_and_head_is_get_without_a_body(client: httpx.Client) -> None:
    options = client.options("/connectors")
    assert set(options.headers["allow"].split(",")) == {"HEAD", "POST", "GET", "OPTIONS"}
    assert options.headers["content-type"] == "text/plain"
    assert set(options.text.split(", ")) == {"HEAD", "POST", "GET", "OPTIONS"}
    head = client.head("/connectors")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "5", b"")
    assert client.head("/nope").status_code == 404


def test_unknown_connector_has_no_topics_rather_than_404(
    client: httpx.Client, herder: FakeHerder
) -> None:
    assert client.get("/connectors/zz/topics").json() == {"zz": {"topics": []}}
    herder.topics_tracked = False
    assert error(client.get("/connectors/zz/topics")) == (403, "Topic tracking is disabled.")


def test_validate_refuses_a_class_that_does_not_fit_the_path(client: httpx.Client) -> None:
    path = "/connector-plugins/com.example.DemoSinkConnector/config/validate"
    assert error(client.put(path, json={"connector.class": "DemoSink"})) == (
        400,
        "Included connector type DemoSink does not match request type "
        "com.example.DemoSinkConnector",
    )
    status, message = error(client.put("/connector-plugins/DemoSink/config/validate", json={}))
    assert status == 500
    assert message.endswith("BadRequestException: Connector config contains no connector type")


def test_the_body_of_a_client_that_offers_http2_is_read(client: httpx.Client) -> None:
    """Java's default HTTP client sends these headers with its first request on a connection."""
    body = b'{"connector.class":"DemoSink"}'
    connection = http.client.HTTPConnection(client.base_url.host, client.base_url.port, timeout=10)
    headers = {
        **J,
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAEAAEAAAAIAAAAB",
    }
    connection.request("PUT", "/connectors/java/config", body=body, headers=headers)
    response = connection.getresponse()
    assert response.status == 201
    assert b'"connector.class":"DemoSink"' in response.read()
    connection.close()


def test_a_port_in_use_is_said_before_anything_starts(herder: FakeHerder) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(PortInUseError, match="cannot listen on"):
            RestServer(
                [(Site([Listener("127.0.0.1", listening.getsockname()[1])]), create_app(herder))]
            )


@pytest.mark.parametrize("size", [8_300, 70_000])
def test_too_large_target_or_header_is_refused_as_by_jetty(client: httpx.Client, size: int) -> None:
    """The parser itself gives up on the second size."""

    def asked(target: str, headers: dict[str, str]) -> tuple[int, bytes]:
        with closing(
            http.client.HTTPConnection(client.base_url.host, client.base_url.port or 0, timeout=20)
        ) as connection:
            connection.request("GET", target, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    too_long = 414, b'{"error_code":414,"message":"HTTP 414 URI Too Long"}'
    too_large = 431, b'{"error_code":431,"message":"HTTP 431 Request Header Fields Too Large"}'
    assert asked(f"/connectors/{'x' * size}", {}) == too_long
    assert asked(f"/connectors?{'x' * size}", {}) == too_long
    assert asked("/connectors", {"X-Large": "x" * size}) == too_large
    assert asked("/connectors", {"X-Fits": "x" * 7_500})[0] == 200


def test_a_configuration_of_very_many_keys_is_refused_at_once(client: httpx.Client) -> None:
    """Each key is looked at many times when it is validated: 800,000 took 13 s."""
    config = {f"key{number}": "x" for number in range(10_001)}
    answer = client.post("/connectors", json={"name": "large", "config": config})
    assert error(answer) == (413, "A configuration has at most 10000 keys; this one has 10001")
    assert error(client.put("/connectors/large/config", json=config))[0] == 413
    assert (
        error(client.put("/connector-plugins/FileStreamSink/config/validate", json=config))[0]
        == 413
    )

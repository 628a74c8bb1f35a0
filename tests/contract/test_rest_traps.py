"""Requests that confuse servers other than Jetty: paths, bodies, headers, and clients on the
wire.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from fake_herder import FakeHerder
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from rest_serving import error, serving

from connect_py.api.errors import NotFoundError
from connect_py.embedded.java_runtime import find_java
from connect_py.herder.herder import ConnectorStatus
from rest.app import ADMIN_ENDPOINTS, ENDPOINTS, create_app
from rest.routers import connectors

J = {"Content-Type": "application/json"}
CONFIG = {"connector.class": "DemoSink"}


@pytest.fixture(scope="module")
def herder() -> FakeHerder:
    return FakeHerder()


@pytest.fixture(scope="module")
def client(herder: FakeHerder) -> Iterator[httpx.Client]:
    with serving(create_app(herder)) as client:
        yield client


def raw(client: httpx.Client, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send these bytes and read the one answer to them."""
    with closing(
        socket.create_connection((client.base_url.host, client.base_url.port), timeout=20)
    ) as sock:
        sock.sendall(request)
        response = http.client.HTTPResponse(sock)
        response.begin()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


# ------------------------------------------------------------------ the framework's own answers
# never escape


def test_no_answer_of_the_framework_escapes(client: httpx.Client) -> None:
    for method, path in (("GET", "/redoc"), ("POST", "/"), ("GET", "/connectors/a/tasks/x/status")):
        status, message = error(client.request(method, path))
        assert message == f"HTTP {status} {'Not Found' if status == 404 else 'Method Not Allowed'}"
    assert "allow" not in client.post("/").headers
    # never 422
    assert error(client.put("/connectors/a/config", content=b"[1]", headers=J))[0] == 500


def test_every_path_with_a_trailing_slash_is_served_without_redirect(client: httpx.Client) -> None:
    for path in (
        "/connectors/",
        "/connectors/a/",
        "/connectors/a/status/",
        "/health/",
        "/connector-plugins/",
    ):
        assert client.get(path).status_code == 200, path
    assert error(client.get("/connectors/a//")) == (400, "HTTP 400 Bad Request")


def test_status_request_waits_for_a_connector_that_was_just_created(
    client: httpx.Client, herder: FakeHerder, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = ["no status", "no status either"]
    really = herder.connector_status

    def late(name: str) -> ConnectorStatus:
        if waiting:
            raise NotFoundError(waiting.pop())
        return really(name)

    monkeypatch.setattr(herder, "connector_status", late)
    assert client.get("/connectors/a/status").status_code == 200
    waiting[:] = ["no status"] * 1000
    assert client.get("/connectors/unknown/status").status_code == 404
    assert len(waiting) == 999, "nothing is waited for that does not exist"
    monkeypatch.setattr(connectors, "FIRST_STATUS_SECONDS", 0.2)
    assert error(client.get("/connectors/a/status")) == (404, "no status")


# ------------------------------------------------------------------ paths


def test_names_are_decoded_per_path_segment_and_plus_stays_plus(
    client: httpx.Client, herder: FakeHerder
) -> None:
    for name in ("a/b", "a+b", "a b", "ü", "50%", "a?b#c", "a;b", "a\\b", "{x}", ".."):
        assert client.post("/connectors", json={"name": name, "config": CONFIG}).status_code == 201
        encoded = "".join(f"%{byte:02X}" for byte in name.encode())
        status, _, body = raw(
            client, f"GET /connectors/{encoded} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        )
        assert (status, json.loads(body)["name"]) == (200, name)
        assert client.delete(f"/connectors/{encoded}").status_code == 204
    status, _, body = raw(client, b"GET /connectors/a+b/status HTTP/1.1\r\nHost: x\r\n\r\n")
    assert json.loads(body) == {"error_code": 404, "message": "No status found for connector a+b"}


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("a b", "a%20b"),
        ("é", "%C3%A9"),
        ("?#", "%3F%23"),
        ("50%", "50%25"),
        ("a%20b", "a%20b"),
        ("[x]", "%5Bx%5D"),
        ("/:;+=&", "/:;+=&"),
        ("{x}", "%7Bx%7D"),
    ],
)
def test_location_is_absolute_and_encoded_as_a_path(
    client: httpx.Client, name: str, encoded: str
) -> None:
    body = json.dumps({"name": name, "config": CONFIG}).encode()
    head = (
        f"POST /connectors HTTP/1.1\r\nHost: me:99\r\nContent-Type: "
        f"application/json\r\nContent-Length: {len(body)}"
    )
    status, headers, _ = raw(client, f"{head}\r\nX-Forwarded-Proto: https\r\n\r\n".encode() + body)
    assert status == 201
    assert headers["location"] == f"http://me:99/connectors/{encoded}"


def test_integers_in_paths_are_parsed_as_by_java(client: httpx.Client) -> None:
    for text in ("0", "00", "%2B0", "+0"):
        assert client.get(f"/connectors/a/tasks/{text}/status").status_code == 200, text
    for text in ("-1", "2147483647"):
        assert error(client.get(f"/connectors/a/tasks/{text}/status"))[1].startswith(
            "No status found for task a-"
        )
    for text in ("2147483648", "1.0", "0x1", "1_0", "%20", "\u0661"):
        assert error(client.get(f"/connectors/a/tasks/{text}/status")) == (
            404,
            "HTTP 404 Not Found",
        )


# ------------------------------------------------------------------ bodies and media types


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_byte_order_marks_and_wider_encodings_are_read(client: httpx.Client, encoding: str) -> None:
    body = json.dumps({**CONFIG, "x": "é"}, ensure_ascii=False).encode(encoding)
    assert (
        client.put("/connectors/enc/config", content=body, headers=J).json()["config"]["x"] == "é"
    )


def test_last_duplicate_config_key_wins_and_numbers_keep_their_text(client: httpx.Client) -> None:
    body = b'{"connector.class":"DemoSink","x":1,"x":-0.10E+2,"y":12345678901234567890123,"z":false,"n":null}'  # noqa: E501 - one literal
    config = client.put("/connectors/num/config", content=body, headers=J).json()["config"]
    assert (config["x"], config["y"], config["z"], "n" in config) == (
        "-0.10E+2",
        "12345678901234567890123",
        "false",
        False,
    )


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b"{'a':1}",
        b'{"a":1,}',
        b'{"a":1}//x',
        b'{"a":"\t"}',
        b'{"a":"\\ud800"}',
        b"[" * 100_000,
        b'{"a":"\xff"}',
        b"\x00",
    ],
)
def test_what_is_no_strict_json_is_500_without_a_trace(client: httpx.Client, body: bytes) -> None:
    status, message = error(client.put("/connectors/bad/config", content=body, headers=J))
    assert status == 500
    assert "Traceback" not in message


def test_numbers_stand_for_texts_where_a_text_is_expected(client: httpx.Client) -> None:
    assert client.post("/connectors", json={"name": 7, "config": CONFIG}).json()["name"] == "7"
    assert (
        error(
            client.post("/connectors", json={"name": "n", "config": CONFIG, "initial_state": True})
        )[0]
        == 500
    )


def test_a_body_larger_than_any_configuration_is_refused(client: httpx.Client) -> None:
    body = b'{"x":"' + b"y" * (17 * 1024 * 1024)
    assert error(client.put("/connectors/large/config", content=body, headers=J)) == (
        413,
        "HTTP 413 Request Entity Too Large",
    )


@pytest.mark.parametrize(
    ("method", "path", "content_type", "body", "status"),
    [
        (
            "PUT",
            "/connectors/a/config",
            "application/json; charset=UTF-8",
            b'{"connector.class":"DemoSink"}',
            200,
        ),
        ("PUT", "/connectors/a/config", "APPLICATION/JSON", b'{"connector.class":"DemoSink"}', 200),
        ("PUT", "/connectors/a/config", "text/json", b"{}", 415),
        ("PUT", "/connectors/a/config", "garbage", b"{}", 415),
        ("PUT", "/connectors/a/config", "application/*", b"{}", 415),
        ("POST", "/connectors", None, b"{}", 415),
        ("POST", "/connectors", None, b"", 500),
        ("PUT", "/admin/loggers/app", None, b"{}", 415),
        ("PUT", "/connector-plugins/DemoSink/config/validate", "text/plain", b"{}", 415),
        ("PUT", "/connectors/a/resume", None, b"x", 202),
        ("PUT", "/connectors/a/resume", "application/json", b"{bad", 202),
        ("PUT", "/connectors/a/resume", "application/x-www-form-urlencoded", b"", 415),
        ("POST", "/connectors/a/restart", None, b"{bad", 204),
        ("DELETE", "/connectors/none", "text/plain", b"x", 415),
        ("DELETE", "/connectors/none", "application/json", b"x", 404),
    ],
)
def test_media_types_are_checked_before_bodies_are_read(
    client, method, path, content_type, body, status
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    assert client.request(method, path, content=body, headers=headers).status_code == status


@pytest.mark.parametrize(
    ("accept", "status", "content_type"),
    [
        ("*/*", 200, "application/json"),
        ("application/*", 200, "application/json"),
        ("application/json;q=0", 200, "application/json"),
        (
            "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            200,
            "application/json",
        ),
        ("", 200, "application/json"),
        ("application/json;charset=utf-8", 200, "application/json;charset=utf-8"),
        ("text/html", 406, "application/json"),
        ("application/xml, text/plain", 406, "application/json"),
        ("nonsense", 406, "application/json"),
    ],
)
def test_accept_is_obeyed_before_anything_is_looked_up(
    client, accept, status, content_type
) -> None:
    answer = client.get("/connectors", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"]) == (status, content_type)
    if status == 406:
        assert error(client.put("/connectors/zz/pause", headers={"Accept": accept}))[0] == 406
        assert error(client.get("/nope", headers={"Accept": accept}))[0] == 404


# ------------------------------------------------------------------ verbs and headers


def test_every_get_path_also_answers_head_and_options(client: httpx.Client) -> None:
    for path in ("/", "/health", "/connectors", "/connectors/a/status", "/connectors/zz", "/nope"):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        assert head.headers["content-length"] == got.headers["content-length"]
    for path, verbs in (
        ("/connectors/a", "HEAD,DELETE,GET,OPTIONS"),
        ("/connectors/a/config", "HEAD,GET,OPTIONS,PUT,PATCH"),
        ("/connectors/a/pause", "OPTIONS,PUT"),
        ("/connectors/a/tasks", "HEAD,POST,GET,OPTIONS"),
        ("/connectors/a/fence", "OPTIONS,PUT"),
        ("/admin/loggers/app", "HEAD,GET,OPTIONS,PUT"),
    ):
        options = client.options(path)
        assert set(options.headers["allow"].split(",")) == set(verbs.split(",")), path
        assert set(options.text.split(", ")) == set(verbs.split(","))
    other = client.options("/connectors", headers={"Accept": "application/json"})
    assert (other.content, other.headers["content-type"]) == (b"", "application/json")
    assert error(client.request("FOO", "/connectors")) == (405, "HTTP 405 Method Not Allowed")
    assert error(client.get("/connectors/a/fence")) == (405, "HTTP 405 Method Not Allowed")


def test_connection_stays_open_after_a_refusal_with_an_unread_body(client: httpx.Client) -> None:
    refused = b"PUT /connectors/a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    with closing(
        socket.create_connection((client.base_url.host, client.base_url.port), timeout=20)
    ) as sock:
        for request, status in (
            (refused, 405),
            (refused, 405),
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        ):
            sock.sendall(request)
            response = http.client.HTTPResponse(sock)
            response.begin()
            response.read()
            assert response.status == status


def test_answers_show_null_members_except_traces_and_versions(client: httpx.Client) -> None:
    definition = client.get("/connector-plugins/DemoSink/config").json()[0]
    assert (definition["default_value"], definition["group"]) == (None, None)
    assert client.get("/admin/loggers/app").json()["last_modified"] is None


def test_the_description_names_exactly_what_is_served(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    described = {
        path: {verb.upper() for verb in verbs} for path, verbs in document["paths"].items()
    }
    served = (*ENDPOINTS, *ADMIN_ENDPOINTS)
    for path, verbs in described.items():
        concrete = path.replace("{task}", "0").replace("{", "").replace("}", "")
        assert [e.verbs for e in served if e.matches(concrete)] == [frozenset(verbs)], path
    assert len(described) == len(served) - 1  # all except itself


# ------------------------------------------------------------------ loggers


def test_logger_levels_are_listed_changed_and_validated(
    client: httpx.Client, herder: FakeHerder
) -> None:
    assert client.get("/admin/loggers").json() == {
        "app": {"level": "INFO", "last_modified": None},
        "root": {"level": "INFO", "last_modified": 1767225600000},
    }
    assert error(client.put("/admin/loggers/root", json={"level": "HIGH"})) == (
        404,
        "invalid log level 'HIGH'.",
    )
    assert error(client.put("/admin/loggers/root", json={})) == (
        400,
        "Desired 'level' parameter was not specified in request.",
    )
    assert error(client.put("/admin/loggers/root", json={"level": None}))[0] == 400
    assert error(client.put("/admin/loggers/root", json={"level": ""})) == (
        500,
        "Illegal null or empty Level name.",
    )
    assert error(client.put("/admin/loggers/root", content=b"", headers=J))[0] == 500
    assert error(client.get("/admin/loggers/none.such")) == (404, "Logger none.such not found.")
    cluster = client.put("/admin/loggers/root?scope=CLUSTER", json={"level": " debug "})
    assert (cluster.status_code, cluster.content) == (204, b"")
    assert herder.cluster_levels == [("root", " debug ")]
    assert error(client.put("/admin/loggers/root?scope=cluster", json={"level": "x"}))[0] == 404
    assert client.put(
        "/admin/loggers/app?scope=nonsense", json={"level": "debug", "more": "x"}
    ).json() == ["app"]
    assert client.put("/admin/loggers/app", json={"level": "DEBUG"}).json() == []


# ------------------------------------------------------------------ Java's client


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGateway]:
    opened = "java.net.http/jdk.internal.net.http=ALL-UNNAMED"
    port, token, process = launch_gateway(
        java_path=str(find_java().path),
        javaopts=["-Xmx64m", "--add-opens", opened],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    yield gateway
    gateway.close()
    with process:  # it ends when its standard input does
        process.stdin.close()
        process.wait(20)


def test_default_http_client_of_java_is_served_despite_http2_upgrade(
    client: httpx.Client, java: JavaGateway, caplog
) -> None:
    """It offers an upgrade to HTTP/2 (`Upgrade: h2c`) with its first request, body and all."""
    net = java.jvm.java.net
    http_client = net.http.HttpClient.newHttpClient()

    def send(method: str, path: str, body: str) -> tuple[int, str]:
        builder = net.http.HttpRequest.newBuilder(net.URI.create(f"{client.base_url}{path}"))
        publisher = net.http.HttpRequest.BodyPublishers.ofString(body)
        request = (
            builder.header("Content-Type", "application/json").method(method, publisher).build()
        )
        response = http_client.send(request, net.http.HttpResponse.BodyHandlers.ofString())
        return response.statusCode(), response.body()

    with caplog.at_level(logging.WARNING):
        status, body = send(
            "POST",
            "/connectors",
            json.dumps({"name": "java", "config": {**CONFIG, "x": "é" * 5000}}),
        )
        assert (status, json.loads(body)["config"]["x"]) == (201, "é" * 5000)
        assert send("PUT", "/connectors/java/config", json.dumps(CONFIG))[0] == 200
        assert send("PUT", "/connectors/java/pause", "")[0] == 202
        assert send("DELETE", "/connectors/java", "")[0] == 204
    assert caplog.records == []

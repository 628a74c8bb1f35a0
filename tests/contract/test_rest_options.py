"""Options of a worker's REST API: users, CORS, additional headers, admin listeners, HTTPS, the
advertised URL.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import pytest
from fake_herder import FakeHerder
from rest_certificates import Authority, jks_store, pkcs12_store
from rest_serving import error, serving

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.config.worker_config import DistributedConfig
from connect_py.rest_service import RestService
from connect_py.storage.config_state import SessionKey
from rest.app import RestOptions, create_app
from rest.basic_auth import BasicAuth
from rest.response_headers import header_rules

NAMES = ("group.id", "config.storage.topic", "status.storage.topic", "offset.storage.topic")
PROPS = {
    "bootstrap.servers": "127.0.0.1:1",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    **{name: name.replace(".", "-") for name in NAMES},
    "listeners": "http://127.0.0.1:0",
}
EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"


@contextmanager
def service(
    props: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    herder: FakeHerder | None = None,
) -> Iterator[RestService]:
    service = RestService(DistributedConfig.of({**PROPS, **props}), environment or {})
    service.start(herder or FakeHerder())
    try:
        yield service
    finally:
        service.stop()


# ------------------------------------------------------------------ users


@pytest.fixture(scope="module")
def protected() -> Iterator[httpx.Client]:
    auth = BasicAuth({"ann": "pass:word", "bob": ""})
    with serving(create_app(FakeHerder(), RestOptions(auth=auth, origins="*"))) as client:
        yield client


def test_users_are_let_in_and_others_get_the_bare_text(protected: httpx.Client) -> None:
    assert protected.get("/connectors", auth=("ann", "pass:word")).status_code == 200
    for refused in (
        protected.get("/connectors"),
        protected.get("/connectors", auth=("ann", "wrong")),
        protected.get("/connectors", auth=("eve", "pass:word")),
        protected.get("/health", headers={"Authorization": "Bearer x"}),
        protected.get("/admin/loggers"),
        protected.get("/openapi.json"),
        protected.options(
            "/connectors", headers={"Origin": "http://x", "Access-Control-Request-Method": "GET"}
        ),
    ):
        assert (refused.status_code, refused.text) == (401, "User cannot access the resource.")
        assert refused.headers["content-type"] == "application/json"
        assert "www-authenticate" not in refused.headers


def test_unknown_paths_and_methods_are_refused_before_authentication(
    protected: httpx.Client,
) -> None:
    assert error(protected.get("/nope")) == (404, "HTTP 404 Not Found")
    assert error(protected.delete("/connectors")) == (405, "HTTP 405 Method Not Allowed")


def test_signed_requests_of_other_workers_need_no_user(protected: httpx.Client) -> None:
    missing = (400, "Internal request missing required signature")
    assert error(protected.put("/connectors/a/fence")) == missing
    assert error(protected.post("/connectors/a/tasks", json=[])) == missing
    assert protected.get("/connectors/a/tasks").status_code == 401


def test_credentials_that_are_no_base64_are_500(protected: httpx.Client) -> None:
    assert error(protected.get("/connectors", headers={"Authorization": "Basic *"}))[0] == 500


def jaas(tmp_path: Path, users: str, entry: str = "KafkaConnect") -> dict[str, str]:
    (tmp_path / "users.properties").write_text(users)
    module = EXTENSION.replace("BasicAuthSecurityRestExtension", "PropertyFileLoginModule")
    (tmp_path / "jaas.conf").write_text(
        f"/* ours */ Other {{ x.Y required; }};\n{entry} {{\n  {module} required\n  // the users\n"
        f'  file="{tmp_path / "users.properties"}";\n}};\n'
    )
    return {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={tmp_path / 'jaas.conf'}"}


def test_users_are_read_from_the_file_in_the_jaas_entry(tmp_path: Path) -> None:
    props = {"rest.extension.classes": EXTENSION}
    with service(props, jaas(tmp_path, "ann=s\\u00e9cret\n")) as served:
        assert httpx.get(f"{served.advertised_url}connectors").status_code == 401
        good = "Basic YW5uOnPDqWNyZXQ="  # ann:sécret
        assert (
            httpx.get(
                f"{served.advertised_url}connectors", headers={"Authorization": good}
            ).status_code
            == 200
        )


def test_an_empty_file_of_users_lets_everybody_in(tmp_path: Path) -> None:
    with service({"rest.extension.classes": EXTENSION}, jaas(tmp_path, "")) as served:
        assert httpx.get(f"{served.advertised_url}connectors").status_code == 200


def test_what_cannot_protect_the_api_is_refused_at_start(tmp_path: Path) -> None:
    for extension, environment, text in (
        ("com.example.Other", {}, "is a Java class and cannot be loaded"),
        (EXTENSION, {}, "requires KAFKA_OPTS"),
        (EXTENSION, jaas(tmp_path, "", "KafkaServer"), "has no entry KafkaConnect"),
        (
            EXTENSION,
            {"KAFKA_OPTS": f"-Djava.security.auth.login.config={tmp_path}/none"},
            "cannot read",
        ),
    ):
        config = DistributedConfig.of({**PROPS, "rest.extension.classes": extension})
        with pytest.raises(ConfigError, match=text):
            RestService(config, environment)


# ------------------------------------------------------------------ CORS and headers


def test_cross_origin_headers_are_for_allowed_origins_only() -> None:
    options = RestOptions(origins="https://.*\\.example\\.com,http://ui", methods="GET, PUT")
    with serving(create_app(FakeHerder(), options)) as client:
        allowed = client.get("/connectors", headers={"Origin": "https://a.example.com"})
        assert allowed.headers["access-control-allow-origin"] == "https://a.example.com"
        assert allowed.headers["vary"] == "Origin"
        other = client.get("/connectors", headers={"Origin": "https://a.example.com.evil"})
        assert (other.status_code, other.headers["vary"]) == (200, "Origin")
        assert not any(name.startswith("access-control") for name in other.headers)
        preflight_headers = {"Origin": "http://ui", "Access-Control-Request-Method": "PUT"}
        preflight = client.options("/connectors", headers=preflight_headers)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-methods"] == "GET,PUT"
        assert preflight.headers["access-control-allow-headers"] == "Content-Type"
        assert preflight.headers["access-control-max-age"] == "60"
        assert "access-control-allow-credentials" not in preflight.headers
        assert set(preflight.headers["allow"].split(",")) == {"HEAD", "POST", "GET", "OPTIONS"}
        assert client.options("/nope", headers=preflight_headers).status_code == 404


def test_a_star_allows_any_origin_and_echoes_it() -> None:
    with serving(create_app(FakeHerder(), RestOptions(origins="*"))) as client:
        preflight = client.options(
            "/", headers={"Origin": "null", "Access-Control-Request-Method": "GET"}
        )
        assert preflight.headers["access-control-allow-origin"] == "null"
        assert set(preflight.headers["access-control-allow-methods"].split(",")) == {
            "GET",
            "POST",
            "HEAD",
        }


def test_without_an_origin_configured_there_is_no_cross_origin_header() -> None:
    with serving(create_app(FakeHerder())) as client:
        plain = client.get("/connectors", headers={"Origin": "http://ui"})
        assert not {"vary", "access-control-allow-origin"} & set(plain.headers)


def test_configured_headers_are_on_every_answer() -> None:
    rules = header_rules(
        'set X-Frame-Options: DENY, "add Cache-Control: no-cache, no-store", setDate Expires: '
        "3600000"
    )
    with serving(create_app(FakeHerder(), RestOptions(headers=rules))) as client:
        for answer in (
            client.get("/connectors"),
            client.get("/nope"),
            client.delete("/connectors/a"),
        ):
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["cache-control"] == "no-cache, no-store"
            # an hour from now, as in Java
            expires = parsedate_to_datetime(answer.headers["expires"])
            assert abs((expires - datetime.now(UTC)).total_seconds() - 3600) < 60


@pytest.mark.parametrize(
    "text", ["X-A: b", "put X-A: b", "set X-A", "set X A: b", "setDate X: soon", "set"]
)
def test_header_rules_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Invalid "):
        header_rules(text)


# ------------------------------------------------------------------ listeners


def test_admin_paths_can_be_shared_disabled_or_on_separate_listeners() -> None:
    with service({}) as together:
        assert httpx.get(f"{together.advertised_url}admin/loggers/app").json() == {
            "level": "INFO",
            "last_modified": None,
        }
    with service({"admin.listeners": ""}) as off:
        assert httpx.get(f"{off.advertised_url}admin/loggers").status_code == 404
    admin_options = {
        "admin.listeners": "http://127.0.0.1:0",
        "response.http.headers.config": "set X-A: b",
        "access.control.allow.origin": "*",
    }
    with service(admin_options) as apart:
        admin = f"http://127.0.0.1:{apart.admin_addresses[0].port}"
        assert httpx.get(f"{apart.advertised_url}admin/loggers").status_code == 404
        answer = httpx.get(f"{admin}/admin/loggers", headers={"Origin": "http://x"})
        assert answer.status_code == 200
        assert not {"x-a", "vary"} & set(answer.headers)
        assert httpx.get(f"{admin}/connectors").status_code == 404
        described = httpx.get(f"{admin}/openapi.json").json()["paths"]
        assert set(described) == {"/admin/loggers", "/admin/loggers/{logger}", "/metrics"}


def test_the_admin_listener_asks_for_users_too(tmp_path: Path) -> None:
    props = {"rest.extension.classes": EXTENSION, "admin.listeners": "http://127.0.0.1:0"}
    with service(props, jaas(tmp_path, "ann=x")) as served:
        admin = f"http://127.0.0.1:{served.admin_addresses[0].port}/admin/loggers"
        assert httpx.get(admin).status_code == 401
        assert httpx.get(admin, auth=("ann", "x")).status_code == 200


@pytest.mark.parametrize(
    ("listener", "text"),
    [
        ("127.0.0.1:0", "Listener doesn't have the right format"),
        ("ftp://127.0.0.1:0", 'Listener protocol must be either "http" or "https"'),
        ("https://127.0.0.1:0", "needs a key store"),
    ],
)
def test_listeners_that_cannot_be_opened_are_refused(listener: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        RestService(DistributedConfig.of({**PROPS, "listeners": listener}), {})


def test_the_advertised_url_is_the_first_http_listener_unless_told() -> None:
    with service({"listeners": "http://127.0.0.1:0,http://127.0.0.1:0"}) as two:
        assert httpx.get(two.advertised_url).status_code == 200
    advertised = {
        "rest.advertised.host.name": "connect-1",
        "rest.advertised.port": "80",
        "rest.advertised.listener": "HTTPS",
    }
    with service(advertised) as rest:
        assert rest.advertised_url == "https://connect-1:80/"
    with service({"listeners": "http://:0"}) as everywhere:
        assert "0.0.0.0" not in everywhere.advertised_url


# ------------------------------------------------------------------ HTTPS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate_pem)


def store_props(kind: str, authority: Authority, folder: Path) -> dict[str, str]:
    key, chain = authority.issue("127.0.0.1")
    if kind == "pem-text":
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": " ".join(key.splitlines()),
            "ssl.keystore.certificate.chain": " ".join(chain.splitlines()),
        }
    path = folder / f"store.{kind}"
    if kind == "pem":
        path.write_text(key + chain)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    path.write_bytes((jks_store if kind == "jks" else pkcs12_store)(key, chain, "password"))
    declared = {"jks": "JKS", "pkcs12": "PKCS12", "undeclared": "JKS"}[kind]
    return {
        "ssl.keystore.type": declared,
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": "password",
        "ssl.key.password": "password",
    }


@pytest.mark.parametrize("kind", ["pem-text", "pem", "jks", "pkcs12", "undeclared"])
def test_https_works_with_every_kind_of_store(
    kind: str, authority: Authority, tmp_path: Path
) -> None:
    """`undeclared`: a PKCS12 file with type JKS, which Java's own tools create by default."""
    store = {
        f"listeners.https.{key}": value
        for key, value in store_props(kind, authority, tmp_path).items()
    }
    with service(
        {"listeners": "https://127.0.0.1:0", "ssl.keystore.location": "/none", **store}
    ) as served:
        assert served.advertised_url.startswith("https://127.0.0.1:")
        with httpx.Client(verify=trusting(authority), base_url=served.advertised_url) as client:
            created = client.put("connectors/x/config", json={"connector.class": "DemoSink"})
            assert created.headers["location"] == f"{served.advertised_url}connectors/x"


def test_plain_ssl_keys_serve_when_no_prefixed_one_exists(
    authority: Authority, tmp_path: Path
) -> None:
    props = {
        "listeners": "http://127.0.0.1:0,https://127.0.0.1:0",
        **store_props("pem", authority, tmp_path),
    }
    with service({**props, "ssl.enabled.protocols": "TLSv1.2"}) as served:
        assert served.advertised_url.startswith("http://")
        raw = socket.create_connection(("127.0.0.1", served.addresses[1].port), timeout=20)
        with raw, trusting(authority).wrap_socket(raw, server_hostname="127.0.0.1") as tls:
            assert tls.version() == "TLSv1.2"


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_clients_show_certificates_as_the_listener_wants(
    client_auth: str, authority: Authority, tmp_path: Path
) -> None:
    props = {
        **store_props("pkcs12", authority, tmp_path),
        "ssl.client.auth": client_auth,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.certificate_pem,
    }
    prefixed = {f"listeners.https.{key}": value for key, value in props.items()}
    key, chain = authority.issue("client")
    (tmp_path / "client.pem").write_text(key + chain)
    tls_context = trusting(authority)
    tls_context.load_cert_chain(tmp_path / "client.pem")
    with service({"listeners": "https://127.0.0.1:0", **prefixed}) as served:
        assert httpx.get(served.advertised_url, verify=tls_context).status_code == 200
        if client_auth == "required":
            with pytest.raises(httpx.TransportError):
                httpx.get(served.advertised_url, verify=trusting(authority))
        else:
            assert httpx.get(served.advertised_url, verify=trusting(authority)).status_code == 200


def test_requests_are_forwarded_over_tls_with_the_workers_own_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    props = {
        "listeners": "https://127.0.0.1:0",
        "listeners.https.ssl.client.auth": "required",
        "listeners.https.ssl.truststore.type": "PEM",
        "listeners.https.ssl.truststore.certificates": authority.certificate_pem,
        **{f"listeners.https.{k}": v for k, v in store_props("jks", authority, tmp_path).items()},
    }
    key, chain = authority.issue("client")
    (tmp_path / "client.pem").write_text(key + chain)
    tls_context = trusting(authority)
    tls_context.load_cert_chain(tmp_path / "client.pem")
    leader, follower = FakeHerder(), FakeHerder()
    with service(props, herder=leader) as leading, service(props, herder=follower) as following:
        follower.leader_url = leading.advertised_url
        assert (
            httpx.delete(f"{following.advertised_url}connectors/a", verify=tls_context).status_code
            == 204
        )
        assert "a" not in leader.configs
        leader.session_keys.take(SessionKey("MDEyMzQ1Njc4OWFiY2RlZg==", "HmacSHA256", 1))
        with pytest.raises(ConnectError, match="Connector a not found"):
            following.leader_calls.fence_zombies(
                leading.advertised_url, "a", leader.session_keys.headers
            )

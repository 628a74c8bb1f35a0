"""Settings that need branches are refused if a REST catalog reports that it accepts only main."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from connect_py.testing.services import FakeSharedServices
from connectors.iceberg.config import rest_catalog_refs
from connectors.iceberg.config.rest_catalog_refs import unsupported_ref_settings
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.connector import IcebergSinkConnector

ONLY_MAIN = {"overrides": {"nessie.is-nessie-catalog": "true"}}
FULL_MAINTENANCE = "iceberg.table.db.t.maintenance.enabled"


@dataclass
class Catalog:
    """A server that answers `v1/config` and grants tokens."""

    url: str = ""
    config: Any = field(default_factory=lambda: ONLY_MAIN)
    token: str = "a-token"
    requests: list[str] = field(default_factory=list)  # method and path
    forms: list[str] = field(default_factory=list)
    body: bytes | None = None  # of `v1/config`, in place of `config`

    def props(self, more: Mapping[str, str]) -> dict[str, str]:
        return {
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "name": "s",
            "topics": "t",
            "iceberg.tables": "db.t",
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": f"{self.url}/",
            "iceberg.catalog.token": self.token,
            **more,
        }

    def unsupported(self, **more: str) -> list[str]:
        config = IcebergSinkConfig.parse(self.props({**BRANCH, **more}))
        return [key for key, _ in unsupported_ref_settings(config)]


BRANCH = {"iceberg.tables.default-commit-branch": "audit"}


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    served = Catalog()

    class Request(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            served.requests.append(f"{self.command} {self.path}")
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status, document = 200, served.config
            if self.path.endswith("/tokens"):
                served.forms.append(sent)
                document = {"access_token": served.token}
            elif self.headers.get("Authorization") != f"Bearer {served.token}":
                status, document = 401, {}
            body = json.dumps(document).encode()
            if served.body is not None and not self.path.endswith("/tokens"):
                body = served.body
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = _serve  # noqa: N815 - names of the base class

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Request)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    yield served
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        (BRANCH, "iceberg.tables.default-commit-branch"),
        ({"iceberg.table.db.t.commit-branch": "audit"}, "iceberg.table.db.t.commit-branch"),
        ({"iceberg.ext.expect.paid": "n > 0"}, "iceberg.ext.expect.paid"),
        ({"iceberg.table.db.t.expect.paid": "n > 0"}, "iceberg.table.db.t.expect.paid"),
        ({"iceberg.ext.tags": "daily"}, "iceberg.ext.tags"),
        ({"iceberg.table.db.t.tags": "daily"}, "iceberg.table.db.t.tags"),
        ({"iceberg.ext.maintenance.enabled": "true"}, "iceberg.ext.maintenance.enabled"),
        ({FULL_MAINTENANCE: "true"}, FULL_MAINTENANCE),
    ],
)
def test_setting_is_refused_with_its_key_and_the_reason(
    catalog: Catalog, setting: dict[str, str], key: str
) -> None:
    config = IcebergSinkConfig.parse(catalog.props(setting))
    [(refused, reason)] = unsupported_ref_settings(config)
    assert refused == key
    assert "the catalog accepts only the branch main" in reason


def test_catalog_is_not_asked_if_no_setting_needs_a_branch(catalog: Catalog) -> None:
    settings = {"iceberg.ext.expect.paid": "n > 0", "iceberg.ext.expect.paid.action": "fail"}
    config = IcebergSinkConfig.parse(catalog.props(settings))
    assert unsupported_ref_settings(config) == []
    assert catalog.requests == []


def test_catalog_that_reports_nothing_is_not_refused(catalog: Catalog) -> None:
    catalog.config = {"defaults": {}, "overrides": {"prefix": "p"}, "endpoints": []}
    assert catalog.unsupported() == []
    assert catalog.requests == ["GET /v1/config"]


def test_credential_is_exchanged_for_a_token(catalog: Catalog) -> None:
    settings = {"iceberg.catalog.token": "", "iceberg.catalog.credential": "id:a:secret"}
    refused = catalog.unsupported(**settings, **{"iceberg.catalog.warehouse": "w"})
    assert refused == ["iceberg.tables.default-commit-branch"]
    assert catalog.requests == ["POST /v1/oauth/tokens", "GET /v1/config?warehouse=w"]
    [form] = catalog.forms
    assert "client_id=id&client_secret=a%3Asecret" in form


@pytest.mark.parametrize("body", [b"[]", b"no JSON", b"x" * 3_000_000])
def test_response_that_is_not_a_configuration_is_ignored(catalog: Catalog, body: bytes) -> None:
    catalog.body = body
    assert catalog.unsupported() == []


def test_catalog_that_refuses_the_token_or_is_down_is_ignored(catalog: Catalog) -> None:
    assert catalog.unsupported(**{"iceberg.catalog.token": "another"}) == []
    assert catalog.unsupported(**{"iceberg.catalog.uri": "http://127.0.0.1:9"}) == []


def test_slow_response_is_abandoned(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_catalog_refs, "_SECONDS", -1.0)
    assert catalog.unsupported() == []


def test_connector_asks_the_catalog_only_in_a_worker(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.iceberg.connector.why_absent", lambda _: None)  # Java

    def errors(connector: IcebergSinkConnector) -> list[str]:
        value = connector.validate(catalog.props(BRANCH))["iceberg.tables.default-commit-branch"]
        return value.errors

    connector = IcebergSinkConnector()
    assert errors(connector) == []
    connector.services = FakeSharedServices({}, {})
    [error] = errors(connector)
    assert "nessie.is-nessie-catalog=true" in error

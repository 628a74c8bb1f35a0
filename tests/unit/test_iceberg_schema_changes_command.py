"""`connect-py schema-changes` against workers whose rows wait for changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fixtures.command_line import command_app
from typer.testing import CliRunner

from connectors.iceberg_tools.commands.schema_changes import METRIC, schema_changes

MISSING = '{"error_code":404,"message":"not found"}'


@contextmanager
def serving(pages: Mapping[str, str]) -> Iterator[str]:
    """A worker with these pages; yields its host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write((page or MISSING).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def sample(connector: str, change: str, value: int = 1) -> str:
    return (
        f'{METRIC}{{change="{change}",connector="{connector}",table="db.{connector}",task="0"}} '
        f"{value}\n"
    )


def run(*arguments: str) -> tuple[int, str]:
    app = command_app(schema_changes)
    told = CliRunner().invoke(app, list(arguments))
    return told.exit_code, told.output


@pytest.fixture
def cluster() -> Iterator[str]:
    """Two workers, each with the first task of a connector; the URL of one."""
    other = {
        "/metrics": sample("lines", "widen column n to long")
        + sample("gone", "add column x of type int")
    }
    with ExitStack() as stack:
        second = stack.enter_context(serving(other))
        pages = {
            "/connectors": '["orders", "lines", "idle"]',
            "/connectors/lines/status": json.dumps({"tasks": [{"id": 0, "worker_id": second}]}),
            "/connectors/idle/status": json.dumps({"tasks": []}),
        }
        first = stack.enter_context(serving(pages))
        orders = {"tasks": [{"id": 0, "worker_id": first}, {"id": 1, "worker_id": second}]}
        pages["/connectors/orders/status"] = json.dumps(orders)
        pages["/metrics"] = sample("orders", "add column new of type string") + sample(
            "orders", "make column b optional", 0
        )
        yield f"http://{first}"


def test_pending_schema_changes_are_listed_as_text_and_json(cluster: str) -> None:
    assert run(cluster) == (
        1,
        "lines: table db.lines is waiting for a user to widen column n to long\n"
        "orders: table db.orders is waiting for a user to add column new of type string\n",
    )
    status, text = run(cluster, "--connector", "lines", "--json")
    assert status == 1
    assert json.loads(text) == {
        "held": [{"connector": "lines", "table": "db.lines", "change": "widen column n to long"}]
    }


def test_nothing_that_waits_is_told_by_the_exit_status(cluster: str) -> None:
    assert run(cluster, "--connector", "idle") == (0, "no rows are waiting for a schema change\n")


@pytest.mark.parametrize("arguments", [("http://127.0.0.1:1",), ("--connector", "unknown")])
def test_unreachable_worker_is_an_error_and_not_an_empty_list(
    cluster: str, arguments: tuple[str, ...]
) -> None:
    status, text = run(*(arguments if arguments[0].startswith("http") else (cluster, *arguments)))
    assert (status, text[:18]) == (2, "connect-py: http:/")


def test_failed_request_is_reported_with_its_address_in_one_line(cluster: str) -> None:
    assert run(cluster, "--connector", "nosuch") == (
        2,
        f"connect-py: {cluster}: connector nosuch does not exist\n",
    )
    assert run(f"{cluster}/x") == (
        2,
        f"connect-py: {cluster}/x/connectors failed with status 404: {MISSING}\n",
    )
    assert "connect-py: http://127.0.0.1:1/connectors: " in run("http://127.0.0.1:1")[1]

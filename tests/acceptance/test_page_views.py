"""The page in a real Chromium, at length: an Iceberg sink's story, strange names, a thousand
connectors, users."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import quote

import httpx
import psutil
import pytest
from browser import WatchedPage, chromium, watched_page
from lakehouse import Lakehouse
from playwright.sync_api import Browser, expect
from sink_case import SinkCase
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.timeout(600)
CONNECTORS = 1000
FIRST_VIEW_SECONDS = 1.0
FRONT_BYTES = 150e6
PLUGIN = "org.apache.kafka.connect.file.FileStreamSinkConnector"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
HOSTILE = '<img src=x onerror="document.title=1">&amp;\'"`$'


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def worker(
    tmp_path_factory: pytest.TempPathFactory,
    kafka_broker: KafkaBroker,
    spark_environment: dict[str, str],
) -> Iterator[WorkerProcess]:
    made = WorkerProcess(
        tmp_path_factory.mktemp("worker"), kafka_broker.bootstrap_servers, "page-views"
    )
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture
def page(browser: Browser, worker: WorkerProcess) -> Iterator[WatchedPage]:
    with watched_page(browser, worker.url) as page:
        yield page


@pytest.fixture
def case(worker: WorkerProcess, tmp_path: Path, kafka_broker: KafkaBroker) -> SinkCase:
    name = "orders-sink"
    extra = {
        "errors.deadletterqueue.iceberg.table": "shop.dead_letters",
        "errors.deadletterqueue.iceberg.replay.topic": f"{name}-again",
        "iceberg.tables": "shop.orders",
        "iceberg.ext.evolution.add-column": "hold",
        "iceberg.control.commit.interval-ms": "1000",
    }
    return SinkCase(
        worker, Lakehouse(tmp_path / "lake"), kafka_broker.bootstrap_servers, name, extra
    ).create_topic(2)


class SinkStory:
    """Actions of a user on the page, in order."""

    def __init__(self, page: WatchedPage, case: SinkCase) -> None:
        self.page = page
        self.case = case
        self.next = 0

    def produce(self, count: int, **more: object) -> None:
        ids = range(self.next, self.next + count)
        self.next = ids.stop
        self.case.produce(
            *({"id": n, "customer": f"customer {n % 7}", "amount": n * 1.25, **more} for n in ids)
        )

    def rows(self) -> int:
        return self.case.lakehouse.rows("shop.orders").num_rows

    def await_rows(self, count: int) -> None:
        self.case.worker.wait_until(
            lambda: self.rows() == count, 90, f"{count} rows, not {self.rows()}"
        )

    def create(self) -> None:
        """Create a connector from JSON, which is checked in the form; it starts stopped, with a
        preview.
        """
        self.produce(40)
        page, browser_page = self.page, self.page.page
        page.open("#/create")
        browser_page.get_by_text("As JSON, secrets hidden").wait_for(state="detached")
        config = self.case.config()
        browser_page.get_by_label("Plugin").select_option(
            "org.apache.iceberg.connect.IcebergSinkConnector"
        )
        browser_page.get_by_text("As JSON, secrets hidden").click()
        browser_page.get_by_label("JSON of a connector").fill(
            json.dumps({"name": self.case.name, "config": config})
        )
        page.press("Fill in the form")
        page.sees("The worker finds no mistake")
        page.assert_accessible()
        page.picture("create")
        page.press("Create stopped, and preview")
        page.press("Preview")
        page.sees("would be created", 60)
        page.sees("CREATE TABLE shop.orders")
        page.assert_accessible()
        page.picture("preview")
        page.press("Resume")
        self.await_rows(40)

    def fail_and_mend(self) -> None:
        """A record that is no JSON fails the task; then such records become dead letters."""
        page = self.page
        self.case.produce(b'{"id": 40, "customer": "Ada", "amount"')
        page.open(f"#/connectors/{self.case.name}")
        page.sees("Restart task 0", 60)
        page.picture("failed")
        page.assert_accessible()
        page.page.get_by_role("link", name="Configuration").click()
        page.press("Edit")
        page.page.get_by_label("errors.tolerance", exact=True).fill("all")
        page.sees("The worker finds no mistake")
        page.press("Save and restart")
        page.sees("has its new configuration")
        self.case.await_running()
        self.case.worker.wait_until(
            lambda: self.case.lakehouse.rows("shop.dead_letters").num_rows == 1,
            90,
            "the dead letter",
        )

    def replay(self) -> None:
        """Fix the value of the dead-letter record, and replay it."""
        page = self.page
        page.page.get_by_role("link", name="Dead-letter records").click()
        page.sees("1 dead letter in shop.dead_letters", 60)
        page.page.get_by_text("Record", exact=True).last.click()
        page.page.get_by_label("Value of").fill('{"id": 40, "customer": "Ada", "amount": 50.0}')
        page.assert_accessible()
        page.picture("dead-letters")
        page.page.route("**/operations/replay", lambda route: route.abort())
        page.press("Replay 1")
        page.agree("Replay")
        page.sees("The worker does not answer")
        page.page.unroute("**/operations/replay")
        page.press("Replay 1")  # the input is still present
        page.agree("Replay")
        page.sees("1 dead letter replayed", 60)
        self.await_rows(41)
        self.next = 41

    def approve(self) -> None:
        """Rows with a new field wait until the user lets the table have its column."""
        page = self.page
        self.produce(9, discount=0.1)
        page.open(f"#/connectors/{self.case.name}")
        page.sees("add column discount of type double", 60)
        page.assert_accessible()
        page.picture("schema-change")
        page.press("Approve")
        page.agree("Approve")
        self.await_rows(50)
        assert "discount" in self.case.lakehouse.rows("shop.orders").column_names
        expect(page.page.get_by_text("Table changes that wait for you")).to_have_count(
            0, timeout=30_000
        )

    def follow(self) -> None:
        """Show lag and commits while rows arrive."""
        page = self.page
        page.open(f"#/connectors/{self.case.name}/table/shop.orders")
        for _ in range(12):
            self.produce(30, discount=0.2)
            time.sleep(1.1)
        self.await_rows(410)
        page.open(f"#/connectors/{self.case.name}/table/shop.orders")
        page.sees("Freshness at each commit", 60)
        page.sees("Last commits")
        page.assert_accessible()
        page.page.emulate_media(color_scheme="dark")
        page.assert_accessible()
        page.page.emulate_media(color_scheme="light")
        page.picture("table", "light", "dark")
        page.open(f"#/connectors/{self.case.name}")
        page.sees("records to read")
        time.sleep(10)  # some samples for the plots
        page.picture("connector")
        page.assert_accessible()

    def look_around(self, folder: Path) -> None:
        """Other connectors, in other states."""
        page, worker = self.page, self.case.worker
        for name, target in {
            "audit-log": "",
            "customers-export": "pause",
            "legacy-export": "stop",
            "returns": "",
        }.items():
            file = folder / "missing" / name if name == "returns" else folder / name
            config = {
                "connector.class": PLUGIN,
                "topics": self.case.name,
                "file": str(file),
                "tasks.max": "1",
            }
            worker.put(name, config | {f"{side}.converter": TEXT for side in ("key", "value")})
            if target:
                # paused before, it would have no task
                worker.wait_for_states(name, "RUNNING", "RUNNING")
                assert httpx.put(
                    f"{worker.url}/connectors/{name}/{target}", timeout=100
                ).status_code in (202, 204)
        worker.wait_for_states("returns", "RUNNING", "FAILED")
        worker.wait_for_states("legacy-export", "STOPPED")
        worker.wait_for_states("customers-export", "PAUSED", "PAUSED")
        page.open()
        page.sees("Failed 1")
        page.assert_accessible()
        page.picture("connectors")
        page.open("#/workers")
        page.sees("Workers and what they run")
        page.picture("workers")


@pytest.mark.long  # in every run: tests/acceptance/test_page_story.py
def test_sink_is_created_followed_mended_and_its_table_changed(
    page: WatchedPage, case: SinkCase, tmp_path: Path
) -> None:
    story = SinkStory(page, case)
    story.create()
    story.fail_and_mend()
    story.replay()
    story.approve()
    story.follow()
    story.look_around(tmp_path)


@pytest.mark.long
def test_hostile_names_and_traces_are_shown_as_texts(
    page: WatchedPage, worker: WorkerProcess
) -> None:
    name = HOSTILE
    config = {
        "connector.class": PLUGIN,
        "topics": "t",
        "file": f"/no/such/folder/{HOSTILE}",
        "tasks.max": "1",
    }
    answer = httpx.post(
        f"{worker.url}/connectors", json={"name": name, "config": config}, timeout=100
    )
    assert answer.status_code == 201, answer.text
    worker.wait_until(
        lambda: worker.states(quote(name, safe=""))[1:] == ["FAILED"], 60, "the task to fail"
    )
    page.open()
    page.sees(name)
    page.page.get_by_role("link", name=name).click()
    for tab in ("Overview", "Offsets", "Configuration"):
        page.page.get_by_role("link", name=tab).click()
        page.sees(name)
        assert page.page.locator("img").count() == 1  # the page's own
        assert page.page.title() != "1"


@pytest.mark.long
def test_secrets_of_a_configuration_are_not_shown(page: WatchedPage, worker: WorkerProcess) -> None:
    secrets = {
        "consumer.override.sasl.jaas.config": f'{LOGIN} required username="a" '
        f'password="planted-secret-1";',
        "transforms.x.api-key": "planted-secret-2",
        "value.converter.schema.registry.url": "http://ann:planted-secret-3@registry/",
    }
    config = {"connector.class": PLUGIN, "topics": "t", "tasks.max": "1", **secrets}
    body = {"name": "closed", "config": config, "initial_state": "STOPPED"}
    answer = httpx.post(f"{worker.url}/connectors", json=body, timeout=100)
    assert answer.status_code == 201, answer.text
    page.open("#/connectors/closed/config")
    page.sees("[hidden]")
    assert "planted-secret" not in page.page.content()
    page.press("Edit")
    page.page.get_by_label("tasks.max", exact=True).fill("2")
    page.sees("The worker finds no mistake")
    page.press("Save and restart")
    page.sees("has its new configuration")
    kept = worker.get("/connectors/closed/config")
    assert {key: kept[key] for key in secrets} == secrets
    assert kept["tasks.max"] == "2"


@pytest.mark.long
def test_keyboard_alone_reaches_and_stops_a_connector(
    page: WatchedPage, worker: WorkerProcess, tmp_path: Path
) -> None:
    worker.put(
        "quiet",
        {"connector.class": PLUGIN, "topics": "t", "file": str(tmp_path / "out"), "tasks.max": "1"},
    )
    worker.wait_for_states("quiet", "RUNNING", "RUNNING")
    page.open()
    keyboard = page.page.keyboard

    def reach(text: str) -> None:
        for _ in range(40):
            keyboard.press("Tab")
            if page.page.evaluate("document.activeElement.textContent.trim()") == text:
                return
        raise AssertionError(f"Tab does not reach {text}")

    keyboard.press("Tab")
    assert page.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    reach("quiet")
    keyboard.press("Enter")
    page.sees("Tasks")
    reach("Stop")
    keyboard.press("Enter")
    reach("Stop")  # of the dialog
    keyboard.press("Enter")
    worker.wait_for_states("quiet", "STOPPED")


@pytest.mark.long
def test_users_log_in_and_other_sites_change_nothing(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, browser: Browser
) -> None:
    users, jaas = tmp_path / "users.properties", tmp_path / "jaas.conf"
    users.write_text("ann=secret-of-ann\n")
    module = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    jaas.write_text(f'KafkaConnect {{ {module} required file="{users}"; }};')
    extension = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}w",
        {"rest.extension.classes": extension},
        {"KAFKA_OPTS": f"-Djava.security.auth.login.config={jaas}"},
    )
    try:
        worker.start(wait=False)
        user = ("ann", "secret-of-ann")
        worker.wait_until(
            lambda: _status(f"{worker.url}/health", user) == 200, 60, "the worker to be healthy"
        )
        with watched_page(browser, worker.url, user) as page:
            page.open()
            page.sees("No connectors yet")
        with (
            other_site() as site,
            closing(
                browser.new_context(http_credentials={"username": user[0], "password": user[1]})
            ) as context,
        ):
            other = context.new_page()
            other.goto(site)
            script = (
                "url => fetch(url, {method: 'POST', mode: 'no-cors', credentials: "
                "'include'}).catch(() => 0)"
            )
            with other.expect_response(lambda answer: "/restart" in answer.url) as answer:
                other.evaluate(f"({script})('{worker.url}/connectors/x/restart')")
            assert answer.value.status == 403
        assert _status(f"{worker.url}/ui", None) == 401
    finally:
        worker.close()


def _status(url: str, user: tuple[str, str] | None) -> int:
    try:
        return httpx.get(url, auth=user, timeout=15).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.long
def test_thousand_connectors_are_shown_within_a_second(
    page: WatchedPage, worker: WorkerProcess
) -> None:
    names = [f"connector-{number:04}" for number in range(CONNECTORS)]
    with httpx.Client(base_url=worker.url, timeout=100) as client, ThreadPoolExecutor(8) as pool:

        def create(name: str) -> int:
            config = {
                "connector.class": PLUGIN,
                "topics": "t",
                "tasks.max": "1",
                "file": f"/tmp/{name}",
            }
            body = {"name": name, "config": config, "initial_state": "STOPPED"}
            return client.post("/connectors", json=body).status_code

        assert set(pool.map(create, names)) == {201}
    worker.wait_until(
        lambda: len(worker.get("/connectors?expand=status")) >= CONNECTORS,
        60,
        "statuses of all connectors",
    )
    page.open()
    page.sees("Stopped 1,00")
    took = []
    for _ in range(3):
        page.page.goto("about:blank")
        began = time.monotonic()
        page.page.goto(f"{worker.url}/ui")
        page.page.get_by_role(
            "link", name="connector-0000"
        ).wait_for()  # the first records are listed by name
        took.append(time.monotonic() - began)
    print(f"first view after {min(took):.2f} s (of {', '.join(f'{each:.2f}' for each in took)})")
    assert min(took) < FIRST_VIEW_SECONDS
    page.page.get_by_label("Name contains").fill("0999")
    page.page.get_by_role("link", name="connector-0999").wait_for()
    page.page.get_by_label("Name contains").fill("")
    page.press("Next")
    page.page.get_by_role("link", name="connector-0100").wait_for()
    page.assert_accessible()
    page.open("#/workers")
    page.sees("Workers and what they run")
    page.assert_accessible()
    page.page.goto(f"{worker.url}/docs")
    page.ready()
    page.sees("/connectors/{connector}/status")
    page.assert_accessible()
    front = psutil.Process(worker.pid).memory_info().rss
    print(f"the front process has {front / 1e6:.0f} MB")
    assert front < FRONT_BYTES


@contextmanager
def other_site() -> Iterator[str]:
    """The address of a page that is not the worker's."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Another site</title>")

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()

"""The page in a real Chromium on a real worker: a connector is created, fails, is fixed, and is
deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import WatchedPage, chromium, watched_page
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import expect
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

TWO_LINES = "first\n second "
PLUGIN = "org.apache.kafka.connect.file.FileStreamSinkConnector"
pytestmark = pytest.mark.timeout(420)  # where Chromium is to be installed first


@pytest.fixture
def worker(tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str) -> Iterator[WorkerProcess]:
    made = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, f"{topic_prefix}w")
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture
def page(worker: WorkerProcess) -> Iterator[WatchedPage]:
    with chromium() as browser, watched_page(browser, worker.url) as page:
        yield page


def test_connector_is_created_fails_is_mended_and_deleted(
    page: WatchedPage,
    worker: WorkerProcess,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    topic, file = f"{topic_prefix}lines", tmp_path / "lines.txt"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    page.open()
    page.sees("No connectors yet")
    page.page.get_by_role("link", name="New connector").first.click()
    page.ready()
    with page.answers_held("**/connector-plugins/*/config"):
        page.page.get_by_label("Plugin").select_option(PLUGIN)
        page.page.get_by_label("Name required").press_sequentially("li")
    page.page.get_by_label("file", exact=True).wait_for()
    page.page.keyboard.type("nes")  # at its position before the form was shown
    page.page.get_by_label("topics", exact=True).fill(topic)
    page.page.get_by_label("file", exact=True).fill(str(file))
    page.page.get_by_label("tasks.max", exact=True).fill("many")
    page.sees("Invalid value many for configuration tasks.max")
    page.assert_accessible()
    page.page.get_by_label("tasks.max", exact=True).fill("1")
    page.sees("The worker finds no mistake")
    page.page.get_by_role("button", name="Create and start").dblclick()
    worker.wait_for_states("lines", "RUNNING", "RUNNING")
    page.sees("lines is created")
    expect(page.page.get_by_text("already exists")).to_have_count(0)
    worker.put("lines", {**worker.get("/connectors/lines")["config"], "note": TWO_LINES})
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    producer.produce(topic, b"<b>no JSON</b>")
    assert producer.flush(30) == 0
    page.sees("Restart task 0", 40)  # it failed
    page.page.get_by_text("Trace", exact=True).click()
    page.sees("DataException")
    page.assert_accessible()
    page.page.get_by_role("link", name="Configuration").click()
    page.page.evaluate("delete Navigator.prototype.clipboard")  # as over plain HTTP
    page.press("Copy as JSON, secrets hidden")
    page.sees("Copied")
    page.press("Edit")
    page.page.get_by_label("errors.tolerance", exact=True).fill("all")
    page.sees("The worker finds no mistake")
    page.press("Save and restart")
    page.sees("has its new configuration")
    assert worker.get("/connectors/lines")["config"]["note"] == TWO_LINES
    worker.wait_for_states("lines", "RUNNING", "RUNNING")
    page.press("Stop")
    page.agree("Stop")
    worker.wait_for_states("lines", "STOPPED")
    page.press("Delete")
    page.page.get_by_role("dialog").get_by_role("textbox").fill("lines")
    page.agree("Delete")
    page.sees("No connectors yet")
    assert worker.get("/connectors") == []

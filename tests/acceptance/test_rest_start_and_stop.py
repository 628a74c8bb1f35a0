"""Responses of a worker while it starts and stops: only true statements, and no status 500."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from rest_serving import error
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

CONFIG = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
QUIET_SECONDS = 3.0  # an answer that does not wait comes within milliseconds
CODE = """
import time

from connect_py.api.config import ConfigDef
from connect_py.api.connector import SinkConnector
from connect_py.api.task import SinkTask


class LazyTask(SinkTask):
    def start(self, props):
        pass

    def put(self, records):
        pass

    def stop(self):
        time.sleep(4)


class LazySinkConnector(SinkConnector):
    task_class = LazyTask
    config_def = ConfigDef()

    def start(self, props):
        pass

    def stop(self):
        pass

    def task_configs(self, max_tasks):
        return [{} for _ in range(max_tasks)]
"""
TABLE = """
from connect_py.api.plugin import Plugin, PluginKind
PLUGINS = [Plugin(PluginKind.SINK, "test.LazySinkConnector", "lazy_plugin.lazy:LazySinkConnector")]
"""


class OpenTransaction:
    """A transaction in a topic: until it ends, nobody who reads committed records gets to the
    topic's end."""

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        settings = {"transactional.id": f"{topic}-open", "transaction.timeout.ms": 120_000}
        self._producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **settings})
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        self._producer.produce(topic, b"{}", b"session-key")
        self._producer.flush(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def accepts(worker: WorkerProcess) -> bool:
    try:
        return httpx.get(worker.url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.long
@pytest.mark.timeout(150)  # a worker starts twice, and its health takes 10 s to find out
def test_requests_wait_until_a_starting_worker_has_read_its_topics(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    """An empty list, or a status that is not found, would have a tool create everything again."""
    worker = WorkerProcess(tmp_path, kafka_broker.bootstrap_servers, f"{topic_prefix}g")
    try:
        worker.start()
        worker.put("a", CONFIG)
        worker.wait_for_states("a", "RUNNING", "RUNNING")
        assert worker.stop() == 0
        transaction = OpenTransaction(kafka_broker, f"{topic_prefix}g-config")
        worker.start(wait=False)
        worker.wait_until(lambda: accepts(worker), 30, "the REST API")
        wanted: dict[tuple[str, str], int] = {
            ("GET", "/connectors"): 200,
            ("GET", "/connectors?expand=status"): 200,
            ("GET", "/connectors/a"): 200,
            ("GET", "/connectors/a/status"): 200,
            ("GET", "/connectors/a/tasks/0/status"): 200,
            ("GET", "/connectors/a/topics"): 200,
            ("PUT", "/connectors/a/topics/reset"): 202,
            ("PUT", "/connectors/a/resume"): 202,
            ("PUT", "/connectors/zz/pause"): 404,
            ("GET", "/connectors/zz/status"): 404,
            ("PUT", "/admin/loggers/some.where?scope=cluster"): 204,
        }
        with ThreadPoolExecutor(len(wanted)) as pool:

            def ask(method: str, path: str) -> httpx.Response:
                body = {"level": "INFO"} if "loggers" in path else None
                return httpx.request(method, f"{worker.url}{path}", json=body, timeout=100)

            asked = {request: pool.submit(ask, *request) for request in wanted}
            try:
                time.sleep(QUIET_SECONDS)
                assert {
                    request: answer.result().text
                    for request, answer in asked.items()
                    if answer.done()
                } == {}
                assert worker.get("/connector-plugins")
                assert worker.get("/admin/loggers")
                health = httpx.get(f"{worker.url}/health", timeout=30)
                assert (health.status_code, health.json()["status"]) == (503, "starting")
                assert (
                    "initializing and reading to the end of internal topics"
                    in health.json()["message"]
                )
            finally:
                transaction.abort()
            assert {
                request: answer.result().status_code for request, answer in asked.items()
            } == wanted
            assert asked["GET", "/connectors"].result().json() == ["a"]
            assert list(asked["GET", "/connectors?expand=status"].result().json()) == ["a"]
    finally:
        worker.close()


@pytest.mark.long
@pytest.mark.timeout(150)  # a worker starts
def test_waiting_requests_get_503_when_a_starting_worker_stops(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    worker = WorkerProcess(tmp_path, kafka_broker.bootstrap_servers, f"{topic_prefix}g")
    try:
        worker.start()
        assert worker.stop() == 0
        transaction = OpenTransaction(kafka_broker, f"{topic_prefix}g-config")
        worker.start(wait=False)
        worker.wait_until(lambda: accepts(worker), 30, "the REST API")
        with ThreadPoolExecutor(2) as pool:
            asked = [
                pool.submit(httpx.get, f"{worker.url}{path}", timeout=100)
                for path in ("/connectors", "/connectors/a")
            ]
            time.sleep(1)
            worker.stop()
            assert [error(answer.result()) for answer in asked] == [
                (503, "Worker is shutting down")
            ] * 2
        transaction.abort()
    finally:
        worker.close()


def lazy_plugin(folder: Path) -> Path:
    """Create a folder for `plugin.path`: a sink whose tasks stop slowly."""
    code = folder / "lazy" / "lazy_plugin"
    code.mkdir(parents=True)
    (code / "__init__.py").write_text(TABLE)
    (code / "lazy.py").write_text(CODE)
    metadata = folder / "lazy" / "lazy_plugin-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: lazy_plugin\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[connect_py.plugins]\nlazy = lazy_plugin\n")
    return folder


@pytest.mark.long  # in every run: test_request_after_the_end_fails_immediately
@pytest.mark.timeout(150)  # a worker starts, and stops slowly
def test_no_request_is_answered_with_500_while_a_worker_stops(
    kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path
) -> None:
    worker = WorkerProcess(
        tmp_path / "w",
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}g",
        {"plugin.path": str(lazy_plugin(tmp_path / "plugins"))},
    )
    config = {"connector.class": "test.LazySinkConnector", "topics": "t"}
    calls: list[Callable[[httpx.Client], httpx.Response]] = [
        lambda http: http.get("/connectors"),
        lambda http: http.get("/connectors?expand=status&expand=info"),
        lambda http: http.get("/connectors/a"),
        lambda http: http.get("/connectors/a/status"),
        lambda http: http.get("/connectors/a/tasks"),
        lambda http: http.get("/connectors/a/offsets"),
        lambda http: http.put("/connectors/a/config", json=config),
        lambda http: http.put(
            "/connectors/b/config", json={**config, "connector.class": "FileStreamSink"}
        ),
        lambda http: http.put("/connectors/a/pause"),
        lambda http: http.put("/connectors/a/resume"),
        lambda http: http.post("/connectors/a/restart"),
        lambda http: http.post("/connectors/a/restart?includeTasks=true"),
        lambda http: http.post("/connectors/a/tasks/0/restart"),
        lambda http: http.put("/connector-plugins/FileStreamSink/config/validate", json=CONFIG),
        lambda http: http.get("/connector-plugins/FileStreamSink/config"),
        lambda http: http.get("/health"),
        lambda http: http.get("/metrics"),
        lambda http: http.put("/admin/loggers/some.where?scope=cluster", json={"level": "INFO"}),
    ]
    told: Counter[tuple[int, int, str]] = Counter()
    ended = threading.Event()

    def ask(number: int) -> None:
        while not ended.is_set():
            try:
                with httpx.Client(base_url=worker.url, timeout=100) as http:
                    response = calls[number](http)
            except httpx.TransportError:
                time.sleep(0.02)  # its sockets are closed
                continue
            told[
                number,
                response.status_code,
                response.text[:200] if response.status_code >= 500 else "",
            ] += 1
            time.sleep(0.02)

    try:
        worker.start()
        worker.put("a", config)
        worker.wait_for_states("a", "RUNNING", "RUNNING")
        with ThreadPoolExecutor(len(calls)) as pool:
            asking = [pool.submit(ask, number) for number in range(len(calls))]
            try:
                time.sleep(1)
                worker.processes()
                assert worker._process is not None
                worker._process.send_signal(signal.SIGTERM)
                assert worker.wait(40) == 0
            finally:
                ended.set()
            for one in asking:
                one.result(30)
        shutting_down = '{"error_code":503,"message":"Worker is shutting down"}'
        assert {
            key: count
            for key, count in told.items()
            if key[1] >= 500 and key[1:] != (503, shutting_down)
        } == {}
        assert {503} <= {status for _, status, _ in told}
    finally:
        worker.close()

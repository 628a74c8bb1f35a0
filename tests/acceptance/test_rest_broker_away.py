"""Responses of a worker while Kafka is not reachable."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from rest_serving import error
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

CONFIG = {"connector.class": "FileStreamSink", "topics": "t", "file": "/dev/null"}
STAGE = r"The worker is currently ensuring membership in the cluster, which began at [\d:TZ.-]+\."
UNHEALTHY = re.compile(
    rf"Worker was unable to handle this request and may be unable to handle other requests\. "
    rf"{STAGE}"
)
AT_ONCE = 5.0  # seconds


@contextmanager
def worker_whose_broker_went_away(
    folder: Path,
) -> Iterator[tuple[WorkerProcess, KafkaBroker, httpx.Client]]:
    """Provide a worker with a connector `a`, as soon as it reports that it is unhealthy."""
    with KafkaBroker() as broker:
        worker = WorkerProcess(folder, broker.bootstrap_servers, "broker-away")
        try:
            worker.start()
            worker.put("a", CONFIG)
            worker.wait_for_states("a", "RUNNING", "RUNNING")
            broker.stop()
            with httpx.Client(base_url=worker.url, timeout=100) as client:
                worker.wait_until(
                    lambda: says_so(client), 120, "the worker to say that it is unhealthy"
                )
                yield worker, broker, client
        finally:
            worker.close()


def says_so(client: httpx.Client) -> bool:
    answer = client.get("/health")
    return (answer.status_code, answer.json()["status"]) == (
        500,
        "unhealthy",
    ) and UNHEALTHY.fullmatch(answer.json()["message"]) is not None


@pytest.mark.long
@pytest.mark.timeout(300)  # a session has to time out, and health takes 10 s to find out
def test_reads_are_answered_immediately_without_a_broker(tmp_path: Path) -> None:
    with worker_whose_broker_went_away(tmp_path) as (worker, broker, client):
        begun = time.monotonic()
        assert client.get("/connectors").json() == ["a"]
        assert client.get("/connectors/a/status").status_code == 200
        assert client.get("/").status_code == 200
        assert client.get("/connector-plugins").status_code == 200
        assert client.put(
            "/connector-plugins/FileStreamSink/config/validate", json=CONFIG
        ).is_success
        assert time.monotonic() - begun < AT_ONCE
        broker.restart()
        worker.wait_until(worker.healthy, 120, "the worker to be healthy again")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_write_without_a_broker_times_out_naming_the_stage(tmp_path: Path) -> None:
    with worker_whose_broker_went_away(tmp_path) as (_, _, client):
        status, message = error(client.put("/connectors/b/config", json=CONFIG))
        assert status == 500
        assert re.fullmatch(rf"Request timed out\. {STAGE}", message)


@pytest.mark.long
# a worker and a dedicated broker start, and the client reports on its brokers every 5 s
@pytest.mark.timeout(400)
def test_sink_status_reports_that_its_own_cluster_is_unavailable(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    with KafkaBroker() as other:
        worker = WorkerProcess(tmp_path, kafka_broker.bootstrap_servers, "other-away")

        def waits_for() -> tuple[str, str]:
            waiting = worker.get("/connectors/a/status")["tasks"][0].get("waiting", {})
            return waiting.get("for", ""), waiting.get("reason", "")

        try:
            worker.start()
            worker.put(
                "a", {**CONFIG, "consumer.override.bootstrap.servers": other.bootstrap_servers}
            )
            worker.wait_for_states("a", "RUNNING", "RUNNING")
            other.stop()
            worker.wait_until(
                lambda: waits_for()[0] == "broker", 40, "the status to tell of the broker"
            )
            assert "refused" in waits_for()[1] or "Disconnected" in waits_for()[1]
            assert worker.states("a") == ["RUNNING", "RUNNING"]
            other.restart()
            worker.wait_until(lambda: waits_for() == ("", ""), 60, "the status to be without it")
        finally:
            worker.close()

"""Requests that follow a change at once: they wait until the change is in force, and are not
refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

TOPIC = "after-changes"
TRIES = 8
TASKS = 3


@pytest.fixture(scope="module")
def workers(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[WorkerProcess]]:
    """Two workers of a group."""
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    folder = tmp_path_factory.mktemp("after")
    found = [
        WorkerProcess(
            folder / name,
            kafka_broker.bootstrap_servers,
            "after-changes",
            {"scheduled.rebalance.max.delay.ms": "1000"},
        )
        for name in ("one", "two")
    ]
    try:
        for worker in found:
            worker.start(wait=False)
        for worker in found:
            worker.wait_until(worker.healthy, 90, "the worker to be healthy")
        yield found
    finally:
        for worker in found:
            worker.close()


def sink(tmp_path: Path, number: int = 0) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSink",
        "topics": TOPIC,
        "tasks.max": str(TASKS),
        "file": str(tmp_path / f"lines-{number}"),
    }


def answers(worker: WorkerProcess, method: str, path: str) -> tuple[int, str]:
    response = httpx.request(method, f"{worker.url}{path}", timeout=100)
    return response.status_code, response.text


@pytest.mark.long
@pytest.mark.timeout(400)  # two workers start, and tasks restart again and again
def test_restart_after_a_configuration_change_waits_for_the_new_tasks(
    workers: list[WorkerProcess], tmp_path: Path
) -> None:
    """The tasks of the old configuration are being stopped, or stand nowhere yet."""
    one = workers[0]
    one.put("a", sink(tmp_path))
    one.wait_for_states("a", *["RUNNING"] * (1 + TASKS))
    told = []
    for number in range(1, TRIES + 1):
        one.put("a", sink(tmp_path, number))
        told += [
            answers(one, "POST", f"/connectors/a/tasks/{task}/restart") for task in range(TASKS)
        ]
    assert told == [(204, "")] * (TRIES * TASKS)
    one.put("a", sink(tmp_path))
    assert answers(one, "POST", "/connectors/a/restart") == (204, "")
    one.put("a", sink(tmp_path, 1))
    assert answers(one, "POST", "/connectors/a/restart?includeTasks=true")[0] == 202
    one.wait_for_states("a", *["RUNNING"] * (1 + TASKS))


@pytest.mark.long  # in every run: test_restarts_touch_what_was_asked_for
def test_restart_after_creation_waits_until_the_connector_is_assigned(
    workers: list[WorkerProcess], tmp_path: Path
) -> None:
    for number in range(TRIES):
        name = f"new{number}"
        workers[0].put(name, sink(tmp_path))
        assert answers(workers[0], "POST", f"/connectors/{name}/restart") == (204, "")
        workers[0].delete(name)


@pytest.mark.long  # in every run: test_restarts_touch_what_was_asked_for
@pytest.mark.timeout(400)  # two workers start
def test_offset_reset_right_after_a_stop_waits_for_the_tasks(
    workers: list[WorkerProcess], tmp_path: Path
) -> None:
    one = workers[0]
    one.put("o", sink(tmp_path))
    for _ in range(TRIES // 2):
        assert answers(one, "PUT", "/connectors/o/resume")[0] == 202
        one.wait_for_states("o", *["RUNNING"] * (1 + TASKS))
        assert answers(one, "PUT", "/connectors/o/stop") == (204, "")
        status, text = answers(one, "DELETE", "/connectors/o/offsets")
        assert status == 200, text

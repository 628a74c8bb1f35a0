"""Tasks that request the stop of their connector."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker, herder_without_broker

from connect_py.herder.connect_herder import ConnectHerder
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.herder.local_work.task_set import is_current
from connect_py.model import ConnectorTaskId, State, TargetState
from connect_py.storage.config_state import ClusterConfigState
from rest.entities import connector_status

SECONDS = 30.0
SINK: dict[str, str | None] = {"name": "a", "connector.class": "DemoSink", "topics": "t"}
TASK = ConnectorTaskId("a", 0)
STATE = ClusterConfigState(
    configs={"a": {"x": "1"}},
    applied_configs={"a": {"x": "1"}},
    start_numbers={"a": 7},
    target_states={"a": TargetState.STARTED},
)


@dataclass
class RunningHerder:
    """A herder with one running sink, and its fake worker."""

    herder: ConnectHerder
    worker: FakeWorker

    def start_number(self) -> int:
        _, start_number = self.worker.connectors["a"].tasks[0]
        return start_number

    def request_stop(self, start_number: int, reason: str = "all records are read") -> None:
        """Request the stop like a task, and wait until the herder has processed the request."""
        self.worker.listener.on_stop_requested(TASK, start_number, reason)
        self.herder.connector_info("a").result(SECONDS)
        # the first request may have queued another one
        self.herder.connector_info("a").result(SECONDS)

    def state(self) -> State:
        return self.herder.connector_status("a").connector.state

    def await_state(self, expected: State) -> None:
        deadline = time.monotonic() + SECONDS
        while self.state() is not expected:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def stop_reason(self) -> object:
        """Return the part of the REST response about the stop."""
        return connector_status(self.herder.connector_status("a"))["connector"].get("stopped")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningHerder]:
    workers: list[FakeWorker] = []

    def create_worker(publisher: StatusPublisher) -> FakeWorker:
        workers.append(FakeWorker(publisher))
        return workers[0]

    herder = herder_without_broker(tmp_path, create_worker)
    herder.start()
    herder.put_connector("a", SINK, replace=False).result(SECONDS)
    yield RunningHerder(herder, workers[0])
    assert herder.stop(SECONDS)


def test_connector_stops_on_request_of_its_task_and_reports_the_reason(
    running: RunningHerder,
) -> None:
    start_number = running.start_number()
    running.request_stop(start_number)
    running.await_state(State.STOPPED)
    assert running.stop_reason() == {"reason": "all records are read"}
    assert running.herder.connector_status("a").tasks == {}
    running.request_stop(start_number, "a second request of a task that is still stopping")
    assert running.herder.connector_status("a").stop_reason == "all records are read"
    running.herder.resume_connector("a")
    running.await_state(State.RUNNING)
    assert running.stop_reason() is None
    running.herder.stop_connector("a").result(SECONDS)
    running.await_state(State.STOPPED)
    assert running.stop_reason() is None


def test_stop_request_for_an_earlier_configuration_is_ignored(running: RunningHerder) -> None:
    earlier = running.start_number()
    running.herder.put_connector("a", {**SINK, "demo.x": "2"}, replace=True).result(SECONDS)
    running.request_stop(earlier)
    assert running.state() is State.RUNNING
    running.request_stop(running.start_number())
    running.await_state(State.STOPPED)


def test_stop_request_leaves_a_paused_connector_paused(running: RunningHerder) -> None:
    running.herder.pause_connector("a")
    running.await_state(State.PAUSED)
    running.request_stop(running.start_number())
    assert running.state() is State.PAUSED


def test_start_number_is_current_until_configuration_or_target_state_changes() -> None:
    assert is_current(STATE, "a", 7)
    assert is_current(replace(STATE, configs={"a": {"x": "1"}}), "a", 7)  # written again, unchanged
    assert not is_current(STATE, "a", 6)
    assert not is_current(STATE, "b", 7)
    # the tasks of the new configuration are not known yet
    assert not is_current(replace(STATE, configs={"a": {"x": "2"}}), "a", 7)
    assert not is_current(replace(STATE, target_states={"a": TargetState.PAUSED}), "a", 7)
    assert not is_current(replace(STATE, target_states={"a": TargetState.STOPPED}), "a", 7)

"""Tasks that ask for the stop of their connector."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker, standalone_herder

from connect_py.herder.standalone_herder import StandaloneHerder
from connect_py.herder.work.task_set import is_current
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


@pytest.fixture
def herder(tmp_path: Path) -> Iterator[StandaloneHerder]:
    herder = standalone_herder(tmp_path, FakeWorker)
    herder.start()
    herder.put_connector("a", SINK, replace=False).result(SECONDS)
    yield herder
    assert herder.stop(SECONDS)


def start_number(herder: StandaloneHerder) -> int:
    return herder._configs.snapshot().start_numbers["a"]


def ask(herder: StandaloneHerder, start: int, reason: str = "all is read") -> None:
    """As the worker passes on what a task says; returns once the herder has done what follows."""
    herder._publisher.on_stop_requested(TASK, start, reason)
    herder._request(lambda: None).result(SECONDS)
    # behind the request that the first one may have put there
    herder._request(lambda: None).result(SECONDS)


def state(herder: StandaloneHerder) -> State:
    return herder.connector_status("a").connector.state


def await_state(herder: StandaloneHerder, wanted: State) -> None:
    deadline = time.monotonic() + SECONDS
    while state(herder) is not wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_connector_stops_as_its_task_asks_and_says_why(herder: StandaloneHerder) -> None:
    ask(herder, start_number(herder))
    await_state(herder, State.STOPPED)
    shown = connector_status(herder.connector_status("a"))
    assert shown["connector"]["stopped"] == {"reason": "all is read"}
    assert shown["tasks"] == []
    ask(herder, start_number(herder), "a task that ends late asks again")
    assert herder.connector_status("a").stop_reason == "all is read"
    herder.resume_connector("a")
    await_state(herder, State.RUNNING)
    assert "stopped" not in connector_status(herder.connector_status("a"))["connector"]
    herder.stop_connector("a").result(SECONDS)
    await_state(herder, State.STOPPED)
    assert "stopped" not in connector_status(herder.connector_status("a"))["connector"]


def test_request_of_an_earlier_configuration_stops_no_later_one(herder: StandaloneHerder) -> None:
    before = start_number(herder)
    herder.put_connector("a", {**SINK, "demo.x": "2"}, replace=True).result(SECONDS)
    ask(herder, before)
    assert state(herder) is State.RUNNING
    ask(herder, start_number(herder))
    await_state(herder, State.STOPPED)


def test_request_for_a_paused_connector_leaves_it_paused(herder: StandaloneHerder) -> None:
    herder.pause_connector("a")
    await_state(herder, State.PAUSED)
    ask(herder, start_number(herder))
    assert state(herder) is State.PAUSED


def test_start_counts_until_the_configuration_or_the_target_changes() -> None:
    assert is_current(STATE, "a", 7)
    assert is_current(replace(STATE, configs={"a": {"x": "1"}}), "a", 7)  # written again as it was
    assert not is_current(STATE, "a", 6)
    assert not is_current(STATE, "b", 7)
    # its tasks are not known yet
    assert not is_current(replace(STATE, configs={"a": {"x": "2"}}), "a", 7)
    assert not is_current(replace(STATE, target_states={"a": TargetState.PAUSED}), "a", 7)
    assert not is_current(replace(STATE, target_states={"a": TargetState.STOPPED}), "a", 7)

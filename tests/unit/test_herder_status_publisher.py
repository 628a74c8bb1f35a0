"""Waiting reasons and warnings are published together with the state RUNNING, and only with it."""

from __future__ import annotations

import pytest
from fixtures.herder_statuses import StatusPublisherFixture

from connect_py.model import ConnectorTaskId, State, Status, Waiting

TASK = ConnectorTaskId("c", 0)
CATALOG = Waiting("catalog", 1_000, "refused")


@pytest.fixture
def statuses() -> StatusPublisherFixture:
    return StatusPublisherFixture()


def published(statuses: StatusPublisherFixture) -> list[tuple[State, Waiting | None]]:
    return [(status.state, status.waiting) for _, status in statuses.store.written]


def test_running_task_status_is_published_when_waiting_begins_and_ends(
    statuses: StatusPublisherFixture,
) -> None:
    publisher = statuses.publisher
    publisher.on_waiting(TASK, CATALOG)
    assert statuses.store.written == [], "the task is not running yet"
    publisher.on_state(TASK, State.RUNNING)
    publisher.on_waiting(TASK, None)
    publisher.on_waiting(TASK, CATALOG)
    publisher.on_state(TASK, State.PAUSED)
    publisher.on_state(TASK, State.RUNNING)
    assert published(statuses) == [
        (State.RUNNING, CATALOG),
        (State.RUNNING, None),
        (State.RUNNING, CATALOG),
        (State.PAUSED, None),
        (State.RUNNING, CATALOG),
    ]


@pytest.mark.parametrize("end", [State.FAILED, State.RESTARTING, State.UNASSIGNED])
def test_restarted_task_status_shows_no_earlier_waiting_reason(
    statuses: StatusPublisherFixture, end: State
) -> None:
    statuses.publisher.on_state(TASK, State.RUNNING)
    statuses.publisher.on_waiting(TASK, CATALOG)
    statuses.publisher.on_state(TASK, end)
    statuses.publisher.on_state(TASK, State.RUNNING)
    assert published(statuses)[-2:] == [(end, None), (State.RUNNING, None)]


def test_repair_publishes_the_waiting_reason_of_a_connector_again(
    statuses: StatusPublisherFixture,
) -> None:
    statuses.publisher.on_state("c", State.RUNNING)
    statuses.publisher.on_waiting("c", CATALOG)
    statuses.store.put("c", Status(State.RUNNING, "other:1", 9))
    statuses.clock.sleep(10)
    statuses.publisher.repair(["c"])
    assert published(statuses)[-1] == (State.RUNNING, CATALOG)


def test_warnings_are_shown_while_the_task_runs(statuses: StatusPublisherFixture) -> None:
    publisher = statuses.publisher
    publisher.on_warnings(TASK, ("many snapshots",))
    publisher.on_state(TASK, State.RUNNING)
    publisher.on_state(TASK, State.PAUSED)
    publisher.on_state(TASK, State.RUNNING)
    publisher.on_warnings(TASK, ())
    publisher.on_warnings(TASK, ("many files",))
    publisher.on_state(TASK, State.FAILED, "trace")
    publisher.on_state(TASK, State.RUNNING)
    assert [status.warnings for _, status in statuses.store.written] == [
        ("many snapshots",),
        (),
        ("many snapshots",),
        (),
        ("many files",),
        (),
        (),
    ]

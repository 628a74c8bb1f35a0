"""Statuses that somebody else has written over: what runs here is said again."""

from __future__ import annotations

import pytest
from fixtures.storage_fake_clock import FakeClock

from connect_py.herder.work.status_publisher import REPAIR_SECONDS, StatusPublisher
from connect_py.model import ConnectorTaskId, State, Status
from connect_py.storage.status_table import StatusId

HERE, THERE = "w0:8083", "w1:8083"
TASK = ConnectorTaskId("a", 0)


class FakeStore:
    """A status store whose records are read back at once."""

    def __init__(self) -> None:
        self.statuses: dict[StatusId, Status] = {}

    def get(self, id: StatusId) -> Status | None:  # noqa: A002 - Connect's word
        return self.statuses.get(id)

    def put(self, id: StatusId, status: Status) -> None:  # noqa: A002 - Connect's word
        self.statuses[id] = status


class Said:
    """A publisher of the worker HERE, its store and its clock."""

    def __init__(self) -> None:
        self.store, self.clock, self.leased = FakeStore(), FakeClock(), True
        self.publisher = StatusPublisher(self.store, HERE, track_topics=False, clock=self.clock)  # type: ignore[arg-type]  # the fake is one
        self.publisher.may_publish = lambda: self.leased

    def state(self, id: StatusId) -> tuple[State, str]:  # noqa: A002 - Connect's word
        status = self.store.statuses[id]
        return status.state, status.worker_id

    def repair_later(self) -> None:
        self.clock.sleep(REPAIR_SECONDS + 0.1)
        self.publisher.repair(["a", TASK])


@pytest.fixture
def said() -> Said:
    said = Said()
    said.publisher.on_state("a", State.RUNNING)
    said.publisher.on_state(TASK, State.RUNNING)
    return said


@pytest.mark.parametrize("worker", [HERE, THERE])
def test_overwritten_status_is_published_again_for_any_worker_named(
    said: Said, worker: str
) -> None:
    """A leader that believes a worker gone writes UNASSIGNED in that worker's name, perhaps after
    its return."""
    for item in ("a", TASK):
        said.store.put(item, Status(State.UNASSIGNED, worker, 7))
    said.repair_later()
    assert said.state("a") == said.state(TASK) == (State.RUNNING, HERE)


def test_a_status_that_stands_is_not_said_again(said: Said) -> None:
    before = dict(said.store.statuses)
    said.repair_later()
    assert all(said.store.statuses[item] is before[item] for item in before)


def test_status_ended_with_the_lease_is_not_repaired_to_running(said: Said) -> None:
    said.leased = False
    said.publisher.on_state("a", State.UNASSIGNED)
    said.publisher.on_state(TASK, State.FAILED, "the lease ended")
    for item in ("a", TASK):
        said.store.put(item, Status(State.UNASSIGNED, HERE, 7))
    said.leased = True
    said.repair_later()
    assert said.state("a") == said.state(TASK) == (State.UNASSIGNED, HERE)

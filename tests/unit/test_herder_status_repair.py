"""Statuses that another worker has overwritten are published again."""

from __future__ import annotations

import pytest
from fixtures.herder_statuses import StatusPublisherFixture

from connect_py.herder.local_work.status_publisher import REPAIR_SECONDS
from connect_py.model import ConnectorTaskId, State, Status

THIS_WORKER, OTHER_WORKER = "w0:8083", "w1:8083"
TASK = ConnectorTaskId("a", 0)


class RepairFixture(StatusPublisherFixture):
    """A publisher of THIS_WORKER with a running connector and task."""

    def __init__(self) -> None:
        super().__init__(THIS_WORKER)
        self.publisher.on_state("a", State.RUNNING)
        self.publisher.on_state(TASK, State.RUNNING)

    def overwrite(self, status: Status) -> None:
        for item in ("a", TASK):
            self.store.put(item, status)

    def repair_later(self) -> None:
        self.clock.sleep(REPAIR_SECONDS + 0.1)
        self.publisher.repair(["a", TASK])

    def states(self) -> set[tuple[State, str]]:
        statuses = [self.store.get("a"), self.store.get(TASK)]
        return {(status.state, status.worker_id) for status in statuses if status is not None}


@pytest.fixture
def statuses() -> RepairFixture:
    return RepairFixture()


@pytest.mark.parametrize("worker", [THIS_WORKER, OTHER_WORKER])
def test_overwritten_status_is_published_again_for_any_worker_in_it(
    statuses: RepairFixture, worker: str
) -> None:
    """A leader that considers a worker lost writes UNASSIGNED on behalf of this worker, possibly
    after its return."""
    statuses.overwrite(Status(State.UNASSIGNED, worker, 7))
    statuses.repair_later()
    assert statuses.states() == {(State.RUNNING, THIS_WORKER)}


def test_unchanged_status_is_not_published_again(statuses: RepairFixture) -> None:
    written = list(statuses.store.written)
    statuses.repair_later()
    assert statuses.store.written == written


def test_item_that_ended_with_the_lease_is_not_reported_as_running_again(
    statuses: RepairFixture,
) -> None:
    statuses.assignment.lease_has_ended()
    statuses.publisher.on_state("a", State.UNASSIGNED)
    statuses.publisher.on_state(TASK, State.FAILED, "the lease ended")
    statuses.overwrite(Status(State.UNASSIGNED, THIS_WORKER, 7))
    statuses.assignment.lease_is_renewed()
    statuses.repair_later()
    assert statuses.states() == {(State.UNASSIGNED, THIS_WORKER)}

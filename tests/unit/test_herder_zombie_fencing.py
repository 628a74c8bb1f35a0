"""Fencing of the producers of a source's earlier tasks."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import pytest

from connect_py.api.errors import ConnectError
from connect_py.herder.group.zombie_fencing import ZombieFencing
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.leader_producer import FencedError
from connect_py.testing import FakeClock


class FencingFixture:
    """A snapshot of the config topic, and fencing requests that a test completes."""

    def __init__(self, *, record: int | None, count: int) -> None:
        self.state = ClusterConfigState(
            task_counts={"c": count},
            task_count_records={} if record is None else {"c": record},
            pending_fencing=frozenset({"c"}),
            start_numbers={"c": 5},
        )
        self.written: list[int] = []
        self.fenced: list[tuple[int, Future[None]]] = []
        self.refusal: ConnectError | None = None
        self.queue = RequestQueue(FakeClock())
        self.fencing = ZombieFencing(self, self.queue, self._fence)  # type: ignore[arg-type]  # the store's part

    def snapshot(self) -> ClusterConfigState:
        return self.state

    def put_task_count_record(self, name: str, count: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.written.append(count)
        self.state = replace(
            self.state, task_count_records={name: count}, pending_fencing=frozenset()
        )

    def _fence(self, name: str, count: int) -> Future[None]:
        self.fenced.append((count, Future()))
        return self.fenced[-1][1]

    def run(self) -> None:
        for action in self.queue.due():
            action()


def test_first_task_set_is_recorded_without_any_fencing() -> None:
    fixture = FencingFixture(record=None, count=3)
    assert fixture.fencing.fence("c").done()
    assert (fixture.fenced, fixture.written) == ([], [3])
    assert fixture.fencing.fence("c").done()  # the second task of the set
    assert fixture.written == [3]


def test_one_task_is_fenced_by_its_one_successor() -> None:
    fixture = FencingFixture(record=1, count=1)
    assert fixture.fencing.fence("c").done()
    assert (fixture.fenced, fixture.written) == ([], [1])


@pytest.mark.parametrize(("before", "now"), [(3, 2), (1, 2), (2, 1)])
def test_all_tasks_wait_for_one_fencing_of_the_previous_set(before: int, now: int) -> None:
    fixture = FencingFixture(record=before, count=now)
    first, second = fixture.fencing.fence("c"), fixture.fencing.fence("c")
    ((count, fenced),) = fixture.fenced
    assert count == before
    fenced.set_result(None)
    assert not first.done()
    fixture.run()
    assert first.result(0) is second.result(0) is None
    assert fixture.written == [now]


def test_failed_fencing_fails_waiting_tasks_and_next_task_retries_it() -> None:
    fixture = FencingFixture(record=2, count=2)
    waiting = fixture.fencing.fence("c")
    fixture.fenced[0][1].set_exception(ConnectError("no broker"))
    fixture.run()
    with pytest.raises(
        ConnectError, match="Failed to fence the zombie tasks of connector c: no broker"
    ):
        waiting.result(0)
    assert fixture.written == []
    fixture.fencing.fence("c")
    assert len(fixture.fenced) == 2


def test_task_set_that_is_published_meanwhile_is_fenced_separately() -> None:
    fixture = FencingFixture(record=2, count=2)
    old = fixture.fencing.fence("c")
    fixture.state = replace(fixture.state, start_numbers={"c": 9}, task_counts={"c": 4})
    new = fixture.fencing.fence("c")
    fixture.fenced[0][1].set_result(None)
    fixture.run()
    with pytest.raises(ConnectError, match="new set of tasks"):
        old.result(0)
    assert fixture.written == []
    fixture.fenced[1][1].set_result(None)
    fixture.run()
    assert new.result(0) is None
    assert fixture.written == [4]


def test_fenced_leader_fails_waiting_tasks_and_gives_up_its_leadership() -> None:
    fixture = FencingFixture(record=2, count=2)
    waiting = fixture.fencing.fence("c")
    fixture.refusal = FencedError("another worker leads")
    fixture.fenced[0][1].set_result(None)
    with pytest.raises(FencedError):
        fixture.run()
    with pytest.raises(ConnectError, match="another worker leads"):
        waiting.result(0)

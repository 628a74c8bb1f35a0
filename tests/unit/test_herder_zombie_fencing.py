"""When producers of a source's earlier tasks are fenced, and when that is known to be done."""

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


class Bench:
    """The config topic in a snapshot, and fencings that end when a test says so."""

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
    bench = Bench(record=None, count=3)
    assert bench.fencing.fence("c").done()
    assert (bench.fenced, bench.written) == ([], [3])
    assert bench.fencing.fence("c").done()  # the second task of the set
    assert bench.written == [3]


def test_one_task_is_fenced_by_its_one_successor() -> None:
    bench = Bench(record=1, count=1)
    assert bench.fencing.fence("c").done()
    assert (bench.fenced, bench.written) == ([], [1])


@pytest.mark.parametrize(("before", "now"), [(3, 2), (1, 2), (2, 1)])
def test_all_tasks_wait_for_one_fencing_of_the_previous_set(before: int, now: int) -> None:
    bench = Bench(record=before, count=now)
    first, second = bench.fencing.fence("c"), bench.fencing.fence("c")
    ((count, fenced),) = bench.fenced
    assert count == before
    fenced.set_result(None)
    assert not first.done()
    bench.run()
    assert first.result(0) is second.result(0) is None
    assert bench.written == [now]


def test_failed_fencing_fails_waiting_tasks_and_next_task_retries_it() -> None:
    bench = Bench(record=2, count=2)
    waiting = bench.fencing.fence("c")
    bench.fenced[0][1].set_exception(ConnectError("no broker"))
    bench.run()
    with pytest.raises(
        ConnectError, match="Failed to fence the zombie tasks of connector c: no broker"
    ):
        waiting.result(0)
    assert bench.written == []
    bench.fencing.fence("c")
    assert len(bench.fenced) == 2


def test_a_task_set_that_came_meanwhile_is_fenced_for_itself() -> None:
    bench = Bench(record=2, count=2)
    old = bench.fencing.fence("c")
    bench.state = replace(bench.state, start_numbers={"c": 9}, task_counts={"c": 4})
    new = bench.fencing.fence("c")
    bench.fenced[0][1].set_result(None)
    bench.run()
    with pytest.raises(ConnectError, match="new set of tasks"):
        old.result(0)
    assert bench.written == []
    bench.fenced[1][1].set_result(None)
    bench.run()
    assert new.result(0) is None
    assert bench.written == [4]


def test_fenced_leader_fails_waiting_tasks_and_gives_up_its_leadership() -> None:
    bench = Bench(record=2, count=2)
    waiting = bench.fencing.fence("c")
    bench.refusal = FencedError("another worker leads")
    bench.fenced[0][1].set_result(None)
    with pytest.raises(FencedError):
        bench.run()
    with pytest.raises(ConnectError, match="another worker leads"):
        waiting.result(0)

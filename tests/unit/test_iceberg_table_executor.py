"""Calls on different tables run in parallel; calls on one table run one after another, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from connectors.iceberg.coordinator.table_executor import EVERY_TABLE, TableExecutor

ORDERS, LINES, BOTH = (
    frozenset({"db.orders"}),
    frozenset({"db.lines"}),
    frozenset({"db.orders", "db.lines"}),
)
SECONDS = 10.0  # until a test gives up


@pytest.fixture
def executor() -> Iterator[TableExecutor]:
    executor = TableExecutor(3)
    yield executor
    executor.shutdown(wait=True)


class Calls:
    """Calls that run until they are released; records which of them overlap."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.overlaps: set[frozenset[str]] = set()
        self.order: list[str] = []
        self.released: dict[str, threading.Event] = {}
        self._changed = threading.Condition()

    def __call__(self, name: str) -> str:
        with self._changed:
            self.overlaps |= {frozenset({name, other}) for other in self.running}
            self.running.add(name)
            self.order.append(name)
            released = self.released.setdefault(name, threading.Event())
            self._changed.notify_all()
        assert released.wait(SECONDS)
        with self._changed:
            self.running.remove(name)
        return name

    def release(self, *names: str) -> None:
        for name in names:
            with self._changed:
                released = self.released.setdefault(name, threading.Event())
            released.set()

    def wait_for(self, *names: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: {*names} <= self.running, SECONDS)


def test_calls_on_different_tables_overlap(executor: TableExecutor) -> None:
    calls = Calls()
    futures = [executor.submit(ORDERS, calls, "orders"), executor.submit(LINES, calls, "lines")]
    calls.wait_for("orders", "lines")
    calls.release("lines", "orders")
    assert [future.result(SECONDS) for future in futures] == ["orders", "lines"]


def test_calls_on_one_table_run_in_order_and_never_overlap(executor: TableExecutor) -> None:
    calls = Calls()
    names = [f"orders-{number}" for number in range(5)]
    futures = [executor.submit(ORDERS, calls, name) for name in names]
    calls.wait_for(names[0])
    time.sleep(0.05)  # a second one would have started by now
    assert calls.running == {names[0]}
    calls.release(*names)
    for future in futures:
        future.result(SECONDS)
    assert calls.order == names
    assert not calls.overlaps


def test_call_that_shares_a_table_waits_and_later_calls_do_not_overtake_it(
    executor: TableExecutor,
) -> None:
    """Two tables with the same aggregate: no commit to one of them while the other one is committed
    to."""
    calls = Calls()
    calls.release("both", "lines")
    futures = [executor.submit(ORDERS, calls, "orders"), executor.submit(BOTH, calls, "both")]
    futures.append(executor.submit(LINES, calls, "lines"))
    calls.wait_for("orders")
    time.sleep(0.05)
    assert calls.order == ["orders"]
    calls.release("orders")
    for future in futures:
        future.result(SECONDS)
    assert calls.order == ["orders", "both", "lines"]


def test_call_on_every_table_runs_alone(executor: TableExecutor) -> None:
    calls = Calls()
    futures = [
        executor.submit(tables, calls, name)
        for tables, name in ((ORDERS, "orders"), (EVERY_TABLE, "alone"), (LINES, "lines"))
    ]
    calls.release("orders", "alone", "lines")
    for future in futures:
        future.result(SECONDS)
    assert calls.order == ["orders", "alone", "lines"]
    assert not calls.overlaps


def test_no_more_calls_run_at_once_than_there_are_threads(executor: TableExecutor) -> None:
    calls = Calls()
    futures = [
        executor.submit(frozenset({f"db.t{number}"}), calls, f"t{number}") for number in range(5)
    ]
    calls.wait_for("t0", "t1", "t2")
    time.sleep(0.05)
    assert calls.running == {"t0", "t1", "t2"}
    calls.release(*(f"t{number}" for number in range(5)))
    assert [future.result(SECONDS) for future in futures] == [f"t{number}" for number in range(5)]


def test_failed_call_affects_neither_other_tables_nor_the_next_call(
    executor: TableExecutor,
) -> None:
    def fail() -> None:
        raise ValueError("the table is gone")

    calls = Calls()
    lines, failed = executor.submit(LINES, calls, "lines"), executor.submit(ORDERS, fail)
    calls.release("lines", "orders")
    orders = executor.submit(ORDERS, calls, "orders")
    with pytest.raises(ValueError, match="the table is gone"):
        failed.result(SECONDS)
    assert (lines.result(SECONDS), orders.result(SECONDS)) == ("lines", "orders")


def test_next_call_on_a_table_starts_after_the_callbacks_of_the_previous_one(
    executor: TableExecutor,
) -> None:
    """The coordinator receives the results of a table in their order."""
    calls, results = Calls(), list[str]()

    def slow(name: str) -> None:
        time.sleep(0.02)
        results.append(name)

    names = ["1", "2", "3"]
    futures = [executor.submit(ORDERS, calls, name) for name in names]
    for future in futures:
        future.add_done_callback(lambda done: slow(done.result()))
    calls.release(*names)
    executor.submit(ORDERS, str).result(SECONDS)
    assert results == names


def test_shutdown_cancels_calls_that_have_not_started(executor: TableExecutor) -> None:
    calls = Calls()
    running, waiting = (
        executor.submit(ORDERS, calls, "running"),
        executor.submit(ORDERS, calls, "waiting"),
    )
    calls.wait_for("running")
    executor.shutdown(wait=False)
    assert waiting.cancelled()
    calls.release("running")
    assert running.result(SECONDS) == "running"

"""What a connector or a task waits for is published beside RUNNING, and beside nothing else."""

from __future__ import annotations

from typing import Any

from connect_py.herder.work.status_publisher import StatusPublisher
from connect_py.model import ConnectorTaskId, State, Status, Waiting
from connect_py.storage.status_table import StatusId
from connect_py.testing import FakeClock

TASK = ConnectorTaskId("c", 0)
CATALOG = Waiting("catalog", 1_000, "refused")


class Store:
    def __init__(self) -> None:
        self.written: list[tuple[StatusId, Status]] = []

    def put(self, id: StatusId, status: Status) -> None:  # noqa: A002 - the store's word
        self.written.append((id, status))

    def get(self, id: StatusId) -> Status | None:  # noqa: A002 - the store's word
        return next((status for known, status in reversed(self.written) if known == id), None)


def made() -> tuple[StatusPublisher, Any]:
    store: Any = Store()
    return StatusPublisher(store, "w:1", track_topics=True, clock=FakeClock()), store


def shown(store: Store) -> list[tuple[State, Waiting | None]]:
    return [(status.state, status.waiting) for _, status in store.written]


def test_running_task_status_is_published_when_waiting_begins_and_ends() -> None:
    publisher, store = made()
    publisher.on_waiting(TASK, CATALOG)
    assert store.written == [], "it does not run yet"
    publisher.on_state(TASK, State.RUNNING)
    publisher.on_waiting(TASK, None)
    publisher.on_waiting(TASK, CATALOG)
    publisher.on_state(TASK, State.PAUSED)
    publisher.on_state(TASK, State.RUNNING)
    assert shown(store) == [
        (State.RUNNING, CATALOG),
        (State.RUNNING, None),
        (State.RUNNING, CATALOG),
        (State.PAUSED, None),
        (State.RUNNING, CATALOG),
    ]


def test_restarted_task_status_shows_no_earlier_waiting_reason() -> None:
    publisher, store = made()
    for end in (
        lambda: publisher.on_state(TASK, State.FAILED, "trace"),
        lambda: publisher.on_state(TASK, State.RESTARTING),
        lambda: publisher.on_state(TASK, State.UNASSIGNED),
    ):
        publisher.on_state(TASK, State.RUNNING)
        publisher.on_waiting(TASK, CATALOG)
        end()
        assert store.written[-1][1].waiting is None
        publisher.on_state(TASK, State.RUNNING)
        assert shown(store)[-1] == (State.RUNNING, None)


def test_connectors_wait_too_and_repairs_say_it_again() -> None:
    publisher, store = made()
    publisher.on_state("c", State.RUNNING)
    publisher.on_waiting("c", CATALOG)
    store.put("c", Status(State.RUNNING, "other:1", 9))
    publisher._clock.sleep(10)
    publisher.repair(["c"])
    assert shown(store)[-1] == (State.RUNNING, CATALOG)


def test_warnings_are_shown_while_the_task_runs() -> None:
    publisher, store = made()
    publisher.on_warnings(TASK, ("many snapshots",))
    publisher.on_state(TASK, State.RUNNING)
    publisher.on_state(TASK, State.PAUSED)
    publisher.on_state(TASK, State.RUNNING)
    publisher.on_warnings(TASK, ())
    publisher.on_warnings(TASK, ("many files",))
    publisher.on_state(TASK, State.FAILED, "trace")
    publisher.on_state(TASK, State.RUNNING)
    assert [status.warnings for _, status in store.written] == [
        ("many snapshots",),
        (),
        ("many snapshots",),
        (),
        ("many files",),
        (),
        (),
    ]

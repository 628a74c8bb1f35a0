"""Waits of a task are shown when they last, and fail the task only if a limit is set."""

from __future__ import annotations

import pytest

from connect_py.api.errors import ConnectError
from connect_py.model import Waiting
from connect_py.task.wait_board import REASON_LENGTH, REASON_SECONDS, SHOWN_AFTER_SECONDS, WaitBoard
from connect_py.testing import FakeClock


def board() -> tuple[WaitBoard, FakeClock, list[Waiting | None]]:
    clock, sent = FakeClock(start_ms=1_000), list[Waiting | None]()
    return WaitBoard(clock, sent.append), clock, sent


def test_long_wait_is_reported_with_its_start_and_one_end() -> None:
    waits, clock, sent = board()
    waits.send_changes()
    waits.waits("catalog", "refused")
    waits.send_changes()
    assert sent == [], "it may be over soon"
    clock.now += SHOWN_AFTER_SECONDS
    for _ in range(2):
        waits.send_changes()
    assert sent == [Waiting("catalog", 1_000, "refused")]
    waits.waits("catalog", None)
    for _ in range(2):
        waits.send_changes()
    assert sent[1:] == [None]


def test_what_is_over_soon_is_never_sent() -> None:
    waits, clock, sent = board()
    for _ in range(5):
        waits.waits("catalog", "refused")
        clock.now += SHOWN_AFTER_SECONDS / 2
        waits.send_changes()
        waits.waits("catalog", None)
        waits.send_changes()
    assert sent == []


def test_of_several_the_one_that_lasts_longest_is_shown() -> None:
    waits, clock, sent = board()
    waits.waits("a", "first")
    clock.now += 1
    waits.waits("b", "second")
    clock.now += 10
    waits.send_changes()
    waits.waits("a", None)
    waits.send_changes()
    assert [found and found.what for found in sent] == ["a", "b"]


def test_new_wait_reason_is_sent_unless_only_numbers_differ() -> None:
    waits, clock, sent = board()
    waits.waits("catalog", "port 1 refused")
    clock.now += 10
    waits.send_changes()
    waits.waits("catalog", "port 2 refused")
    clock.now += 10
    waits.send_changes()
    assert len(sent) == 1
    waits.waits("catalog", "no such host" + "!" * 1000)
    clock.now += REASON_SECONDS
    waits.send_changes()
    assert sent[1] is not None
    assert sent[1].reason == ("no such host" + "!" * 1000)[:REASON_LENGTH]
    assert sent[1].since_ms == 1_000


def test_task_fails_after_the_configured_wait_and_names_the_key() -> None:
    waits, clock, _ = board()
    waits.waits("schema registry", "refused")
    clock.now += 1e9
    waits.check()
    waits.bound_waiting(60_000, "x.fail-after-ms")
    with pytest.raises(
        ConnectError,
        match=r"timed out waiting for schema registry: x\.fail-after-ms=60000 exceeded: ref",
    ):
        waits.check()
    waits.waits("schema registry", None)
    waits.waits("schema registry", "refused again")
    clock.now += 59
    waits.check()
    waits.bound_waiting(None, "x.fail-after-ms")
    clock.now += 1e9
    waits.check()


def test_warnings_are_sent_at_once_and_when_they_change() -> None:
    sent: list[tuple[str, ...]] = []
    waits = WaitBoard(FakeClock(), lambda _: None, sent.append)
    for warning in ("6,000 snapshots", "6,000 snapshots"):
        waits.warns("snapshots of db.t", warning)
    waits.warns("files of db.t", "x" * (REASON_LENGTH + 1))
    waits.warns("snapshots of db.t", None)
    waits.warns("snapshots of db.t", None)
    long = "x" * REASON_LENGTH
    assert sent == [("6,000 snapshots",), ("6,000 snapshots", long), (long,)]

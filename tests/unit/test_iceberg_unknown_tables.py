"""Tables that records name and nobody made."""

from __future__ import annotations

import uuid

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.actions import Fail, PrepareTable, Resume, Send
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    Message,
    Need,
    OpenTable,
    StartCommit,
    TableRefused,
)
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TopicInfo
from connectors.iceberg.protocol.task_state import TaskState

P0 = TopicPartition("orders", 0)
TOPICS = {"orders": TopicInfo("id-1", (0,))}


def coordinator(*, skip_unknown: bool) -> CoordinatorState:
    settings = CoordinatorSettings("k-1", 1, 1000, 300, dynamic=True, skip_unknown=skip_unknown)
    state = CoordinatorState(settings, "x", lambda: str(uuid.uuid4()))
    state.begin(TOPICS, {}, {}, None, 0)
    return state


def asked(state: CoordinatorState) -> None:
    ask = OpenTable("0", state.epoch, "db.nobody", Need.CREATE, "{}")
    assert state.on_message(ask) == [PrepareTable("db.nobody", Need.CREATE, "{}")]


def test_rows_of_unknown_tables_are_skipped_unless_configured_to_fail() -> None:
    for skip_unknown in (True, False):
        state = coordinator(skip_unknown=skip_unknown)
        asked(state)
        (told,) = state.on_table_refused("db.nobody", "does not exist", missing=True)
        assert told == Send(TableRefused(state.epoch, "db.nobody", "does not exist", skip_unknown))
    asked(state)
    assert state.on_table_refused("db.nobody", "is forbidden") == [
        Send(TableRefused(state.epoch, "db.nobody", "is forbidden", False))
    ]


def test_table_that_is_still_waiting_may_be_requested_again() -> None:
    state = coordinator(skip_unknown=True)
    asked(state)
    assert state.on_table_waits("db.nobody") == []
    asked(state)


def test_skipped_table_is_looked_up_again_in_the_next_cycle() -> None:
    epoch = Epoch(1, "x")
    task = TaskState("0", 1, lambda: "nonce")
    task.assign({P0: "id-1"}, {P0: None}, 0)
    state = coordinator(skip_unknown=True)
    answers: list[Message] = [
        action.message
        for action in state.on_message(Attach("0", 1, "nonce", {P0: "id-1"}))
        if isinstance(action, Send)
    ]
    epoch = state.epoch
    task.on_message(StartCommit(epoch, 1, {}), 0)
    for answer in answers:
        assert isinstance(answer, Attached)
        task.on_message(answer, 0)
    assert task.is_reading(P0)
    task.hold(P0, "db.nobody", Need.CREATE, "{}", 0)
    actions = task.on_message(TableRefused(epoch, "db.nobody", "does not exist", True), 0)
    assert actions == [Resume(frozenset({P0}))]
    assert task.is_skipped("db.nobody")
    task.on_message(StartCommit(epoch, 2, {}), 0)
    assert not task.is_skipped("db.nobody")
    task.hold(P0, "db.nobody", Need.CREATE, "{}", 0)
    (failed,) = task.on_message(TableRefused(epoch, "db.nobody", "does not exist", False), 0)
    assert isinstance(failed, Fail)


def test_rows_that_cannot_create_a_table_keep_the_task_running() -> None:
    state = coordinator(skip_unknown=False)
    asked(state)
    (told,) = state.on_table_refused("db.nobody", "cannot be created", rows=True)
    assert told == Send(TableRefused(state.epoch, "db.nobody", "cannot be created", rows=True))
    epoch = Epoch(1, "x")
    task = TaskState("0", 1, lambda: "nonce")
    task.assign({P0: "id-1"}, {P0: None}, 0)
    task.on_message(Attached(epoch, "nonce", {P0: Attachment("id-1", 1, 0, 0, 0, {})}), 0)
    task.hold(P0, "db.nobody", Need.CREATE, "{}", 0)
    assert not task.is_uncreated("db.nobody")
    assert task.on_message(TableRefused(epoch, "db.nobody", "cannot be created", rows=True), 0) == [
        Resume(frozenset({P0}))
    ]
    assert task.is_reading(P0)
    assert task.is_uncreated("db.nobody")
    assert not task.is_skipped("db.nobody")
    task.on_message(StartCommit(epoch, 1, {}), 0)
    assert not task.is_uncreated("db.nobody"), "somebody may have made it"

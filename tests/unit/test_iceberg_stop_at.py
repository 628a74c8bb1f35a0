"""A connector that stops automatically: its bounds, its staged rows, and its stop request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import ORDERS_0, config
from sink_task_stand import EPOCH, make_stand

from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.testing import FakeClock, FakePluginMetrics, FakeSinkTaskContext
from connectors.iceberg.config.stop_at import StopAt, parse_stop_at
from connectors.iceberg.coordinator.bounded_run import REPEAT_SECONDS, STOP_SECONDS, BoundedRun
from connectors.iceberg.coordinator.kafka_metadata import describe_topics, group_offsets
from connectors.iceberg.protocol.actions import EpochEndedError, Fail, Pause, Resume
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerProperty,
    SnapshotView,
    TableView,
    TopicLedger,
)
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    Bounded,
    CommitComplete,
    EpochStarted,
    Message,
    Range,
    Release,
    Report,
    StartCommit,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Bound, Bounds, Epoch, Position
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TopicInfo
from connectors.iceberg.protocol.task_state import TaskState

P0, P1, P2 = (TopicPartition("orders", number) for number in range(3))
RUN = "abc/5"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", None),
        (" Latest ", StopAt("latest")),
        ("1970-01-01T00:00:01Z", StopAt("1970-01-01T00:00:01Z", time_ms=1000)),
        ("1970-01-01T01:00:01.5+01:00", StopAt("1970-01-01T01:00:01.5+01:00", time_ms=1500)),
        ("orders:0:12, orders:1:0", StopAt("orders:0:12, orders:1:0", offsets={P0: 12, P1: 0})),
        ('{"orders":{"0":12,"1":0}}', StopAt('{"orders":{"0":12,"1":0}}', offsets={P0: 12, P1: 0})),
    ],
)
def test_three_forms_of_stop_at_are_read(text: str, wanted: StopAt | None) -> None:
    assert parse_stop_at(text) == wanted
    assert config(ext__stop_at=text).stop_at == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("earliest", "expected latest"),
        ("orders:0", "expected latest"),
        (":0:1", "expected latest"),
        ("orders:0:-1", "expected latest"),
        ("orders:0:1,orders:0:2", "duplicate partition orders-0"),
        ("2026-13-01T00:00:00Z", "expected latest"),
        ("2026-01-01T00:00:00", "no time zone"),
        ("2999-01-01T00:00:00Z", "is in the future"),
        ('{"orders":5}', "expected latest"),
        ('{"orders":{"0":"x"}}', "expected latest"),
    ],
)
def test_other_texts_for_stop_at_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(ext__stop_at=text)


# --- the coordinator's bounds


class Run:
    """A start of a connector over three partitions; the last one is empty."""

    def __init__(self, text: str, start_number: int = 5) -> None:
        self.context = FakeSinkTaskContext(topics={"orders": 3}, start_number=start_number)
        self.context.log_ranges = {P0: (10, 100), P1: (0, 50), P2: (0, 0)}
        self.clock = FakeClock()
        parsed = parse_stop_at(text)
        assert parsed is not None
        self.metrics = FakePluginMetrics()
        self.bounded = BoundedRun(
            parsed, self.context, IcebergMetrics(self.metrics), self.clock.monotonic
        )

    def resolve(self, messages: Iterable[Message] = ()) -> Mapping[TopicPartition, int]:
        """Read the channel, as a run of a coordinator does at its start."""
        assert list(self.bounded.read(messages)) == list(messages)
        topics = describe_topics(self.context)
        return self.bounded.resolve(topics, group_offsets(self.context, topics)).ends

    def said(self, epoch: Epoch = EPOCH) -> list[Message]:
        return self.bounded.message_due(epoch)

    def commit(self, offsets: Mapping[TopicPartition, int], bound: Bound | None = None) -> None:
        for partition, offset in offsets.items():
            mark = OffsetMetadata(EPOCH, 0, "id-of-orders", bound=bound)
            self.context.group_offsets[partition] = OffsetAndMetadata(offset, mark.to_text())


def test_each_form_is_resolved_to_one_offset_per_partition() -> None:
    assert Run("latest").resolve() == {P0: 100, P1: 50, P2: 0}
    assert Run("orders:0:7").resolve() == {P0: 7, P1: 50, P2: 0}
    timed = Run("1970-01-01T00:00:01Z")
    timed.context.record_times = {P0: {40: 900, 41: 1000, 42: 900}, P1: {49: 999}}
    assert timed.resolve() == {P0: 41, P1: 50, P2: 0}
    with pytest.raises(ConnectError, match="contains orders-9, which the connector does not read"):
        Run("orders:9:1").resolve()


def test_bounds_stay_as_they_were_for_later_lives() -> None:
    first = Run("latest")
    first.resolve()
    said = first.said()
    later = Run("latest")
    later.context.log_ranges = {P0: (10, 900), P1: (0, 900), P2: (0, 900)}
    ids, ends = said_of(said)
    parts = [Bounded(EPOCH, first.bounded.bounds.run, ids, {p: end}) for p, end in ends.items()]
    assert later.resolve([EpochStarted(EPOCH), *parts]) == {P0: 100, P1: 50, P2: 0}
    assert later.said(Epoch(8, "y")) == [
        Bounded(Epoch(8, "y"), first.bounded.bounds.run, ids, ends)
    ]
    again = Run("latest", start_number=6)  # stopped and resumed
    again.context.log_ranges = {P0: (10, 900), P1: (0, 900), P2: (0, 900)}
    assert again.resolve([*said]) == {P0: 900, P1: 900, P2: 900}
    other = Run("orders:0:7")  # another configuration, in standalone mode under the same number
    assert other.resolve([*said])[P0] == 7
    standalone = Run("latest", start_number=1)  # each process counts starts from the beginning
    standalone.context.log_ranges = {P0: (10, 900)}
    assert standalone.resolve([*said])[P0] == 100


def said_of(messages: list[Message]) -> tuple[Any, Any]:
    (message,) = messages
    assert isinstance(message, Bounded)
    return message.topic_ids, message.ends


def test_newest_coordinator_decides_which_bounds_are_remembered() -> None:
    run = Run("latest")
    run.resolve()
    ((ids, _), name) = said_of(run.said()), run.bounded.bounds.run
    older, newer = (
        Bounded(Epoch(3, "a"), name, ids, {P0: 30}),
        Bounded(Epoch(4, "a"), name, ids, {P0: 40}),
    )
    assert Run("latest").resolve([older, newer])[P0] == 40


def test_group_metadata_keeps_bounds_that_the_channel_lost() -> None:
    before = Run("latest")
    before.resolve()
    later = Run("latest")
    later.context.log_ranges = {P0: (10, 900), P1: (0, 900), P2: (0, 0)}
    later.commit({P0: 20}, Bound(before.bounded.bounds.run, 100))
    later.commit({P1: 20}, Bound("other/5", 30))
    assert later.resolve() == {P0: 100, P1: 900, P2: 0}


def test_topic_made_again_is_no_part_of_the_bounds() -> None:
    before = Run("latest")
    before.resolve()
    said = before.said()
    later = Run("latest")
    later.context.topic_ids["orders"] = "another id"
    assert later.resolve(said) == {}
    assert later.bounded.bounds.of(P0).end == 0


def test_bounds_are_said_at_once_and_again_before_they_expire() -> None:
    run = Run("latest")
    run.resolve()
    assert len(run.said()) == 1
    assert run.said() == []
    run.clock.now += REPEAT_SECONDS
    assert len(run.said()) == 1


def test_stop_is_asked_for_once_the_group_has_the_bounds() -> None:
    run = Run("latest")
    run.resolve()
    bounded, context = run.bounded, run.context
    assert bounded.is_check_due()
    assert not bounded.is_check_due()
    assert not bounded.is_reached(7)
    assert run.metrics.gauge("iceberg_stop_at_remaining_offsets", "").value == 7
    assert bounded.is_reached(0)
    run.commit({P0: 100, P1: 49})
    bounded.stop_if_committed()
    assert context.stop_requests == []
    run.commit({P1: 60})  # the empty partition needs no offset
    bounded.stop_if_committed()
    reason = "iceberg.ext.stop-at=latest is reached: orders:0:100,orders:1:50,orders:2:0"
    assert context.stop_requests == [reason]
    assert not bounded.is_check_due()
    run.clock.now += STOP_SECONDS  # nothing happened: possibly, no worker is the leader
    assert bounded.is_check_due()


# --- the coordinator's state


def life(
    ends: Mapping[TopicPartition, int],
    log_starts: tuple[int, int] = (0, 0),
    group: Mapping[TopicPartition, int] | None = None,
    tables: Mapping[str, TableView] | None = None,
) -> CoordinatorState:
    settings = CoordinatorSettings("k", 5, 1000, 300, dynamic=True, bounds=Bounds(RUN, ends))
    state = CoordinatorState(settings, "x", lambda: "c")
    offsets = {
        p: GroupOffset(o, OffsetMetadata(Epoch(1, "a"), 0, "id")) for p, o in (group or {}).items()
    }
    begun = state.begin({"orders": TopicInfo("id", log_starts)}, offsets, tables or {}, None, 0)
    for action in begun:
        if isinstance(action, Fail):
            raise EpochEndedError(action)
    return state


def filled(to: int) -> TableView:
    """A table that holds partition 0 up to there."""
    topic = TopicLedger("id", {0: LedgerEntry(0, 0, to), 1: LedgerEntry(0, 0, 0)})
    ledger = Ledger(Epoch(1, "a"), "c", 1, "t", "k", {"orders": topic})
    prop = LedgerProperty(ledger, 10, {P0: Position(0, 0), P1: Position(0, 0)}).to_json()
    return TableView("t", [SnapshotView(10, ledger.to_json())], True, frozenset({10}), prop)


def attached(
    state: CoordinatorState, *partitions: TopicPartition
) -> dict[TopicPartition, Attachment]:
    found: dict[TopicPartition, Attachment] = {}
    for action in state.on_message(Attach("t", 5, "n", dict.fromkeys(partitions, "id"))):
        message = getattr(action, "message", None)
        if isinstance(message, Attached):
            found |= message.partitions
    return found


def test_remaining_offsets_reach_zero_with_the_floors_only() -> None:
    state = life({P0: 10, P1: 0})
    assert attached(state, P0)[P0].bound == Bound(RUN, 10)
    assert state.remaining == 10
    attached(state, P1)
    state.on_tick(1000)
    state.on_message(
        Report(
            "t",
            5,
            state.epoch,
            1,
            {p: Range("id", 0, 0, "n", 0, e) for p, e in ((P0, 10), (P1, 0))},
        )
    )
    assert state.remaining == 0
    # below the position: reached
    assert life({P0: 10, P1: 5}, group={P0: 30, P1: 4}).remaining == 1


def test_partition_added_later_has_nothing_that_is_wanted() -> None:
    state = life({P0: 0, P1: 0})
    state.on_topics({"orders": TopicInfo("id", (0, 0, 0))})
    assert attached(state, P2)[P2].bound == Bound(RUN, 0)
    assert state.remaining == 0


def test_log_may_begin_behind_a_bound_but_not_before_it() -> None:
    assert life({P0: 5, P1: 0}, log_starts=(8, 0)).remaining == 0
    # retention deleted records after the bound was reached
    done = life({P0: 5, P1: 0}, log_starts=(8, 0), group={P0: 5})
    assert attached(done, P0)[P0].position == 5
    table = life({P0: 5, P1: 0}, log_starts=(8, 0), group={P0: 5}, tables={"db.t": filled(5)})
    assert attached(table, P0)[P0].needs["db.t"].next == 5
    for misses in ({"group": {P0: 4}}, {"tables": {"db.t": filled(4)}}):
        with pytest.raises(EpochEndedError):
            life({P0: 5, P1: 0}, log_starts=(8, 0), **misses)


# --- the task


def attach(task: TaskState, position: int, end: int, rewind: int = 0) -> list[Any]:
    given = Attachment("id", 0, position, position, rewind, {}, Bound(RUN, end))
    return task.on_message(Attached(EPOCH, "n", {P0: given}), 0)


def assigned() -> TaskState:
    task = TaskState("t", 5, lambda: "n")
    task.assign({P0: "id"}, {}, 0)
    task.on_message(EpochStarted(EPOCH), 0)
    return task


def test_partition_pauses_at_its_bound_and_commits_it() -> None:
    task = assigned()
    assert Resume(frozenset({P0})) in attach(task, 0, 10)
    task.advance(P0, 7)
    assert task.on_tick(0) == []
    task.advance(P0, 25)  # no record has this offset, due to a marker or compaction
    assert task.next_offset(P0) == 10
    assert task.on_tick(0) == [Pause(frozenset({P0}))]
    task.report(1, {}, {"orders": "id"}, 0)
    task.on_message(CommitComplete(EPOCH, 1, {P0: Release(10, 0)}), 0)
    committed = task.offsets_to_commit()[P0]
    assert (committed.offset, committed.mark and committed.mark.bound) == (10, Bound(RUN, 10))


def test_partition_that_stands_behind_its_bound_reads_nothing() -> None:
    task = assigned()
    assert Resume(frozenset({P0})) not in attach(task, 30, 10)
    task.advance(P0, 40)
    assert task.next_offset(P0) == 30


def test_rows_at_the_bound_and_behind_are_not_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand = make_stand(tmp_path, monkeypatch, {"iceberg.ext.stop-at": "latest"})
    stand.task._state._partitions[ORDERS_0].bound = Bound(RUN, 3)
    stand.put(0, 1, 2, 3, 4)
    assert ORDERS_0 in stand.context.paused
    stand.put(5)
    stand.hear(StartCommit(EPOCH, 1, {}))
    [report] = stand.reports()
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 3)
    assert stand.rows(report) == {"db.first": 3, "db.second": 3}

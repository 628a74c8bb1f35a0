from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import pytest

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.actions import (
    CleanFiles,
    CommitTable,
    CoordinatorAction,
    DescribeTopics,
    Fail,
    LoadTable,
    PrepareTable,
    ProveLeadership,
    ReadGroupOffsets,
    ReportFailure,
    Send,
    Stop,
    Warn,
)
from connectors.iceberg.protocol.alter_offsets import altered_group
from connectors.iceberg.protocol.commit_request import CommitStatus
from connectors.iceberg.protocol.coordinator_state import CoordinatorState
from connectors.iceberg.protocol.last_commits import LastCommits, stamp_of
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerProperty,
    SnapshotView,
    TableView,
    TopicLedger,
    look_up,
)
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    CommitComplete,
    Message,
    Need,
    OpenTable,
    Range,
    Release,
    Report,
    Rewind,
    StartCommit,
    TableOpened,
    TablePart,
    TableRefused,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch, Position
from connectors.iceberg.protocol.source_progress import CoordinatorSettings, TableAge, TopicInfo
from connectors.iceberg.table.table import StagedFile, StagedKind

E6 = Epoch(6, "old")
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
FACTS = "db.facts"
M = TypeVar("M")


def ledger(
    entries: Mapping[int, tuple[int, int, int]], epoch: Epoch = E6, topic_id: str = "id-1"
) -> Ledger:
    topic = TopicLedger(topic_id, {p: LedgerEntry(*e) for p, e in entries.items()})
    return Ledger(epoch, "c-old", 1, "t-1", "k-1", {"orders": topic})


def table(
    found: Ledger | None = None, *, named: int = 10, newest: int = 10, uuid: str = "t-1"
) -> TableView:
    """One snapshot `newest` with the ledger; the property names `named`."""
    if found is None:
        return TableView(uuid, (), True, frozenset(), None)
    opened = {P0: Position(0, 0), P1: Position(0, 0)}
    prop = LedgerProperty(found, named, opened).to_json()
    return TableView(
        uuid, [SnapshotView(newest, found.to_json())], True, frozenset({named, newest}), prop
    )


def landed(request: CommitTable, snapshot: int = 11) -> TableView:
    text = request.property_text(str(snapshot))
    ancestors = [SnapshotView(snapshot, request.ledger.to_json())]
    return TableView(request.expected.uuid, ancestors, True, frozenset({snapshot}), text)


def mark(
    offset: int, generation: int = 0, epoch: Epoch = E6, topic_id: str = "id-1"
) -> GroupOffset:
    return GroupOffset(offset, OffsetMetadata(epoch, generation, topic_id))


GROUP = {P0: mark(100), P1: mark(200)}
FILLED = ledger({0: (0, 0, 100), 1: (0, 0, 200)})


def only(actions: Sequence[object], kind: type[M]) -> M:
    found = [a for a in actions if isinstance(a, kind)]
    found += [a.message for a in actions if isinstance(a, Send) and isinstance(a.message, kind)]  # type: ignore[misc]
    assert len(found) == 1, actions
    return found[0]


@dataclass
class Life:
    """One coordinator of epoch 7 over two partitions, and its last actions."""

    tables: Mapping[str, TableView | None] = field(
        default_factory=lambda: {FACTS: table(ledger({0: (0, 0, 100), 1: (0, 0, 200)}))}
    )
    group: Mapping[TopicPartition, GroupOffset] = field(default_factory=lambda: GROUP)
    dynamic: bool = False
    new_topic_allowed: bool = False
    skip_missing: bool = False
    topic_id: str = "id-1"

    def __post_init__(self) -> None:
        numbers = count(1)
        settings = CoordinatorSettings(
            "k-1",
            5,
            commit_interval_ms=1000,
            commit_timeout_ms=300,
            dynamic=self.dynamic,
            new_topic_allowed=self.new_topic_allowed,
            skip_missing=self.skip_missing,
            max_tries=3,
            retry_delay_ms=10,
        )
        self.state = CoordinatorState(settings, "x", lambda: f"c-{next(numbers)}")
        topics = {"orders": TopicInfo(self.topic_id, (0, 0))}
        self.begun = self.state.begin(topics, self.group, self.tables, None, 0)
        self.epoch = self.state.epoch

    def tell(self, message: Message) -> list[CoordinatorAction]:
        return self.state.on_message(message)

    def attach(self, *partitions: TopicPartition) -> Attached:
        return only(
            self.tell(Attach("sink-0", 5, "n1", dict.fromkeys(partitions, self.topic_id))), Attached
        )

    def cycle(self, *reports: Report) -> list[CoordinatorAction]:
        """Start a cycle and report; return the actions after the last report."""
        self.state.on_tick(self.now())
        actions: list[CoordinatorAction] = []
        for message in reports:
            actions = self.tell(message)
        return actions

    def now(self) -> int:
        self.clock = getattr(self, "clock", 0) + 1000
        return self.clock

    def report(self, **ranges: Range) -> Report:
        return Report(
            "sink-0",
            5,
            self.epoch,
            1,
            {{"p0": P0, "p1": P1}[name]: r for name, r in ranges.items()},
        )


def rows(
    start: int,
    following: int,
    *,
    filtered_at: int = 0,
    first: int | None = None,
    uuid: str = "t-1",
    **more: object,
) -> Range:
    """A range with rows for db.facts, the first at `first` (default: `start`)."""
    file = StagedFile(StagedKind.ROWS, f"f{start}", following - start, 1, 0, 0)
    part = TablePart(uuid, filtered_at, start if first is None else first, (file,))
    return replace(Range("id-1", 0, 0, "n1", start, following, {FACTS: part}), **more)  # type: ignore[arg-type]


def idle(at: int, following: int | None = None) -> Range:
    return Range("id-1", 0, 0, "n1", at, at if following is None else following)


def entries(request: CommitTable) -> dict[int, tuple[int, int, int]]:
    return {
        p: (e.generation, e.base, e.next)
        for p, e in request.ledger.topics["orders"].partitions.items()
    }


def commit_of(
    life: Life, actions: list[CoordinatorAction], view: TableView | None = None
) -> CommitTable:
    """Carry out the load; returns the request that follows."""
    assert only(actions, LoadTable).table == FACTS
    return only(life.state.on_table_loaded(FACTS, view or life.tables[FACTS], 1000), CommitTable)


# --- start of a run


def test_epoch_is_above_every_trace_and_the_start_number() -> None:
    assert Life().epoch == Epoch(7, "x")
    assert Life(group={P0: mark(1, epoch=Epoch(40, "z")), P1: mark(1)}).epoch.number == 41
    assert Life(group={}, tables={}).epoch.number == 5


def test_task_is_told_where_it_stands() -> None:
    told = Life().attach(P0).partitions[P0]
    assert (told.position, told.floor, told.rewind, told.needs[FACTS].next) == (100, 100, 0, 100)


def test_position_of_a_quiet_table_is_the_floor() -> None:
    life = Life(tables={FACTS: table(ledger({0: (0, 0, 40), 1: (0, 0, 50)}))})
    assert life.attach(P0).partitions[P0].needs[FACTS].next == 100


def test_foreign_group_offset_is_ignored_once_a_ledger_exists() -> None:
    group = {P0: GroupOffset(500, None), P1: GroupOffset(500, None)}
    assert Life(group=group).attach(P0).partitions[P0].position == 100  # the lowest ledger
    # some table may be unknown
    assert Life(group=group, dynamic=True).attach(P0).partitions[P0].position == 0
    # migration
    assert (
        Life(group=group, tables={FACTS: table(), "db.b": None}).attach(P0).partitions[P0].position
        == 500
    )


def test_ledger_of_a_lower_generation_opens_at_the_floor() -> None:
    life = Life(group={P0: mark(30, generation=1), P1: mark(900, generation=1)})
    told = life.attach(P0, P1).partitions
    assert (told[P0].needs[FACTS].next, told[P1].needs[FACTS].next) == (30, 900)
    assert told[P0].generation == 1


def test_ledger_of_a_higher_generation_is_adopted() -> None:
    life = Life(tables={FACTS: table(ledger({0: (2, 0, 40), 1: (0, 0, 200)}))})
    told = life.attach(P0).partitions[P0]
    assert (told.generation, told.position, told.needs[FACTS].next) == (2, 40, 40)


def test_replaced_topic_stops_the_connector_unless_allowed() -> None:
    assert "deleted and created again" in only(Life(topic_id="id-2").begun, Fail).reason
    told = Life(topic_id="id-2", new_topic_allowed=True).attach(P0).partitions[P0]
    assert (told.position, told.needs[FACTS].next) == (0, 0)


def test_same_name_on_another_cluster_stops_the_connector() -> None:
    found = replace(ledger({0: (0, 0, 100), 1: (0, 0, 200)}), cluster="k-2")
    assert "k-2" in only(Life(tables={FACTS: table(found)}).begun, Fail).reason


def test_restart_below_the_log_start_names_the_partition() -> None:
    state = CoordinatorState(CoordinatorSettings("k-1", 5, 1000, 300), "x", lambda: "c")
    topics = {"orders": TopicInfo("id-1", (150, 0))}
    assert "orders-0" in only(state.begin(topics, GROUP, {}, None, 0), Fail).reason


@pytest.mark.parametrize(
    "message",
    [
        Attach("sink-0", 5, "n", {}, Epoch(8, "y")),
        Attach("sink-0", 6, "n", {}),
        CommitComplete(Epoch(7, "y"), 1, {}),
    ],
)
def test_trace_of_a_higher_epoch_or_start_ends_this_life(message: Message) -> None:
    life = Life()
    only(life.tell(message), Stop)
    assert life.state.ended
    assert life.state.on_tick(10_000) == []


# --- reports


@pytest.mark.parametrize("start", [120, 90])
def test_report_with_gap_or_overlap_is_answered_by_rewind(start: int) -> None:
    life = Life()
    told = only(life.tell(life.report(p0=rows(start, 130))), Rewind)
    assert (told.nonce, told.partitions[P0].position) == ("n1", 100)


def test_report_of_an_older_epoch_or_start_is_not_accepted() -> None:
    life = Life()
    fresh = life.report(p0=rows(100, 130))
    assert life.tell(replace(fresh, epoch=E6)) == []
    assert life.tell(replace(fresh, start=4)) == []
    assert life.attach(P0).partitions[P0].position == 100
    life.tell(fresh)
    assert life.attach(P0).partitions[P0].position == 130


def test_report_under_another_topic_id_makes_the_topics_be_described() -> None:
    life = Life()
    only(life.tell(life.report(p0=rows(100, 130, topic_id="id-2"))), DescribeTopics)
    only(life.state.on_topics({"orders": TopicInfo("id-2", (0, 0))}), Stop)


def test_partition_reported_twice_counts_once_in_the_cycle() -> None:
    life = Life()
    assert life.cycle(life.report(p0=rows(100, 130)), life.report(p0=rows(130, 150))) == []
    request = commit_of(life, life.tell(life.report(p1=idle(200))))
    assert entries(request)[0] == (0, 100, 130)  # the second range waits for the next cycle


def test_partition_reported_by_two_owners_in_one_cycle_counts_once() -> None:
    life = Life()
    life.cycle(life.report(p0=rows(100, 130)))
    heir = only(life.tell(Attach("sink-1", 5, "n2", {P0: "id-1"})), Attached)
    assert heir.partitions[P0].position == 130
    # the one before has not noticed that it lost the partition
    again = life.report(p0=rows(100, 135))
    assert only(life.tell(again), Rewind).nonce == "n1"
    life.tell(replace(life.report(p0=rows(130, 150, nonce="n2")), task="sink-1"))
    request = commit_of(life, life.tell(life.report(p1=idle(200))))
    assert entries(request)[0] == (0, 100, 130)
    assert [file.path for file in request.files[P0]] == ["f100"]


def test_slow_partition_does_not_delay_other_partitions_past_the_timeout() -> None:
    life = Life()
    assert life.cycle(life.report(p0=rows(100, 130))) == []
    assert life.state.on_tick(1299) == []
    request = commit_of(life, life.state.on_tick(1300))
    # all partitions, also those without rows
    assert entries(request) == {0: (0, 100, 130), 1: (0, 200, 200)}


def test_late_report_joins_the_next_commit_before_any_later_one() -> None:
    life = Life()
    life.cycle(life.report(p0=rows(100, 130)))
    request = commit_of(life, life.state.on_tick(1300))
    life.tell(life.report(p1=rows(200, 210)))  # too late: the commit is under way
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000)
    assert life.cycle(life.report(p1=rows(210, 220))) == []
    request = commit_of(life, life.tell(life.report(p0=rows(130, 140))), landed(request))
    assert entries(request) == {0: (0, 130, 140), 1: (0, 200, 210)}
    assert [file.path for file in request.files[P1]] == ["f200"]


# --- the commit


def full_cycle(life: Life) -> CommitTable:
    return commit_of(life, life.cycle(life.report(p0=rows(100, 130), p1=idle(200, 210))))


def test_landed_commit_releases_offsets_and_cleans_older_epochs_once() -> None:
    life = Life()
    request = full_cycle(life)
    assert entries(request) == {0: (0, 100, 130), 1: (0, 200, 210)}
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000
    )
    assert only(actions, CleanFiles) == CleanFiles(FACTS, "t-1", life.epoch)
    assert only(actions, CommitComplete).releases == {P0: Release(130, 0), P1: Release(210, 0)}
    view = landed(request)
    again = life.cycle(life.report(p0=rows(130, 140), p1=idle(210)))
    request = commit_of(life, again, view)
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.COMMITTED, "", 12, 1000
    )
    assert not any(isinstance(a, CleanFiles) for a in actions)


def test_next_start_commit_repeats_the_earlier_releases() -> None:
    life = Life()
    request = full_cycle(life)
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000)
    assert only(life.state.on_tick(5000), StartCommit).releases[P0] == Release(130, 0)


def test_cycle_without_rows_makes_no_commit_and_moves_on() -> None:
    life = Life()
    actions = life.cycle(life.report(p0=idle(100, 130), p1=idle(200)))
    assert only(actions, CommitComplete).releases[P0] == Release(130, 0)
    assert life.attach(P0).partitions[P0].needs[FACTS].next == 130


@pytest.mark.parametrize(
    "bad",
    [
        rows(100, 130, filtered_at=110),  # rows of [100, 110) were dropped: missing
        rows(100, 130, first=95),  # 95 is in already
        rows(100, 130, uuid="t-0"),  # staged for the previous table
    ],
)
def test_range_that_loses_or_doubles_rows_is_refused_and_reread(bad: Range) -> None:
    life = Life()
    actions = life.cycle(life.report(p0=bad, p1=rows(200, 210)))
    request = commit_of(life, actions)
    assert set(request.files) == {P1}
    assert entries(request)[0] == (0, 100, 100)
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000
    )
    told = only(actions, Rewind)
    assert told.nonce is None
    assert (told.partitions[P0].position, told.partitions[P0].rewind) == (100, 1)
    assert only(actions, CommitComplete).releases == {P0: Release(100, 1), P1: Release(210, 0)}


def test_rows_filtered_by_a_stale_position_are_not_idle() -> None:
    life = Life()
    stale = Range("id-1", 0, 0, "n1", 100, 130, {FACTS: TablePart("t-1", 150, None)})
    assert (
        only(life.cycle(life.report(p0=stale, p1=idle(200))), Rewind).partitions[P0].position == 100
    )


def test_unknown_outcome_is_found_by_the_commit_id() -> None:
    life = Life()
    request = full_cycle(life)
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.UNKNOWN, "timeout", None, 1000
    )
    only(actions, LoadTable)
    actions = life.state.on_table_loaded(FACTS, landed(request), 1000)
    assert only(actions, CommitComplete).releases[P0] == Release(130, 0)


def test_commit_of_unknown_outcome_is_retried_on_the_same_base() -> None:
    life = Life()
    request = full_cycle(life)
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.UNKNOWN, "timeout", None, 1000)
    assert commit_of(life, [LoadTable(FACTS)]) is request
    # the late one
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.CONFLICT, "moved", None, 1000)
    assert life.state.on_tick(1009) == []
    only(life.state.on_tick(1010), LoadTable)
    only(life.state.on_table_loaded(FACTS, landed(request), 1010), CommitComplete)


def test_unknown_outcome_is_never_given_up() -> None:
    life = Life()
    request = full_cycle(life)
    told = []
    for tries in range(20):
        now = 1000 + 100 * tries
        actions = life.state.on_commit_outcome(
            FACTS, request.commit, CommitStatus.UNKNOWN, "timeout", None, now
        )
        told += [a.consecutive for a in actions if isinstance(a, ReportFailure)]
        loads = [a for a in actions if isinstance(a, LoadTable)] or life.state.on_tick(now + 10)
        assert commit_of(life, loads) is request
    assert told == [1, 2, 3, 4, 5, 6]


def test_conflict_opens_again_and_takes_what_still_fits() -> None:
    life = Life()
    request = full_cycle(life)
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.CONFLICT, "moved", None, 1000
    )
    # it got in before
    sleeper = table(ledger({0: (0, 100, 120), 1: (0, 200, 200)}), named=12, newest=12)
    only(actions, LoadTable)
    actions = life.state.on_table_loaded(FACTS, sleeper, 1000)
    assert only(actions, Rewind).partitions[P0].position == 120  # first row 100 is below: refused


def test_foreign_conflict_is_tried_a_bounded_number_of_times() -> None:
    life = Life()
    actions = life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    for tries in range(3):
        request = commit_of(life, actions or life.state.on_tick(1000 + 10 * tries))
        actions = life.state.on_commit_outcome(
            FACTS, request.commit, CommitStatus.CONFLICT, "compaction", None, 1000
        )
    assert only(actions, ReportFailure) == ReportFailure(FACTS, "compaction", 1)
    assert only(actions, Rewind).partitions[P0].position == 100


def test_replaced_table_at_the_commit_is_reopened_without_old_files() -> None:
    life = Life()
    actions = life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    only(actions, LoadTable)
    actions = life.state.on_table_loaded(FACTS, table(uuid="t-2"), 1000)
    assert not [action for action in actions if isinstance(action, CommitTable)]
    told = only(actions, Rewind).partitions[P0]
    assert (told.position, told.needs[FACTS].uuid, told.needs[FACTS].next) == (100, "t-2", 100)
    assert only(actions, CommitComplete).releases[P0].floor == 100


def test_missing_table_holds_the_floor_until_it_is_made_again() -> None:
    life = Life()
    actions = life.cycle(life.report(p0=rows(100, 130), p1=idle(200, 210)))
    only(actions, LoadTable)
    actions = life.state.on_table_loaded(FACTS, None, 1000)
    assert only(actions, ReportFailure).reason == "does not exist"
    assert only(actions, CommitComplete).releases[P0] == Release(100, 1)
    assert FACTS not in life.attach(P0).partitions[P0].needs  # tasks hold and ask
    asked = only(life.tell(OpenTable("sink-0", life.epoch, FACTS, Need.CREATE, "{}")), PrepareTable)
    assert (asked.table, asked.need) == (FACTS, Need.CREATE)
    opened = only(life.state.on_table_prepared(FACTS, table(uuid="t-2"), "{}"), TableOpened)
    assert (opened.uuid, opened.needs[P0]) == ("t-2", 100)


def test_skipped_missing_table_no_longer_limits_the_offset_floor() -> None:
    life = Life(skip_missing=True)
    life.cycle(life.report(p0=rows(100, 130), p1=idle(200, 210)))
    life.state.on_table_loaded(FACTS, None, 1000)
    life.tell(OpenTable("sink-0", life.epoch, FACTS, Need.CREATE, "{}"))
    assert only(life.state.on_table_refused(FACTS, "does not exist"), TableRefused).skip
    actions = life.cycle(life.report(p0=idle(100, 150), p1=idle(210)))
    assert only(actions, CommitComplete).releases == {P0: Release(150, 1), P1: Release(210, 0)}


def test_first_ledger_of_a_table_needs_proof_of_leadership() -> None:
    life = Life(tables={FACTS: table()})
    only(life.cycle(life.report(p0=rows(100, 130), p1=idle(200))), LoadTable)
    proof = only(life.state.on_table_loaded(FACTS, table(), 1000), ProveLeadership)
    request = only(life.state.on_leadership(proof.token, True), CommitTable)
    assert request.opened == {P0: Position(0, 100), P1: Position(0, 200)}
    assert entries(request) == {0: (0, 100, 130), 1: (0, 200, 200)}


def test_coordinator_that_cannot_prove_its_leadership_stops() -> None:
    life = Life(tables={FACTS: table()})
    life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    proof = only(life.state.on_table_loaded(FACTS, table(), 1000), ProveLeadership)
    only(life.state.on_leadership(proof.token, False), Stop)


ROLLED_BACK = table(ledger({0: (0, 0, 60), 1: (0, 0, 200)}), named=12, newest=10)


def test_rolled_back_table_is_refilled_exactly_from_its_ledger() -> None:
    told = Life(tables={FACTS: ROLLED_BACK}).attach(P0).partitions[P0]
    assert (told.position, told.floor, told.needs[FACTS].next) == (60, 60, 60)


def test_rolled_back_quiet_table_warns_and_is_refilled_when_checked() -> None:
    life = Life(tables={FACTS: table(FILLED, named=12, newest=12)})
    life.attach(P0, P1)
    assert life.state.quiet_tables == [FACTS]
    assert life.state.on_table_seen(FACTS, table(FILLED, named=12, newest=12)) == []
    seen = life.state.on_table_seen(FACTS, ROLLED_BACK)
    told = only(seen, Warn).text
    assert told.startswith(
        f"table {FACTS} was rolled back to snapshot 10 from snapshot 12, its last commit; "
    )
    assert told.endswith(
        "; refilling it from the positions in its ledger; offsets to read again: 40"
    )
    assert only(seen, Rewind).partitions.keys() == {P0}
    assert life.state.on_table_seen(FACTS, ROLLED_BACK) == [], "once"


def test_rollback_is_logged_at_start_and_by_the_next_commit() -> None:
    assert (
        "was rolled back to snapshot 10" in only(Life(tables={FACTS: ROLLED_BACK}).begun, Warn).text
    )
    nothing = TableView("t-1", (), True, frozenset({12}), ROLLED_BACK.property)
    assert (
        "to before its first commit, or replaced with an"
        in only(Life(tables={FACTS: nothing}).begun, Warn).text
    )
    life = Life()
    life.attach(P0)
    life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    assert (
        "was rolled back" in only(life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000), Warn).text
    )


@pytest.mark.parametrize("view", [None, table(uuid="t-2"), table(FILLED, named=11, newest=11)])
def test_other_changes_of_a_quiet_table_wait_for_next_commit(view: TableView | None) -> None:
    life = Life(tables={FACTS: table(FILLED, named=12, newest=12)})
    assert life.state.on_table_seen(FACTS, view) == []


def test_table_with_a_commit_in_progress_is_not_checked() -> None:
    life = Life()
    life.attach(P0, P1)
    only(life.cycle(life.report(p0=rows(100, 130), p1=idle(200))), LoadTable)
    assert life.state.quiet_tables == []
    assert life.state.on_table_seen(FACTS, ROLLED_BACK) == []


def test_rolled_back_table_waits_until_group_offsets_are_lowered() -> None:
    life = Life(tables={FACTS: ROLLED_BACK})
    for seen in (GROUP, {P0: mark(60), P1: mark(200)}, {P0: mark(60, epoch=life.epoch)}):
        actions = life.cycle(life.report(p0=rows(60, 130), p1=idle(200)))
        only(actions, LoadTable)
        only(life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000), ReadGroupOffsets)
        actions = life.state.on_group_offsets(seen)
        assert only(actions, Rewind).partitions[P0].position == 60
    life.cycle(life.report(p0=rows(60, 130), p1=idle(200)))
    life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000)
    lowered = {P0: mark(60, epoch=life.epoch), P1: mark(200, epoch=life.epoch)}
    request = only(life.state.on_group_offsets(lowered), CommitTable)
    assert entries(request) == {0: (0, 60, 130), 1: (0, 200, 200)}


def test_rolled_back_table_waits_for_owners_that_may_still_commit() -> None:
    life = Life()
    assert life.attach(P0).partitions[P0].floor == 100
    life.state.on_tick(1000)
    life.tell(life.report(p0=rows(100, 130), p1=idle(200)))
    only(life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000), Rewind)  # from 60 on, as rewind 1
    # at 60 by chance: 100 is on its way
    seen = {P0: mark(60, epoch=life.epoch), P1: mark(200, epoch=life.epoch)}
    for rewind, follows in ((0, ReportFailure), (1, CommitTable)):
        seen[P0] = GroupOffset(60, OffsetMetadata(life.epoch, 0, "id-1", rewind))
        life.state.on_tick(life.now() + 1000)
        life.tell(life.report(p0=rows(60, 130), p1=idle(200)))
        life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000)
        only(life.state.on_group_offsets(seen), follows)


def test_replacement_of_a_rolled_back_table_waits_for_lowered_offsets() -> None:
    life = Life()
    # the owner may have committed it under this epoch's mark
    assert life.attach(P0).partitions[P0].floor == 100
    life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000)  # from 60 on
    life.cycle(life.report(p0=rows(60, 130), p1=idle(200)))
    # replaced: opened at the floor, 60
    only(life.state.on_table_loaded(FACTS, table(uuid="t-2"), 1000), Rewind)
    seen = {P0: mark(100, epoch=life.epoch), P1: mark(200, epoch=life.epoch)}
    for lowered, follows in ((100, ReportFailure), (60, ProveLeadership)):
        seen[P0] = GroupOffset(lowered, OffsetMetadata(life.epoch, 0, "id-1", 2))
        life.cycle(life.report(p0=rows(60, 130, uuid="t-2"), p1=idle(200)))
        only(life.state.on_table_loaded(FACTS, table(uuid="t-2"), 1000), ReadGroupOffsets)
        only(life.state.on_group_offsets(seen), follows)


def test_roll_back_noticed_at_the_commit_rewinds_the_readers() -> None:
    life = Life()
    only(life.cycle(life.report(p0=rows(100, 130), p1=idle(200))), LoadTable)
    # rows of [60, 100) would be missing
    actions = life.state.on_table_loaded(FACTS, ROLLED_BACK, 1000)
    assert only(actions, Rewind).partitions[P0].position == 60


# --- tables and partitions come


def test_new_table_opens_at_the_floor_and_everybody_is_told() -> None:
    life = Life()
    ask = OpenTable("sink-0", life.epoch, "db.new", Need.CREATE, '{"s":1}')
    assert only(life.tell(ask), PrepareTable) == PrepareTable("db.new", Need.CREATE, '{"s":1}')
    assert life.tell(ask) == []  # under way
    opened = only(life.state.on_table_prepared("db.new", table(uuid="t-9"), '{"a":1}'), TableOpened)
    assert (opened.needs, opened.answer) == ({P0: 100, P1: 200}, '{"a":1}')
    assert only(life.tell(ask), TableOpened) == opened


def test_table_with_other_rows_fails_naming_the_snapshot_to_restore() -> None:
    other = replace(table(FILLED), ancestors=[SnapshotView(50, None)], replaced=True)
    assert "make snapshot 10 current again" in only(Life({FACTS: other}).begun, Fail).reason


def test_branch_dropped_before_publishing_fails_with_its_last_snapshot() -> None:
    main = replace(
        table(FILLED), ancestors=[SnapshotView(50, None)], complete=False, branch_missing=True
    )
    remedy = "create the branch at snapshot 10, or at the head of main if all rows were published"
    assert remedy in only(Life({FACTS: main}).begun, Fail).reason


# --- a catalog that goes back in time


# cycle 1
OLDER = replace(FILLED, commit="c-older", topics=ledger({0: (0, 0, 60), 1: (0, 0, 150)}).topics)
NEWER = replace(FILLED, cycle=2)


def marks_of(*commits: Ledger, uuid: str = "t-1", **more: int) -> dict[TopicPartition, GroupOffset]:
    newest = LastCommits()
    for each in commits:
        newest.note(uuid, each)
    text = newest.to_text(2)
    marks = {p: at.mark for p, at in GROUP.items() if at.mark}
    return {
        p: GroupOffset(GROUP[p].offset, replace(m, commits=text, **more)) for p, m in marks.items()
    }  # type: ignore[arg-type]


def needs(life: Life) -> dict[TopicPartition, int]:
    told = life.attach(P0, P1).partitions
    return {p: told[p].needs[FACTS].next for p in told}


def test_restored_table_is_refilled_from_its_ledger_with_a_warning() -> None:
    life = Life({FACTS: table(OLDER)}, marks_of(NEWER))
    assert "the catalog was probably restored from a backup" in only(life.begun, Warn).text
    assert needs(life) == {P0: 60, P1: 150}
    request_waits = life.cycle(life.report(p0=rows(60, 130), p1=idle(150)))
    assert only(
        life.state.on_table_loaded(FACTS, table(OLDER), 1000) or request_waits, ReadGroupOffsets
    )


def test_quiet_table_with_its_known_newest_commit_continues_at_floor() -> None:
    life = Life({FACTS: table(OLDER)}, marks_of(OLDER))
    assert [a for a in life.begun if isinstance(a, Warn)] == []
    assert needs(life) == {P0: 100, P1: 200}


# earlier marks; another table's
@pytest.mark.parametrize("group", [GROUP, marks_of(NEWER, uuid="t-2")])
def test_offset_metadata_without_the_table_leaves_it_at_the_floor(
    group: Mapping[TopicPartition, GroupOffset],
) -> None:
    assert needs(Life({FACTS: table(OLDER)}, group)) == {P0: 100, P1: 200}


def test_table_restored_before_its_first_commit_fails_with_a_repair() -> None:
    group = marks_of(NEWER)
    reason = only(Life({FACTS: table()}, group).begun, Fail).reason
    assert "alter the offsets of all partitions" in reason
    altered = altered_group(
        {P0: 60, P1: 150}, group, {FACTS: look_up(table())}, {"orders": "id-1"}, 5, "y"
    )
    assert needs(Life({FACTS: table()}, altered)) == {P0: 60, P1: 150}


def test_table_restored_before_the_log_continues_at_altered_offsets() -> None:
    def begin(group: Mapping[TopicPartition, GroupOffset]) -> list[CoordinatorAction]:
        state = CoordinatorState(CoordinatorSettings("k-1", 5, 1000, 300), "x", lambda: "c")
        return state.begin(
            {"orders": TopicInfo("id-1", (80, 0))}, group, {FACTS: table(OLDER)}, None, 0
        )

    group = marks_of(NEWER)
    assert "from offset 60, but the log starts at 80" in only(begin(group), Fail).reason
    lookups = {FACTS: look_up(table(OLDER))}
    some = altered_group({P0: 80}, group, lookups, {"orders": "id-1"}, 5, "y")
    assert "the log starts at 80" in only(begin({**group, **some}), Fail).reason
    everything = altered_group({P0: 80, P1: 150}, group, lookups, {"orders": "id-1"}, 5, "y")
    assert [type(a) for a in begin(everything)] == [Send]


def test_partition_younger_than_a_restored_table_is_reread_from_start() -> None:
    older = replace(OLDER, topics=ledger({0: (0, 0, 60)}).topics)

    def begin(log_start: int) -> list[CoordinatorAction]:
        state = CoordinatorState(CoordinatorSettings("k-1", 5, 1000, 300), "x", lambda: "c")
        return state.begin(
            {"orders": TopicInfo("id-1", (0, log_start))},
            marks_of(NEWER),
            {FACTS: table(older)},
            None,
            0,
        )

    assert "from offset 0, but the log starts at 6" in only(begin(6), Fail).reason, (
        "the contents are unknown"
    )
    assert only(begin(0), Warn)


def test_partly_altered_offsets_do_not_hide_a_restored_table() -> None:
    group = marks_of(NEWER)
    altered = altered_group(
        {P0: 30}, group, {FACTS: look_up(table(OLDER))}, {"orders": "id-1"}, 5, "y"
    )
    assert needs(Life({FACTS: table(OLDER)}, {**group, **altered})) == {P0: 30, P1: 150}


def test_table_restored_during_a_commit_rewinds_the_readers() -> None:
    life = Life({FACTS: table(NEWER)}, marks_of(NEWER))
    life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    actions = life.state.on_table_loaded(FACTS, table(OLDER, named=9, newest=9), 1000)
    assert only(actions, Warn)
    told = only(actions, Rewind).partitions
    assert {p: told[p].position for p in (P0, P1)} == {P0: 60, P1: 150}


def test_newest_commits_go_out_with_every_floor() -> None:
    life = Life(group=marks_of(NEWER, uuid="not opened yet"))
    request = full_cycle(life)
    before = life.attach(P0).commits
    complete = only(
        life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000),
        CommitComplete,
    )
    commits_of_messages = [
        LastCommits.of_marks([OffsetMetadata(E6, 0, "id-1", commits=encoded)])
        for encoded in (before, complete.commits)
    ]
    newest_commits = [commits.newest("t-1") for commits in commits_of_messages]
    assert newest_commits == [stamp_of(FILLED), (life.epoch.number, 1)]
    unopened_tables = {commits.newest("not opened yet") for commits in commits_of_messages}
    assert unopened_tables == {stamp_of(NEWER)}


def test_two_names_of_one_table_are_an_error_naming_both() -> None:
    both = Life({"db.a": table(FILLED), "db.A": table(FILLED)})
    assert "db.a and db.A are the same table" in only(both.begun, Fail).reason
    later = Life()  # a route that somebody adds while it runs
    later.tell(OpenTable("sink-0", later.epoch, "db.Facts", Need.CREATE, "{}"))
    actions = later.state.on_table_prepared("db.Facts", table(FILLED), "{}")
    assert "the same table" in only(actions, Fail).reason


def test_renamed_table_opens_under_new_name_once_old_is_missing() -> None:
    life = Life()
    life.cycle(life.report(p0=rows(100, 130), p1=idle(200)))
    life.state.on_table_loaded(FACTS, None, 1000)
    life.tell(OpenTable("sink-0", life.epoch, "db.renamed", Need.CREATE, "{}"))
    actions = life.state.on_table_prepared("db.renamed", table(FILLED), "{}")
    assert only(actions, TableOpened).table == "db.renamed"


def test_table_that_cannot_be_opened_is_refused_with_its_reason() -> None:
    life = Life()
    life.tell(OpenTable("sink-0", life.epoch, "db.new", Need.CREATE, "{}"))
    assert (
        only(life.state.on_table_refused("db.new", "forbidden"), TableRefused).error == "forbidden"
    )


def test_table_prepared_while_it_is_committed_is_prepared_again_afterwards() -> None:
    life = Life()
    request = full_cycle(life)
    life.tell(OpenTable("sink-0", life.epoch, FACTS, Need.EVOLVE, "{}"))
    actions = life.state.on_table_prepared(FACTS, table(), '{"keys":2}')
    assert actions == [Send(TableOpened(life.epoch, FACTS, "t-1", {}, '{"keys":2}'))], (
        "no position and no rewind is sent"
    )
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000
    )
    assert only(actions, PrepareTable).need is Need.EVOLVE


def test_answer_for_a_replaced_table_waits_for_the_cycle_end() -> None:
    life = Life()
    full_cycle(life)
    life.tell(OpenTable("sink-0", life.epoch, FACTS, Need.EVOLVE, "{}"))
    assert life.state.on_table_prepared(FACTS, table(uuid="t-2"), "{}") == []


def test_added_partition_is_read_from_its_start_and_waited_for() -> None:
    life = Life()
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0, 0))})
    added = TopicPartition("orders", 2)
    assert life.attach(added).partitions[added].position == 0
    # the third has not reported
    assert life.cycle(life.report(p0=rows(100, 130), p1=idle(200))) == []


def test_partition_attached_during_a_cycle_is_not_awaited_in_it() -> None:
    life = Life()
    assert life.cycle(life.report(p0=rows(100, 130))) == []
    life.attach(P1)  # its task has not seen the start of this cycle as its owner
    request = commit_of(life, life.state.on_tick(1050))
    assert entries(request) == {0: (0, 100, 130), 1: (0, 200, 200)}
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1100)
    assert life.cycle(life.report(p0=idle(130))) == []  # now it reports, and is waited for
    only(life.tell(life.report(p1=rows(200, 210))), LoadTable)


def test_partition_reported_before_its_new_owner_is_in_the_commit() -> None:
    life = Life()
    life.cycle(life.report(p1=rows(200, 210)))
    life.attach(P1)
    assert life.state.on_tick(1050) == []  # the other one owns its partition all the time
    assert entries(commit_of(life, life.tell(life.report(p0=idle(100)))))[1] == (0, 200, 210)


def test_added_partition_without_a_task_is_not_awaited() -> None:
    life = Life()
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0, 0))})
    only(life.cycle(life.report(p0=rows(100, 130), p1=idle(200))), LoadTable)


def test_partition_added_during_a_commit_keeps_its_place() -> None:
    life = Life()
    request = full_cycle(life)
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0, 0))})
    actions = life.state.on_commit_outcome(
        FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000
    )
    assert only(actions, CommitComplete).releases[TopicPartition("orders", 2)] == Release(0, 0)


def test_valid_through_needs_a_time_of_every_partition() -> None:
    life = Life()
    ranges = {"p0": rows(100, 130, timestamp_ms=50), "p1": rows(200, 210, timestamp_ms=40)}
    assert commit_of(life, life.cycle(life.report(**ranges))).valid_through_ms == 40
    assert full_cycle(Life()).valid_through_ms is None
    life = Life()
    life.cycle(life.report(p0=rows(100, 130, timestamp_ms=50)))
    assert commit_of(life, life.state.on_tick(1300)).valid_through_ms is None  # a partition is late
    life = Life()
    ranges["p1"] = rows(200, 210, first=199, timestamp_ms=40)
    # refused: it is read again
    assert commit_of(life, life.cycle(life.report(**ranges))).valid_through_ms is None


@pytest.mark.parametrize(
    ("end", "described_ms", "expected"),
    [(200, 70, 60), (200, 55, 55), (201, 70, None)],  # 201: there is a record that was not read
)
def test_idle_partition_is_valid_through_the_observed_end_of_log(
    end: int, described_ms: int, expected: int | None
) -> None:
    life = Life()
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0), (160, end), described_ms)})
    request = commit_of(
        life, life.cycle(life.report(p0=rows(100, 130, timestamp_ms=60), p1=idle(200)))
    )
    assert request.valid_through_ms == expected


def test_partition_that_falls_idle_stays_valid_through_its_last_record() -> None:
    life = Life()
    ranges = {"p0": rows(100, 130, timestamp_ms=50), "p1": rows(200, 210, timestamp_ms=40)}
    request = commit_of(life, life.cycle(life.report(**ranges)))
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000)
    later = life.cycle(life.report(p0=rows(130, 140, timestamp_ms=90), p1=idle(210)))
    assert commit_of(life, later, landed(request)).valid_through_ms == 40


def test_quiet_table_is_as_old_as_its_log_end_check() -> None:
    life = Life()
    assert life.state.ages() == {FACTS: TableAge(None, complete=False)}
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0), (100, 200), 70)})
    assert life.state.ages() == {FACTS: TableAge(70, complete=True)}
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0), (100, 200), 100)})
    assert life.state.ages() == {FACTS: TableAge(100, complete=True)}
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0), (130, 200), 130)})
    assert life.state.ages() == {FACTS: TableAge(None, complete=False)}, (
        "rows came that nobody has read"
    )
    request = commit_of(
        life, life.cycle(life.report(p0=rows(100, 120, timestamp_ms=110), p1=idle(200)))
    )
    life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000)
    assert life.state.ages() == {FACTS: TableAge(110, complete=False)}
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0), (120, 200), 160)})
    assert life.state.ages() == {FACTS: TableAge(160, complete=True)}


def test_a_table_that_is_read_again_for_has_no_age() -> None:
    life = Life(tables={FACTS: table(FILLED, named=12, newest=12)})
    life.state.on_topics({"orders": TopicInfo("id-1", (0, 0), (100, 200), 70)})
    life.state.on_table_seen(FACTS, ROLLED_BACK)
    assert life.state.ages() == {FACTS: TableAge(None, complete=False)}


def test_deleted_topic_is_not_waited_for() -> None:
    life = Life()
    life.state.on_topics({})
    request = commit_of(life, life.cycle(life.report(p0=rows(100, 130))))
    assert entries(request)[1] == (0, 200, 200)


def test_ledger_beyond_the_end_of_the_log_fails_with_repair() -> None:
    state = CoordinatorState(CoordinatorSettings("k-1", 5, 1000, 300), "x", lambda: "c")
    topics = {"orders": TopicInfo("id-1", (0, 0))}
    failure = only(
        state.begin(topics, GROUP, {FACTS: table(FILLED)}, None, 0, {P0: 99, P1: 500}), Fail
    )
    assert "alter the offsets of the connector" in failure.reason


# --- offsets altered while stopped


def test_altered_offsets_raise_the_generation_in_one_group_commit() -> None:
    lookups = {FACTS: look_up(table(ledger({0: (2, 0, 100), 1: (0, 0, 200)})))}
    altered = altered_group({P0: 30}, GROUP, lookups, {"orders": "id-1"}, 8, "y")
    assert altered == {P0: GroupOffset(30, OffsetMetadata(Epoch(9, "y"), 3, "id-1"))}


def test_foreign_offsets_stay_when_another_partition_is_altered() -> None:
    group = {P0: GroupOffset(500, None), P1: GroupOffset(600, None)}
    altered = altered_group({P0: 30}, group, {FACTS: look_up(table())}, {"orders": "id-1"}, 5, "y")
    assert {p: at.offset for p, at in altered.items()} == {P0: 30, P1: 600}
    life = Life(tables={FACTS: table()}, group=altered)
    assert life.attach(P1).partitions[P1].position == 600


def test_table_without_rows_follows_altered_offsets_by_an_empty_commit() -> None:
    altered = altered_group(
        {P0: 30}, GROUP, {FACTS: look_up(table(FILLED))}, {"orders": "id-1"}, 5, "y"
    )
    life = Life(tables={FACTS: table(FILLED)}, group={P0: altered[P0], P1: mark(200)})
    assert life.attach(P0).partitions[P0].needs[FACTS].next == 30
    request = commit_of(
        life, life.cycle(life.report(p0=replace(idle(30), generation=1), p1=idle(200)))
    )
    assert entries(request) == {0: (1, 30, 30), 1: (0, 200, 200)}
    assert request.files == {}
    only(
        life.state.on_commit_outcome(FACTS, request.commit, CommitStatus.COMMITTED, "", 11, 1000),
        CommitComplete,
    )
    again = life.cycle(life.report(p0=replace(idle(30), generation=1), p1=idle(200)))
    only(again, CommitComplete)  # once is enough


def test_table_that_was_missed_follows_when_it_is_opened() -> None:
    altered = altered_group({P0: 30}, GROUP, {}, {"orders": "id-1"}, 5, "y")
    life = Life(group={P0: altered[P0], P1: mark(200)})
    assert life.attach(P0).partitions[P0].needs[FACTS].next == 30

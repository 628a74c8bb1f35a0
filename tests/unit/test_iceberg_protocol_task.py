from __future__ import annotations

from collections.abc import Callable
from itertools import count

from connect_py.api.record import TopicPartition
from connectors.iceberg.protocol.actions import (
    CloseFiles,
    DescribeTopics,
    Discard,
    Fail,
    Pause,
    RequestCommit,
    Resume,
    Seek,
    Send,
    TaskAction,
)
from connectors.iceberg.protocol.messages import (
    Attach,
    Attached,
    Attachment,
    CommitComplete,
    EpochStarted,
    Message,
    Need,
    OpenTable,
    Release,
    Report,
    Rewind,
    StartCommit,
    TableNeed,
    TableOpened,
    TablePart,
    TableRefused,
)
from connectors.iceberg.protocol.offset_metadata import GroupOffset, OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.protocol.task_state import TaskState
from connectors.iceberg.table.table import StagedFile, StagedKind

E6, E7, E8 = Epoch(6, "x"), Epoch(7, "x"), Epoch(8, "x")
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDS = {"orders": "id-1"}


def nonces() -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"n{next(numbers)}"


def sent(actions: list[TaskAction]) -> list[Message]:
    return [action.message for action in actions if isinstance(action, Send)]


def attachment(
    position: int = 100, rewind: int = 0, needed: int = 90, topic_id: str = "id-1"
) -> Attachment:
    return Attachment(topic_id, 0, position, position, rewind, {"db.t": TableNeed("t-1", needed)})


def attached_task(max_staged_cycles: int = 2) -> TaskState:
    """One partition, attached under nonce n2 (the first question preceded the epoch), table db.t
    open."""
    task = TaskState("sink-0", 5, nonces(), max_staged_cycles=max_staged_cycles)
    task.assign({P0: "id-1"}, {}, 0)
    task.on_message(EpochStarted(E7), 0)
    task.on_message(Attached(E7, "n2", {P0: attachment()}), 0)
    task.on_message(TableOpened(E7, "db.t", "t-1", {P0: 90}, "{}"), 0)
    return task


def report(task: TaskState, cycle: int, ids: dict[str, str] = IDS) -> list[TaskAction]:
    return task.report(cycle, {}, ids, 0)


def test_assigned_partition_stays_paused_until_the_coordinator_attaches_it() -> None:
    task = TaskState("sink-0", 5, nonces())
    asked = task.assign({P0: "id-1"}, {P0: OffsetMetadata(E6, 0, "id-1")}, 0)
    assert asked == [Pause(frozenset({P0})), Send(Attach("sink-0", 5, "n1", {P0: "id-1"}, E6))]
    assert not task.is_reading(P0)
    assert task.offsets_to_commit() == {}


def test_answer_seeks_resumes_and_wants_the_new_mark_committed() -> None:
    task = TaskState("sink-0", 5, nonces())
    task.assign({P0: "id-1"}, {}, 0)
    again = task.on_message(EpochStarted(E7), 0)
    assert sent(again) == [Attach("sink-0", 5, "n2", {P0: "id-1"}, E7)]
    told = task.on_message(Attached(E7, "n2", {P0: attachment()}), 0)
    assert told == [Discard(P0), Seek(P0, 100), Resume(frozenset({P0})), RequestCommit()]
    assert task.offsets_to_commit() == {P0: GroupOffset(100, OffsetMetadata(E7, 0, "id-1"))}


def test_offset_metadata_carries_newest_commits_with_their_own_floor() -> None:
    def told() -> list[tuple[int, str]]:
        return [(at.offset, at.mark.commits) for at in task.offsets_to_commit().values() if at.mark]

    task = TaskState("sink-0", 5, nonces())
    task.assign({P0: "id-1"}, {}, 0)
    task.on_message(EpochStarted(E7), 0)
    task.on_message(Attached(E7, "n2", {P0: attachment()}, "one"), 0)
    assert told() == [(100, "one")]
    task.on_message(StartCommit(E7, 2, {P0: Release(110, 0)}, "two"), 0)
    task.on_message(CommitComplete(E7, 1, {P0: Release(105, 0)}, "late"), 0)
    assert told() == [(110, "two")]
    task.on_message(CommitComplete(E7, 2, {P0: Release(110, 0)}, "three"), 0)
    assert told() == [(110, "three")]
    task.on_message(Rewind(E7, None, {P0: attachment(position=50, rewind=1)}, "four"), 0)
    assert told() == [(50, "four")]


def test_answer_to_an_older_question_is_ignored() -> None:
    task = TaskState("sink-0", 5, nonces())
    task.assign({P0: "id-1"}, {}, 0)
    task.on_message(EpochStarted(E7), 0)
    assert task.on_message(Attached(E7, "n1", {P0: attachment()}), 0) == []
    assert not task.is_reading(P0)


def test_unanswered_question_is_repeated_with_the_topic_described_again() -> None:
    task = TaskState("sink-0", 5, nonces(), ask_interval_ms=100)
    task.assign({P0: "id-1"}, {}, 0)
    assert task.on_tick(99) == []
    assert task.on_tick(100) == [DescribeTopics()]
    assert sent(task.on_topic_ids({"orders": "id-2"}, 100)) == [
        Attach("sink-0", 5, "n2", {P0: "id-2"}, None)
    ]
    assert task.on_tick(150) == []


def test_coordinator_of_an_earlier_start_is_not_followed() -> None:
    task = TaskState("sink-0", 8, nonces())
    task.assign({P0: "id-1"}, {}, 0)
    assert task.on_message(EpochStarted(E7), 0) == []
    assert task.epoch is None


def test_epoch_below_the_offset_metadata_is_answered_but_not_followed() -> None:
    task = TaskState("sink-0", 5, nonces())
    task.assign({P0: "id-1"}, {P0: OffsetMetadata(E8, 0, "id-1")}, 0)
    assert task.on_message(EpochStarted(E7), 0) == []
    assert sent(task.on_message(StartCommit(E7, 1, {}), 0)) == [Attach("sink-0", 5, "n2", {}, E8)]
    task.on_message(EpochStarted(E8), 0)
    assert task.epoch == E8  # first seen in a mark, followed anyway


def test_higher_epoch_detaches_all_partitions_of_the_task() -> None:
    task = attached_task()
    actions = task.on_message(StartCommit(E8, 1, {}), 0)
    assert Discard(P0) in actions
    assert Pause(frozenset({P0})) in actions
    assert [type(m) for m in sent(actions)] == [Attach]
    assert sent(report(task, 1)) == []  # nothing attached, nothing to report


def test_row_of_an_unopened_table_pauses_partition_until_answer() -> None:
    task = attached_task()
    assert task.filter_position("db.new", P0) is None
    task.advance(P0, 105)
    held = task.hold(P0, "db.new", Need.CREATE, "{}", 0)
    assert held == [
        Pause(frozenset({P0})),
        Seek(P0, 105),
        Send(OpenTable("sink-0", E7, "db.new", Need.CREATE, "{}")),
    ]
    assert not task.is_reading(P0)
    assert task.on_message(TableOpened(E7, "db.new", "t-9", {P0: 100}, '{"a":1}'), 0) == [
        Resume(frozenset({P0}))
    ]
    assert (task.filter_position("db.new", P0), task.answer("db.new")) == (100, '{"a":1}')


def test_refused_table_fails_only_tasks_that_wait_for_it() -> None:
    task = attached_task()
    assert task.on_message(TableRefused(E7, "db.new", "forbidden"), 0) == []
    task.hold(P0, "db.new", Need.CREATE, "{}", 0)
    assert task.on_message(TableRefused(E7, "db.new", "forbidden"), 0) == [
        Fail("table db.new: forbidden")
    ]


def test_table_replaced_since_counts_as_unopened() -> None:
    task = attached_task()
    told = Attachment("id-1", 0, 100, 100, 1, {"db.t": TableNeed("t-2", 100)})
    task.on_message(Rewind(E7, None, {P0: told}), 0)
    assert task.filter_position("db.t", P0) is None


def test_report_says_what_was_filtered_away_too() -> None:
    task = attached_task()
    assert task.on_message(StartCommit(E7, 1, {}), 0) == [CloseFiles(1)]
    file = StagedFile(StagedKind.ROWS, "f", 2, 10, 0, 0)
    task.handled(P0, "db.t", None)
    task.advance(P0, 120, 55)
    message = sent(task.report(1, {}, IDS, 0))[0]
    assert isinstance(message, Report)
    reported = message.ranges[P0]
    assert (reported.start, reported.next, reported.timestamp_ms) == (100, 120, 55)
    assert reported.tables == {"db.t": TablePart("t-1", 90, None)}
    task.handled(P0, "db.t", 121)
    task.handled(P0, "db.t", 125)
    task.advance(P0, 130)
    message = sent(task.report(2, {(P0, "db.t"): [file]}, IDS, 0))[0]
    assert isinstance(message, Report)
    assert message.ranges[P0].tables == {"db.t": TablePart("t-1", 90, 121, (file,))}
    assert (message.ranges[P0].start, message.ranges[P0].next) == (120, 130)


def test_idle_partition_reports_an_empty_range() -> None:
    message = sent(report(attached_task(), 1))[0]
    assert isinstance(message, Report)
    assert (message.ranges[P0].start, message.ranges[P0].next) == (100, 100)


def test_cycle_is_reported_once_however_often_it_is_announced() -> None:
    task = attached_task()
    assert task.on_message(StartCommit(E7, 1, {}), 0) == [CloseFiles(1)]
    assert task.on_message(StartCommit(E7, 1, {}), 0) == []


def test_rows_of_a_replaced_topic_are_discarded_and_not_reported() -> None:
    task = attached_task()
    task.advance(P0, 120)
    actions = report(task, 1, {"orders": "id-2"})
    assert Discard(P0) in actions
    assert sent(actions) == [Attach("sink-0", 5, "n3", {P0: "id-2"}, E7)]


def test_partition_pauses_at_too_many_staged_cycles_until_a_release() -> None:
    task = attached_task(max_staged_cycles=1)
    task.advance(P0, 110)
    assert not any(isinstance(a, Pause) for a in report(task, 1))
    task.advance(P0, 120)
    assert Pause(frozenset({P0})) in report(task, 2)
    assert task.on_message(StartCommit(E7, 3, {P0: Release(110, 0)}), 0) == [
        Resume(frozenset({P0})),
        CloseFiles(3),
    ]
    assert task.offsets_to_commit()[P0].offset == 110


def test_release_of_an_older_rewind_number_does_not_count() -> None:
    task = attached_task()
    task.on_message(Rewind(E7, None, {P0: attachment(position=50, rewind=1)}), 0)
    task.on_message(StartCommit(E7, 1, {P0: Release(100, 0)}), 0)
    assert task.offsets_to_commit()[P0].offset == 50  # lowered, for the refill


def test_release_with_a_newer_rewind_number_reveals_a_lost_message() -> None:
    task = attached_task()
    actions = task.on_message(StartCommit(E7, 1, {P0: Release(50, 1)}), 0)
    assert [type(m) for m in sent(actions)] == [Attach]
    assert task.offsets_to_commit() == {}


def test_rewind_that_answers_somebody_else_is_ignored() -> None:
    task = attached_task()
    task.advance(P0, 120)
    assert task.on_message(Rewind(E7, "n77", {P0: attachment(position=60)}), 0) == []
    assert Seek(P0, 60) in task.on_message(Rewind(E7, "n2", {P0: attachment(position=60)}), 0)


def test_position_outside_the_log_describes_the_topics_again_later() -> None:
    task = attached_task()
    assert task.position_lost(P0, 0) == [Discard(P0), Pause(frozenset({P0}))]
    assert not task.is_reading(P0)
    assert task.on_tick(100) == []
    assert task.on_tick(60_000) == [DescribeTopics()], "the topic may be another one"
    assert task.position_lost(P1, 0) == [], "it is not ours"


def test_revoked_partition_is_discarded_and_not_committed() -> None:
    task = attached_task()
    assert task.revoke([P0, P1]) == [Discard(P0)]
    assert not task.is_reading(P0)
    assert task.offsets_to_commit() == {}


def test_task_knows_its_next_offset_when_rows_are_delivered_again() -> None:
    task = attached_task()
    task.advance(P0, 120)
    assert task.next_offset(P0) == 120
    task.on_message(Rewind(E7, "n2", {P0: attachment(position=100)}), 0)
    assert task.next_offset(P0) == 100  # a seek of ours starts over


def test_skipped_table_stays_skipped_until_opened_or_epoch_ends() -> None:
    task = attached_task()
    task.hold(P0, "db.new", Need.CREATE, "{}", 0)
    assert task.on_message(TableRefused(E7, "db.new", "gone", skip=True), 0) == [
        Resume(frozenset({P0}))
    ]
    assert task.is_skipped("db.new")
    task.on_message(TableOpened(E7, "db.new", "t-9", {P0: 100}, "{}"), 0)
    assert not task.is_skipped("db.new")
    task.on_message(TableRefused(E7, "db.new", "gone", skip=True), 0)
    task.on_message(EpochStarted(E8), 0)
    assert not task.is_skipped("db.new")


def test_coordinator_that_missed_altered_offsets_is_refused_and_must_restart() -> None:
    task = TaskState("sink-0", 5, nonces())
    # it read the group before generation 1 was written
    task.assign({P0: "id-1"}, {P0: OffsetMetadata(E7, 1, "id-1")}, 0)
    task.on_message(EpochStarted(E8), 0)
    rejected = task.on_message(Attached(E8, "n2", {P0: attachment()}), 0)
    [told] = sent(rejected)
    assert isinstance(told, Attach)
    assert told.seen is not None
    assert told.seen > E8
    assert not task.is_reading(P0)
    assert task.offsets_to_commit() == {}
    assert task.on_message(Attached(E8, "n2", {P0: attachment()}), 0) == []

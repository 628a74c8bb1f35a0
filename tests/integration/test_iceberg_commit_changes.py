"""Truncates, changed keys and ordered changes, engine by engine, against a real Iceberg."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fixtures.iceberg_changes import Reader, Source, readers
from fixtures.iceberg_commit import BY_REGION, ENGINES, Lake, lake, order
from short_form import short_form

from connect_py.api.record import TopicPartition
from connectors.iceberg.errors import DuplicateKeyError, PairUnreadError
from connectors.iceberg.protocol.commit_request import EngineName
from connectors.iceberg.table.table import StagedKind

__all__ = ["lake"]

Make = Callable[[Source], Reader]
pytestmark = pytest.mark.timeout(400)  # several SQL MERGEs each, and the first one starts Spark


@pytest.fixture(params=ENGINES)
def make(lake: Lake, request: pytest.FixtureRequest) -> Make:
    """Makes the reader of a source that commits by this engine."""
    return lambda source: next(readers(lake, 3, source, [request.param]))


def write(source: Source, *ids: int, big: bool = True) -> None:
    for id_ in ids:
        source.apply(("write", id_, "north", big))


def ledgers(reader: Reader) -> int:
    return sum(snapshot.ledger is not None for snapshot in reader.sink.load().view.ancestors)


def test_truncate_and_the_rows_after_it_share_one_commit(make: Make) -> None:
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1, 2, 3)
    reader.take(source, [0])
    write(source, 4)
    source.apply(("truncate",))
    write(source, 2)
    before = ledgers(reader)
    outcome = reader.take(source, [0])
    assert reader.rows() == source.rows
    assert ledgers(reader) == before + 1, "one snapshot of ours, whatever the engine needs besides"
    if reader.engine is EngineName.MERGE:
        assert outcome.counts.replaced_rows == 3


@pytest.mark.long  # in every run: test_a_partition_that_lags_overwrites_nothing_newer
def test_lagging_truncate_removes_no_rows_of_other_partitions(make: Make) -> None:
    source = Source(2, by_key=True)
    reader = make(source)
    write(source, 2, 4)
    source.apply(("truncate",))  # in partition 0
    source.apply(("write", 1, "south", True))
    source.apply(("write", 3, None, True))
    reader.take(source, [1, 0])  # everything but the truncate
    assert sorted(reader.rows()) == [1, 2, 3, 4]
    reader.take(source, [0, 0])
    assert reader.rows() == source.rows


def test_a_truncate_alone_is_a_commit(make: Make) -> None:
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1)
    reader.take(source, [0])
    source.apply(("truncate",))
    outcome = reader.take(source, [0])
    assert reader.rows() == {}
    assert outcome.snapshot_id == reader.sink.version().ledger_snapshot


def test_repeated_source_snapshot_replaces_the_existing_rows(make: Make) -> None:
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1, 2)
    source.apply(("snapshot",))
    write(source, 2)
    reader.take(source, [0])
    source.apply(("delete", 1))
    write(source, 3)
    source.apply(("snapshot",))
    reader.take(source, [0])
    assert reader.rows() == source.rows


def test_changed_key_finds_its_values_after_its_delete_was_committed(make: Make) -> None:
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1, 2)
    reader.take(source, [0])
    source.apply(("move", 1, 3))  # delete, tombstone, insert
    write(source, 2)
    reader.take(source, [2])
    assert set(reader.rows()) == {2}, "the delete is in, the insert is not"
    outcome = reader.take(source, [0])
    assert reader.rows() == source.rows
    assert outcome.counts.unmatched_patches == 0


@pytest.mark.long  # in every run: test_key_added_and_changed_in_one_cycle_is_found
def test_a_changed_key_finds_values_that_no_snapshot_had(make: Make) -> None:
    """The row is written and its key changed in one cycle; the next cycle contains the insert of
    the new key.
    """
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1, 2)
    reader.take(source, [0])
    write(source, 1)
    source.apply(("move", 1, 3))
    reader.take(source, [1])
    outcome = reader.take(source, [0])
    assert reader.rows() == source.rows
    assert outcome.counts.unmatched_patches == 0


def test_key_added_and_changed_in_one_cycle_is_found(make: Make) -> None:
    """That cycle is the first one, and removes no row of the table."""
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1)
    source.apply(("move", 1, 3))
    reader.take(source, [1])
    assert reader.rows() == {}
    outcome = reader.take(source, [0])
    assert reader.rows() == source.rows
    assert outcome.counts.unmatched_patches == 0


def test_a_value_that_is_nowhere_is_null_and_counted(make: Make) -> None:
    source = Source(1, by_key=True)
    reader = make(source)
    write(source, 1)
    write(source, 1, big=False)
    reader.read[0] = 1  # the insert was never seen
    outcome = reader.take(source, [0])
    assert reader.rows()[1]["big"] is None
    if reader.engine is EngineName.MERGE:
        assert outcome.counts.unmatched_patches == 1


def test_unordered_changes_in_several_partitions_fail_naming_the_partitions(make: Make) -> None:
    source = Source(2, by_key=False)
    reader = make(source)
    write(source, 1, 1)
    reader.ordered = False
    with pytest.raises(DuplicateKeyError, match=r"\(1,\) in partitions 0 and 1"):
        reader.take(source, [0, 0])


def test_a_partition_that_lags_overwrites_nothing_newer(make: Make) -> None:
    source = Source(2, by_key=False)
    reader = make(source)
    write(source, 1, 1)  # the first in one partition, the second in the other
    newest = 1 if source.log[1][-1].value["after"]["n"] == 2 else 0
    reader.take(source, [newest, 1 - newest])
    assert reader.rows() == source.rows
    outcome = reader.take(source, [0, 0])
    assert reader.rows() == source.rows
    assert outcome.counts.older_changes == 1


ONE_CYCLE = {  # keys are in separate partitions
    "changed after a truncate": [("truncate",), ("write", 2, "north", True), ("move", 2, 4)],
    "changed twice": [("truncate",), ("write", 2, "north", True), ("move", 2, 4), ("move", 4, 3)],
    "changed twice, no truncate": [("write", 2, "north", True), ("move", 2, 4), ("move", 4, 3)],
    "used again": [
        ("write", 2, "north", True),
        ("move", 2, 4),
        ("write", 2, "south", True),
        ("move", 2, 3),
    ],
    "used again after a truncate": [
        ("write", 2, "north", True),
        ("move", 2, 4),
        ("truncate",),
        ("write", 2, "south", True),
        ("move", 2, 3),
    ],
}


@pytest.mark.parametrize("name", short_form(ONE_CYCLE, ["used again after a truncate"]))
def test_unsent_values_come_from_the_last_row_of_the_key(make: Make, name: str) -> None:
    source = Source(3, by_key=True)
    reader = make(source)
    write(source, 1, 2)
    reader.take(source, [0, 0, 0])
    for step in ONE_CYCLE[name]:
        source.apply(step)
    reader.take(source, [0, 0, 0])
    assert reader.rows() == source.rows


ANYWHERE = {  # every third step is in the same partition, regardless of its key's earlier partition
    "its own older value": [
        ("write", 2, "north", True),
        ("write", 2, "north", True),
        ("write", 3, "north", True),
        ("write", 2, "south", False),
    ],
    "that of a row that is gone": [
        ("write", 2, "north", True),
        ("delete", 2),
        ("write", 2, "north", True),
        ("write", 2, "south", False),
    ],
    "written in one partition, its key changed in another": [
        ("write", 2, "north", True),
        ("move", 2, 4),
    ],
    "the old key used again": [
        ("write", 2, "north", True),
        ("move", 2, 4),
        ("write", 3, "north", True),
        ("write", 2, "south", True),
    ],
    "written once more under the new key": [
        ("write", 2, "north", True),
        ("move", 2, 4),
        ("write", 3, "north", True),
        ("delete", 3),
        ("write", 4, "south", False),
    ],
}


@pytest.mark.long  # in every run: test_unsent_values_come_from_the_last_row_of_the_key
@pytest.mark.parametrize("name", ANYWHERE)
def test_unsent_values_are_the_newest_of_all_partitions(make: Make, name: str) -> None:
    """A single partition would use its own value, although another one has a newer value or a
    delete.
    """
    source = Source(3, by_key=False)
    reader = make(source)
    write(source, 1, 2)
    for step in ANYWHERE[name]:
        source.apply(step)
    outcome = reader.take(source, [0, 0, 0])
    assert reader.rows() == source.rows
    assert outcome.counts.unmatched_patches == 0


@pytest.mark.long  # in every run: test_unsent_values_come_from_the_last_row_of_the_key
def test_changed_key_takes_the_older_row_of_a_reused_key(make: Make) -> None:
    source = Source(3, by_key=True)
    reader = make(source)
    write(source, 1)
    reader.take(source, [0, 0, 0])
    source.apply(("move", 1, 3))
    write(source, 1)
    reader.take(source, [1, 0, 0])
    assert set(reader.rows()) == {1}
    outcome = reader.take(source, [0, 0, 0])
    assert reader.rows() == source.rows
    assert outcome.counts.unmatched_patches == 0


def test_insert_with_unread_delete_is_not_committed(make: Make) -> None:
    """The changes between the table's row and the change of its key have not been read yet."""
    source = Source(3, by_key=True)
    reader = make(source)
    write(source, 1)
    reader.take(source, [0, 0, 0])
    write(source, 1)
    source.apply(("move", 1, 3))
    with pytest.raises(PairUnreadError):
        reader.take(source, [0, len(source.log[1]), 0])
    assert set(reader.rows()) == {1}


@pytest.mark.long  # in every run: test_insert_with_unread_delete_is_not_committed
def test_insert_committed_without_its_delete_has_null_permanently(make: Make) -> None:
    source = Source(3, by_key=True)
    reader = make(source)
    write(source, 1)
    reader.take(source, [0, 0, 0])
    source.apply(("move", 1, 3))
    reader.stager.stage_alone(TopicPartition("shop", 0), 0)
    outcome = reader.take(source, [0, len(source.log[1]) - 1, 0])
    assert reader.rows()[3]["big"] is None
    assert outcome.counts.unmatched_patches == 1
    reader.take(source, [0, 0, 0])
    assert set(reader.rows()) == {3}
    assert reader.rows()[3]["big"] is None
    assert not reader.sink.description().open_pairs


@pytest.mark.long  # in every run: test_changed_key_finds_its_values_after_its_delete_was_committed
@pytest.mark.parametrize(
    "apart",
    [False, True],
    ids=["in one cycle", "in cycles of their own"],
)
def test_changed_key_with_a_row_before_the_table_has_null(lake: Lake, apart: bool) -> None:
    source = Source(3, by_key=True)
    (reader,) = readers(lake, 3, source, [EngineName.MERGE])
    write(source, 1)
    reader.read = [len(log) for log in source.log]  # the table begins here
    source.apply(("move", 1, 3))
    write(source, 2)
    if apart:
        reader.take(source, [len(source.log[0]), 0, 0])
    outcome = reader.take_as_tasks_do(source, [0, 0, 0])
    assert outcome.counts.unmatched_patches == 1
    assert reader.rows() == {2: source.rows[2], 3: {**source.rows[3], "big": None, "items": None}}
    assert not reader.sink.description().open_pairs


# the same key is changed to the same new key again: each insert has the row of its own lifetime
REUSED = {
    "again": [("move", 1, 3), ("move", 3, 1), ("write", 1, "north", True), ("move", 1, 3)],
    "new in between": [("move", 1, 3), ("delete", 3), ("write", 1, "north", True), ("move", 1, 3)],
    "there and back": [("move", 1, 2), ("move", 2, 3), ("move", 3, 1)],
}


KINDS = {"ordered": (True, True), "with a place": (True, False), "without one": (False, False)}
IN_SHORT = {("there and back", "with a place")}


@pytest.mark.long  # in every run: test_changed_key_finds_its_values_after_its_delete_was_committed
@pytest.mark.parametrize(
    ("reused", "kind"),
    [
        pytest.param(reused, kind, marks=() if (reused, kind) in IN_SHORT else pytest.mark.long)
        for reused in REUSED
        for kind in KINDS
    ],
)
def test_insert_finds_its_old_key_whenever_the_delete_was_committed(
    lake: Lake, reused: str, kind: str
) -> None:
    place, ordered = KINDS[kind]
    source = Source(3, by_key=True, place=place, ordered=ordered)
    (reader,) = readers(lake, 3, source, [EngineName.MERGE])
    write(source, 1)
    reader.take(source, [0, 0, 0])
    for step in REUSED[reused]:
        source.apply(step)
    at = list(reader.read)
    # a record at a time, in the order of the source
    while at != (ends := [len(log) for log in source.log]):
        partition = min(
            (p for p in range(3) if at[p] < ends[p]), key=lambda p: source.places[p][at[p]]
        )
        at[partition] += 1
        reader.take(source, [end - there for end, there in zip(ends, at, strict=True)])
    assert reader.rows() == source.rows
    assert not reader.sink.description().open_pairs


@pytest.mark.long  # in every run: test_changed_key_finds_its_values_after_its_delete_was_committed
def test_old_key_row_is_found_after_its_snapshot_has_expired(lake: Lake) -> None:
    source = Source(3, by_key=True)
    (reader,) = readers(lake, 3, source, [EngineName.MERGE])
    write(source, 1)
    source.apply(("move", 1, 3))
    reader.take(source, [len(source.log[0]), 0, 0])
    assert len(reader.sink.description().open_pairs) == 1
    name = reader.sink.name
    lake.sql(f"INSERT INTO lake.{name} (id, n) VALUES (100, 0)")
    older_than = "older_than => TIMESTAMP '2100-01-01', retain_last => 1"
    lake.sql(f"CALL lake.system.expire_snapshots(table => '{name}', {older_than})")
    assert reader.sink.load().view.ancestors[0].ledger is None
    reader.take(source, [0, 0, 0])
    rows = reader.rows()
    assert rows.pop(100)["big"] is None
    assert rows == source.rows
    assert not reader.sink.description().open_pairs


@pytest.mark.long  # in every run: test_rows_tried_again_fill_an_empty_table
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("spec", [None, BY_REGION])
def test_retried_rows_are_inserted_only_where_their_key_is_missing(
    lake: Lake, engine: EngineName, spec: str | None
) -> None:
    sink = lake.make(spec=spec)
    sink.commit(sink.stage([order(1, "a"), order(1, "gone")]))
    deleted = sink.stage([{"shop": 1, "number": "gone"}], StagedKind.DELETES)
    old = [
        order(1, "a", "old"),
        order(2, "missing"),
        order(3, "live", "old"),
        order(1, "gone", "old"),
    ]
    outcome = sink.commit(
        [*sink.stage([order(3, "live")]), *deleted, *sink.stage(old, StagedKind.INSERTS)], engine
    )
    assert sink.rows("shop, number, region") == [
        (("shop", 1), ("number", "a"), ("region", "north")),
        (("shop", 2), ("number", "missing"), ("region", "north")),
        (("shop", 3), ("number", "live"), ("region", "north")),
    ]
    assert outcome.counts.added_rows == 2
    again = sink.commit(sink.stage(old[:3], StagedKind.INSERTS), engine)
    assert len(sink.rows()) == 3
    assert again.counts.added_rows == 0
    assert sink.version().ledger_snapshot == again.snapshot_id


def test_rows_tried_again_fill_an_empty_table(lake: Lake) -> None:
    sink = lake.make()
    sink.commit(sink.stage([order(1, "a"), order(2, "b")], StagedKind.INSERTS))
    assert sink.rows("shop, number") == [
        (("shop", 1), ("number", "a")),
        (("shop", 2), ("number", "b")),
    ]

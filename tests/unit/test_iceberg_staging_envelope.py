"""Debezium's change events staged as they come: rows, deletes, truncates, and rows whose key was
changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import (
    ORDERS_0,
    batch,
    changes,
    config,
    read,
    record,
    stage,
    stager,
    table,
)

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, DataError, FailureReason
from connect_py.api.record import Header, Headers, SinkRecord
from connect_py.api.schema import INT64, STRING, Schema, Struct, Type, struct
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.staging.change_events import Envelope
from connectors.iceberg.staging.changed_keys import pairs_in
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.table import TableRequest
from connectors.iceberg.task.key_change_stops import unread_pairs

KEY = struct(("id", INT64))
ROW = struct(("id", INT64), ("v", Schema(Type.STRING, optional=True)))
OPTIONAL_ROW = ROW.replace(optional=True)
EVENT = struct(("before", OPTIONAL_ROW), ("after", OPTIONAL_ROW), ("op", STRING))
COLUMNS = [("id", "long"), ("v", "string")]
GONE = "__debezium_unavailable_value"


def event(offset: int, op: str, after: Any = None, before: Any = None, **more: Any) -> SinkRecord:
    """A change event with a schema; rows are (id, v)."""
    rows = [None if row is None else Struct(OPTIONAL_ROW, list(row)) for row in (before, after)]
    key = next((Struct(KEY, [row[0]]) for row in (after, before) if row is not None), None)
    return record(Struct(EVENT, [*rows, op]), offset, key=key, **more)


def plain(offset: int, op: str, after: Any = None, before: Any = None) -> SinkRecord:
    """The same without a schema."""
    rows = [None if row is None else {"id": row[0], "v": row[1]} for row in (before, after)]
    key = next(({"id": row["id"]} for row in rows if row is not None), None)
    return record(
        {"before": rows[0], "after": rows[1], "op": op, "source": {"lsn": offset}}, offset, key=key
    )


def moved(made: SinkRecord, old_id: Any) -> SinkRecord:
    return made.replace(headers=Headers([Header("__debezium.oldkey", old_id, None)]))


def merging(folder: Path, *, partitions: int = 1, **more: str) -> TableStager:
    description = table(COLUMNS, keys=["id"], required=["id"], folder=folder)
    settings = {
        "ext__envelope": "debezium",
        "ext__truncate_events": "apply",
        "tables__upsert_mode_enabled": "true",
    }
    return stager(description, partitions=partitions, **{**settings, **more})


@pytest.mark.parametrize("made", [event, plain])
def test_upserts_use_the_after_row_and_deletes_the_before_key(tmp_path: Path, made: Any) -> None:
    records = [
        made(0, "r", (1, "a")),
        made(1, "c", (2, "b")),
        made(2, "u", (1, "c"), (1, "a")),
        made(3, "d", None, (2, "b")),
        made(4, "m"),
        record(None, 5, key=Struct(KEY, [3])),
    ]
    stager_ = merging(tmp_path)
    files = stage(stager_, *Batch.of(records))
    assert read(files) == [{"id": 1, "v": "c"}]
    assert sorted(row["id"] for row in read(files, "deletes")) == [2, 3]
    assert sum(stager_.prepare(each).ignored for each in Batch.of(records)) == 1


def test_delete_without_a_before_row_uses_the_record_key(tmp_path: Path) -> None:
    gone = record(Struct(EVENT, [None, None, "d"]), 1, key=Struct(KEY, [1]))
    files = stage(merging(tmp_path), batch([event(0, "c", (2, "b")), gone]))
    assert read(files, "deletes") == [{"id": 1}]


def test_records_that_are_no_change_events_are_bad_rows(tmp_path: Path) -> None:
    made = merging(tmp_path)
    with pytest.raises(BadRows) as raised:
        made.prepare(batch([event(0, "c", (1, "a")), event(1, "x", (2, "b"))]))
    assert list(raised.value.errors) == [1]
    with pytest.raises(BadRows) as unlike:
        made.prepare(batch([record(Struct(ROW, [1, "a"]), 0)]))
    with pytest.raises(BadRows) as rowless:
        made.prepare(batch([event(0, "c")]))
    for errors in (raised.value.errors, unlike.value.errors, rowless.value.errors):
        assert {getattr(error, "reason", None) for error in errors.values()} == {
            FailureReason.NO_CHANGE_EVENT
        }


@pytest.mark.parametrize("made", [event, plain])
@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_event_without_the_row_it_writes_is_a_bad_row(tmp_path: Path, made: Any, op: str) -> None:
    records = [
        made(0, "c", (1, "a")),
        made(1, op, None, (1, "a")),
        made(2, "d", None, (1, "a")),
        made(3, "t"),
    ]
    for start, bad in ((0, 1), (1, 0)):  # among events that have rows, and where no event has one
        with pytest.raises(BadRows) as raised:
            merging(tmp_path).prepare(batch(records[start : start + 3]))
        ((row, error),) = raised.value.errors.items()
        assert row == bad
        assert "it lacks 'after'" in str(error)


@pytest.mark.parametrize("made", [event, plain])
def test_truncate_removes_earlier_rows_and_stages_a_truncate_marker(
    tmp_path: Path, made: Any
) -> None:
    records = [
        made(0, "c", (1, "a")),
        made(1, "c", (2, "b")),
        made(2, "t"),
        made(3, "c", (2, "new")),
    ]
    files = stage(merging(tmp_path), *Batch.of(records))
    assert [(f.kind.value, f.path == "", f.rows) for f in files] == [
        ("truncates", True, 0),
        ("rows", False, 1),
    ]
    assert read(files) == [{"id": 2, "v": "new"}]


def test_a_truncate_alone_is_staged_without_a_file(tmp_path: Path) -> None:
    made = merging(tmp_path)
    (file,) = stage(made, batch([event(0, "t")]))
    assert file.kind.value == "truncates"
    assert made.partitions() == []


def test_a_truncate_that_went_to_disk_still_counts(tmp_path: Path) -> None:
    made = merging(tmp_path)
    made.add(made.prepare(batch([event(0, "c", (1, "a"))])))
    made._buffer.spill()
    made.add(made.prepare(batch([event(1, "t"), event(2, "c", (3, "c"))])))
    made._buffer.spill()
    files = made.close_cycle(1, ORDERS_0)
    assert read(files) == [{"id": 3, "v": "c"}]


def test_truncates_are_ignored_and_counted_unless_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = merging(tmp_path, ext__truncate_events="ignore")
    assert read(stage(made, batch([event(0, "c", (1, "a")), event(1, "t")]))) == [
        {"id": 1, "v": "a"}
    ]
    assert made.prepare(batch([event(0, "c", (1, "a")), event(1, "t")])).ignored == 1
    assert "truncate-events=apply" in caplog.text


@pytest.mark.parametrize("made", [event, plain])
def test_events_of_a_snapshot_are_left_out_if_asked_for(tmp_path: Path, made: Any) -> None:
    records = [
        made(0, "r", (1, "a")),
        made(1, "c", (2, "b")),
        made(2, "r", (2, "old")),
        made(3, "r", None),
    ]
    stager_ = merging(tmp_path, ext__snapshot_events="ignore")
    assert read(stage(stager_, *Batch.of(records))) == [{"id": 2, "v": "b"}]
    assert sum(stager_.prepare(each).ignored for each in Batch.of(records)) == 3
    assert stage(stager_, *Batch.of(records[2:]), cycle=2) == []


def test_truncate_in_a_multi_partition_topic_is_a_bad_row(tmp_path: Path) -> None:
    made = merging(tmp_path, partitions=3)
    with pytest.raises(BadRows) as raised:
        made.prepare(batch([event(0, "c", (1, "a")), event(1, "t")]))
    assert list(raised.value.errors) == [1]
    assert "3 partitions" in str(raised.value.errors[1])


def left(made: SinkRecord, new_id: Any) -> SinkRecord:
    return made.replace(headers=Headers([Header("__debezium.newkey", {"id": new_id})]))


DELETE, INSERT, ALONE = 0, 1, 2


def test_both_halves_of_a_key_change_share_a_pair_identifier(tmp_path: Path) -> None:
    records = [
        event(0, "u", (1, "known")),
        event(1, "u", (1, GONE)),
        left(event(2, "d", None, (1, None)), 2),
        left(record(None, 3, key=Struct(KEY, [1])), 2),
        moved(event(4, "c", (2, GONE)), '{"id": 1}'),
        event(5, "u", (2, GONE)),
        event(6, "u", (9, GONE)),
    ]
    files = stage(merging(tmp_path), batch(records))
    found = changes(files, "id", "v", "half", "partial")
    assert found == [
        (1, "known", None, False),
        (1, None, None, False),
        (1, None, DELETE, False),
        (2, None, INSERT, False),
        (2, None, None, True),
        (9, None, None, True),
    ]
    pairs = changes(files, "__connect_py_pair")
    assert pairs[2] == pairs[3] != (None,)
    assert [file.pairs for file in files if file.kind.value == "changes"] == [True]
    assert read(files, "deletes") == [{"id": 1}]
    assert read(files) == []


def test_pairs_differ_by_their_keys_and_source_positions(tmp_path: Path) -> None:
    records = [moved(plain(n, "c", (2 + n // 2, GONE)), {"id": 1}) for n in range(4)]
    at = [
        made.replace(value={**made.value, "source": {"lsn": n % 2}})
        for n, made in enumerate(records)
    ]
    found = {
        pair for (pair,) in changes(stage(merging(tmp_path), *Batch.of(at)), "__connect_py_pair")
    }
    assert len(found) == 4
    nowhere = [made.replace(value={**made.value, "source": None}) for made in records]
    assert len(set(changes(stage(merging(tmp_path), *Batch.of(nowhere)), "__connect_py_pair"))) == 2


def test_insert_of_a_changed_key_waits_for_its_unread_delete(tmp_path: Path) -> None:
    made = merging(tmp_path)
    insert = moved(event(4, "c", (2, GONE)), {"id": 1})
    prepared = made.prepare(batch([event(0, "c", (8, "x")), insert, event(5, "u", (9, "y"))]))
    ((partition, unread),) = unread_pairs(prepared, {})
    assert (partition, unread.offset, unread.table, unread.keys) == (
        ORDERS_0,
        4,
        "db.orders",
        "[[1], [2]]",
    )
    assert not list(unread_pairs(prepared, {unread.pair: 1}))
    whole = made.prepare(batch([moved(event(4, "c", (2, "all of it")), {"id": 1})]))
    assert not list(unread_pairs(whole, {})), "it lacks nothing"
    gone = left(event(3, "d", None, (1, None)), 2)
    made.add(made.prepare(batch([gone])))
    assert made.read_pairs() == {unread.pair: 1}
    made.close_cycle(1, ORDERS_0)
    assert unread.pair in made.read_pairs(), "also in later cycles"
    made.drop_partition(ORDERS_0)
    assert unread.pair not in made.read_pairs()
    made.stage_alone(ORDERS_0, 4)
    prepared = made.prepare(batch([insert]))
    assert not list(unread_pairs(prepared, {}))
    made.add(prepared)
    assert changes(made.close_cycle(2, ORDERS_0), "id", "half") == [(2, ALONE)]


def test_only_a_tombstone_without_its_delete_is_half_a_pair(tmp_path: Path) -> None:
    made = merging(tmp_path, ext__envelope="none", tables__cdc_field="__deleted")
    row = left(record({"id": 1, "v": None, "__deleted": "true"}, 3, key={"id": 1}), 2)
    made.add(made.prepare(batch([row])))
    made.close_cycle(1, ORDERS_0)
    after = made.prepare(batch([left(record(None, 4, key={"id": 1}), 2)]))
    assert not pairs_in(after.findings)
    alone = made.prepare(batch([left(record(None, 5, key={"id": 1}), 2)]))
    pairs = pairs_in(alone.findings)[ORDERS_0]
    assert pairs.column("__connect_py_half").to_pylist() == [DELETE]


def test_a_pair_without_a_place_that_comes_again_waits_again(tmp_path: Path) -> None:
    made = merging(tmp_path, ext__envelope="none")
    gone = left(record(None, 0, key=Struct(KEY, [1])), 2)
    insert, again = (
        moved(record({"id": 2, "v": GONE}, n, key={"id": 2}), {"id": 1}) for n in (1, 2)
    )
    made.add(made.prepare(batch([gone])))
    prepared = made.prepare(batch([insert]))
    known = made.read_pairs()
    assert not list(unread_pairs(prepared, known))
    ((_, unread),) = unread_pairs(made.prepare(batch([insert, again])), known)
    made.add(prepared)
    assert not made.read_pairs()
    assert unread.offset == 2


def test_key_changes_without_a_placeholder_stage_no_pairs(tmp_path: Path) -> None:
    made = merging(tmp_path, ext__unavailable_value="")
    files = stage(made, batch([moved(event(4, "c", (2, GONE)), {"id": 1})]))
    assert [file.kind.value for file in files] == ["rows"]


def test_an_envelope_and_a_cdc_field_exclude_each_other() -> None:
    with pytest.raises(Exception, match=r"iceberg\.ext\.envelope"):
        IcebergSinkConfig.parse(
            {
                "name": "x",
                "iceberg.catalog.type": "jdbc",
                "iceberg.tables": "a.b",
                "iceberg.ext.envelope": "debezium",
                "iceberg.tables.cdc-field": "op",
            }
        )


def test_batch_with_only_tombstones_is_read_as_deletes() -> None:
    opened = Envelope.of(batch([record(None, 0, key=Struct(KEY, [1]))]).value)
    assert opened.change.to_pylist() == [1]


def sequenced(made: SinkRecord, position: int) -> SinkRecord:
    return made.replace(value={**made.value, "source": {"sequence": f'[null,"{position}"]'}})


def orders(files: Any, kind: str = "rows") -> dict[int, str]:
    return {row["id"]: row["__connect_py_order"] for row in read(files, kind)}


def test_staged_rows_say_where_they_stand_in_the_source(tmp_path: Path) -> None:
    made = merging(tmp_path, ext__ordering_columns="source.sequence")
    records = [
        sequenced(plain(0, "c", (1, "a")), 90),
        sequenced(plain(1, "d", None, (2, "b")), 95),
        record(None, 2, key={"id": 3}),
        sequenced(plain(3, "c", (4, "d")), 100),
    ]
    files = stage(made, *Batch.of(records))
    assert [text.lstrip("0") for text in orders(files).values()] == [
        f"90\x01{90:020d}",
        f"100\x01{100:020d}",
    ]
    assert orders(files, "deletes")[3] == orders(files, "deletes")[2], (
        "a tombstone stands where the row before it does"
    )
    assert orders(files)[1] < orders(files, "deletes")[2] < orders(files)[4]
    later = stage(made, *Batch.of([record(None, 4, key={"id": 5})]), cycle=2)
    assert orders(later, "deletes")[5] == orders(files)[4], "also in the next cycle"


@pytest.mark.parametrize("delete_mode", ["remove", "mark"])
def test_tombstone_before_any_event_only_repeats_a_staged_delete(
    tmp_path: Path, delete_mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    make = merging if delete_mode == "remove" else marking
    made = make(tmp_path, ext__ordering_columns="source.sequence")
    first = record(None, 0, key={"id": 1})
    assert stage(made, *Batch.of([first])) == []
    assert "skipping 1 tombstone from orders-0 without an order" in caplog.text
    then = [sequenced(plain(1, "d", None, (2, "b")), 95), record(None, 2, key={"id": 2})]
    made.add(made.prepare(Batch.of([first])[0]))
    files = stage(made, *Batch.of(then), cycle=2)
    kind = "deletes" if delete_mode == "remove" else "changes"
    found = [row["id"] for row in read(files, kind) if row.get("__connect_py_partial", True)]
    assert found == [2], "a delete without a place would remove later rows"
    made.drop_partition(ORDERS_0)  # which is read again
    assert stage(made, *Batch.of([then[1]]), cycle=3) == []


def test_tombstone_before_any_row_deletes_when_nothing_else_would(tmp_path: Path) -> None:
    description = table(COLUMNS, keys=["id"], required=["id"], folder=tmp_path)
    made = stager(description, tables__upsert_mode_enabled="true", ext__ordering_columns="__lsn")
    assert orders(stage(made, batch([record(None, 0, key=Struct(KEY, [2]))])), "deletes") == {2: ""}


def test_a_delete_that_tells_no_place_is_still_staged(tmp_path: Path) -> None:
    made = merging(tmp_path, ext__ordering_columns="source.sequence")
    files = stage(made, *Batch.of([plain(0, "d", None, (2, "b")), record(None, 1, key={"id": 2})]))
    assert orders(files, "deletes") == {2: ""}


def test_a_truncate_tells_its_place_where_rows_are_ordered(tmp_path: Path) -> None:
    made = merging(tmp_path, partitions=3, ext__ordering_columns="source.sequence")
    (file,) = stage(
        made, *Batch.of([sequenced(plain(0, "c", (1, "a")), 90), sequenced(plain(1, "t"), 95)])
    )
    assert (file.kind.value, file.order.lstrip("0")) == ("truncates", f"95\x01{95:020d}")


def test_order_comes_from_headers_where_the_value_does_not_tell(tmp_path: Path) -> None:
    description = table(COLUMNS, keys=["id"], required=["id"], folder=tmp_path)
    made = stager(description, tables__upsert_mode_enabled="true", ext__ordering_columns="__lsn")
    headers = Headers([Header("__lsn", 7, INT64)])
    gone = record(None, 1, key=Struct(KEY, [2])).replace(headers=headers)
    files = stage(made, batch([record(Struct(ROW, [1, "a"]), 0).replace(headers=headers), gone]))
    assert orders(files)[1] == orders(files, "deletes")[2] == str(7 + 2**63).zfill(20)


def marking(folder: Path, deleted: str = "boolean", **more: str) -> TableStager:
    description = table(
        [*COLUMNS, ("__deleted", deleted)], keys=["id"], required=["id"], folder=folder
    )
    settings = {
        "ext__envelope": "debezium",
        "tables__upsert_mode_enabled": "true",
        "ext__delete_mode": "mark",
    }
    return stager(description, **settings, **more)


@pytest.mark.parametrize(
    ("type_", "yes", "no"), [("boolean", True, False), ("string", "true", "false")]
)
def test_soft_delete_keeps_the_values_staged_in_its_cycle(
    tmp_path: Path, type_: str, yes: Any, no: Any
) -> None:
    records = [
        event(0, "c", (1, "a")),
        event(1, "u", (1, "b")),
        event(2, "d", None, (1, None)),
        record(None, 3, key=Struct(KEY, [1])),
        event(4, "c", (2, "c")),
        event(5, "d", None, (2, None)),
        event(6, "c", (2, "again")),
    ]
    files = stage(marking(tmp_path, type_), batch(records))
    assert read(files) == [{"id": 2, "v": "again", "__deleted": no}]
    assert changes(files, "id", "v", "__deleted", "partial", "optional") == [
        (1, "a", no, False, False),
        (1, "b", no, False, False),
        (1, None, yes, False, True),
        (1, None, yes, True, True),
        (2, "c", no, False, False),
        (2, None, yes, False, True),
    ]


def test_soft_delete_of_incomplete_row_is_staged_partial_and_optional(tmp_path: Path) -> None:
    records = [
        event(0, "d", None, (1, None)),
        event(1, "u", (2, GONE)),
        event(2, "u", (3, GONE)),
        event(3, "d", None, (3, None)),
    ]
    files = stage(marking(tmp_path), batch(records))
    assert changes(files, "id", "__deleted", "partial", "optional") == [
        (1, True, True, True),
        (2, False, True, False),
        (3, False, False, False),
        (3, True, True, True),
    ]


def test_a_table_without_a_column_for_the_mark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column __deleted"):
        merging(tmp_path, ext__delete_mode="mark")


def test_records_tell_their_key_if_they_are_asked(tmp_path: Path) -> None:
    made = batch([event(0, "c", (1, "a"))])
    settings = {"tables__upsert_mode_enabled": "true", "ext__envelope": "debezium"}
    wish = TableRequest.from_text(
        TableCreation(config(**settings, ext__key_source="record")).request("db.orders", made)
    )
    assert wish.keys == ("id",)
    assert wish.schema is not None
    assert wish.schema["identifier-field-ids"] == [1]
    assert (
        TableRequest.from_text(TableCreation(config(**settings)).request("db.orders", made)).keys
        == ()
    )
    unwrapped = batch([record({"id": 1, "_cdc": {"op": "I", "key": {"id": 1}}}, 0)])
    from_cdc = TableCreation(config(tables__cdc_field="_cdc.op", ext__key_source="record"))
    assert TableRequest.from_text(from_cdc.request("db.orders", unwrapped)).keys == ("id",)

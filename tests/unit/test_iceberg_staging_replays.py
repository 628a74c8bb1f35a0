"""Replays of dead-letter records in merged tables: newer and existing rows win."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import BASE, ORDERS_0, batch, changes, read, record, stage, table

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows
from connect_py.api.record import Header, Headers, SinkRecord, TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_stager import TableStager

AGAIN = TopicPartition("again", 0)
LETTERS = {
    "errors.tolerance": "all",
    "errors.deadletterqueue.iceberg.table": "db.dead",
    "errors.deadletterqueue.iceberg.replay.topic": "again",
}
MERGED = {
    **LETTERS,
    "iceberg.tables": "db.orders",
    "iceberg.tables.upsert-mode-enabled": "true",
    "iceberg.ext.envelope": "debezium",
}
ORDERED = {"iceberg.ext.ordering-columns": "source.lsn"}


def made(folder: Path, **more: str) -> TableStager:
    description = table(
        [("id", "int"), ("v", "string")], keys=["id"], required=["id"], folder=folder
    )
    return TableStager(
        description,
        IcebergSinkConfig.parse(BASE | MERGED | more),
        Epoch(7, "a1"),
        "0",
        MemoryBudget(1 << 30),
    )


def event(offset: int, op: str, lsn: int | None, row: Any, topic: str = "again") -> SinkRecord:
    """A change event, by default one that was a dead letter."""
    after = None if op == "d" else {"id": row[0], "v": row[1]}
    value = {
        "before": {"id": row[0], "v": row[1]} if op == "d" else None,
        "after": after,
        "op": op,
        "source": {"lsn": lsn},
    }
    return record(value, offset, key={"id": row[0]}, topic=topic)


def test_replayed_dead_letter_records_keep_the_order_of_their_source(tmp_path: Path) -> None:
    stager = made(tmp_path, **ORDERED)
    replays = [
        event(0, "u", 50, (1, "new")),
        event(1, "u", 20, (1, "old")),
        event(2, "u", 10, (2, "x")),
    ]
    files = stage(stager, batch(replays), partition=AGAIN)
    rows = sorted((row["id"], row["v"], row[ORDER].lstrip("0")) for row in read(files))
    assert [(key, value) for key, value, _ in rows] == [(1, "new"), (2, "x")]
    places = {row["id"]: row[ORDER] for row in read(files)}
    assert places[2] < places[1], "the one behind it keeps its own place"
    later = stage(stager, batch([event(3, "u", 30, (3, "y"))]), partition=AGAIN, cycle=2)
    assert read(later)[0][ORDER] < places[1], "also in later cycles"
    live = [event(0, "u", 50, (1, "new"), "orders"), event(1, "u", 20, (2, "old"), "orders")]
    kept = read(stage(stager, batch(live), partition=ORDERS_0, cycle=3))
    assert len({row[ORDER] for row in kept}) == 1, "of other topics offsets decide"


def test_replayed_delete_wins_only_over_older_rows(tmp_path: Path) -> None:
    replays = [
        event(0, "d", 40, (1, "x")),
        event(1, "u", 30, (1, "old")),
        event(2, "d", 20, (2, "x")),
        event(3, "u", 25, (2, "newer")),
    ]
    files = stage(made(tmp_path, **ORDERED), batch(replays), partition=AGAIN)
    assert [row["id"] for row in read(files, "deletes")] == [1]
    assert [(row["id"], row["v"]) for row in read(files)] == [(2, "newer")]


def test_keys_that_were_changed_are_found_by_their_new_numbers(tmp_path: Path) -> None:
    gone = "__debezium_unavailable_value"
    insert = event(0, "c", 40, (9, gone)).replace(
        headers=Headers([Header("__debezium.oldkey", {"id": 1}, None)])
    )
    files = stage(
        made(tmp_path, **ORDERED), batch([insert, event(1, "u", 10, (5, "first"))]), partition=AGAIN
    )
    assert changes(files, "id", "half", "__connect_py_offset") == [(9, 1, 1)]


def test_a_letter_without_a_place_is_refused_where_places_count(tmp_path: Path) -> None:
    with pytest.raises(BadRows) as raised:
        made(tmp_path, **ORDERED).prepare(
            batch([event(0, "u", 50, (1, "a")), event(1, "u", None, (2, "b"))])
        )
    assert list(raised.value.errors) == [1]
    assert "no value for iceberg.ext.ordering-columns" in str(raised.value.errors[1])
    stager = made(tmp_path, **ORDERED)
    stager.prepare(batch([event(0, "u", None, (1, "a"), "orders")]))  # live records may say nothing


def test_replayed_whole_rows_without_ordering_are_staged_as_inserts(tmp_path: Path) -> None:
    stager = made(tmp_path)
    replays = [
        event(0, "c", 1, (1, "first")),
        event(1, "u", 1, (1, "last")),
        event(2, "r", 1, (2, "x")),
    ]
    (file,) = stage(stager, batch(replays), partition=AGAIN)
    assert file.kind.value == "inserts"
    assert sorted((row["id"], row["v"]) for row in read([file], "inserts")) == [
        (1, "last"),
        (2, "x"),
    ]
    (live,) = stage(
        stager, batch([event(0, "c", 1, (1, "a"), "orders")]), partition=ORDERS_0, cycle=2
    )
    assert live.kind.value == "rows"


@pytest.mark.parametrize(
    "letter",
    [
        event(0, "d", 1, (1, "x")),
        event(0, "u", 1, (1, "__debezium_unavailable_value")),
        record(None, 0, key={"id": 1}, topic="again"),
    ],
)
def test_record_that_is_no_whole_row_is_refused_without_ordering(
    tmp_path: Path, letter: SinkRecord
) -> None:
    with pytest.raises(BadRows) as raised:
        made(tmp_path).prepare(*Batch.of([letter]))
    assert "only a complete row can be replayed" in str(raised.value.errors[0])


def test_a_merged_table_without_an_order_is_warned_of() -> None:
    (warning,) = [w for w in IcebergSinkConfig.parse(BASE | MERGED).warnings if "replay.topic" in w]
    assert "inserts the record if its key is missing" in warning
    assert not [
        w for w in IcebergSinkConfig.parse(BASE | MERGED | ORDERED).warnings if "replay.topic" in w
    ]

"""The change log of a merged table: a row before and a row after each change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from iceberg_staging_rows import BASE, batch, config, read, record, stage
from test_iceberg_staging_envelope import EVENT, GONE, KEY, event, plain

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, ConfigError, ConnectError
from connect_py.api.schema import Struct
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.routing.router import Routed, with_changelogs
from connectors.iceberg.staging.changelog import changelog_schema
from connectors.iceberg.staging.row_buffer import MemoryBudget
from connectors.iceberg.staging.table_creation import TableCreation
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.table import TableDescription, WriteMode

SETTINGS = {
    "tables__upsert_mode_enabled": "true",
    "ext__envelope": "debezium",
    "ext__changelog_suffix": "_changes",
}
ROW_FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "v", "required": False, "type": "string"},
]


def logging(folder: Path, **more: str) -> TableStager:
    schema = changelog_schema({"type": "struct", "fields": ROW_FIELDS})
    for number, field in enumerate(schema["fields"], 1):
        field["id"] = number
    description = TableDescription(
        name="db.orders_changes",
        uuid="u",
        format_version=2,
        location=str(folder),
        data_location=f"{folder}/data",
        schema_id=0,
        schema=json.dumps(schema),
        spec='{"spec-id":0,"fields":[]}',
        mode=WriteMode.APPEND,
    )
    return TableStager(
        description, config(**SETTINGS, **more), Epoch(7, "a1"), "0", MemoryBudget(1 << 30)
    )


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["__offset"], row["__op"], row["__image"], row["id"], row["v"]) for row in rows]


@pytest.mark.parametrize("made", [event, plain])
def test_each_change_gives_the_row_before_and_the_row_after(tmp_path: Path, made: Any) -> None:
    records = [
        made(0, "r", (1, "a")),
        made(1, "u", (1, "b"), (1, "a")),
        made(2, "u", (1, GONE)),
        made(3, "d", None, (1, "b")),
        made(4, "t"),
        made(5, "m"),
    ]
    stager = logging(tmp_path)
    rows = [row for file in stage(stager, *Batch.of(records)) for row in read([file])]
    assert sorted(shown(rows), key=str) == [
        (0, "r", "after", 1, "a"),
        (1, "u", "after", 1, "b"),
        (1, "u", "before", 1, "a"),
        (2, "u", "after", 1, None),
        (3, "d", "before", 1, "b"),
        (4, "t", None, None, None),
    ]
    assert sum(stager.prepare(each).ignored for each in Batch.of(records)) == 1
    assert {row["__topic"] for row in rows} == {"orders"}
    assert {
        (row["__offset"], row["__image"]): row["__unavailable"]
        for row in rows
        if row["__unavailable"]
    } == {
        (2, "after"): ["v"],
    }


def test_ignored_snapshot_events_are_left_out_of_the_changelog(tmp_path: Path) -> None:
    records = [event(0, "r", (1, "a")), event(1, "u", (1, "b"), (1, "a"))]
    stager = logging(tmp_path, ext__snapshot_events="ignore")
    rows = [row for file in stage(stager, batch(records)) for row in read([file])]
    assert sorted(shown(rows)) == [(1, "u", "after", 1, "b"), (1, "u", "before", 1, "a")]


@pytest.mark.parametrize("key", [Struct(KEY, [1]), None])
def test_delete_of_an_unknown_row_shows_the_record_key(tmp_path: Path, key: Any) -> None:
    gone = record(Struct(EVENT, [None, None, "d"]), 1, key=key)
    records = [event(0, "d", None, (2, "b")), gone, record(None, 2, key=key)]
    stager = logging(tmp_path)
    rows = [row for file in stage(stager, batch(records)) for row in read([file])]
    assert shown(rows) == [(0, "d", "before", 2, "b"), (1, "d", None, key and 1, None)]
    assert stager.prepare(batch(records)).ignored == 1
    alone = [row for file in stage(stager, batch([gone]), cycle=2) for row in read([file])]
    assert shown(alone) == [(1, "d", None, key and 1, None)]


def test_row_that_does_not_fit_is_named_by_batch_position(tmp_path: Path) -> None:
    with pytest.raises(BadRows) as raised:
        logging(tmp_path).prepare(
            Batch.of([plain(0, "c", (1, "a")), plain(1, "c", ("x", "b"))])[-1]
        )
    assert len(raised.value.errors) == 1


def test_new_changelog_has_row_columns_and_no_required_ones() -> None:
    wish = json.loads(
        TableCreation(config(**SETTINGS)).request(
            "db.orders_changes", batch([event(0, "c", (1, "a"))])
        )
    )
    fields = {field["name"]: field["required"] for field in wish["schema"]["fields"]}
    assert list(fields)[:3] == ["id", "v", "__op"]
    assert not any(fields.values())


def test_a_changelog_needs_envelopes_and_a_mirror() -> None:
    with pytest.raises(ConfigError, match="changelog-suffix"):
        config(tables__upsert_mode_enabled="true", ext__changelog_suffix="_changes")
    made = config(**SETTINGS)
    assert made.mode_of("db.orders_changes") is WriteMode.APPEND
    assert made.mode_of("db.orders") is WriteMode.MERGE


@pytest.mark.parametrize(
    "props",
    [
        {"iceberg.tables": "db.orders,db.orders_changes"},
        {"iceberg.ext.topic-to-table": r"pgs\.public\.(.*):db.{1}+db.all_changes"},
        {"iceberg.tables": "db.orders", "errors.deadletterqueue.iceberg.table": "db.bad_changes"},
    ],
)
def test_no_other_table_may_have_a_name_of_a_changelog(props: dict[str, str]) -> None:
    given = {
        **BASE,
        **props,
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.ext.envelope": "debezium",
        "errors.tolerance": "all",
    }
    with pytest.raises(ConfigError, match="must not end with the suffix"):
        IcebergSinkConfig.parse({**given, "iceberg.ext.changelog-suffix": "_changes"})
    IcebergSinkConfig.parse({**given, "iceberg.ext.changelog-suffix": "_log"})


def test_rows_routed_to_a_changelog_table_name_fail_the_task() -> None:
    settings = config(
        **SETTINGS, tables__dynamic_enabled="true", tables__route_field="source.table"
    )
    rows = batch([event(0, "c", (1, "a"))])
    assert [each.table for each in with_changelogs(settings, [Routed("db.orders", rows)])] == [
        "db.orders",
        "db.orders_changes",
    ]
    with pytest.raises(
        ConnectError, match=r"routed to db\.orders_changes, .* changelog; .*changelog-suffix"
    ):
        with_changelogs(settings, [Routed("db.orders_changes", rows)])


@pytest.mark.parametrize(
    ("source", "position", "moment"),
    [
        ({"lsn": 4711, "ts_ms": 1000}, "4711", 1_000_000),
        ({"file": "binlog.7", "pos": 12, "row": 3, "ts_us": 5}, "binlog.7:12:3", 5),
        ({"commit_lsn": "a", "change_lsn": "b", "event_serial_no": 2, "ts_ns": 7000}, "a:b:2", 7),
        ({"name": "other"}, None, None),
        (None, None, None),
    ],
)
def test_changes_say_where_they_stand_at_the_source(
    tmp_path: Path, source: dict[str, Any] | None, position: str | None, moment: int | None
) -> None:
    transaction = {"id": "57:1", "total_order": 4, "data_collection_order": 2}
    value = {
        "before": None,
        "after": {"id": 1, "v": "a"},
        "op": "c",
        "source": source,
        "transaction": transaction,
    }
    without = {**value, "transaction": None}
    stager = logging(tmp_path)
    rows = [
        row
        for file in stage(stager, *Batch.of([record(value, 0), record(without, 1)]))
        for row in read([file])
    ]
    first, second = sorted(rows, key=lambda row: int(row["__offset"]))
    assert (
        first["__source_position"],
        first["__tx_id"],
        first["__tx_order"],
        first["__tx_collection_order"],
    ) == (
        position,
        "57:1",
        4,
        2,
    )
    at = first["__source_time"]
    assert (None if at is None else round(at.timestamp() * 1e6)) == moment
    assert (second["__source_position"], second["__tx_id"], second["__tx_order"]) == (
        position,
        None,
        None,
    )


def test_change_log_by_itself_takes_every_table() -> None:
    made = config(
        ext__write_mode="changelog", ext__envelope="debezium", ext__expect__paid="amount > 0"
    )
    assert made.is_changelog("db.orders")
    assert made.mode_of("db.orders") is WriteMode.APPEND
    assert [each.name for each in made.table("db.orders").expectations] == ["paid"]
    rows = batch([event(0, "c", (1, "a"))])
    assert [each.table for each in with_changelogs(made, [Routed("db.orders", rows)])] == [
        "db.orders"
    ]
    wish = json.loads(TableCreation(made).request("db.orders", rows))
    assert [field["name"] for field in wish["schema"]["fields"]][:3] == ["id", "v", "__op"]
    with pytest.raises(ConfigError, match="changelog requires"):
        config(ext__write_mode="changelog")
    with pytest.raises(ConfigError, match=r"requires .* or iceberg\.ext\.write-mode=changelog"):
        config(ext__envelope="debezium")
    with pytest.raises(ConfigError, match="changelog-suffix"):
        config(ext__write_mode="changelog", ext__envelope="debezium", ext__changelog_suffix="_c")

"""Real Debezium records, staged: the last state per key is what Postgres held at the end of the
recording."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from iceberg_staging_rows import config, field_ids, stager, wanted_by
from transforms_chain import apply_rows, configured

from connect_py.api.batch import Batch
from connect_py.api.record import RecordOrigin, SinkRecord, TopicPartition
from connect_py.columns.arrow import storage_type
from connect_py.converters.json.json_converter import JsonConverter
from connect_py.java.civil_days import days_of
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.temporal import (
    MICROS_PER_DAY,
    parse_date,
    parse_time,
    parse_timestamp,
)
from connectors.iceberg.conversion.types import TypeOptions, new_table_schema
from connectors.iceberg.staging.staged_changes import PARTIAL, SEPARATOR, UNAVAILABLE
from connectors.iceberg.staging.table_stager import TableStager
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.table.table import StagedFile, TableDescription, WriteMode

CORPUS = Path(__file__).parents[1] / "fixtures/corpus/debezium-postgres"
EXPECTED: dict[str, Any] = json.loads((CORPUS / "expected.json").read_text())
UNWRAP = {
    "type": "io.debezium.transforms.ExtractNewRecordState",
    "delete.tombstone.handling.mode": "rewrite-with-tombstone",
    "add.fields": "op",
    "replace.null.with.default": "false",
}
MERGE = {"tables__cdc_field": "__op", "ext__logical_types": "full", "ext__out_of_range": "null"}


def records(topic: str) -> list[SinkRecord]:
    """The unwrapped records of one topic."""
    key_reader, value_reader = JsonConverter(), JsonConverter()
    key_reader.configure({}, is_key=True)
    value_reader.configure({"replace.null.with.default": "false"}, is_key=False)
    unwrap = configured(UNWRAP)
    made = []
    with gzip.open(CORPUS / "json-schema.jsonl.gz", "rt") as lines:
        for line in map(json.loads, lines):
            if line["topic"] != topic:
                continue
            key, value = (
                None if line[side] is None else line[side].encode() for side in ("key", "value")
            )
            key_schema, key_value = key_reader.to_connect(topic, key)
            value_schema, value_value = value_reader.to_connect(topic, value)
            origin = RecordOrigin(topic, 0, line["offset"], key, value)
            record = SinkRecord(
                topic, 0, key_schema, key_value, value_schema, value_value, 0, origin=origin
            )
            out = apply_rows([unwrap], record)
            if isinstance(out, Exception):
                raise out
            if out is not None:
                made.append(out)
    return made


def evolved(description: TableDescription, changes: Sequence[SchemaChange]) -> TableDescription:
    """What the coordinator would answer; top-level columns only."""
    schema = json.loads(description.schema)
    for change in changes:
        (name,) = change.path
        if change.kind is ChangeKind.ADD:
            new = {
                "id": 900 + len(schema["fields"]),
                "name": name,
                "required": False,
                "type": json.loads(change.type or ""),
            }
            schema["fields"].append(new)
            continue
        column = next(f for f in schema["fields"] if f["name"] == name)
        if change.kind is ChangeKind.WIDEN:
            column["type"] = json.loads(change.type or "")
        else:
            column["required"] = False
    return replace(description, schema=json.dumps(schema), schema_id=description.schema_id + 1)


def staged(
    topic: str, folder: Path, keys: Sequence[str], cut: int | None = None
) -> list[StagedFile]:
    """All records of a topic in one cycle, into a table that the first of them creates."""
    batches = Batch.of(records(topic))
    if cut is not None:
        batches = [b.slice(i, min(i + cut, len(b))) for b in batches for i in range(0, len(b), cut)]
    sink: IcebergSinkConfig = config(**MERGE)
    first = next(b for b in batches if b.value.schema is not None)
    schema = new_table_schema(first.value.schema, first.value.data.type, TypeOptions.of(sink), keys)
    description = TableDescription(
        "db.t",
        "u",
        3,
        str(folder),
        f"{folder}/data",
        0,
        json.dumps(schema),
        '{"spec-id":0,"fields":[]}',
        WriteMode.MERGE,
        tuple(keys),
    )
    made: TableStager = stager(description, **MERGE)
    for batch in batches:
        changes = wanted_by(made, batch.value)
        if changes:
            made.evolve(evolved(made.description, changes))
        made.add(made.prepare(batch))
    return made.close_cycle(1, TopicPartition(topic, 0))


def final_rows(
    files: Sequence[StagedFile], keys: Sequence[str]
) -> dict[tuple[str, ...], dict[str, Any]]:
    """Upserts and patches by the text of their key; moments as integers."""
    found = {}
    for file in files:
        if file.kind.value == "deletes":
            continue
        table = pq.read_table(file.path)
        columns = {n: _numbers(table.column(n)) for n in table.column_names}
        for at in range(table.num_rows):
            row = {n: values[at] for n, values in columns.items()}
            if row.get(PARTIAL) is False:
                continue
            found[tuple(str(row[k]) for k in keys)] = row
    return found


def _numbers(column: pa.ChunkedArray) -> list[Any]:
    data = column.combine_chunks()
    storage = storage_type(data.type)
    return list(
        (
            data if storage == data.type or pa.types.is_nested(data.type) else data.view(storage)
        ).to_pylist()
    )


def like_postgres(value: Any, text: str | None) -> bool:
    """Whether a staged value is the one that Postgres prints so."""
    if value is None or text is None:
        return value is None and text is None
    if isinstance(value, bool):
        return ("true" if value else "false") == text
    if isinstance(value, Decimal):
        return value == Decimal(text)
    if isinstance(value, int):
        return str(value) == text
    if isinstance(value, float):
        return value == float(text)
    if isinstance(value, bytes):
        return "\\x" + value.hex() == text
    return bool(value == text)


@pytest.mark.parametrize(
    ("topic", "table"),
    [("pgs.public.orders", "public.orders"), ("pgs.public.Mixed_Case", "public.Mixed Case")],
)
def test_upserts_and_deletes_leave_the_rows_of_the_source(
    tmp_path: Path, topic: str, table: str
) -> None:
    keys = EXPECTED[table]["primary_key"]
    for cut in (None, 3, 1):
        found = final_rows(staged(topic, tmp_path / str(cut), keys, cut), keys)
        expected = {tuple(row[k] for k in keys): row for row in EXPECTED[table]["rows"]}
        assert expected.keys() <= found.keys()  # a truncate, which means nothing here, leaves more
        assert expected.keys() == found.keys() or table == "public.orders"
        for key, source in expected.items():
            row = found[key]
            for column, text in source.items():
                # a moment; defaults in place of nulls, by the producer
                if column in ("created_at", "note", "qty"):
                    continue
                assert like_postgres(row[column], text), (key, column)


def test_rows_name_the_out_of_line_values_that_they_lack(tmp_path: Path) -> None:
    topic = "pgs.public.toasted"
    files = staged(topic, tmp_path, ["id"])
    expected = {row["id"]: row for row in EXPECTED["public.toasted"]["rows"]}
    found = final_rows(files, ["id"])
    assert {key for (key,) in found} == set(expected)
    ids = field_ids(next(f.path for f in files if f.kind.value != "deletes"))
    for (key,), row in found.items():
        lacking = (row.get(UNAVAILABLE) or "").split(SEPARATOR)
        for column in ("n", "big_text", "big_json", "big_bytes", "req"):
            if str(ids[column]) not in lacking:
                assert like_postgres(row[column], expected[key][column]), (key, column)


def test_every_type_of_postgres_is_staged(tmp_path: Path) -> None:
    files = staged("pgs.public.all_types", tmp_path, ["id"])
    found = final_rows(files, ["id"])
    expected = {row["id"]: row for row in EXPECTED["public.all_types"]["rows"]}
    assert {key for (key,) in found} == set(expected)
    plain = [
        "c_small",
        "c_int",
        "c_big",
        "c_num",
        "c_num0",
        "c_num38",
        "c_bool",
        "c_json",
        "c_text",
        "c_varchar",
        "c_enum",
        "c_xml",
        "c_citext",
        "c_ltree",
        "c_bytea",
    ]
    checked = 0
    for (key,), row in found.items():
        source = expected[key]
        for column in plain:
            assert like_postgres(row[column], source[column]), (key, column)
        if row["c_date"] is not None and source["c_date"] and "BC" not in source["c_date"]:
            assert row["c_date"] == parse_date(_iso(source["c_date"])), key
            checked += 1
        if row["c_time"] is not None:  # a long: Spark has no times
            whole_day = source["c_time"] == "24:00:00"
            assert row["c_time"] == (
                MICROS_PER_DAY if whole_day else parse_time(source["c_time"])
            ), key
            checked += 1
        for column, zoned in (
            ("c_ts", False),
            ("c_ts3", False),
            ("c_tstz", True),
            ("c_tstz0", True),
        ):
            if row[column] is not None and source[column] and "BC" not in source[column]:
                assert row[column] == parse_timestamp(_iso(source[column]), zoned=zoned), (
                    key,
                    column,
                )
                checked += 1
        for column in ("c_ts", "c_tstz"):
            if (source[column] or "").endswith("infinity"):
                assert row[column] is None, (key, column)
                checked += 1
    assert checked > 15


def test_a_year_before_christ_is_kept(tmp_path: Path) -> None:
    found = final_rows(staged("pgs.public.all_types", tmp_path, ["id"]), ["id"])
    ages = [r for r in EXPECTED["public.all_types"]["rows"] if "BC" in (r["c_tstz"] or "")]
    assert ages
    for source in ages:
        date = source["c_tstz"].split(" ")[0]
        year, month, day = (int(part) for part in date.split("-"))
        row = found[(source["id"],)]
        assert row["c_tstz"] // MICROS_PER_DAY == days_of(1 - year, month, day)


def _iso(text: str) -> str:
    date, blank, rest = text.partition(" ")
    year, dash, more = date.partition("-")
    if dash and len(year) > 4:
        date = f"+{year}-{more}"
    return date + blank + rest

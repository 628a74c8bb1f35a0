"""The Debezium recordings through broker, worker and sink: the tables hold what Postgres held.

Each recording is replayed twice by one upsert connector: `whole`, as recorded (one partition per topic, everything at
once), and `spread` over three partitions by the hash of the key, in three parts with a commit after each.

Not equal to `expected.json` by nature, and compared with what can be known instead:

- `orders` and `truncated` have truncate events, which transformations drop: their connector takes events as they come
  (`EVENTS`), and orders them by `source.sequence`.
- `no_pk_full` has no key: every event is a row there.
- `evolving` changes as its source does: columns come, are renamed (which the configuration tells), get wider, and one
  changes in a way that no table can follow: it gets a second column, and both are compared as one. Plain JSON says
  nothing of defaults and of the scale of decimals (`UNTOLD`).
- `defaults_nulls`, `orders.note/qty`: the producer wrote defaults in place of NULLs (`PRODUCER_DEFAULTS`).
- Moments that Iceberg cannot hold, here NULL by `iceberg.ext.out-of-range`, and values that Debezium changes
  (`KNOWN`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from corpus_recording import AVRO_SCHEMAS, EXPECTED, Recorded, recorded_tables
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from postgres_text import plain_values, render
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from schema_registry_stub import Stub, schema_registry
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

RECORDINGS = ("json-schema", "json-plain", "avro")
LAYOUTS = {"whole": 1, "spread": 3}  # partitions
PARTS = 3
CATCH_UP_SECONDS = 60.0

KEYS = {"orders": ("region", "order_no"), "Mixed_Case": ("Id",)}  # others: id
APPENDED = "no_pk_full"  # without a key there is nothing to merge by
EVENTS = ("orders", "truncated")

# Postgres types of the columns; `numeric` has no fixed scale, `time_ms` counts milliseconds.
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "orders": {
        "region": "text", "order_no": "int", "customer_id": "int", "amount": "numeric(2)", "status": "text",
        "note": "text", "qty": "int", "created_at": "timestamptz",
    },
    "truncated": {"id": "int", "v": "text"},
    "no_pk_full": {"a": "int", "b": "text", "c": "numeric(3)"},
    "evolving": {"id": "int", "a": "bigint", "b_new": "text", "c": "numeric(4)", "e": "int"},
    "Mixed_Case": {"Id": "int", "Camel Col": "text", "order-id": "bigint", "select": "int", "naïve": "text"},
    "defaults_nulls": {
        "id": "int", "d_int": "int", "d_text": "text", "d_bool": "boolean", "d_num": "numeric(3)",
        "d_ts": "timestamp", "d_date": "date", "d_req": "int", "d_uuid": "uuid",
    },
    "toasted": {
        "id": "int", "n": "int", "big_text": "text", "big_bytes": "bytea", "big_json": "text", "big_arr": "text[]",
        "big_ints": "int[]", "big_h": "hstore", "big_nums": "bigint[]", "big_uuids": "text[]",
        "big_ts": "timestamp[]", "req": "text",
    },
    "all_types": {
        "id": "bigint", "c_small": "int", "c_int": "int", "c_big": "bigint", "c_num": "numeric(2)",
        "c_num0": "numeric(0)", "c_num38": "numeric(9)", "c_num_free": "numeric", "c_real": "real",
        "c_double": "double", "c_bool": "boolean", "c_date": "date", "c_time": "time", "c_time3": "time_ms",
        "c_timetz": "text", "c_ts": "timestamp", "c_ts3": "timestamp_ms", "c_tstz": "timestamptz",
        "c_tstz0": "timestamptz", "c_interval": "interval", "c_uuid": "uuid", "c_json": "text", "c_jsonb": "text",
        "c_bytea": "bytea", "c_text": "text", "c_varchar": "text", "c_char": "char", "c_textarr": "text[]",
        "c_intarr": "int[]", "c_numarr": "numeric(2)[]", "c_uuidarr": "text[]", "c_tsarr": "timestamp[]",
        "c_hstore": "hstore", "c_enum": "text", "c_inet": "text", "c_cidr": "text", "c_mac": "text", "c_xml": "text",
        "c_citext": "text", "c_ltree": "text", "c_bit1": "bit1", "c_bit5": "bit5", "c_varbit": "varbit",
        "c_point": "point", "c_money": "money", "c_int4range": "text", "c_tsrange": "text", "c_tsvector": "text",
        "c_oid": "bigint",
    },
}  # fmt: skip
BEGINNINGS = {"evolving": {"id": "int", "a": "bigint", "b": "text", "c": "numeric(2)", "d": "text", "e": "int"}}
UNTOLD = {("json-plain", "evolving"): ("c", "e")}  # columns that cannot be compared
# In expected.json; others: public.<table>.
SOURCE_NAMES = {"Mixed_Case": "public.Mixed Case", "evolving": "inventory.evolving"}

PRODUCER_DEFAULTS = {
    "d_int": "7", "d_text": "dflt", "d_bool": "true", "d_num": "1.250", "d_ts": "1970-01-01 00:00:00",
    "d_date": "2020-02-29", "d_uuid": "00000000-0000-0000-0000-000000000000",
}  # fmt: skip
# (column, as Postgres prints it) -> what can be known at the sink.
KNOWN: Mapping[tuple[str, str], str | None] = {
    ("c_timetz", "23:59:59.999999-11:30"): "11:29:59.999999Z",  # Debezium moves it to UTC
    ("c_num_free", "NaN"): None,  # Debezium sends null
    ("c_interval", "178000000 years"): "106751991 days 04:00:54.775807",  # the largest number of microseconds
    # The UUID of Debezium's placeholder for uuid[]: nothing tells this value from "unchanged".
    ("c_uuidarr", "{b68a35a7-17ad-35b3-af2a-ae46edb4545a}"): None,
    ("c_ts", "infinity"): None,
    ("c_ts", "-infinity"): None,
    ("c_ts", "294276-12-31 23:59:59"): None,  # Debezium sends what it sends for infinity
    ("c_tstz", "infinity"): None,
    ("c_tstz", "-infinity"): None,
    ("c_date", "infinity"): None,
    ("c_date", "-infinity"): None,
}


@dataclass(frozen=True)
class World:
    """What the module shares: one worker, one warehouse, one registry."""

    broker: KafkaBroker
    worker: WorkerProcess
    lakehouse: Lakehouse
    registry: Stub
    prefix: str


@pytest.fixture(scope="module")
def world(
    kafka_broker: KafkaBroker, spark_environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("corpus")
    worker = WorkerProcess(folder / "worker", kafka_broker.bootstrap_servers, "corpus", environment=spark_environment)
    try:
        with schema_registry(AVRO_SCHEMAS) as registry:
            yield World(kafka_broker, worker.start(), Lakehouse(folder / "lake"), registry, "corpus.")
    finally:
        worker.close()


@pytest.fixture(scope="module", params=RECORDINGS)
def replayed(request: pytest.FixtureRequest, world: World) -> Iterator[str]:
    """A recording's name, once everything of it is in the tables."""
    recording: str = request.param
    tables = recorded_tables(recording)
    assert set(tables) == set(COLUMNS)
    topics = {(layout, table): f"{world.prefix}{recording}.{layout}.{table}" for layout in LAYOUTS for table in tables}
    create_topics(world, {topics[layout, table]: count for layout, count in LAYOUTS.items() for table in tables})
    namespace = namespace_of(recording)
    if recording == "json-plain":
        create_tables(world.lakehouse, namespace)
    by_connector: dict[str, list[str]] = {}
    for (_, table), topic in topics.items():
        by_connector.setdefault(f"{recording}-{kind_of(table)}", []).append(topic)
    for name, subscribed in by_connector.items():
        config = sink_config(world, recording, name.rpartition("-")[2])
        world.worker.put(name, {**config, "topics": ",".join(subscribed)})
    try:
        for part in range(PARTS):
            if part == 0:
                produce(world, {topics["whole", table]: records for table, records in tables.items()}, 1)
            slices = {topics["spread", table]: part_of(records, part) for table, records in tables.items()}
            produce(world, slices, LAYOUTS["spread"])
            for name, subscribed in by_connector.items():
                await_caught_up(world, name, subscribed)
        yield recording
    finally:
        for name in by_connector:
            world.worker.delete(name)


def kind_of(table: str) -> str:
    """Which of a recording's connectors a table belongs to."""
    return "append" if table == APPENDED else "events" if table in EVENTS else "upsert"


def namespace_of(recording: str) -> str:
    return recording.replace("-", "_")


def part_of(records: Sequence[Recorded], part: int) -> Sequence[Recorded]:
    return records[len(records) * part // PARTS : len(records) * (part + 1) // PARTS]


def sink_config(world: World, recording: str, kind: str) -> dict[str, str]:
    """The connector, by the chains that users of these formats have."""
    namespace = namespace_of(recording)
    upsert = kind != "append"
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": "2",
        **world.lakehouse.sink_config(),
        "iceberg.ext.topic-to-table": rf"corpus\..*\.(.*)\.(.*):{namespace}.{{1}}_{{2}}",
        "iceberg.ext.logical-types": "full",
        "iceberg.ext.out-of-range": "null",
        "iceberg.ext.evolution.rename": "apply",
        **{f"iceberg.table.{namespace}.{layout}_evolving.renamed": "b_new:b" for layout in LAYOUTS},
        "iceberg.control.commit.interval-ms": "1000",
        "iceberg.ext.quick-jvm": "true",
    }
    converter = "io.confluent.connect.avro.AvroConverter" if recording == "avro" else (
        "org.apache.kafka.connect.json.JsonConverter"
    )  # fmt: skip
    for side in ("key.converter", "value.converter"):
        config[side] = converter
        config[f"{side}.schemas.enable"] = str(recording == "json-schema").lower()
        config[f"{side}.schema.registry.url"] = world.registry.url
    if upsert:
        config["iceberg.tables.upsert-mode-enabled"] = "true"
        config["iceberg.tables.default-id-columns"] = "id"
        for layout in LAYOUTS:
            for table, keys in KEYS.items():
                config[f"iceberg.table.{namespace}.{layout}_{table}.id-columns"] = ",".join(keys)
    if recording != "json-plain":
        config["iceberg.tables.auto-create-enabled"] = "true"
        config["iceberg.tables.evolve-schema-enabled"] = "true"
    if kind == "events":
        config["iceberg.ext.envelope"] = "debezium"
        config["iceberg.ext.truncate-events"] = "apply"
        config["iceberg.ext.ordering-columns"] = "source.sequence"
    elif recording == "json-plain":
        config["transforms"] = "cdc"
        config["transforms.cdc.type"] = "org.apache.iceberg.connect.transforms.DebeziumTransform"
        if upsert:
            config["iceberg.tables.cdc-field"] = "_cdc.op"
    else:
        config["transforms"] = "unwrap"
        config["transforms.unwrap.type"] = "io.debezium.transforms.ExtractNewRecordState"
        config["transforms.unwrap.delete.tombstone.handling.mode"] = "tombstone" if upsert else "rewrite"
        config["iceberg.ext.evolution.incompatible"] = "apply"
    return config


def create_topics(world: World, partitions: Mapping[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap_servers})
    for future in admin.create_topics([NewTopic(topic, count, 1) for topic, count in partitions.items()]).values():
        future.result(30)


def produce(world: World, records: Mapping[str, Sequence[Recorded]], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": world.broker.bootstrap_servers})
    for topic, found in records.items():
        for record in found:
            producer.produce(
                topic, record.value, record.key, record.partition(partitions), timestamp=record.timestamp,
                headers=list(record.headers),
            )  # fmt: skip
    assert producer.flush(30) == 0


def await_caught_up(world: World, connector: str, topics: Sequence[str]) -> None:
    def done() -> bool:
        if "FAILED" in world.worker.states(connector):
            status = world.worker.get(f"/connectors/{connector}/status")
            raise AssertionError("\n".join(str(t.get("trace")) for t in [status["connector"], *status["tasks"]]))
        return caught_up(world.broker.bootstrap_servers, connector, *topics)

    world.worker.wait_until(done, CATCH_UP_SECONDS, f"{connector} to commit everything")


# --- tables made beforehand: plain JSON says nothing of types


def create_tables(lakehouse: Lakehouse, namespace: str) -> None:
    """Decimals come as base64, so their columns hold bytes; moments in microseconds have no type of their own."""
    lakehouse.catalog.create_namespace(namespace)
    for layout in LAYOUTS:
        for table, columns in COLUMNS.items():
            fields = dict(BEGINNINGS.get(table, columns))
            if table == APPENDED:
                fields["_cdc"] = "cdc"
            schema = Schema(
                *(
                    NestedField(number, name, _column_type(kind, 1000 * number), required=False)
                    for number, (name, kind) in enumerate(fields.items(), 1)
                )
            )
            lakehouse.catalog.create_table(f"{namespace}.{layout}_{table}", schema)


def _column_type(kind: str, nested_id: int) -> IcebergType:
    if kind.endswith("[]"):
        return ListType(nested_id, _column_type(kind[:-2], nested_id + 10), element_required=False)
    if kind.startswith("numeric("):
        return BinaryType()
    return {
        "int": IntegerType(), "bigint": LongType(), "boolean": BooleanType(), "bit1": BooleanType(),
        "real": FloatType(), "double": DoubleType(), "date": DateType(), "time": LongType(), "time_ms": LongType(),
        "timestamp": LongType(), "timestamp_ms": TimestampType(), "timestamptz": TimestamptzType(),
        "interval": LongType(), "uuid": UUIDType(), "bytea": BinaryType(), "bit5": BinaryType(),
        "varbit": BinaryType(), "money": BinaryType(),
        "numeric": StructType(
            NestedField(nested_id, "scale", IntegerType(), required=False),
            NestedField(nested_id + 1, "value", BinaryType(), required=False),
        ),
        "point": StructType(
            NestedField(nested_id, "x", DoubleType(), required=False),
            NestedField(nested_id + 1, "y", DoubleType(), required=False),
        ),
        "cdc": StructType(NestedField(nested_id, "op", StringType(), required=False)),
    }.get(kind, StringType())  # fmt: skip


# --- comparing


def column_name(recording: str, column: str) -> str:
    """Debezium adjusts names for Avro."""
    if recording != "avro":
        return column
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in column)


def printed_rows(lakehouse: Lakehouse, recording: str, layout: str, table: str) -> list[dict[str, str | None]]:
    """All rows of a table as Postgres would print them."""
    data = lakehouse.rows(f"{namespace_of(recording)}.{layout}_{table}")
    columns = {}
    for name, kind in COLUMNS[table].items():
        values = plain_values(data.column(column_name(recording, name)))
        if f"{name}_v2" in data.column_names:  # one of the two columns has the value
            newer = plain_values(data.column(f"{name}_v2"))
            values = [old if new is None else new for old, new in zip(values, newer, strict=True)]
        columns[name] = [_printed(kind, value) for value in values]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _printed(kind: str, value: Any) -> str | None:
    if kind == "timestamp" and value in ((1 << 63) - 1, -(1 << 63)):
        return None  # a plain number may hold what a timestamp cannot
    return render("timestamp" if kind == "timestamp_ms" else kind, value)


def by_key(table: str, rows: Sequence[Mapping[str, str | None]]) -> dict[tuple[str | None, ...], Any]:
    keys = KEYS.get(table, ("id",))
    found = {tuple(row[key] for key in keys): dict(row) for row in rows}
    assert len(found) == len(rows), "a key has several rows"
    return found


def differences(found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> list[str]:
    """What differs, cell by cell: a row of 50 columns is no message."""
    told = [f"{key}: only in the {'table' if key in found else 'source'}" for key in found.keys() ^ expected.keys()]
    for key in found.keys() & expected.keys():
        cells = found[key].items() ^ expected[key].items()
        told += [f"{key}.{name}: {found[key][name]!r} instead of {expected[key][name]!r}" for name in dict(cells)]
    return told


def expected_rows(table: str) -> list[dict[str, str | None]]:
    rows = []
    for source in EXPECTED[SOURCE_NAMES.get(table, f"public.{table}")]["rows"]:
        row = {column: KNOWN.get((column, text), text) for column, text in source.items()}
        if table == "defaults_nulls":
            row = {column: PRODUCER_DEFAULTS.get(column) if text is None else text for column, text in row.items()}
        rows.append(row)
    return rows


@pytest.mark.timeout(300)  # the first test of a recording replays it: three connectors, three rounds of commits
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("table", sorted(COLUMNS.keys() - {APPENDED}))
def test_table_holds_what_the_source_held(world: World, replayed: str, layout: str, table: str) -> None:
    untold = UNTOLD.get((replayed, table), ())
    found, expected = (
        by_key(table, [{column: text for column, text in row.items() if column not in untold} for row in rows])
        for rows in (printed_rows(world.lakehouse, replayed, layout, table), expected_rows(table))
    )
    assert differences(found, expected) == []


@pytest.mark.timeout(300)  # as above
@pytest.mark.parametrize("layout", LAYOUTS)
def test_table_without_key_gets_one_row_per_event(world: World, replayed: str, layout: str) -> None:
    """Deletes are marked; a truncate, and the null key with null value after a delete, make no row."""
    rows = printed_rows(world.lakehouse, replayed, layout, APPENDED)
    data = world.lakehouse.rows(f"{namespace_of(replayed)}.{layout}_{APPENDED}")
    if replayed == "json-plain":
        deleted = [cdc["op"] == "D" for cdc in data.column("_cdc").to_pylist()]
    else:
        deleted = [mark == "true" for mark in data.column("__deleted").to_pylist()]
    found = [(*row.values(), gone) for row, gone in zip(rows, deleted, strict=True)]
    assert sorted(found, key=repr) == sorted(
        [
            ("1", "one", "1.001", False),
            ("1", "one", "1.001", False),
            (None, None, None, False),
            ("2", "two", "2.500", False),
            ("1", "one!", "1.001", False),
            ("1", "one!", "1.001", False),
            (None, None, None, True),
            ("9", "nine", "9.000", False),
            ("9", "x", "9.000", False),
            ("9", "x", "9.000", True),
        ],
        key=repr,
    )


@pytest.mark.timeout(300)  # as above
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ledgers_of_every_table_chain(world: World, replayed: str, layout: str) -> None:
    for table in COLUMNS:
        assert world.lakehouse.assert_ledgers_chain(f"{namespace_of(replayed)}.{layout}_{table}") >= 1

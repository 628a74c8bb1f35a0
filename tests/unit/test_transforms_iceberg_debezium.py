"""Iceberg's `DebeziumTransform`: rows with the metadata of their change."""

from __future__ import annotations

from typing import Any

import pytest
from transforms_chain import transformation_class

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, ConnectError, DataError
from connect_py.api.record import RecordOrigin, SinkRecord
from connect_py.api.schema import (
    INT32,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    struct,
    timestamp,
)
from connect_py.java.errors import NullPointerError
from transforms.iceberg.debezium_transform import DebeziumTransform

ROW = struct(
    ("id", INT32),
    ("qty", Schema(Type.INT32, optional=True, default=5)),
    name="s.public.t.Value",
    version=2,
    optional=True,
)
SOURCE = struct(("db", STRING), ("schema", OPTIONAL_STRING), ("table", STRING))
ENVELOPE = struct(
    ("before", ROW),
    ("after", ROW),
    ("source", SOURCE),
    ("op", STRING),
    ("ts_ms", OPTIONAL_INT64),
    name="s.public.t.Envelope",
)
KEY = struct(("id", INT32))


def event(op: str, /, **changes: Any) -> Struct:
    before = Struct(ROW, [1, None]) if op in ("u", "d") else None
    after = Struct(ROW, [2, None]) if op in ("c", "r", "u") else None
    made = Struct(ENVELOPE, [before, after, Struct(SOURCE, ["shop", "public", "t"]), op, 99])
    for name, value in changes.items():
        made.values[ENVELOPE.field(name).index] = value  # type: ignore[union-attr] # the field exists
    return made


def plain(op: str, /, **changes: Any) -> dict[str, Any]:
    made = {
        "op": op,
        "source": {"db": "shop", "table": "t"},
        "ts_ms": 99,
        "before": None,
        "after": None,
    }
    if op in ("u", "d"):
        made["before"] = {"id": 1, "old": True}
    if op in ("c", "r", "u"):
        made["after"] = {"id": 2, "new": None}
    return made | changes


def record(value: Any, offset: int = 42, key: Any = None) -> SinkRecord:
    schema = value.schema if isinstance(value, Struct) else None
    key_schema = key.schema if isinstance(key, Struct) else None
    origin = RecordOrigin("s.public.t", 3, offset)
    return SinkRecord("s.public.t", 3, key_schema, key, schema, value, 100, origin=origin)


def apply(*records: SinkRecord, pattern: str = "{db}.{table}") -> list[SinkRecord]:
    """Apply to rows, and check that columns give the same."""
    transform: DebeziumTransform[SinkRecord] = DebeziumTransform()
    transform.configure({"cdc.target.pattern": pattern})
    made = [m for m in map(transform.apply, records) if m is not None]
    batches = [out for batch in Batch.of(records) for out in transform.apply_batch(batch)]
    assert [r for batch in batches for r in batch.records()] == made
    return made


def failing(error: type[Exception], *records: SinkRecord) -> None:
    """The first record fails, as a row and in a batch."""
    transform: DebeziumTransform[SinkRecord] = DebeziumTransform()
    transform.configure({})
    with pytest.raises(error):
        transform.apply(records[0])
    (batch,) = Batch.of(records)
    with pytest.raises(BadRows) as caught:
        transform.apply_batch(batch)
    assert {index: type(e) for index, e in caught.value.errors.items()} == {0: error}


def test_row_is_lifted_beside_the_struct_of_the_change() -> None:
    (made,) = apply(record(event("c"), key=Struct(KEY, [2])))
    cdc = struct(
        ("op", STRING),
        ("ts", timestamp()),
        ("offset", OPTIONAL_INT64),
        ("source", STRING),
        ("target", STRING),
        ("key", KEY),
    )
    fields = [(f.name, f.schema) for f in ROW.fields]
    assert made.value_schema == struct(*fields, ("_cdc", cdc), name="s.public.t.Value", version=2)
    assert made.value.values == [
        2,
        5,
        Struct(cdc, ["I", 99, 42, "public.t", "public.t", Struct(KEY, [2])]),
    ]


@pytest.mark.parametrize(
    ("op", "cdc", "id_"), [("c", "I", 2), ("r", "I", 2), ("u", "U", 2), ("d", "D", 1)]
)
def test_operation_of_an_event_decides_which_row_is_kept(op: str, cdc: str, id_: int) -> None:
    (with_schema,) = apply(record(event(op)))
    assert (with_schema.value["_cdc"]["op"], with_schema.value["id"]) == (cdc, id_)
    (schemaless,) = apply(record(plain(op)))
    assert (schemaless.value["_cdc"]["op"], schemaless.value["id"]) == (cdc, id_)


def test_deletes_and_other_events_share_a_batch_with_tombstones() -> None:
    values = [event("c"), event("d"), None, event("u")]
    made = apply(*(record(v, offset, Struct(KEY, [1])) for offset, v in enumerate(values)))
    assert [None if r.value is None else r.value["_cdc"]["op"] for r in made] == [
        "I",
        "D",
        None,
        "U",
    ]
    assert made[2].value_schema is None


def test_schemaless_rows_have_their_own_members_only() -> None:
    values = [plain("c"), plain("d"), None, plain("u")]
    made = apply(*(record(v, offset, {"id": 7}) for offset, v in enumerate(values)))
    assert [
        None if r.value is None else {k: v for k, v in r.value.items() if k != "_cdc"} for r in made
    ] == [
        {"id": 2, "new": None},
        {"id": 1, "old": True},
        None,
        {"id": 2, "new": None},
    ]
    assert made[0].value["_cdc"] == {
        "op": "I",
        "ts": 99,
        "offset": 0,
        "source": "shop.t",
        "target": "shop.t",
        "key": {"id": 7},
    }


def test_schemaless_row_replaces_its_own_member_of_the_name() -> None:
    (made,) = apply(record(plain("c", after={"id": 1, "_cdc": {"x": 1}})))
    assert set(made.value["_cdc"]) == {"op", "ts", "offset", "source", "target"}


def test_target_follows_the_pattern_row_by_row() -> None:
    sources = [
        Struct(SOURCE, ["shop", schema, table])
        for schema, table in [("a", "t"), ("b", "u"), (None, "t")]
    ]
    records = [record(event("c", source=source), offset) for offset, source in enumerate(sources)]
    made = apply(*records, pattern="lake.{table}_{db}")
    assert [(r.value["_cdc"]["source"], r.value["_cdc"]["target"]) for r in made] == [
        ("a.t", "lake.t_a"),
        ("b.u", "lake.u_b"),
        ("null.t", "lake.t_null"),
    ]


def test_truncate_and_message_events_of_debezium_are_dropped() -> None:
    values = [event("c"), event("t"), event("m", source=None)]
    assert len(apply(*(record(v, o) for o, v in enumerate(values)))) == 1
    assert apply(record(event("t"))) == []
    assert apply(record(plain("t")), record(None, 43)) == [record(None, 43)]


def test_schemaless_event_without_a_row_is_dropped() -> None:
    assert apply(record(plain("c", after=None))) == []
    assert apply(record(plain("c", after="text"))) == []


@pytest.mark.parametrize("missing", ["after", "source", "op", "ts_ms"])
def test_event_with_a_part_missing_fails_alone(missing: str) -> None:
    failing(NullPointerError, record(event("c", **{missing: None})), record(event("c"), 43))


def test_schemaless_event_with_a_part_missing_fails_alone() -> None:
    failing(NullPointerError, record(plain("c", op=None)), record(plain("c"), 43))
    failing(DataError, record(plain("c", source=None)), record(plain("c"), 43))
    failing(
        NullPointerError,
        record(plain("c", source={"db": None, "table": "t"})),
        record(plain("c"), 43),
    )


def test_what_is_no_change_event_fails() -> None:
    heartbeat = struct(("ts_ms", OPTIONAL_INT64))
    failing(DataError, record(Struct(heartbeat, [1])))
    failing(DataError, record(["text"]))
    failing(NullPointerError, record({"a": 1}))


def test_both_packages_of_the_java_class_are_known() -> None:
    for package in ("org.apache.iceberg.connect", "io.tabular.iceberg.connect"):
        assert transformation_class(f"{package}.transforms.DebeziumTransform") is DebeziumTransform


def test_errors_carry_the_class_names_of_java() -> None:
    error = NullPointerError("x")
    assert isinstance(error, ConnectError)
    assert error.java_name == "java.lang.NullPointerException"

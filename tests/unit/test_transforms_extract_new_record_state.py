"""`ExtractNewRecordState`: what becomes of events, by option. Recordings of the original are in
tests/contract."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from transforms_chain import transformation_class

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, ConnectError, DataError, NotColumnar, SchemaBuilderError
from connect_py.api.record import Header, Headers, RecordOrigin, SinkRecord
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    struct,
)
from connect_py.java.errors import ClassCastError
from transforms.debezium.extract_new_record_state import ExtractNewRecordState

ROW = struct(
    ("id", INT32),
    ("qty", Schema(Type.INT32, optional=True, default=5)),
    ("tgt", OPTIONAL_STRING),
    name="s.public.t.Value",
    optional=True,
)
SOURCE = struct(("ts_ms", INT64), ("table", STRING), ("lsn", OPTIONAL_INT64))
TRANSACTION = struct(("id", STRING), ("total_order", INT64), optional=True)
ENVELOPE = struct(
    ("before", ROW),
    ("after", ROW),
    ("source", SOURCE),
    ("op", STRING),
    ("ts_ms", OPTIONAL_INT64),
    ("transaction", TRANSACTION),
    name="s.public.t.Envelope",
)
KEY = struct(("id", INT32), ("tgt", OPTIONAL_STRING), name="s.public.t.Key")
MODE = "delete.tombstone.handling.mode"
MODES = ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]
HEAD = Headers([Header("h", "x")])


def row(tgt: str | None = "eu", qty: int | None = None) -> Struct:
    return Struct(ROW, [1, qty, tgt])


def envelope(op: str, before: Struct | None = None, after: Struct | None = None) -> Struct:
    return Struct(ENVELOPE, [before, after, Struct(SOURCE, [98, "t", 7]), op, 99, None])


def record(
    value: Struct | None, *, key: bool = True, headers: Headers = HEAD, offset: int = 42
) -> SinkRecord:
    return SinkRecord(
        "s.public.t",
        3,
        KEY if key else None,
        Struct(KEY, [1, "eu"]) if key else None,
        None if value is None else value.schema,
        value,
        100,
        headers,
        origin=RecordOrigin("s.public.t", 3, offset),
    )


def unwrap(**options: str) -> ExtractNewRecordState[SinkRecord]:
    transform: ExtractNewRecordState[SinkRecord] = ExtractNewRecordState()
    transform.configure({name.replace("__", "."): value for name, value in options.items()})
    return transform


def mode(name: str, **options: str) -> ExtractNewRecordState[SinkRecord]:
    return unwrap(delete__tombstone__handling__mode=name, **options)


def both_forms(
    transform: ExtractNewRecordState[SinkRecord], *records: SinkRecord
) -> list[SinkRecord]:
    """Unwrap rows, and check that columns give the same."""
    made = [m for m in map(transform.apply, records) if m is not None]
    batches = [out for batch in Batch.of(records) for out in transform.apply_batch(batch)]
    assert [r for batch in batches for r in batch.records()] == made
    return made


def values(records: list[SinkRecord]) -> list[Any]:
    return [None if r.value is None else {f.name: v for f, v in r.value} for r in records]


CREATE = record(envelope("c", after=row()))
DELETE = record(envelope("d", before=row()), offset=43)
TOMBSTONE = record(None, offset=44)


def test_null_stays_null_unless_rows_are_rewritten() -> None:
    assert values(both_forms(unwrap(), CREATE)) == [{"id": 1, "qty": None, "tgt": "eu"}]
    rewritten = values(both_forms(mode("rewrite"), CREATE))
    assert rewritten == [{"id": 1, "qty": 5, "tgt": "eu", "__deleted": "false"}]
    kept = values(both_forms(mode("rewrite", replace__null__with__default="false"), CREATE))
    assert kept == [{"id": 1, "qty": None, "tgt": "eu", "__deleted": "false"}]


def test_rows_keep_the_name_of_their_schema_and_become_required() -> None:
    (made,) = both_forms(unwrap(), CREATE)
    assert made.value_schema == ROW.replace(optional=False)


DELETED_ROW = {"id": 1, "qty": 5, "tgt": "eu", "__deleted": "true"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("drop", []),
        ("tombstone", [None]),
        ("rewrite", [DELETED_ROW]),
        ("rewrite-with-tombstone", [DELETED_ROW, None]),
        ("delete-to-tombstone", [None]),
    ],
)
def test_delete_and_its_tombstone_become_what_the_mode_says(name: str, expected: list[Any]) -> None:
    assert values(both_forms(mode(name), DELETE, TOMBSTONE)) == expected


def test_delete_as_null_keeps_the_row_schema_within_one_batch() -> None:
    made = both_forms(
        unwrap(),
        CREATE,
        DELETE,
        TOMBSTONE,
        CREATE.replace(origin=RecordOrigin("s.public.t", 3, 45)),
    )
    assert [r.value_schema for r in made] == [
        ROW.replace(optional=False),
        ROW,
        ROW.replace(optional=False),
    ]
    (batch,) = Batch.of([CREATE, DELETE, TOMBSTONE])
    assert len(unwrap().apply_batch(batch)) == 1


def test_delete_to_tombstone_leaves_no_schema() -> None:
    (made,) = both_forms(mode("delete-to-tombstone"), DELETE)
    assert (made.value_schema, made.value, made.key) == (None, None, DELETE.key)


@pytest.mark.parametrize("name", MODES)
def test_truncate_event_is_dropped_in_every_delete_mode(name: str) -> None:
    assert both_forms(mode(name), record(envelope("t"), key=False)) == []


@pytest.mark.parametrize("name", MODES)
def test_delete_without_a_row_becomes_a_tombstone_or_is_dropped(name: str) -> None:
    made = both_forms(mode(name), CREATE, record(envelope("d"), offset=43))
    expected = [] if name == "drop" else [(None, None)]
    assert [(r.value_schema, r.value) for r in made[1:]] == expected


def test_delete_without_row_and_key_names_nothing_and_is_dropped() -> None:
    assert both_forms(unwrap(), record(envelope("d"), key=False)) == []


@pytest.mark.parametrize(
    ("drop", "deletes", "expected"),
    [
        ("true", "drop", []),
        ("false", "drop", [None]),
        ("true", "none", [None]),
        ("false", "rewrite", [DELETED_ROW, None]),
    ],
)
def test_legacy_keys_count_where_the_new_key_is_absent(
    drop: str, deletes: str, expected: list[Any]
) -> None:
    transform = unwrap(drop__tombstones=drop, delete__handling__mode=deletes)
    assert values(both_forms(transform, DELETE, TOMBSTONE)) == expected


def test_legacy_options_log_a_warning_and_yield_to_new_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        transform = mode("drop", drop__tombstones="false")
    assert "drop.tombstones" in caplog.text
    assert both_forms(transform, DELETE, TOMBSTONE) == []


def test_null_values_of_two_schemas_go_on_as_rows() -> None:
    (batch,) = Batch.of([DELETE, TOMBSTONE])
    with pytest.raises(NotColumnar):
        unwrap(drop__tombstones="false", delete__handling__mode="none").apply_batch(batch)


def test_added_fields_keep_their_order_and_skip_unknown_names() -> None:
    fields = "op,table,source.ts_ms,ts_ms,lsn,transaction.id,id,op:OPER,nosuch,no.such"
    (made,) = both_forms(unwrap(add__fields=fields), CREATE)
    assert values([made]) == [
        {
            "id": 1,
            "qty": None,
            "tgt": "eu",
            "__op": "c",
            "__table": "t",
            "__source_ts_ms": 98,
            "__ts_ms": 99,
            "__lsn": 7,
            "__transaction_id": None,
            "__id": None,
            "__OPER": "c",
        }
    ]
    assert made.value_schema is not None
    assert all(f.schema.optional for f in made.value_schema.fields[3:])


def test_fields_of_a_null_block_are_null_in_those_rows() -> None:
    event = envelope("c", after=row())
    event.values[-1] = Struct(TRANSACTION, ["7:1", 4])
    made = both_forms(unwrap(add__fields="total_order"), CREATE, record(event, offset=43))
    assert [r.value.get("__total_order") for r in made] == [None, 4]


def test_deletes_that_become_null_carry_added_headers_only() -> None:
    (made,) = both_forms(
        unwrap(add__fields="op", add__headers="op,source.lsn", add__headers__prefix="m."), DELETE
    )
    assert made.value is None
    assert [(h.key, h.value) for h in made.headers] == [
        ("h", "x"),
        ("m.op", "d"),
        ("m.source_lsn", 7),
    ]


def test_passing_tombstone_gets_the_operation_header_and_no_other() -> None:
    (made,) = both_forms(mode("rewrite-with-tombstone", add__headers="op:OP,lsn"), TOMBSTONE)
    assert list(made.headers) == [Header("h", "x"), Header("__OP", "d", STRING)]


def test_field_name_with_two_colons_is_refused() -> None:
    with pytest.raises(ConnectError, match="Unable to validate config"):
        unwrap(add__fields="a:b:c")


def test_added_field_of_a_name_that_exists_fails_each_row() -> None:
    transform = unwrap(add__fields="op:qty", add__fields__prefix="")
    with pytest.raises(
        SchemaBuilderError, match="Cannot create field because of field name duplication qty"
    ):
        transform.apply(CREATE)
    (batch,) = Batch.of([CREATE, DELETE, TOMBSTONE])
    with pytest.raises(BadRows) as caught:
        transform.apply_batch(batch)
    assert {i: type(e) for i, e in caught.value.errors.items()} == {0: SchemaBuilderError}


def test_rows_are_routed_by_column_and_keep_order_per_topic() -> None:
    records = [
        record(envelope("c", after=row(tgt)), offset=40 + n)
        for n, tgt in enumerate(["eu", "us"] * 8)
    ]
    transform = unwrap(route__by__field="tgt")
    (batch,) = Batch.of(records)
    made = transform.apply_batch(batch)
    assert [(b.topic, b.origin.topic, b.origin.offsets.to_pylist()) for b in made] == [
        ("eu", "s.public.t", list(range(40, 56, 2))),
        ("us", "s.public.t", list(range(41, 56, 2))),
    ]
    by_rows = [transform.apply(r) for r in records]
    assert [r for b in made for r in b.records()] == sorted(
        by_rows, key=lambda r: r.topic if r else ""
    )


def test_rows_that_all_go_different_ways_go_on_as_rows() -> None:
    records = [record(envelope("c", after=row(f"t{n}")), offset=40 + n) for n in range(9)]
    (batch,) = Batch.of(records)
    with pytest.raises(NotColumnar):
        unwrap(route__by__field="tgt").apply_batch(batch)


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_log_says_once_that_nothing_is_ever_unwrapped(
    form: str, caplog: pytest.LogCaptureFixture
) -> None:
    transform = unwrap()
    plain = [record(None).replace(value={"id": n}, headers=Headers()) for n in range(600)]
    for _ in range(4):
        if form == "rows":
            for each in plain:
                transform.apply(each)
        else:
            (batch,) = Batch.of(plain)
            transform.apply_batch(batch)
    assert len(caplog.records) == 1
    assert "DebeziumTransform" in caplog.text


def test_log_is_silent_once_an_envelope_was_seen(caplog: pytest.LogCaptureFixture) -> None:
    transform = unwrap()
    transform.apply(CREATE)
    for _ in range(2000):
        transform.apply(record(None).replace(value={"id": 1}))
    assert caplog.text == ""


def test_delete_with_another_before_schema_takes_the_row_form() -> None:
    other = struct(("id", INT32), optional=True)
    schema = struct(("before", other), ("after", ROW), ("op", STRING), name="x.Envelope")
    create = Struct(schema, [Struct(other, [1]), row(), "u"])
    delete = Struct(schema, [Struct(other, [1]), None, "d"])
    made = both_forms(mode("rewrite"), record(create))
    assert len(made) == 1
    (batch,) = Batch.of([record(create), record(delete, offset=43)])
    with pytest.raises(NotColumnar):
        mode("rewrite").apply_batch(batch)
    assert [f.name for f, _ in mode("rewrite").apply(record(delete)).value] == ["id", "__deleted"]  # type: ignore[union-attr] # it is kept


@pytest.mark.parametrize("blank", [None, "", "  "])
def test_null_or_blank_routing_column_leaves_the_topic(blank: str | None) -> None:
    (made,) = both_forms(
        unwrap(route__by__field="tgt"), record(envelope("u", row("eu"), row(blank)))
    )
    assert made.topic == "s.public.t"


def test_delete_is_routed_by_before_and_its_tombstone_stays_unrouted() -> None:
    transform = mode("rewrite-with-tombstone", route__by__field="tgt")
    assert [r.topic for r in both_forms(transform, DELETE, TOMBSTONE)] == ["eu", "s.public.t"]


@pytest.mark.parametrize(
    ("column", "message"),
    [("id", "Field 'id' is not of type STRING"), ("no", "no is not a valid field name")],
)
def test_routing_by_a_bad_column_fails_rows_but_no_tombstones(column: str, message: str) -> None:
    transform = unwrap(route__by__field=column)
    with pytest.raises(DataError, match=message):
        transform.apply(CREATE)
    (batch,) = Batch.of([CREATE, TOMBSTONE, DELETE])
    with pytest.raises(BadRows) as caught:
        transform.apply_batch(batch)
    assert {index: str(error) for index, error in caught.value.errors.items()} == {
        0: message,
        2: message,
    }


def dropping(*names: str, **options: str) -> SinkRecord:
    headers = Headers([Header("drop", list(names))])
    (made,) = [
        unwrap(drop__fields__header__name="drop", **options).apply(CREATE.replace(headers=headers))
    ]
    assert made is not None
    return made


def test_header_names_optional_columns_to_drop() -> None:
    assert [f.name for f, _ in dropping("id", "tgt", "nosuch").value] == ["id", "qty"]


def test_required_columns_are_dropped_without_the_compatible_schema_option() -> None:
    made = dropping(
        "id", "tgt", drop__fields__keep__schema__compatible="false", drop__fields__from__key="true"
    )
    assert [f.name for f, _ in made.value] == ["qty"]
    assert made.key_schema == struct(name="s.public.t.Key")


def test_header_that_is_no_list_fails_the_row() -> None:
    with pytest.raises(ClassCastError) as caught:
        unwrap(drop__fields__header__name="h").apply(CREATE)
    assert caught.value.java_name == "java.lang.ClassCastException"


def test_batch_without_the_drop_fields_header_stays_columnar() -> None:
    assert len(both_forms(unwrap(drop__fields__header__name="drop"), CREATE, DELETE)) == 2


def test_what_is_no_envelope_passes_but_its_tombstones_do_not() -> None:
    heartbeat = struct(("ts_ms", INT64), name="io.debezium.connector.common.Heartbeat")
    plain = record(Struct(heartbeat, [1]))
    named = record(Struct(ENVELOPE.replace(name="Envelope"), envelope("c", after=row()).values))
    schemaless = CREATE.replace(value_schema=None, value={"op": "c", "after": {"id": 1}})
    for passing in (plain, named, schemaless):
        assert both_forms(unwrap(), passing, TOMBSTONE) == [passing]


def test_former_class_name_finds_the_same_transformation() -> None:
    assert (
        transformation_class("io.debezium.transforms.UnwrapFromEnvelope") is ExtractNewRecordState
    )

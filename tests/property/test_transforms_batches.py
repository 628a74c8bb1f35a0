"""The whole contract of the fast path: a batch form gives, row for row, what the row form gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from transforms_chain import configured

from connect_py.api.batch import Batch
from connect_py.api.errors import BadRows, NotColumnar
from connect_py.api.record import NO_HEADERS, Header, Headers, RecordOrigin, SinkRecord
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_INT64,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    array,
    decimal,
    struct,
    timestamp,
)
from connect_py.api.schema import Type as SchemaType

ADDRESS = struct(("city", OPTIONAL_STRING), ("zip", Schema(SchemaType.INT32, optional=True, default=1)), optional=True)
ROW = struct(
    ("id", INT32),
    ("qty", Schema(SchemaType.INT32, optional=True, default=5)),
    ("tgt", OPTIONAL_STRING),
    ("amount", decimal(2, optional=True, default=Decimal("1.50"))),
    ("at", timestamp(optional=True, default=7)),
    ("address", ADDRESS),
    ("tags", array(OPTIONAL_STRING, optional=True)),
    name="s.public.t.Value", optional=True,
)  # fmt: skip
SOURCE = struct(
    ("ts_ms", INT64), ("schema", OPTIONAL_STRING), ("table", STRING), ("lsn", OPTIONAL_INT64),
    ("snapshot", Schema(SchemaType.STRING, optional=True, default="false")), name="io.debezium.Source",
)  # fmt: skip
BLOCK = struct(("id", STRING), ("total_order", INT64), name="event.block", optional=True)
ENVELOPE = struct(
    ("before", ROW), ("after", ROW), ("source", SOURCE), ("transaction", BLOCK), ("op", STRING),
    ("ts_ms", OPTIONAL_INT64), name="s.public.t.Envelope",
)  # fmt: skip
KEY = struct(("id", INT32), name="s.public.t.Key")

texts = st.sampled_from(["eu", "us", "", " ", "ü", None])
small = st.integers(-3, 3)


def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


@st.composite
def rows(draw: st.DrawFn) -> Struct:
    address = draw(optional(st.tuples(texts, optional(small))))
    amount = draw(optional(st.sampled_from([Decimal("0.00"), Decimal("9.99")])))
    return Struct(ROW, [
        draw(small), draw(optional(small)), draw(texts), amount, draw(optional(small)),
        None if address is None else Struct(ADDRESS, list(address)), draw(optional(st.lists(texts, max_size=2))),
    ])  # fmt: skip


@st.composite
def envelopes(draw: st.DrawFn) -> Struct | None:
    kind = draw(st.sampled_from(["c", "c", "u", "u", "r", "d", "d", "t", "bare delete", "tombstone"]))
    if kind == "tombstone":
        return None
    before = draw(rows()) if kind in ("u", "d") else None
    after = draw(rows()) if kind in ("c", "u", "r") else None
    source = Struct(
        SOURCE, [draw(small), draw(texts), draw(st.sampled_from(["t", "t", "u"])), draw(optional(small)), draw(texts)]
    )
    block = Struct(BLOCK, ["7:1", draw(small)]) if draw(st.booleans()) else None
    return Struct(
        ENVELOPE, [before, after, source, block, kind[-6:][0] if " " in kind else kind, draw(optional(small))]
    )


names = st.sampled_from(["id", "qty", "tgt", "extra"])
scalars = st.one_of(st.none(), small, st.sampled_from(["eu", "us"]))


@st.composite
def plain_rows(draw: st.DrawFn) -> dict[str, Any]:
    row: dict[str, Any] = {"id": draw(small)}
    if draw(st.booleans()):
        row["qty"] = draw(optional(small))
    if draw(st.booleans()):
        row["address"] = draw(optional(st.fixed_dictionaries({"city": texts}, optional={"zip": small})))
    return row


@st.composite
def plain_envelopes(draw: st.DrawFn, named_schema: st.SearchStrategy[bool]) -> dict[str, Any] | None:
    kind = draw(st.sampled_from(["c", "u", "r", "d", "d", "t", "tombstone"]))
    if kind == "tombstone":
        return None
    source = draw(st.fixed_dictionaries({"db": st.just("shop"), "table": st.sampled_from(["t", "t", "u"])}))
    if draw(named_schema):
        source["schema"] = "public"
    made: dict[str, Any] = {"op": kind, "source": source, "ts_ms": draw(optional(small))}
    if kind in ("u", "d") or draw(st.booleans()):
        made["before"] = draw(plain_rows()) if kind in ("u", "d") else None
    made["after"] = draw(plain_rows()) if kind in ("c", "u", "r") else None
    if draw(st.integers(0, 15)) == 0:
        made[draw(st.sampled_from(["source", "op", "after"]))] = None
    return made


headers = st.one_of(
    st.just(NO_HEADERS),
    st.builds(
        lambda n, v: Headers([Header(n, v)]), st.sampled_from(["h", "drop"]), st.sampled_from(["x", ["tgt"], None])
    ),
)


@st.composite
def records(draw: st.DrawFn) -> list[SinkRecord]:
    """Up to 12 records of one topic: events with a schema or without, with headers in some lists."""
    with_schema = draw(st.booleans())
    with_headers = draw(st.booleans())
    named_schema = draw(st.sampled_from([st.just(True), st.just(False), st.booleans()]))
    null_keys = draw(st.sampled_from([st.just(False), st.just(False), st.just(True), st.booleans()]))
    made = []
    for offset in range(draw(st.integers(1, 12))):
        value = draw(envelopes() if with_schema else plain_envelopes(named_schema))
        null_inside = value is None and with_schema and draw(st.integers(0, 5)) == 0
        schema = ENVELOPE if with_schema and (value is not None or null_inside) else None
        if draw(null_keys):
            key_schema, key = None, None
        elif with_schema:
            key_schema, key = KEY, Struct(KEY, [draw(small)])
        else:
            key_schema, key = None, {"id": draw(small)}
        made.append(
            SinkRecord(
                "s.public.t", 3, key_schema, key, schema, value, draw(optional(small)),
                draw(headers) if with_headers else NO_HEADERS, origin=RecordOrigin("s.public.t", 3, 40 + offset),
            )
        )  # fmt: skip
    return made


def failure(error: Exception) -> tuple[type[Exception], str]:
    return type(error), str(error)


def topic_of(record: SinkRecord) -> str:
    return record.topic


def check(props: Mapping[str, str], given_records: Sequence[SinkRecord]) -> None:
    for batch in Batch.of(given_records):
        check_batch(props, batch)


def check_batch(props: Mapping[str, str], batch: Batch) -> None:
    import pyarrow as pa

    reference, transformation = configured(props), configured(props)
    expected: list[SinkRecord] = []
    failures: dict[int, tuple[type[Exception], str]] = {}
    for index, record in enumerate(batch.records()):
        try:
            made = reference.apply(record)
        except Exception as error:  # noqa: BLE001 - compared below
            failures[index] = failure(error)
        else:
            expected += [] if made is None else [made]
    try:
        if failures:
            with pytest.raises(BadRows) as bad:
                transformation.apply_batch(batch)
            assert {index: failure(error) for index, error in bad.value.errors.items()} == failures
            if len(failures) == len(batch):
                return
            batch = batch.where(pa.array([index not in failures for index in range(len(batch))]))
        batches = transformation.apply_batch(batch)
    except NotColumnar as reason:
        event(f"not columnar: {reason}")
        return
    assert all(len(b) for b in batches)
    for made_batch in batches:
        made_batch.value.data.validate(full=True)
    made_records = [r for b in batches for r in b.records()]
    # rows of different topics have no order among each other
    assert sorted(made_records, key=topic_of) == sorted(expected, key=topic_of)
    event("columnar")


MODES = ["drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"]
unwrap_options = st.fixed_dictionaries(
    {},
    optional={
        "delete.tombstone.handling.mode": st.sampled_from(MODES),
        "add.fields": st.sampled_from(
            ["op,table,source.ts_ms,lsn,total_order,nosuch", "source:src,transaction:tx", "op:__deleted"]
        ),
        "add.headers": st.sampled_from(["op", "op:drop", "source.snapshot,transaction.id,ts_ms:when,source:src"]),
        "route.by.field": st.sampled_from(["tgt", "id", "nosuch"]),
        "drop.fields.header.name": st.just("drop"),
        "drop.fields.from.key": st.sampled_from(["true", "false"]),
        "drop.fields.keep.schema.compatible": st.sampled_from(["true", "false"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
legacy_options = st.fixed_dictionaries({
    "drop.tombstones": st.sampled_from(["true", "false"]),
    "delete.handling.mode": st.sampled_from(["drop", "rewrite", "none"]),
})  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(unwrap_options | legacy_options, records())
def test_unwrapping_a_batch_equals_unwrapping_its_rows(
    options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": "io.debezium.transforms.ExtractNewRecordState", **options}, given_records)


@settings(deadline=None, max_examples=150)
@given(st.sampled_from([{}, {"cdc.target.pattern": "lake.{table}_{db}"}]), records())
def test_icebergs_debezium_transform_of_a_batch_equals_that_of_its_rows(
    options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": "org.apache.iceberg.connect.transforms.DebeziumTransform", **options}, given_records)


insertions = st.fixed_dictionaries(
    {"topic.field": st.sampled_from(["topic", "t!", "op"])},
    optional={
        "partition.field": st.just("p?"),
        "offset.field": st.just("o!"),
        "timestamp.field": st.sampled_from(["ts", "ts!", "ts_ms"]),
        "static.value": st.just("v"),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
replacements = st.fixed_dictionaries(
    {},
    optional={
        "exclude": st.sampled_from(["before", "source,op", "id", "nosuch"]),
        "include": st.sampled_from(["after,op", "nosuch", "id"]),
        "renames": st.sampled_from(["op:kind", "op:ts_ms", "x:op", "ts_ms:op,op:ts_ms", "id:key"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
    },
)
SIDES = st.sampled_from(["Key", "Value"])


@settings(deadline=None, max_examples=100)
@given(SIDES, insertions, records())
def test_inserting_columns_equals_inserting_fields(
    side: str, options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    if "static.value" in options:
        options = {**options, "static.field": "static"}
    check({"type": f"org.apache.kafka.connect.transforms.InsertField${side}", **options}, given_records)


@settings(deadline=None, max_examples=100)
@given(SIDES, replacements, records())
def test_replacing_columns_equals_replacing_fields(
    side: str, options: dict[str, str], given_records: list[SinkRecord]
) -> None:
    check({"type": f"org.apache.kafka.connect.transforms.ReplaceField${side}", **options}, given_records)


@settings(deadline=None, max_examples=100)
@given(st.sampled_from(MODES), replacements, insertions, records())
def test_a_chain_over_columns_equals_the_chain_over_rows(
    mode: str, replaced: dict[str, str], inserted: dict[str, str], given_records: list[SinkRecord]
) -> None:
    """Nulls that an earlier transformation made keep their schema through later ones."""
    kafka = "org.apache.kafka.connect.transforms"
    first = configured({
        "type": "io.debezium.transforms.ExtractNewRecordState", "delete.tombstone.handling.mode": mode,
    })  # fmt: skip
    for batch in Batch.of(given_records):
        try:
            unwrapped = first.apply_batch(batch)
        except (NotColumnar, BadRows):
            continue
        for made in unwrapped:
            check_batch({"type": f"{kafka}.ReplaceField$Value", **replaced}, made)
            options = {**inserted, **({"static.field": "static"} if "static.value" in inserted else {})}
            check_batch({"type": f"{kafka}.InsertField$Value", **options}, made)


routers = st.sampled_from(
    [("s\\.(.*)\\.(.*)", "$1_$2"), ("s", "x"), ("(s).*", "$2"), ("(?<a>s).*", "${a}"), ("s.*", "${a}")]
)


@given(routers, records())
def test_routing_a_batch_equals_routing_its_rows(router: tuple[str, str], given_records: list[SinkRecord]) -> None:
    regex, replacement = router
    check(
        {"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": regex, "replacement": replacement},
        given_records,
    )

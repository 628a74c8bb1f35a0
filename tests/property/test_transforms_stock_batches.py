"""Stock transformations: a batch form gives, row for row, what the row form gives."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transforms_records import check, records

from connect_py.api.java_text import to_float32
from connect_py.api.record import NO_HEADERS, Header, Headers, RecordOrigin, SinkRecord
from connect_py.api.schema import (
    FLOAT32,
    INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    SchemaAndValue,
    Struct,
    Type,
    array,
    date,
    decimal,
    struct,
    time,
    timestamp,
)

KAFKA = "org.apache.kafka.connect.transforms"
EXAMPLES = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
pytestmark = pytest.mark.timeout(240)  # 2,000 examples each

INNER = struct(
    ("x", INT32), ("y", Schema(Type.INT32, optional=True, default=5)), ("when", timestamp(optional=True)), optional=True
)
OUTER = struct(
    ("small", Schema(Type.INT8)),
    ("big", Schema(Type.INT64, optional=True)),
    ("ratio", FLOAT32),
    ("weight", Schema(Type.FLOAT64, optional=True, default=1.5)),
    ("flag", Schema(Type.BOOLEAN, optional=True)),
    ("text", OPTIONAL_STRING),
    ("number", STRING),
    ("raw", Schema(Type.BYTES, optional=True)),
    ("price", decimal(2, optional=True)),
    ("day", date(optional=True, default=3)),
    ("hour", time()),
    ("at", timestamp(optional=True, default=7)),
    ("inner", INNER),
    ("tags", array(OPTIONAL_STRING, optional=True)),
    name="row",
)
FIELDS = [f.name for f in OUTER.fields]
names = st.sampled_from([*FIELDS, "nosuch"])
TEXTS = ["", "12", "-7", "1.5", "x", "true", "2024-02-29", "300", "-Infinity", "ü"]


class Rows:
    """Makes records from a seed: ten times as fast as drawing each value."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def _maybe(self, make: Callable[[], Any]) -> Any:
        return None if self._random.random() < 0.25 else make()

    def text(self) -> str:
        return self._random.choice(TEXTS)

    def long(self) -> int:
        return self._random.choice([self._random.randint(-500, 500), self._random.getrandbits(64) - 2**63])

    def float(self) -> float:
        return self._random.choice([0.5, 3e10, -1.9, 1e-5, float("inf"), self._random.uniform(-9, 9)])

    def float32(self) -> float:
        return to_float32(self.float())

    def moment(self) -> int:
        return self._random.randint(-(10**13), 10**13)

    def inner(self) -> Struct:
        random = self._random
        return Struct(INNER, [random.randint(-3, 3), self._maybe(lambda: random.randint(0, 9)), self._maybe(self.long)])

    def outer(self) -> Struct:
        random, maybe = self._random, self._maybe
        return Struct(OUTER, [
            random.randint(-128, 127), maybe(self.long), self.float32(), maybe(self.float),
            maybe(lambda: random.random() < 0.5), maybe(self.text), self.text(), maybe(lambda: random.randbytes(2)),
            maybe(lambda: Decimal(random.randint(-9999, 9999)).scaleb(-2)), maybe(lambda: random.randint(-5, 30_000)),
            random.randint(0, 86_400_000), maybe(self.moment), maybe(self.inner),
            maybe(lambda: [self.text() for _ in range(random.randint(0, 2))]),
        ])  # fmt: skip

    def _members(self) -> Callable[[], dict[str, Any]]:
        """Maps whose members have one type each, and are not in all of them."""
        random = self._random
        makes: list[Callable[[], Any]] = [
            lambda: random.randint(-500, 500), self.text, self.float, lambda: random.random() < 0.5,
            lambda: [random.randint(0, 3)],
        ]  # fmt: skip
        kinds: dict[str, Callable[[], Any]] = {name: random.choice(makes) for name in ("big", "text", "at")}
        kinds["inner"] = lambda: {"x": 1} if random.random() < 0.7 else {}
        return lambda: {name: self._maybe(make) for name, make in kinds.items() if random.random() < 0.8}

    def records(self) -> list[SinkRecord]:
        """Up to 8 rows of one schema, or without: structs of all types, maps, or plain values."""
        random = self._random
        choices: list[tuple[Schema | None, Callable[[], Any]]] = [
            (OUTER, self.outer), (OUTER, self.outer), (None, self._members()), (None, self._members()),
            (OPTIONAL_STRING, self.text), (timestamp(), self.moment),
            (Schema(Type.INT64, name="n", doc="d"), self.long),
            (None, random.choice([self.text, self.long, self.float])),
        ]  # fmt: skip
        schema, make = random.choice(choices)
        with_headers = random.random() < 0.3
        made = []
        for offset in range(random.randint(1, 8)):
            side = SchemaAndValue(schema, make())
            if random.random() < 0.1:
                keeps_schema = schema is not None and schema.optional and random.random() < 0.5
                side = SchemaAndValue(schema if keeps_schema else None, None)
            headers = Headers([Header("h", "x")]) if with_headers and random.random() < 0.5 else NO_HEADERS
            made.append(
                SinkRecord(
                    "topic", 1, *side, *side, self._maybe(self.moment), headers,
                    origin=RecordOrigin("topic", 1, offset),
                )
            )  # fmt: skip
        return made


SIDES = st.sampled_from(["Key", "Value"])
SEEDS = st.integers(0, 2**32)
ROWS = st.builds(lambda seed: Rows(seed).records(), SEEDS) | records()
NULLS = {"replace.null.with.default": st.sampled_from(["true", "false"])}
TYPES = st.sampled_from(["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"])
specs = st.one_of(
    TYPES,
    st.dictionaries(names, TYPES, min_size=1, max_size=3).map(lambda d: ",".join(f"{k}:{v}" for k, v in d.items())),
)
lists = st.lists(names, min_size=1, max_size=3, unique=True).map(",".join)


@EXAMPLES
@given(SIDES, st.fixed_dictionaries({"spec": specs}, optional=NULLS), ROWS)
def test_casts(side: str, options: dict[str, str], rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.Cast${side}", **options}, rows)


@EXAMPLES
@given(
    SIDES,
    st.fixed_dictionaries(
        {"fields": lists}, optional={**NULLS, "replacement": st.sampled_from(["7", "12.7", "***", "-3e2"])}
    ),
    ROWS,
)
def test_masks(side: str, options: dict[str, str], rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.MaskField${side}", **options}, rows)


@EXAMPLES
@given(
    SIDES,
    st.fixed_dictionaries(
        {"target.type": st.sampled_from(["string", "unix", "Date", "Time", "Timestamp"])},
        optional={
            **NULLS,
            "field": names,
            "unix.precision": st.sampled_from(["seconds", "milliseconds", "microseconds", "nanoseconds"]),
        },
    ),
    st.sampled_from(["yyyy-MM-dd", "yyyyMMdd HH:mm:ss.SSS"]),
    ROWS,
)
def test_moments(side: str, options: dict[str, str], pattern: str, rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.TimestampConverter${side}", "format": pattern, **options}, rows)


@EXAMPLES
@given(SIDES, st.sampled_from([".", "_"]), ROWS)
def test_flattened(side: str, delimiter: str, rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.Flatten${side}", "delimiter": delimiter}, rows)


@EXAMPLES
@given(
    SIDES,
    st.fixed_dictionaries(
        {"field": names | st.sampled_from(["inner.x", "inner.y", "inner.nosuch", "text.x", "after.id", "source"])},
        optional={**NULLS, "field.syntax.version": st.sampled_from(["V1", "V2"])},
    ),
    ROWS,
)
def test_extracted(side: str, options: dict[str, str], rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.ExtractField${side}", **options}, rows)


@EXAMPLES
@given(SIDES, ROWS)
def test_hoisted(side: str, rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.HoistField${side}", "field": "f"}, rows)


@EXAMPLES
@given(
    SIDES,
    st.fixed_dictionaries({"schema.name": st.just("n")}, optional={**NULLS, "schema.version": st.just("3")}),
    ROWS,
)
def test_renamed_schemas(side: str, options: dict[str, str], rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.SetSchemaMetadata${side}", **options}, rows)


@EXAMPLES
@given(st.fixed_dictionaries({"fields": lists | st.sampled_from(["op", "ts_ms,op", "id"])}, optional=NULLS), ROWS)
def test_keys_from_values(options: dict[str, str], rows: list[SinkRecord]) -> None:
    check({"type": f"{KAFKA}.ValueToKey", **options}, rows)


@EXAMPLES
@given(
    SIDES,
    st.lists(names | st.sampled_from(["op", "source", "id"]), min_size=1, max_size=3),
    st.fixed_dictionaries({"operation": st.sampled_from(["move", "copy"])}, optional=NULLS),
    ROWS,
)
def test_headers_from_fields(side: str, fields: list[str], options: dict[str, str], rows: list[SinkRecord]) -> None:
    listed = {"fields": ",".join(fields), "headers": ",".join(f"h{n}" for n in range(len(fields)))}
    check({"type": f"{KAFKA}.HeaderFrom${side}", **listed, **options}, rows)


@EXAMPLES
@given(
    st.sampled_from(
        [
            {"type": f"{KAFKA}.InsertHeader", "header": "h", "value.literal": "[1,2]"},
            {"type": f"{KAFKA}.DropHeaders", "headers": "h,x"},
            {"type": f"{KAFKA}.TimestampRouter", "timestamp.format": "yyyy"},
        ]
    ),
    ROWS,
)
def test_headers_and_topics(props: dict[str, str], rows: list[SinkRecord]) -> None:
    check(props, rows)

"""The effect of row transformations on a batch does not depend on whether all rows were created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from example_counts import examples
from hypothesis import event, given, settings
from hypothesis import strategies as st
from transforms_records import ENVELOPE, EXAMPLES, Events

from connect_py.api.batch import Batch
from connect_py.api.errors import DataError
from connect_py.api.record import Headers, SinkRecord, TimestampType
from connect_py.api.schema import FLOAT32, INT64, OPTIONAL_STRING, STRING, Struct, map_of, struct
from connect_py.task import rows_of_batch
from connect_py.task.rows_of_batch import RowsOfBatch

pytestmark = pytest.mark.timeout(240)  # a thousand examples
Action = Callable[[SinkRecord, Random], SinkRecord | None]
WIDE = struct(("f", FLOAT32), ("tags", map_of(STRING, INT64)), ("event", ENVELOPE))
LOOSE = [
    1,
    2**31,
    1.5,
    True,
    "x",
    "\ud800",
    b"b",
    None,
    [1, "x"],
    ["x"],
    Decimal("1.5"),
    Decimal("-0.00"),
]


def row_of(record: SinkRecord) -> Any:
    """The row before or after, whatever the event is."""
    value = record.value
    if isinstance(value, Struct):
        return next((v for name in ("after", "before") if (v := value.get(name)) is not None), None)
    return None if value is None else value.get("after") or value.get("before")


def write_deep(record: SinkRecord, random: Random) -> SinkRecord:
    row = row_of(record)
    if isinstance(row, Struct):
        random.choice(
            [
                lambda: row.put("qty", 99),
                lambda: row.values.__setitem__(0, 77),
                lambda: (row.get("tags") or []).append("more"),
                lambda: setattr(row, "values", [*row.values[:2], None, *row.values[3:]]),
                lambda: None if row["address"] is None else row["address"].put("city", "Rome"),
                lambda: None if row["address"] is None else row["address"].put("zip", 3),
            ]
        )()
    elif row is not None:
        random.choice(
            [lambda: row.update(qty=99), row.clear, lambda: row.setdefault("new", True)]
        )()
    return record


def write_top(record: SinkRecord, random: Random) -> SinkRecord:
    value = record.value
    if isinstance(value, Struct):
        random.choice([lambda: value.put("op", "w"), lambda: value.values.__setitem__(0, None)])()
    elif value is not None:
        random.choice([lambda: value.update(op="w"), lambda: value.pop("before", None)])()
    return record


def new_value(record: SinkRecord, random: Random) -> SinkRecord:
    value = record.value
    if isinstance(value, Struct):
        made = Struct(value.schema, value.values) if random.random() < 0.5 else Struct(value.schema)
        for field in value.schema.fields:
            made.values[field.index] = value.get_without_default(field.name)
        made.values[4] = "n"
        return record.replace(value=made)
    return record if value is None else record.replace(value={**value, "op": "n"})


def row_alone(record: SinkRecord, random: Random) -> SinkRecord:
    row = row_of(record)
    return record.replace(value_schema=row.schema if isinstance(row, Struct) else None, value=row)


def other_schema(record: SinkRecord, random: Random) -> SinkRecord:
    if not isinstance(record.value, Struct):
        return record
    inside = random.choice([0.5, 0.1, 1, True, float("nan")])
    made = Struct(
        WIDE, [inside, random.choice([{"a": 1}, {}, {"a": True}, {None: 1}]), record.value]
    )
    return record.replace(value_schema=WIDE, value=made)


def loose(record: SinkRecord, random: Random) -> SinkRecord:
    """Values that nobody checked."""
    value, wrong = record.value, random.choice(LOOSE)
    if isinstance(value, Struct):
        values = [value.get_without_default(f.name) for f in value.schema.fields]
        values[random.randrange(len(values))] = wrong
        return record.replace(value=Struct(value.schema, values))
    return (
        record.replace(value=wrong)
        if value is None
        else record.replace(value={**value, "ts_ms": wrong})
    )


ACTIONS: Sequence[Action] = (
    lambda record, random: record,
    lambda record, random: None,
    lambda record, random: (
        record if record.value is None or record.value.get("op") is not None else None
    ),
    lambda record, random: record if row_of(record) is None else record.replace(headers=Headers()),
    lambda record, random: record.replace(topic=random.choice(["t", "u"])),
    lambda record, random: record.replace(topic="t").replace(
        headers=record.headers.add("more", 1, INT64)
    ),
    lambda record, random: record.replace(timestamp=random.choice([1, None, True])),
    lambda record, random: record.replace(key=None, key_schema=None),
    lambda record, random: record.replace(value=None),
    lambda record, random: record.replace(value=None, value_schema=None),
    lambda record, random: record.replace(
        value="text", value_schema=random.choice([OPTIONAL_STRING, STRING, None])
    ),
    lambda record, random: record.replace(partition=random.choice([3, 4])),
    lambda record, random: record.replace(
        origin=record.origin._replace(offset=record.origin.offset + 1)
    ),
    lambda record, random: record.replace(timestamp_type=random.choice(list(TimestampType))),
    lambda record, random: record.replace(timestamp_type=TimestampType.LOG_APPEND_TIME),
    lambda record, random: SinkRecord("t", 3, None, None, record.value_schema, record.value),
    lambda record, random: SinkRecord("t", 0, None, None, OPTIONAL_STRING, "x"),
    lambda record, random: SinkRecord(
        record.topic,
        3,
        record.key_schema,
        record.key,
        record.value_schema,
        record.value,
        record.timestamp,
        record.headers,
        record.timestamp_type,
        record.origin,
    ),
    write_deep,
    write_top,
    new_value,
    row_alone,
    other_schema,
    loose,
)


class Chain:
    """Performs random actions; it stores some rows, and returns them one record later, or twice."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.actions = [
            self.random.choice(ACTIONS) for _ in range(self.random.choice([1, 1, 2, 3]))
        ]
        self.often = self.random.choice([1.0, 1.0, 0.5])
        self.late = self.random.random() < 0.1
        self.repeats = self.random.random() < 0.1
        self.kept: list[Any] = []
        self.last: SinkRecord | None = None

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        random = self.random
        if random.random() < 0.1:
            self.kept.append(
                random.choice([lambda: record, lambda: record.value, lambda: row_of(record)])()
            )
        made: SinkRecord | None = record
        for action in self.actions:
            if made is not None and random.random() < self.often:
                try:
                    made = action(made, random)
                # the event is something else now
                except (AttributeError, TypeError, IndexError, DataError):
                    return None
        if self.late:
            made, self.last = self.last, made
        elif self.repeats and random.random() < 0.1:
            made = self.last
        elif self.repeats:
            self.last = made
        return made


def plain(value: Any) -> Any:
    """A value with the types of all that is in it."""
    if isinstance(value, Struct):
        return "Struct", value.schema, [plain(v) for v in value.read_values()]
    if isinstance(value, dict):
        return "dict", {(type(k), k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return "list", [plain(v) for v in value]
    if isinstance(value, SinkRecord):
        return [plain(getattr(value, name)) for name in SinkRecord.__match_args__]
    return type(value), repr(value)


def by_topic(records: Sequence[SinkRecord]) -> dict[str, list[Any]]:
    topics: dict[str, list[Any]] = {}
    for record in records:
        topics.setdefault(record.topic, []).append(plain(record))
    return topics


def given_batches(seed: int) -> list[Batch]:
    """Return batches like a converter's: rows with different types in a schemaless member are
    split.
    """
    return Batch.of(Events(seed).records())


def assert_rising(batch: Batch) -> None:
    places = [(r.origin.partition, r.origin.offset) for r in batch.records()]
    assert len(set(places)) == len(places)
    for partition in {partition for partition, _ in places}:
        offsets = [offset for p, offset in places if p == partition]
        assert offsets == sorted(offsets)


def things_inside(value: Any) -> list[Any]:
    """A value and all that is in it."""
    if isinstance(value, SinkRecord):
        return [value, *things_inside(value.key), *things_inside(value.value)]
    if isinstance(value, Struct):
        return [value, *(inside for v in value.read_values() for inside in things_inside(v))]
    return [value]


@settings(EXAMPLES, max_examples=examples(1000))
@given(st.integers(0, 2**32), st.integers(0, 2**32))
def test_lazily_made_rows_equal_the_rows_of_the_batch(seed: int, actions: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_of_batch, "MIN_ROWS", 1)
        reference, chain = Chain(actions), Chain(actions)
        for batch, twin in zip(given_batches(seed), given_batches(seed), strict=True):
            expected = [
                made for record in twin.records() if (made := reference.apply(record)) is not None
            ]
            rows = RowsOfBatch(batch)
            results = [made for record in rows.records if (made := chain.apply(record)) is not None]
            batches = rows.batches(results)
            event("rows" if batches is None else "columns")
            if batches is not None:
                for made in batches:
                    made.value.data.validate(full=True)
                    assert_rising(made)
                assert by_topic([r for made in batches for r in made.records()]) == by_topic(
                    expected
                )
                results = []
            rows.release()
            if batches is None:
                assert by_topic(results) == by_topic(expected)
            for kept in [*chain.kept, *results]:  # nothing holds on to the columns
                assert all(getattr(thing, "_rows", None) is None for thing in things_inside(kept))
        assert plain(chain.kept) == plain(reference.kept)

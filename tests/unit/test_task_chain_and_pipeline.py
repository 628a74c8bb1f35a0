from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, Message
from fixtures.worker_plugins import TextColumnConverter, TextConverter, TextHeaderConverter
from kept_reports import Kept

from connect_py.api.batch import Batch
from connect_py.api.converter import ColumnRun
from connect_py.api.errors import BadRows, ConnectError, DataError, NotColumnar, RetriableError
from connect_py.api.predicate import Predicate
from connect_py.api.record import (
    RawHeaders,
    RecordOrigin,
    SinkRecord,
    TimestampType,
    TopicPartition,
)
from connect_py.api.schema import STRING
from connect_py.api.transformation import Transformation
from connect_py.clock import SystemClock
from connect_py.error_handling.error_config import ErrorConfig
from connect_py.error_handling.error_handler import ErrorHandler, ToleranceExceededError
from connect_py.task import rows_of_batch
from connect_py.task.record_pipeline import Converters, RecordPipeline
from connect_py.task.rows_of_batch import MIN_ROWS
from connect_py.task.sink.consumed_messages import message_runs
from connect_py.task.sink.deliveries import without_partitions
from connect_py.task.transformation_chain import ChainLink, Delivery, TransformationChain


class Suffix(Transformation[Any]):
    """Adds a letter to each value; "x" fails, "drop" is dropped, "route" goes to another topic."""

    def __init__(self, letter: str, columnar: bool = True) -> None:
        self.letter, self.columnar = letter, columnar

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing."""

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        if record.value == "x":
            raise DataError("no x")
        if record.value == "drop":
            return None
        topic = "elsewhere" if record.value == "route" else record.topic
        return record.replace(
            topic=topic, value=None if record.value is None else record.value + self.letter
        )

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        if not self.columnar:
            raise NotColumnar
        data = batch.value.data
        bad = pc.fill_null(pc.equal(data, "x"), False)
        if bad.true_count:
            raise BadRows({row: DataError("no x") for row in pc.indices_nonzero(bad).to_pylist()})
        routed = pc.fill_null(pc.equal(data, "route"), False)
        stays = pc.and_(pc.invert(routed), pc.invert(pc.fill_null(pc.equal(data, "drop"), False)))
        parts = []
        for mask, topic in ((stays, batch.topic), (routed, "elsewhere")):
            if mask.true_count:
                part = batch.where(mask)
                column = part.value
                new = type(column)(
                    column.schema, pc.binary_join_element_wise(column.data, self.letter, "")
                )
                parts.append(part.replace(topic=topic, value=new))
        return parts


class RowSuffix(Suffix):
    """Knows rows only."""

    apply_batch = Transformation.apply_batch


class Unmoved(Transformation[Any]):
    """Knows rows only, and changes none."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing."""

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        return record


class Broken(Suffix):
    """Its batch form has a bug."""

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        raise ZeroDivisionError


class StartsWith(Predicate[Any]):
    def __init__(self, start: str, columnar: bool = True) -> None:
        self.start, self.columnar = start, columnar

    def configure(self, configs: Mapping[str, str]) -> None:
        """Do nothing."""

    def test(self, record: SinkRecord) -> bool:
        return record.value is not None and record.value.startswith(self.start)

    def test_batch(self, batch: Batch) -> pa.BooleanArray | bool:
        if not self.columnar:
            raise NotColumnar
        return pc.fill_null(pc.starts_with(batch.value.data, self.start), False)


def message(
    value: bytes | None,
    offset: int,
    partition: int = 0,
    topic: str = "t",
    key: bytes | None = b"k",
    headers: Any = None,
    stamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 5),
) -> Any:
    return Message(
        topic=topic,
        value=value,
        key=key,
        headers=headers,
        offset=offset,
        partition=partition,
        timestamp=stamp,
    )


class Pipeline:
    """A pipeline of messages."""

    def __init__(self, pipeline: RecordPipeline) -> None:
        self._pipeline = pipeline

    def process(self, messages: Sequence[Any]) -> list[Delivery]:
        return self._pipeline.process(message_runs(messages))


def errors(kept: Kept, *, tolerate: bool = True) -> ErrorHandler:
    return ErrorHandler(
        ErrorConfig(tolerate_all=tolerate), [kept], SystemClock(), lambda seconds: None
    )


def pipeline(
    links: Sequence[ChainLink],
    kept: Kept,
    *,
    columnar: bool = True,
    tolerate: bool = True,
    to_columns: bool = False,
) -> Pipeline:
    kind: Callable[[], TextConverter] = TextColumnConverter if columnar else TextConverter
    key, value, header = kind(), kind(), TextHeaderConverter()
    for converter in (key, value):
        converter.configure({}, is_key=False)
    handling = errors(kept, tolerate=tolerate)
    chain = TransformationChain(links, handling, sink_takes_columns=to_columns)
    return Pipeline(RecordPipeline(Converters(key, value, header, "K", "V", "H"), chain, handling))


def rows(deliveries: Sequence[Delivery]) -> list[SinkRecord]:
    return [r for d in deliveries for r in (d.records() if isinstance(d, Batch) else d)]


def by_topic(records: Sequence[SinkRecord]) -> dict[str, list[SinkRecord]]:
    topics: dict[str, list[SinkRecord]] = {}
    for record in records:
        topics.setdefault(record.topic, []).append(record)
    return topics


VALUES = [b"a", b"b", b"ab", None, b"x", b"drop", b"route", b"bad", b"ba", b"xx"]
LINKS: dict[str, Callable[[], list[ChainLink]]] = {
    "none": list,
    "one": lambda: [ChainLink(Suffix("1"), "S")],
    "two": lambda: [ChainLink(Suffix("1"), "S"), ChainLink(Suffix("2"), "S2")],
    "predicate": lambda: [
        ChainLink(Suffix("1"), "S", StartsWith("a")),
        ChainLink(Suffix("2"), "S2"),
    ],
    "negated": lambda: [ChainLink(Suffix("1"), "S", StartsWith("a"), negate=True)],
    "rows in the middle": lambda: [
        ChainLink(Suffix("1"), "S"),
        ChainLink(Suffix("2", columnar=False), "S2"),
    ],
    "rows, then columns": lambda: [
        ChainLink(RowSuffix("1"), "S", StartsWith("a", columnar=False)),
        ChainLink(Suffix("2"), "S2"),
        ChainLink(Unmoved(), "U"),
        ChainLink(Suffix("3"), "S3", StartsWith("b")),
    ],
    "predicate of rows": lambda: [ChainLink(Suffix("1"), "S", StartsWith("b", columnar=False))],
    "broken": lambda: [ChainLink(Broken("1"), "S", StartsWith("b"))],
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("chain", LINKS)
def test_batch_form_returns_the_same_ordered_records_as_rows(
    chain: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_of_batch, "MIN_ROWS", 1)
    rng = random.Random(f"{chain}{seed}")
    next_offset: dict[tuple[str, int], int] = {}
    messages = []
    for _ in range(rng.randrange(1, 60)):
        topic, partition = rng.choice(["t", "t", "t", "u"]), rng.randrange(2)
        offset = next_offset.get((topic, partition), 0)
        next_offset[topic, partition] = offset + rng.randrange(1, 3)
        headers = rng.choice([None, None, [("h", b"1")], [("h", b"bad")]])
        kind = rng.choice([TIMESTAMP_CREATE_TIME] * 5 + [TIMESTAMP_LOG_APPEND_TIME])
        messages.append(
            message(
                rng.choice(VALUES),
                offset,
                partition,
                topic,
                rng.choice([b"k", None, b"k", b"bad"]),
                headers,
                (kind, offset),
            )
        )
    kept_columns, kept_rows = Kept(), Kept()
    columns = rows(
        pipeline(LINKS[chain](), kept_columns, to_columns=seed % 2 == 0).process(messages)
    )
    reference = rows(pipeline(LINKS[chain](), kept_rows, columnar=False).process(messages))
    assert by_topic(columns) == by_topic(reference)

    def told(kept: Kept) -> list[Any]:
        return sorted(
            (f.origin, f.stage.value, f.class_name, str(f.error), f.timestamp) for f in kept.reports
        )

    assert told(kept_columns) == told(kept_rows)


def test_a_batch_stays_columns_through_stages_that_can() -> None:
    links = [ChainLink(Suffix("1"), "S", StartsWith("a")), ChainLink(Suffix("2"), "S2")]
    done = pipeline(links, Kept()).process(
        [message(v, n) for n, v in enumerate([b"a", b"b", b"a", None])]
    )
    assert [type(d) for d in done] == [Batch]
    assert [r.value for r in rows(done)] == ["a12", "b2", "a12", None]
    assert [r.origin.offset for r in rows(done)] == [0, 1, 2, 3]


def many(*values: bytes | None) -> list[Any]:
    """Messages enough for columns to pay."""
    return [message(values[offset % len(values)], offset) for offset in range(4 * MIN_ROWS)]


def test_unchanged_batch_passes_a_row_transformation_as_the_same_object() -> None:
    batch = of_texts(["a", None, "b"])
    handling = errors(Kept())
    chain = TransformationChain([ChainLink(Unmoved(), "U")], handling, sink_takes_columns=True)
    (delivery,) = chain.process(batch)
    assert delivery is batch
    filtering = TransformationChain(
        [ChainLink(RowSuffix("", True), "F")], handling, sink_takes_columns=True
    )
    assert [r.value for r in rows(filtering.process(of_texts(["drop", "drop"])))] == []


def of_texts(values: Sequence[str | None]) -> Batch:
    (batch,) = Batch.of(
        [
            SinkRecord("t", 0, None, None, STRING, value, origin=RecordOrigin("t", 0, offset))
            for offset, value in enumerate(values)
        ]
    )
    return batch


def test_rows_of_a_row_transformation_become_columns_for_later_ones() -> None:
    links = [ChainLink(RowSuffix("1"), "S"), ChainLink(Suffix("2"), "S2")]
    done = pipeline(links, Kept(), to_columns=True).process(many(b"a", b"drop", None, b"route"))
    assert [(type(d), d.topic) for d in done if isinstance(d, Batch)] == [
        (Batch, "t"),
        (Batch, "elsewhere"),
    ]
    assert {r.value for r in rows(done)} == {"a12", None, "route12"}
    assert [r.origin.offset for r in rows(done) if r.topic == "t"][:4] == [0, 2, 4, 6]


def test_failed_row_is_reported_and_other_rows_become_columns() -> None:
    kept = Kept()
    links = [ChainLink(RowSuffix("1"), "S"), ChainLink(Suffix("2"), "S2")]
    done = pipeline(links, kept, to_columns=True).process([*many(b"a"), message(b"x", 999)])
    assert [type(d) for d in done] == [Batch]
    assert [(r.class_name, r.origin.offset) for r in kept.reports if r.origin] == [("S", 999)]


def test_rows_stay_rows_where_columns_bring_no_gain() -> None:
    links = [ChainLink(RowSuffix("1"), "S"), ChainLink(Suffix("2"), "S2")]
    for_a_sink_of_rows = pipeline(links, Kept()).process(many(b"a"))
    assert [type(d) for d in for_a_sink_of_rows] == [list]
    few = pipeline(links, Kept(), to_columns=True).process([message(b"a", 0)])
    assert [type(d) for d in few] == [list]
    three = [*links, ChainLink(Suffix("3"), "S3")]
    done = pipeline(three, Kept()).process(many(b"a"))
    assert [type(d) for d in done] == [Batch]
    assert {r.value for r in rows([*for_a_sink_of_rows, *few, *done])} == {"a12", "a123"}


class Odd(Unmoved):
    """Returns records that have no columnar form."""

    def __init__(self, **members: Any) -> None:
        self.members = members

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        return record.replace(**self.members)


@pytest.mark.parametrize(
    "odd",
    [
        {"value": 1},
        {"value": "\ud800"},
        {"timestamp": 2**70},
        {"timestamp": 1.5},
        {"partition": 7},
        {"origin": None},
        {"topic": None},
        {"topic": ["t"]},
        {"key_schema": "text"},
        {"headers": 5},
    ],
)
def test_rows_that_no_column_can_say_stay_rows(odd: dict[str, Any]) -> None:
    chain = TransformationChain(
        [ChainLink(Odd(**odd), "O")], errors(Kept()), sink_takes_columns=True
    )
    (delivery,) = chain.process(of_texts(["a"] * 4 * MIN_ROWS))
    assert isinstance(delivery, list)
    assert {str(getattr(r, name)) for r in delivery for name in odd} == {
        str(value) for value in odd.values()
    }


def test_transformation_result_that_is_no_record_passes_unchanged() -> None:
    link = Unmoved()
    link.apply = lambda record: "no record"  # type: ignore[method-assign, assignment, return-value] # a possible plugin
    chain = TransformationChain([ChainLink(link, "O")], errors(Kept()), sink_takes_columns=True)
    assert chain.process(of_texts(["a"] * 4 * MIN_ROWS)) == [["no record"] * 4 * MIN_ROWS]


def test_failed_conversion_to_columns_is_logged_once_without_losing_rows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    links = [ChainLink(Odd(origin=None), "Odd"), ChainLink(Unmoved(), "Un")]
    chain = TransformationChain(links, errors(Kept()), sink_takes_columns=True)
    for _ in range(3):
        (delivery,) = chain.process(of_texts(["a"] * 4 * MIN_ROWS))
        assert len(delivery) == 4 * MIN_ROWS
    (told,) = caplog.records
    assert (told.levelname, told.exc_info is None) == ("WARNING", False)
    assert "after Odd, Un" in told.getMessage()


class LastGood(Unmoved):
    """Gives the record before in place of one without a value."""

    last: SinkRecord | None = None

    def apply(self, record: SinkRecord) -> SinkRecord | None:
        if record.value is not None:
            self.last = record
        return self.last


def test_a_record_that_comes_twice_is_no_row_of_columns() -> None:
    def links() -> list[ChainLink]:
        return [
            ChainLink(LastGood(), "L"),
            ChainLink(Suffix("1"), "S", StartsWith("a")),
            ChainLink(Suffix("2"), "S2", StartsWith("b")),
        ]

    done = pipeline(links(), Kept(), to_columns=True).process(many(b"a", None, b"b"))
    reference = pipeline(links(), Kept(), columnar=False).process(many(b"a", None, b"b"))
    assert [type(d) for d in done] == [list]
    assert rows(done) == rows(reference)


class Doubling(Suffix):
    """Its batch form gives each row twice."""

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        return [*super().apply_batch(batch), *super().apply_batch(batch)]


def test_batch_form_that_duplicates_rows_falls_back_to_rows() -> None:
    link = ChainLink(Doubling("1"), "D", StartsWith("a"))
    done = pipeline([link], Kept()).process(
        [message(v, n) for n, v in enumerate([b"a", b"b", b"a"])]
    )
    assert [(r.value, r.origin.offset) for r in rows(done)] == [("a1", 0), ("b", 1), ("a1", 2)]


def test_timestamp_type_set_by_a_transformation_reaches_the_columns() -> None:
    kind = TimestampType.LOG_APPEND_TIME
    chain = TransformationChain(
        [ChainLink(Odd(timestamp_type=kind), "O")], errors(Kept()), sink_takes_columns=True
    )
    (delivery,) = chain.process(of_texts(["a"] * 4 * MIN_ROWS))
    assert isinstance(delivery, Batch)
    assert {r.timestamp_type for r in delivery.records()} == {kind}
    assert [r.origin.offset for r in delivery.records()] == list(range(4 * MIN_ROWS))


def test_without_tolerance_one_bad_record_withholds_the_whole_poll() -> None:
    kept = Kept()
    for columnar in (True, False):
        with pytest.raises(ToleranceExceededError):
            pipeline([], kept, columnar=columnar, tolerate=False).process(
                [message(b"a", 0), message(b"bad", 1)]
            )
    assert [f.origin.offset for f in kept.reports if f.origin is not None] == [1, 1]


def test_failed_key_with_a_bad_value_is_reported_once() -> None:
    for columnar in (True, False):
        kept = Kept()
        assert pipeline([], kept, columnar=columnar).process([message(b"bad", 0, key=b"bad")]) == []
        assert [f.stage.value for f in kept.reports] == ["KEY_CONVERTER"]


def test_rows_of_revoked_partitions_are_found_by_origin_after_rerouting() -> None:
    done = pipeline([ChainLink(Suffix("1"), "S")], Kept()).process(
        [message(b"route", 0, 0), message(b"route", 0, 1), message(b"a", 1, 0)]
    )
    left = without_partitions(done, [TopicPartition("t", 0)])
    assert [(r.topic, r.origin.partition) for r in rows(left)] == [("elsewhere", 1)]
    assert without_partitions(done, [TopicPartition("elsewhere", 1)]) == done


class Torn(TextColumnConverter):
    """Forgets the last message."""

    def to_batch(
        self, topic: str, data: Sequence[bytes | None], headers: Sequence[RawHeaders] | None = None
    ) -> Sequence[ColumnRun]:
        return super().to_batch(topic, data[:-1])


def test_converter_that_drops_messages_fails_the_task() -> None:
    kept = Kept()
    handling = errors(kept)
    value, key = Torn(), TextColumnConverter()
    for converter in (key, value):
        converter.configure({}, is_key=False)
    torn = RecordPipeline(
        Converters(key, value, TextHeaderConverter(), "K", "V", "H"),
        TransformationChain([], handling),
        handling,
    )
    with pytest.raises(ConnectError, match="V returned the row ranges"):
        torn.process(message_runs([message(b"a", 0), message(b"b", 1)]))


class Vague(Suffix):
    """Its batch form fails as a whole over one bad row, and counts its calls."""

    calls = 0

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        self.calls += 1
        if pc.any(pc.fill_null(pc.equal(batch.value.data, "x"), False)).as_py():
            raise ValueError("somewhere")
        return super().apply_batch(batch)


class Waiting(Suffix):
    """A server that its batch form needs is away."""

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        raise BadRows({0: RetriableError("away")})


def test_bad_rows_are_found_by_halving_while_others_stay_columns() -> None:
    kept, link = Kept(), Vague("1")
    values = [b"x" if offset in (700, 1500) else b"a" for offset in range(2000)]
    made = pipeline([ChainLink(link, "S"), ChainLink(Suffix("2"), "S2")], kept).process(
        [message(value, offset) for offset, value in enumerate(values)]
    )
    (batch,) = made
    assert isinstance(batch, Batch)
    assert len(batch) == 1998
    assert [(r.origin.offset, str(r.error)) for r in kept.reports if r.origin] == [
        (700, "no x"),
        (1500, "no x"),
    ]
    assert link.calls < 60


def test_halving_a_batch_of_many_bad_rows_has_a_limit() -> None:
    kept, link = Kept(), Vague("1")
    messages = [message(b"x" if offset % 2 else b"a", offset) for offset in range(2000)]
    assert [
        record.origin.offset
        for record in rows(pipeline([ChainLink(link, "S")], kept).process(messages))
    ] == list(range(0, 2000, 2))
    assert len(kept.reports) == 1000
    assert link.calls <= 101


def test_retriable_row_sends_its_batch_to_the_row_form() -> None:
    kept = Kept()
    (made,) = pipeline([ChainLink(Waiting("1"), "S")], kept).process(
        [message(b"a", 0), message(b"b", 1)]
    )
    assert isinstance(made, list)
    assert [record.value for record in made] == ["a1", "b1"]
    assert kept.reports == []


class CountingSuffix(Suffix):
    """Returns the results of the good rows together with the errors."""

    def __init__(self, letter: str) -> None:
        super().__init__(letter)
        self.batches: list[int] = []

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        self.batches.append(len(batch))
        try:
            return super().apply_batch(batch)
        except BadRows as bad:
            left = pa.array([row not in bad.errors for row in range(len(batch))], pa.bool_())
            raise BadRows(
                bad.errors, super().apply_batch(batch.where(left)) if left.true_count else []
            ) from bad


@pytest.mark.parametrize("predicate", [None, StartsWith("b")], ids=["all", "some"])
def test_rows_transformed_beside_bad_ones_are_not_transformed_again(
    predicate: Predicate[Any] | None,
) -> None:
    kept, first, second = Kept(), CountingSuffix("!"), Suffix("?")
    values = [b"a", b"x", b"b", b"route", b"a"]
    links = [
        ChainLink(first, "First", predicate, negate=predicate is not None),
        ChainLink(second, "Second"),
    ]
    made = by_topic(
        rows(pipeline(links, kept).process([message(v, n) for n, v in enumerate(values)]))
    )
    left = ["a!?", "b!?" if predicate is None else "b?", "a!?"]
    assert {t: [r.value for r in found] for t, found in made.items()} == {
        "t": left,
        "elsewhere": ["route!?"],
    }
    assert [r.origin.offset for r in made["t"]] == [0, 2, 4]
    assert [(f.origin.offset, f.class_name) for f in kept.reports if f.origin] == [(1, "First")]
    assert len(first.batches) == 1


def test_a_batch_of_bad_rows_alone_leaves_nothing() -> None:
    kept, only = Kept(), CountingSuffix("!")
    assert (
        pipeline([ChainLink(only, "Only")], kept).process([message(b"x", n) for n in range(3)])
        == []
    )
    assert (len(kept.reports), only.batches) == (3, [3])

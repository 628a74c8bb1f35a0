"""A small database, its change events, and both engines: the tables hold what the database holds.

Unlike `test_iceberg_engines_equal`, which begins with staged files, this begins with Debezium's events: they go to
partitions by their keys (or anywhere), are read at different paces, staged by the task's own stager, and committed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from fixtures.iceberg_commit import Lake, Sink, lake
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from iceberg_staging_rows import config

from connect_py.api.batch import Batch
from connect_py.api.record import NO_HEADERS, Header, Headers, RecordOrigin, SinkRecord, TopicPartition
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.spark.committer import EngineName
from connectors.iceberg.staging.table_stager import MemoryBudget, StagingIdentity, TableStager
from connectors.iceberg.table import StagedFile

__all__ = ["lake"]

UNSHRUNK = (Phase.explicit, Phase.generate)  # an example takes seconds: shrinking would take minutes
GONE = "__debezium_unavailable_value"
SCHEMA = json.dumps({
    "type": "struct", "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "region", "required": False, "type": "string"},
        {"id": 3, "name": "n", "required": False, "type": "long"},
        {"id": 4, "name": "big", "required": False, "type": "string"},
        {"id": 5, "name": "items", "required": False, "type": {
            "type": "list", "element-id": 6, "element-required": False, "element": "string"}},
    ],
})  # fmt: skip
BY_REGION = json.dumps(
    {"spec-id": 0, "fields": [{"name": "region", "transform": "identity", "source-id": 2, "field-id": 1000}]}
)
Row = dict[str, Any]

IDS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("write"), IDS, st.sampled_from(["north", "south"]), st.booleans()),
    st.tuples(st.just("delete"), IDS),
    st.tuples(st.just("move"), IDS, IDS),
    st.tuples(st.just("write"), IDS, st.sampled_from(["north", None]), st.booleans()),
    st.tuples(st.just("truncate")),
)
CYCLES = st.lists(st.lists(STEPS, min_size=1, max_size=9), min_size=2, max_size=3)


@dataclass
class Source:
    """A table of a database that has large values, and the connector that reads its log."""

    partitions: int
    by_key: bool  # False: events go anywhere
    rows: dict[int, Row] = field(default_factory=dict)
    log: list[list[SinkRecord]] = field(default_factory=list)
    position: int = 0
    written: int = 0
    touched: set[int] = field(default_factory=set)  # ids with changes in the cycle

    def __post_init__(self) -> None:
        self.log = [[] for _ in range(self.partitions)]

    def apply(self, step: tuple[Any, ...]) -> None:
        self.position += 10
        match step:
            case ("write", id_, region, changes_big):
                self._write(id_, region, changes_big)
            case ("delete", id_) if id_ in self.rows:
                self._delete(id_, self.rows.pop(id_), None)
            case ("move", old, new) if old in self.rows and new not in self.rows:
                self._move(old, new)
            case ("truncate",):
                self.rows.clear()
                self._emit(None, {"op": "t", "before": None, "after": None})

    def _write(self, id_: int, region: str | None, changes_big: bool) -> None:
        before = self.rows.get(id_)
        self.written += 1
        big = f"big {self.written}" if before is None or changes_big else before["big"]
        row = {"id": id_, "region": region, "n": self.written, "big": big, "items": [big]}
        self.rows[id_] = row
        same = before is not None and before["big"] == big
        sent = {**row, "big": GONE, "items": [GONE]} if same else row
        self._emit(id_, {"op": "c" if before is None else "u", "before": None, "after": sent})
        self.touched.add(id_)

    def _delete(self, id_: int, row: Row, new_id: int | None) -> None:
        key_only = {name: value if name == "id" else None for name, value in row.items()}
        headers = Headers([Header("__debezium.newkey", {"id": new_id})] if new_id is not None else [])
        self._emit(id_, {"op": "d", "before": key_only, "after": None}, headers)
        self._emit(id_, None, headers)

    def _move(self, old: int, new: int) -> None:
        row = self.rows.pop(old)
        self.rows[new] = {**row, "id": new}
        self._delete(old, row, new)
        # A change of the row in the same cycle goes with its delete, if these are in another partition than the insert.
        hidden = self.partitions == 1 or old not in self.touched
        sent = {**row, "id": new, "big": GONE, "items": [GONE]} if hidden else {**row, "id": new}
        self._emit(new, {"op": "c", "before": None, "after": sent}, Headers([Header("__debezium.oldkey", {"id": old})]))
        self.touched.add(new)

    def _emit(self, id_: int | None, event: dict[str, Any] | None, headers: Headers = NO_HEADERS) -> None:
        number = (
            0 if id_ is None else id_ % self.partitions if self.by_key else self.position * 7 // 10 % self.partitions
        )
        log = self.log[number]
        if event is not None:
            event = {**event, "source": {"sequence": f'[null,"{self.position}"]'}}
        key = None if id_ is None else {"id": id_}
        origin = RecordOrigin("shop", number, len(log))
        log.append(SinkRecord("shop", number, None, key, None, event, len(log), headers=headers, origin=origin))


@dataclass
class Reader:
    """A task and a coordinator of one table, without Kafka."""

    sink: Sink
    engine: EngineName
    stager: TableStager
    read: list[int]
    cycle: int = 0

    @staticmethod
    def of(sink: Sink, engine: EngineName, partitions: int, **more: str) -> Reader:
        settings = {"tables__upsert_mode_enabled": "true", "ext__envelope": "debezium", **more}
        settings["ext__truncate_events"] = "apply"
        if partitions > 1:
            settings["ext__ordering_columns"] = "source.sequence"
        identity = StagingIdentity("orders", Epoch(7, "a1"), "0")
        stager = TableStager(sink.description(), config(**settings), identity, MemoryBudget(1 << 30))
        return Reader(sink, engine, stager, [0] * partitions)

    def take(self, source: Source, lags: list[int]) -> None:
        """Read each partition up to some records before its end, and commit."""
        self.cycle += 1
        files: list[StagedFile] = []
        for number, log in enumerate(source.log):
            end = max(self.read[number], len(log) - lags[number])
            for batch in Batch.of(log[self.read[number] : end]):
                self.stager.add(self.stager.prepare(batch))
            self.read[number] = end
            files += self.stager.close_cycle(self.cycle, TopicPartition("shop", number))
        self.sink.commit(files, self.engine, ordered=len(source.log) > 1)

    def rows(self) -> dict[int, Row]:
        found = [dict(row) for row in self.sink.rows()]
        made = {row["id"]: {"region": None, "n": None, "big": None, "items": None, **row} for row in found}
        assert len(made) == len(found), "a key has several rows"
        return made


def readers(lake: Lake, version: int, partitions: int) -> Iterator[Reader]:
    for engine in (EngineName.DELTA, EngineName.MERGE):
        properties = {"write.merge.mode": "merge-on-read"}
        sink = lake.make(SCHEMA, BY_REGION, version, ("id",), **properties)
        yield Reader.of(sink, engine, partitions)


def run(lake: Lake, version: int, source: Source, cycles: list[list[Any]], lags: list[int]) -> None:
    """`lags`: how far reading stays behind, by cycle and partition, until the last cycle."""
    made = list(readers(lake, version, source.partitions))
    behind = iter(lags)
    for number, steps in enumerate([*cycles, []]):
        source.touched.clear()
        for step in steps:
            source.apply(step)
        at = [0 if number == len(cycles) else next(behind, 0) for _ in range(source.partitions)]
        for reader in made:
            reader.take(source, at)
    for reader in made:
        assert reader.rows() == source.rows, reader.engine


def thorough(examples: int) -> settings:
    checks = list(HealthCheck)
    return settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks, phases=UNSHRUNK)


FEW_OR_MANY = pytest.mark.parametrize("examples", [3, pytest.param(60, marks=pytest.mark.long)])


@pytest.mark.timeout(1200)  # streams of up to four cycles, each through two engines
@FEW_OR_MANY
@pytest.mark.parametrize("version", [2, 3])
def test_tables_of_both_engines_hold_what_the_database_holds(lake: Lake, version: int, examples: int) -> None:
    """One partition, read at any pace: truncates, deletes, changed keys and unavailable values."""

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK
    )
    @given(CYCLES, st.lists(st.integers(0, 6), max_size=3))
    def check(cycles: list[list[Any]], lags: list[int]) -> None:
        run(lake, version, Source(1, by_key=True), cycles, lags)

    check()


@pytest.mark.timeout(1200)  # as above
@FEW_OR_MANY
@pytest.mark.parametrize("by_key", [True, False])
def test_ordered_changes_in_several_partitions_end_as_in_the_database(lake: Lake, by_key: bool, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK
    )
    @given(CYCLES)
    def check(cycles: list[list[Any]]) -> None:
        run(lake, 3, Source(3, by_key=by_key), cycles, [])

    check()


@pytest.mark.timeout(1200)  # as above
@FEW_OR_MANY
def test_partitions_that_lag_change_nothing_around_truncates(lake: Lake, examples: int) -> None:
    """Rows from before a truncate that come after it stay out, rows from after it that came before stay in."""
    steps = STEPS.filter(lambda step: step[0] != "move")  # a value that was not read yet cannot be found

    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=UNSHRUNK
    )
    @given(st.lists(st.lists(steps, min_size=2, max_size=9), min_size=2, max_size=3), st.lists(st.integers(0, 4)))
    def check(cycles: list[list[Any]], lags: list[int]) -> None:
        run(lake, 3, Source(3, by_key=True), cycles, lags)

    check()

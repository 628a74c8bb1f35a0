"""What becomes of staged rows that are not whole, with the files of a table and without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connect_py.api.errors import CommitStateUnknownError
from connectors.iceberg.protocol.ledger import TableVersion, TableView
from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark import patch_completion
from connectors.iceberg.spark.catalog import LoadedTable
from connectors.iceberg.spark.commit_request import CommitRequest, CommitStatus, EngineName
from connectors.iceberg.spark.committer import CommitOutcome, TableCommitter
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    DuplicateKeyError,
    SparkDiedError,
    TableUnsuitableError,
)
from connectors.iceberg.spark.key_join import KeyJoin
from connectors.iceberg.staging.ordering import ORDER, ORDER_FIELD, order_field
from connectors.iceberg.staging.projection import project
from connectors.iceberg.staging.table_stager import OLD_KEY_COLUMN
from connectors.iceberg.staging.types import arrow_schema, writable_fields
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription, WriteMode

KEY = "connect-py.ledger.connect-orders"
LEFT = "connect-py.left.connect-orders"
FIELDS = [
    {"id": 1, "name": "id", "required": True, "type": "long"},
    {"id": 2, "name": "n", "required": False, "type": "int"},
    {"id": 3, "name": "big", "required": False, "type": "string"},
]
Rows = Sequence[Mapping[str, Any]]


@dataclass
class Table:
    """A table of Parquet files, with the part of the JVM that the coordinator asks about it."""

    folder: Path
    fields: list[dict[str, Any]] = field(default_factory=lambda: list(FIELDS))
    schema_id: int = 0
    snapshots: dict[str | None, list[str]] = field(default_factory=lambda: {None: []})  # None: now
    before: list[tuple[str | None, str | None]] = field(default_factory=list)
    plain: bool = True
    swapped: dict[str, Any] = field(default_factory=lambda: {"status": "committed", "snapshot": "7", "reason": ""})
    landed: int | None = None  # what the catalog finds of the commit
    asked: list[dict[str, Any]] = field(default_factory=list)  # requests for a delta
    calls: list[str] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)  # by method
    config: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(local=True, remote="", catalog="lake"))
    key_of_the_request: str | None = None  # None: the table's

    # --- as the driver

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        yield

    def call(self, subject: str, class_name: str, method: str, *arguments: Any) -> Any:
        self.calls.append(method)
        if method in self.fails:
            raise self.fails[method]
        if method == "plan":
            paths = self.snapshots[json.loads(arguments[0])["snapshot"]]
            files = [{"path": path, "rows": pq.read_metadata(path).num_rows, "deletes": False} for path in paths]
            return {"plain": self.plain, "plan": "p", "files": files}
        if method == "beforeRemovals":
            assert arguments[2] == LEFT
            return {"snapshots": self.before}
        if method in ("planDelta", "prepareAppend", "prepare"):
            self.asked.append(json.loads(arguments[0]))
        return {
            "planDelta": {"delta": "d", "files": [], "plain": True, "key_ids": [1]},
            "prepareDelta": {"prepared": "p"},
            "prepareAppend": {"prepared": "p"},
            "swap": self.swapped,
            "prepare": {
                "status": "committed",
                "base": None,
                "sets": [{"branch": "s0", "kind": "rows", "unavailable": []}],
                "columns": [column["name"] for column in self.fields],
            },
            "publish": self.swapped,
        }.get(method)

    def start_session(self) -> None:
        self.calls.append("start_session")

    def sql(self, statement: str, settings: Mapping[str, str], subject: str) -> None:
        self.call(subject, "", "sql")

    # --- as the catalog

    def load(self, name: str, key: str, ref: str) -> LoadedTable:
        view = TableView("u", [], True, frozenset(), None)
        return LoadedTable(self.description(), view, ref, None, False)

    def evolve(self, name: str, changes: Sequence[SchemaChange]) -> bool:
        for change in changes:
            self.fields = [*self.fields, {"id": 20, "name": change.path[0], "required": False, "type": "string"}]
        self.schema_id += 1
        return True

    def find_commit(self, name: str, ref: str, commit_id: str) -> int | None:
        return self.landed

    # --- for tests

    def description(self) -> TableDescription:
        schema = {"type": "struct", "schema-id": self.schema_id, "fields": self.fields}
        spec = {"spec-id": 0, "fields": []}
        return TableDescription(
            "db.t", "u", 2, str(self.folder), str(self.folder / "data"), self.schema_id, json.dumps(schema),
            json.dumps(spec), WriteMode.MERGE, (self.key,),
        )  # fmt: skip

    def file(self, rows: Rows) -> str:
        """A file of the table as it is now."""
        return self._write(pa.Table.from_pylist(list(rows), self._schema()))

    def staged(
        self, kind: StagedKind, rows: Rows, unavailable: Sequence[str] = (), moved: bool = False, ordered: bool = False
    ) -> StagedFile:
        """As a task stages rows; those that moved have their former key as `old`, ordered ones their place as `at`."""
        schema = pa.schema([f.with_nullable(True) for f in self._schema()] + [ORDER_FIELD] * ordered)
        old = OLD_KEY_COLUMN + self.key
        if moved:
            schema = schema.append(pa.field(old, pa.int64(), nullable=False))
        named = [{**row, old: row.get("old"), ORDER: row.get("at")} for row in rows]
        path = self._write(pa.Table.from_pylist(named, schema))
        size = Path(path).stat().st_size
        return StagedFile(
            kind, path, len(rows), size, self.schema_id, 0, unavailable=tuple(unavailable), moved=moved
        )  # fmt: skip

    @property
    def key(self) -> str:
        return str(self.fields[0]["name"])

    def rename_key(self, name: str) -> None:
        self.fields = [{**self.fields[0], "name": name}, *self.fields[1:]]
        self.schema_id += 1

    def patches(self, rows: Rows, unavailable: Sequence[str] = ("big",), **more: Any) -> StagedFile:
        return self.staged(StagedKind.PATCHES, rows, unavailable, **more)

    def commit(self, *files: StagedFile, ordered: bool = False, **more: Any) -> CommitOutcome:
        request = CommitRequest(
            "db.t", "c1", TableVersion("u", None, None), KEY, "{}", {KEY: "{}"}, files, WriteMode.MERGE,
            (self.key_of_the_request or self.key,), ordered,
        )  # fmt: skip
        return TableCommitter(self, self, **more).commit(request)  # type: ignore[arg-type]

    def rows(self) -> list[dict[str, Any]]:
        """The whole rows that the last delta was asked to add."""
        paths = [file["path"] for file in self.asked[-1]["files"] if file["kind"] == "rows"]
        schema = pa.schema([f.with_nullable(True) for f in self._schema()])
        found = [row for path in paths for row in project(pq.read_table(path), schema).to_pylist()]
        return sorted(({name: row[name] for name in row if name != ORDER} for row in found), key=lambda r: r[self.key])

    def made(self) -> list[Path]:
        """What the coordinator wrote, as long as it is there."""
        return sorted((self.folder / "data").glob("*-made-*"))

    def kinds(self) -> list[str]:
        """Of the files of the last delta."""
        return [file["kind"] for file in self.asked[-1]["files"]]

    def _schema(self) -> pa.Schema:
        return arrow_schema(writable_fields(self.fields))

    def _write(self, rows: pa.Table) -> str:
        folder = self.folder / "data"
        folder.mkdir(exist_ok=True)
        path = folder / f"f{len(list(folder.iterdir()))}.parquet"
        pq.write_table(rows, path)
        return str(path)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_rows_that_were_left_are_found_in_the_first_snapshot_too(table: Table) -> None:
    table.before = [(None, table.file([{"id": 1, "n": 1, "big": "x"}]))]
    outcome = table.commit(table.patches([{"id": 2, "n": 5, "old": 1}], moved=True))
    assert table.rows() == [{"id": 2, "n": 5, "big": "x"}]
    assert outcome.counts.unmatched_patches == 0


def test_files_of_a_commit_that_landed_stay_though_the_catalog_refused_it(table: Table) -> None:
    table.swapped = {"status": "conflict", "reason": "the ledger is snapshot 7"}
    table.landed = 7
    table.snapshots[None] = [table.file([{"id": 2, "n": 1, "big": "x"}])]
    files = table.patches([{"id": 2, "n": 5}]), table.staged(StagedKind.LEFT, [{"id": 3, "n": 5, "big": "y"}])
    outcome = table.commit(*files)
    assert outcome.status is CommitStatus.COMMITTED
    assert outcome.snapshot_id == 7
    assert len(table.made()) == 2


def test_files_of_a_commit_that_met_a_foreign_one_go(table: Table) -> None:
    table.swapped = {"status": "conflict", "reason": "the ledger is snapshot 7"}
    table.snapshots[None] = [table.file([{"id": 2, "n": 1, "big": "x"}])]
    assert table.commit(table.patches([{"id": 2, "n": 5}])).status is CommitStatus.CONFLICT
    assert table.made() == []


def test_spark_gets_no_patch_whose_key_was_changed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = table.patches([{"id": 2, "n": 5, "old": 1}], moved=True)
    monkeypatch.setattr(patch_completion, "LARGEST_BYTES", moved.size)
    table.snapshots[None] = [table.file([{"id": 1, "n": 1, "big": "x"}])]
    table.commit(moved, table.patches([{"id": 3, "n": 6}]))
    assert table.rows() == [{"id": 2, "n": 5, "big": "x"}]
    assert table.kinds() == ["patches", "rows"], "the other one is work for Spark"
    assert "join" in table.calls


def test_a_changed_key_that_cannot_be_looked_up_is_an_error_and_not_a_null(table: Table) -> None:
    table.plain = False
    with pytest.raises(TableUnsuitableError, match=r"keys that were changed.*equality deletes"):
        table.commit(table.patches([{"id": 2, "n": 5, "old": 1}], moved=True), table.patches([{"id": 3, "n": 6}]))
    left = table.staged(StagedKind.LEFT, [{"id": 2, "n": 5, "old": 1}], ["big"], moved=True)
    with pytest.raises(TableUnsuitableError, match="equality deletes"):
        table.commit(left)
    assert table.made() == []
    table.commit(table.patches([{"id": 3, "n": 6}]))
    assert table.kinds() == ["patches"]


def test_a_file_of_left_rows_that_somebody_removed_costs_its_values_only(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    table.snapshots["3"] = [table.file([{"id": 9, "n": 1, "big": "y"}])]
    table.before = [(None, str(table.folder / "gone.parquet")), ("3", None)]
    rows = [{"id": 2, "n": 5, "old": 1}, {"id": 8, "n": 6, "old": 9}]
    outcome = table.commit(table.patches(rows, moved=True))
    assert table.rows() == [{"id": 2, "n": 5, "big": None}, {"id": 8, "n": 6, "big": "y"}]
    assert outcome.counts.unmatched_patches == 1
    assert "gone.parquet is gone" in caplog.text


def test_files_that_snapshots_share_are_searched_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []
    rows_of = KeyJoin.rows

    def rows(join: KeyJoin, path: str, count: int) -> bytes:
        searched.append(path)
        return rows_of(join, path, count)

    monkeypatch.setattr(KeyJoin, "rows", rows)
    other, one, two = (table.file([{"id": id_, "n": 1, "big": f"b{id_}"}]) for id_ in (9, 1, 2))
    table.snapshots |= {"3": [other], "2": [other, one], "1": [other, one, two]}
    table.before = [("3", None), ("2", None), ("1", None)]
    outcome = table.commit(table.patches([{"id": 5, "n": 5, "old": 1}, {"id": 6, "n": 6, "old": 2}], moved=True))
    assert table.rows() == [{"id": 5, "n": 5, "big": "b1"}, {"id": 6, "n": 6, "big": "b2"}]
    assert outcome.counts.unmatched_patches == 0
    assert searched.count(other) == 1


def test_a_later_change_in_another_partition_keeps_the_key_that_a_row_had(table: Table) -> None:
    table.snapshots[None] = [table.file([{"id": 1, "n": 1, "big": "x"}])]
    inserted = table.patches([{"id": 2, "n": 5, "old": 1, "at": "10"}], moved=True, ordered=True)
    updated = table.patches([{"id": 2, "n": 6, "at": "20"}, {"id": 3, "n": 7, "at": "30"}], ordered=True)
    outcome = table.commit(inserted, updated, ordered=True)
    assert table.rows() == [{"id": 2, "n": 6, "big": "x"}, {"id": 3, "n": 7, "big": None}]
    assert outcome.counts.unmatched_patches == 1


def test_a_key_that_was_changed_stays_known_where_only_some_values_are_found(table: Table) -> None:
    table.fields.append({"id": 4, "name": "large", "required": False, "type": "string"})
    table.snapshots[None] = [table.file([{"id": 1, "n": 1, "big": "x", "large": "y"}])]
    inserted = table.patches([{"id": 2, "n": 5, "large": "z", "old": 1, "at": "10"}], moved=True, ordered=True)
    updated = table.patches([{"id": 2, "n": 6, "at": "20"}], ["big", "large"], ordered=True)
    table.commit(inserted, updated, ordered=True)
    assert table.rows() == [{"id": 2, "n": 6, "big": "x", "large": "z"}]


def test_a_column_that_was_renamed_or_dropped_is_looked_up_as_it_is_called_now(table: Table) -> None:
    table.fields.append({"id": 4, "name": "large", "required": False, "type": "string"})
    table.snapshots[None] = [table.file([{"id": id_, "n": 1, "big": f"b{id_}", "large": "y"} for id_ in (1, 2)])]
    staged = [
        table.patches([{"id": 1, "n": 5}], ["big", "large"]),
        table.patches([{"id": 3, "n": 6, "old": 2}], ["large", "big"], moved=True),
        table.patches([{"id": 4, "n": 7}], ["large"]),
    ]
    table.fields = [*FIELDS[:2], {**FIELDS[2], "name": "grown"}]
    table.schema_id = 1
    outcome = table.commit(*staged)
    assert table.rows() == [
        {"id": 1, "n": 5, "grown": "b1"}, {"id": 3, "n": 6, "grown": "b2"}, {"id": 4, "n": 7, "grown": None}
    ]  # fmt: skip
    assert outcome.counts.unmatched_patches == 0


def test_changes_staged_before_a_column_was_widened_or_renamed_meet_later_ones(table: Table) -> None:
    early = table.patches([{"id": 1, "n": 5, "big": "early", "at": "10"}], ["n"], ordered=True)
    value = table.staged(StagedKind.ROWS, [{"id": 2, "n": 6, "big": "b", "at": "10"}], ordered=True)
    waiting = table.patches([{"id": 2, "n": 7, "at": "20"}], ordered=True)
    table.fields = [FIELDS[0], {**FIELDS[1], "type": "long"}, {**FIELDS[2], "name": "grown"}]
    table.schema_id = 1
    late = table.patches([{"id": 1, "n": 1 << 40, "at": "20"}], ["grown"], ordered=True)
    table.commit(early, value, waiting, late, ordered=True)
    assert table.rows() == [{"id": 1, "n": 1 << 40, "grown": "early"}, {"id": 2, "n": 7, "grown": "b"}]


def orders(table: Table) -> dict[int, str | None]:
    """By key, what SQL would read as the order of the rows in the files of the last request."""
    column = pa.schema([order_field(table.fields)])
    found: dict[int, str | None] = {}
    for file in table.asked[-1]["files"]:
        rows = pq.read_table(file["path"])
        found |= zip(rows.column("id").to_pylist(), project(rows, column).column(ORDER).to_pylist(), strict=True)
    return found


def test_sql_that_an_owner_turns_to_gets_a_column_for_the_order_and_rows_that_fill_it(table: Table) -> None:
    staged = [
        table.staged(StagedKind.ROWS, [{"id": 1, "n": 5, "big": "x", "at": "10"}], ordered=True),
        table.staged(StagedKind.DELETES, [{"id": 2, "at": "20"}], ordered=True),
    ]
    outcome = table.commit(*staged, ordered=True, engine=EngineName.MERGE)
    assert outcome.status is CommitStatus.COMMITTED
    assert [column["name"] for column in table.fields] == ["id", "n", "big", ORDER]
    assert orders(table)[1] == "10"
    assert len(table.made()) == 1


def test_rows_staged_before_the_table_got_a_column_for_their_order_keep_it(table: Table) -> None:
    table.snapshots[None] = [table.file([{"id": id_, "n": 1, "big": f"b{id_}"} for id_ in (1, 2)])]
    staged = [
        table.patches([{"id": 1, "n": 5, "at": "10"}, {"id": 2, "n": 5, "at": "11"}], ordered=True),
        table.staged(StagedKind.ROWS, [{"id": 3, "n": 5, "big": "c", "at": "12"}], ordered=True),
        table.staged(StagedKind.ROWS, [{"id": 4, "n": 5, "big": "d", "at": "13"}], ordered=True),
        table.patches([{"id": 4, "n": 6, "at": "14"}], ordered=True),  # takes the value of the change before
    ]
    table.evolve("db.t", [SchemaChange(ChangeKind.ADD, (ORDER,), '"string"')])
    table.commit(*staged, ordered=True)
    assert orders(table) == {1: "10", 2: "11", 3: "12", 4: "14"}


@pytest.mark.parametrize("method", ["prepare", "sql"])
@pytest.mark.parametrize("error", [CatalogUnavailableError, SparkDiedError, CommitStateUnknownError])
def test_what_fails_before_a_merge_is_published_surely_did_not_land(
    table: Table, method: str, error: type[Exception]
) -> None:
    table.fails[method] = error("no executors")
    table.snapshots[None] = [table.file([{"id": 1, "n": 1, "big": "x"}])]
    with pytest.raises(CatalogUnavailableError, match="no executors"):
        table.commit(table.patches([{"id": 2, "n": 5, "old": 1}], moved=True), engine=EngineName.MERGE)
    assert table.calls[-1] == "discard", "the branches of the attempt"
    assert table.made() == []


@pytest.mark.parametrize("engine", [EngineName.MERGE, EngineName.DELTA])
def test_what_fails_while_a_commit_is_made_visible_may_have_landed(table: Table, engine: EngineName) -> None:
    table.fails = dict.fromkeys(("publish", "swap"), CatalogUnavailableError("no answer"))
    row = table.staged(StagedKind.ROWS, [{"id": 1, "n": 5, "big": "x"}])
    assert table.commit(row, engine=engine).status is CommitStatus.UNKNOWN
    assert "discard" not in table.calls


def test_files_of_the_coordinator_are_written_as_the_configuration_says(table: Table) -> None:
    table.snapshots[None] = [table.file([{"id": 1, "n": 1, "big": "x"}])]
    table.commit(table.patches([{"id": 1, "n": 5}]), write_props={"write.parquet.compression-codec": "gzip"})
    (made,) = table.made()
    assert pq.read_metadata(made).row_group(0).column(0).compression == "GZIP"


def test_rows_staged_before_a_key_column_was_renamed_are_found_by_their_field_id(table: Table) -> None:
    table.snapshots[None] = [table.file([{"id": id_, "n": 1, "big": f"b{id_}"} for id_ in (1, 2)])]
    staged = [
        table.patches([{"id": 1, "n": 5}]),
        table.patches([{"id": 3, "n": 6, "old": 2}], moved=True),
        table.staged(StagedKind.ROWS, [{"id": 4, "n": 7, "big": "b4"}]),
    ]
    table.rename_key("number")
    table.commit(*staged)
    assert table.rows() == [
        {"number": 1, "n": 5, "big": "b1"}, {"number": 3, "n": 6, "big": "b2"}, {"number": 4, "n": 7, "big": "b4"}
    ]  # fmt: skip
    twice = table.staged(StagedKind.ROWS, [{"number": 4, "n": 8, "big": "b4"}])
    with pytest.raises(DuplicateKeyError, match=r"\(4,\)"):
        table.commit(*staged, twice)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_key_column_that_is_gone_is_this_tables_trouble_and_no_broken_coordinator(
    table: Table, ordered: bool
) -> None:
    staged = [table.staged(StagedKind.ROWS, [{"id": n, "n": 1, "big": "x"}], ordered=ordered) for n in (1, 2)]
    table.key_of_the_request = "id"
    table.rename_key("number")
    with pytest.raises(TableUnsuitableError, match="has no key column id"):
        table.commit(*staged, ordered=ordered)
    assert table.made() == []


def test_ordered_changes_staged_before_a_key_column_was_renamed_meet_later_ones(table: Table) -> None:
    table.snapshots[None] = [table.file([{"id": 2, "n": 1, "big": "b2"}])]
    moved = table.patches([{"id": 3, "n": 6, "old": 2, "at": "10"}], moved=True, ordered=True)
    value = table.staged(StagedKind.ROWS, [{"id": 1, "n": 5, "big": "b1", "at": "10"}], ordered=True)
    table.rename_key("number")
    later = table.patches([{"number": 1, "n": 7, "at": "20"}, {"number": 3, "n": 8, "at": "20"}], ordered=True)
    table.commit(moved, value, later, ordered=True)
    assert table.rows() == [{"number": 1, "n": 7, "big": "b1"}, {"number": 3, "n": 8, "big": "b2"}]

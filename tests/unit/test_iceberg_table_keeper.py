"""A driver that dies is replaced, but not for ever; what a table needs is made, also at a second attempt."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from iceberg_staging_rows import config, table

from connect_py.api.errors import ConnectError
from connect_py.testing import FakePluginMetrics
from connectors.iceberg import table_keeper
from connectors.iceberg.coordinator import _outcome_of
from connectors.iceberg.evolution.column_history import HISTORY
from connectors.iceberg.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.coordinator_state import Outcome
from connectors.iceberg.protocol.ledger import TableView
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.schema_change import ChangeKind, SchemaChange
from connectors.iceberg.spark.catalog import LoadedTable
from connectors.iceberg.spark.commit_request import CommitCounts, CommitOutcome, CommitStatus, EngineName
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    SparkDiedError,
    SparkLostError,
    TableMissingError,
    TableUnsuitableError,
)
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.staging.wish import Wish
from connectors.iceberg.table import TableDescription, WriteMode
from connectors.iceberg.table_keeper import REPLACEMENTS, TableKeeper


class MortalDriver:
    """Counts its lives."""

    def __init__(self) -> None:
        self.lives = 0
        self.living = False
        self.sessions = 0

    def alive(self) -> bool:
        return self.living

    def restart(self) -> None:
        self.lives += 1
        self.living = True

    def start_session(self) -> None:
        self.sessions += 1

    def stop(self) -> None:
        self.living = False


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> TableKeeper:
    monkeypatch.setattr(table_keeper, "BACKOFF_SECONDS", (0.0,) * REPLACEMENTS)
    listener: Any = None
    made = TableKeeper(config(), listener, IcebergMetrics(FakePluginMetrics()))
    made._driver = MortalDriver()  # type: ignore[assignment]
    return made


def test_a_driver_that_lives_is_left_alone(keeper: TableKeeper) -> None:
    keeper.start()
    keeper.start()
    assert keeper._driver.lives == 1  # type: ignore[attr-defined]


def test_a_driver_is_replaced_three_times_without_a_commit_and_no_more(keeper: TableKeeper) -> None:
    keeper.start()
    for _ in range(REPLACEMENTS):
        keeper._driver.stop()
        keeper.start()
    keeper._driver.stop()
    with pytest.raises(SparkLostError, match="died 4 times"):
        keeper.start()
    assert keeper._driver.lives == 1 + REPLACEMENTS  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("props", "early"),
    [
        ({}, False),
        ({"tables__upsert_mode_enabled": "true"}, False),
        ({"tables__upsert_mode_enabled": "true", "ext__commit_engine": "merge"}, True),
        ({"tables__upsert_mode_enabled": "true", "spark__master": "spark://far:7077"}, True),
        ({"tables__upsert_mode_enabled": "true", "spark__master": "local[1]"}, False),
        ({"tables__upsert_mode_enabled": "true", "spark__remote": "sc://far"}, True),
    ],
)
def test_a_spark_session_is_made_early_only_where_every_cycle_needs_it(props: dict[str, str], early: bool) -> None:
    listener: Any = None
    keeper = TableKeeper(config(**props), listener, IcebergMetrics(FakePluginMetrics()))
    keeper._driver = driver = MortalDriver()  # type: ignore[assignment]
    keeper.start()
    assert driver.sessions == early


def test_commits_are_measured_by_table_engine_and_outcome() -> None:
    made = FakePluginMetrics()
    metrics = IcebergMetrics(made)
    metrics.staged(2)
    counts = CommitCounts(added_files=2, added_rows=50, replaced_rows=7, milliseconds=500)
    landed = CommitOutcome(CommitStatus.COMMITTED, EngineName.DELTA, 9, "", counts, "rows may replace others")
    metrics.committed("db.t", landed, 1_700_000_000_000)
    metrics.committed("db.t", CommitOutcome(CommitStatus.CONFLICT, EngineName.DELTA, None, "moved", counts), None)
    table = {"table": "db.t"}
    found = {(name, *labels): measurement.value for (name, labels), measurement in made.made.items()}
    engine = (("engine", "delta"), *table.items())
    assert found == {
        ("iceberg_staged_cycles",): 2,
        ("iceberg_commits_total", engine[0], ("outcome", "committed"), engine[1]): 1,
        ("iceberg_commits_total", engine[0], ("outcome", "conflict"), engine[1]): 1,
        ("iceberg_commit_seconds_total", *engine): 1.0,
        ("iceberg_added_rows_total", *table.items()): 50,
        ("iceberg_replaced_rows_total", *table.items()): 7,
        ("iceberg_added_files_total", *table.items()): 2,
        ("iceberg_unknown_values_total", *table.items()): 0,
        ("iceberg_older_changes_total", *table.items()): 0,
        ("iceberg_engine_choices_total", engine[0], ("reason", "rows may replace others"), engine[1]): 1,
        ("iceberg_valid_through_seconds", *table.items()): 1_700_000_000,
    }


class EvolvedCatalog:
    """A table that gets a version of a column at the first asking; the first making of its view fails."""

    def __init__(self, before: TableDescription, after: TableDescription) -> None:
        self._now, self._after = before, after
        self._view = TableView(before.uuid, [], True, frozenset(), None)
        self.failures = [CatalogUnavailableError("not now")]
        self.views: list[str] = []

    def load(self, *_: object) -> LoadedTable:
        return LoadedTable(self._now, self._view, "main", None, True)

    def evolve(self, _name: str, _changes: object) -> bool:
        changed = self._now is not self._after
        self._now = self._after
        return changed

    def replace_view(self, name: str, _schema: str, _sql: str) -> bool:
        if self.failures:
            raise self.failures.pop()
        self.views.append(name)
        return True


def test_a_view_that_an_unavailable_catalog_refused_is_made_when_the_task_asks_again() -> None:
    listener: Any = None
    settings = {"ext__evolution__add_column": "apply", "ext__evolution__view": "{table}_all"}
    keeper = TableKeeper(config(**settings), listener, IcebergMetrics(FakePluginMetrics()))
    catalog: Any = EvolvedCatalog(
        table([("id", "int")]),
        table([("id", "int"), ("id_v2", "string")], schema_id=1, properties={HISTORY: '{"versions":{"1":[2]}}'}),
    )
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    wish = Wish(None, "", (SchemaChange(ChangeKind.ADD, ("id_v2",), '"string"'),), 0).to_text()
    with pytest.raises(CatalogUnavailableError):
        keeper.prepare("db.orders", Need.EVOLVE, wish)
    keeper.prepare("db.orders", Need.EVOLVE, wish)
    assert catalog.views == ["db.orders_all"]
    now = Wish(None, "", (SchemaChange(ChangeKind.ADD, ("id_v2",), '"string"'),), 1).to_text()
    keeper.prepare("db.orders", Need.EVOLVE, now)
    assert catalog.views == ["db.orders_all"], "nothing has changed since"


@pytest.mark.parametrize(
    ("props", "properties", "added"),
    [
        ({"spark__remote": "sc://far"}, {}, True),
        ({"ext__commit_engine": "merge"}, {}, True),
        ({}, {"write.merge.mode": "copy-on-write"}, True),
        ({"ext__commit_engine": "delta"}, {"write.merge.mode": "copy-on-write"}, False),
        ({}, {}, False),
    ],
)
def test_order_of_rows_is_a_column_where_sql_may_write_them_anew(
    props: dict[str, str], properties: dict[str, str], added: bool
) -> None:
    listener: Any = None
    settings = {"tables__upsert_mode_enabled": "true", "ext__ordering_columns": "at", **props}
    keeper = TableKeeper(config(**settings), listener, IcebergMetrics(FakePluginMetrics()))
    merged = {"mode": WriteMode.MERGE, "key_columns": ("id",), "properties": properties}
    before = dataclasses.replace(table([("id", "int")]), **merged)
    after = dataclasses.replace(table([("id", "int"), (ORDER, "string")], schema_id=1), **merged)
    catalog: Any = EvolvedCatalog(before, after)
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    for _ in range(2):  # the second time it is there
        _, described = keeper.prepare("db.orders", Need.CREATE, Wish(None, "", (), 0).to_text())
        assert (ORDER in described) is added


def test_a_table_whose_key_column_is_gone_is_refused_by_the_name_of_the_column() -> None:
    listener: Any = None
    keeper = TableKeeper(config(tables__upsert_mode_enabled="true"), listener, IcebergMetrics(FakePluginMetrics()))
    described = dataclasses.replace(table([("number", "int")]), mode=WriteMode.MERGE, key_columns=("id",))
    catalog: Any = EvolvedCatalog(described, described)
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    with pytest.raises(TableUnsuitableError, match="has no key column id"):
        keeper.prepare("db.orders", Need.CREATE, Wish(None, "").to_text())


@pytest.mark.parametrize(
    "words", ["catalog__", "spark__sql__catalog__iceberg__", "spark__spark__sql__catalog__iceberg__"]
)
def test_keys_of_the_configuration_do_not_leave_it_in_whatever_words_they_are_given(words: str) -> None:
    listener: Any = None
    own = {f"{words}s3__access_key_id": "us", f"{words}s3__secret_access_key": "in the configuration"}
    keeper = TableKeeper(config(**own), listener, IcebergMetrics(FakePluginMetrics()))
    storage = {"s3.access-key-id": "us", "s3.secret-access-key": "in the configuration", "s3.session-token": "lent"}
    described = dataclasses.replace(table([("id", "int")]), io_properties=storage)
    catalog: Any = EvolvedCatalog(described, described)
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    _, told = keeper.prepare("db.orders", Need.CREATE, Wish(None, "").to_text())
    assert TableDescription.from_json(json.loads(told)).io_properties == {"s3.session-token": "lent"}


def test_table_with_rows_of_ours_that_becomes_copy_on_write_gets_no_column_that_they_lack(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their order is where only deltas leave it alone."""
    listener: Any = None
    settings = {"tables__upsert_mode_enabled": "true", "ext__ordering_columns": "at"}
    keeper = TableKeeper(config(**settings), listener, IcebergMetrics(FakePluginMetrics()))
    merged = {"mode": WriteMode.MERGE, "key_columns": ("id",), "properties": {"write.merge.mode": "copy-on-write"}}
    before = dataclasses.replace(table([("id", "int")]), **merged)
    after = dataclasses.replace(table([("id", "int"), (ORDER, "string")], schema_id=1), **merged)
    catalog: Any = EvolvedCatalog(before, after)
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    monkeypatch.setattr(keeper, "has_ledger", lambda _view: True)
    _, described = keeper.prepare("db.orders", Need.CREATE, Wish(None, "", (), 0).to_text())
    assert ORDER not in described


class EmptyCatalog:
    """Has no table, and keeps count of those that it is asked to make."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def load(self, name: str, *_: object) -> LoadedTable:
        raise TableMissingError(name, "does not exist")

    def create(self, name: str, *_: object) -> bool:
        self.made.append(name)
        return True


@pytest.mark.parametrize("partition_by", ["days(id)", "nope", "bucket(id, 4), hour(id)"])
def test_a_partition_by_that_does_not_fit_makes_no_table(partition_by: str) -> None:
    listener: Any = None
    settings = {"tables__auto_create_enabled": "true", "tables__default_partition_by": partition_by}
    keeper = TableKeeper(config(**settings), listener, IcebergMetrics(FakePluginMetrics()))
    catalog: Any = EmptyCatalog()
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    wish = Wish(json.loads(table([("id", "long")]).schema), "").to_text()
    with pytest.raises(TableUnsuitableError):
        keeper.prepare("db.orders", Need.CREATE, wish)
    assert catalog.made == []


@pytest.mark.parametrize(
    ("settings", "keys", "column", "why"),
    [
        ({}, (), ("id", "long"), "MERGE needs to know the key"),
        ({"tables__default_id_columns": "no"}, (), ("id", "long"), "has no key column no"),
        ({}, ("id",), ("id", "time"), "column id is of type time"),
        ({}, ("id",), ("id", "long"), None),
        ({"table__db__orders__id_columns": "id"}, (), ("id", "long"), None),
    ],
)
def test_a_table_that_could_not_be_merged_is_not_made(
    settings: dict[str, str], keys: tuple[str, ...], column: tuple[str, str], why: str | None
) -> None:
    listener: Any = None
    settings = {"tables__auto_create_enabled": "true", "tables__upsert_mode_enabled": "true", **settings}
    keeper = TableKeeper(config(**settings), listener, IcebergMetrics(FakePluginMetrics()))
    catalog: Any = EmptyCatalog()
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    wish = Wish(json.loads(table([column]).schema), keys=keys).to_text()
    with pytest.raises(TableUnsuitableError if why else TableMissingError, match=why):  # this catalog keeps nothing
        keeper.prepare("db.orders", Need.CREATE, wish)
    assert catalog.made == ([] if why else ["db.orders"])


def test_a_table_is_made_again_with_the_key_that_another_task_saw_in_its_records() -> None:
    listener: Any = None
    settings = {"tables__auto_create_enabled": "true", "tables__upsert_mode_enabled": "true"}
    keeper = TableKeeper(config(**settings), listener, IcebergMetrics(FakePluginMetrics()))
    catalog: Any = EmptyCatalog()
    keeper._catalog, keeper._driver = catalog, MortalDriver()  # type: ignore[assignment]
    schema = json.loads(table([("id", "long")]).schema)
    for keys in (("id",), ()):  # the second task saw none of them
        with pytest.raises(TableMissingError):  # this catalog keeps nothing
            keeper.prepare("db.orders", Need.CREATE, Wish(schema, keys=keys).to_text())
    assert catalog.made == ["db.orders", "db.orders"]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (SparkDiedError("gone"), Outcome.FAILED),  # before the commit was made visible, else it is no error
        (CatalogUnavailableError("away"), Outcome.FAILED),
        (TableMissingError("db.t", "gone"), Outcome.MISSING),
    ],
)
def test_errors_of_a_commit_are_tries_that_count(error: ConnectError, outcome: Outcome) -> None:
    assert _outcome_of(error) is outcome

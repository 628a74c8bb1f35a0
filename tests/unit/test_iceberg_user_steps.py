"""Steps and aggregates of users: settling, waiting, and hints about endless queries."""

from __future__ import annotations

import dataclasses

import pytest
from iceberg_staging_rows import table
from iceberg_table_managers import table_manager

from connect_py.testing import FakePluginMetrics
from connectors.iceberg.catalog.java_errors import JavaError
from connectors.iceberg.config.cycle_step import CycleStep
from connectors.iceberg.coordinator.table_manager import DEATHS
from connectors.iceberg.driver.driver_program import _last_note
from connectors.iceberg.driver.lake_session import LoadedTable
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    SchemaChangesPendingError,
    SparkDiedError,
    SparkLostError,
)
from connectors.iceberg.protocol.commit_request import (
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.protocol.ledger import TableVersion, TableView
from connectors.iceberg.table.schema_change import ChangeKind, SchemaChange

REQUEST = CommitRequest(
    "db.orders", "commit-1", TableVersion("u", None, None), "ledger", "{}", {"ledger": "{}"}
)


class Lake:
    """Client that records its calls. Commits raise the errors in `errors`."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.errors: list[Exception] = []

    def alive(self) -> bool:
        return True

    def start(self) -> None:
        self.asked.append("start")

    def settle(self, name: str, _key: str) -> None:
        self.asked.append(f"settle {name}")
        if self.errors:
            raise self.errors.pop()

    def load(self, name: str, *_: object) -> LoadedTable:
        self.asked.append(f"load {name}")
        return LoadedTable(table([("id", "long")]), TableView("u", [], True, frozenset(), None))

    def commit(self, _request: object) -> CommitOutcome:
        if self.errors:
            raise self.errors.pop()
        return CommitOutcome(CommitStatus.COMMITTED, EngineName.APPEND, 9)


def test_followed_table_is_loaded_once_its_aggregate_is_settled() -> None:
    lake = Lake()
    prefix = "ext__cycle_aggregate__db__regions"
    sql = "SELECT id, count(*) AS n FROM staged GROUP BY id"
    tables = table_manager(
        lake,
        tables="db.orders,db.lines",
        **{prefix: sql, f"{prefix}__keys": "id", f"{prefix}__from": "db.orders"},
    )
    tables.view("db.lines")
    tables.view("db.orders")
    assert lake.asked == ["load db.lines", "settle db.orders", "load db.orders"]
    lake.errors = [CatalogUnavailableError("db.orders: its aggregate db.regions waits: no answer")]
    with pytest.raises(CatalogUnavailableError, match=r"its aggregate db\.regions waits"):
        tables.view("db.orders")
    assert lake.asked[-1] == "settle db.orders"


def test_columns_of_a_step_wait_until_a_person_adds_them() -> None:
    lake, made = Lake(), FakePluginMetrics()
    tables = table_manager(lake, made)
    lake.errors = [
        SchemaChangesPendingError("db.orders", [SchemaChange(ChangeKind.ADD, ("price",), '"int"')])
    ]

    def pending() -> list[float]:
        return [
            each.value
            for (name, *_), each in made.measurements.items()
            if name == "iceberg_held_changes"
        ]

    with pytest.raises(
        SchemaChangesPendingError, match="rows wait for approval to add column price of type int"
    ):
        tables._commit(REQUEST)
    assert sum(pending()) == 1
    tables._commit(REQUEST)
    assert sum(pending()) == 0


def test_step_that_ends_the_driver_each_time_is_named() -> None:
    lake = Lake()
    lake.errors = [SparkDiedError("lost") for _ in range(DEATHS)]
    tables, request = (
        table_manager(lake),
        dataclasses.replace(REQUEST, step=CycleStep(function="shop.steps:endless")),
    )
    for _ in range(DEATHS - 1):
        with pytest.raises(SparkDiedError):
            tables._commit(request)
    with pytest.raises(
        SparkLostError,
        match=r"iceberg\.ext\.cycle-transform must finish within iceberg\.ext\.commit-att",
    ):
        tables._commit(request)


def test_interrupted_statement_says_what_was_under_way() -> None:
    def statement() -> None:
        try:
            try:
                raise ValueError("the job was cancelled")
            except ValueError as error:
                error.add_note("while iceberg.ext.cycle-sql ran")
                raise
        except ValueError:
            raise CatalogUnavailableError("Spark does not answer") from JavaError(
                "the job was cancelled"
            )

    with pytest.raises(CatalogUnavailableError) as raised:
        statement()
    assert _last_note(raised.value) == " while iceberg.ext.cycle-sql ran"
    assert _last_note(ValueError("another one")) == ""

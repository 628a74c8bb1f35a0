"""A driver that dies is replaced, except after a commit that kills it repeatedly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest
from iceberg_staging_rows import config, table
from iceberg_table_managers import table_manager

from connect_py.api.errors import ConnectError
from connect_py.api.service import ServiceAddress
from connect_py.testing import FakePluginMetrics, FakeSharedServices, FakeSinkTaskContext
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.coordinator.health_monitor import HealthMonitor
from connectors.iceberg.coordinator.maintenance_schedule import MaintenanceKind, MaintenanceTask
from connectors.iceberg.coordinator.start import SPARK, lake_sessions
from connectors.iceberg.coordinator.table_manager import DEATHS, TableManager, status_of
from connectors.iceberg.driver.lake_session import LoadedTable
from connectors.iceberg.errors import (
    CatalogUnavailableError,
    PairUnreadError,
    SparkDiedError,
    SparkLostError,
    TableMissingError,
    TableUnsuitableError,
)
from connectors.iceberg.maintenance.compaction import (
    CompactionOutcome,
    CompactionStatus,
    TableHealth,
)
from connectors.iceberg.maintenance.expiration import ExpirationOutcome
from connectors.iceberg.protocol.commit_request import (
    CommitCounts,
    CommitOutcome,
    CommitRequest,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.protocol.iceberg_metrics import IcebergMetrics
from connectors.iceberg.protocol.ledger import TableVersion, TableView
from connectors.iceberg.protocol.messages import Need
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.ordering import ORDER
from connectors.iceberg.table.table import TableDescription, TableRequest, WriteMode


class MortalLake:
    """Client that counts its starts. Commits raise the errors in `errors`."""

    def __init__(self) -> None:
        self.lives = 0
        self.living = False
        self.errors: list[Exception] = []
        self.refusals: list[Exception] = []  # of starts

    @property
    def generation(self) -> int:
        return self.lives

    def alive(self) -> bool:
        return self.living

    def start(self) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.lives += 1
        self.living = True

    def stop(self) -> None:
        self.living = False

    hang_up = stop

    def commit(self, _request: object) -> CommitOutcome:
        if self.errors:
            self.living = False
            raise self.errors.pop()
        return CommitOutcome(CommitStatus.COMMITTED, EngineName.APPEND, 9)


def commit_of(number: int, table: str = "db.t") -> CommitRequest:
    version = TableVersion("u", None, None)
    return CommitRequest(table, f"commit-{number}", version, "ledger", "{}", {"ledger": "{}"})


def test_a_session_that_lives_is_left_alone() -> None:
    lake = MortalLake()
    keeper = table_manager(lake)
    keeper.start()
    keeper.start()
    assert lake.lives == 1


def test_a_driver_that_died_is_replaced_unless_the_task_stops() -> None:
    lake = MortalLake()
    keeper = table_manager(lake)
    for _ in range(5):
        keeper.start()
        lake.stop()
    assert lake.lives == 5
    keeper.stop()
    with pytest.raises(CatalogUnavailableError, match="the task is stopping"):
        keeper.start()
    assert lake.lives == 5


def test_table_whose_commits_repeatedly_kill_the_driver_fails_its_task() -> None:
    lake = MortalLake()
    keeper = table_manager(lake)
    lake.errors = [SparkDiedError("gone")] * (2 * DEATHS - 1)
    for name in ("db.t", "db.u"):  # each has its own count
        for number in range(DEATHS - 1):  # a repeated commit may have another ID
            with pytest.raises(SparkDiedError):
                keeper._commit(commit_of(number, name))
    message = f"the Spark driver exited in {DEATHS} consecutive commits to db.t"
    with pytest.raises(SparkLostError, match=message):
        keeper._commit(commit_of(DEATHS))
    assert keeper._commit(commit_of(DEATHS + 1)).status is CommitStatus.COMMITTED


def test_commit_that_lands_resets_the_count_of_driver_deaths() -> None:
    lake = MortalLake()
    keeper = table_manager(lake)
    for number in range(2 * DEATHS):
        lake.errors = [SparkDiedError("gone")]
        with pytest.raises(SparkDiedError):
            keeper._commit(commit_of(2 * number))
        assert keeper._commit(commit_of(2 * number + 1)).status is CommitStatus.COMMITTED


def test_driver_is_requested_before_the_first_commit_needs_it() -> None:
    address = ServiceAddress("/no/socket", "", 1)
    services = FakeSharedServices({"spark-driver": address})
    context = FakeSinkTaskContext(services=services)
    metrics = IcebergMetrics(FakePluginMetrics())
    lake_sessions(config(), SparkConfig(), context, metrics).request()
    assert [service.name for service in services.requested] == ["spark-driver"]
    assert context.waiting_for == {SPARK: "Spark is starting"}


def test_status_names_spark_until_a_session_is_open() -> None:
    lake = MortalLake()
    context = FakeSinkTaskContext()
    tables = table_manager(lake, context=context)
    lake.refusals = [CatalogUnavailableError("service spark-driver was not ready after 120 s")]
    with pytest.raises(CatalogUnavailableError):
        tables.start()
    assert context.waiting_for == {
        SPARK: "Spark has not started: service spark-driver was not ready after 120 s"
    }
    tables.start()
    assert context.waiting_for == {}


def test_commits_are_measured_by_table_engine_and_outcome() -> None:
    made = FakePluginMetrics()
    metrics = IcebergMetrics(made, lambda: 1_700_000_000.0)
    metrics.staged(2)
    counts = CommitCounts(added_files=2, added_rows=50, replaced_rows=7, milliseconds=500)
    landed = CommitOutcome(
        CommitStatus.COMMITTED, EngineName.MERGE, 9, "", counts, "rows may replace others"
    )
    metrics.committed("db.t", landed)
    metrics.committed(
        "db.t", CommitOutcome(CommitStatus.CONFLICT, EngineName.MERGE, None, "moved", counts)
    )
    table = {"table": "db.t"}
    found = {
        (name, *labels): measurement.value
        for (name, labels), measurement in made.measurements.items()
    }
    engine = (("engine", "merge"), *table.items())
    assert found == {
        ("iceberg_staged_cycles",): 2,
        ("iceberg_commits_total", engine[0], ("outcome", "committed"), engine[1]): 1,
        ("iceberg_commits_total", engine[0], ("outcome", "conflict"), engine[1]): 1,
        ("iceberg_commit_seconds_total", *engine): 1.0,
        ("iceberg_last_commit_seconds", *table.items()): 1_700_000_000.0,
        ("iceberg_added_rows_total", *table.items()): 50,
        ("iceberg_replaced_rows_total", *table.items()): 7,
        ("iceberg_added_files_total", *table.items()): 2,
        ("iceberg_unknown_values_total", *table.items()): 0,
        ("iceberg_older_changes_total", *table.items()): 0,
        (
            "iceberg_engine_choices_total",
            engine[0],
            ("reason", "rows may replace others"),
            engine[1],
        ): 1,
    }


class EvolvedCatalog:
    """A table that changes at the first asking."""

    def __init__(self, before: TableDescription, after: TableDescription) -> None:
        self._now, self._after = before, after
        self._view = TableView(before.uuid, [], True, frozenset(), None)

    def alive(self) -> bool:
        return True

    def set_properties(self, _name: str, properties: Mapping[str, str]) -> None:
        was = self._now
        self._now = dataclasses.replace(was, properties={**was.properties, **properties})
        self._after = self._now if self._after is was else self._after

    def load(self, *_: object) -> LoadedTable:
        return LoadedTable(self._now, self._view)

    def evolve(self, _name: str, _changes: object) -> bool:
        changed = self._now is not self._after
        self._now = self._after
        return changed


@pytest.mark.parametrize(
    ("props", "properties", "added"),
    [
        ({}, {}, True),
        ({"ext__commit_engine": "merge"}, {}, True),
        ({}, {"write.merge.mode": "copy-on-write"}, True),
        ({"ext__ordering_columns": ""}, {}, False),
        ({"tables__upsert_mode_enabled": "false", "ext__ordering_columns": ""}, {}, False),
    ],
)
def test_order_column_is_added_only_with_configured_ordering_columns(
    props: dict[str, str], properties: dict[str, str], added: bool
) -> None:
    settings = {"tables__upsert_mode_enabled": "true", "ext__ordering_columns": "at", **props}
    merged = {"mode": WriteMode.MERGE, "key_columns": ("id",), "properties": properties}
    before = dataclasses.replace(table([("id", "int")]), **merged)
    after = dataclasses.replace(table([("id", "int"), (ORDER, "string")], schema_id=1), **merged)
    keeper = table_manager(EvolvedCatalog(before, after), **settings)
    for _ in range(2):  # the second time, it exists
        _, described = keeper.prepare(
            "db.orders", Need.CREATE, TableRequest(None, "", (), 0).to_text()
        )
        assert (ORDER in described) is added


@pytest.mark.parametrize(
    ("props", "described", "mode"),
    [
        ({}, {}, "merge-on-read"),
        ({}, {"properties": {"write.merge.mode": "copy-on-write"}}, "copy-on-write"),
        ({"ext__keep_write_mode": "true"}, {}, None),
        ({"ext__commit_engine": "merge"}, {}, None),
        ({}, {"format_version": 1}, None),
        ({}, {"mode": WriteMode.APPEND}, None),
    ],
)
def test_merged_table_without_a_configured_mode_becomes_merge_on_read(
    props: dict[str, str], described: dict[str, Any], mode: str | None
) -> None:
    made = dataclasses.replace(
        table([("id", "int")]), **{"mode": WriteMode.MERGE, "key_columns": ("id",), **described}
    )
    keeper = table_manager(EvolvedCatalog(made, made), tables__upsert_mode_enabled="true", **props)
    _, told = keeper.prepare("db.orders", Need.CREATE, TableRequest(None, "").to_text())
    assert TableDescription.from_json(json.loads(told)).properties.get("write.merge.mode") == mode


class LaidOutCatalog(EvolvedCatalog):
    """Catalog that records the requested layout of the table."""

    def __init__(self, described: TableDescription) -> None:
        super().__init__(described, described)
        self.layouts: list[tuple[Any, Any]] = []

    def set_layout(self, _name: str, sort_by: Any, partition_by: Any) -> bool:
        self.layouts.append((sort_by, partition_by))
        return True


@pytest.mark.parametrize(
    ("props", "asked", "sorted_by"),
    [
        ({}, [], ()),
        ({"tables__default_partition_by": "id"}, [], ()),  # of new tables
        (
            {"table__db__orders__sort_by": "id desc, days(at), bucket(id, 4), name"},
            [(4, None)],
            (("id", True, False), ("at", False, True)),
        ),
        (
            {"tables__default_partition_by": "id", "ext__evolution__partition_by": "apply"},
            [(0, 1)],
            (),
        ),
    ],
)
def test_layout_of_a_table_follows_the_configuration(
    props: dict[str, str],
    asked: list[tuple[int, int | None]],
    sorted_by: tuple[tuple[str, bool, bool], ...],
) -> None:
    catalog = LaidOutCatalog(table([("id", "int"), ("at", "timestamp")]))
    keeper = table_manager(catalog, **props)
    _, told = keeper.prepare("db.orders", Need.CREATE, TableRequest(None, "").to_text())
    assert [
        (len(sort_by), None if by is None else len(by)) for sort_by, by in catalog.layouts
    ] == asked
    assert TableDescription.from_json(json.loads(told)).sort_by == sorted_by


def test_table_without_its_key_column_is_refused_naming_the_column() -> None:
    described = dataclasses.replace(
        table([("number", "int")]), mode=WriteMode.MERGE, key_columns=("id",)
    )
    catalog = EvolvedCatalog(described, described)
    keeper = table_manager(catalog, tables__upsert_mode_enabled="true")
    with pytest.raises(TableUnsuitableError, match="has no key column id"):
        keeper.prepare("db.orders", Need.CREATE, TableRequest(None, "").to_text())


def test_unsupported_write_properties_are_warned_about_once_per_table(
    caplog: pytest.LogCaptureFixture,
) -> None:
    described = dataclasses.replace(
        table([("id", "int")]), properties={"write.format.default": "orc"}
    )
    keeper = table_manager(
        EvolvedCatalog(described, described),
        tables__write_props__write__upsert__enabled="true",
    )
    for _ in range(2):
        keeper.prepare("db.orders", Need.CREATE, TableRequest(None, "").to_text())
    told = [
        record.getMessage() for record in caplog.records if "has no effect" in record.getMessage()
    ]
    assert [text.split(" has no effect")[0] for text in told] == [
        "table db.orders: write.format.default=orc",
        "table db.orders: write.upsert.enabled=true",
    ]


@pytest.mark.parametrize(
    "words",
    ["catalog__", "spark__sql__catalog__iceberg__", "spark__spark__sql__catalog__iceberg__"],
)
def test_configured_storage_keys_stay_out_of_the_table_description(words: str) -> None:
    own = {
        f"{words}s3__access_key_id": "us",
        f"{words}s3__secret_access_key": "in the configuration",
    }
    storage = {
        "s3.access-key-id": "us",
        "s3.secret-access-key": "in the configuration",
        "s3.session-token": "lent",
    }
    described = dataclasses.replace(table([("id", "int")]), io_properties=storage)
    catalog = EvolvedCatalog(described, described)
    keeper = table_manager(catalog, **own)
    _, told = keeper.prepare("db.orders", Need.CREATE, TableRequest(None, "").to_text())
    assert TableDescription.from_json(json.loads(told)).io_properties == {
        "s3.session-token": "lent"
    }


class EmptyCatalog:
    """Catalog without tables that records the requests to create tables."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.properties: Mapping[str, str] = {}  # of the last one

    def alive(self) -> bool:
        return True

    def load(self, name: str, *_: object) -> LoadedTable:
        raise TableMissingError(name, "does not exist")

    def create(self, name: str, _schema: str, _spec: str, properties: Mapping[str, str]) -> bool:
        self.made.append(name)
        self.properties = properties
        return True


@pytest.mark.parametrize("partition_by", ["days(id)", "nope", "bucket(id, 4), hour(id)"])
def test_a_partition_by_that_does_not_fit_makes_no_table(partition_by: str) -> None:
    settings = {"tables__auto_create_enabled": "true", "tables__default_partition_by": partition_by}
    catalog = EmptyCatalog()
    keeper = table_manager(catalog, **settings)
    wish = TableRequest(json.loads(table([("id", "long")]).schema), "").to_text()
    with pytest.raises(TableUnsuitableError):
        keeper.prepare("db.orders", Need.CREATE, wish)
    assert catalog.made == []


@pytest.mark.parametrize(
    ("settings", "keys", "column", "why"),
    [
        ({}, (), ("id", "long"), "MERGE requires key columns"),
        ({"tables__default_id_columns": "no"}, (), ("id", "long"), "has no key column no"),
        ({}, ("id",), ("id", "time"), "column id has type time"),
        (
            {},
            ("id",),
            ("id", {"type": "list", "element-id": 9, "element": "int", "element-required": True}),
            "key column id is of type list, which cannot identify rows",
        ),
        ({}, ("id",), ("id", "variant"), "key column id is of type variant"),
        ({}, ("id",), ("id", "double"), None),
        ({}, ("id",), ("id", "long"), None),
        ({"table__db__orders__id_columns": "id"}, (), ("id", "long"), None),
    ],
)
def test_a_table_that_could_not_be_merged_is_not_made(
    settings: dict[str, str], keys: tuple[str, ...], column: tuple[str, Any], why: str | None
) -> None:
    settings = {
        "tables__auto_create_enabled": "true",
        "tables__upsert_mode_enabled": "true",
        **settings,
    }
    catalog = EmptyCatalog()
    keeper = table_manager(catalog, **settings)
    wish = TableRequest(json.loads(table([column]).schema), keys=keys).to_text()
    # this catalog keeps nothing
    with pytest.raises(TableUnsuitableError if why else TableMissingError, match=why):
        keeper.prepare("db.orders", Need.CREATE, wish)
    assert catalog.made == ([] if why else ["db.orders"])


@pytest.mark.parametrize(
    ("settings", "granularity"),
    [
        ({}, None),  # format 3 has a deletion vector per file
        ({"tables__auto_create_props__format_version": "2"}, "partition"),
        (
            {
                "tables__auto_create_props__format_version": "2",
                "tables__auto_create_props__write__delete__granularity": "file",
            },
            "file",
        ),
    ],
)
def test_position_deletes_of_new_tables_are_kept_by_partition(
    settings: dict[str, str], granularity: str
) -> None:
    settings = {
        "tables__auto_create_enabled": "true",
        "tables__upsert_mode_enabled": "true",
        **settings,
    }
    catalog = EmptyCatalog()
    schema = json.loads(table([("id", "long")]).schema)
    with pytest.raises(TableMissingError):  # this catalog keeps nothing
        table_manager(catalog, **settings).prepare(
            "db.orders", Need.CREATE, TableRequest(schema, keys=("id",)).to_text()
        )
    assert catalog.properties.get("write.delete.granularity") == granularity


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ({}, "100"),
        ({"tables__auto_create_props__write__metadata__previous_versions_max": "7"}, "7"),
        ({"ext__maintenance__enabled": "false"}, None),
    ],
)
def test_new_tables_are_marked_and_limit_their_metadata_files(
    settings: dict[str, str], versions: str | None
) -> None:
    catalog = EmptyCatalog()
    keeper = table_manager(catalog, tables__auto_create_enabled="true", **settings)
    schema = json.loads(table([("id", "long")]).schema)
    with pytest.raises(TableMissingError):  # this catalog stores nothing
        keeper.prepare("db.orders", Need.CREATE, TableRequest(schema).to_text())
    assert catalog.properties["connect-py.created-by-sink"] == "true"
    assert catalog.properties.get("write.metadata.previous-versions-max") == versions
    deletes = catalog.properties.get("write.metadata.delete-after-commit.enabled")
    assert deletes == (None if versions is None else "true")


def test_recreated_table_uses_the_key_seen_by_another_task() -> None:
    settings = {"tables__auto_create_enabled": "true", "tables__upsert_mode_enabled": "true"}
    catalog = EmptyCatalog()
    keeper = table_manager(catalog, **settings)
    schema = json.loads(table([("id", "long")]).schema)
    for keys in (("id",), ()):  # the second task saw none of them
        with pytest.raises(TableMissingError):  # this catalog keeps nothing
            keeper.prepare("db.orders", Need.CREATE, TableRequest(schema, keys=keys).to_text())
    assert catalog.made == ["db.orders", "db.orders"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        # before the commit was made visible, otherwise, it is not an error
        (SparkDiedError("gone"), CommitStatus.FAILED),
        (CatalogUnavailableError("away"), CommitStatus.FAILED),
        (TableMissingError("db.t", "gone"), CommitStatus.MISSING),
    ],
)
def test_errors_of_a_commit_are_tries_that_count(error: ConnectError, status: CommitStatus) -> None:
    assert status_of(error) is status


def commits(metrics: FakePluginMetrics) -> dict[str, float]:
    """How often commits ended in which way."""
    found = {
        key: each for key, each in metrics.measurements.items() if key[0] == "iceberg_commits_total"
    }
    return {dict(labels)["outcome"]: each.value for (_, labels), each in found.items()}


class RefusingCatalog(EmptyCatalog):
    """Answers with one error after the other, and then with no table."""

    def __init__(self, *errors: ConnectError) -> None:
        super().__init__()
        self._errors = [*errors]

    def load(self, name: str, *_: object) -> LoadedTable:
        if self._errors:
            raise self._errors.pop(0)
        return super().load(name)


def test_commits_that_end_with_an_error_are_counted_too() -> None:
    """Otherwise a catalog that is away has no failed commits."""
    away = CatalogUnavailableError("away")
    metrics = FakePluginMetrics()
    keeper = table_manager(RefusingCatalog(away, away, PairUnreadError("db.t", 1)), metrics)
    for error in (CatalogUnavailableError, CatalogUnavailableError, PairUnreadError):
        with pytest.raises(error):
            keeper.view_to_commit("db.t")
    assert keeper.view_to_commit("db.t") is None
    committed = CommitOutcome(CommitStatus.COMMITTED, EngineName.APPEND, 1)
    IcebergMetrics(metrics).committed("db.t", committed)
    assert commits(metrics) == {"failed": 2, "missing": 1, "committed": 1}


def test_a_commit_that_a_stop_interrupts_counts_as_none() -> None:
    metrics = FakePluginMetrics()
    keeper = table_manager(RefusingCatalog(CatalogUnavailableError("the task stops")), metrics)
    keeper._stopping.set()
    with pytest.raises(CatalogUnavailableError):
        keeper.view_to_commit("db.t")
    assert commits(metrics) == {}


HEALTH = TableHealth(True, 12, 0, 3, 0, 100, 0, small_files=3, mergeable_files=3)


class MaintainedLake(MortalLake):
    """Answers maintenance with these outcomes."""

    def __init__(self, *answers: CompactionOutcome | ExpirationOutcome | Exception) -> None:
        super().__init__()
        self.answers = [*answers]
        self.requests: list[object] = []

    def run(self, name: str, _: object, *arguments: object) -> Any:
        self.requests.append((name, *arguments))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def run_within(self, _: float, name: str, function: object, *arguments: object) -> Any:
        return self.run(name, function, *arguments)


COMPACTION = MaintenanceTask(MaintenanceKind.COMPACT, "db.t", 2.0, 1 << 20)
EXPIRATION = MaintenanceTask(MaintenanceKind.EXPIRE, "db.t", 2.0)


def counted(manager: TableManager) -> dict[tuple[str, ...], float]:
    found: Any = manager._metrics._metrics
    return {
        tuple(dict(key[1]).values()): each.value
        for key, each in found.measurements.items()
        if "maintenance_total" in key[0]
    }


def test_compaction_has_the_prefix_of_the_epoch_and_the_limits_of_its_task() -> None:
    lake = MaintainedLake(
        CompactionOutcome(CompactionStatus.COMMITTED, HEALTH, "small files", 1 << 20, 10, 1, 0.5)
    )
    manager = table_manager(lake, table__db__t__maintenance__small_files="3")
    epoch = Epoch(4, "a1")
    manager.maintain(COMPACTION, epoch)
    [(table, request)] = lake.requests
    assert (table, request.epoch, request.cost_limit, request.seconds) == (
        "db.t",
        epoch,
        1 << 20,
        2.0,
    )
    assert request.policy.small_files == 3
    assert counted(manager) == {("compact data files", "committed", "db.t"): 1}


def test_first_expiration_names_the_key_that_disables_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    lake = MaintainedLake(ExpirationOutcome(50, 950, 1.0), ExpirationOutcome(50, 950, 1.0))
    manager = table_manager(lake)
    for _ in range(2):
        manager.maintain(EXPIRATION, Epoch(4, "a1"))
    named = [each.getMessage() for each in caplog.records if "disables this" in each.getMessage()]
    assert named == [
        "table db.t: snapshots expire after 5 days, or earlier if there are more than 1000; "
        "iceberg.table.db.t.maintenance.snapshots=0 disables this"
    ]


@pytest.mark.parametrize("error", [CatalogUnavailableError("away"), ValueError("a defect")])
def test_failed_maintenance_is_counted_and_ends_no_task(error: Exception) -> None:
    manager = table_manager(MaintainedLake(error))
    with pytest.raises(ConnectError, match=r"away|a defect"):
        manager.maintain(COMPACTION, Epoch(4, "a1"))
    assert counted(manager) == {("compact data files", "failed", "db.t"): 1}


def test_tables_with_too_many_snapshots_or_files_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = FakePluginMetrics()
    status: dict[str, str | None] = {}
    monitor = HealthMonitor(IcebergMetrics(metrics), status.__setitem__)
    crowded = dataclasses.replace(
        HEALTH, maintained=False, snapshots=5001, small_files=501, data_files=501
    )

    def excesses() -> dict[str, float]:
        return {
            dict(key[1])["objects"]: each.value
            for key, each in metrics.measurements.items()
            if "excessive" in key[0]
        }

    monitor.update("db.t", HEALTH)
    assert excesses() == {}
    for _ in range(2):
        monitor.update("db.t", crowded)
    assert excesses() == {"snapshots": 1, "small files": 1}
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert [text.partition(":")[0] for text in warnings] == [
        "table db.t has 5001 unexpired snapshots, more than 5000",
        "table db.t has 501 small data files, more than 500",
    ]
    assert [*status.values()] == warnings
    monitor.update("db.t", dataclasses.replace(HEALTH, small_files=None))
    assert [*status.values()] == [None, None]
    assert excesses() == {"snapshots": 0, "small files": 0}

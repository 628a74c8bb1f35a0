"""What is decided about a commit before Spark is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from connectors.iceberg.commit.change_builder import (
    MergeSource,
    choose_strategy,
    delete_matched,
    full_merge,
)
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.coordinator.table_manager import why_not_merged
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName, EngineSettings
from connectors.iceberg.protocol.ledger import TableVersion
from connectors.iceberg.protocol.table_metadata import TableMetadata
from connectors.iceberg.table.table import StagedFile, StagedKind, TableDescription, WriteMode

APPEND, MERGE, FULL, OVERWRITE = (
    EngineName.APPEND,
    EngineName.MERGE,
    EngineName.FULL_MERGE,
    EngineName.OVERWRITE,
)


def staged(kind: StagedKind) -> StagedFile:
    return StagedFile(kind, "file:///x.parquet", 1, 1, 0, 0)


ROWS, DELETES, TRUNCATES = (
    [staged(kind)] for kind in (StagedKind.ROWS, StagedKind.DELETES, StagedKind.TRUNCATES)
)
ON_READ = {"write.merge.mode": "merge-on-read"}


def metadata_of(version: int, files: int, **properties: str) -> TableMetadata:
    """A table whose main holds some data files."""
    snapshot = {"snapshot-id": 1, "summary": {"total-data-files": str(files)}}
    schemas = {"schemas": [{"schema-id": 0, "fields": []}], "current-schema-id": 0}
    specs = {"partition-specs": [{"spec-id": 0, "fields": []}], "default-spec-id": 0}
    snapshots = {"snapshots": [snapshot], "current-snapshot-id": 1}
    table = {
        "table-uuid": "u",
        "format-version": version,
        "location": "file:/t",
        "properties": properties,
    }
    return TableMetadata({**table, **schemas, **specs, **snapshots})


def choose(
    metadata: TableMetadata, mode: WriteMode, files: list[StagedFile], full: bool = False
) -> EngineName:
    version = TableVersion("u", None, None)
    keys = ("id",) if mode is WriteMode.MERGE else ()
    request = CommitRequest(
        "db.t",
        "c",
        version,
        "ledger",
        "{}",
        {"ledger": "{}"},
        files=files,
        mode=mode,
        key_columns=keys,
    )
    table: Any = SimpleNamespace(
        has_data_files=lambda head: head["summary"]["total-data-files"] != "0"
    )
    strategy, reason = choose_strategy(table, metadata, request, EngineSettings(full_merge=full))
    assert reason
    return strategy


@pytest.mark.parametrize(
    ("mode", "files", "there", "full", "chosen"),
    [
        (WriteMode.APPEND, ROWS, 1, False, APPEND),
        (WriteMode.APPEND, ROWS, 1, True, APPEND),  # facts have no keys
        (WriteMode.MERGE, [], 1, True, APPEND),  # a claim
        (WriteMode.MERGE, ROWS, 0, False, APPEND),
        (WriteMode.MERGE, ROWS, 0, True, APPEND),
        (WriteMode.MERGE, ROWS + DELETES, 0, False, APPEND),
        (WriteMode.MERGE, ROWS, 1, False, MERGE),
        (WriteMode.MERGE, DELETES, 1, False, MERGE),
        (WriteMode.MERGE, ROWS, 1, True, FULL),
        (WriteMode.MERGE, ROWS + TRUNCATES, 1, False, OVERWRITE),
        (WriteMode.MERGE, TRUNCATES, 1, True, OVERWRITE),
    ],
)
def test_statements_follow_from_the_mode_and_the_files(
    mode: WriteMode, files: list[StagedFile], there: int, full: bool, chosen: EngineName
) -> None:
    assert choose(metadata_of(3, there, **ON_READ), mode, files, full) is chosen


@pytest.mark.parametrize("files", [ROWS, DELETES])
@pytest.mark.parametrize(
    ("version", "properties", "chosen"),
    [
        (2, ON_READ, MERGE),
        (3, {"write.merge.mode": "MERGE-on-read"}, MERGE),
        (3, {"write.merge.mode": "copy-on-write"}, FULL),
        (3, {}, FULL),  # Iceberg's default is copy-on-write
        (1, ON_READ, FULL),  # the format has no deletes
    ],
)
def test_table_that_wants_its_files_rewritten_is_merged_in_full(
    files: list[StagedFile], version: int, properties: dict[str, str], chosen: EngineName
) -> None:
    assert choose(metadata_of(version, 1, **properties), WriteMode.MERGE, files) is chosen


@pytest.mark.parametrize(
    ("version", "mode", "says"),
    [
        (1, None, None),
        (1, "merge-on-read", "write.merge.mode=merge-on-read"),
        (1, "copy-on-write", None),
        (2, "merge-on-read", None),
    ],
)
def test_table_that_cannot_be_merged_names_its_write_merge_mode(
    version: int, mode: str | None, says: str | None
) -> None:
    properties = {"write.merge.mode": mode} if mode else {}
    table = TableDescription(
        "db.t", "u", version, "", "", 0, "", "", WriteMode.MERGE, properties=properties
    )
    why = why_not_merged(table)
    assert (why is None) if says is None else (why is not None and says in why)


def test_request_without_its_ledger_or_its_key_is_refused() -> None:
    version = TableVersion("u", None, None)
    with pytest.raises(ValueError, match="missing summary key ledger"):
        CommitRequest("db.t", "c", version, "ledger", "{}", {})
    with pytest.raises(ValueError, match="key columns"):
        CommitRequest(
            "db.t", "c", version, "ledger", "{}", {"ledger": "{}"}, files=ROWS, mode=WriteMode.MERGE
        )


def test_catalog_keys_reach_spark_under_the_catalogs_name() -> None:
    config = SparkConfig(
        "lake",
        {"type": "jdbc", "uri": "jdbc:sqlite:/x"},
        {"fs.x": "1"},
        {"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7", "spark.hadoop.fs.y": "2"},
    )
    settings = config.session_settings()
    assert settings["spark.sql.catalog.lake.uri"] == "jdbc:sqlite:/x"
    assert settings["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"
    assert settings["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert settings["spark.sql.catalog.lake.hadoop.fs.x"] == "1"
    assert settings["spark.sql.catalog.lake.hadoop.fs.y"] == "2"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert config.static_settings()["spark.master"] == "local[3]"
    assert SparkConfig().session_settings()["spark.sql.catalog.iceberg.type"] == "hive"


def test_static_driver_settings_are_kept_apart_from_session_settings() -> None:
    of_the_jvm = {"spark.driver.memory": "2g", "spark.sql.extensions": "x.Mine"}
    of_a_session = {
        "spark.sql.shuffle.partitions": "7",
        "spark.sql.catalog.lake.uri": "jdbc:sqlite:/y",
    }
    config = SparkConfig("lake", SQLITE, spark_properties={**of_the_jvm, **of_a_session})
    static, session = config.static_settings(), config.session_settings()
    assert of_the_jvm.items() <= static.items()
    assert of_a_session.items() <= session.items()
    assert not static.keys() & session.keys()


def test_driver_of_this_machine_listens_to_nobody_else() -> None:
    addresses = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    assert addresses.items() <= SparkConfig().static_settings().items()
    far = SparkConfig(spark_properties={"spark.master": "spark://far:7077"}).static_settings()
    assert not addresses.keys() & far.keys(), "executors have to reach it"


def test_sqlite_forces_the_end_of_its_journals_unless_told_otherwise() -> None:
    def synchronous(uri: str, **more: str) -> str | None:
        own = {"type": "jdbc", "uri": uri, **{f"jdbc.{key}": value for key, value in more.items()}}
        return SparkConfig("lake", own).catalog_settings().get("jdbc.synchronous")

    assert synchronous("jdbc:sqlite:/x") == "EXTRA"
    assert synchronous("jdbc:sqlite:/x", synchronous="NORMAL") == "NORMAL"
    assert synchronous("jdbc:sqlite:/x?synchronous=NORMAL") is None, (
        "ours would win over what the address says"
    )
    assert synchronous("jdbc:postgresql://far/lake") is None
    in_sparks_words = {
        "spark.sql.catalog.lake.type": "jdbc",
        "spark.sql.catalog.lake.uri": "jdbc:sqlite:/x",
    }
    settings = SparkConfig("lake", spark_properties=in_sparks_words).session_settings()
    assert settings["spark.sql.catalog.lake.jdbc.synchronous"] == "EXTRA"


def test_cluster_executors_get_our_jars_unless_they_have_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CONNECT_PY_SPARK_JARS", "/jars/a.jar:/jars/b.jar")
    cluster = {"spark.master": "spark://far:7077"}
    assert (
        SparkConfig(spark_properties=cluster).static_settings()["spark.jars"]
        == "/jars/a.jar,/jars/b.jar"
    )
    assert "spark.jars" not in SparkConfig().static_settings()
    there = {**cluster, "spark.executor.extraClassPath": "/opt/iceberg.jar"}
    assert "spark.jars" not in SparkConfig(spark_properties=there).static_settings()


def test_heap_becomes_an_option_of_the_jvm() -> None:
    config = SparkConfig(spark_properties={"spark.driver.memory": "3g"})
    assert config.jvm_options() == [
        "-Xmx3g",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-XX:ReservedCodeCacheSize=240m",
        "-XX:MaxHeapFreeRatio=50",
    ]


SQLITE = {"type": "jdbc", "uri": "jdbc:sqlite:/x"}


def test_merge_statements_quote_names_and_leave_later_rows_alone() -> None:
    sources = [MergeSource("s1", deletes=True), MergeSource("s2", deletes=False)]
    assert delete_matched("`c`.`t`", ["odd`id"], sources) == (
        "MERGE INTO `c`.`t` t USING (SELECT `odd``id` FROM s1 UNION ALL SELECT `odd``id` FROM s2) "
        "s ON t.`odd``id` = s.`odd``id` WHEN MATCHED THEN DELETE"
    )
    checked = delete_matched("t", ["id"], sources, checks_keys=True, in_one_task=True)
    assert (
        "/*+ COALESCE(1) */ `id` FROM (SELECT `id` FROM s1 UNION ALL SELECT `id` FROM s2)"
        in checked
    )
    assert "GROUP BY `id`) WHERE assert_true(" in checked
    text = full_merge("`c`.`t`", ["id", "odd`name", "at"], ["id"], sources, order="at")
    assert "SELECT `id`, NULL AS `odd``name`, `at`, true AS" in text
    assert "SELECT `id`, `odd``name`, `at`, false AS" in text
    assert "AND NOT coalesce(t.`at` > s.`at`, false)" in text


def test_a_collector_that_the_user_chooses_is_the_only_one() -> None:
    config = SparkConfig(spark_properties={"spark.driver.extraJavaOptions": "-XX:+UseZGC"})
    collectors = [option for option in config.jvm_options() if option.endswith("GC")]
    assert collectors == ["-XX:+UseZGC"]

"""What is decided about a commit before Spark is asked."""

from __future__ import annotations

import pytest

from connectors.iceberg.protocol.ledger import TableVersion
from connectors.iceberg.spark.commit_request import (
    CommitRequest,
    EngineName,
    TableState,
    as_it_went,
    choose_engine,
    why_not_merged,
)
from connectors.iceberg.spark.merge import merge_statement
from connectors.iceberg.spark.session import SparkConfig
from connectors.iceberg.table import StagedFile, StagedKind, TableDescription, WriteMode

AUTO, APPEND, MERGE, DELTA = EngineName.AUTO, EngineName.APPEND, EngineName.MERGE, EngineName.DELTA


def staged(kind: StagedKind) -> StagedFile:
    return StagedFile(kind, "file:///x.parquet", 1, 1, 0, 0)


ROWS, DELETES = [staged(StagedKind.ROWS)], [staged(StagedKind.DELETES)]


@pytest.mark.parametrize(
    ("wanted", "mode", "files", "empty", "chosen"),
    [
        (AUTO, WriteMode.APPEND, ROWS, False, APPEND),
        (DELTA, WriteMode.APPEND, ROWS, False, APPEND),  # facts have no keys
        (MERGE, WriteMode.MERGE, [], False, APPEND),  # a claim
        (AUTO, WriteMode.MERGE, ROWS, True, APPEND),
        (AUTO, WriteMode.MERGE, ROWS + DELETES, True, DELTA),
        (AUTO, WriteMode.MERGE, ROWS, False, DELTA),
        (MERGE, WriteMode.MERGE, ROWS, True, MERGE),
        (APPEND, WriteMode.MERGE, ROWS, False, APPEND),
    ],
)
def test_engine_follows_from_the_mode_and_the_files(
    wanted: EngineName,
    mode: WriteMode,
    files: list[StagedFile],
    empty: bool,
    chosen: EngineName,
) -> None:
    choice = choose_engine(wanted, mode, files, TableState(empty))
    assert choice.engine is chosen
    assert choice.reason


@pytest.mark.parametrize("files", [ROWS, DELETES])
@pytest.mark.parametrize(
    ("table", "remote", "chosen"),
    [
        (TableState(False), True, MERGE),
        (TableState(False, copy_on_write=True), False, MERGE),
        (TableState(False), False, DELTA),
        (TableState(True, foreign_rows_refused=True), False, DELTA),  # an append looks for nothing
    ],
)
def test_sql_is_left_where_nothing_else_reaches_spark_or_the_table_wants_files_rewritten(
    files: list[StagedFile], table: TableState, remote: bool, chosen: EngineName
) -> None:
    assert choose_engine(AUTO, WriteMode.MERGE, files, table, remote).engine is chosen
    assert choose_engine(DELTA, WriteMode.MERGE, files, table).engine is DELTA


def test_sql_that_would_lose_the_order_of_rows_is_left_where_there_is_another_way() -> None:
    table = TableState(False, copy_on_write=True, order_hidden=True)
    assert choose_engine(AUTO, WriteMode.MERGE, ROWS, table).engine is DELTA
    assert choose_engine(AUTO, WriteMode.MERGE, ROWS, table, remote=True).engine is MERGE, "which adds the column"


@pytest.mark.parametrize("files", [ROWS, DELETES])
def test_rows_of_a_table_without_deletes_are_rewritten(files: list[StagedFile]) -> None:
    table = TableState(False, order_hidden=True, holds_deletes=False)
    assert choose_engine(AUTO, WriteMode.MERGE, files, table).engine is MERGE
    with pytest.raises(ValueError, match="needs a table of format version 2"):
        choose_engine(DELTA, WriteMode.MERGE, files, table)


@pytest.mark.parametrize(
    ("version", "wanted", "mode", "says"),
    [
        (1, AUTO, None, None),
        (1, AUTO, "merge-on-read", "write.merge.mode says merge-on-read"),
        (1, DELTA, None, "commit-engine=auto"),
        (2, DELTA, "merge-on-read", None),
    ],
)
def test_table_whose_rows_nothing_can_replace_is_told_what_to_do(
    version: int, wanted: EngineName, mode: str | None, says: str | None
) -> None:
    properties = {"write.merge.mode": mode} if mode else {}
    table = TableDescription("db.t", "u", version, "", "", 0, "", "", WriteMode.MERGE, properties=properties)
    why = why_not_merged(table, wanted)
    assert (why is None) if says is None else (why is not None and says in why)


def test_rows_into_an_empty_table_need_no_spark_wherever_it_is() -> None:
    assert choose_engine(AUTO, WriteMode.MERGE, ROWS, TableState(True), remote=True).engine is APPEND


@pytest.mark.parametrize(
    ("wanted", "files", "replaced", "engine"),
    [
        (AUTO, ROWS, 0, APPEND),
        (AUTO, ROWS, 1, DELTA),
        (AUTO, ROWS + DELETES, 0, DELTA),
        (DELTA, ROWS, 0, DELTA),
    ],
)
def test_delta_that_found_no_staged_key_counts_as_the_append_that_it_was(
    wanted: EngineName, files: list[StagedFile], replaced: int, engine: EngineName
) -> None:
    chosen = choose_engine(wanted, WriteMode.MERGE, files, TableState(False))
    went = as_it_went(chosen, wanted, files, replaced)
    assert went.engine is engine
    assert (went == chosen) is (engine is DELTA)


def test_append_cannot_delete() -> None:
    with pytest.raises(ValueError, match="cannot replace"):
        choose_engine(APPEND, WriteMode.MERGE, DELETES, TableState(False))


def test_request_without_its_ledger_or_its_key_is_refused() -> None:
    version = TableVersion("u", None, None)
    with pytest.raises(ValueError, match="lacks ledger"):
        CommitRequest("db.t", "c", version, "ledger", "{}", {})
    with pytest.raises(ValueError, match="key columns"):
        CommitRequest("db.t", "c", version, "ledger", "{}", {"ledger": "{}"}, files=ROWS, mode=WriteMode.MERGE)


def test_catalog_keys_reach_spark_under_the_catalogs_name() -> None:
    settings = SparkConfig(
        "lake",
        {"type": "jdbc", "uri": "jdbc:sqlite:/x"},
        {"fs.x": "1"},
        {"spark.master": "local[3]", "spark.sql.shuffle.partitions": "7"},
    ).session_settings()
    assert settings["spark.sql.catalog.lake.uri"] == "jdbc:sqlite:/x"
    assert settings["spark.sql.catalog.lake.jdbc.schema-version"] == "V1"
    assert settings["spark.sql.catalog.lake.cache-enabled"] == "false"
    assert settings["spark.hadoop.fs.x"] == "1"
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert SparkConfig().session_settings()["spark.sql.catalog.iceberg.type"] == "hive"


def test_sqlite_forces_the_end_of_its_journals_unless_told_otherwise() -> None:
    def synchronous(uri: str, **more: str) -> str | None:
        own = {"type": "jdbc", "uri": uri, **{f"jdbc.{key}": value for key, value in more.items()}}
        return SparkConfig("lake", own).catalog_settings().get("jdbc.synchronous")

    assert synchronous("jdbc:sqlite:/x") == "EXTRA"
    assert synchronous("jdbc:sqlite:/x", synchronous="NORMAL") == "NORMAL"
    assert synchronous("jdbc:sqlite:/x?synchronous=NORMAL") is None, "ours would win over what the address says"
    assert synchronous("jdbc:postgresql://far/lake") is None
    in_sparks_words = {"spark.sql.catalog.lake.type": "jdbc", "spark.sql.catalog.lake.uri": "jdbc:sqlite:/x"}
    settings = SparkConfig("lake", spark_properties=in_sparks_words).session_settings()
    assert settings["spark.sql.catalog.lake.jdbc.synchronous"] == "EXTRA"


def test_executors_of_a_cluster_get_our_jars_unless_they_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PY_SPARK_JARS", "/jars/a.jar:/jars/b.jar")
    cluster = {"spark.master": "spark://far:7077"}
    assert SparkConfig(spark_properties=cluster).session_settings()["spark.jars"] == "/jars/a.jar,/jars/b.jar"
    assert "spark.jars" not in SparkConfig().session_settings()
    there = {**cluster, "spark.executor.extraClassPath": "/opt/iceberg.jar"}
    assert "spark.jars" not in SparkConfig(spark_properties=there).session_settings()


def test_session_behind_spark_connect_gets_the_catalog_and_what_is_for_sql() -> None:
    config = SparkConfig(
        "lake",
        {"type": "rest", "uri": "http://catalog"},
        {"fs.x": "1"},
        {"spark.remote": "sc://far", "spark.sql.shuffle.partitions": "7", "spark.driver.memory": "2g"},
    )
    settings = config.remote_settings()
    assert settings["spark.sql.catalog.lake.uri"] == "http://catalog"
    assert settings["spark.sql.catalog.lake.hadoop.fs.x"] == "1"
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert all(key.startswith("spark.sql.") for key in settings)
    assert not config.local


def test_heap_and_quick_jvm_become_options_of_the_jvm() -> None:
    config = SparkConfig(spark_properties={"spark.driver.memory": "3g"}, quick_jvm=True)
    assert config.jvm_options() == ["-Xmx3g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    alone = SparkConfig("lake", SQLITE, quick_jvm=True)
    assert alone.jvm_options()[-1] == "-XX:CompileThresholdScaling=3"


SQLITE = {"type": "jdbc", "uri": "jdbc:sqlite:/x"}


@pytest.mark.parametrize(
    ("config", "alone"),
    [
        (SparkConfig("lake", SQLITE), True),
        (SparkConfig("lake", {"type": "rest"}, spark_properties={"spark.remote": "sc://far"}), True),
        (SparkConfig("lake", SQLITE, needs_spark=True), False),
        (SparkConfig("lake", {"type": "hive"}), False),
        (SparkConfig("lake", {"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}), False),
        (SparkConfig("lake", SQLITE, spark_properties={"spark.driver.extraClassPath": "/opt/driver.jar"}), False),
    ],
)
def test_spark_is_left_out_of_the_jvm_where_icebergs_library_surely_does(config: SparkConfig, alone: bool) -> None:
    assert config.alone is alone


def test_hadoop_is_left_out_where_tables_are_in_folders_and_nothing_is_said_of_file_systems() -> None:
    here = {**SQLITE, "warehouse": "file:///lake"}
    assert SparkConfig("lake", here).on_this_machine
    assert SparkConfig("lake", {**here, "warehouse": "/lake"}).on_this_machine
    assert not SparkConfig("lake", {**here, "warehouse": "s3://lake"}).on_this_machine
    assert not SparkConfig("lake", {**here, "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}).on_this_machine
    assert not SparkConfig("lake", {**here, "type": "hadoop"}).on_this_machine
    assert not SparkConfig("lake", here, {"fs.file.impl": "x.Files"}).on_this_machine
    assert not SparkConfig("lake", here, spark_properties={"spark.hadoop.fs.file.impl": "x.Files"}).on_this_machine


def test_configuration_of_a_cluster_on_the_class_path_takes_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not SparkConfig("lake", SQLITE).alone


def test_merge_statement_quotes_names_and_leaves_unavailable_columns_alone() -> None:
    text = merge_statement(
        "`c`.`t`",
        ["id", "odd`name"],
        ["id"],
        [
            {"set": "s1", "kind": "deletes", "unavailable": []},
            {"set": "s2", "kind": "patches", "unavailable": ["odd`name"]},
        ],
    )
    assert "SELECT 1 AS `connect-op`, `id`, NULL AS `odd``name` FROM s1" in text
    assert "= 3 THEN UPDATE SET t.`id` = s.`id`\n" in text


def test_a_collector_that_the_user_chooses_is_the_only_one() -> None:
    config = SparkConfig(spark_properties={"spark.driver.extraJavaOptions": "-XX:+UseZGC"})
    collectors = [option for option in config.jvm_options() if option.endswith("GC")]
    assert collectors == ["-XX:+UseZGC"]

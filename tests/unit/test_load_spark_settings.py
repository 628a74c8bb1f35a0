"""Precedence of a load's Spark settings from options, connector, and worker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.spark_config import worker_spark_config
from connectors.iceberg_tools.commands.load_options import SPARK, LoadOptions

CONNECTOR = {"name": "sink", "topics": "a", "iceberg.tables": "a.b", "iceberg.catalog.type": "rest"}
DRIVER, EXECUTOR, PYTHON = "driver.extraJavaOptions", "executor.extraJavaOptions", "pyspark.python"


def spark(
    options: Mapping[str, str], worker: Mapping[str, str] | None = None, **connector: str
) -> Mapping[str, str]:
    """Return Spark's settings without the prefix `spark.`; the worker allows everything."""
    props = {**CONNECTOR, **{f"iceberg.spark.{key}": value for key, value in connector.items()}}
    file = {"connect_py.spark.settings.allowed": "*"}
    file |= {f"connect_py.spark.{key}": value for key, value in (worker or {}).items()}
    merged = {**file, **options}
    config = worker_spark_config(
        IcebergSinkConfig.parse(props),
        lambda prefix: {k: v for k, v in merged.items() if k.startswith(prefix)},
    )
    return {key.removeprefix("spark."): value for key, value in config.spark_properties.items()}


def test_options_of_the_command_win_over_connector_and_worker() -> None:
    options = LoadOptions(
        master="yarn", conf=["spark.executor.memory=3g", f"spark.{PYTHON}=/mine"]
    ).settings()
    found = spark(
        options,
        {"master": "k8s://x", "executor.memory": "1g"},
        master="local",
        **{"executor.memory": "2g"},
    )
    assert (found["master"], found["executor.memory"], found[PYTHON]) == ("yarn", "3g", "/mine")


def test_defaults_of_a_load_come_before_what_users_say() -> None:
    options = LoadOptions().settings()
    found = spark(
        options,
        {DRIVER: "-Dtrust=worker", EXECUTOR: "-Dx=1", PYTHON: "/worker"},
        **{EXECUTOR: "-Dx=2"},
    )
    assert found[DRIVER] == f"{SPARK[f'spark.{DRIVER}']} -Dtrust=worker"
    assert found[EXECUTOR] == f"{SPARK[f'spark.{EXECUTOR}']} -Dx=2"
    assert found[PYTHON] == "/worker"
    assert "master" not in found
    alone = spark(options)
    assert (alone[DRIVER], alone[PYTHON]) == (SPARK[f"spark.{DRIVER}"], sys.executable)


def test_archive_brings_its_own_python_for_the_executors(tmp_path: Path) -> None:
    found = spark(LoadOptions(archive=tmp_path).settings(), {PYTHON: "/worker"})
    assert (found[PYTHON], found["archives"]) == (
        "./connect-py/bin/python3",
        f"{tmp_path}#connect-py",
    )


@pytest.mark.parametrize("given", ["master=yarn", "nothing"])
def test_settings_that_are_none_of_spark_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="--conf"):
        LoadOptions(conf=[given]).settings()


@pytest.mark.parametrize(
    ("master", "conf"), [("nonsense", None), (None, ["spark.master=localhost:7077"])]
)
def test_master_that_is_none_is_refused_before_a_start(
    master: str | None, conf: list[str] | None
) -> None:
    with pytest.raises(
        ConfigError, match=r"--master: unknown Spark master .*: expected local\[\*\]"
    ):
        LoadOptions(master=master, conf=conf).settings()


def test_load_refuses_spark_connect() -> None:
    with pytest.raises(
        ConfigError,
        match=r"Spark Connect is no longer supported.* set --master to spark://host:port",
    ):
        LoadOptions(conf=["spark.remote=sc://host"]).settings()


def test_default_of_the_worker_that_selects_spark_connect_is_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^connect_py\.spark\.remote: .* set connect_py\.spark\.master to spark://",
    ):
        spark({}, {"remote": "sc://host"})

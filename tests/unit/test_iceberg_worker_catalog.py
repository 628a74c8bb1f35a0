"""A connector that names no catalog gets the worker's."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from connect_py.testing.services import FakeSharedServices
from connectors.iceberg.config.allowed_settings import refused_settings
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.config.worker_defaults import with_worker_catalog
from connectors.iceberg.connector import IcebergSinkConnector

WORKER = {
    "connect_py.defaults.iceberg.catalog": "lake",
    "connect_py.defaults.iceberg.catalog.type": "rest",
    "connect_py.defaults.iceberg.catalog.uri": "http://catalog",
    "connect_py.defaults.iceberg.catalog.io-impl": "a.B",
    "connect_py.defaults.iceberg.hadoop.fs.defaultFS": "hdfs://x",
    "connect_py.defaults.iceberg.tables": "not.given",
}
CONNECTOR = {
    "name": "s",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "t",
    "iceberg.tables": "db.t",
}


def settings(prefix: str) -> Mapping[str, str]:
    return {key: value for key, value in WORKER.items() if key.startswith(prefix)}


def test_connector_without_a_catalog_gets_that_of_the_worker() -> None:
    config = IcebergSinkConfig.parse(with_worker_catalog(CONNECTOR, settings))
    assert (config.catalog_name, config.catalog["uri"], config.hadoop) == (
        "lake",
        "http://catalog",
        {"fs.defaultFS": "hdfs://x"},
    )
    assert config.tables == ("db.t",)


@pytest.mark.parametrize(
    "key",
    [
        "iceberg.catalog.type",
        "iceberg.hadoop.fs.s3a.endpoint",
        "iceberg.hadoop-conf-dir",
        "iceberg.spark.sql.catalog.lake.uri",
        "iceberg.spark.spark.hadoop.fs.s3a.endpoint",
        "iceberg.spark.master",
        "iceberg.spark.spark.master",
    ],
)
def test_secrets_of_the_workers_catalog_go_to_no_other_address(key: str) -> None:
    own = CONNECTOR | {key: "x"}
    assert with_worker_catalog(own, settings) == own


def test_other_settings_of_spark_go_with_the_workers_catalog() -> None:
    own = CONNECTOR | {"iceberg.spark.driver.memory": "2g", "iceberg.catalog": "mine"}
    complete = with_worker_catalog(own, settings)
    assert (complete["iceberg.catalog.uri"], complete["iceberg.catalog"]) == (
        "http://catalog",
        "mine",
    )


def test_class_of_the_workers_catalog_needs_no_leave() -> None:
    complete = with_worker_catalog(CONNECTOR, settings)
    assert list(refused_settings(complete, settings)) == []
    assert [key for key, _ in refused_settings({"iceberg.catalog.io-impl": "c.D"}, settings)] == [
        "iceberg.catalog.io-impl"
    ]


@pytest.mark.parametrize("worker", [WORKER, {}])
def test_connector_validates_with_the_catalog_of_its_worker(worker: dict[str, str]) -> None:
    connector = IcebergSinkConnector()
    connector.services = FakeSharedServices({}, worker)
    errors = [error for value in connector.validate(CONNECTOR).values() for error in value.errors]
    assert ("Must specify Iceberg catalog properties" in errors) is (worker == {})
    if worker:
        assert connector.transactional_id(CONNECTOR) == "connect-s-coordinator"
        connector.start(CONNECTOR)
        # secrets of the worker do not reach the config topic
        assert connector.task_configs(1) == [CONNECTOR]


def test_connector_is_refused_if_its_worker_selects_spark_connect() -> None:
    connector = IcebergSinkConnector()
    connector.services = FakeSharedServices({}, {**WORKER, "connect_py.spark.remote": "sc://host"})
    [message] = connector.validate(CONNECTOR)["connect_py.spark.remote"].errors
    assert "set connect_py.spark.master to spark://host:port" in message


def test_connector_that_selects_spark_connect_gets_the_catalog_of_its_worker() -> None:
    connector = IcebergSinkConnector()
    connector.services = FakeSharedServices({}, WORKER)
    values = connector.validate(CONNECTOR | {"iceberg.spark.remote": "sc://host"})
    assert len(values["iceberg.spark.remote"].errors) == 1
    assert "Must specify Iceberg catalog properties" not in values["iceberg.catalog"].errors

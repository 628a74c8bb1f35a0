"""Settings that run code on the worker's machine need the worker's leave."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from connectors.iceberg.config.allowed_settings import ALLOWED, refused_settings

REFUSED = {
    "iceberg.spark.driver.extraJavaOptions": "-XX:OnOutOfMemoryError=/bin/sh",
    "iceberg.spark.executor.extraJavaOptions": "-javaagent:x.jar",
    "iceberg.spark.driver.extraClassPath": "x.jar",
    "iceberg.spark.executor.extraClassPath": "x.jar",
    "iceberg.spark.jars": "http://somewhere/x.jar",
    "iceberg.spark.jars.packages": "a:b:c",
    "iceberg.spark.files": "/etc/passwd",
    "iceberg.spark.archives": "x.zip",
    "iceberg.spark.submit.pyFiles": "x.py",
    "iceberg.spark.plugins": "a.B",
    "iceberg.spark.extraListeners": "a.B",
    "iceberg.spark.pyspark.python": "/bin/sh",
    "iceberg.spark.pyspark.driver.python": "/bin/sh",
    "iceberg.spark.python.daemon.module": "x",
    "iceberg.spark.eventLog.dir": "file:///etc",
    "iceberg.spark.local.dir": "/etc",
    "iceberg.spark.sql.extensions": "a.B",
    "iceberg.spark.sql.queryExecutionListeners": "a.B",
    "iceberg.spark.sql.warehouse.dir": "/etc",
    "iceberg.spark.sql.catalog.other": "a.B",
    "iceberg.spark.sql.catalog.lake.io-impl": "a.B",
    "iceberg.spark.sql.parquet.output.committer.class": "a.B",
    "iceberg.spark.sql.sources.outputCommitterClass.factory": "a.B",
    "iceberg.spark.metrics.conf": "/etc/x",
    "iceberg.spark.shuffle.manager.class": "a.B",
    "iceberg.spark.hadoop.fs.x.impl": "a.B",
    "iceberg.spark.spark.jars": "x.jar",
    "iceberg.catalog.catalog-impl": "a.B",
    "iceberg.catalog.io-impl": "a.B",
    "iceberg.catalog.metrics-reporter-impl": "a.B",
    "iceberg.catalog.client.factory": "a.B",
    "iceberg.catalog.uri": "jdbc:postgresql://db/x?socketFactory=a.B&socketFactoryArg=http://x",
    "iceberg.hadoop.fs.x.impl": "a.B",
}
ALLOWED_ALWAYS = {
    "iceberg.spark.master": "spark://host:7077",
    "iceberg.spark.driver.memory": "2g",
    "iceberg.spark.executor.memory": "2g",
    "iceberg.spark.cores.max": "2",
    "iceberg.spark.sql.shuffle.partitions": "8",
    "iceberg.spark.sql.autoBroadcastJoinThreshold": "-1",
    "iceberg.spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "iceberg.spark.sql.catalog.lake.uri": "http://rest",
    "iceberg.spark.hadoop.fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "iceberg.spark.dynamicAllocation.enabled": "true",
    "iceberg.spark.authenticate": "true",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog",
    "iceberg.catalog.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "iceberg.catalog.uri": "jdbc:postgresql://db/x?ssl=true",
    "iceberg.hadoop.fs.defaultFS": "hdfs://x",
    "iceberg.tables": "a.b",
}


def nothing(prefix: str) -> Mapping[str, str]:
    return {}


@pytest.mark.parametrize("key", REFUSED)
def test_setting_that_may_run_code_is_refused_by_its_key(key: str) -> None:
    [(refused, why)] = refused_settings({key: REFUSED[key]}, nothing)
    assert refused == key
    assert ALLOWED in why


@pytest.mark.parametrize("key", ALLOWED_ALWAYS)
def test_setting_that_only_tunes_is_always_accepted(key: str) -> None:
    assert list(refused_settings({key: ALLOWED_ALWAYS[key]}, nothing)) == []


def test_worker_allows_what_its_property_names() -> None:
    def settings(prefix: str) -> Mapping[str, str]:
        return {ALLOWED: "iceberg.spark.jars, iceberg.catalog.*"}

    props = {
        "iceberg.spark.jars": "x.jar",
        "iceberg.catalog.io-impl": "a.B",
        "iceberg.spark.files": "x",
    }
    assert [key for key, _ in refused_settings(props, settings)] == ["iceberg.spark.files"]

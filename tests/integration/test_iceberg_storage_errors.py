"""What users get wrong about S3 is said in words that help, with the setting to look at or the command to run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from iceberg_commit import ORDERS_SCHEMA
from s3_server import S3Server, s3_server

from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.spark_environment import JARS_VARIABLE
from connectors.iceberg.spark.catalog import TableCatalog
from connectors.iceberg.spark.errors import CatalogUnavailableError, SparkLostError
from connectors.iceberg.spark.session import SparkConfig, SparkDriver


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def jars(spark_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """S3's library beside those of the session."""
    first = JarLock.shipped("spark").resolve()
    monkeypatch.setenv(JARS_VARIABLE, os.pathsep.join(map(str, [*first, *JarLock.shipped("s3").resolve()])))


def _create(folder: Path, **properties: str) -> None:
    """Make a table in a catalog with these properties, dots and dashes as they are."""
    settings = {
        "type": "jdbc", "uri": f"jdbc:sqlite:{folder}/catalog.db", "warehouse": "s3://lake/orders", **properties,
    }  # fmt: skip
    with SparkDriver(SparkConfig("lake", settings, quick_jvm=True), log_path=folder / "spark.log") as driver:
        TableCatalog(driver).create("shop.orders", json.dumps(json.loads(ORDERS_SCHEMA)))


def test_without_the_library_for_s3_the_one_command_is_named(
    tmp_path: Path, s3: S3Server, spark_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, os.pathsep.join(map(str, JarLock.shipped("spark").resolve())))
    with pytest.raises(SparkLostError, match="run `connect-py jars s3` on each worker"):
        _create(tmp_path, **s3.settings())


@pytest.mark.usefixtures("jars")
def test_a_key_that_the_storage_refuses_is_told_with_the_setting_to_look_at(tmp_path: Path, s3: S3Server) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"refuses the credentials: see iceberg\.catalog\.s3\.\*: .* 403"):
        _create(tmp_path, **s3.settings(key="somebody-else"))


@pytest.mark.usefixtures("jars")
def test_a_bucket_that_does_not_exist_is_told_with_the_setting_to_look_at(tmp_path: Path, s3: S3Server) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"see iceberg\.catalog\.warehouse, .*bucket does not exist"):
        _create(tmp_path, **{**s3.settings(), "warehouse": "s3://nobodys-bucket/orders"})


@pytest.mark.long  # Amazon's library tries six times
@pytest.mark.usefixtures("jars")
def test_an_endpoint_where_nobody_listens_is_told_with_its_address(tmp_path: Path, s3: S3Server) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"127\.0\.0\.1:9 .*Connection refused"):
        _create(tmp_path, **{**s3.settings(), "s3.endpoint": "http://127.0.0.1:9"})

"""Common mistakes with S3 are reported with the setting to check or the command to run."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from iceberg_commit import ORDERS_SCHEMA
from iceberg_staging_rows import table
from s3_server import BUCKET, S3Server, s3_server
from worker_process import free_port

from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.spark_environment import JARS_VARIABLE
from connect_py.testing import FakeSharedServices
from connectors.iceberg.config.spark_config import SparkConfig
from connectors.iceberg.config.storage_settings import file_io_properties
from connectors.iceberg.driver.lake_client import LakeClient
from connectors.iceberg.errors import CatalogUnavailableError, SparkLostError
from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.staging.staged_file_name import table_digits

pytestmark = pytest.mark.timeout(400)  # a JVM each, on a crowded machine
AWAY_SECONDS = 3.0  # Arrow's own attempts would be over
SECONDS = 100.0


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def jars(spark_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Add S3's library to the session's jars."""
    first = JarLock.shipped("spark").resolve()
    monkeypatch.setenv(
        JARS_VARIABLE, os.pathsep.join(map(str, [*first, *JarLock.shipped("s3").resolve()]))
    )


@contextmanager
def _lake(settings: Mapping[str, str]) -> Iterator[LakeClient]:
    with FakeSharedServices() as services:
        lake = LakeClient(services, SparkConfig("lake", settings))
        lake.start()
        yield lake
        lake.stop()


def _create(folder: Path, **properties: str) -> None:
    """Make a table in a SQLite catalog, these properties on top."""
    settings = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": "s3://lake/orders",
        **properties,
    }
    with _lake(settings) as lake:
        lake.create("shop.orders", ORDERS_SCHEMA)


@pytest.mark.long  # in every run: test_refused_storage_credentials_error_names_the_setting_to_check
def test_without_the_library_for_s3_the_one_command_is_named(
    tmp_path: Path,
    s3: S3Server,
    spark_environment: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, os.pathsep.join(map(str, JarLock.shipped("spark").resolve())))
    with pytest.raises(SparkLostError, match="run `connect-py jars s3` on each worker"):
        _create(tmp_path, **s3.settings())


@pytest.mark.usefixtures("jars")
def test_refused_storage_credentials_error_names_the_setting_to_check(
    tmp_path: Path, s3: S3Server
) -> None:
    with pytest.raises(
        CatalogUnavailableError,
        match=r"refuses the credentials, see iceberg\.catalog\.s3\.\*: .* 403",
    ):
        _create(tmp_path, **s3.settings(key="somebody-else"))


@pytest.mark.long  # in every run: test_refused_storage_credentials_error_names_the_setting_to_check
@pytest.mark.usefixtures("jars")
def test_missing_bucket_error_names_the_setting_to_check(tmp_path: Path, s3: S3Server) -> None:
    with pytest.raises(
        CatalogUnavailableError, match=r"see iceberg\.catalog\.warehouse, .*bucket does not exist"
    ):
        _create(tmp_path, **{**s3.settings(), "warehouse": "s3://nobodys-bucket/orders"})


@pytest.mark.long  # in every run: test_cleanup_keeps_files_of_a_renamed_table_in_the_folder
@pytest.mark.usefixtures("jars")
def test_cleanup_keeps_a_folder_that_shares_the_table_prefix(tmp_path: Path, s3: S3Server) -> None:
    settings = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": f"s3://{BUCKET}",
        **s3.settings(),
    }
    with _lake(settings) as catalog:
        data = f"s3://{BUCKET}/data/orders"
        catalog.create("shop.orders", ORDERS_SCHEMA, None, {"write.data.path": data})
        described = catalog.load("shop.orders", "none").description
        name = f"connect-orders-7-a1.{table_digits(described.uuid)}.left.parquet"
        for place in (data, f"{data}_eu"):
            output = FileOutput(dataclasses.replace(described, data_location=place), {})
            output.write(name, pa.table({"n": [1]}))
        assert catalog.remove_files("shop.orders", described.uuid, "connect-orders-", 8) == 1
    assert s3.files("data") == [f"{BUCKET}/data/orders_eu/{name}"]


def test_file_write_survives_storage_that_is_unavailable_for_seconds(tmp_path: Path) -> None:
    port = free_port()
    settings = S3Server(f"http://127.0.0.1:{port}").settings()
    made = table([("n", "long")], folder=tmp_path)
    place = f"s3://{BUCKET}/orders"
    description = dataclasses.replace(
        made,
        location=place,
        data_location=f"{place}/data",
        io_properties=file_io_properties(settings),
    )
    rows = pa.table({"n": pa.array(range(1000), pa.int64())})
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(FileOutput(description, {}).write, "late.parquet", rows)
        assert not wait([written], AWAY_SECONDS).done
        with s3_server(port) as server:
            uri, size = written.result(SECONDS)
            assert server.files("orders") == [f"{BUCKET}/orders/data/late.parquet"]
    assert uri == f"{place}/data/late.parquet"
    assert size > 0


@pytest.mark.long  # Amazon's library tries six times
@pytest.mark.usefixtures("jars")
def test_an_endpoint_where_nobody_listens_is_told_with_its_address(
    tmp_path: Path, s3: S3Server
) -> None:
    with pytest.raises(CatalogUnavailableError, match=r"127\.0\.0\.1:9 .*Connection refused"):
        _create(tmp_path, **{**s3.settings(), "s3.endpoint": "http://127.0.0.1:9"})

"""Storage settings of Java's file IO work in tasks, which write with PyIceberg."""

from __future__ import annotations

from pyiceberg.io import S3_RETRY_STRATEGY_IMPL, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from connectors.iceberg.config.storage_settings import (
    PATIENT_RETRIES,
    credentials_expiry_ms,
    file_io_properties,
)
from connectors.iceberg.staging.s3_retry_strategy import ATTEMPTS, PatientRetries

ENDPOINT = {"s3.endpoint": "http://127.0.0.1:9", "client.region": "eu-central-1"}


def told(properties: dict[str, str], environment: dict[str, str] | None = None) -> dict[str, str]:
    found = file_io_properties(properties, environment or {})
    assert found.pop(S3_RETRY_STRATEGY_IMPL) == PATIENT_RETRIES
    return found


def test_a_catalogs_own_secrets_are_not_the_storages() -> None:
    assert told(
        {"token": "x", "credential": "a:b", "jdbc.password": "c", "uri": "d", "client.region": "e"}
    ) == {"client.region": "e"}


def test_endpoint_uses_virtual_host_addressing_unless_path_style_is_set() -> None:
    assert "s3.force-virtual-addressing" not in told({**ENDPOINT, "s3.path-style-access": "true"})
    assert told(ENDPOINT)["s3.force-virtual-addressing"] == "true"  # Java's default
    assert "s3.force-virtual-addressing" not in told({"client.region": "eu-central-1"})


def test_nobody_asks_amazon_for_the_region_of_storage_elsewhere() -> None:
    endpoint = {"s3.endpoint": "http://127.0.0.1:9"}
    assert told(endpoint)["s3.region"] == "us-east-1"
    assert told(endpoint, {"AWS_REGION": "eu-west-1"})["s3.region"] == "eu-west-1"
    assert "s3.region" not in told(ENDPOINT)


def test_a_role_to_assume_has_another_name_in_python() -> None:
    found = told(
        {"client.assume-role.arn": "arn:aws:iam::1:role/sink", "client.region": "eu-west-1"}
    )
    assert found["client.role-arn"] == "arn:aws:iam::1:role/sink"


def test_pyiceberg_makes_the_retries_by_their_name() -> None:
    made = load_file_io(
        file_io_properties({**ENDPOINT, "s3.access-key-id": "a", "s3.secret-access-key": "b"}),
        "s3://lake",
    )
    assert isinstance(made, PyArrowFileIO)
    assert made.fs_by_scheme("s3", "lake").type_name == "s3"
    assert PatientRetries().max_attempts == ATTEMPTS


def test_lent_keys_end_with_the_first_of_them() -> None:
    assert (
        credentials_expiry_ms(
            {"s3.session-token-expires-at-ms": "2000", "gcs.oauth2.token-expires-at": "1000"}
        )
        == 1000
    )
    assert (
        credentials_expiry_ms({"s3.session-token-expires-at-ms": "soon", "s3.session-token": "5"})
        is None
    )

"""Keys and parts of URLs that are secret in plans, pages, and logs."""

from __future__ import annotations

import pytest

from connect_py.api.secret_keys import SECRET_KEY
from connect_py.secret_mask import SecretMask
from connectors.iceberg.dead_letters.dead_letter_rows import config_hash
from connectors.iceberg_tools.pipeline.connector_plan import HIDDEN, to_display

VALUE = "c2VjcmV0"
SECRET_KEYS = (
    "iceberg.catalog.adls.auth.shared-key.account.key",
    "iceberg.catalog.adls.account-key",
    "iceberg.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    "iceberg.catalog.adls.connection-string.lake",
    "iceberg.catalog.adls.sas-token.lake",
    "iceberg.hadoop.fs.azure.sas.fixed.token.lake",
    "iceberg.catalog.header.Authorization",
    "iceberg.catalog.header.X-Api-Key",
    "iceberg.catalog.gcs.decryption-key",
    "iceberg.catalog.s3.access-key-id",
    "iceberg.catalog.s3.sse.key",
    "iceberg.hadoop.fs.s3a.access.key",
    "iceberg.hadoop.fs.s3a.secret.key",
    "iceberg.ext.openlineage.api-key",
    "database.password",
    "value.converter.basic.auth.user.info",
    "value.converter.schema.registry.ssl.keystore.key",
)
HARMLESS_KEYS = (
    "key.converter",
    "key.converter.schema.registry.url",
    "message.key.columns",
    "transforms.x.key.field",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "iceberg.tables.default-id-columns",
    "iceberg.table.db.orders.id-columns",
    "iceberg.ext.key-source",
    "iceberg.ext.cycle-aggregate.shop.account.keys",
    "iceberg.ext.null-key",
    "iceberg.catalog.adls.auth.shared-key.account.name",
    "iceberg.catalog.s3.sse.type",
    "iceberg.hadoop.fs.azure.account.auth.type",
    "iceberg.hadoop.fs.azure.account.keyprovider.lake.dfs.core.windows.net",
    "iceberg.tables.auto-create-props.encryption.key-id",
)
SECRET_PARTS = (
    "https://lake/x?api_key={}&y=1",
    "https://lake/x?y=1&key={}",
    "https://lake.blob.core.windows.net/x?sv=2024&sig={}&se=1",
    "https://lake/x?access_token={}",
    "https://lake/x?X-Amz-Date=1&X-Amz-Signature={}",
    "jdbc:postgresql://me@db/x?user=me&password={}",
    "https://me:{}@lake/x",
    "DefaultEndpointsProtocol=https://x;AccountName=lake;AccountKey={};EndpointSuffix=y",
    "AccountName=lake;AccountKey={};EndpointSuffix=y",
    "AccountKey={};AccountName=lake",
    "password={}",
)
HARMLESS_URLS = (
    "https://lake/x?keys=a&primary_key=id&design=b&keyspace=c",
    "jdbc:mysql://db/x?allowPublicKeyRetrieval=true&passwordCharacterEncoding=UTF-8",
    "http://host:8083/a@b",
    "key=5",
)


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_value_of_a_secret_key_is_hidden_everywhere(key: str) -> None:
    assert to_display(key, VALUE) == HIDDEN
    assert config_hash({key: VALUE}) == config_hash({})


@pytest.mark.parametrize("key", HARMLESS_KEYS)
def test_keys_that_only_sound_like_secrets_are_shown(key: str) -> None:
    assert SECRET_KEY.search(key) is None
    assert to_display(key, VALUE) == VALUE


@pytest.mark.parametrize("value", SECRET_PARTS)
@pytest.mark.parametrize("secret", [VALUE, "a'b", "abc=="])
def test_secret_parts_of_urls_are_hidden_in_texts(value: str, secret: str) -> None:
    for text in (value, f"'{value}' is refused"):
        expected = text.format(HIDDEN)
        assert to_display("iceberg.catalog.uri", text.format(secret)) == expected
        assert SecretMask().apply(text.format(secret)) == expected


@pytest.mark.parametrize("value", HARMLESS_URLS)
def test_harmless_parts_of_urls_are_shown_as_written(value: str) -> None:
    assert to_display("iceberg.catalog.uri", value) == value

"""The options of the converters with a schema registry, one by one, against a registry on a
loopback port."""

from __future__ import annotations

import base64
import json
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from fixtures.both_forms import agree
from fixtures.schema_registry_stub import Stub, directly, schema_registry
from kafka_security import token_endpoint
from rest_certificates import Authority, jks_store, jks_trust_store, pkcs12_store

from connect_py.api.errors import ConfigError, DataError, NotColumnar, UnavailableError
from connect_py.api.record import MutableHeaders
from connect_py.api.schema import (
    INT32,
    OPTIONAL_STRING,
    STRING,
    Schema,
    Struct,
    Type,
    map_of,
    struct,
)
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter
from connect_py.converters.registry.registry_converter import RegistryConverter
from connect_py.converters.registry.schema_registry import (
    PATIENCE_SECONDS,
    UNKNOWN_ID_GRACE_SECONDS,
    SchemaRegistry,
)
from connect_py.tls.tls_context import server_context

CONVERTERS: dict[str, type[RegistryConverter]] = {
    "avro": AvroConverter,
    "json": JsonSchemaConverter,
    "protobuf": ProtobufConverter,
}
PASSWORD = "store-password"
ROW = struct(("id", INT32), ("note", OPTIONAL_STRING), name="shop.Row")
VALUE = Struct(ROW, [7, "x"])
GIVEN = {"auto.register.schemas": "false"}
Make = Callable[..., RegistryConverter]


@pytest.fixture
def registry() -> Iterator[Stub]:
    with schema_registry({1: {"schema": '"int"'}}) as stub:
        yield stub


@pytest.fixture
def make(registry: Stub) -> Iterator[Make]:
    opened: list[RegistryConverter] = []

    def made(format: str = "avro", **configs: str) -> RegistryConverter:  # noqa: A002 - Connect's word
        converter = CONVERTERS[format]()
        converter.configure({"schema.registry.url": registry.url, **configs}, is_key=False)
        opened.append(converter)
        return converter

    yield made
    for each in opened:
        each.close()


def number(converter: RegistryConverter) -> Any:
    """Convert a message of schema 1."""
    return converter.to_connect("t", b"\0\0\0\0\1\x0a").value


# --- who asks


@pytest.mark.parametrize(
    ("configs", "user"),
    [
        ({"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "u:p:q"}, "u:p:q"),
        (
            {
                "basic.auth.credentials.source": "USER_INFO",
                "schema.registry.basic.auth.user.info": "u:p",
            },
            "u:p",
        ),
        (
            {
                "basic.auth.credentials.source": "SASL_INHERIT",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
                'required username="u" password="p";',
            },
            "u:p",
        ),
    ],
)
def test_users_and_passwords_come_from_where_it_says(
    registry: Stub, make: Make, configs: dict[str, str], user: str
) -> None:
    assert number(make(**configs)) == 5
    assert registry.seen["authorization"] == "Basic " + base64.b64encode(user.encode()).decode()


def test_a_user_may_stand_in_the_url(registry: Stub, make: Make) -> None:
    assert number(make(**{"schema.registry.url": registry.url.replace("//", "//u:p%40q@")})) == 5
    assert registry.seen["authorization"] == "Basic " + base64.b64encode(b"u:p@q").decode()


def test_a_static_token_and_headers_go_with_each_request(registry: Stub, make: Make) -> None:
    token = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "secret"}
    assert number(make(**token, **{"request.header.X-Tenant": "blue"})) == 5
    assert (registry.seen["authorization"], registry.seen["x-tenant"]) == ("Bearer secret", "blue")
    assert "target-sr-cluster" not in registry.seen
    assert (
        number(
            make(
                **token,
                **{"bearer.auth.logical.cluster": "lsrc-1", "bearer.auth.identity.pool.id": "p"},
            )
        )
        == 5
    )
    assert registry.seen["target-sr-cluster"] == "lsrc-1"
    assert registry.seen["confluent-identity-pool-id"] == "p"


@pytest.mark.parametrize("source", ["OAUTHBEARER", "SASL_OAUTHBEARER_INHERIT"])
def test_bearer_token_is_fetched_from_the_configured_token_endpoint(
    registry: Stub, make: Make, source: str
) -> None:
    with token_endpoint("me", "mine") as address:
        configs = (
            {
                "bearer.auth.client.id": "me",
                "bearer.auth.client.secret": "mine",
                "bearer.auth.issuer.endpoint.url": address,
            }
            if source == "OAUTHBEARER"
            else {
                "sasl.oauthbearer.token.endpoint.url": address,
                "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "  # noqa: E501 - one literal
                "required"
                ' clientId="me" clientSecret="mine";',
            }
        )
        assert number(make(**configs, **{"bearer.auth.credentials.source": source})) == 5
    assert registry.seen["authorization"].startswith("Bearer ")


@pytest.mark.parametrize(
    "url",
    [
        "alice:s3cret@host",
        "host, alice:s3cret@h",
        "alice:s3cret@host:8081",
        "http://h:s3cret",
        "http://[s3cret]",
    ],
)
def test_an_address_that_is_refused_is_not_shown(make: Make, url: str) -> None:
    with pytest.raises(ConfigError, match="begin with http") as refused:
        make(**{"schema.registry.url": url})
    assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize(
    ("configs", "key"),
    [
        ({"schema.registry.url": "mock://scope"}, "schema.registry.url"),
        ({"schema.registry.url": "ftp://x"}, "schema.registry.url"),
        ({"basic.auth.credentials.source": "MINE"}, "basic.auth.credentials.source"),
        (
            {"basic.auth.credentials.source": "SASL_INHERIT", "sasl.jaas.config": "a.B required;"},
            "sasl.jaas.config",
        ),
        ({"bearer.auth.credentials.source": "CUSTOM"}, "bearer.auth.credentials.source"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "bearer.auth.token"),
        ({"bearer.auth.credentials.source": "OAUTHBEARER"}, "bearer.auth.issuer.endpoint.url"),
        ({"value.subject.name.strategy": "Mine"}, "value.subject.name.strategy"),
        ({"value.schema.id.serializer": "Mine"}, "value.schema.id.serializer"),
        ({"value.schema.id.deserializer": "Mine"}, "value.schema.id.deserializer"),
        ({"context.name.strategy": "Mine"}, "context.name.strategy"),
        (
            {"subject.name.strategy.fallback.type": "ASSOCIATED"},
            "subject.name.strategy.fallback.type",
        ),
        ({"use.latest.with.metadata": "a"}, "use.latest.with.metadata"),
        ({"use.schema.guid": "a"}, "use.schema.guid"),
        ({"schema.backup.enabled": "true"}, "schema.backup.enabled"),
        (
            {"schema.registry.ssl.truststore.location": "/no/such"},
            "schema.registry.ssl.truststore.location",
        ),
    ],
)
@pytest.mark.parametrize("format", CONVERTERS)
def test_settings_that_cannot_be_kept_are_refused_by_name(
    make: Make,
    format: str,  # noqa: A002 - Connect's word
    configs: dict[str, str],
    key: str,
) -> None:
    with pytest.raises(ConfigError) as caught:
        make(format, **configs)
    assert caught.value.key == key


# --- TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
def secure(authority: Authority, tmp_path: Path) -> Iterator[Stub]:
    """A registry that asks for certificates of the authority."""
    key, chain = authority.issue("registry")
    context = server_context(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": key,
            "ssl.keystore.certificate.chain": chain,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": authority.certificate_pem,
            "ssl.client.auth": "required",
        }
    )
    with schema_registry({1: {"schema": '"int"'}}, context) as stub:
        yield stub


def trust(authority: Authority, kind: str, folder: Path) -> dict[str, str]:
    prefix = "schema.registry.ssl.truststore"
    if kind == "PEM":
        return {f"{prefix}.type": "PEM", f"{prefix}.certificates": authority.certificate_pem}
    file = folder / "trusted"
    if kind == "JKS":
        file.write_bytes(jks_trust_store(authority.certificate_pem, PASSWORD))
    else:
        encryption = BestAvailableEncryption(PASSWORD.encode())
        file.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"ca", None, None, [authority.certificate], encryption
            )
        )
    return {f"{prefix}.location": str(file), f"{prefix}.password": PASSWORD, f"{prefix}.type": kind}


def own(authority: Authority, kind: str, folder: Path) -> dict[str, str]:
    prefix = "schema.registry.ssl"
    key, chain = authority.issue("converter")
    if kind == "PEM":
        return {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.key": key,
            f"{prefix}.keystore.certificate.chain": chain,
        }
    file = folder / "own"
    file.write_bytes((jks_store if kind == "JKS" else pkcs12_store)(key, chain, PASSWORD))
    return {
        f"{prefix}.keystore.location": str(file),
        f"{prefix}.keystore.password": PASSWORD,
        f"{prefix}.keystore.type": kind,
        f"{prefix}.key.password": PASSWORD,
    }


@pytest.mark.parametrize("kind", ["PEM", "JKS", "PKCS12"])
def test_keys_and_authorities_come_from_javas_stores(
    secure: Stub, make: Make, authority: Authority, tmp_path: Path, kind: str
) -> None:
    stores = {**trust(authority, kind, tmp_path), **own(authority, kind, tmp_path)}
    made = make(**{"schema.registry.url": secure.url, **stores, "request.header.X-Tenant": "blue"})
    assert number(made) == 5
    assert secure.seen["x-tenant"] == "blue"


def test_a_registry_that_nobody_vouches_for_is_not_asked(
    secure: Stub, make: Make, authority: Authority, tmp_path: Path
) -> None:
    stranger = {**trust(Authority.make(), "JKS", tmp_path), **own(authority, "PEM", tmp_path)}
    with pytest.raises(UnavailableError, match="certificate"):
        number(make(**{"schema.registry.url": secure.url, **stranger}))


def test_host_names_are_checked_unless_told_otherwise(
    make: Make, authority: Authority, tmp_path: Path
) -> None:
    stores = trust(authority, "PEM", tmp_path)
    assert make(**stores)._registry._client._rest_client.verify.check_hostname
    told = make(**stores, **{"schema.registry.ssl.endpoint.identification.algorithm": ""})
    assert not told._registry._client._rest_client.verify.check_hostname


# --- several servers, and caching


@pytest.mark.parametrize("randomize", ["true", "false"])
def test_a_server_that_is_away_is_passed_over(registry: Stub, make: Make, randomize: str) -> None:
    with schema_registry({}) as other:
        other.down = 503
        urls = f"http://127.0.0.1:1, {other.url}, {registry.url}"
        assert number(make(**{"schema.registry.url": urls, "url.randomize": randomize})) == 5


def test_latest_schema_version_is_requested_again_after_its_cache_expires(
    registry: Stub, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = {**GIVEN, "use.latest.version": "true"}
    make("json").from_connect("t", ROW, VALUE)
    for seconds, asks in (("0", 3), ("1000", 1), ("-1", 1)):
        writing = make("json", **latest, **{"latest.cache.ttl.sec": seconds})
        registry.calls.clear()
        for _ in range(3):
            writing.from_connect("t", ROW, VALUE)
        assert len([call for call in registry.calls if call.endswith("/versions/latest")]) == asks


def test_no_more_schemas_are_kept_than_told(registry: Stub, make: Make) -> None:
    registry.schemas[2] = {"schema": '"long"'}
    made = make(**{"schemas.cache.config": "1"})
    for _ in range(2):
        assert number(made) == made.to_connect("t", b"\0\0\0\0\2\x0a").value == 5
    assert len(made._readers) == 1


def test_no_more_guids_are_kept_than_told(registry: Stub, make: Make) -> None:
    names = [b"\1" + uuid.UUID(int=number).bytes for number in range(1, 4)]
    for number, type_ in enumerate(("int", "long", "string"), 1):
        registry.schemas[number] = {"schema": f'"{type_}"', "guid": str(uuid.UUID(int=number))}
    made = make(**{"schemas.cache.config": "2"})

    def read(*places: int) -> list[Any]:
        runs = made.to_batch(
            "t", [b"\x02a"] * len(places), [[("__value_schema_id", names[at])] for at in places]
        )
        assert not any(run.failures for run in runs)
        return [value for run in runs for value in run.column.data.to_pylist()]

    for _ in range(2):
        assert (read(0, 1), read(2), read(1, 2), read(1, 0, 1)) == (
            [1, 1],
            ["a"],
            [1, "a"],
            [1, 1, 1],
        )
        with pytest.raises(NotColumnar):
            read(0, 1, 2)
    assert (len(made._guids), len(made._substitutes)) == (2, 2)


def test_no_more_answers_about_written_schemas_are_kept_than_told(
    registry: Stub, make: Make
) -> None:
    made = make(**{"schemas.cache.config": "2"})
    for _ in range(2):
        for topic in "abc":
            assert made.from_connect(topic, ROW, VALUE) is not None
    assert len(made._ids._registered) == 2


def test_unknown_schema_ids_are_waited_for_and_requested_only_once(registry: Stub) -> None:
    now = [0.0]
    known = SchemaRegistry({"schema.registry.url": registry.url}, monotonic=lambda: now[0])
    with pytest.raises(UnavailableError):
        known.by_id(1000)
    now[0] += UNKNOWN_ID_GRACE_SECONDS
    # the others are not waited for: the registry lags behind nobody
    for schema_id in (1000, 1001, 1002):
        with pytest.raises(DataError):
            known.by_id(schema_id)
    registry.calls.clear()
    for schema_id in (1000, 1001, 1002):
        with pytest.raises(DataError):
            known.by_id(schema_id)
    assert registry.calls == []
    registry.schemas[1001] = {"schema": '"int"'}
    now[0] += PATIENCE_SECONDS
    assert known.by_id(1001).text == '"int"'
    with pytest.raises(UnavailableError):
        known.by_id(1003)
    known.close()


def test_who_may_not_ask_is_refused_at_once(registry: Stub, make: Make) -> None:
    registry.down = 401
    with pytest.raises(DataError) as caught:
        number(make())
    assert "401" in str(caught.value.__cause__)


def test_schemas_with_active_read_rules_are_refused_naming_the_rule(
    registry: Stub, make: Make
) -> None:
    def rule(mode: str, **more: Any) -> dict[str, Any]:
        return {
            "name": f"rule-{mode}",
            "kind": "TRANSFORM",
            "mode": mode,
            "type": "ENCRYPT",
            **more,
        }

    for mode, refused in (
        ("WRITEREAD", True),
        ("READ", True),
        ("WRITE", False),
        ("UPGRADE", False),
    ):
        registry.schemas[1] = {"schema": '"int"', "ruleSet": {"domainRules": [rule(mode)]}}
        made = make()
        if refused:
            with pytest.raises(DataError) as caught:
                number(made)
            assert f"rule-{mode}" in str(caught.value.__cause__)
        else:
            assert number(made) == 5
    registry.schemas[1] = {
        "schema": '"int"',
        "ruleSet": {"domainRules": [rule("READ", disabled=True)]},
    }
    assert number(make()) == 5


# --- schemas for written messages


@pytest.mark.parametrize("guids", [True, False])
@pytest.mark.parametrize("format", CONVERTERS)
def test_a_schema_may_be_named_in_a_header(
    registry: Stub,
    make: Make,
    format: str,  # noqa: A002 - Connect's word
    guids: bool,
) -> None:
    registry.has_guids = guids
    writing = make(
        format, **{"value.schema.id.serializer": "io.confluent.HeaderSchemaIdSerializer"}
    )
    headers: MutableHeaders = [("__value_schema_id", b"an older one"), ("mine", b"1")]
    body = writing.from_connect("t", ROW, VALUE, headers)
    assert headers[0] == ("mine", b"1")
    ((name, head),) = headers[1:]
    assert name == "__value_schema_id"
    assert head is not None
    assert head[0] == guids
    assert body
    assert body[:1] != b"\0"
    assert plain(make(format).to_connect("t", body, headers).value) == [7, "x"]
    strict = make(format, **{"value.schema.id.deserializer": "PrefixSchemaIdDeserializer"})
    with pytest.raises(DataError):
        strict.to_connect("t", body, headers)
    with pytest.raises(DataError, match="header"):
        writing.from_connect("t", ROW, VALUE)


@pytest.mark.parametrize("guids", [True, False])
@pytest.mark.parametrize("format", CONVERTERS)
def test_messages_whose_schemas_are_named_in_headers_are_columns(
    registry: Stub,
    make: Make,
    format: str,  # noqa: A002 - Connect's word
    guids: bool,
) -> None:
    registry.has_guids = guids
    writing = make(format, **{"value.schema.id.serializer": "HeaderSchemaIdSerializer"})
    other = struct(("id", INT32), name="shop.Other")
    poll: list[tuple[bytes | None, MutableHeaders]] = []
    for row in [*[VALUE] * 30, None, *[Struct(other, [1])] * 30, VALUE, None]:
        headers: MutableHeaders = []
        poll.append(
            (writing.from_connect("t", None if row is None else row.schema, row, headers), headers)
        )
    poll.append((b"\0\xff\xff\xff\xff", [("__value_schema_id", poll[0][1][0][1])]))  # damaged
    poll.append((make(format).from_connect("t", ROW, VALUE), []))  # in front, as before
    reading = directly(make(format), registry, grace_seconds=0.0)
    assert agree(reading, poll)
    (_, head), *_ = poll[0][1]
    assert not agree(reading, [*poll, (b"x", [("__value_schema_id", (head or b"") + b"\7")])])
    assert not agree(reading, [*poll, (b"\0\xff\0\0\0", [])])


def plain(row: Any) -> list[Any]:
    return list(row.values)


WIDER = {
    "avro": {
        "type": "record",
        "name": "Row",
        "namespace": "shop",
        "fields": [
            {"name": "more", "type": "string", "default": "d"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "id", "type": "long"},
        ],
    },
    "json": {
        "type": "object",
        "title": "shop.Row",
        "properties": {
            "more": {"type": "string"},
            "note": {"type": ["null", "string"]},
            "id": {"type": "integer"},
        },
    },
    "protobuf": 'syntax = "proto3"; package shop; message Other { string x = 1; }'
    " message Row { string more = 1; optional string note = 2; int64 id = 3; }",
}


def offer(registry: Stub, format: str, schema: Any = None, **more: Any) -> int:  # noqa: A002 - Connect's word
    """Register another form of the row under the topic's subject, with members in another order and
    one more."""
    schema = WIDER[format] if schema is None else schema
    text = schema if isinstance(schema, str) else json.dumps(schema)
    schema_id = 1 + max(registry.schemas)
    place = {"subject": "t-value", "version": schema_id}
    kind = {"schemaType": CONVERTERS[format].kind}
    registry.schemas[schema_id] = {"schema": text, "subjects": [place], **kind, **more}
    return schema_id


GUID = str(uuid.UUID(int=99))


@pytest.mark.parametrize(
    "which", ["use.latest.version", "use.schema.id", "use.schema.guid", "use.latest.with.metadata"]
)
@pytest.mark.parametrize("format", CONVERTERS)
def test_values_are_written_by_the_schema_that_is_asked_for(
    registry: Stub,
    make: Make,
    format: str,  # noqa: A002 - Connect's word
    which: str,
) -> None:
    schema_id = offer(registry, format, guid=GUID, metadata={"major": "1"})
    if which != "use.latest.version":
        offer(registry, format, schema='"int"', metadata={"major": "2"})
    answers = {
        "use.latest.version": "true",
        "use.schema.id": str(schema_id),
        "use.schema.guid": GUID,
    }
    writing = make(format, **GIVEN, **{which: answers.get(which, "major=1")})
    data = writing.from_connect("t", ROW, VALUE)
    assert data is not None
    named = (
        b"\1" + uuid.UUID(GUID).bytes
        if which == "use.schema.guid"
        else b"\0" + schema_id.to_bytes(4, "big")
    )
    assert data.startswith(named)
    read = make(format).to_connect("t", data).value
    assert {field.name: value for field, value in read} == {
        "more": {"avro": "d", "json": None, "protobuf": ""}[format],
        "note": "x",
        "id": 7,
    }


@pytest.mark.parametrize("format", CONVERTERS)
def test_values_without_a_place_in_the_latest_version_are_refused(
    registry: Stub,
    make: Make,
    format: str,  # noqa: A002 - Connect's word
) -> None:
    other = {
        "avro": {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "string"}]},
        "json": {"type": "object", "properties": {"id": {"type": "string"}}},
        "protobuf": 'syntax = "proto3"; message Row { string id = 1; }',
    }
    offer(registry, format, other[format])
    with pytest.raises(DataError):
        make(format, **GIVEN, **{"use.latest.version": "true"}).from_connect("t", ROW, VALUE)


def test_json_is_not_checked_when_told_so(registry: Stub, make: Make) -> None:
    offer(registry, "json", {"type": "object", "properties": {"id": {"type": "string"}}})
    lax = make(
        "json", **GIVEN, **{"use.latest.version": "true", "latest.compatibility.strict": "false"}
    )
    assert json.loads((lax.from_connect("t", ROW, VALUE) or b"")[5:]) == {"id": 7, "note": "x"}


@pytest.mark.parametrize("fallback", ["TOPIC", "RECORD", "TOPIC_RECORD", "NONE"])
def test_subjects_may_be_associated_with_topics(registry: Stub, make: Make, fallback: str) -> None:
    registry.associations = {"linked": ["elsewhere"], "twice": ["a", "b"]}
    made = make(
        **{
            "value.subject.name.strategy": "io.confluent.kafka.serializers.subject.AssociatedNameStrategy",  # noqa: E501 - one literal
            "subject.name.strategy.fallback.type": fallback,
        }
    )
    subject = made._ids.subject
    assert subject("linked", "shop.Row") == subject("linked", None) == "elsewhere"
    assert len([call for call in registry.calls if "associations" in call]) == 1
    with pytest.raises(DataError, match="Multiple"):
        subject("twice", None)
    if fallback == "NONE":
        with pytest.raises(DataError, match="No associated subject"):
            subject("free", "shop.Row")
    else:
        expected = {"TOPIC": "free-value", "RECORD": "shop.Row", "TOPIC_RECORD": "free-shop.Row"}
        assert subject("free", "shop.Row") == expected[fallback]


# --- what schemas become


def both_ways(make: Make, schema: Schema, value: Any, format: str = "avro", **configs: str) -> Any:  # noqa: A002
    made = make(format, **configs)
    return made.to_connect("t", made.from_connect("t", schema, value))


ENUM = "io.confluent.connect.avro.Enum"
GENERAL = "org.apache.kafka.connect.data"


def written(registry: Stub) -> Any:
    """The schema that was registered last."""
    return json.loads(registry.schemas[max(registry.schemas)]["schema"])


def test_avro_writes_enums_when_its_support_is_enhanced(registry: Stub, make: Make) -> None:
    color = Schema(
        Type.STRING, name="shop.Color", parameters={ENUM: "shop.Color", f"{ENUM}.RED": "RED"}
    )
    row = struct(("c", color), name="shop.Painted")
    read = both_ways(make, row, Struct(row, ["RED"]), **{"enhanced.avro.schema.support": "true"})
    (field,) = written(registry)["fields"]
    assert field["type"]["type"] == "enum"
    assert read.schema["c"] == color
    again = both_ways(make, row, Struct(row, ["RED"]))
    (field,) = written(registry)["fields"]
    assert field["type"]["type"] == "string"
    assert again.schema["c"] == color


def test_generalized_sums_have_one_form_in_all_formats(registry: Stub, make: Make) -> None:
    general = {"generalized.sum.type.support": "true"}
    registry.schemas[2] = {"schema": json.dumps(["null", "string", "int"])}
    registry.schemas[3] = {
        "schema": json.dumps({"type": "enum", "name": "E", "symbols": ["A", "B"]})
    }
    made = make(**general)
    schema, value = made.to_connect("t", b"\0\0\0\0\2\x04\x0a")
    assert schema is not None
    assert (schema.name, schema.parameters) == (
        "connect_union_0",
        {f"{GENERAL}.Union": "connect_union_0"},
    )
    assert [f.name for f in schema.fields] == ["connect_union_field_1", "connect_union_field_2"]
    assert value.values == [None, 5]
    enum = made.to_connect("t", b"\0\0\0\0\3\x02")
    assert enum.schema is not None
    assert enum.schema.parameters == {
        f"{GENERAL}.Enum": "E",
        f"{GENERAL}.Enum.A": "0",
        f"{GENERAL}.Enum.B": "1",
    }
    row = struct(("u", schema), ("e", enum.schema), name="shop.Sums")
    for format_ in ("avro", "json"):
        read = both_ways(make, row, Struct(row, [value, "B"]), format_, **general)
        assert read.value["u"].values == [None, 5]
        assert read.value["e"] == "B"
        assert f"{GENERAL}.Union" in read.schema["u"].parameters


def test_optional_unions_of_json_are_read_as_they_were_written(make: Make) -> None:
    branches = (("a", OPTIONAL_STRING), ("b", Schema(Type.INT64, optional=True)))
    union = struct(*branches, name="io.confluent.connect.json.OneOf", optional=True)
    row = struct(("u", union), name="shop.Unions")
    for values in (["x", None], [None, 5]):
        assert (
            both_ways(make, row, Struct(row, [Struct(union, values)]), "json").value["u"].values
            == values
        )
    assert both_ways(make, row, Struct(row, [None]), "json").value["u"] is None


def test_unions_of_one_type_may_stay_unions(registry: Stub, make: Make) -> None:
    registry.schemas[2] = {"schema": '["int"]'}
    assert make().to_connect("t", b"\0\0\0\0\2\0\x0a") == (INT32, 5)
    assert make(**{"flatten.singleton.unions": "false"}).to_connect(
        "t", b"\0\0\0\0\2\0\x0a"
    ).value.values == [5]


def test_nulls_are_written_as_their_default_unless_told_otherwise(make: Make) -> None:
    row = struct(("n", Schema(Type.INT32, optional=True, default=9)), name="shop.Defaults")
    assert both_ways(make, row, Struct(row, [None])).value.values == [9]
    kept = both_ways(make, row, Struct(row, [None]), **{"ignore.default.for.nullables": "true"})
    assert kept.value.values == [None]


def test_maps_with_optional_string_keys_become_maps_if_configured(
    registry: Stub, make: Make
) -> None:
    row = struct(("m", map_of(OPTIONAL_STRING, INT32)), name="shop.Maps")
    read = both_ways(make, row, Struct(row, [{"a": 1}]), **{"allow.optional.map.keys": "true"})
    assert written(registry)["fields"][0]["type"]["type"] == "map"
    assert read.schema["m"] == map_of(STRING, INT32)
    assert both_ways(make, row, Struct(row, [{"a": 1}])).value["m"] == {"a": 1}
    assert written(registry)["fields"][0]["type"]["type"] == "array"


def test_fixed_bytes_and_decimals_stay_fixed(registry: Stub, make: Make) -> None:
    fields = [
        {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
        {
            "name": "d",
            "type": {
                "type": "fixed",
                "name": "D",
                "size": 5,
                "logicalType": "decimal",
                "precision": 9,
                "scale": 2,
            },
        },
    ]
    registry.schemas[2] = {
        "schema": json.dumps({"type": "record", "name": "shop.Fixed", "fields": fields})
    }
    body = b"\0\0\0\0\2" + b"ab" + (-123).to_bytes(5, "big", signed=True)
    made = make()
    schema, value = made.to_connect("t", body)
    data = made.from_connect("t", schema, value)
    assert data is not None
    assert data[5:] == body[5:]
    assert [f["type"]["type"] for f in written(registry)["fields"]] == ["fixed", "fixed"]


def test_json_is_checked_before_it_is_sent_when_told_so(make: Make) -> None:
    row = struct(("n", Schema(Type.INT32, default=4)), name="shop.Checked")
    checked = {"json.fail.invalid.schema": "true"}
    assert both_ways(make, row, Struct(row, [1]), "json", **checked).value.values == [1]


def test_modern_dialects_may_count_as_draft_7(registry: Stub, make: Make) -> None:
    modern = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"a": {"type": "array", "prefixItems": [{"type": "string"}], "items": {}}},
    }
    registry.schemas[2] = {"schema": json.dumps(modern), "schemaType": "JSON"}
    checked = {"json.fail.invalid.schema": "true"}
    data = b'\0\0\0\0\2{"a": [1]}'
    with pytest.raises(DataError):
        make("json", **checked).to_connect("t", data)
    assert make("json", **checked, **{"ignore.modern.dialects": "true"}).to_connect(
        "t", data
    ).value["a"] == ["1"]


def test_nullables_are_wrappers_in_protobuf_when_told_so(registry: Stub, make: Make) -> None:
    wrapped = {"wrapper.for.nullables": "true"}
    assert both_ways(make, ROW, VALUE, "protobuf", **wrapped).value.values == [7, "x"]
    assert both_ways(make, ROW, Struct(ROW, [7, None]), "protobuf", **wrapped).value.values == [
        7,
        None,
    ]
    assert (
        "google.protobuf.StringValue note = 2;" in registry.schemas[max(registry.schemas)]["schema"]
    )


def test_absent_messages_of_protobuf_are_empty_ones_when_told_so(
    registry: Stub, make: Make
) -> None:
    text = (
        'syntax = "proto3"; message A { optional int32 n = 1; B b = 2; } message B { string s = '
        "1; }"
    )
    registry.schemas[2] = {"schema": text, "schemaType": "PROTOBUF"}
    assert plain(make("protobuf").to_connect("t", b"\0\0\0\0\2\0").value) == [None, None]
    number_, inner = plain(
        make("protobuf", **{"generate.struct.for.nulls": "true"})
        .to_connect("t", b"\0\0\0\0\2\0")
        .value
    )
    assert (number_, plain(inner)) == (0, [""])

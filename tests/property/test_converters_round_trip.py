"""Converters with a schema registry read the messages that they write, and foreign schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal

import pytest
from fixtures.converter_rows import same
from fixtures.example_counts import examples
from fixtures.schema_registry_stub import Stub, directly, schema_registry
from fixtures.seeded_rows import SeededRows
from hypothesis import given, settings
from hypothesis import strategies as st

from connect_py.api.errors import ConfigError, DataError, UnavailableError
from connect_py.api.schema import (
    INT32,
    OPTIONAL_INT32,
    OPTIONAL_STRING,
    Schema,
    Struct,
    Type,
    Value,
    array,
    date,
    decimal,
    struct,
)
from connect_py.converters.avro.avro_converter import AvroConverter
from connect_py.converters.json_schema.json_schema_converter import JsonSchemaConverter
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter
from connect_py.converters.registry.registry_converter import RegistryConverter

CONVERTERS: dict[str, type[RegistryConverter]] = {
    "avro": AvroConverter,
    "json": JsonSchemaConverter,
    "protobuf": ProtobufConverter,
}
pytestmark = pytest.mark.timeout(240)  # thousands of examples


@pytest.fixture(scope="module")
def registry() -> Iterator[Stub]:
    with schema_registry({}) as stub:
        yield stub


def converter(registry: Stub, format: str, **configs: str) -> RegistryConverter:  # noqa: A002 - Connect's word
    made = CONVERTERS[format]()
    made.configure({"schema.registry.url": registry.url, **configs}, is_key=False)
    return made


def as_read(schema: Schema | None, value: Value, format: str) -> Value:  # noqa: A002 - Connect's word
    """What a format gives back: Protobuf has no null for lists and maps, and none for a struct's
    required members."""
    if isinstance(value, Struct):
        return [as_read(f.schema, v, format) for f, v in value]
    if (
        value is None
        and format == "protobuf"
        and schema is not None
        and schema.type in (Type.ARRAY, Type.MAP)
    ):
        return [] if schema.type is Type.ARRAY else {}
    if isinstance(value, list):
        return [as_read(None, v, format) for v in value]
    if isinstance(value, dict):
        return {k: as_read(None, v, format) for k, v in value.items()}
    return value


# protoc: 0.2 s
@pytest.mark.parametrize(("format", "all_"), [("avro", 2000), ("json", 2000), ("protobuf", 15)])
def test_what_is_written_is_read_again(registry: Stub, format: str, all_: int) -> None:  # noqa: A002
    writing, reading = (directly(converter(registry, format), registry) for _ in range(2))

    @settings(max_examples=examples(all_), deadline=None)
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        registry.schemas.clear()  # looked through by each registration
        writing._ids._registered.clear()
        reading._readers.clear()
        reading._registry._client._cache.clear()
        writing._registry._client._cache.clear()
        made = SeededRows(seed, plain=format == "protobuf")
        for _ in range(3):
            value = made.value()
            data = writing.from_connect("t", made.schema, value)
            schema, read = reading.to_connect("t", data)
            assert same(as_read(schema, read, format), as_read(made.schema, value, format))
            assert schema is not None
            assert [f.name for f in schema.fields] == [f.name for f in made.schema.fields]

    check()
    writing.close()
    reading.close()


ROW = struct(("id", INT32), ("note", OPTIONAL_STRING), name="shop.Row", version=3, doc="a row")


@pytest.mark.parametrize("format", ["avro", "json"])
def test_written_schema_comes_back_with_all_its_attributes(registry: Stub, format: str) -> None:  # noqa: A002 - Connect's word
    schema = struct(
        ("id", Schema(Type.INT16, doc="number", parameters={"p": "q"})),
        ("price", decimal(2, optional=True)),
        ("on", date(default=3)),
        ("many", array(OPTIONAL_STRING)),
        ("n", Schema(Type.INT32, optional=True, default=7)),
        ("inner", struct(("x", OPTIONAL_INT32), name="shop.Inner", optional=True)),
        name="shop.Full",
        version=2,
        doc="d",
    )
    made = converter(registry, format)
    value = Struct(schema, [1, Decimal("1.50"), 4, ["a", None], None, None])
    assert made.to_connect("t", made.from_connect("t", schema, value)).schema == schema
    made.close()


@pytest.mark.parametrize("format", CONVERTERS)
def test_null_value_is_written_as_a_null_message(registry: Stub, format: str) -> None:  # noqa: A002 - Connect's word
    made = converter(registry, format)
    assert made.from_connect("t", ROW, None) is None
    made.close()


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "t-value"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "shop.Row"),
        ("TopicRecordNameStrategy", "t-shop.Row"),
    ],
)
@pytest.mark.parametrize("format", CONVERTERS)
def test_schema_subjects_are_named_by_the_configured_strategy(
    registry: Stub,
    format: str,  # noqa: A002 - Connect's word
    strategy: str,
    subject: str,
) -> None:
    registry.schemas.clear()
    made = converter(registry, format, **{"value.subject.name.strategy": strategy})
    made.from_connect("t", ROW, Struct(ROW, [1, None]))
    assert [p["subject"] for s in registry.schemas.values() for p in s["subjects"]] == [subject]
    made.close()


def test_schemas_are_not_registered_when_told_so(registry: Stub) -> None:
    registry.schemas.clear()
    made = converter(registry, "avro", **{"auto.register.schemas": "false"})
    with pytest.raises(DataError, match="404"):
        made.from_connect("t", ROW, Struct(ROW, [1, None]))
    registering = converter(registry, "avro")
    data = registering.from_connect("t", ROW, Struct(ROW, [1, None]))
    assert made.from_connect("t", ROW, Struct(ROW, [1, None])) == data
    schema_id = int.from_bytes((data or b"")[1:5], "big")
    fixed = converter(
        registry, "avro", **{"auto.register.schemas": "false", "use.schema.id": str(schema_id)}
    )
    assert fixed.from_connect("t", ROW, Struct(ROW, [1, None])) == data
    for each in (made, registering, fixed):
        each.close()


def test_a_registry_that_is_away_is_waited_for(registry: Stub) -> None:
    made = converter(registry, "avro")
    registry.down = 503
    try:
        with pytest.raises(UnavailableError):
            made.from_connect(
                "t", struct(("unseen", INT32)), Struct(struct(("unseen", INT32)), [1])
            )
    finally:
        registry.down = None
    made.close()


def test_unknown_subject_name_strategy_is_refused_as_config_error(registry: Stub) -> None:
    with pytest.raises(ConfigError, match="unknown class"):
        converter(registry, "avro", **{"value.subject.name.strategy": "Mine"})


def test_names_are_made_legal_for_avro_when_allowed(registry: Stub) -> None:
    schema = struct(("order-id", INT32), ("1st", INT32), name="a-b.c")
    row = Struct(schema, [1, 2])
    made = converter(registry, "avro")
    with pytest.raises(DataError, match=r"scrub\.invalid\.names"):
        made.from_connect("t", schema, row)
    scrubbing = converter(registry, "avro", **{"scrub.invalid.names": "true"})
    read = scrubbing.to_connect("t", scrubbing.from_connect("t", schema, row))
    assert [f.name for f in read.value.schema.fields] == ["order_id", "x1st"]
    made.close()
    scrubbing.close()


def test_metadata_stays_out_of_avro_when_told_so(registry: Stub) -> None:
    registry.schemas.clear()
    made = converter(registry, "avro", **{"connect.meta.data": "false"})
    made.from_connect("t", ROW, Struct(ROW, [1, None]))
    (found,) = registry.schemas.values()
    assert "connect." not in found["schema"]
    made.close()


def test_schemaless_primitives_are_written_as_avro_and_nothing_else(registry: Stub) -> None:
    made = converter(registry, "avro")
    assert [
        made.to_connect("t", made.from_connect("t", None, v)).value for v in ("x", 5, True)
    ] == ["x", 5, True]
    with pytest.raises(DataError):
        made.from_connect("t", None, {"a": 1})
    made.close()
    for format_ in ("json", "protobuf"):
        other = converter(registry, format_)
        with pytest.raises(DataError, match="without a schema"):
            other.from_connect("t", None, "x")
        other.close()


@pytest.mark.parametrize("format", CONVERTERS)
def test_values_that_do_not_fit_are_data_errors(registry: Stub, format: str) -> None:  # noqa: A002 - Connect's word
    made = converter(registry, format)
    with pytest.raises(DataError):
        made.from_connect("t", ROW, Struct(ROW, ["no number", None]))
    made.close()


def test_connect_unions_are_written_as_avro_unions(registry: Stub) -> None:
    branch = struct(("a", INT32), name="shop.Branch", optional=True)
    union = struct(
        ("string", OPTIONAL_STRING), ("Branch", branch), name="io.confluent.connect.avro.Union"
    )
    schema = struct(("u", union), name="shop.Outer")
    made = converter(registry, "avro")
    for values in (["x", None], [None, Struct(branch, [1])]):
        read = made.to_connect(
            "t", made.from_connect("t", schema, Struct(schema, [Struct(union, values)]))
        )
        assert same(
            as_read(None, read.value["u"], "avro"), as_read(None, Struct(union, values), "avro")
        )
    made.close()


def test_json_decimals_are_numbers_when_asked(registry: Stub) -> None:
    schema = struct(("d", decimal(2)))
    made = converter(registry, "json", **{"decimal.format": "NUMERIC"})
    data = made.from_connect("t", schema, Struct(schema, [Decimal("1.50")]))
    assert json.loads((data or b"")[5:]) == {"d": 1.5}
    assert made.to_connect("t", data).value["d"] == Decimal("1.50")
    made.close()

"""Built-in converters. `PLUGINS` names them; their modules are imported where they are used."""

from __future__ import annotations

from connect_py.api.plugin import Plugin, PluginKind

_HERE = "connect_py.converters"
_KAFKA = "org.apache.kafka.connect"
_FOR_ALL = {  # these convert keys and values, and headers too
    f"{_KAFKA}.json.JsonConverter": "json_converter:JsonConverter",
    f"{_KAFKA}.storage.StringConverter": "string_converter:StringConverter",
    f"{_KAFKA}.converters.ByteArrayConverter": "byte_array_converter:ByteArrayConverter",
    f"{_KAFKA}.converters.ShortConverter": "primitive_converters:ShortConverter",
    f"{_KAFKA}.converters.IntegerConverter": "primitive_converters:IntegerConverter",
    f"{_KAFKA}.converters.LongConverter": "primitive_converters:LongConverter",
    f"{_KAFKA}.converters.FloatConverter": "primitive_converters:FloatConverter",
    f"{_KAFKA}.converters.DoubleConverter": "primitive_converters:DoubleConverter",
    f"{_KAFKA}.converters.BooleanConverter": "primitive_converters:BooleanConverter",
}

PRELOAD = (
    f"{_HERE}.json_converter",
    f"{_HERE}.string_converter",
    f"{_HERE}.simple_header_converter",
    f"{_HERE}.avro_converter",
    "confluent_kafka.schema_registry",  # 0.2 s of CPU and 16 MB in every Avro task otherwise
)
PLUGINS: tuple[Plugin, ...] = (
    *(Plugin(PluginKind.CONVERTER, name, f"{_HERE}.{python}") for name, python in _FOR_ALL.items()),
    Plugin(
        PluginKind.CONVERTER,
        "io.confluent.connect.avro.AvroConverter",
        f"{_HERE}.avro_converter:AvroConverter",
    ),
    Plugin(
        PluginKind.CONVERTER,
        "io.confluent.connect.json.JsonSchemaConverter",
        f"{_HERE}.json_schema.json_schema_converter:JsonSchemaConverter",
    ),
    Plugin(
        PluginKind.CONVERTER,
        "io.confluent.connect.protobuf.ProtobufConverter",
        f"{_HERE}.protobuf.protobuf_converter:ProtobufConverter",
    ),
    *(
        Plugin(PluginKind.HEADER_CONVERTER, name, f"{_HERE}.{python}")
        for name, python in _FOR_ALL.items()
    ),
    Plugin(
        PluginKind.HEADER_CONVERTER,
        f"{_KAFKA}.storage.SimpleHeaderConverter",
        f"{_HERE}.simple_header_converter:SimpleHeaderConverter",
    ),
)

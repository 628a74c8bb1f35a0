"""Converter for Avro, equivalent to `io.confluent.connect.avro.AvroConverter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError, NotColumnar
from connect_py.api.schema import Schema, Value
from connect_py.converters.avro.avro_body import AvroBodyReader
from connect_py.converters.avro.avro_schema import AvroType, avro_type
from connect_py.converters.avro.avro_schema import Options as ReadingOptions
from connect_py.converters.avro.avro_writing import AvroWriter, Options, schema_of
from connect_py.converters.native.decoder import Kind, NativeDecoder, Node
from connect_py.converters.registry.registry_converter import (
    CONFIG_DEF,
    ID_PREFIX,
    UNKNOWN_MAGIC,
    MessageReader,
    RegistryConverter,
)
from connect_py.converters.registry.schema_registry import RegisteredSchema

if TYPE_CHECKING:
    import pyarrow as pa


class AvroConverter(RegistryConverter):
    """Converts Avro in Confluent's wire format, with schemas from a schema registry."""

    kind = "AVRO"
    label = "Avro"
    config_def: ClassVar[ConfigDef] = (
        ConfigDef(CONFIG_DEF.keys.values())
        .define(
            "connect.meta.data",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Add Connect names, versions, and parameters to written schemas.",
        )
        .define(
            "scrub.invalid.names",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Replace invalid characters in names instead of failing.",
        )
        .define(
            "enhanced.avro.schema.support",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Write enums as enums, and use full names for the branches of unions.",
        )
        .define(
            "generalized.sum.type.support",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Use the same names for union members (connect_union_field_0, ...) and enums as "
            "in other formats.",
        )
        .define(
            "flatten.singleton.unions",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Read a union with a single type as that type.",
        )
        .define(
            "ignore.default.for.nullables",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Write null values of optional members as null instead of the default.",
        )
        .define(
            "allow.optional.map.keys",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Write maps with optional string keys as Avro maps.",
        )
        .define(
            "discard.type.doc.default",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Ignored. The doc of records and members becomes the doc of the Connect schema.",
        )
        .define(
            "connect_py.aliases",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Store field aliases in a schema parameter of this name. Iceberg sinks use them "
            "to rename columns.",
        )
    )

    def configure(self, configs: Mapping[str, str], *, is_key: bool = False) -> None:
        parsed = self.config_def.parse(configs)
        enhanced, generalized = (
            parsed["enhanced.avro.schema.support"],
            parsed["generalized.sum.type.support"],
        )
        self._reading = ReadingOptions(
            enhanced, generalized, parsed["flatten.singleton.unions"], parsed["connect_py.aliases"]
        )
        self._writing = Options(
            metadata=parsed["connect.meta.data"],
            scrub_names=parsed["scrub.invalid.names"],
            enums=enhanced,
            generalized_sums=generalized,
            ignore_defaults=parsed["ignore.default.for.nullables"],
            optional_map_keys=parsed["allow.optional.map.keys"],
        )
        super().configure(configs, is_key=is_key)

    def make_reader(
        self, registered: RegisteredSchema, version: int | None, prefix: bytes, rest: bytes
    ) -> MessageReader:
        if rest:
            raise DataError(UNKNOWN_MAGIC)
        avro = avro_type(registered.text, registered.references, version, self._reading)
        return _AvroReader(prefix, avro)

    def make_writer(self, schema: Schema) -> AvroWriter:
        return AvroWriter(schema, self._writing)

    def schema_of(self, value: Value) -> Schema:
        return schema_of(value)


class _AvroReader(MessageReader):
    def __init__(self, prefix: bytes, avro: AvroType) -> None:
        super().__init__(prefix)
        self.schema = avro.schema
        self._avro = avro
        self._body = AvroBodyReader(avro.plain)
        self._decoder: NativeDecoder | None = None
        if avro.columnar:
            with suppress(NotColumnar):
                self._decoder = NativeDecoder(native_node(avro.plain))
        self.columnar = self._decoder is not None

    def value(self, body: bytes) -> Value:
        decoded = self._body.read(body)
        return None if decoded is None else self._avro.value(self.schema, decoded)

    def columns(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, Sequence[int]]:
        if self._decoder is None:
            raise NotColumnar("the schema has no columnar form")
        import pyarrow as pa

        decoded, odd = self._decoder.read_avro(messages, self._prefix)
        if any(_has_another_id(messages[row] or b"", self._prefix) for row in odd):
            raise NotColumnar("schemas differ")
        try:
            column = self._avro.column(self.schema, decoded.array())
            column.validate()
        except (pa.ArrowException, OverflowError) as error:
            raise NotColumnar(str(error)) from error
        return column, odd


def _has_another_id(message: bytes, prefix: bytes) -> bool:
    return len(message) >= ID_PREFIX and not message[0] and not message.startswith(prefix)


def native_node(plain: Any, name: str = "") -> Node:
    """Return the native decoder's plan for a plain schema.

    Raises:
        NotColumnar: The schema contains a union of several types.
    """
    if isinstance(plain, list) and len(plain) == 2 and "null" in plain:
        null = plain.index("null")
        return replace(native_node(plain[1 - null], name), nullable=True, low=null)
    if isinstance(plain, str) and plain in _NATIVE_KINDS:
        return Node(_NATIVE_KINDS[plain], name, nullable=False)
    if isinstance(plain, dict) and plain["type"] == "record":
        members = [native_node(field["type"], field["name"]) for field in plain["fields"]]
        return Node(Kind.OBJECT, name, nullable=False, children=members)
    if isinstance(plain, dict) and plain["type"] == "array":
        return Node(Kind.LIST, name, nullable=False, children=[native_node(plain["items"])])
    if isinstance(plain, dict) and plain["type"] == "fixed":
        return Node(Kind.FIXED, name, nullable=False, high=plain["size"])
    raise NotColumnar("a union of several types")


_NATIVE_KINDS: Final[Mapping[str, Kind]] = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT32,
    "long": Kind.INT64,
    "float": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    "bytes": Kind.BYTES,
    "string": Kind.TEXT,
}

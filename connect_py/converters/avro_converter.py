"""`io.confluent.connect.avro.AvroConverter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.schema import Schema, Value
from connect_py.converters.avro_reader import AvroReader
from connect_py.converters.avro_schema import Options as ReadingOptions
from connect_py.converters.avro_schema import avro_type
from connect_py.converters.avro_writing import AvroWriter, Options, schema_of
from connect_py.converters.registry_converter import (
    CONFIG_DEF,
    UNKNOWN_MAGIC,
    MessageReader,
    RegistryConverter,
)
from connect_py.converters.schema_registry import RegisteredSchema


class AvroConverter(RegistryConverter):
    """Avro in Confluent's wire format; schemas come from a registry."""

    kind = "AVRO"
    label = "Avro"
    config_def: ClassVar[ConfigDef] = (
        ConfigDef(CONFIG_DEF.keys.values())
        .define(
            "connect.meta.data",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Note in written schemas what only Connect knows: names, versions, parameters.",
        )
        .define(
            "scrub.invalid.names",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Make names legal that are not, instead of failing.",
        )
        .define(
            "enhanced.avro.schema.support",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Write enums as enums, and name the branches of unions by their full names.",
        )
        .define(
            "generalized.sum.type.support",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Name the members of unions connect_union_field_0 and so on, and enums as other "
            "formats do.",
        )
        .define(
            "flatten.singleton.unions",
            Type.BOOLEAN,
            default=True,
            importance=Importance.LOW,
            doc="Read a union of one type as that type.",
        )
        .define(
            "ignore.default.for.nullables",
            Type.BOOLEAN,
            default=False,
            importance=Importance.MEDIUM,
            doc="Write nulls of optional members as null, though the members have a default.",
        )
        .define(
            "allow.optional.map.keys",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Write maps as maps though their keys, which are texts, are optional.",
        )
        .define(
            "discard.type.doc.default",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Accepted; what records and members say of themselves is their schema's doc.",
        )
        .define(
            "connect_py.aliases",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="Keep aliases of fields in a schema parameter of this name: Iceberg sinks rename "
            "columns by them.",
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
        self, registered: RegisteredSchema, version: int | None, rest: bytes
    ) -> MessageReader:
        if rest:
            raise DataError(UNKNOWN_MAGIC)
        return AvroReader(avro_type(registered.text, registered.references, version, self._reading))

    def make_writer(self, schema: Schema) -> AvroWriter:
        return AvroWriter(schema, self._writing)

    def schema_of(self, value: Value) -> Schema:
        return schema_of(value)

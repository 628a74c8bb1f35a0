"""Iceberg's `KafkaMetadataTransform`: adds topic, partition, offset and timestamp to the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import ConfigError, DataError
from connect_py.api.record import R, SinkRecord
from connect_py.api.schema import (
    INT32,
    INT64,
    OPTIONAL_INT64,
    STRING,
    Schema,
    Struct,
    Value,
    struct,
)
from connect_py.api.transformation import Transformation
from transforms.rebuild import check_required, members, rebuilt, values_of
from transforms.requirements import require_map, require_struct

if TYPE_CHECKING:
    import pyarrow as pa

_FIELDS = (
    ("topic", STRING),
    ("partition", INT32),
    ("offset", INT64),
    ("timestamp", OPTIONAL_INT64),
)


class KafkaMetadataTransform(Transformation[R]):
    """One nested field, or one field for each. Timestamps are numbers of milliseconds. Tombstones
    pass."""

    config_def = (
        ConfigDef()
        .define(
            "field_name",
            Type.STRING,
            default="_kafka_metadata",
            importance=Importance.LOW,
            doc="The name of the field, or how the names of the fields begin.",
        )
        .define(
            "nested",
            Type.BOOLEAN,
            default=False,
            importance=Importance.LOW,
            doc="One struct or map instead of a field for each.",
        )
        .define(
            "external_field",
            Type.STRING,
            default="none",
            importance=Importance.LOW,
            doc="key,value: one more field with a constant.",
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._name: str = props["field_name"]
        self._nested: bool = props["nested"]
        external: str = props["external_field"]
        parts = [] if external == "none" else [part.strip() for part in external.split(",")]
        if parts and len(parts) != 2:
            raise ConfigError(
                "external_field",
                f"Could not parse {external} for external_field: key,value is expected",
            )
        self._constants = [parts[1]] if parts else []
        self._fields: list[tuple[str, Schema]] = [*_FIELDS, *((name, STRING) for name in parts[:1])]
        self._inner = struct(*self._fields)
        self._result = lru_cache(maxsize=64)(self._extended)

    def _added(self) -> list[tuple[str, Schema]]:
        if self._nested:
            return [(self._name, self._inner)]
        return [(f"{self._name}_{name}", schema) for name, schema in self._fields]

    def _extended(self, schema: Schema) -> Schema:
        return rebuilt(schema, [*members(schema), *self._added()])

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        if not isinstance(record, SinkRecord):
            raise DataError("only records of Kafka have an offset")
        found: list[Value] = [
            record.topic,
            record.partition,
            record.kafka_offset,
            record.timestamp,
            *self._constants,
        ]
        if record.value_schema is None:
            row = require_map(record.value, "KafkaMetadata transform")
            names = [name for name, _ in self._fields]
            added: dict[str, Any] = {
                n: v for n, v in zip(names, found, strict=True) if n != "timestamp" or v is not None
            }
            flat = (
                {self._name: added}
                if self._nested
                else {f"{self._name}_{n}": v for n, v in added.items()}
            )
            return record.replace(value_schema=None, value={**row, **flat})
        taken = require_struct(record.value, "KafkaMetadataTransform", record.value_schema)
        result = self._result(taken.schema)
        values = values_of(taken, replace_null_with_default=True)
        values += [Struct(self._inner, found)] if self._nested else found
        check_required(result, values)
        return record.replace(value_schema=result, value=Struct(result, values))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        from transforms.columns import blamed, rows_to_extend, with_fields

        column = rows_to_extend(batch, self.apply)
        if column is None:
            return [batch]
        if column.schema is None:
            return [batch.replace(value=self._schemaless(batch, column))]
        try:
            result = self._result(column.schema)
        except DataError as error:
            raise blamed(batch, self.apply) from error
        return with_fields(batch, result, lambda _: self._members(batch), self.apply)

    def _members(self, batch: Batch) -> list[pa.Array]:
        from transforms.columns import struct_column

        found = self._found(batch)
        return [struct_column(self._inner, found, None, len(batch))] if self._nested else found

    def _found(self, batch: Batch) -> list[pa.Array]:
        from transforms.columns import constant

        texts = [constant(text, STRING, len(batch)) for text in (batch.topic, *self._constants)]
        origin = batch.origin
        return [texts[0], origin.partitions, origin.offsets, batch.timestamp, *texts[1:]]

    def _schemaless(self, batch: Batch, column: Column) -> Column:
        import pyarrow as pa

        from connect_py.api.errors import NotColumnar
        from transforms.columns import map_members, maps

        absent = dict(column.absent)
        names = [name for name, _ in self._fields]
        found = dict(zip(names, self._found(batch), strict=True))
        columns = map_members(column.data)
        added = {self._name: pa.StructArray.from_arrays(list(found.values()), names=names)}
        if not self._nested:
            added = {f"{self._name}_{name}": values for name, values in found.items()}
        if columns.keys() & added.keys():
            raise NotColumnar("a field of that name is there")
        if batch.timestamp.null_count:
            place = (self._name, "timestamp") if self._nested else (f"{self._name}_timestamp",)
            absent[place] = batch.timestamp.is_null()
        return maps(column, columns | added, absent)

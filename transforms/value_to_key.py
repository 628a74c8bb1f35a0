"""`ValueToKey`: makes the key of fields of the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, struct
from connect_py.api.schema import Type as SchemaType
from connect_py.api.transformation import Transformation
from transforms.requirements import require_map, require_struct
from transforms.shared_options import REPLACE_NULL_WITH_DEFAULT
from transforms.validators import non_empty_list

PURPOSE = "copying fields from value to key"


class ValueToKey(Transformation[R]):
    """The partition stays what it was. A record with a null value is an error."""

    config_def = (
        ConfigDef()
        .define(
            "fields",
            Type.LIST,
            validator=non_empty_list,
            importance=Importance.HIGH,
            doc="The fields of the value that make the key, in this order.",
        )
        .add(REPLACE_NULL_WITH_DEFAULT)
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._fields: tuple[str, ...] = tuple(props["fields"])
        self._replace_null_with_default: bool = props["replace.null.with.default"]
        self._result = lru_cache(maxsize=64)(self._key_schema)

    def _key_schema(self, schema: Schema) -> Schema:
        for name in self._fields:
            if schema.field(name) is None:
                raise DataError(f"Field does not exist: {name}")
        return struct(*((name, schema[name]) for name in self._fields))

    def apply(self, record: R) -> R | None:
        if record.value_schema is None:
            row = require_map(record.value, PURPOSE)
            return record.replace(
                key_schema=None, key={name: row.get(name) for name in self._fields}
            )
        value = require_struct(record.value, PURPOSE, record.value_schema)
        schema = self._result(value.schema)
        key = Struct(schema)
        for name in self._fields:
            key.put(
                name,
                value.get(name)
                if self._replace_null_with_default
                else value.get_without_default(name),
            )
        return record.replace(key_schema=schema, key=key)

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        import pyarrow as pa

        from transforms.columns import (
            blamed,
            finished,
            member_of,
            null_rows,
            required_nulls,
            scalar,
            struct_column,
            with_default,
            without,
        )

        column = batch.value
        if column.null_count:
            raise without(batch, self.apply, null_rows(column), self.apply_batch)
        if not column.is_struct():
            raise blamed(batch, self.apply)
        if column.schema is None:
            found = {name: column.member(name) for name in self._fields}
            data = [pa.nulls(len(batch)) if c is None else c.data for c in found.values()]
            absent = {
                (name, *path): rows
                for name, c in found.items()
                if c
                for path, rows in c.absent.items()
            }
            made = pa.StructArray.from_arrays(data, names=list(found))
            return [batch.replace(key=Column(None, made, None, absent))]
        if column.schema.type is not SchemaType.STRUCT:
            raise blamed(batch, self.apply)
        try:
            schema = self._result(column.schema)
        except DataError as error:
            raise blamed(batch, self.apply) from error
        data = []
        for field in schema.fields:
            member = member_of(column, field.name)
            default = field.schema.default if self._replace_null_with_default else None
            data.append(
                member.data
                if default is None
                else with_default(member.data, scalar(field.schema, default))
            )
        made = struct_column(schema, data, None, len(batch))
        keyed = batch.replace(key=Column(schema, made))
        return finished(batch, self.apply, keyed, required_nulls(schema, data, made))

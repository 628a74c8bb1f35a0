"""`HoistField`: wraps a key or value in a struct or map with one field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from connect_py.api.batch import Batch, Column
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import NotColumnar
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct, struct
from transforms.side import SideTransformation, for_both


class HoistField(SideTransformation[R]):
    """Wraps a key or value. A tombstone becomes a map with a null entry.

    The input may have any type. `apply` and `apply_batch` are both implemented directly, because
    `FieldTransformation` cannot convert nulls to other values.
    """

    config_def = ConfigDef().define(
        "field",
        Type.STRING,
        importance=Importance.MEDIUM,
        doc="Name of the field in the new struct or map.",
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        self._field: str = self.config_def.parse(configs)["field"]
        self._result = lru_cache(maxsize=64)(self._wrapped)

    def _wrapped(self, schema: Schema) -> Schema:
        return struct((self._field, schema))

    def apply(self, record: R) -> R | None:
        schema, value = self.side.of(record)
        if schema is None:
            return self.side.put(record, None, {self._field: value})
        result = self._result(schema)
        return self.side.put(record, result, Struct(result).put(self._field, value))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        import pyarrow as pa

        from transforms.columns import incomplete_rows, null_rows, struct_column, without

        column = self.side.column(batch)
        if column.schema is None:
            if column.tombstone is not None and column.tombstone_schema is not None:
                raise NotColumnar("null values with several schemas")
            data = pa.StructArray.from_arrays([column.data], names=[self._field])
            absent = {(self._field, *path): rows for path, rows in column.absent.items()}
            return [self.side.put_column(batch, Column(None, data, None, absent))]
        if column.tombstone is not None:
            raise NotColumnar("tombstones become maps, but other rows become structs")
        if column.null_count and not column.schema.optional:
            raise without(batch, self.apply, null_rows(column), self.apply_batch)
        incomplete = incomplete_rows(column.schema, column.data)
        if incomplete is not None:
            raise without(batch, self.apply, incomplete, self.apply_batch)
        result = self._result(column.schema)
        return [
            self.side.put_column(
                batch, Column(result, struct_column(result, [column.data], None, len(batch)))
            )
        ]


HoistFieldKey, HoistFieldValue = for_both(HoistField)

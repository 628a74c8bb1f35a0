"""Iceberg's `CopyValue`: a second field with the value of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from connect_py.api.batch import Batch
from connect_py.api.config import ConfigDef, Importance, Type
from connect_py.api.errors import DataError
from connect_py.api.record import R
from connect_py.api.schema import Schema, Struct
from connect_py.api.transformation import Transformation
from connect_py.java.errors import NullPointerError
from transforms.rebuild import check_required, members, rebuilt, values_of
from transforms.requirements import require_map, require_struct

PURPOSE = "copy value"


class CopyValue(Transformation[R]):
    """Adds the target field at the end. Null values pass."""

    config_def = (
        ConfigDef()
        .define("source.field", Type.STRING, importance=Importance.HIGH, doc="The field to copy.")
        .define(
            "target.field", Type.STRING, importance=Importance.HIGH, doc="The name of the copy."
        )
    )

    def configure(self, configs: Mapping[str, str]) -> None:
        props = self.config_def.parse(configs)
        self._source: str = props["source.field"]
        self._target: str = props["target.field"]
        self._result = lru_cache(maxsize=64)(self._extended)

    def _extended(self, schema: Schema) -> tuple[Schema, int]:
        field = schema.field(self._source)
        if field is None:
            raise NullPointerError(f"there is no field {self._source} to copy")
        return rebuilt(schema, [*members(schema), (self._target, field.schema)]), field.index

    def apply(self, record: R) -> R | None:
        if record.value is None:
            return record
        if record.value_schema is None:
            row = require_map(record.value, PURPOSE)
            return record.replace(value={**row, self._target: row.get(self._source)})
        taken = require_struct(record.value, PURPOSE, record.value_schema)
        result, index = self._result(taken.schema)
        values = values_of(taken, replace_null_with_default=True)
        values.append(values[index])
        check_required(result, values)
        return record.replace(value_schema=result, value=Struct(result, values))

    def apply_batch(self, batch: Batch) -> Sequence[Batch]:
        import pyarrow as pa

        from transforms.columns import blamed, map_members, maps, rows_to_extend, with_fields

        column = rows_to_extend(batch, self.apply)
        if column is None:
            return [batch]
        if column.schema is None:
            columns = map_members(column.data)
            columns[self._target] = columns.get(self._source, pa.nulls(len(batch)))
            absent = {path: rows for path, rows in column.absent.items() if path[0] != self._target}
            absent |= {
                (self._target, *p[1:]): rows
                for p, rows in absent.items()
                if p[0] == self._source and len(p) > 1
            }
            return [batch.replace(value=maps(column, columns, absent))]
        try:
            result, index = self._result(column.schema)
        except (DataError, NullPointerError) as error:
            raise blamed(batch, self.apply) from error
        return with_fields(batch, result, lambda parts: [parts[index]], self.apply)

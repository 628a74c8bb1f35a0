"""The batch form of transformations that replace the values of some fields, each by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column, schemaless_column
from connect_py.api.errors import ConnectError, NotColumnar
from connect_py.api.schema import Schema, Type
from connect_py.columns.arrow import arrow_type, schemaless_values, to_array, to_values
from transforms.columns import (
    blamed,
    columns_of,
    converted,
    map_members,
    maps,
    required_nulls,
    struct_column,
)
from transforms.field_transformation import FieldTransformation


class FieldColumns:
    """Replaces columns as the reference replaces fields."""

    def __init__(self, reference: FieldTransformation[Any]) -> None:
        self._reference = reference

    def with_schema(self, batch: Batch, column: Column) -> tuple[Schema, pa.Array, set[int]]:
        """A column with a schema: the one afterwards and the data; nulls stay. Also the rows that
        may be bad.

        Raises:
            BadRows, NotColumnar: The reference refuses the schema.
        """
        reference, schema = self._reference, column.schema
        assert schema is not None
        if schema.type is not Type.STRUCT and not reference.whole:
            raise blamed(batch, reference.apply)
        data = column.data
        failed: set[int] = set()
        try:
            result = reference.result(schema)
            if reference.whole:
                return result, self._field("", schema, result, data, failed), failed
            columns = columns_of(
                schema, data, replace_null_with_default=reference.replace_null_with_default
            )
            made = [
                self._field(old.name, old.schema, new.schema, c, failed)
                if old.name in reference.field_names
                else c
                for old, new, c in zip(schema.fields, result.fields, columns, strict=True)
            ]
        except NotColumnar:
            raise
        except (ConnectError, pa.ArrowException) as error:
            raise blamed(batch, reference.apply) from error
        failed |= required_nulls(result, made, data)
        return result, struct_column(result, made, column.is_null(), len(batch)), failed

    def _field(
        self, name: str, schema: Schema, result: Schema, data: pa.Array, failed: set[int]
    ) -> pa.Array:
        """A column of one field afterwards; rows whose value is refused are added to `failed`, and
        null."""
        fast = self._reference.fast(schema, result, data)
        if fast is not None:
            return fast
        numbers = self._of_texts(name, schema, data, failed)
        if numbers is not None:
            return numbers.cast(arrow_type(result))
        values, refused = converted(
            to_values(schema, data), partial(self._reference.replaced, name, schema)
        )
        failed.update(refused)
        return to_array(result, values)

    def _of_texts(
        self, name: str, schema: Schema | None, data: pa.Array, failed: set[int]
    ) -> pa.Int64Array | None:
        """Texts as whole numbers, null where they are refused (added to `failed`) or null; None:
        not by kernels."""
        if not pa.types.is_string(data.type):
            return None
        made = self._reference.numbers(name, data)
        if made is None or made.null_count == data.null_count:
            return made
        left = pc.and_(made.is_null(), data.is_valid())
        values, refused = converted(
            data.filter(left).to_pylist(), partial(self._reference.replaced, name, schema)
        )
        rows = pc.indices_nonzero(left).to_pylist()
        failed.update(rows[place] for place in refused)
        return pc.replace_with_mask(made, left, pa.array(values, pa.int64()))

    def schemaless(self, batch: Batch, column: Column) -> tuple[Column, set[int]]:
        """A column without a schema: members that are replaced are in all of its maps, null where
        they were not.

        Also the rows of which the reference refuses a value.

        Raises:
            BadRows, NotColumnar: The reference refuses what is no map.
        """
        reference = self._reference
        failed: set[int] = set()
        if reference.whole:
            made = self._member("", column, failed)
            return Column(None, made.data, column.tombstone, made.absent), failed
        if not column.is_struct():
            raise blamed(batch, reference.apply)
        columns, absent = map_members(column.data), dict(column.absent)
        for name in reference.field_names:
            absent = {path: rows for path, rows in absent.items() if path[0] != name}
            member = column.member(name)
            if member is None:
                columns[name] = pa.nulls(len(batch))
                continue
            made = self._member(name, member, failed)
            columns[name] = made.data
            absent |= {(name, *path): rows for path, rows in made.absent.items()}
        return maps(column, columns, absent), failed

    def _member(self, name: str, member: Column, failed: set[int]) -> Column:
        """A schemaless column of one field afterwards; rows whose value is refused are added to
        `failed`, and null."""
        numbers = self._of_texts(name, None, member.data, failed)
        if numbers is not None:
            return Column(
                None, pa.nulls(len(member)) if numbers.null_count == len(member) else numbers
            )
        incoming = schemaless_values(member.data, member.absent)
        values, refused = converted(incoming, partial(self._reference.replaced, name, None))
        failed.update(refused)
        return schemaless_column(values)

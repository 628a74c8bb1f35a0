"""The batch form of transformations that replace the values of some fields, each by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.arrow import arrow_type, schemaless_values, to_array, to_values
from connect_py.api.batch import Batch, Column, schemaless_column
from connect_py.api.errors import ConnectError, NotColumnar
from connect_py.api.schema import Schema, Type, Value
from transforms.columns import (
    blamed,
    children,
    converted,
    defaults,
    required_nulls,
    struct_column,
    with_default,
)


class FieldReference(Protocol):
    """What the batch form asks of a transformation: its rules, one value at a time."""

    replace_null_with_default: bool

    @property
    def field_names(self) -> Collection[str]:
        """The fields to be replaced."""

    @property
    def result(self) -> Callable[[Schema], Schema]:
        """From a struct schema to the one afterwards. DataError: a default cannot be replaced."""

    def apply(self, record: Any) -> Any:
        """The row form."""

    def replaced(self, name: str, schema: Schema | None, value: Value) -> Value:
        """The value of a field afterwards; null stays null."""

    def fast(self, schema: Schema, result: Schema, data: pa.Array) -> pa.Array | None:
        """A column afterwards by a kernel that is exact; None: value by value."""


class FieldColumns:
    """Replaces columns as the reference replaces fields."""

    def __init__(
        self, reference: FieldReference, numbers: Callable[[str, pa.StringArray], pa.Int64Array | None] | None = None
    ) -> None:
        """`numbers` makes whole numbers of the texts of a field, null where the reference has to look at the text;
        None: the field does not become one."""
        self._reference = reference
        self._numbers = numbers
        self._defaults = lru_cache(maxsize=64)(defaults)

    def with_schema(self, batch: Batch, column: Column) -> tuple[Schema, pa.Array, set[int]]:
        """A column of structs: the schema afterwards and the data; nulls stay null. Also the rows that may be bad.

        Raises:
            BadRows, NotColumnar: The reference refuses the schema.
        """
        reference, schema = self._reference, column.schema
        assert schema is not None
        if schema.type is not Type.STRUCT:
            raise blamed(batch, reference.apply)
        data = column.data
        columns = children(data)
        if reference.replace_null_with_default:
            columns = [with_default(c, d) for c, d in zip(columns, self._defaults(schema), strict=True)]
        failed: set[int] = set()
        try:
            result = reference.result(schema)
            made = [
                self._field(old.name, old.schema, new.schema, c, failed) if old.name in reference.field_names else c
                for old, new, c in zip(schema.fields, result.fields, columns, strict=True)
            ]
        except NotColumnar:
            raise
        except (ConnectError, pa.ArrowException) as error:
            raise blamed(batch, reference.apply) from error
        failed |= required_nulls(result, made, data)
        return result, struct_column(result, made, column.is_null(), len(batch)), failed

    def replaced(self, name: str, schema: Schema, result: Schema, data: pa.Array) -> tuple[pa.Array, set[int]]:
        """A column of one field afterwards, and the rows whose value the reference refuses.

        Raises:
            NotColumnar: As the kernels say.
            ConnectError: The reference refuses any value of this schema.
        """
        failed: set[int] = set()
        return self._field(name, schema, result, data, failed), failed

    def _field(self, name: str, schema: Schema, result: Schema, data: pa.Array, failed: set[int]) -> pa.Array:
        """A column of one field afterwards; rows whose value is refused are added to `failed`, and null."""
        fast = self._reference.fast(schema, result, data)
        if fast is not None:
            return fast
        numbers = self.of_texts(name, schema, data, failed)
        if numbers is not None:
            return numbers.cast(arrow_type(result))
        values, refused = converted(to_values(schema, data), partial(self._reference.replaced, name, schema))
        failed.update(refused)
        return to_array(result, values)

    def of_texts(self, name: str, schema: Schema | None, data: pa.Array, failed: set[int]) -> pa.Int64Array | None:
        """Texts as whole numbers, null where they are refused (added to `failed`) or null; None: not by kernels."""
        if self._numbers is None or not pa.types.is_string(data.type):
            return None
        made = self._numbers(name, data)
        if made is None or made.null_count == data.null_count:
            return made
        left = pc.and_(made.is_null(), data.is_valid())
        values, refused = converted(data.filter(left).to_pylist(), partial(self._reference.replaced, name, schema))
        rows = pc.indices_nonzero(left).to_pylist()
        failed.update(rows[place] for place in refused)
        return pc.replace_with_mask(made, left, pa.array(values, pa.int64()))

    def schemaless(self, batch: Batch, column: Column) -> tuple[Column, set[int]]:
        """A column of maps afterwards: members that are replaced are in all of them, null where they were not.

        Also the rows of which the reference refuses a value.

        Raises:
            BadRows, NotColumnar: The reference refuses what is no map.
        """
        reference = self._reference
        if not column.is_struct():
            raise blamed(batch, reference.apply)
        data, absent = column.data, dict(column.absent)
        columns = dict(zip((f.name for f in data.type), children(data), strict=True))
        null = column.is_null()
        failed: set[int] = set()
        for name in reference.field_names:
            absent = {path: rows for path, rows in absent.items() if path[0] != name}
            member = column.member(name)
            if member is None:
                columns[name] = pa.nulls(len(batch))
                continue
            numbers = self.of_texts(name, None, member.data, failed)
            if numbers is not None:
                columns[name] = pa.nulls(len(batch)) if numbers.null_count == len(batch) else numbers
                continue
            incoming = schemaless_values(member.data, member.absent)
            values, refused = converted(incoming, partial(reference.replaced, name, None))
            failed.update(refused)
            made = schemaless_column(values)
            columns[name] = made.data
            absent |= {(name, *path): rows for path, rows in made.absent.items()}
        made_data = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=null)
        return Column(None, made_data, column.tombstone, absent, column.tombstone_schema), failed

"""Side of a record (key or value) that a `$Key` or `$Value` transformation changes."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Final, TypeVar

from connect_py.api.batch import Batch, Column
from connect_py.api.record import ConnectRecord, R
from connect_py.api.schema import Schema, SchemaAndValue, Value
from connect_py.api.transformation import Transformation


class Side(Enum):
    """Key or value of a record."""

    KEY = "Key"
    VALUE = "Value"

    def of(self, record: ConnectRecord) -> SchemaAndValue:
        """Return the schema and value of this side."""
        if self is _VALUE:
            # twice as fast as the constructor
            return SchemaAndValue._make((record.value_schema, record.value))
        return SchemaAndValue(record.key_schema, record.key)

    def put(self, record: R, schema: Schema | None, value: Value) -> R:
        """Return a copy of the record with this schema and value on this side."""
        if self is _VALUE:
            return record.replace(value_schema=schema, value=value)
        return record.replace(key_schema=schema, key=value)

    def column(self, batch: Batch) -> Column:
        """Return the column of this side."""
        return batch.key if self is Side.KEY else batch.value

    def put_column(self, batch: Batch, column: Column) -> Batch:
        """Return a copy of the batch with this column on this side."""
        return batch.replace(key=column) if self is Side.KEY else batch.replace(value=column)


_VALUE: Final = Side.VALUE


class SideTransformation(Transformation[R]):
    """Transforms one side of a record. `for_both` creates the `$Key` and `$Value` classes."""

    side: ClassVar[Side]


T = TypeVar("T", bound=SideTransformation[Any])


def for_both(base: type[T]) -> tuple[type[T], type[T]]:
    """Return the `$Key` and `$Value` subclasses of a transformation."""
    key, value = (
        type(f"{base.__name__}{side.value}", (base,), {"__module__": base.__module__, "side": side})
        for side in Side
    )
    return key, value

"""The side of a record that a `$Key` or `$Value` transformation works on."""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar, Final, TypeVar

from connect_py.api.batch import Batch, Column
from connect_py.api.record import ConnectRecord, R
from connect_py.api.schema import Schema, SchemaAndValue, Value
from connect_py.api.transformation import Transformation


class Side(Enum):
    """Key or value."""

    KEY = "Key"
    VALUE = "Value"

    def of(self, record: ConnectRecord) -> SchemaAndValue:
        """Schema and value of this side."""
        if self is _VALUE:
            # half the time of the constructor
            return SchemaAndValue._make((record.value_schema, record.value))
        return SchemaAndValue(record.key_schema, record.key)

    def put(self, record: R, schema: Schema | None, value: Value) -> R:
        """The record with another schema and value on this side."""
        if self is _VALUE:
            return record.replace(value_schema=schema, value=value)
        return record.replace(key_schema=schema, key=value)

    def column(self, batch: Batch) -> Column:
        """Return this side of a batch."""
        return batch.key if self is Side.KEY else batch.value

    def put_column(self, batch: Batch, column: Column) -> Batch:
        """The batch with another column on this side."""
        return batch.replace(key=column) if self is Side.KEY else batch.replace(value=column)


_VALUE: Final = Side.VALUE


class SideTransformation(Transformation[R]):
    """Works on one side; `for_both` makes the two classes that have one."""

    side: ClassVar[Side]


T = TypeVar("T", bound=SideTransformation[Any])


def for_both(made: type[T]) -> tuple[type[T], type[T]]:
    """The transformations `$Key` and `$Value` of a class."""
    key, value = (
        type(f"{made.__name__}{side.value}", (made,), {"__module__": made.__module__, "side": side})
        for side in Side
    )
    return key, value

"""Functions that build the schemas of changed structs and validate the structs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from struct import Struct as StructFormat
from struct import error as FormatError  # noqa: N812 - an exception
from typing import Any, Final

from connect_py.api.schema import Schema, Struct, Type, Value, validate_value
from transforms.by_schema import BySchema

_MAX_COMBINATIONS: Final = 1000  # maximum number of cached combinations of value types per schema
# format characters of the `struct` module
_PACKED: Final = {Type.INT8: "b", Type.INT16: "h", Type.INT32: "i", Type.INT64: "q"}
_CONTAINERS: Final = (Type.ARRAY, Type.MAP, Type.STRUCT)


def rebuilt(container: Schema, fields: Iterable[tuple[str, Schema]]) -> Schema:
    """Return a struct schema with these fields and the metadata of `container`.

    The metadata consists of the name, version, doc, and parameters. The result is required and has
    no default.

    Raises:
        SchemaBuilderError: Two fields have the same name.
    """
    return Schema(
        Type.STRUCT,
        name=container.name,
        version=container.version,
        doc=container.doc,
        parameters=container.parameters,
        fields=fields,
    )


def members(schema: Schema) -> list[tuple[str, Schema]]:
    """Return the fields of a struct schema as (name, schema) pairs for the `Schema` constructor."""
    return [(field.name, field.schema) for field in schema.fields]


def values_of(row: Struct, *, replace_null_with_default: bool) -> list[Value]:
    """Return the values of a row in order, optionally with nulls replaced with defaults."""
    return rules_of(row.schema).values(row) if replace_null_with_default else row.values.copy()


def check_required(schema: Schema, values: Sequence[Value]) -> None:
    """Raise DataError, with the name of the field, if a required field of a new row is null."""
    rules_of(schema).check_required(values)


class Rules:
    """Defaults and precomputed checks for the rows of a struct schema; see `rules_of`."""

    __slots__ = ("_containers", "_defaults", "_fitting", "_required", "_schema")

    def __init__(self, schema: Schema, checked: int | None = None) -> None:
        """Prepare the rules. `check_required` checks the first `checked` fields, by default all."""
        self._schema = schema
        fields = schema.fields
        defaults = [f.schema.default for f in fields]
        self._defaults = None if defaults.count(None) == len(defaults) else defaults
        required = [f.index for f in fields[:checked] if not f.schema.optional]
        self._required = values_at(required) if required else None
        self._containers = [f for f in fields if f.schema.type in _CONTAINERS]
        # valid combination of value types -> function that checks the ranges of the integers
        self._fitting: dict[tuple[type, ...], Callable[[Sequence[Value]], bool]] = {}

    def values(self, row: Struct) -> list[Value]:
        """Return the values of a row in order, with nulls replaced with defaults."""
        if self._defaults is None:
            return row.values.copy()
        pairs = zip(self._defaults, row.values, strict=True)
        return [default if value is None else value for default, value in pairs]

    def check_required(self, values: Sequence[Value]) -> None:
        """Raise DataError, with the name of the field, if a required field is null."""
        if self._required is None or None not in self._required(values):
            return
        for field, value in zip(self._schema.fields, values, strict=False):
            if value is None and not field.schema.optional:
                validate_value(field.schema, None, field.name)

    def check(self, values: Sequence[Value]) -> None:
        """Validate all values as `Struct.put` does; raise DataError for the first invalid value."""
        kinds = tuple(map(type, values))
        in_range = self._fitting.get(kinds)
        if in_range is not None and in_range(values):
            for field in self._containers:
                validate_value(field.schema, values[field.index], field.name)
            return
        for field, value in zip(self._schema.fields, values, strict=True):
            validate_value(field.schema, value, field.name)
        if len(self._fitting) >= _MAX_COMBINATIONS:
            self._fitting.clear()
        self._fitting[kinds] = _range_check(self._schema, kinds)


rules_of: Final = BySchema(Rules, size=1024)


def _range_check(schema: Schema, kinds: Sequence[type]) -> Callable[[Sequence[Value]], bool]:
    """Return a function that checks the ranges of the integers in rows with these value types."""
    indices = [f.index for f in schema.fields if f.schema.type in _PACKED and kinds[f.index] is int]
    if not indices:
        return lambda _: True
    take = values_at(indices)
    pack = StructFormat(
        "<" + "".join(_PACKED[schema.fields[index].schema.type] for index in indices)
    ).pack

    def in_range(values: Sequence[Value]) -> bool:
        try:
            pack(*take(values))
        except FormatError:
            return False
        return True

    return in_range


def values_at(indices: Sequence[int]) -> Any:
    """Return a function that returns the values at these indices of a list."""
    if not indices:
        return lambda _: ()
    first = indices[0]
    return itemgetter(*indices) if len(indices) > 1 else itemgetter(slice(first, first + 1))

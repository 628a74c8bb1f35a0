"""How transformations derive struct schemas: what they keep of the container, and raw or default values of members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import itemgetter
from struct import Struct as StructFormat
from struct import error as FormatError  # noqa: N812 - an exception
from typing import Any, Final

from connect_py.api.schema import Schema, Struct, Type, Value, validate_value

_MOST_KINDS: Final = 1000  # combinations of types, per schema, that are known to fit
_PACKED: Final = {Type.INT8: "b", Type.INT16: "h", Type.INT32: "i", Type.INT64: "q"}  # as the module struct writes them
_CONTAINERS: Final = (Type.ARRAY, Type.MAP, Type.STRUCT)


def rebuilt(container: Schema, fields: Iterable[tuple[str, Schema]]) -> Schema:
    """A struct schema of these fields with name, version, doc and parameters of `container`.

    The container's optional flag and default are not carried over.

    Raises:
        SchemaBuilderError: Two fields share a name.
    """
    return Schema(
        Type.STRUCT, name=container.name, version=container.version, doc=container.doc,
        parameters=container.parameters, fields=fields,
    )  # fmt: skip


def members(schema: Schema) -> list[tuple[str, Schema]]:
    """The (name, schema) pairs of a struct schema, as the constructor takes them."""
    return [(field.name, field.schema) for field in schema.fields]


def values_of(row: Struct, *, replace_null_with_default: bool) -> list[Value]:
    """The values of a row in order; nulls become the default of their field when asked to."""
    defaults = _rules(row.schema).defaults if replace_null_with_default else None
    if defaults is None:
        return row.values.copy()
    return [default if value is None else value for default, value in zip(defaults, row.values, strict=True)]


def check_required(schema: Schema, values: Sequence[Value]) -> None:
    """Check what copying values into a new row checks: DataError names the first required field that is null."""
    rules = _rules(schema)
    if len(values) != rules.length:
        raise ValueError(f"{len(values)} values for {rules.length} fields")
    if rules.required is not None and None in rules.required(values):
        for field, value in zip(schema.fields, values, strict=True):
            if value is None and not field.schema.optional:
                validate_value(field.schema, None, field.name)


def check_values(schema: Schema, values: Sequence[Value]) -> None:
    """Check what `Struct.put` checks, field by field: DataError names the first value that does not fit."""
    rules = _rules(schema)
    kinds = tuple(map(type, values))
    integers = rules.fitting.get(kinds)
    if integers is not None and integers(values):
        for field in rules.containers:
            validate_value(field.schema, values[field.index], field.name)
        return
    for field, value in zip(schema.fields, values, strict=True):
        validate_value(field.schema, value, field.name)
    if len(rules.fitting) >= _MOST_KINDS:
        rules.fitting.clear()
    rules.fitting[kinds] = _range_check(schema, kinds)


class _Rules:
    """What follows from a struct schema for the values of its rows."""

    __slots__ = ("containers", "defaults", "fitting", "length", "required")

    def __init__(self, schema: Schema) -> None:
        fields = schema.fields
        self.length = len(fields)
        defaults = [f.schema.default for f in fields]
        self.defaults = None if defaults.count(None) == len(defaults) else defaults
        required = [f.index for f in fields if not f.schema.optional]
        self.required = _taker(required) if required else None
        self.containers = [f for f in fields if f.schema.type in _CONTAINERS]
        # Types of values that fit if integers are in range, which is asked of the function.
        self.fitting: dict[tuple[type, ...], Callable[[Sequence[Value]], bool]] = {}


def _range_check(schema: Schema, kinds: Sequence[type]) -> Callable[[Sequence[Value]], bool]:
    """A function that says of values of these types, each fitting its field, whether integers are in range."""
    places = [f.index for f in schema.fields if f.schema.type in _PACKED and kinds[f.index] is int]
    if not places:
        return lambda _: True
    take = _taker(places)
    pack = StructFormat("<" + "".join(_PACKED[schema.fields[place].schema.type] for place in places)).pack

    def in_range(values: Sequence[Value]) -> bool:
        try:
            pack(*take(values))
        except FormatError:
            return False
        return True

    return in_range


def _taker(places: Sequence[int]) -> Any:
    """A function that takes the values at these places, as a tuple."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


_rules = lru_cache(maxsize=1024)(_Rules)

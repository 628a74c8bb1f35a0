"""Conversion of schemaless lists with mixed item types to a form that fits an Arrow column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from connect_py.api.batch import Batch
from connect_py.api.errors import NotColumnar
from connect_py.api.record import SinkRecord
from connect_py.api.schema import Schema, Value

_LARGEST_EXACT = 1 << 53  # doubles represent all integers up to this value exactly


def column_batches(
    records: Sequence[SinkRecord], refuse: Callable[[SinkRecord, NotColumnar], None]
) -> Iterator[Batch]:
    """Yield batches of records. `refuse` is called for each record without a columnar form."""
    try:
        batches = Batch.of(records)
    except NotColumnar:
        try:
            batches = Batch.of(unify(records))
        except NotColumnar as error:
            if len(records) == 1:
                refuse(records[0], error)
                return
            middle = len(records) // 2
            yield from column_batches(records[:middle], refuse)
            yield from column_batches(records[middle:], refuse)
            return
    yield from batches


def unify(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    """Return the records with a single item type in each schemaless list.

    Integers become doubles if the same list also contains doubles, regardless of other records. An
    object in a list gets a null for each field that only other objects in corresponding lists have,
    whether in this record or another.

    Raises:
        NotColumnar: A list with doubles contains an integer that a double cannot represent exactly,
            or lists are nested too deeply.
    """
    try:
        keys = _unify_side([r.key_schema for r in records], [r.key for r in records])
        values = _unify_side([r.value_schema for r in records], [r.value for r in records])
    except RecursionError as error:
        raise NotColumnar("lists are nested too deeply") from error
    return [r.replace(key=k, value=v) for r, k, v in zip(records, keys, values, strict=True)]


def _unify_side(schemas: Sequence[Schema | None], values: Sequence[Value]) -> list[Any]:
    unified = _completed(
        [_unify(v) if s is None else None for s, v in zip(schemas, values, strict=True)]
    )
    return [new if s is None else v for s, v, new in zip(schemas, values, unified, strict=True)]


def _unify(value: Any) -> Any:
    """Return a value with a single number type in each list."""
    if type(value) is dict:
        return {name: _unify(member) for name, member in value.items()}
    return _unify_items(value) if type(value) is list else value


def _unify_items(items: Sequence[Any]) -> list[Any]:
    """Return the items of a list, or all items at one path, with a single number type."""
    kinds = set(map(type, items)) - {type(None)}
    if kinds == {int, float}:
        return [_double(item) if type(item) is int else item for item in items]
    if kinds == {list}:
        return _by_list(items, _unify_items)
    if kinds == {dict}:
        return _by_member(items, _unify_items, adds=False)
    return list(items)


def _double(number: int) -> float:
    if not -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
        raise NotColumnar(f"a list with doubles contains {number}, which has no exact double")
    return float(number)


def _completed(values: Sequence[Any], *, in_list: bool = False) -> list[Any]:
    """Return the values with the same fields in all objects inside corresponding lists."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {list}:
        return _by_list(values, lambda items: _completed(items, in_list=True))
    if kinds == {dict}:
        return _by_member(values, lambda column: _completed(column, in_list=in_list), adds=in_list)
    return list(values)


def _by_list(lists: Sequence[Any], change: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    """Apply `change` to the items of all lists in one call."""
    items = iter(change(list(chain.from_iterable(v for v in lists if type(v) is list))))
    return [[next(items) for _ in v] if type(v) is list else v for v in lists]


def _by_member(
    objects: Sequence[Any], change: Callable[[Sequence[Any]], list[Any]], *, adds: bool
) -> list[Any]:
    """Apply `change` to each field of all objects. Missing fields are null if `adds`."""
    results: list[Any] = [{} if type(v) is dict else v for v in objects]
    for name in dict.fromkeys(chain.from_iterable(v for v in objects if type(v) is dict)):
        indexes = [
            index for index, v in enumerate(objects) if type(v) is dict and (adds or name in v)
        ]
        new_values = change([objects[index].get(name) for index in indexes])
        for index, value in zip(indexes, new_values, strict=True):
            results[index][name] = value
    return results

"""Schemaless lists whose items differ, as JSON has them, made such that a column of a table can
hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

from connect_py.api.batch import Batch
from connect_py.api.errors import NotColumnar
from connect_py.api.record import SinkRecord
from connect_py.api.schema import Schema, Value

_LARGEST_EXACT = 1 << 53  # integer that a double holds, and all below it


def column_batches(
    records: Sequence[SinkRecord], refuse: Callable[[SinkRecord, NotColumnar], None]
) -> Iterator[Batch]:
    """Batches of records, as large as their shapes allow. `refuse` gets those that no column can
    hold, in order."""
    try:
        batches = Batch.of(records)
    except NotColumnar:
        try:
            batches = Batch.of(evened(records))
        except NotColumnar as error:
            if len(records) == 1:
                refuse(records[0], error)
                return
            middle = len(records) // 2
            yield from column_batches(records[:middle], refuse)
            yield from column_batches(records[middle:], refuse)
            return
    yield from batches


def evened(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    """The same records, schemaless lists of unlike items made alike.

    Integers become doubles in a list that has other numbers at their place: what a record becomes
    does not depend on its neighbours. Objects in lists get each other's members, as nulls, over all
    records.

    Raises: NotColumnar: An integer beside other numbers is too large for an exact double, or lists
        nest too deep.
    """
    try:
        keys = _evened_side([r.key_schema for r in records], [r.key for r in records])
        values = _evened_side([r.value_schema for r in records], [r.value for r in records])
    except RecursionError as error:
        raise NotColumnar("lists nest too deep") from error
    return [r.replace(key=k, value=v) for r, k, v in zip(records, keys, values, strict=True)]


def _evened_side(schemas: Sequence[Schema | None], values: Sequence[Value]) -> list[Any]:
    made = _completed(
        [_even(v) if s is None else None for s, v in zip(schemas, values, strict=True)]
    )
    return [new if s is None else v for s, v, new in zip(schemas, values, made, strict=True)]


def _even(value: Any) -> Any:
    """One value with numbers evened in its lists."""
    if type(value) is dict:
        return {name: _even(member) for name, member in value.items()}
    return _even_items(value) if type(value) is list else value


def _even_items(items: Sequence[Any]) -> list[Any]:
    """The items of a list, or what stands at one place in them, as far as numbers can make them
    alike."""
    kinds = set(map(type, items)) - {type(None)}
    if kinds == {int, float}:
        return [_double(item) if type(item) is int else item for item in items]
    if kinds == {list}:
        return _by_list(items, _even_items)
    if kinds == {dict}:
        return _by_member(items, _even_items, adds=False)
    return list(items)


def _double(number: int) -> float:
    if not -_LARGEST_EXACT <= number <= _LARGEST_EXACT:
        raise NotColumnar(
            f"a list has {number} beside numbers that are no integers: no double is that exact"
        )
    return float(number)


def _completed(values: Sequence[Any], *, in_list: bool = False) -> list[Any]:
    """The values with all members in all objects that are items of lists."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds == {list}:
        return _by_list(values, lambda items: _completed(items, in_list=True))
    if kinds == {dict}:
        return _by_member(values, lambda column: _completed(column, in_list=in_list), adds=in_list)
    return list(values)


def _by_list(lists: Sequence[Any], change: Callable[[Sequence[Any]], list[Any]]) -> list[Any]:
    """Change the items of all lists at once."""
    items = iter(change(list(chain.from_iterable(v for v in lists if type(v) is list))))
    return [[next(items) for _ in v] if type(v) is list else v for v in lists]


def _by_member(
    objects: Sequence[Any], change: Callable[[Sequence[Any]], list[Any]], *, adds: bool
) -> list[Any]:
    """Change the values of each member at once; `adds`: null to those objects that lack it."""
    made: list[Any] = [{} if type(v) is dict else v for v in objects]
    for name in dict.fromkeys(chain.from_iterable(v for v in objects if type(v) is dict)):
        there = [
            index for index, v in enumerate(objects) if type(v) is dict and (adds or name in v)
        ]
        changed = change([objects[index].get(name) for index in there])
        for index, value in zip(there, changed, strict=True):
            made[index][name] = value
    return made

"""Schemaless lists whose items differ, as JSON has them, made such that a column of a table can hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from connect_py.api.errors import NotColumnar
from connect_py.api.record import SinkRecord

_LARGEST_EXACT = 1 << 53  # integer that a double holds, and all below it


def evened(records: Sequence[SinkRecord]) -> list[SinkRecord]:
    """The same records, schemaless lists of unlike items made alike.

    Integers become doubles in a list that has other numbers at their place: what a record becomes does not depend on
    its neighbours. Objects in lists get each other's members, as nulls, over all records.

    Raises:
        NotColumnar: An integer beside other numbers is too large for an exact double, or lists nest too deep.
    """
    try:
        keys = [r.key if r.key_schema is not None else _even(r.key) for r in records]
        values = [r.value if r.value_schema is not None else _even(r.value) for r in records]
        plain_keys = _completed([None if r.key_schema is not None else k for r, k in zip(records, keys, strict=True)])
        plain = _completed([None if r.value_schema is not None else v for r, v in zip(records, values, strict=True)])
    except RecursionError as error:
        raise NotColumnar("lists nest too deep") from error
    return [
        r.replace(
            key=k if r.key_schema is not None else even_key, value=v if r.value_schema is not None else even_value
        )
        for r, k, v, even_key, even_value in zip(records, keys, values, plain_keys, plain, strict=True)
    ]


def _even(value: Any) -> Any:
    """One value with numbers evened in its lists."""
    if type(value) is dict:
        return {name: _even(member) for name, member in value.items()}
    return _even_items(value) if type(value) is list else value


def _even_items(items: Sequence[Any]) -> list[Any]:
    """The items of a list, or what stands at one place in them, as far as numbers can make them alike."""
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
        raise NotColumnar(f"a list has {number} beside numbers that are no integers: no double is that exact")
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


def _by_member(objects: Sequence[Any], change: Callable[[Sequence[Any]], list[Any]], *, adds: bool) -> list[Any]:
    """Change the values of each member at once; `adds`: null to those objects that lack it."""
    made: list[Any] = [{} if type(v) is dict else v for v in objects]
    for name in dict.fromkeys(chain.from_iterable(v for v in objects if type(v) is dict)):
        there = [index for index, v in enumerate(objects) if type(v) is dict and (adds or name in v)]
        changed = change([objects[index].get(name) for index in there])
        for index, value in zip(there, changed, strict=True):
            made[index][name] = value
    return made

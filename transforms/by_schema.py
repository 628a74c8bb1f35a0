"""`BySchema`: remembers what follows from a schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from connect_py.api.schema import Schema

T = TypeVar("T")


class BySchema(Generic[T]):
    """Calls a function once per schema. Row forms ask for every record, so that is what is quick.

    Schemas are known by identity: comparing two objects that are equal takes longer than
    transforming a row. Equal ones have one answer all the same.
    """

    def __init__(self, make: Callable[[Schema], T], size: int = 64) -> None:
        """`size` bounds how many answers are kept. What `make` raises is raised, and not
        remembered."""
        self._make = lru_cache(maxsize=size)(make)
        self._size = size
        self._known: dict[
            int, tuple[Schema, T]
        ] = {}  # holds the schema: as long as it is here, its identity is its own

    def __call__(self, schema: Schema) -> T:
        """The answer for a schema."""
        found = self._known.get(id(schema))
        if found is not None:
            return found[1]
        if len(self._known) >= self._size:
            self._known.clear()
        made = self._make(schema)
        self._known[id(schema)] = schema, made
        return made

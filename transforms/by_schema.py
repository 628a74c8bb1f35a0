"""`BySchema`: a cache of values that are derived from a schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from connect_py.api.schema import Schema

T = TypeVar("T")


class BySchema(Generic[T]):
    """Function of a schema that caches its results. Row forms call it for every record.

    Results are looked up by the identity of the schema object, because comparing two equal schemas
    takes longer than transforming a row. Equal schemas share one result.
    """

    def __init__(self, function: Callable[[Schema], T], size: int = 64) -> None:
        """Cache up to `size` results of a function. Its exceptions propagate and are not cached."""
        self._function = lru_cache(maxsize=size)(function)
        self._size = size
        # schema ID -> (schema, result); references the schema, or its ID could be reused
        self._by_id: dict[int, tuple[Schema, T]] = {}

    def __call__(self, schema: Schema) -> T:
        """Return the cached or computed result for a schema."""
        entry = self._by_id.get(id(schema))
        if entry is not None:
            return entry[1]
        if len(self._by_id) >= self._size:
            self._by_id.clear()
        result = self._function(schema)
        self._by_id[id(schema)] = schema, result
        return result

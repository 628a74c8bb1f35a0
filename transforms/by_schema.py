"""`BySchema`: caches values that are derived from a schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from connect_py.api.schema import Schema

T = TypeVar("T")


class BySchema(Generic[T]):
    """Caches the results of a function that takes a schema.

    Transformations call it for every record that they process individually. The lookup uses the
    identity of the schema object, because comparing two equal schemas takes longer than
    transforming a row. Equal schemas share one result.
    """

    def __init__(self, function: Callable[[Schema], T], size: int = 64) -> None:
        """Cache up to `size` results from `function`. Exceptions propagate and are not cached."""
        self._function = lru_cache(maxsize=size)(function)
        self._size = size
        # id(schema) -> (schema, result); the reference to the schema prevents reuse of its ID
        self._by_id: dict[int, tuple[Schema, T]] = {}

    def __call__(self, schema: Schema) -> T:
        """Return the result for a schema, from the cache if possible."""
        entry = self._by_id.get(id(schema))
        if entry is not None:
            return entry[1]
        if len(self._by_id) >= self._size:
            self._by_id.clear()
        result = self._function(schema)
        self._by_id[id(schema)] = schema, result
        return result

"""JSONPath over Connect values, by the library."""

from __future__ import annotations

from typing import Any

from connect_py.api.config import ConfigValueError
from connect_py.api.schema import Value
from transforms.plain_values import plain

# Jayway's: the condition is about the object itself, not about its members
_FILTERS_OF_ROOT = ("$[?", "$.[?")


class JsonPath:
    """A compiled path."""

    def __init__(self, name: str, text: str) -> None:
        """Compile the value of an option. ConfigError: it is no path."""
        import jsonpath

        self._filters_root = text.startswith(_FILTERS_OF_ROOT)
        path = "$" + text[text.index("[") :] if self._filters_root else text
        try:
            self._path: Any = jsonpath.compile(path)
        except jsonpath.JSONPathError as error:
            raise ConfigValueError(name, text, f"Invalid JSON path: {error}") from error

    def find(self, value: Value) -> list[Any]:
        """All matches in a struct, map or list; none in anything else."""
        tree = plain(value)
        if not isinstance(tree, dict | list):
            return []
        found: list[Any] = self._path.findall(
            [tree] if self._filters_root and isinstance(tree, dict) else tree
        )
        return found

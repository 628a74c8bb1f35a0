"""JSONPath queries on Connect values, implemented with python-jsonpath."""

from __future__ import annotations

from typing import Any

from connect_py.api.config import ConfigValueError
from connect_py.api.schema import Value
from transforms.plain_values import plain

# Prefixes of paths that filter the root. As in Jayway's JsonPath, the condition applies to the root
# object, not to its members.
_FILTERS_OF_ROOT = ("$[?", "$.[?")


class JsonPath:
    """Compiled JSONPath."""

    def __init__(self, name: str, path: str) -> None:
        """Compile `path`, the value of the option `name`; raise ConfigError if it is invalid."""
        import jsonpath

        self._filters_root = path.startswith(_FILTERS_OF_ROOT)
        compiled = "$" + path[path.index("[") :] if self._filters_root else path
        try:
            self._path: Any = jsonpath.compile(compiled)
        except jsonpath.JSONPathError as error:
            raise ConfigValueError(name, path, f"Invalid JSON path: {error}") from error

    def find(self, value: Value) -> list[Any]:
        """Return all matches in a struct, map, or list. Other values have no matches."""
        tree = plain(value)
        if not isinstance(tree, dict | list):
            return []
        matches: list[Any] = self._path.findall(
            [tree] if self._filters_root and isinstance(tree, dict) else tree
        )
        return matches

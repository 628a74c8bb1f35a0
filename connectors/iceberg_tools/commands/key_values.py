"""Options of the form KEY=VALUE that may be repeated."""

from __future__ import annotations

from collections.abc import Iterable

from connect_py.api.errors import ConfigError


def key_values(option: str, items: Iterable[str] | None) -> dict[str, str]:
    """What was given, the last value of each key.

    Raises:
        ConfigError: An item is not of this form; `option` names where.
    """
    found: dict[str, str] = {}
    for item in items or ():
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise ConfigError(option, f"{item} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found

"""Parse options of the form KEY=VALUE that may be repeated."""

from __future__ import annotations

from collections.abc import Iterable

from connect_py.api.errors import ConfigError


def key_values(option: str, items: Iterable[str] | None) -> dict[str, str]:
    """Return the values by key. The last value of a repeated key applies.

    Raises:
        ConfigError: An item does not have this form. The error names the option.
    """
    values: dict[str, str] = {}
    for item in items or ():
        key, separator, value = item.partition("=")
        if not separator or not key.strip():
            raise ConfigError(option, f"{item} is not of the form key=value")
        values[key.strip()] = value.strip()
    return values

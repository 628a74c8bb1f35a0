"""Parser for Java's `sasl.jaas.config`, which contains a login module and its options."""

from __future__ import annotations

import re
from typing import Final

from connect_py.api.errors import ConfigError

_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)""")


def parse_jaas(text: str) -> tuple[str, dict[str, str]]:
    """Split a `sasl.jaas.config` into the login module's class name and its options.

    Raises:
        ConfigError: The format is invalid. The message does not contain the value, which may
            include secrets.
    """
    stripped = text.strip()
    match = re.match(
        r"([\w.$]+)\s+(required|requisite|sufficient|optional)\b", stripped, re.IGNORECASE
    )
    if match is None or not stripped.endswith(";"):
        raise ConfigError("sasl.jaas.config", "expected '<login module> required <options>;'")
    options = {}
    for name, value in _OPTION.findall(stripped[match.end() : -1]):
        quoted = value[:1] in "\"'"
        options[name] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return match.group(1), options

"""Adjustment of field and schema names to the rules of Avro."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")
_ILLEGAL_OR_UNDERSCORE = re.compile(r"[^A-Za-z0-9]")


def _plain(name: str) -> str:
    adjusted = _ILLEGAL.sub("_", name)
    return f"_{adjusted}" if adjusted[:1].isdigit() else adjusted


def _unicode(name: str) -> str:
    adjusted = _ILLEGAL_OR_UNDERSCORE.sub(lambda match: _escaped(match[0]), name)
    return _escaped(adjusted[0]) + adjusted[1:] if adjusted[:1].isdigit() else adjusted


def _escaped(character: str) -> str:
    """Return the code of the character in UTF-16, as one or two escapes."""
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"_u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


# modes of `field.name.adjustment.mode`
ADJUSTMENTS: Final[Mapping[str, Callable[[str], str]]] = {
    "none": str,
    "avro": _plain,
    "avro_unicode": _unicode,
}


def adjusted_schema_name(mode: str, name: str) -> str:
    """Return the adjusted full name of a schema in a `schema.name.adjustment.mode`.

    Dots are not changed.
    """
    first, *parts = name.split(".")
    adjusted = ADJUSTMENTS[mode]
    # only the first part must not begin with a digit
    return ".".join([adjusted(first), *(adjusted(f"x{part}")[1:] for part in parts)])

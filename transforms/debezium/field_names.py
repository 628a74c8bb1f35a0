"""Adjustment of field and schema names to Avro's naming rules."""

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
    """Return the UTF-16 code of the character as one or two escapes."""
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"_u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


# value of `field.name.adjustment.mode` -> function that adjusts a name
ADJUSTMENTS: Final[Mapping[str, Callable[[str], str]]] = {
    "none": str,
    "avro": _plain,
    "avro_unicode": _unicode,
}


def adjusted_schema_name(mode: str, name: str) -> str:
    """Return the full name of a schema, adjusted in this mode. Dots are unchanged.

    `mode` is a value of `schema.name.adjustment.mode`.
    """
    first, *parts = name.split(".")
    adjusted = ADJUSTMENTS[mode]
    # the parts after the first may begin with a digit
    return ".".join([adjusted(first), *(adjusted(f"x{part}")[1:] for part in parts)])

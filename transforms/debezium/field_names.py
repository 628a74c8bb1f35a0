"""Names of fields and schemas as Avro allows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")
_ILLEGAL_OR_UNDERSCORE = re.compile(r"[^A-Za-z0-9]")


def _plain(name: str) -> str:
    made = _ILLEGAL.sub("_", name)
    return f"_{made}" if made[:1].isdigit() else made


def _unicode(name: str) -> str:
    made = _ILLEGAL_OR_UNDERSCORE.sub(lambda found: _escaped(found[0]), name)
    return _escaped(made[0]) + made[1:] if made[:1].isdigit() else made


def _escaped(character: str) -> str:
    """The character by its code in UTF-16, as one or two escapes."""
    data = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"_u{data[at : at + 2].hex()}" for at in range(0, len(data), 2))


# modes of `field.name.adjustment.mode`
ADJUSTMENTS: Final[Mapping[str, Callable[[str], str]]] = {
    "none": str,
    "avro": _plain,
    "avro_unicode": _unicode,
}


def adjusted_schema_name(mode: str, name: str) -> str:
    """The full name of a schema under a mode of `schema.name.adjustment.mode`; its dots stay."""
    first, *parts = name.split(".")
    adjusted = ADJUSTMENTS[mode]
    # digits begin later parts
    return ".".join([adjusted(first), *(adjusted(f"x{part}")[1:] for part in parts)])

"""How `generalized.sum.type.support` names unions and enums, the same for all formats."""

from __future__ import annotations

from typing import Final

from connect_py.api.schema import Schema, Type

ENUM: Final = "org.apache.kafka.connect.data.Enum"  # a parameter; its value is the enum's name
UNION: Final = "org.apache.kafka.connect.data.Union"  # a parameter; its value is the struct's name
_PREFIX: Final = "connect_union_"


def enum_parameters(name: str, symbols: list[str]) -> dict[str, str]:
    """The parameters of an enum: its name, and the place of each symbol."""
    return {ENUM: name, **{f"{ENUM}.{symbol}": str(place) for place, symbol in enumerate(symbols)}}


def union_name(number: int) -> str:
    """What the struct that stands for a union is called, by the number of unions before it."""
    return f"{_PREFIX}{number}"


def branch_name(place: int) -> str:
    """What the field for a branch is called."""
    return f"{_PREFIX}field_{place}"


def is_union(schema: Schema) -> bool:
    """Whether a struct stands for a union."""
    return schema.type is Type.STRUCT and UNION in schema.parameters

"""Names for unions and enums in all formats if `generalized.sum.type.support` is true."""

from __future__ import annotations

from typing import Final

from connect_py.api.schema import Schema, Type

ENUM: Final = "org.apache.kafka.connect.data.Enum"  # schema parameter with the name of the enum
UNION: Final = "org.apache.kafka.connect.data.Union"  # schema parameter with the name of the struct
_PREFIX: Final = "connect_union_"


def enum_parameters(name: str, symbols: list[str]) -> dict[str, str]:
    """Return the schema parameters for an enum: its name, and the index of each symbol."""
    return {ENUM: name, **{f"{ENUM}.{symbol}": str(index) for index, symbol in enumerate(symbols)}}


def union_name(number: int) -> str:
    """Return the name of the struct that represents a union. Unions are numbered from 0."""
    return f"{_PREFIX}{number}"


def branch_name(index: int) -> str:
    """Return the name of the field that represents a branch."""
    return f"{_PREFIX}field_{index}"


def is_union(schema: Schema) -> bool:
    """Return True if a struct represents a union."""
    return schema.type is Type.STRUCT and UNION in schema.parameters

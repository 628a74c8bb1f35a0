"""Parsers for `partition-by` and `sort-by` lists. Standard library only.

    list      := fields | "[" fields "]"
    fields    := field ("," field)*            a comma inside parentheses does not separate fields
    field     := NAME "(" arguments ")" | column
    transform := year|years|month|months|day|days|hour|hours|identity|void ( column )
               | bucket ( column , N )  |  truncate ( column , W )
    column    := a name, or a dotted path to a nested field

Transform names are lowercase, and column names are case-sensitive. A field that does not have the
form `name(...)` is a column with the identity transform. Whitespace around fields and columns is
ignored. In `sort-by`, each field may be followed by a direction, as in `region, days(placed) desc
nulls last`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_CALL = re.compile(r"(\w+)\((.*)\)", re.ASCII)
_TIMES = ("year", "month", "day", "hour")
_SORT_ITEM: Final = re.compile(
    r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL
)
_SUFFIX = {"bucket": "_bucket", "truncate": "_trunc", "identity": "", "void": "_null"}


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """Field of a partition spec or sort order: a transform of one column."""

    column: str  # dotted path
    transform: str  # Iceberg's name: identity, void, year, month, day, hour, bucket, or truncate
    argument: int | None = None  # number of buckets, or width for truncate

    @property
    def name(self) -> str:
        """Name that the Java sink gives the partition field."""
        return self.column + _SUFFIX.get(self.transform, f"_{self.transform}")

    @property
    def iceberg_transform(self) -> str:
        """Transform in the notation of Iceberg's partition specs."""
        return self.transform if self.argument is None else f"{self.transform}[{self.argument}]"


@dataclass(frozen=True, slots=True)
class SortTerm:
    """Field of a sort order."""

    term: PartitionTerm
    descending: bool = False
    nulls_first: bool = True

    @property
    def sorts_files(self) -> bool:
        """True if rows that are sorted by the column are also sorted by the transform."""
        return self.term.transform not in ("bucket", "void")


def split_outside_brackets(text: str) -> list[str]:
    """Split a string at the commas outside (), [], and {}, except commas after a backslash.

    Items are stripped of whitespace, and empty items are omitted.
    """
    items, depth, start = [], 0, 0
    escaped = False
    for index, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth <= 0:
            items.append(text[start:index])
            start = index + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def list_items(text: str) -> tuple[str, ...]:
    """Return the items of a list, which may be enclosed in brackets, as in `[a, bucket(b, 4)]`.

    Raises:
        ValueError: An item starts with a bracket or contains an unmatched bracket.
    """
    text = text.strip()
    if (
        text.startswith("[")
        and text.endswith("]")
        and "[" not in text[1:-1]
        and "]" not in text[1:-1]
    ):
        text = text[1:-1]
    items = tuple(split_outside_brackets(text))
    for item in items:
        if item.startswith("[") or item.count("[") != item.count("]"):
            raise ValueError(f"{item}: brackets must enclose the whole list, as in [a, b]")
    return items


def parse_partition_by(items: tuple[str, ...]) -> tuple[PartitionTerm, ...]:
    """Parse the items of a `partition-by` list.

    Raises:
        ValueError: An item does not conform to the grammar, or is a duplicate.
    """
    terms = tuple(_parse_term(item) for item in items)
    names = [term.name for term in terms]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"Duplicate partition field {name}")
    return terms


def parse_sort_by(text: str) -> tuple[SortTerm, ...]:
    """Parse a `sort-by` list.

    As in Iceberg, the default direction is ascending, and nulls are the smallest values.

    Raises:
        ValueError: An item does not conform to the grammar, or is a duplicate.
    """
    terms: list[SortTerm] = []
    for item in list_items(text):
        match = _SORT_ITEM.fullmatch(item)
        if match is None:
            raise ValueError(
                f"invalid sort field {item!r}: expected a column, optionally followed by asc or "
                "desc and nulls first or nulls last"
            )
        (term,) = parse_partition_by((match[1].strip(),))
        descending = (match[2] or "asc").lower() == "desc"
        nulls_first = not descending if match[3] is None else match[3].lower() == "first"
        if term in [each.term for each in terms]:
            raise ValueError(f"duplicate sort field {item}")
        terms.append(SortTerm(term, descending, nulls_first))
    return tuple(terms)


def _parse_term(item: str) -> PartitionTerm:
    call = _CALL.fullmatch(item)
    if call is None:
        if "(" in item or ")" in item:
            raise ValueError(f"Invalid partition field {item}: expected transform(column)")
        return PartitionTerm(item.strip(), "identity")
    name, inside = call.group(1), call.group(2)
    if name.removesuffix("s") in _TIMES:
        return PartitionTerm(_column(item, inside), name.removesuffix("s"))
    if name in ("identity", "void"):
        return PartitionTerm(_column(item, inside), name)
    if name in ("bucket", "truncate"):
        parts = [part.strip() for part in inside.split(",")]
        if len(parts) != 2:
            raise ValueError(f"Invalid argument {inside}, should have 2 parts")
        column, number = parts
        if column.isdecimal() and not number.isdecimal():
            raise ValueError(
                f"Invalid partition field {item}: the column comes first, as in {name}({number}, "
                f"{column})"
            )
        if not number.isdecimal() or int(number) < 1:
            raise ValueError(f"Invalid partition field {item}: {number} is not a positive integer")
        return PartitionTerm(_column(item, column), name, int(number))
    raise ValueError(f"Unsupported transform: {name}")


def _column(item: str, text: str) -> str:
    column = text.strip()
    if not column or "," in column:
        raise ValueError(f"Invalid partition field {item}: expected one column")
    return column

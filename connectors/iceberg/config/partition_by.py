"""The text of `partition-by`: what users write, parsed. Standard library only.

    list      := fields | "[" fields "]"
    fields    := field ("," field)*            commas inside parentheses do not split; items are trimmed
    field     := NAME "(" arguments ")" | column
    transform := year|years|month|months|day|days|hour|hours|identity|void ( column )
               | bucket ( column , N )  |  truncate ( column , W )
    column    := a name, or a dotted path to a nested field

Transform names are lower case, column names case-sensitive. A text without the form `name(...)` is
an identity column. Blanks around a column are cut, also inside parentheses.
"""  # noqa: E501 - a table or a literal is wider

from __future__ import annotations

import re
from dataclasses import dataclass

_CALL = re.compile(r"(\w+)\((.*)\)", re.ASCII)
_TIMES = ("year", "month", "day", "hour")
_SUFFIX = {"bucket": "_bucket", "truncate": "_trunc", "identity": "", "void": "_null"}


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One partition field as asked for: a transform over a column."""

    column: str  # dotted path
    transform: str  # Iceberg's word: identity, void, year, month, day, hour, bucket, truncate
    argument: int | None = None  # of bucket and truncate

    @property
    def name(self) -> str:
        """The partition field's name, as Java's sink gives it."""
        return self.column + _SUFFIX.get(self.transform, f"_{self.transform}")

    @property
    def iceberg_transform(self) -> str:
        """The transform as Iceberg writes it in a spec."""
        return self.transform if self.argument is None else f"{self.transform}[{self.argument}]"


def split_outside_brackets(text: str) -> list[str]:
    """Cut at commas that stand outside (), [] and {}; items are trimmed, empty ones left out."""
    items, depth, start = [], 0, 0
    escaped = False
    for at, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth <= 0:
            items.append(text[start:at])
            start = at + 1
    items.append(text[start:])
    return [item.strip() for item in items if item.strip()]


def list_items(text: str) -> tuple[str, ...]:
    """The items of a list of columns or partition fields, which may stand in brackets: `[a,
    bucket(b, 4)]`.

    Raises:
        ValueError: An item begins with a bracket, or has one without its counterpart.
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
            raise ValueError(f"{item}: brackets may stand around the whole list only, as in [a, b]")
    return items


def parse_partition_by(items: tuple[str, ...]) -> tuple[PartitionTerm, ...]:
    """Parse the items of a partition-by list.

    Raises:
        ValueError: An item is not in the grammar; the text says which and why.
    """
    terms = tuple(_parse_term(item) for item in items)
    names = [term.name for term in terms]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ValueError(f"Partition field {name} is given twice")
    return terms


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
            raise ValueError(
                f"Invalid partition field {item}: {number} is not a positive whole number"
            )
        return PartitionTerm(_column(item, column), name, int(number))
    raise ValueError(f"Unsupported transform: {name}")


def _column(item: str, text: str) -> str:
    column = text.strip()
    if not column or "," in column:
        raise ValueError(f"Invalid partition field {item}: expected one column")
    return column

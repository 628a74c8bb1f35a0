"""The text of `sort-by`: `region, days(placed) desc nulls last`, with the transforms of
`partition-by`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from connectors.iceberg.config.partition_by import PartitionTerm, list_items, parse_partition_by

_ITEM: Final = re.compile(
    r"(.+?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True, slots=True)
class SortTerm:
    """One field of a sort order as asked for."""

    term: PartitionTerm
    descending: bool = False
    nulls_first: bool = True

    @property
    def sorts_files(self) -> bool:
        """Whether rows in the order of the column are in the order of the term, too."""
        return self.term.transform not in ("bucket", "void")


def parse_sort_by(text: str) -> tuple[SortTerm, ...]:
    """Parse a list. Without a word, smaller values come first, and nulls are the smallest, as in
    Iceberg.

    Raises:
        ValueError: An item is not in the grammar, or given twice.
    """
    found: list[SortTerm] = []
    for item in list_items(text):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(
                f"{item} is no column, with asc or desc, nulls first or nulls last behind it"
            )
        (term,) = parse_partition_by((match[1].strip(),))
        descending = (match[2] or "asc").lower() == "desc"
        nulls_first = not descending if match[3] is None else match[3].lower() == "first"
        if term in [each.term for each in found]:
            raise ValueError(f"{item} is given twice")
        found.append(SortTerm(term, descending, nulls_first))
    return tuple(found)

"""Counts of objects in messages."""

from __future__ import annotations


def pluralize(
    count: int, singular: str, plural: str | None = None, *, grouped: bool = False
) -> str:
    """Return the count with the singular or the plural of a noun, for example `2 records`.

    Args:
        count: The number of objects.
        singular: The noun for a count of 1. It may be a phrase, for example `row is missing`.
        plural: The noun for other counts. By default, this is the singular with the suffix `s`.
        grouped: Separate groups of three digits with commas, as in `1,234 records`.
    """
    number = f"{count:,}" if grouped else str(count)
    return f"{number} {singular if count == 1 else plural or singular + 's'}"

"""Formats counts of objects for messages."""

from __future__ import annotations


def pluralize(
    count: int, singular: str, plural: str | None = None, *, grouped: bool = False
) -> str:
    """Return a count with the singular or plural form of a noun, for example `2 records`.

    Args:
        count: Number of objects.
        singular: Noun for a count of 1. It may be a phrase, for example `row is missing`.
        plural: Noun for all other counts. The default is the singular with the suffix `s`.
        grouped: If true, separate groups of three digits with commas, as in `1,234 records`.
    """
    number = f"{count:,}" if grouped else str(count)
    return f"{number} {singular if count == 1 else plural or singular + 's'}"

"""Results that must be equal: the rows of a converter, and its columns with and without the native
decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from unittest.mock import patch

from fixtures.converter_rows import by_columns, by_reference, same
from fuzz_target import Case, FuzzTarget, Poll

from connect_py.api.converter import Converter
from connect_py.api.errors import ConfigError, NotColumnar
from connect_py.api.schema import SchemaAndValue
from connect_py.columns.arrow import to_array, to_values

NATIVE: Final = "native"
PYTHON: Final = "python"
FORMS: Final = (NATIVE, PYTHON)


@dataclass
class Tally:
    """Counts of comparisons."""

    cases: int = 0
    rows: int = 0
    refused: int = 0
    polls: int = 0  # with a row that is neither refused nor null
    columnar: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FORMS, 0))

    def add(self, other: Tally) -> None:
        """Count another tally along."""
        self.cases += other.cases
        self.rows += other.rows
        self.refused += other.refused
        self.polls += other.polls
        for form, count in other.columnar.items():
            self.columnar[form] += count


class Different(Exception):  # noqa: N818 - named after the finding
    """Two forms do not agree."""


@contextmanager
def reading(form: str) -> Iterator[None]:
    """Read inside the block with, or without, the native decoder."""
    if form == NATIVE:
        yield
        return
    with patch("connect_py.converters.native.decoder.library", return_value=None):
        yield


def told(error: BaseException) -> str:
    """Return the parts of an error that a dead-letter record contains: class, message, and
    causes.
    """
    cause = error.__cause__
    return f"{type(error).__name__}: {error}" + (f" <- {told(cause)}" if cause is not None else "")


def compare(target: FuzzTarget, case: Case) -> Tally:
    """Read the polls of a case in all forms.

    Raises:
        Different: Two forms do not agree.
    """
    tally = Tally(cases=1)
    converters: dict[str, Converter] = {}
    for form in FORMS:
        try:
            with reading(form):
                converters[form] = target.converter(case)
        except ConfigError:
            return tally
    for number, poll in enumerate(case.polls):
        _compare_poll(converters, number, poll, tally)
    return tally


def _compare_poll(converters: dict[str, Converter], number: int, poll: Poll, tally: Tally) -> None:
    data, headers = [message for message, _ in poll], [each for _, each in poll]
    expected = by_reference(converters[NATIVE], data, headers=headers, told=told)
    sound = any(isinstance(row, SchemaAndValue) and row.value is not None for row in expected)
    tally.polls += sound
    tally.rows += len(poll)
    tally.refused += sum(isinstance(row, str) for row in expected)
    for form, converter in converters.items():
        try:
            with reading(form):
                rows = by_columns(
                    converter, data, headers=headers if any(headers) else None, told=told
                )
        except NotColumnar:
            continue
        tally.columnar[form] += sound
        for place, (row, wanted) in enumerate(zip(rows, expected, strict=True)):
            if not same(row, wanted):
                raise Different(
                    f"{form}: poll {number} row {place} {data[place]!r}\n  made {row!r}\n  rows "
                    f"{wanted!r}"
                )
    _compare_columns_of_rows(expected, number)


def _compare_columns_of_rows(rows: list[SchemaAndValue | str], number: int) -> None:
    """The way from rows to columns, which sinks take, and back."""
    by_schema: dict[object, list[SchemaAndValue]] = {}
    for row in rows:
        if isinstance(row, SchemaAndValue) and row.schema is not None:
            by_schema.setdefault(row.schema, []).append(row)
    for found in by_schema.values():
        schema = found[0].schema
        assert schema is not None
        values = [row.value for row in found]
        try:
            back = to_values(schema, to_array(schema, values))
        except NotColumnar:
            continue
        for value, again in zip(values, back, strict=True):
            if not same(value, again):
                raise Different(
                    f"rows to columns and back: poll {number}\n  made {again!r}\n  rows {value!r}"
                )

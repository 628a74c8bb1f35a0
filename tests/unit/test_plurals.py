"""Counts in messages have the correct form of their noun."""

from __future__ import annotations

import pytest

from connect_py.plurals import pluralize


@pytest.mark.parametrize(
    ("count", "message"),
    [(0, "0 records"), (1, "1 record"), (2, "2 records"), (1234, "1234 records")],
)
def test_only_a_count_of_one_has_the_singular(count: int, message: str) -> None:
    assert pluralize(count, "record") == message


def test_an_irregular_plural_is_used_for_other_counts() -> None:
    assert pluralize(1, "branch", "branches") == "1 branch"
    assert pluralize(2, "branch", "branches") == "2 branches"


def test_a_verb_agrees_with_the_count() -> None:
    assert pluralize(1, "row is missing", "rows are missing") == "1 row is missing"
    assert pluralize(0, "row is missing", "rows are missing") == "0 rows are missing"


def test_thousands_are_separated_on_request() -> None:
    assert pluralize(1234567, "record", grouped=True) == "1,234,567 records"
    assert pluralize(1, "record", grouped=True) == "1 record"

"""Dates and days since the epoch, compared with Python's calendar, and with Java before 1582."""

from __future__ import annotations

from datetime import date, timedelta

import pytest

from connect_py.java.civil_days import date_of, days_of, java_date_of, java_days_of

EPOCH = date(1970, 1, 1)


@pytest.mark.parametrize(
    "days", [-719_162, -141_428, -141_427, -25_568, -1, 0, 58, 59, 60, 11_016, 20_000, 2_932_896]
)
def test_gregorian_dates_are_those_of_python(days: int) -> None:
    expected = EPOCH + timedelta(days)
    assert date_of(days) == (expected.year, expected.month, expected.day)
    assert days_of(*date_of(days)) == days


def test_years_outside_of_python_repeat_every_400() -> None:
    assert date_of(days_of(2024, 2, 29) - 146_097 * 20) == (2024 - 8000, 2, 29)
    assert date_of(days_of(2024, 2, 29) + 146_097 * 30) == (2024 + 12_000, 2, 29)


def test_java_leaves_out_ten_days_of_1582() -> None:
    assert java_date_of(-141_427) == (1582, 10, 15)
    assert java_date_of(-141_428) == (1582, 10, 4)
    assert java_days_of(1582, 10, 4) == -141_428
    # a leap day of the Julian calendar only
    assert java_date_of(java_days_of(1500, 2, 29)) == (1500, 2, 29)

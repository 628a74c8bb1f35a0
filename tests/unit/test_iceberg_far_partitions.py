"""Partitions of moments that no `datetime` can hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from iceberg_staging_rows import table

from connect_py.java.civil_days import date_of, days_of
from connectors.iceberg.conversion.partitioning import Partitioner
from connectors.iceberg.conversion.temporal import parse_date

HOUR = 3_600_000_000  # microseconds


def partitions_of(type_: str, transform: str, data: pa.Array) -> list[Any]:
    """The partition value of each row."""
    fields = [{"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}]
    split = Partitioner(
        table([("c", type_)]).schema, json.dumps({"spec-id": 0, "fields": fields})
    ).split
    made = {}
    for (value,), rows in split(pa.table({"c": data, "at": list(range(len(data)))})):
        for at in rows.column("at").to_pylist():
            made[at] = None if value is None else json.loads(value)
    return [made[at] for at in range(len(data))]


def test_the_first_moments_of_64_bits_stay_in_the_past() -> None:
    values = [-(2**63) + 1, -(2**63) + HOUR, -HOUR - 1, -HOUR, -1, 0, 2**63 - 2]
    micros = pa.array(values).view(pa.timestamp("us"))
    assert partitions_of("timestamp", "hour", micros) == [v // HOUR for v in values]
    nanos = pa.array([-(2**63), -1, 0, 2**63 - 1]).view(pa.timestamp("ns"))
    assert partitions_of("timestamp_ns", "year", nanos) == [1677 - 1970, -1, 0, 2262 - 1970]


YEARS = [
    -290_000,
    -40_000,
    -32_769,
    -32_768,
    -4000,
    -1,
    0,
    1,
    1600,
    9999,
    10_000,
    32_767,
    32_768,
    40_000,
    290_000,
]


@pytest.mark.parametrize("years", [YEARS, YEARS[3:12]])
def test_years_beyond_16_bits_have_their_partitions(years: list[int]) -> None:
    days = [days_of(year, 3, 5) for year in years] + [days_of(year, 12, 31) for year in years]
    dates = pa.array([*days, None], pa.int32()).view(pa.date32())
    moments = pa.array([*(d * 24 * HOUR - 1 + 24 * HOUR for d in days), None]).view(
        pa.timestamp("us")
    )
    for type_, data in (("date", dates), ("timestamp", moments)):
        expected = [year - 1970 for year in years]
        assert partitions_of(type_, "year", data) == [*expected, *expected, None]
        assert partitions_of(type_, "month", data) == [
            *(year * 12 + 2 for year in expected),
            *(year * 12 + 11 for year in expected),
            None,
        ]


def test_days_beyond_datetime_limits_partition_with_java_calendar_text() -> None:
    texts = [
        "-32769-01-01",
        "-0043-03-15",
        "0000-02-29",
        "9999-12-31",
        "+10000-01-01",
        "+294247-01-10",
    ]
    days = [parse_date(text) for text in texts]
    dates = pa.array(days, pa.int32()).view(pa.date32())
    assert partitions_of("date", "day", dates) == texts
    assert partitions_of("date", "identity", dates) == texts
    moments = pa.array([d * 24 * HOUR + 1 for d in days]).view(pa.timestamp("us"))
    assert partitions_of("timestamp", "identity", moments) == [
        f"{text}T00:00:00.000001" for text in texts
    ]


def test_days_and_calendar_dates_belong_together() -> None:
    for days in (*range(-800_000, 800_000, 997), -(2**31), 2**31 - 1, 59, 60, -719_468, -719_469):
        assert days_of(*date_of(days)) == days
        assert date_of(days) < date_of(days + 1)

"""Partitions of moments that no `datetime` can hold."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from iceberg_staging_rows import table

from connectors.iceberg.staging.partitioning import Partitioner

HOUR = 3_600_000_000  # microseconds


def partitions_of(type_: str, transform: str, data: pa.Array) -> list[Any]:
    """The partition value of each row."""
    fields = [{"source-id": 1, "field-id": 1000, "name": "p", "transform": transform}]
    split = Partitioner(table([("c", type_)]).schema, json.dumps({"spec-id": 0, "fields": fields})).split
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

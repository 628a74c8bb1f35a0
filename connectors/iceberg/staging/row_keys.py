"""Functions that compare row keys and find the last change of each key."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.conversion.columns import as_array, storage_of


def last_per_key(
    keys: Sequence[pa.Array | pa.ChunkedArray], order: pa.Int64Array | pa.ChunkedArray
) -> pa.Array | None:
    """Return the highest `order` of each key, or None if every key occurs once.

    The values of `order` are unique, so the result identifies rows.
    """
    names = [f"k{i}" for i in range(len(keys))]
    table = pa.table([*map(_groupable, keys), order], names=[*names, "order"])
    last = table.group_by(names, use_threads=False).aggregate([("order", "max")])
    return None if last.num_rows == table.num_rows else as_array(last.column("order_max"))


def key_numbers(columns: Sequence[pa.ChunkedArray]) -> pa.Int64Array:
    """Return a number for each row. Rows with equal keys have equal numbers."""
    numbers: pa.Int64Array | None = None
    for column in columns:
        encoded = _groupable(column).dictionary_encode()
        codes = encoded.indices.cast(pa.int64())
        if numbers is not None:
            codes = pc.add(pc.multiply(numbers, len(encoded.dictionary)), codes).dictionary_encode()
            codes = codes.indices.cast(pa.int64())
        numbers = codes
    assert numbers is not None
    return numbers


def _groupable(key: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return keys in which equal floating-point values have equal bits.

    Arrow groups by bits, but Spark groups by value.
    """
    key = as_array(key)
    if pa.types.is_floating(key.type):
        one_zero = pc.add(key, pa.scalar(0.0, key.type))
        return as_array(pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, key.type), one_zero))
    return storage_of(key)

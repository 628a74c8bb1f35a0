"""`Partitioner`: splits rows by table partition.

PyIceberg provides the partition transforms. Common transforms have a columnar implementation.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField

from connect_py.columns.arrow import floor_divide
from connect_py.java.civil_days import date_of
from connectors.iceberg.conversion.columns import as_array, member, plain
from connectors.iceberg.conversion.full_names import columns_inside
from connectors.iceberg.conversion.temporal import MICROS_PER_DAY, date_text

_MICROS = {"hour": MICROS_PER_DAY // 24, "day": MICROS_PER_DAY}
_UINT32 = pa.uint32()


class Partitioner:
    """Splits rows according to the partition spec of one table."""

    def __init__(self, schema_json: str, spec_json: str) -> None:
        spec = json.loads(spec_json)
        self.terms: list[tuple[tuple[str, ...], Callable[[pa.Array], pa.Array], str]] = []
        columns = {
            column["id"]: (path, column) for path, column in columns_inside(json.loads(schema_json))
        }
        for field in spec.get("fields", ()):
            if field["transform"] == "void":
                self.terms.append(((), lambda data: pa.nulls(len(data)), "string"))
                continue
            path, column = columns[field["source-id"]]
            source, transform = (
                NestedField.model_validate(column).field_type,
                parse_transform(field["transform"]),
            )
            apply = _on_columns(field["transform"], transform, source)
            self.terms.append((path, apply, str(transform.result_type(source))))

    def split(self, rows: pa.Table) -> Iterator[tuple[tuple[str | None, ...], pa.Table]]:
        """Yield the partition values and the rows of each partition.

        The values are single-value JSON, in the order of the fields of the partition spec.
        """
        if not self.terms:
            yield (), rows
            return
        code: pa.Array | None = None
        distinct: list[list[str | None]] = []
        for path, apply, result in self.terms:
            data = as_array(rows.column(path[0])) if path else pa.nulls(rows.num_rows)
            for name in path[1:]:
                data, _ = member(data, None, name)
            encoded = apply(data).dictionary_encode(null_encoding="encode")
            texts = (
                None if v is None else single_value_json(v, result)
                for v in plain(encoded.dictionary).to_pylist()
            )
            indices = encoded.indices.cast(pa.int64())
            distinct.append(list(texts))
            code = (
                indices if code is None else pc.add(pc.multiply(code, len(distinct[-1])), indices)
            )
        assert code is not None
        if len(pc.unique(code)) == 1:
            yield _decode(code[0].as_py(), distinct), rows
            return
        order = pc.array_sort_indices(code)
        rows, code = rows.take(order), code.take(order)
        runs = pc.run_end_encode(code)
        start = 0
        for end, value in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield _decode(value, distinct), rows.slice(start, end - start)
            start = end


def _decode(code: int, distinct: Sequence[Sequence[str | None]]) -> tuple[str | None, ...]:
    values = []
    for choices in reversed(distinct):
        code, at = divmod(code, len(choices))
        values.append(choices[at])
    return tuple(reversed(values))


def _on_columns(name: str, transform: Any, source: Any) -> Callable[[pa.Array], pa.Array]:
    """Return a function that applies a partition transform to a column.

    PyIceberg transforms each distinct value if there is no columnar implementation.
    """
    kind = str(source)
    if name == "identity":
        return lambda data: data.storage if isinstance(data, pa.ExtensionArray) else data
    if name in ("year", "month"):
        return lambda data: _years_or_months(data, months=name == "month")
    if name in _MICROS and kind in ("timestamp", "timestamptz"):
        unit = _MICROS[name]
        return lambda data: floor_divide(data.view(pa.int64()), unit)
    if name == "day" and kind == "date":
        return lambda data: data
    if name.startswith("bucket[") and kind in (
        "int",
        "long",
        "date",
        "time",
        "timestamp",
        "timestamptz",
    ):
        count = transform.num_buckets
        return lambda data: pc.modulo(
            pc.bit_wise_and(_murmur3_of_longs(data), pa.scalar(0x7FFFFFFF, _UINT32)).cast(
                pa.int64()
            ),
            count,
        )
    one = transform.transform(source)

    def each(data: pa.Array) -> pa.Array:
        if isinstance(data, pa.ExtensionArray):
            data = data.storage
        encoded = data.dictionary_encode()
        values = pa.array(
            [None if v is None else one(v) for v in plain(encoded.dictionary).to_pylist()]
        )
        return values.take(encoded.indices)

    return each


def _years_or_months(data: pa.Array, *, months: bool) -> pa.Array:
    """Return the years or months since 1970.

    Each distinct day is converted in Python, because Arrow does not support all zones and years.
    """
    days = plain(data).cast(pa.int64())
    if pa.types.is_timestamp(data.type):
        days = floor_divide(days, MICROS_PER_DAY * (1_000 if data.type.unit == "ns" else 1))
    encoded = days.dictionary_encode()
    dates = [None if day is None else date_of(day) for day in encoded.dictionary.to_pylist()]
    numbers = [
        date and ((date[0] - 1970) * 12 + date[1] - 1 if months else date[0] - 1970)
        for date in dates
    ]
    return pa.array(numbers, pa.int64()).take(encoded.indices)


def _murmur3_of_longs(values: pa.Array) -> pa.UInt32Array:
    """Return the 32-bit Murmur3 hash (seed 0) of the 8 little-endian bytes of each number."""
    bits = plain(values).cast(pa.int64()).view(pa.uint64())
    low = pc.bit_wise_and(bits, pa.scalar(0xFFFFFFFF, pa.uint64())).cast(_UINT32)
    high = pc.shift_right(bits, pa.scalar(32, pa.uint64())).cast(_UINT32)
    state: Any = pa.scalar(0, _UINT32)
    for block in (low, high):
        mixed = pc.multiply(_rotate(pc.multiply(block, _u(0xCC9E2D51)), 15), _u(0x1B873593))
        state = _rotate(pc.bit_wise_xor(mixed, state), 13)
        state = pc.add(pc.multiply(state, _u(5)), _u(0xE6546B64))
    state = pc.bit_wise_xor(state, _u(8))
    state = pc.multiply(pc.bit_wise_xor(state, pc.shift_right(state, _u(16))), _u(0x85EBCA6B))
    state = pc.multiply(pc.bit_wise_xor(state, pc.shift_right(state, _u(13))), _u(0xC2B2AE35))
    return pc.bit_wise_xor(state, pc.shift_right(state, _u(16)))


def _u(number: int) -> pa.UInt32Scalar:
    return pa.scalar(number, _UINT32)


def _rotate(values: pa.UInt32Array, by: int) -> pa.UInt32Array:
    return pc.bit_wise_or(pc.shift_left(values, _u(by)), pc.shift_right(values, _u(32 - by)))


def single_value_json(value: Any, type_: str) -> str:
    """Convert a partition value in Arrow's or Python's form to Iceberg's single-value JSON."""
    if type_ == "date":
        return json.dumps(date_text(value))
    if type_ == "time":
        return json.dumps(_clock(value))
    if type_.startswith("timestamp"):
        micros, nanos = divmod(value, 1_000) if type_.endswith("_ns") else (value, None)
        days, micros = divmod(micros, MICROS_PER_DAY)
        text = f"{date_text(days)}T{_clock(micros)}" + ("" if nanos is None else f"{nanos:03d}")
        return json.dumps(text + ("+00:00" if "tz" in type_ else ""))
    if type_ == "uuid":
        return json.dumps(str(uuid.UUID(bytes=value)))
    if isinstance(value, bytes):
        return json.dumps(value.hex())
    if isinstance(value, Decimal):
        return json.dumps(format(value, "f"))
    return json.dumps(value)


def _clock(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"

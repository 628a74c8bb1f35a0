"""Where each change stands in its source's log, as one text per row: a later change has a greater
one.

Kafka's offsets order the rows of one partition. Rows of one key in several partitions are ordered
by what the source says: Debezium's `source.sequence`, numbers, or texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import DataError
from connect_py.api.record import Headers
from connectors.iceberg.conversion.columns import as_array, column_at, plain
from connectors.iceberg.conversion.types import FIELD_ID
from connectors.iceberg.conversion.types import ORDER as ORDER

# Mostly no column of the table, so readers pass over it, as over one that was dropped. It has an id
# because PyIceberg refuses files with columns that have none; the id is beyond those of columns,
# and below those that Iceberg reserves.
ORDER_FIELD = pa.field(ORDER, pa.string(), metadata={FIELD_ID: b"2000000001"})
_DIGITS = 20  # of the largest number of 64 bits
_SMALLEST = 1 << 63
_BETWEEN = "\x01"  # lower than what texts hold, so a shorter one comes first
_SEQUENCE = r'^\[(?:null|"?(?P<commit>[0-9]{1,20})"?), *"?(?P<position>[0-9]{1,20})"?\]$'


def order_field(columns: Sequence[Mapping[str, Any]]) -> pa.Field:
    """`ORDER` for files of a table with these columns: it is one of them where SQL writes rows
    anew."""
    for column in columns:
        if column["name"] == ORDER:
            return pa.field(ORDER, pa.string(), metadata={FIELD_ID: str(column["id"]).encode()})
    return ORDER_FIELD


def order_of(batch: Batch, value: Column, columns: Sequence[str]) -> pa.StringArray:
    """The order of each row; null where none of the columns says anything.

    A column is a path into the value, or the name of a header. Debezium's `source.sequence` is a
    pair of positions in the log: those of the last commit and of the change; a missing first one is
    taken to be the second. Pairs, numbers (also as texts) and moments are ordered as such, other
    texts by their characters.

    Args:
        batch: The rows, for their headers.
        value: Where the columns are looked for.
        columns: The most significant first.

    Raises:
        DataError: A column is of a type without such an order.
    """
    parts, known = [], None
    for name in columns:
        data = _found(batch, value, name)
        said = data.is_valid()
        known = said if known is None else pc.or_(known, said)
        parts.append(_sortable(name, data).fill_null(""))
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _BETWEEN)
    return as_array(pc.if_else(known, whole, pa.scalar(None, pa.string())))


def running_maximum(order: pa.ChunkedArray, start: str) -> pa.StringArray:
    """The greatest order up to each row of one Kafka partition, whose rows are in order as they
    come.

    A row that says nothing, such as a tombstone, stands where the row before it stood; `start` is
    before the first.
    """
    texts = pa.concat_arrays([pa.array([start]), as_array(order).fill_null("")])
    rank = pc.rank(texts, sort_keys="ascending", tiebreaker="dense")
    highest = pc.cumulative_max(rank)
    return texts.take(pc.index_in(highest, value_set=rank)).slice(1)


def _found(batch: Batch, value: Column, name: str) -> pa.Array:
    at = column_at(value, name.split("."))
    data = pa.nulls(len(batch), pa.string()) if at is None else at.data
    if batch.headers is None or data.null_count == 0:
        return data
    texts = [_header_text(headers, name) for headers in batch.headers]
    if all(text is None for text in texts):
        return data
    if at is None:
        return pa.array(texts, pa.string())
    return pc.coalesce(_sortable(name, data), _sortable(name, pa.array(texts, pa.string())))


def _header_text(headers: Headers, name: str) -> str | None:
    header = headers.last_with(name)
    if header is None or header.value is None:
        return None
    value = header.value
    if isinstance(value, list):  # of a header converter that reads JSON in texts
        return "[" + ",".join("null" if v is None else f'"{v}"' for v in value) + "]"
    return str(value)


def _sortable(name: str, data: pa.Array) -> pa.StringArray:
    if pa.types.is_null(data.type):
        return pa.nulls(len(data), pa.string())
    if pa.types.is_string(data.type):
        return _sortable_texts(data)
    data = plain(data)
    if not pa.types.is_integer(data.type):
        raise DataError(
            f"ordering column {name} is of type {data.type}; numbers, moments and texts have an "
            f"order"
        )
    return _sortable_numbers(data.cast(pa.int64()))


def _sortable_numbers(data: pa.Int64Array) -> pa.StringArray:
    bits = pc.bit_wise_xor(data.view(pa.uint64()), pa.scalar(_SMALLEST, pa.uint64()))
    return _padded(bits.cast(pa.string()))


def _sortable_texts(data: pa.StringArray) -> pa.StringArray:
    found = pc.extract_regex(data, _SEQUENCE)
    position = pc.struct_field(found, "position")
    if position.null_count == len(position):
        number = pc.match_substring_regex(data, "^-?[0-9]{1,18}$")
        numbers = as_array(pc.if_else(number, data, pa.scalar(None, pa.string()))).cast(pa.int64())
        return as_array(pc.coalesce(_sortable_numbers(numbers), data))
    commit = pc.struct_field(found, "commit")
    commit = pc.if_else(pc.equal(commit, ""), position, commit)
    pairs = pc.binary_join_element_wise(_padded(commit), _padded(position), _BETWEEN)
    return as_array(pc.coalesce(pairs, data))


def _padded(digits: pa.StringArray) -> pa.StringArray:
    return pc.utf8_lpad(digits, width=_DIGITS, padding="0")

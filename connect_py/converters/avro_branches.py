"""Whether the indices of unions in Avro bodies name a branch. What reads whole containers does not look: to polars,
each number but 0 is the second branch.

Where an index stands follows from the values before it, so it is looked up in the bytes once these are columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_FIXED_WIDTHS = {"boolean": 1, "float": 4, "double": 8}
_VARIABLE = ("bytes", "string")


def has_unions(plain: Any) -> bool:
    """Whether a plain schema has a union."""
    if isinstance(plain, list):
        return True
    if isinstance(plain, dict):
        return any(has_unions(f["type"]) for f in plain.get("fields", ())) or has_unions(plain.get("items", ""))
    return False


def doubtful_rows(plain: Any, column: pa.Array, messages: Sequence[bytes], start: int) -> list[int]:
    """The rows whose bytes are not what the values of the column are written as: an index names no branch.

    So are rows whose numbers or lists are written in more bytes than needed; the reference form can tell them apart.

    Args:
        plain: Schema of the bodies.
        column: What was read, a row for each message, none null.
        messages: The bytes.
        start: Where the body of each begins.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    data = pa.Array.from_buffers(pa.uint8(), sum(map(len, messages)), [None, pa.py_buffer(b"".join(messages))])
    lengths = pa.array(map(len, messages), pa.int64())
    ends = pc.cumulative_sum(lengths)
    check = _Check(data)
    at = pc.add(pc.subtract(ends, lengths), start)
    rows = pa.array(range(len(messages)), pa.int64())
    check.look(plain, column, at, rows)
    check.wrong.append(rows.filter(pc.not_equal(pc.add(at, sizes(plain, column)), ends)))
    return sorted(set(pa.concat_arrays(check.wrong).to_pylist()))


def sizes(plain: Any, column: pa.Array) -> pa.Int64Array:
    """How many bytes each value takes at least; `column` holds no null but in unions."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(plain, list):
        there = column.is_valid()
        inside = sizes(_other(plain), column.filter(there))
        return pc.replace_with_mask(pa.repeat(pa.scalar(1, pa.int64()), len(column)), there, pc.add(inside, 1))
    if isinstance(plain, str):
        if plain in _FIXED_WIDTHS:
            return pa.repeat(pa.scalar(_FIXED_WIDTHS[plain], pa.int64()), len(column))
        if plain in _VARIABLE:
            length = pc.binary_length(column).cast(pa.int64())
            return pc.add(length, _number_sizes(length))
        return _number_sizes(column.cast(pa.int64()))
    if plain["type"] == "fixed":
        return pa.repeat(pa.scalar(plain["size"], pa.int64()), len(column))
    if plain["type"] == "record":
        total = pa.repeat(pa.scalar(0, pa.int64()), len(column))
        for index, field in enumerate(plain["fields"]):
            total = pc.add(total, sizes(field["type"], column.field(index)))
        return total
    count = pc.list_value_length(column).cast(pa.int64())
    starts, ends = _item_places(sizes(plain["items"], column.flatten()), count)
    return pc.add(pc.add(pc.subtract(ends, starts), _head_sizes(count)), 1)


class _Check:
    """Looks at the indices in some bytes."""

    def __init__(self, data: pa.UInt8Array) -> None:
        self._data = data
        self.wrong: list[pa.Int64Array] = []

    def look(self, plain: Any, column: pa.Array, at: pa.Int64Array, rows: pa.Int64Array) -> None:
        """Look at values that begin at `at`; `rows` are the messages that they are of."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(column) or not has_unions(plain):
            return
        if isinstance(plain, list):
            null = plain.index("null")
            there = column.is_valid()
            expected = pc.if_else(there, pa.scalar(2 * (1 - null), pa.uint8()), pa.scalar(2 * null, pa.uint8()))
            place = pc.min_element_wise(at, pa.scalar(len(self._data) - 1, pa.int64()))
            self.wrong.append(rows.filter(pc.not_equal(self._data.take(place), expected)))
            self.look(_other(plain), column.filter(there), pc.add(at.filter(there), 1), rows.filter(there))
        elif plain["type"] == "record":
            for index, field in enumerate(plain["fields"]):
                member = column.field(index)
                self.look(field["type"], member, at, rows)
                at = pc.add(at, sizes(field["type"], member))
        elif plain["type"] == "array":
            items = column.flatten()
            count = pc.list_value_length(column).cast(pa.int64())
            own = sizes(plain["items"], items)
            starts, _ = _item_places(own, count)
            before = pc.subtract(pc.cumulative_sum(own), own)  # items of all lists ahead of each
            parent = pc.list_parent_indices(column)
            first = pc.subtract(pc.add(at, _head_sizes(count)), starts)
            self.look(plain["items"], items, pc.add(before, first.take(parent)), rows.take(parent))


def _other(branches: Sequence[Any]) -> Any:
    return branches[1 - branches.index("null")]


def _item_places(own: pa.Int64Array, count: pa.Int64Array) -> tuple[pa.Int64Array, pa.Int64Array]:
    """Where the items of each list begin and end, all items in a row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    edges = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(own)])
    last = pc.cumulative_sum(count)
    return edges.take(pc.subtract(last, count)), edges.take(last)


def _head_sizes(count: pa.Int64Array) -> pa.Int64Array:
    """The size of a block's count; an empty list has no block, only the end of them."""
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(count, 0), 0, _number_sizes(count))


def _number_sizes(numbers: pa.Int64Array) -> pa.Int64Array:
    """How many bytes each number takes: seven bits each, of its zig-zag form."""
    import pyarrow as pa
    import pyarrow.compute as pc

    zigzag = pc.bit_wise_xor(pc.shift_left(numbers, 1), pc.shift_right(numbers, 63)).view(pa.uint64())
    made = pa.repeat(pa.scalar(1, pa.int64()), len(numbers))
    most = pc.max(zigzag).as_py() or 0
    limit = 1 << 7
    while limit <= most:
        made = pc.add(made, pc.greater_equal(zigzag, pa.scalar(limit, pa.uint64())).cast(pa.int64()))
        limit <<= 7
    return made

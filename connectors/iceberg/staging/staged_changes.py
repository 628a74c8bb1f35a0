"""What a staged file of changes has beside the table's columns, and which changes of a cycle it
holds.

A change goes there if the coordinator has to complete rows by it: one with values that the source
did not send, one of a pair that changes a key, and the earlier changes of their keys in the cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.conversion.columns import as_array
from connectors.iceberg.conversion.types import FIELD_ID
from connectors.iceberg.staging.cdc import groupable
from connectors.iceberg.staging.ordering import ORDER

OFFSET: Final = "__connect_py_offset"
CHANGE: Final = "__connect_py_change"  # a `Change`
# field ids of columns, each between two separators; null: none lacks
UNAVAILABLE: Final = "__connect_py_unavailable"
# whether it is an upsert that lacks, and the partition's last of its key
PARTIAL: Final = "__connect_py_partial"
# whether a row that is found nowhere is left out: deletes that only mark
OPTIONAL: Final = "__connect_py_optional"
# of a change that is half of a pair: a text that both halves have
PAIR: Final = "__connect_py_pair"
HALF: Final = "__connect_py_half"  # a `Half`; null: it is none
# the end of the text of a pair whose place in the source is known: no two have the same
PLACED: Final = "@"
SEPARATOR: Final = "\x1f"
# Field ids of columns that tables do not have: beyond those of columns, and below those that
# Iceberg reserves.
_FIRST_ID: Final = 2_000_000_002
PLAIN: Final = (
    (OFFSET, "long"),
    (CHANGE, "int"),
    (UNAVAILABLE, "string"),
    (PARTIAL, "boolean"),
    (OPTIONAL, "boolean"),
    (PAIR, "string"),
    (HALF, "int"),
)
FIELD_IDS: Final = {name: _FIRST_ID + number for number, (name, _) in enumerate(PLAIN)}
_ARROW: Final = {
    "long": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}
EXTRA_SCHEMA: Final = pa.schema(
    [
        pa.field(name, _ARROW[type_], metadata={FIELD_ID: str(FIELD_IDS[name]).encode()})
        for name, type_ in PLAIN
    ]
)
BUFFERED_ORDER: Final = pa.field(ORDER, pa.string())


class Half(IntEnum):
    """A change of a key is a delete that names the new key, and an insert that names the old
    one."""

    DELETE = 0
    INSERT = 1
    INSERT_ALONE = 2  # whose delete was waited for in vain: values that were not sent are null
    NOTHING = 3  # a delete of a row that was not there, as in a table that began later than the row


def changes_to_stage(
    rows: pa.Table,
    keys: Sequence[str],
    last: pa.BooleanArray | None,
    of_pairs: pa.Int64Array,
    *,
    all_earlier: bool,
) -> pa.BooleanArray | None:
    """Which rows of one partition's cycle the coordinator needs; None: none.

    Args:
        rows: In offset order, with `OFFSET` and `UNAVAILABLE`.
        keys: The key columns.
        last: The last change of each key; None: every row is.
        of_pairs: Offsets of changes that belong to a pair.
        all_earlier: Whether changes of other partitions may take values from any earlier one.
    """
    wanted = pc.or_(
        pc.is_valid(rows.column(UNAVAILABLE)), pc.is_in(rows.column(OFFSET), value_set=of_pairs)
    )
    earlier = None if last is None else pc.invert(last)
    if earlier is not None and all_earlier:
        return _some(pc.or_(wanted, earlier))
    if _some(wanted) is None or earlier is None:
        return _some(wanted)
    numbers = key_numbers([rows.column(key) for key in keys])
    same = pc.is_in(numbers, value_set=pc.unique(numbers.filter(as_array(wanted))))
    return _some(pc.or_(wanted, pc.and_(earlier, same)))


def key_numbers(columns: Sequence[pa.ChunkedArray]) -> pa.Int64Array:
    """A number per row, equal where all columns are."""
    numbers: pa.Int64Array | None = None
    for column in columns:
        encoded = groupable(column).dictionary_encode()
        found = encoded.indices.cast(pa.int64())
        if numbers is not None:
            found = pc.add(pc.multiply(numbers, len(encoded.dictionary)), found).dictionary_encode()
            found = found.indices.cast(pa.int64())
        numbers = found
    assert numbers is not None
    return numbers


def _some(rows: pa.Array | pa.ChunkedArray) -> pa.BooleanArray | None:
    found = as_array(rows)
    return found if pc.any(found).as_py() else None

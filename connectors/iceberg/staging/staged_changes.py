"""Columns of staged files of changes, in addition to the columns of the table."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import pyarrow as pa

from connectors.iceberg.conversion.types import FIELD_ID

OFFSET: Final = "__connect_py_offset"
CHANGE: Final = "__connect_py_change"  # a `Change`
# field IDs of columns without a value, each between two separators; null: all values were sent
UNAVAILABLE: Final = "__connect_py_unavailable"
# true for an upsert that lacks values and is the last change of its key in the partition
PARTIAL: Final = "__connect_py_partial"
# true if the row is left out when the table does not have it: deletes that only mark
OPTIONAL: Final = "__connect_py_optional"
# ID of a changed key, the same for both halves; null for other changes
PAIR: Final = "__connect_py_pair"
HALF: Final = "__connect_py_half"  # a `Half`; null for other changes
# suffix of pair IDs that contain the position in the source, which makes them unique
PLACED: Final = "@"
SEPARATOR: Final = "\x1f"
# field IDs above those of table columns, and below those that Iceberg reserves
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


class Half(IntEnum):
    """Role of a change of a key: a delete with the new key, or an insert with the old key."""

    DELETE = 0
    INSERT = 1
    INSERT_ALONE = 2  # the delete was not found: values that were not sent are null
    NOTHING = 3  # delete of a missing row, for example because the table was created later

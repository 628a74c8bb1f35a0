"""Columns that staged change files contain in addition to the table's columns."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import pyarrow as pa

from connectors.iceberg.conversion.types import FIELD_ID

OFFSET: Final = "__connect_py_offset"
CHANGE: Final = "__connect_py_change"  # a `Change` value
# field IDs of the columns whose values were not sent, each enclosed in separators; null if none
UNAVAILABLE: Final = "__connect_py_unavailable"
# true for an upsert that lacks values and is the last change of its key in the partition
PARTIAL: Final = "__connect_py_partial"
# true for a delete that only marks a row as deleted; it has no effect if the table lacks the row
OPTIONAL: Final = "__connect_py_optional"
# ID of a key change, shared by its delete and its insert; null for other changes
PAIR: Final = "__connect_py_pair"
HALF: Final = "__connect_py_half"  # a `Half` value; null for other changes
# suffix of pair IDs that are derived from a position in the source and are therefore unique
PLACED: Final = "@"
SEPARATOR: Final = "\x1f"
# above the field IDs of table columns and below the IDs that Iceberg reserves
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
    """Role of an event in a key change: the delete of the old key or the insert of the new key."""

    DELETE = 0
    INSERT = 1
    INSERT_ALONE = 2  # insert without a delete; values that the source did not send become null
    NOTHING = 3  # delete of a row that the table lacks, such as one from before its creation

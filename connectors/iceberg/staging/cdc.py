"""What a row means in MERGE mode: upsert, delete or nothing; its key; and which of its values are
unavailable."""

from __future__ import annotations

import base64
import hashlib
import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Column
from connect_py.api.errors import DataError, FailureReason
from connectors.iceberg.conversion.columns import any_true, as_array, member, tombstones


class Change(IntEnum):
    """What a row does to the table's row of its key."""

    UPSERT = 0
    DELETE = 1
    IGNORE = 2  # a message, a tombstone without a key
    TRUNCATE = 3  # removes every row, whatever its key


INT8 = pa.int8()
DELETED = "__deleted"  # field of deleted rows; with delete-mode `mark` a column of the table
RAW_OPERATIONS = frozenset({"op", "__op"})  # fields that hold Debezium's own letters
SNAPSHOT = "r"  # Debezium's letter of rows that a snapshot reads
_NO_ROW = {"T": Change.TRUNCATE, "M": Change.IGNORE}


def changes(value: Column, cdc_field: Sequence[str], read: Change = Change.UPSERT) -> pa.Int8Array:
    """The `Change` of each row; `read` is what Debezium's letter for rows of a snapshot means.

    The text of the cdc field counts by its first letter, whatever its case: D deletes, all else
    upserts; where the field is Debezium's own `op`, T truncates and M(essage) is ignored. A field
    named `__deleted` deletes when true. A tombstone deletes.

    Raises:
        DataError: The way to the cdc field leads through something that has no members.
    """
    made = _by_field(value, cdc_field, read) if cdc_field else None
    tombstone = tombstones(value)
    if made is None:
        made = pa.repeat(pa.scalar(Change.UPSERT, INT8), len(value))
    if tombstone is not None:
        made = as_array(pc.if_else(tombstone, pa.scalar(Change.DELETE, INT8), made))
    return made


def _by_field(value: Column, path: Sequence[str], read: Change) -> pa.Int8Array | None:
    data, schema = value.data, value.schema
    for name in path:
        if pa.types.is_null(data.type):
            return None
        if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
            text = f"{'.'.join(path)} is no field: its parent is a {data.type}"
            raise DataError(text, reason=FailureReason.NO_CHANGE_EVENT)
        data, schema = member(data, schema, name)
    if pa.types.is_null(data.type):
        return None
    encoded = data.dictionary_encode()
    raw = path[-1] in RAW_OPERATIONS
    deleted_flag = path[-1] == DELETED
    meanings = [
        _meaning(v, read, raw=raw, deleted_flag=deleted_flag)
        for v in encoded.dictionary.to_pylist()
    ]
    if all(m is Change.UPSERT for m in meanings):
        return None
    return pa.array(meanings, INT8).take(encoded.indices).fill_null(int(Change.UPSERT))


def _meaning(value: object, read: Change, *, raw: bool, deleted_flag: bool) -> Change:
    text = "" if value is None else str(value).strip().upper()
    if deleted_flag:
        return Change.DELETE if text == "TRUE" else Change.UPSERT
    if text.startswith("D"):
        return Change.DELETE
    if raw and text[:1] in _NO_ROW:
        return _NO_ROW[text[:1]]
    return read if raw and text == SNAPSHOT.upper() else Change.UPSERT


def last_per_key(
    keys: Sequence[pa.Array | pa.ChunkedArray], order: pa.Int64Array | pa.ChunkedArray
) -> pa.Array | None:
    """The highest `order` of each key; None when every key occurs once, so that there is nothing to
    drop.

    `order` has no value twice, so the result names rows.
    """
    plain = [groupable(k) for k in keys]
    names = [f"k{i}" for i in range(len(plain))]
    table = pa.table([*plain, order], names=[*names, "order"])
    last = table.group_by(names, use_threads=False).aggregate([("order", "max")])
    return None if last.num_rows == table.num_rows else as_array(last.column("order_max"))


def groupable(key: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A key column to group by. Arrow groups by bits, Spark by values: equal numbers must have
    equal bits."""
    key = as_array(key)
    if pa.types.is_floating(key.type):
        one_zero = pc.add(key, pa.scalar(0.0, key.type))
        return as_array(pc.if_else(pc.is_nan(one_zero), pa.scalar(math.nan, key.type), one_zero))
    return key.storage if isinstance(key, pa.ExtensionArray) else key


def any_null(columns: Sequence[pa.Array], length: int) -> pa.BooleanArray | None:
    """Rows in which one of the columns is null; None when there are none."""
    nulls = [column.is_null() for column in columns if column.null_count]
    return reduce(pc.or_, nulls) if nulls and length else None


@dataclass(frozen=True, slots=True)
class Placeholder:
    """Debezium's mark for a value that it could not read, in the forms that it takes by type."""

    value: bytes

    def rows(self, data: pa.Array, *, schemaless: bool) -> pa.BooleanArray | None:
        """The rows of a column that hold the placeholder; None: none does, or the type has no such
        form."""
        if data.null_count == len(data):
            return None
        type_ = data.type
        if pa.types.is_string(type_):
            return self._texts(data, schemaless=schemaless)
        if pa.types.is_binary(type_):
            return _some(pc.equal(data, self.value))
        if pa.types.is_list(type_):
            return self._lists(data)
        if (
            pa.types.is_map(type_)
            and pa.types.is_string(type_.key_type)
            and pa.types.is_string(type_.item_type)
        ):
            text = self._text()
            return (
                None
                if text is None
                else _some(pa.array([v == [(text, text)] for v in data.to_pylist()]))
            )
        return None

    def _text(self) -> str | None:
        try:
            return self.value.decode()
        except UnicodeDecodeError:
            return None

    def _texts(self, data: pa.Array, *, schemaless: bool) -> pa.BooleanArray | None:
        text = self._text()
        forms = [] if text is None else [text, f'{{"{text}":"{text}"}}']
        if schemaless:
            forms.append(base64.b64encode(self.value).decode())
        found: pa.BooleanArray | None = None
        for form in forms:
            # cheaper than a mask, and nearly always the end of it
            if pc.index(data, form).as_py() >= 0:
                rows = pc.equal(data, form).fill_null(False)
                found = rows if found is None else pc.or_(found, rows)
        return found

    def _lists(self, data: pa.Array) -> pa.BooleanArray | None:
        """One-element lists of the text, its bytes or its UUID; or lists of its character codes."""
        items = data.type.value_type
        forms: list[list[object]] = []
        text = self._text()
        if pa.types.is_string(items) and text is not None:
            digest = uuid.UUID(
                bytes=hashlib.md5(self.value, usedforsecurity=False).digest(), version=3
            )
            forms = [[text], [str(digest)]]
        elif pa.types.is_binary(items):
            forms = [[self.value]]
        elif pa.types.is_integer(items) or pa.types.is_date32(items):
            data = data if pa.types.is_integer(items) else data.cast(pa.list_(pa.int32()))
            forms = [list(self.value)]
        if not forms:
            return None
        candidates = pc.equal(pc.list_value_length(data), len(forms[0]))
        if not any_true(candidates):
            return None
        return _some(pa.array([v in forms for v in data.to_pylist()], pa.bool_()))


def _some(rows: pa.BooleanArray) -> pa.BooleanArray | None:
    return rows.fill_null(False) if any_true(rows) else None

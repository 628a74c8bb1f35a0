"""Finds the rows of a table that have a staged key, by reading the key columns of its files with Arrow.

That is all of a delta's work on rows. Arrow needs hundredths of a microsecond of CPU per row of the table where Spark,
in the first minutes of a JVM, spends half a second on any query; and no Spark session has to be there. Spark is left
what this module declines: tables on a cluster's scale, files in other formats, keys of unusual types.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from connectors.iceberg.spark.errors import CatalogUnavailableError
from connectors.iceberg.spark.table_files import TableFiles

BATCH_ROWS = 500_000  # of the table, held at a time
_FIELD_ID = b"PARQUET:field_id"
_ROW = "connect-row"


class NotJoinable(Exception):  # noqa: N818 - a way out, not an error
    """The rows have to be found by Spark; the text says why."""


class KeyJoin:
    """The staged keys, ready to be looked for in one file of the table after the other."""

    def __init__(self, keys: pa.Table, field_ids: Sequence[int], files: TableFiles) -> None:
        """Take the keys.

        Args:
            keys: One column per key column, no nulls, each row once.
            field_ids: Of these columns, in their order.
            files: Opens the table's files.

        Raises:
            NotJoinable: Equality of such keys is not a matter of equal values.
        """
        keys = pa.table([_stored(column) for column in keys.columns], names=keys.column_names)
        for field in keys.schema:
            if not _is_plain(field.type):
                raise NotJoinable(f"key column {field.name} is of type {field.type}")
        self._keys = keys
        self._sets = [_stored(column) for column in keys.columns]
        self._field_ids = tuple(field_ids)
        self._files = files

    def rows(self, path: str, count: int) -> bytes:
        """The rows of a Parquet file with a staged key, deleted ones among them: a bit per row, the lowest first.

        Raises:
            NotJoinable: The file lacks a key column, or says nothing of field ids, or is not what was expected.
            CatalogUnavailableError: It cannot be read.
        """
        try:
            with self._files.open(path) as opened, pq.ParquetFile(opened) as file:
                names = self._names(path, file.schema_arrow)
                batches = file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)
                found = [self._matches([batch.column(name) for name in names]) for batch in batches]
        except OSError as error:
            raise CatalogUnavailableError(f"data file {path} cannot be read: {error}") from error
        if sum(map(len, found)) != count:
            raise NotJoinable(f"{path} has {sum(map(len, found))} rows where its manifest says {count}")
        return _bits(pa.concat_arrays(found)) if found else b""

    def _names(self, path: str, schema: pa.Schema) -> list[str]:
        by_id = {int((field.metadata or {}).get(_FIELD_ID, -1)): field.name for field in schema}
        missing = [number for number in self._field_ids if number not in by_id]
        if missing:
            raise NotJoinable(f"{path} has no column with field id {missing[0]}")
        return [by_id[number] for number in self._field_ids]

    def _matches(self, columns: Sequence[pa.Array]) -> pa.BooleanArray:
        """Whether a row's key is staged; a null equals nothing."""
        try:
            columns = [_stored(column).cast(keys.type) for column, keys in zip(columns, self._sets, strict=True)]
        except pa.ArrowInvalid as error:
            raise NotJoinable(f"a key column holds values of another type: {error}") from error
        maybe = None  # each of its values is that of some staged key
        for column, keys in zip(columns, self._sets, strict=True):
            known = pc.is_in(column, value_set=keys, skip_nulls=True)
            maybe = known if maybe is None else pc.and_(maybe, known)
        if len(columns) == 1:
            return maybe
        rows, names = pc.indices_nonzero(maybe), self._keys.column_names
        candidates = pa.table([*(column.take(rows) for column in columns), rows], names=[*names, _ROW])
        matched = candidates.join(self._keys, names, join_type="left semi", use_threads=False)
        return pc.replace_with_mask(maybe, maybe, pc.is_in(rows, value_set=matched.column(_ROW).combine_chunks()))


def _stored(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """UUIDs as the bytes that they are, which Arrow can compare."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _bits(flags: pa.BooleanArray) -> bytes:
    """Arrow's own bits in whole bytes, nothing behind the last row."""
    assert flags.offset == 0  # nobody sliced it
    packed = bytearray(memoryview(flags.buffers()[1])[: (len(flags) + 7) // 8])
    if len(flags) % 8:
        packed[-1] &= (1 << len(flags) % 8) - 1
    return bytes(packed)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether two values are equal in SQL exactly when their bytes are."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
    )

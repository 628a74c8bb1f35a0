"""The keys of one cycle, over all staged files: each may be there once, and none may be null.

Neither a row delta nor an append notices that a key is staged twice: the table would hold it twice. Tasks see to it
within a Kafka partition; here the partitions of a cycle meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.iceberg.spark.commit_request import CommitRequest
from connectors.iceberg.spark.errors import CatalogUnavailableError, DuplicateKeyError, TableUnsuitableError
from connectors.iceberg.staging.staged_file_name import StagedFileName
from connectors.iceberg.table import StagedFile, StagedKind

if TYPE_CHECKING:
    import pyarrow as pa

    from connectors.iceberg.spark.table_files import TableFiles

_NAMED = 3  # duplicates that the message shows
_FILE = "__connect_py_file"
_NO_CHANGES = (StagedKind.TRUNCATES, StagedKind.LEFT, StagedKind.HISTORY)


def not_ordered(
    table: str, key_columns: Sequence[str], rows: pa.Table, files: Sequence[StagedFile]
) -> DuplicateKeyError:
    """The error that says which keys have several changes, and where these are. `files`: that of each row."""
    partitions: dict[tuple[object, ...], set[str]] = {}
    for row, file in zip(rows.select(list(key_columns)).to_pylist(), files, strict=True):
        name = StagedFileName.decode(file.path.rpartition("/")[2])
        partitions.setdefault(tuple(row.values()), set()).add("?" if name is None else str(name.partition))
    named = ", ".join(
        f"{key} in partitions {' and '.join(sorted(where))}"
        for key, where in sorted(partitions.items(), key=repr)[:_NAMED]
    )
    return DuplicateKeyError(
        table,
        f"{len(partitions)} keys are staged more than once in one cycle, the first are {named}: nothing says which "
        "change is newer (iceberg.ext.ordering-columns would)",
    )


class StagedKeys:
    """The key columns of a request's staged files, read once, when first asked for."""

    def __init__(self, request: CommitRequest, schema: pa.Schema, files: TableFiles) -> None:
        """`schema`: the table's. `files` opens what its paths name, staged files among them.

        Raises:
            TableUnsuitableError: The table has no such key column: its owner renamed or dropped it.
        """
        for name in request.key_columns:
            if name not in schema.names:
                raise TableUnsuitableError(
                    request.table, f"has no key column {name} (any more): rename it back, or set other id-columns"
                )
        self._request = request
        self._columns = [schema.field(name) for name in request.key_columns]
        self._staged = [file for file in request.files if file.kind not in _NO_CHANGES]
        self.files = files
        self._table: pa.Table | None = None

    @property
    def rows(self) -> int:
        """How many keys are staged; nothing is read."""
        return sum(file.rows for file in self._staged)

    def table(self) -> pa.Table:
        """The key columns, nullable, under their names in the table. Empty request: no columns.

        Raises:
            CatalogUnavailableError: A file could not be read.
        """
        if self._table is None:
            import pyarrow as pa

            try:
                parts = [self._read(file) for file in self._staged]
            except OSError as error:
                raise CatalogUnavailableError(
                    f"table {self._request.table}: staged files cannot be read: {error}"
                ) from error
            # A file that was staged before the type of a key became wider joins the others here.
            self._table = pa.concat_tables(parts, promote_options="permissive")
        return self._table

    def check(self) -> None:
        """Compare the keys. 0.1 µs a row, and only when there are several files.

        Raises:
            DuplicateKeyError: A key is staged twice; the message names it.
            TableUnsuitableError: A key column holds a null.
            CatalogUnavailableError: A file could not be read.
        """
        if len(self._staged) < 2:
            return
        import pyarrow.compute as pc

        table, key_columns, keys = self._request.table, list(self._request.key_columns), self.table()
        for name in key_columns:
            if keys.column(name).null_count:
                raise TableUnsuitableError(
                    table, f"key column {name} is null in {keys.column(name).null_count} staged rows"
                )
        counted = keys.group_by(key_columns, use_threads=False).aggregate([([], "count_all")])
        if counted.num_rows == keys.num_rows:
            return
        several = keys.append_column(_FILE, self._numbers()).join(
            counted.filter(pc.greater(counted.column("count_all"), 1)),
            key_columns,
            join_type="inner",
            use_threads=False,
        )
        raise not_ordered(table, key_columns, several, [self._staged[i] for i in several.column(_FILE).to_pylist()])

    def _numbers(self) -> pa.Array:
        """Of each row of `table`, which staged file it is of."""
        import pyarrow as pa

        return pa.concat_arrays([pa.repeat(pa.scalar(n, pa.int64()), f.rows) for n, f in enumerate(self._staged)])

    def _read(self, file: StagedFile) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from connectors.iceberg.spark.staged_columns import read_staged

        with self.files.open(file.path) as opened, pq.ParquetFile(opened) as parquet:
            keys = read_staged(parquet, self._columns)
        for index, column in enumerate(keys.columns):
            if isinstance(column.type, pa.BaseExtensionType):  # UUIDs: Arrow groups and joins their bytes only
                stored = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
                keys = keys.set_column(index, keys.column_names[index], stored)
        # Files of one table may differ in what they say of nulls and metadata, and are joined here.
        return keys.cast(pa.schema([field.with_nullable(True) for field in keys.schema.remove_metadata()]))

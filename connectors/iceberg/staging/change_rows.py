"""`ChangeConverter`: converts records to rows and change types for a table in MERGE mode."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError
from connect_py.plurals import pluralize
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import (
    any_true,
    as_array,
    bad_rows,
    choose,
    tombstones,
)
from connectors.iceberg.conversion.kernel import Failure
from connectors.iceberg.conversion.row_converter import RowConverter
from connectors.iceberg.conversion.types import ORDER
from connectors.iceberg.staging.change_events import INT8, Change, Envelope, changes
from connectors.iceberg.staging.features import ChangeBatch, CycleRows, StagingFeature
from connectors.iceberg.staging.staged_changes import CHANGE, OFFSET
from connectors.iceberg.staging.table_converter import (
    NULL_IN_KEY,
    TableConverter,
    TableLayout,
    TableRows,
)
from connectors.iceberg.table.table import StagedFile, StagedKind

log = logging.getLogger(__name__)


class ChangeConverter(TableConverter):
    """Converts batches for MERGE mode. Rows have the additional columns `OFFSET` and `CHANGE`."""

    def __init__(
        self,
        layout: TableLayout,
        config: IcebergSinkConfig,
        read: Change,
        features: Sequence[StagingFeature],
    ) -> None:
        """`read` is the change type for rows from a snapshot of the source."""
        super().__init__(layout, config)
        self._changes = self._change_reader(config, read)
        self._skips_null_keys = config.skip_null_keys
        self._features = features
        self._own_fields = pa.field(OFFSET, pa.int64()), pa.field(CHANGE, INT8)

    @staticmethod
    def _change_reader(
        config: IcebergSinkConfig, read: Change
    ) -> Callable[[Column], tuple[Column, pa.Int8Array]]:
        """Return a function that extracts rows and change types from record values."""
        if config.envelopes:

            def open_envelope(value: Column) -> tuple[Column, pa.Int8Array]:
                envelope = Envelope.of(value, read)
                return envelope.row, envelope.change

            return open_envelope
        return lambda value: (value, changes(value, config.cdc_field, read))

    def convert(self, batch: Batch) -> TableRows:
        try:
            value, change = self._changes(batch.value)
        except DataError as error:
            raise BadRows(dict.fromkeys(range(len(batch)), error)) from error
        rows = ChangeBatch(batch.replace(value=value), batch.value, change, self)
        converter = self.row_converter(value)
        for feature in self._features:
            feature.prepare(rows, converter)
        converted = converter.convert(value, rows.unavailable)
        rows.columns, failures = converted.columns, converted.failures
        replaced = pc.not_equal(rows.change, Change.UPSERT)  # only the keys of these rows are used
        self._place_keys(rows, converter, failures)
        rows.effect = rows.change
        self._check_keys(rows, failures)
        self.raise_failures(failures, replaced)
        for feature in self._features:
            feature.amend(rows)
        columns = [*rows.columns, batch.origin.offsets, rows.change]
        fields = [*self.layout.nullable, *self._own_fields]
        for field, values in rows.extra.values():
            fields.append(field)
            columns.append(values)
        table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        partitions, has_effect = batch.origin.partitions, pc.not_equal(rows.change, Change.IGNORE)
        if not pc.all(has_effect).as_py():
            table, partitions = table.filter(has_effect), partitions.filter(has_effect)
        return TableRows(table, partitions, len(batch) - table.num_rows, rows.findings)

    def _place_keys(
        self, rows: ChangeBatch, converter: RowConverter, failures: list[Failure]
    ) -> None:
        """Fill in key columns from the record keys.

        For tombstones, all key columns are filled in. For other rows, only the key columns that the
        record values do not contain are filled in.
        """
        tombstone = tombstones(rows.batch.value)
        lacking = [key for key in self.layout.keys if key not in converter.sources]
        if tombstone is None and not lacking:
            return
        keys = self.convert_keys(rows.batch.key)
        if keys is None:
            return
        for name in self.layout.keys:
            at = self.layout.schema.get_field_index(name)
            if name in lacking:
                rows.columns[at] = keys.columns[at]
            else:
                rows.columns[at] = choose(tombstone, keys.columns[at], rows.columns[at])
        for failure in keys.failures:
            failed = failure.rows
            if failure.column not in lacking and tombstone is not None:
                failed = pc.and_(failed, tombstone)
            failures.append(Failure(failed, failure.column, failure.reason))

    def _check_keys(self, rows: ChangeBatch, failures: list[Failure]) -> None:
        """Ignore tombstones without a key, and either reject or skip other rows without a key."""
        columns = [rows.columns[self.layout.schema.get_field_index(k)] for k in self.layout.keys]
        nulls = [column.is_null() for column in columns if column.null_count]
        if not nulls or not len(rows.batch):
            return
        ignored = pc.equal(rows.change, Change.IGNORE)
        truncate = pc.equal(rows.change, Change.TRUNCATE)
        keyless = pc.and_not(reduce(pc.or_, nulls), truncate)
        if not self._skips_null_keys:
            bad = pc.and_not(keyless, ignored)
            tombstone = tombstones(rows.batch.value)
            if tombstone is not None:
                bad = pc.and_not(bad, tombstone)
            for failure in failures:  # a key that failed to convert is null and is already reported
                bad = pc.and_not(bad, failure.rows)
            if any_true(bad):
                failures.append(Failure(bad, ",".join(self.layout.keys), NULL_IN_KEY))
        rows.change = as_array(pc.if_else(keyless, pa.scalar(Change.IGNORE, INT8), rows.change))


class Truncates(StagingFeature):
    """Applies or ignores truncate events from the source."""

    def __init__(
        self, config: IcebergSinkConfig, table: str, partition_count: Callable[[str], int]
    ) -> None:
        """`partition_count` returns the current number of partitions in a topic."""
        self._config = config
        self._table = table
        self._partition_count = partition_count

    def prepare(self, changes: ChangeBatch, converter: RowConverter) -> None:
        if pc.index(changes.change, int(Change.TRUNCATE)).as_py() < 0:
            return
        truncate, topic = pc.equal(changes.change, Change.TRUNCATE), changes.batch.origin.topic
        if not self._config.apply_truncates:
            log.warning(
                "table %s: ignoring %s from topic %s; "
                "set iceberg.ext.truncate-events=apply to apply truncate events",
                self._table,
                pluralize(pc.sum(truncate).as_py(), "truncate event"),
                topic,
                extra={"action": "truncate_ignored", "table": self._table},
            )
            ignore = pa.scalar(Change.IGNORE, INT8)
            changes.change = as_array(pc.if_else(truncate, ignore, changes.change))
            return
        count = 1 if self._config.ordering_columns else self._partition_count(topic)
        if count > 1:
            raise bad_rows(
                truncate,
                f"topic {topic} has {count} partitions, so the order of this truncate relative "
                "to changes in other partitions is unknown; set iceberg.ext.ordering-columns",
            )

    def stage(self, cycle: CycleRows) -> Iterator[StagedFile]:
        """Drop the changes before the last truncate.

        The coordinator empties the table before it applies the remaining changes.
        """
        whole = cycle.whole
        truncates = whole.filter(pc.equal(whole.column(CHANGE), Change.TRUNCATE))
        offset = pc.max(truncates.column(OFFSET)).as_py()
        if offset is None:
            return
        order = ""
        if self._config.ordering_columns:
            order = whole.column(ORDER)[pc.index(whole.column(OFFSET), offset).as_py()].as_py()
        kind, description = StagedKind.TRUNCATES, cycle.layout.description
        spec_id = cycle.layout.spec_id
        yield StagedFile(kind, "", 0, 0, description.schema_id, spec_id, order=order)
        cycle.replace([p.filter(pc.greater(p.column(OFFSET), offset)) for p in cycle.pieces])

"""`ChangeRows`: what each record of a batch does to a table that is merged, and the row that it
brings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.conversion.columns import any_true, as_array, choose, tombstones
from connectors.iceberg.conversion.conversion import RowConverter
from connectors.iceberg.conversion.kernel import Failure
from connectors.iceberg.staging.cdc import Change, any_null, changes
from connectors.iceberg.staging.envelope import Envelope
from connectors.iceberg.staging.ordering import order_of
from connectors.iceberg.staging.staged_changes import (
    BUFFERED_ORDER,
    CHANGE,
    OFFSET,
    SEPARATOR,
    UNAVAILABLE,
)
from connectors.iceberg.staging.table_converter import NULL_IN_KEY, TableConverter, TableLayout

log = logging.getLogger(__name__)

_EXTRA = (
    pa.field(OFFSET, pa.int64()),
    pa.field(CHANGE, pa.int8()),
    pa.field(UNAVAILABLE, pa.string()),
)


class ConvertedChanges(NamedTuple):
    """One row for each record of a batch."""

    rows: pa.Table
    kept: pa.BooleanArray  # which of them mean something
    null_keys: int  # rows left out because of iceberg.ext.null-key=skip


class ChangeRows:
    """Nothing is kept here."""

    def __init__(
        self,
        layout: TableLayout,
        config: IcebergSinkConfig,
        converter: TableConverter,
        read: Change,
        partition_count: Callable[[str], int],
    ) -> None:
        """`read` is what events of a snapshot mean. `partition_count` asks how many partitions a
        topic has now."""
        self._layout = layout
        self._config = config
        self._converter = converter
        self._read = read
        self._partition_count = partition_count

    def convert(self, batch: Batch) -> ConvertedChanges:
        """Convert a batch.

        Raises:
            BadRows: These rows do not fit, or do not say what they mean.
        """
        raw = batch.value
        batch, change = self._meant(batch)
        meant, value = change, batch.value
        upsert = pc.equal(change, Change.UPSERT)
        converter = self._converter.converter(value)
        hidden = self._converter.unavailable_rows(value, converter, upsert)
        unknown = hidden  # and, of deletes that only mark, every other value
        deletes = pc.equal(change, Change.DELETE)
        marking = self._layout.marked is not None and any_true(deletes)
        if marking:
            unknown = {
                name: pc.or_(deletes, hidden[name]) if name in hidden else deletes
                for name in self._layout.unmarked
            }
        converted = converter.convert(value, unknown)
        columns, failures = converted.columns, converted.failures
        self._place_keys(batch, columns, converter, failures)
        names = self._layout.schema.names
        keyless = any_null([columns[names.index(k)] for k in self._layout.keys], len(batch))
        null_keys = 0
        if keyless is not None:
            change, null_keys = self._without_key(batch, change, keyless, failures)
        self._converter.raise_failures(failures, pc.invert(upsert))
        unavailable = self._unavailable_ids(unknown, len(batch))
        if self._layout.marked is not None:
            columns[names.index(self._layout.marked)] = deletes.cast(
                self._layout.schema.field(self._layout.marked).type
            )
        if marking:
            still = pc.and_(deletes, pc.not_equal(change, Change.IGNORE))
            change = as_array(pc.if_else(still, pa.scalar(Change.UPSERT, pa.int8()), change))
        extra, fields = [batch.origin.offsets, change, unavailable], list(_EXTRA)
        order = self._order(batch, raw) if self._config.ordering_columns else None
        if batch.origin.topic == self._config.replay_topic:
            self._check_replayed(meant, order, hidden)
        if order is not None:
            extra.append(order)
            fields.append(BUFFERED_ORDER)
        rows = pa.Table.from_arrays(
            [*columns, *extra], schema=pa.schema([*self._layout.nullable, *fields])
        )
        return ConvertedChanges(rows, pc.not_equal(change, Change.IGNORE), null_keys)

    @staticmethod
    def _check_replayed(
        change: pa.Int8Array, order: pa.StringArray | None, hidden: Mapping[str, pa.BooleanArray]
    ) -> None:
        """Refuse dead letters tried again of which it is not known whether they are older than the
        row of their key.

        `order`: where each stands; None: nothing tells it, so a dead letter may only be a row that
        is missing.
        """
        if order is not None:
            wrong = pc.and_(
                pc.equal(order, "").fill_null(False), pc.not_equal(change, Change.IGNORE)
            )
            why = (
                "iceberg.ext.ordering-columns say nothing of it, and so not whether it is older "
                "than its row"
            )
        else:
            wrong = pc.or_(pc.equal(change, Change.DELETE), pc.equal(change, Change.TRUNCATE))
            for rows in hidden.values():
                wrong = pc.or_(wrong, rows)
            why = (
                "without iceberg.ext.ordering-columns only a whole row can be tried again, where "
                "its key is missing"
            )
        if any_true(as_array(wrong)):
            raise BadRows(
                dict.fromkeys(pc.indices_nonzero(wrong).to_pylist(), DataError(f"a replay: {why}"))
            )

    def _order(self, batch: Batch, raw: Column) -> pa.StringArray:
        """Where each row stands; empty where it does not say, and null if it is a tombstone that
        only repeats."""
        try:
            order = order_of(batch, raw, self._config.ordering_columns)
        except DataError as error:
            raise BadRows(dict.fromkeys(range(len(batch)), error)) from error
        filled = order.fill_null("")
        # Where the source tells deletes by records with a value, tombstones only repeat them.
        tombstone = tombstones(raw) if self._config.envelopes or self._config.cdc_field else None
        return filled if tombstone is None else as_array(pc.if_else(tombstone, order, filled))

    def _meant(self, batch: Batch) -> tuple[Batch, pa.Int8Array]:
        """The batch with rows for values, and what each of them does.

        Raises:
            BadRows: Rows that do not say it.
        """
        if self._config.envelopes:
            opened = Envelope.of(batch.value, read=self._read)
            batch, change = batch.replace(value=opened.row), opened.change
        else:
            try:
                change = changes(batch.value, self._config.cdc_field, read=self._read)
            except DataError as error:
                raise BadRows(dict.fromkeys(range(len(batch)), error)) from error
        if pc.index(change, int(Change.TRUNCATE)).as_py() < 0:
            return batch, change
        truncate = pc.equal(change, Change.TRUNCATE)
        if not self._config.apply_truncates:
            log.warning(
                "table %s: %d truncate events of topic %s are ignored; "
                "iceberg.ext.truncate-events=apply would empty "
                "the table",
                self._layout.description.name,
                pc.sum(truncate).as_py(),
                batch.origin.topic,
                extra={"action": "truncate_ignored", "table": self._layout.description.name},
            )
            return batch, as_array(
                pc.if_else(truncate, pa.scalar(Change.IGNORE, pa.int8()), change)
            )
        count = 1 if self._config.ordering_columns else self._partition_count(batch.origin.topic)
        if count > 1:
            refusal = DataError(
                f"topic {batch.origin.topic} has {count} partitions, so it is not known which "
                "rows of the others came before this truncate; iceberg.ext.ordering-columns would"
            )
            raise BadRows(dict.fromkeys(pc.indices_nonzero(truncate).to_pylist(), refusal))
        return batch, change

    def _place_keys(
        self,
        batch: Batch,
        columns: list[pa.Array],
        converter: RowConverter,
        failures: list[Failure],
    ) -> None:
        """Put keys from the record keys where the value has none: tombstones, and columns the value
        lacks."""
        tombstone = tombstones(batch.value)
        lacking = [k for k in self._layout.keys if k not in converter.sources]
        keys = (
            None if tombstone is None and not lacking else self._converter.convert_keys(batch.key)
        )
        if keys is None:
            return
        for name in self._layout.keys:
            at = self._layout.schema.get_field_index(name)
            columns[at] = (
                keys.columns[at]
                if name in lacking
                else choose(tombstone, keys.columns[at], columns[at])
            )
        for failure in keys.failures:
            rows = (
                failure.rows
                if failure.column in lacking or tombstone is None
                else pc.and_(failure.rows, tombstone)
            )
            failures.append(Failure(rows, failure.column, failure.reason))

    def _without_key(
        self, batch: Batch, change: pa.Int8Array, keyless: pa.BooleanArray, failures: list[Failure]
    ) -> tuple[pa.Int8Array, int]:
        """Tombstones without a key mean nothing; other rows without one fail or are left out, by
        configuration.

        Returns what each row does then, and how many are left out.
        """
        ignore = pa.scalar(Change.IGNORE, pa.int8())
        tombstone = tombstones(batch.value)
        keyless = pc.and_(keyless, pc.not_equal(change, Change.TRUNCATE))
        named = pc.and_(keyless, pc.not_equal(change, Change.IGNORE))
        if tombstone is not None:
            named = pc.and_not(named, tombstone)
        for failure in failures:  # a key that did not convert is null, and has been reported
            named = pc.and_not(named, failure.rows)
        null_keys = 0
        if any_true(named):
            if not self._config.skip_null_keys:
                failures.append(Failure(named, ",".join(self._layout.keys), NULL_IN_KEY))
            else:
                null_keys = pc.sum(named).as_py()
        return as_array(pc.if_else(keyless, ignore, change)), null_keys

    def _unavailable_ids(
        self, hidden: Mapping[str, pa.BooleanArray], length: int
    ) -> pa.StringArray:
        if not hidden:
            return pa.nulls(length, pa.string())
        texts = [
            pc.if_else(rows, self._layout.field_id(name) + SEPARATOR, "")
            for name, rows in hidden.items()
        ]
        joined = pc.binary_join_element_wise(SEPARATOR, *texts, "")
        return as_array(
            pc.if_else(pc.equal(joined, SEPARATOR), pa.scalar(None, pa.string()), joined)
        )

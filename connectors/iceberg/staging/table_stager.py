"""Rows of one table on their way to staged files: converted, held per Kafka partition, written once per cycle."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, DataError, FailureReason
from connect_py.api.record import Header, SinkRecord, TopicPartition
from connect_py.api.schema import struct
from connectors.iceberg.config.sink_config import TARGET_FILE_BYTES, IcebergSinkConfig
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.schema.table import StagedFile, StagedKind, TableDescription, WriteMode
from connectors.iceberg.schema.table_evolution import TableEvolution
from connectors.iceberg.staging.cdc import DELETED, Change, Placeholder, any_null, changes, last_per_key
from connectors.iceberg.staging.changelog import Changes
from connectors.iceberg.staging.columns import any_true, as_array, choose, tombstones
from connectors.iceberg.staging.conversion import Converted, RowConverter
from connectors.iceberg.staging.envelope import Envelope
from connectors.iceberg.staging.file_output import FileOutput
from connectors.iceberg.staging.kernels.kernel import ConversionOptions, Failure
from connectors.iceberg.staging.key_changes import UnreadPair
from connectors.iceberg.staging.ordering import ORDER, order_field, order_of, running_maximum
from connectors.iceberg.staging.partitioning import Partitioner
from connectors.iceberg.staging.projection import project, with_hidden_values
from connectors.iceberg.staging.spill_file import SpilledRows, SpillFile
from connectors.iceberg.staging.staged_changes import (
    CHANGE,
    EXTRA_SCHEMA,
    HALF,
    OFFSET,
    OPTIONAL,
    PAIR,
    PARTIAL,
    PLACED,
    SEPARATOR,
    UNAVAILABLE,
    Half,
    changes_to_stage,
)
from connectors.iceberg.staging.staged_file_name import StagedFileName, table_digits
from connectors.iceberg.staging.types import FIELD_ID, arrow_schema, writable_fields

log = logging.getLogger(__name__)

NULL_IN_KEY = "null in the key"
_NEW_KEY = "__debezium.newkey"  # of the delete that a change of the key begins with
_OLD_KEY = "__debezium.oldkey"  # of the insert that it ends with
_PAIR_DIGITS = 20
_MOST_READ_PAIRS = 100_000  # of a partition, to remember
_KEY_HEADERS = frozenset({_OLD_KEY, _NEW_KEY})
_header_key = attrgetter("key")
_KEYS = "keys"  # of a pair, old and new, for people
_SOURCE = "source"  # of a change event: where the change was made
_LEAST_ROWS_OF_A_PIECE = 200  # on average; smaller ones cost the writer more than copying them together
_MAX_COMPILED = 500  # schemas known at once; schemaless rows may bring a new type with every batch


class MemoryBudget:
    """Bytes of rows that a task may hold in memory, over all its tables. Used by the task thread only."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.spilled = 0  # bytes that went to disk, as they were counted in memory
        self._stagers: WeakSet[TableStager] = WeakSet()

    def share(self, stager: TableStager) -> None:
        """Count a stager's rows here; it may be asked to spill them."""
        self._stagers.add(stager)

    def relieve(self) -> None:
        """If more is held than may be, move the largest holders' rows to disk until half of the budget is free."""
        if self.used <= self.limit:
            return
        for stager in sorted(self._stagers, key=lambda s: s.buffered_bytes, reverse=True):
            stager.spill()
            if self.used <= self.limit // 2:
                return


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of one batch that fit a table, by Kafka partition; `TableStager.add` takes them."""

    stager: TableStager
    parts: Mapping[TopicPartition, pa.Table]
    ignored: int = 0  # rows that mean nothing to the table
    pairs: Mapping[TopicPartition, pa.Table] = field(default_factory=dict)  # halves of changed keys, as of `_pairs`

    def without(self, partition: TopicPartition) -> StagedRows:
        """The same without the rows of a Kafka partition."""
        parts = {tp: part for tp, part in self.parts.items() if tp != partition}
        pairs = {tp: changed for tp, changed in self.pairs.items() if tp != partition}
        return StagedRows(self.stager, parts, self.ignored, pairs)

    def deletes(self, limits: Mapping[TopicPartition, UnreadPair]) -> Counter[str]:
        """Pairs whose delete is among these rows, before the offset at which its partition stops; how many of each."""
        found: Counter[str] = Counter()
        for partition, changed in self.pairs.items():
            if (limit := limits.get(partition)) is not None:
                changed = changed.filter(pc.less(changed.column(OFFSET), limit.offset))
            found.update(pairs_of(changed, Half.DELETE))
        return found


@dataclass(slots=True)
class _PartitionBuffer:
    """Rows of one Kafka partition in this cycle."""

    chunks: list[pa.Table] = field(default_factory=list)
    pairs: list[pa.Table] = field(default_factory=list)
    bytes: int = 0
    spilled: list[SpilledRows] = field(default_factory=list)
    spilled_bytes: int = 0


class TableStager:
    """Collects rows of one table. One per task and table, used by the task thread.

    A batch comes in two steps, so that a batch that goes to several tables is taken by all of them or by none:
    `prepare` converts and may refuse rows, `add` cannot fail. `close_cycle` writes one partition's rows and forgets
    them. In MERGE mode each key is left once, with its last change in offset order.

    Rows that the table's ledger covers must be filtered out before: this class sees only what may enter.
    """

    def __init__(
        self,
        description: TableDescription,
        config: IcebergSinkConfig,
        epoch: Epoch,
        task: str,
        budget: MemoryBudget,
        partition_count: Callable[[str], int] = lambda _: 1,
    ) -> None:
        """`epoch` and `task` go into the names of files.

        `partition_count` asks how many partitions a topic has now.
        """
        self._config = config
        self._epoch = epoch
        self._task = task
        self._budget = budget
        self._partition_count = partition_count
        self._spill_file: SpillFile | None = None
        self._conversion = ConversionOptions.of(config)
        self._read = Change.IGNORE if config.ignore_snapshots else Change.UPSERT
        self._placeholder = Placeholder(config.unavailable_value) if config.unavailable_value else None
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._unreported: set[str] = set()  # files of cycles that were not written to the end
        # How many more deletes of a pair were staged than inserts. The table's open pairs tell of those that leave.
        self._read_pairs: dict[TopicPartition, Counter[str]] = {}
        self._last_deletes: dict[TopicPartition, tuple[int, str]] = {}  # the offset of the last of a pair, and its keys
        self._alone: set[tuple[TopicPartition, int]] = set()  # inserts whose delete was waited for in vain
        self._last_order: dict[TopicPartition, str] = {}  # where the row before the next one stood
        self._latest: str | None = None  # the same, of the partition that is being closed
        self.ignored_rows = 0  # since the start: tombstones in append mode, deletes without a key, messages
        self.null_keys = 0  # since the start: rows left out because of iceberg.ext.null-key=skip
        self.evolve(description)
        budget.share(self)

    def evolve(self, description: TableDescription) -> None:
        """Go on with a newer schema or spec of the same table; rows already held are brought along."""
        self.description = description
        table = json.loads(description.schema)
        self._schema = arrow_schema(writable_fields(table["fields"]))
        self._order_field = order_field(table["fields"])
        self._nullable = pa.schema([f.with_nullable(True) for f in self._schema])
        self._partitioner = Partitioner(description.schema, description.spec)
        self._output = FileOutput(description, self._config.write_props)
        self._compiled = lru_cache(_MAX_COMPILED)(partial(RowConverter, description))
        self.evolution = TableEvolution(description, self._config)
        self._keys = description.key_columns
        self._marked = DELETED if self._config.marks_deletes(description.name) else None
        if self._marked is not None and self._schema.get_field_index(self._marked) < 0:
            raise DataError(f"table {description.name} has no column {DELETED} to mark deleted rows in: add it")
        self._unmarked = [n for n in self._schema.names if n not in self._keys and n != self._marked]
        missing = [name for name in self._keys if self._schema.get_field_index(name) < 0]
        if missing:
            raise DataError(f"table {description.name} has no key column {missing[0]}")

    # --- rows in

    def prepare(self, batch: Batch) -> StagedRows:
        """Convert a batch; nothing is kept.

        Raises:
            BadRows: These rows do not fit, by their index in the batch.
        """
        if self._config.is_changelog(self.description.name):
            return self._prepare_changes(batch)
        pairs: Mapping[TopicPartition, pa.Table] = {}
        if self.description.mode is WriteMode.MERGE:
            rows, kept, pairs = self._merge_rows(batch)
        else:
            rows, kept = self._append_rows(batch)
        partitions = batch.origin.partitions
        if not pc.all(kept).as_py():
            rows, partitions = rows.filter(kept), partitions.filter(kept)
        parts = _by_partition(batch.origin.topic, rows, partitions)
        kept_pairs = {tp: changed for tp, changed in pairs.items() if tp in parts}
        return StagedRows(self, parts, len(batch) - rows.num_rows, kept_pairs)

    def add(self, prepared: StagedRows) -> None:
        """Keep what was prepared until the cycle closes."""
        self.ignored_rows += prepared.ignored
        for partition, rows in prepared.parts.items():
            buffer = self._buffers.setdefault(partition, _PartitionBuffer())
            buffer.chunks.append(rows)
            size = rows.nbytes
            buffer.bytes += size
            self._budget.used += size
        for partition, changed in prepared.pairs.items():
            self._buffers[partition].pairs.append(changed)
            if changed.column(HALF)[-1].as_py() == Half.DELETE:
                self._last_deletes[partition] = changed.column(OFFSET)[-1].as_py(), changed.column(_KEYS)[-1].as_py()
            read = self._read_pairs.setdefault(partition, Counter())
            read.update(pairs_of(changed, Half.DELETE))
            read.subtract(pairs_of(changed, Half.INSERT))
            for pair in [*islice(read, max(0, len(read) - _MOST_READ_PAIRS))]:
                del read[pair]
        self._budget.relieve()

    def _append_rows(self, batch: Batch) -> tuple[pa.Table, pa.BooleanArray]:
        """The rows, and which of them are no tombstones."""
        tombstone = tombstones(batch.value)
        kept = pa.repeat(pa.scalar(True), len(batch)) if tombstone is None else pc.invert(tombstone)
        converted = self._converter(batch.value).convert(batch.value)
        self._raise_failures(converted.failures)
        return pa.Table.from_arrays(converted.columns, schema=self._nullable), kept

    def _prepare_changes(self, batch: Batch) -> StagedRows:
        """Each change as its rows; values that the source did not send are null."""
        opened = Changes(batch, self._read)
        found = []
        for images, places in opened.images():
            converter = self._converter(images)
            converted = converter.convert(images, self._unavailable_rows(images, converter, pa.scalar(True)))
            self._raise_failures(converted.failures, places=places)
            found.append(pa.Table.from_arrays(converted.columns, schema=self._nullable))
        if not found:
            return StagedRows(self, {}, len(batch))
        rows = pa.concat_tables(found)
        for name, data in opened.described(self._nullable).items():
            rows = rows.set_column(rows.schema.get_field_index(name), self._nullable.field(name), data)
        places = opened.places()
        partitions = batch.origin.partitions.take(places)
        ordered = pc.array_sort_indices(places)  # images of a change side by side, the row before first
        parts = _by_partition(batch.origin.topic, rows.take(ordered), partitions.take(ordered))
        return StagedRows(self, parts, len(batch) - len(pc.unique(places)))

    def _merge_rows(self, batch: Batch) -> tuple[pa.Table, pa.BooleanArray, dict[TopicPartition, pa.Table]]:
        """The rows, which of them mean something, and those that change a key."""
        raw = batch.value
        batch, change = self._meant(batch)
        meant, value = change, batch.value
        upsert = pc.equal(change, Change.UPSERT)
        converter = self._converter(value)
        hidden = self._unavailable_rows(value, converter, upsert)
        unknown = hidden  # and, of deletes that only mark, every other value
        deletes = pc.equal(change, Change.DELETE)
        marking = self._marked is not None and any_true(deletes)
        if marking:
            unknown = {name: pc.or_(deletes, hidden[name]) if name in hidden else deletes for name in self._unmarked}
        converted = converter.convert(value, unknown)
        columns, failures = converted.columns, converted.failures
        self._place_keys(batch, columns, converter, failures)
        names = self._schema.names
        keyless = any_null([columns[names.index(k)] for k in self._keys], len(batch))
        if keyless is not None:
            change = self._without_key(batch, change, keyless, failures)
        self._raise_failures(failures, pc.invert(upsert))
        unavailable = self._unavailable_ids(unknown, len(batch))
        if self._marked is not None:
            columns[names.index(self._marked)] = deletes.cast(self._schema.field(self._marked).type)
        if marking:
            still = pc.and_(deletes, pc.not_equal(change, Change.IGNORE))
            change = as_array(pc.if_else(still, pa.scalar(Change.UPSERT, pa.int8()), change))
        extra, fields = [batch.origin.offsets, change, unavailable], list(_EXTRA)
        order = self._order(batch, raw) if self._config.ordering_columns else None
        if batch.origin.topic == self._config.replay_topic:
            self._check_replayed(meant, order, hidden)
        if order is not None:
            extra.append(order)
            fields.append(_BUFFERED_ORDER)
        rows = pa.Table.from_arrays([*columns, *extra], schema=pa.schema([*self._nullable, *fields]))
        return rows, pc.not_equal(change, Change.IGNORE), self._pairs(batch, raw, rows)

    @staticmethod
    def _check_replayed(
        change: pa.Int8Array, order: pa.StringArray | None, hidden: Mapping[str, pa.BooleanArray]
    ) -> None:
        """Refuse dead letters tried again of which it is not known whether they are older than the row of their key.

        `order`: where each stands; None: nothing tells it, so that all a letter may do is to be a row that is missing.
        """
        if order is not None:
            wrong = pc.and_(pc.equal(order, "").fill_null(False), pc.not_equal(change, Change.IGNORE))
            why = "iceberg.ext.ordering-columns say nothing of it, and so not whether it is older than its row"
        else:
            wrong = pc.or_(pc.equal(change, Change.DELETE), pc.equal(change, Change.TRUNCATE))
            for rows in hidden.values():
                wrong = pc.or_(wrong, rows)
            why = "without iceberg.ext.ordering-columns only a whole row can be tried again, where its key is missing"
        if any_true(as_array(wrong)):
            raise BadRows(dict.fromkeys(pc.indices_nonzero(wrong).to_pylist(), DataError(f"a replay: {why}")))

    def _order(self, batch: Batch, raw: Column) -> pa.StringArray:
        """Where each row stands; empty where it does not say, and null if it is a tombstone that only repeats."""
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
                "table %s: %d truncate events of topic %s are ignored; iceberg.ext.truncate-events=apply would empty "
                "the table",
                self.description.name, pc.sum(truncate).as_py(), batch.origin.topic,
                extra={"action": "truncate_ignored", "table": self.description.name},
            )  # fmt: skip
            return batch, as_array(pc.if_else(truncate, pa.scalar(Change.IGNORE, pa.int8()), change))
        count = 1 if self._config.ordering_columns else self._partition_count(batch.origin.topic)
        if count > 1:
            refusal = DataError(
                f"topic {batch.origin.topic} has {count} partitions, so it is not known which rows of the others came "
                "before this truncate; iceberg.ext.ordering-columns would"
            )
            raise BadRows(dict.fromkeys(pc.indices_nonzero(truncate).to_pylist(), refusal))
        return batch, change

    def _place_keys(
        self, batch: Batch, columns: list[pa.Array], converter: RowConverter, failures: list[Failure]
    ) -> None:
        """Put keys from the record keys where the value has none: tombstones, and columns the value lacks."""
        tombstone = tombstones(batch.value)
        lacking = [k for k in self._keys if k not in converter.sources]
        keys = None if tombstone is None and not lacking else self._converted_keys(batch.key)
        if keys is None:
            return
        for name in self._keys:
            at = self._schema.get_field_index(name)
            columns[at] = keys.columns[at] if name in lacking else choose(tombstone, keys.columns[at], columns[at])
        for failure in keys.failures:
            rows = failure.rows if failure.column in lacking or tombstone is None else pc.and_(failure.rows, tombstone)
            failures.append(Failure(rows, failure.column, failure.reason))

    def _converted_keys(self, key: Column) -> Converted | None:
        """The key columns from the record keys; None when these hold nothing that could be one."""
        data, schema = key.data, key.schema
        if pa.types.is_null(data.type):
            return None
        if not (pa.types.is_struct(data.type) or pa.types.is_map(data.type)):
            if len(self._keys) != 1:
                return None
            data = pa.StructArray.from_arrays([data], names=[self._keys[0]])
            schema = None if schema is None else struct((self._keys[0], schema))
            key = Column(schema, data)
        return self._converter(key, of_key=True).convert(key)

    def _without_key(
        self, batch: Batch, change: pa.Int8Array, keyless: pa.BooleanArray, failures: list[Failure]
    ) -> pa.Int8Array:
        """Tombstones without a key mean nothing; other rows without one fail or are left out, by configuration."""
        ignore = pa.scalar(Change.IGNORE, pa.int8())
        tombstone = tombstones(batch.value)
        keyless = pc.and_(keyless, pc.not_equal(change, Change.TRUNCATE))
        named = pc.and_(keyless, pc.not_equal(change, Change.IGNORE))
        if tombstone is not None:
            named = pc.and_not(named, tombstone)
        for failure in failures:  # a key that did not convert is null, and has been reported
            named = pc.and_not(named, failure.rows)
        if any_true(named):
            if not self._config.skip_null_keys:
                failures.append(Failure(named, ",".join(self._keys), NULL_IN_KEY))
            else:
                self.null_keys += pc.sum(named).as_py()
        return as_array(pc.if_else(keyless, ignore, change))

    def _unavailable_rows(
        self, value: Column, converter: RowConverter, upsert: pa.BooleanArray | pa.BooleanScalar
    ) -> dict[str, pa.BooleanArray]:
        """Per table column, the upserts whose value is Debezium's placeholder."""
        found: dict[str, pa.BooleanArray] = {}
        if self._placeholder is None or not pa.types.is_struct(value.data.type):
            return found
        for column, source in converter.sources.items():
            if column in self._keys:
                continue
            data = value.data.field(value.data.type.get_field_index(source))  # below a null there is no upsert
            rows = self._placeholder.rows(data, schemaless=value.schema is None)
            if rows is not None:
                found[column] = pc.and_(rows, upsert)
                found.update(dict.fromkeys(converter.siblings[column], found[column]))  # one of them has the value
        return {column: rows for column, rows in found.items() if any_true(rows)}

    def _pairs(self, batch: Batch, raw: Column, rows: pa.Table) -> dict[TopicPartition, pa.Table]:
        """By Kafka partition, the rows that are half of a change of the key: `OFFSET`, `PAIR`, `HALF` and `KEYS`.

        `rows`: converted, one for each of the batch.
        """
        if batch.headers is None or self._placeholder is None:  # no value will be asked for under an old key
            return {}
        changed = [n for n, each in enumerate(batch.headers) if not _KEY_HEADERS.isdisjoint(map(_header_key, each))]
        if not changed:
            return {}
        origin, source = batch.origin, raw.member(_SOURCE) if raw.is_struct() else None
        silent, last = tombstones(raw), dict(self._last_deletes)
        found: dict[TopicPartition, list[tuple[int, str, int, str]]] = {}
        for row in changed:
            old, new = batch.headers[row].last_with(_OLD_KEY), batch.headers[row].last_with(_NEW_KEY)
            other = self._key_of(old or new)
            if other is None:
                continue
            own = [rows.column(key)[row].as_py() for key in self._keys]
            tp, offset = TopicPartition(origin.topic, origin.partitions[row].as_py()), origin.offsets[row].as_py()
            half, keys = (Half.DELETE, (own, other)) if old is None else (Half.INSERT, (other, own))
            if half is Half.INSERT and (tp, offset) in self._alone:
                half = Half.INSERT_ALONE
            text = json.dumps(keys, default=str)
            if silent is not None and silent[row].as_py() and last.get(tp) == (offset - 1, text):
                continue  # the tombstone that follows a delete
            if half is Half.DELETE:
                last[tp] = offset, text
            place = source.data[row].as_py() if source is not None else None
            if self._config.ordering_columns:
                place = rows.column(ORDER)[row].as_py()
            whole = f"{text} {json.dumps(place, sort_keys=True, default=str)}"
            pair = hashlib.sha256(whole.encode()).hexdigest()[:_PAIR_DIGITS] + ("" if place is None else PLACED)
            found.setdefault(tp, []).append((offset, pair, int(half), text))
        return {tp: pa.Table.from_pylist([dict(zip(_PAIRS.names, each, strict=True)) for each in all_], _PAIRS)
                for tp, all_ in found.items()}  # fmt: skip

    def _key_of(self, header: Header | None) -> list[Any] | None:
        """The key that a header holds; None: it holds no whole key."""
        value = None if header is None else header.value
        if isinstance(value, str):  # of a header converter that reads nothing
            try:
                value = json.loads(value)
            except ValueError:
                return None
        if header is None or value is None:
            return None
        (key,) = Batch.of([SinkRecord("", 0, None, None, header.schema, value, 0)])
        converted = self._converted_keys(key.value)
        if converted is None or converted.failures:
            return None
        found = [converted.columns[self._schema.get_field_index(name)][0].as_py() for name in self._keys]
        return None if None in found else found

    def _unavailable_ids(self, hidden: Mapping[str, pa.BooleanArray], length: int) -> pa.StringArray:
        if not hidden:
            return pa.nulls(length, pa.string())
        texts = [pc.if_else(rows, self._field_id(name) + SEPARATOR, "") for name, rows in hidden.items()]
        joined = pc.binary_join_element_wise(SEPARATOR, *texts, "")
        return as_array(pc.if_else(pc.equal(joined, SEPARATOR), pa.scalar(None, pa.string()), joined))

    def _converter(self, rows: Column, *, of_key: bool = False) -> RowConverter:
        """For such rows, or for records' keys, which fill the key columns only."""
        only, unchecked = (self._keys, ()) if of_key else (None, self._keys)
        try:
            return self._compiled(rows.schema, rows.data.type, self._conversion, only, unchecked)
        except DataError as error:
            wrong = pc.indices_nonzero(rows.data.is_valid()).to_pylist() or [0]
            raise BadRows(dict.fromkeys(wrong, error)) from error

    def _raise_failures(
        self, failures: Sequence[Failure], excused: pa.BooleanArray | None = None, places: pa.Int64Array | None = None
    ) -> None:
        """`excused`: rows of which only the key counts. `places`: where the rows stand in the batch; None: as here."""
        errors: dict[int, Exception] = {}
        for failure in failures:
            rows = failure.rows
            if excused is not None and failure.column.split(".")[0].split(",")[0] not in self._keys:
                rows = pc.and_not(rows, excused)
            text = f"table {self.description.name}, column {failure.column}: {failure.reason}"
            error = DataError(text, reason=FailureReason.NULL_KEY if failure.reason == NULL_IN_KEY else None)
            for row in pc.indices_nonzero(rows).to_pylist():
                errors.setdefault(row if places is None else places[row].as_py(), error)
        if errors:
            raise BadRows(dict(sorted(errors.items())))

    # --- changes of keys

    def known_pairs(self) -> Counter[str]:
        """Pairs whose delete was staged here, or committed as far as the coordinator said; and how many of each."""
        read = Counter[str]()
        for each in self._read_pairs.values():
            read.update(each)
        return read | Counter(self.description.open_pairs)

    def unread(self, prepared: StagedRows, known: Mapping[str, int]) -> Iterator[tuple[TopicPartition, UnreadPair]]:
        """Of each partition, the first insert that lacks values of a row whose delete was not read.

        `known`: how many deletes of each pair were read, with those of these rows.
        """
        for partition, changed in prepared.pairs.items():
            rows = prepared.parts[partition]
            lacking = rows.filter(rows.column(UNAVAILABLE).is_valid()).column(OFFSET)
            inserts: Counter[str] = Counter()
            for offset, pair, half, keys in zip(*(column.to_pylist() for column in changed.columns), strict=True):
                if half == Half.DELETE:
                    continue
                inserts[pair] += 1
                read = known.get(pair, 0) >= (1 if pair.endswith(PLACED) else inserts[pair])
                if half == Half.INSERT and not read and pc.index(lacking, offset).as_py() >= 0:
                    yield partition, UnreadPair(self.description.name, offset, pair, keys)
                    break

    def stage_alone(self, partition: TopicPartition, offset: int) -> None:
        """Go on with an insert whose delete was waited for in vain: what it lacks is null."""
        self._alone.add((partition, offset))

    # --- memory

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows in memory."""
        return sum(buffer.bytes for buffer in self._buffers.values())

    def spill(self) -> None:
        """Move all held rows to disk."""
        for buffer in self._buffers.values():
            if not buffer.chunks:
                continue
            if self._spill_file is None:
                self._spill_file = SpillFile(None)
            buffer.spilled.append(self._spill_file.append(self._joined(buffer.chunks)))
            buffer.spilled_bytes += buffer.bytes
            self._budget.spilled += buffer.bytes
            self._free(buffer)

    def _free(self, buffer: _PartitionBuffer) -> None:
        self._budget.used -= buffer.bytes
        buffer.bytes = 0
        buffer.chunks = []

    def _joined(self, chunks: Sequence[pa.Table]) -> pa.Table:
        fitted = [project(chunk, self._nullable) for chunk in chunks]
        return fitted[0] if len(fitted) == 1 else pa.concat_tables(fitted)

    def _pieces(self, buffer: _PartitionBuffer) -> Iterator[pa.Table]:
        """Held rows in offset order: what was spilled, then what is in memory."""
        for place in buffer.spilled:
            assert self._spill_file is not None  # it is there as long as a partition has spilled rows
            yield project(self._spill_file.read(place), self._nullable)
        if buffer.chunks:
            yield self._joined(buffer.chunks)

    # --- files out

    def close_cycle(self, cycle: int, partition: TopicPartition) -> list[StagedFile]:
        """Write the rows of a partition and forget them. Empty: there are none.

        The files belong to the caller from now on: `discard` leaves them alone.

        Raises:
            OSError, ConnectError: The storage refuses; rows are kept, and files already written are removed.
        """
        buffer = self._buffers.get(partition)
        if buffer is None:
            return []
        written: list[StagedFile] = []
        digits, connector = table_digits(self.description.uuid), self._config.connector
        name = StagedFileName(connector, self._epoch, digits, cycle, self._task, partition.partition)
        try:
            if self.description.mode is WriteMode.MERGE:
                written.extend(self._merge_files(buffer, name, partition))
            else:
                for piece in self._pieces(buffer):
                    written.extend(self._row_files(piece, name))
        except BaseException:  # `written` has the files before it
            self._unreported.update(file.path for file in written if file.path)
            self._remove_unreported()
            raise
        self._forget(partition)
        if self._latest is not None:
            self._last_order[partition], self._latest = self._latest, None
        return written

    def _remove_unreported(self) -> None:
        for uri in [*self._unreported]:
            self._output.remove(uri)
            self._unreported.remove(uri)

    def _row_files(self, rows: pa.Table, name: StagedFileName) -> Iterator[StagedFile]:
        schema = self._schema if rows.schema.get_field_index(ORDER) < 0 else self._ordered(self._schema)
        for values, part in self._partitioner.split(rows):
            for slice_ in self._by_size(part):
                yield self._write(StagedKind.ROWS, slice_, schema, name, values)

    def _by_size(self, rows: pa.Table) -> Iterator[pa.Table]:
        count = rows.num_rows
        limit = self._config.target_file_size_bytes or self._output.settings.file_bytes or TARGET_FILE_BYTES
        pieces = max(1, -(-rows.nbytes // limit))
        length = -(-count // pieces)
        for start in range(0, count, length):
            yield rows.slice(start, length)

    def _merge_files(
        self, buffer: _PartitionBuffer, name: StagedFileName, partition: TopicPartition
    ) -> Iterator[StagedFile]:  # fmt: skip
        pieces = list(self._pieces(buffer))
        if not pieces:
            return
        whole = pieces[0] if len(pieces) == 1 else pa.concat_tables(pieces)
        pairs: Sequence[pa.Table] = buffer.pairs
        if partition.topic == self._config.replay_topic:
            if not self._config.ordering_columns:
                yield from self._insert_files(whole, name)
                return
            whole, pairs = _in_own_order(whole, pairs)
            pieces = [whole]
        elif self._config.ordering_columns:
            silent = whole.column(ORDER).is_null()
            order = running_maximum(whole.column(ORDER), self._last_order.get(partition, ""))
            self._latest = order[-1].as_py()
            whole = whole.set_column(whole.schema.get_field_index(ORDER), _BUFFERED_ORDER, order)
            # A tombstone ahead of every event: the delete that it repeats was staged by an earlier life or attempt, and
            # without a place it would remove rows of other partitions that are later.
            repeats = pc.and_(silent, pc.equal(order, ""))
            if any_true(as_array(repeats)):
                log.warning(
                    "table %s: %d tombstones ahead of every change of %s have no place, and are left out; if they are "
                    "the only deletes, tell their place in a header",
                    self.description.name, pc.sum(repeats).as_py(), partition,
                    extra={"action": "tombstone_without_place", "table": self.description.name},
                )  # fmt: skip
                whole = whole.filter(pc.invert(repeats))
            pieces = [whole]
        truncated = pc.max(whole.column(OFFSET).filter(pc.equal(whole.column(CHANGE), Change.TRUNCATE))).as_py()
        if truncated is not None:
            yield self._truncate(whole, truncated)
            pieces = [piece.filter(pc.greater(piece.column(OFFSET), truncated)) for piece in pieces]
            whole = pa.concat_tables(pieces)
        last = last_per_key([whole.column(k) for k in self._keys], whole.column(OFFSET))
        yield from self._changes_file(whole, last, pairs, name)
        for piece in pieces:
            winners = None if last is None else pc.is_in(piece.column(OFFSET), value_set=last)
            deletes = pc.equal(piece.column(CHANGE), Change.DELETE)
            kept = pc.and_not(piece.column(UNAVAILABLE).is_null(), deletes)
            kept = kept if winners is None else pc.and_(winners, kept)
            deletes = deletes if winners is None else pc.and_(winners, deletes)
            if any_true(deletes):
                yield self._write_deletes(piece, deletes, name)
            if any_true(kept):
                yield from self._row_files(piece.select(self._ordered(self._schema).names).filter(kept), name)

    def _insert_files(self, whole: pa.Table, name: StagedFileName) -> Iterator[StagedFile]:
        """The last row of each key, for the coordinator to look whether the key is there."""
        rows = whole.filter(pc.equal(whole.column(CHANGE), Change.UPSERT))
        last = last_per_key([rows.column(k) for k in self._keys], rows.column(OFFSET))
        rows = rows if last is None else rows.filter(pc.is_in(rows.column(OFFSET), value_set=last))
        for slice_ in self._by_size(rows.select(self._schema.names)):
            yield self._write(StagedKind.INSERTS, slice_, self._schema, name, ())

    def _truncate(self, whole: pa.Table, offset: int) -> StagedFile:
        order = ""
        if self._config.ordering_columns:
            order = whole.column(ORDER)[pc.index(whole.column(OFFSET), offset).as_py()].as_py()
        kind, schema_id, spec_id = StagedKind.TRUNCATES, self.description.schema_id, self._partitioner.spec_id
        return StagedFile(kind, "", 0, 0, schema_id, spec_id, order=order)

    def _write_deletes(self, rows: pa.Table, deletes: pa.ChunkedArray, name: StagedFileName) -> StagedFile:
        schema = self._ordered(pa.schema([self._schema.field(k).with_nullable(False) for k in self._keys]))
        return self._write(StagedKind.DELETES, rows.select(schema.names).filter(deletes), schema, name, ())

    def _ordered(self, schema: pa.Schema) -> pa.Schema:
        """With the column that orders rows of several partitions, if there is one."""
        return schema.append(self._order_field) if self._config.ordering_columns else schema

    def _changes_file(
        self, whole: pa.Table, last: pa.Array | None, pairs: Sequence[pa.Table], name: StagedFileName
    ) -> Iterator[StagedFile]:
        """The changes by which the coordinator completes rows, if there are any."""
        ordered = bool(self._config.ordering_columns)
        if not ordered and not pairs and whole.column(UNAVAILABLE).null_count == whole.num_rows:
            return
        changed = pa.concat_tables(pairs) if pairs else _PAIRS.empty_table()
        winners = None if last is None else as_array(pc.is_in(whole.column(OFFSET), value_set=last))
        places = as_array(changed.column(OFFSET))
        wanted = changes_to_stage(whole, self._keys, winners, places, all_earlier=ordered)
        if wanted is None:
            return
        rows = whole.filter(wanted)
        partial = pc.and_not(rows.column(UNAVAILABLE).is_valid(), pc.equal(rows.column(CHANGE), Change.DELETE))
        if winners is not None:
            partial = pc.and_(partial, winners.filter(wanted))
        if not ordered and not pairs and not any_true(as_array(partial)):
            return
        rows = rows.set_column(rows.schema.get_field_index(CHANGE), CHANGE, rows.column(CHANGE).cast(pa.int32()))
        rows = rows.append_column(PARTIAL, partial).append_column(OPTIONAL, self._only_marks(rows))
        at = as_array(pc.index_in(rows.column(OFFSET), value_set=places))
        rows = rows.append_column(PAIR, changed.column(PAIR).take(at)).append_column(
            HALF, changed.column(HALF).take(at)
        )
        file = self._write(
            StagedKind.CHANGES, rows, pa.schema([*self._ordered(self._nullable), *EXTRA_SCHEMA]), name, (),
            self._lacking(rows),
        )  # fmt: skip
        yield dataclasses.replace(file, pairs=at.null_count < len(at), partial=pc.sum(partial).as_py() or 0)

    def _lacking(self, rows: pa.Table) -> list[str]:
        """The columns that some of these rows lack."""
        texts = [text for text in pc.unique(rows.column(UNAVAILABLE)).to_pylist() if text is not None]
        ids = {part for text in texts for part in text.strip(SEPARATOR).split(SEPARATOR)}
        return [name for name in self._schema.names if self._field_id(name) in ids]

    def _field_id(self, name: str) -> str:
        found: bytes = self._schema.field(name).metadata[FIELD_ID]
        return found.decode()

    def _only_marks(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Which rows are deletes that only mark, and know nothing of their row."""
        if self._marked is None:
            return pa.repeat(pa.scalar(False), rows.num_rows)
        unavailable = rows.column(UNAVAILABLE)
        knows_nothing = pc.equal(pc.count_substring(unavailable.fill_null(""), SEPARATOR), len(self._unmarked) + 1)
        return pc.and_(knows_nothing, rows.column(self._marked).cast(pa.bool_()).fill_null(False))

    def _write(
        self,
        kind: StagedKind,
        rows: pa.Table,
        schema: pa.Schema,
        name: StagedFileName,
        partition: Sequence[str | None],
        unavailable: Sequence[str] = (),
    ) -> StagedFile:
        columns = [with_hidden_values(rows.column(f.name), f.type) for f in schema]
        exact = pa.Table.from_arrays(columns, schema=schema)
        uri, size = self._output.write(name.encode(), exact)
        return StagedFile(
            kind, uri, rows.num_rows, size, self.description.schema_id, self._partitioner.spec_id, tuple(partition),
            tuple(unavailable),
        )  # fmt: skip

    # --- the way back

    def partitions(self) -> list[TopicPartition]:
        """The Kafka partitions of which rows are held."""
        return list(self._buffers)

    def drop_partition(self, partition: TopicPartition) -> None:
        """Forget the rows of a partition: it was lost, or is read again."""
        self._read_pairs.pop(partition, None)
        self._last_deletes.pop(partition, None)
        self._forget(partition)

    def _forget(self, partition: TopicPartition) -> None:
        self._last_order.pop(partition, None)
        buffer = self._buffers.pop(partition, None)
        if buffer is None:
            return
        self._free(buffer)
        self._budget.spilled -= buffer.spilled_bytes
        if self._spill_file is not None and not any(other.spilled for other in self._buffers.values()):
            self._spill_file.close()
            self._spill_file = None

    def discard(self) -> None:
        """Forget everything, and remove files that were not reported. The stager may be used again."""
        for partition in [*self._buffers, *self._read_pairs]:
            self.drop_partition(partition)
        self._remove_unreported()


def _in_own_order(whole: pa.Table, pairs: Sequence[pa.Table]) -> tuple[pa.Table, list[pa.Table]]:
    """Changes tried again, in the order of their source and numbered anew: offsets only tell who replayed them when.

    Rows without an order are tombstones that repeat a delete, and are left out. At one place a delete comes first.
    """
    rows = whole.filter(whole.column(ORDER).is_valid())
    ranked = rows.append_column("upserts", pc.equal(rows.column(CHANGE), Change.UPSERT))
    by = [(ORDER, "ascending"), ("upserts", "ascending"), (OFFSET, "ascending")]
    rows = rows.take(pc.sort_indices(ranked, sort_keys=by))
    offsets = as_array(rows.column(OFFSET))
    rows = rows.set_column(rows.schema.get_field_index(OFFSET), _EXTRA[0], pa.array(range(len(offsets)), pa.int64()))
    made = []
    for changed in pairs:
        places = pc.index_in(changed.column(OFFSET), value_set=offsets).cast(pa.int64())
        kept = changed.set_column(changed.schema.get_field_index(OFFSET), OFFSET, places)
        made.append(kept.filter(kept.column(OFFSET).is_valid()))
    return rows, made


def pairs_of(changed: pa.Table, half: Half) -> list[str]:
    """Of changes of keys, as `StagedRows` has them, the pairs of which this half is there."""
    found: list[str] = changed.column(PAIR).filter(pc.equal(changed.column(HALF), int(half))).to_pylist()
    return found


def _by_partition(topic: str, rows: pa.Table, partitions: pa.Int32Array) -> dict[TopicPartition, pa.Table]:
    """The rows of each partition. Messages come in pieces of one partition, and these need not be copied."""
    numbers = pc.unique(partitions).to_pylist()
    if len(numbers) == 1:
        return {TopicPartition(topic, numbers[0]): rows}
    cuts = pc.indices_nonzero(pc.not_equal(partitions.slice(1), partitions.slice(0, max(0, len(rows) - 1)))).to_pylist()
    if (len(cuts) + 1) * _LEAST_ROWS_OF_A_PIECE > len(rows):
        return {TopicPartition(topic, number): rows.filter(pc.equal(partitions, number)) for number in numbers}
    pieces: dict[TopicPartition, list[pa.Table]] = {}
    starts = [0, *(cut + 1 for cut in cuts)]
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        partition = TopicPartition(topic, partitions[start].as_py())
        pieces.setdefault(partition, []).append(rows.slice(start, end - start))
    return {partition: pa.concat_tables(found) for partition, found in pieces.items()}


_EXTRA = (pa.field(OFFSET, pa.int64()), pa.field(CHANGE, pa.int8()), pa.field(UNAVAILABLE, pa.string()))
_PAIRS = pa.schema([(OFFSET, pa.int64()), (PAIR, pa.string()), (HALF, pa.int32()), (_KEYS, pa.string())])
_BUFFERED_ORDER = pa.field(ORDER, pa.string())

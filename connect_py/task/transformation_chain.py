"""`TransformationChain`: applies transformations to columns where possible, otherwise to rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connect_py.api.batch import Batch, Column
from connect_py.api.errors import BadRows, NotColumnar, RetriableError
from connect_py.api.predicate import Predicate
from connect_py.api.record import NO_HEADERS, Headers, R, SinkRecord
from connect_py.api.transformation import Transformation
from connect_py.error_handling.error_handler import ErrorHandler, Skipped
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.task.rows_of_batch import RowsOfBatch

Delivery: TypeAlias = Batch | list[SinkRecord]  # a batch of columns, or rows

# minimum number of consecutive links with a batch form that justifies converting rows to columns
LINKS_THAT_PAY: Final = 2
# maximum number of calls with parts of a batch; with more calls, processing row by row costs less
MAX_HALVINGS: Final = 100
# shift that combines a partition below 2^16 and an offset below 2^47 into one integer sort key
PARTITION_SHIFT: Final = 47

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A transformation in the chain, with its optional predicate."""

    transformation: Transformation[Any]
    class_name: str  # as configured
    predicate: Predicate[Any] | None = None
    negate: bool = False


class TransformationChain:
    """Applies the transformations of one task in order. Used on the task's thread.

    A link processes a batch as rows if its transformation has no batch form (`apply_batch`) or
    raises `NotColumnar`. The resulting rows are converted back to columns if the columns represent
    them exactly and reduce the cost. `_columns` and `_through_rows` make these decisions.
    """

    def __init__(
        self, links: Sequence[ChainLink], errors: ErrorHandler, *, sink_takes_columns: bool = False
    ) -> None:
        self._links = tuple(links)
        self._errors = errors
        self._sink_takes_columns = sink_takes_columns
        self._warned: set[tuple[int, str]] = set()  # link index and message

    @property
    def links(self) -> Sequence[ChainLink]:
        """Return the transformations in order."""
        return self._links

    def process(self, batch: Batch) -> list[Delivery]:
        """Apply all transformations to a batch and return the results in order.

        Failed rows are reported and not returned.

        Raises:
            ToleranceExceededError: The failure of a row is not tolerated.
        """
        if not self._links:
            return [batch]
        results: list[Delivery] = []
        self._from(0, batch, results)
        return results

    def _from(self, start: int, batch: Batch, results: list[Delivery]) -> None:
        for index in range(start, len(self._links)):
            parts = self._columns(index, batch)
            if parts is None:
                self._through_rows(index, batch, results)
                return
            if len(parts) != 1:
                for part in parts:
                    self._from(index + 1, part, results)
                return
            batch = parts[0]
        results.append(batch)

    def _through_rows(self, start: int, batch: Batch, results: list[Delivery]) -> None:
        """Apply a link, and the links after it that have no batch form, to rows.

        The remaining links process columns if this reduces the cost.
        """
        stop = start + 1
        while stop < len(self._links) and not _has_batch_form(self._links[stop]):
            stop += 1
        if not self._columns_pay(stop):
            records = self._rows_through(start, len(self._links), batch.records())
            if records:
                results.append(records)
            return
        rows = RowsOfBatch(batch)
        try:
            records = self._rows_through(start, stop, rows.records)
            batches = self._to_columns(start, stop, rows, records)
            if batches is not None:
                records = []
        finally:
            rows.release()
        if batches is None:
            records = self._rows_through(stop, len(self._links), records)
            if records:
                results.append(records)
            return
        for converted in batches:
            self._from(stop, converted, results)

    def _to_columns(
        self, start: int, stop: int, rows: RowsOfBatch, records: Sequence[SinkRecord]
    ) -> list[Batch] | None:
        """Return the results of the links [start, stop) as columns, or None to keep the rows."""
        try:
            return rows.batches(records)
        except Exception:  # noqa: BLE001 - plugins may put anything into a record; the next link reports the error
            names = ", ".join(link.class_name for link in self._links[start:stop])
            self._warn_once(
                start, f"keeping records as rows after {names}: failed to convert them to columns"
            )
        return None

    def _warn_once(self, index: int, message: str) -> None:
        """Log a warning about a link, with the current exception, only once."""
        if (index, message) not in self._warned:
            self._warned.add((index, message))
            log.warning("%s", message, exc_info=True)

    def _columns_pay(self, start: int) -> bool:
        """Return True if converting rows to columns for the links from `start` reduces the cost."""
        stop = start
        while stop < len(self._links) and _has_batch_form(self._links[stop]):
            stop += 1
        if stop == len(self._links) and self._sink_takes_columns:
            return True  # otherwise, the sink would convert them
        return stop - start >= LINKS_THAT_PAY

    def _columns(self, index: int, batch: Batch) -> list[Batch] | None:
        """Apply one link to columns. Return None if it must process rows."""
        link = self._links[index]
        while True:
            try:
                return self._apply_batch(link, batch)
            except (NotColumnar, RetriableError):  # rows are retried one by one, as configured
                return None
            except BadRows as bad:
                if any(isinstance(error, RetriableError) for error in bad.errors.values()):
                    return None
                report_rows(self._errors, Stage.TRANSFORMATION, link.class_name, batch, bad)
                if bad.results is not None:
                    return list(bad.results)
                remaining = _without(batch, bad)
                if remaining is None:
                    return []
                batch = remaining
            except Exception:  # noqa: BLE001 - bisection identifies the failing rows
                bad_rows = self._bad_rows(link, batch)
                if bad_rows is None:
                    self._warn_once(
                        index, f"{link.class_name} failed on a batch; processing row by row"
                    )
                    return None
                report_rows(self._errors, Stage.TRANSFORMATION, link.class_name, batch, bad_rows)
                remaining = _without(batch, bad_rows)
                if remaining is None:
                    return []
                batch = remaining

    def _bad_rows(self, link: ChainLink, batch: Batch) -> BadRows | None:
        """Find, by bisection, the rows that make a batch fail.

        Return None if there are too many such rows, or if one of them succeeds when it is
        transformed as a single record.
        """
        ranges = list(_halves(0, len(batch)))
        errors: dict[int, Exception] = {}
        for _ in range(MAX_HALVINGS):
            if not ranges:
                return BadRows(errors) if errors else None
            start, stop = ranges.pop()
            part = batch.slice(start, stop)
            try:
                self._apply_batch(link, part)
            except NotColumnar:
                return None
            except BadRows:  # raised again after the rows in `errors` are removed
                continue
            except Exception:  # noqa: BLE001 - apply_link determines the error of a single row
                if stop - start > 1:
                    ranges += _halves(start, stop)
                    continue
                try:
                    apply_link(link, part.records()[0])
                except RetriableError:
                    return None
                except Exception as error:  # noqa: BLE001 - any plugin error is a failure of this record
                    errors[start] = error
                else:
                    return None
        return None

    def _apply_batch(self, link: ChainLink, batch: Batch) -> list[Batch]:
        if link.predicate is None:
            return list(link.transformation.apply_batch(batch))
        result = link.predicate.test_batch(batch)
        if isinstance(result, bool):
            return (
                list(link.transformation.apply_batch(batch)) if result != link.negate else [batch]
            )
        mask = pc.invert(result) if link.negate else result
        matching = mask.true_count
        if matching == 0:
            return [batch]
        if matching == len(batch):
            return list(link.transformation.apply_batch(batch))
        try:
            changed = link.transformation.apply_batch(batch.where(mask))
        except BadRows as bad:
            row_numbers = pc.indices_nonzero(mask).to_pylist()
            errors = {row_numbers[row]: error for row, error in bad.errors.items()}
            results = (
                None
                if bad.results is None
                else in_order(batch, [*bad.results, batch.where(pc.invert(mask))])
            )
            raise BadRows(errors, results) from bad
        return in_order(batch, [*changed, batch.where(pc.invert(mask))])

    def process_rows(self, records: Sequence[SinkRecord]) -> list[SinkRecord]:
        """Apply all transformations row by row. Raises the same errors as `process`."""
        return self._rows_through(0, len(self._links), records)

    def _rows_through(
        self, start: int, stop: int, records: Sequence[SinkRecord]
    ) -> list[SinkRecord]:
        """Apply the links [start, stop) to each record."""
        results = []
        steps = [(link, _step(link)) for link in self._links[start:stop]]
        for record in records:
            current: SinkRecord | Skipped | None = record
            for link, step in steps:
                try:
                    current = step(record)
                except Exception as error:  # noqa: BLE001 - any plugin error is a failure of this record
                    current = self._recover(link, record, error)
                if current is None or isinstance(current, Skipped):
                    break
                record = current
            else:
                results.append(record)
        return results

    def _recover(
        self, link: ChainLink, record: SinkRecord, error: Exception
    ) -> SinkRecord | Skipped | None:
        def failed(last: Exception) -> FailedRecord:
            return FailedRecord(
                Stage.TRANSFORMATION,
                link.class_name,
                last,
                record.origin,
                record.timestamp,
                record.timestamp_type,
            )

        again: Callable[[], SinkRecord | None] = lambda: apply_link(link, record)  # noqa: E731 - typed on one line
        return self._errors.recover(Stage.TRANSFORMATION, link.class_name, error, failed, again)

    def close(self) -> None:
        """Close every transformation and predicate, then raise the first error."""
        first: Exception | None = None
        for link in self._links:
            for plugin in (link.transformation, link.predicate):
                try:
                    if plugin is not None:
                        plugin.close()
                except Exception as error:  # noqa: BLE001 - the remaining plugins must be closed too
                    first = first or error
        if first is not None:
            raise first


def _halves(start: int, stop: int) -> Sequence[tuple[int, int]]:
    middle = (start + stop) // 2
    return [(start, middle), (middle, stop)] if middle > start else [(start, stop)]


def apply_link(link: ChainLink, record: R) -> R | None:
    """Apply one link to one record unless its predicate excludes it."""
    if link.predicate is not None and link.predicate.test(record) == link.negate:
        return record
    result: R | None = link.transformation.apply(record)
    return result


def _has_batch_form(link: ChainLink) -> bool:
    return type(link.transformation).apply_batch is not Transformation.apply_batch


def _step(link: ChainLink) -> Callable[[SinkRecord], SinkRecord | None]:
    """Return the function that applies a link to a record."""
    if link.predicate is None:
        step: Callable[[SinkRecord], SinkRecord | None] = link.transformation.apply
        return step
    return lambda record: apply_link(link, record)


def _without(batch: Batch, bad: BadRows) -> Batch | None:
    """Return the batch without the bad rows, or None if it is empty."""
    mask = pa.array([row not in bad.errors for row in range(len(batch))], pa.bool_())
    return batch.where(mask) if mask.true_count else None


def report_rows(
    errors: ErrorHandler, stage: Stage, class_name: str, batch: Batch, bad: BadRows
) -> None:
    """Report the bad rows of a batch in order. Raises the same errors as `ErrorHandler.report`."""
    for row in sorted(bad.errors):
        errors.counters.failures += 1
        origin = batch.origin.slice(row, row + 1).records()[0]
        timestamp = batch.timestamp[row].as_py()
        errors.report(
            FailedRecord(
                stage, class_name, bad.errors[row], origin, timestamp, batch.origin.timestamp_type
            )
        )


def in_order(parent: Batch, parts: Sequence[Batch]) -> list[Batch]:
    """Restore the order of a batch after its rows were split into parts.

    Parts of the same topic are merged into one batch if their schemas are equal. Otherwise, they
    are split to preserve the order of the rows. Parts of different topics remain separate because
    the order across topics is not preserved.

    Raises:
        NotColumnar: A row occurs twice or is not part of the batch, so its position is undefined.
    """
    by_topic: dict[str, list[Batch]] = {}
    for part in parts:
        by_topic.setdefault(part.topic, []).append(part)
    results: list[Batch] = []
    for group in by_topic.values():
        results.extend(group if len(group) == 1 else _ordered(parent, group))
    return results


def _ordered(parent: Batch, parts: Sequence[Batch]) -> list[Batch]:
    keys = pa.concat_arrays([_keys(part) for part in parts])
    positions = pc.index_in(keys, _keys(parent))
    mask = pc.is_in(
        pc.indices_nonzero(pa.repeat(True, len(parent))).cast(pa.int32()), value_set=positions
    )
    if mask.true_count != len(positions):
        raise NotColumnar("rows are not part of the batch")
    order = pc.sort_indices(positions)
    first = parts[0]
    if all(_alike(first.key, p.key) and _alike(first.value, p.value) for p in parts[1:]):
        return [
            Batch(
                first.topic,
                _gathered([p.key for p in parts], order),
                _gathered([p.value for p in parts], order),
                pa.concat_arrays([p.timestamp for p in parts]).take(order),
                _gathered_headers(parts, order),
                parent.origin.where(mask),
            )
        ]
    owners = [(number, row) for number, part in enumerate(parts) for row in range(len(part))]
    results: list[Batch] = []
    current, start, stop = -1, 0, 0
    for index in order.to_pylist():
        number, row = owners[index]
        if number == current and row == stop:
            stop += 1
            continue
        if current >= 0:
            results.append(parts[current].slice(start, stop))
        current, start, stop = number, row, row + 1
    results.append(parts[current].slice(start, stop))
    return results


def _keys(batch: Batch) -> pa.Int64Array:
    partitions = batch.origin.partitions.cast(pa.int64())
    return pc.add(
        pc.shift_left(partitions, pa.scalar(PARTITION_SHIFT, pa.int64())), batch.origin.offsets
    )


def _alike(left: Column, right: Column) -> bool:
    return (
        left.schema == right.schema
        and left.tombstone_schema == right.tombstone_schema
        and left.data.type == right.data.type
        and left.absent.keys() == right.absent.keys()
    )


def _gathered(columns: Sequence[Column], order: pa.Array) -> Column:
    first = columns[0]
    tombstone = None
    if any(c.tombstone is not None for c in columns):
        masks = [pa.repeat(False, len(c)) if c.tombstone is None else c.tombstone for c in columns]
        tombstone = pa.concat_arrays(masks).take(order)
    return Column(
        first.schema,
        pa.concat_arrays([c.data for c in columns]).take(order),
        tombstone,
        {
            path: pa.concat_arrays([c.absent[path] for c in columns]).take(order)
            for path in first.absent
        },
        first.tombstone_schema,
    )


def _gathered_headers(parts: Sequence[Batch], order: pa.Array) -> list[Headers] | None:
    if all(part.headers is None for part in parts):
        return None
    every: list[Headers] = []
    for part in parts:
        every.extend(part.headers if part.headers is not None else [NO_HEADERS] * len(part))
    return [every[index] for index in order.to_pylist()]

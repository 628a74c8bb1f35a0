"""`RecordPipeline`: converts consumed messages to records for a sink task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from connect_py.api.batch import Batch, Column, Origin
from connect_py.api.converter import ColumnRun, Converter, HeaderConverter
from connect_py.api.dead_letter import Replay, without_replay
from connect_py.api.errors import ConnectError, NotColumnar, RetriableError
from connect_py.api.message_run import MessageRun
from connect_py.api.record import (
    NO_HEADERS,
    Header,
    Headers,
    RawHeaders,
    RecordOrigin,
    SinkRecord,
)
from connect_py.error_handling.error_handler import ErrorHandler, Skipped
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.plurals import pluralize
from connect_py.task.transformation_chain import Delivery, TransformationChain

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Converters:
    """Key, value, and header converters of a task, with their configured names."""

    key: Converter
    value: Converter
    header: HeaderConverter
    key_name: str
    value_name: str
    header_name: str

    def close(self) -> None:
        """Close the converters."""
        for converter in (self.key, self.value, self.header):
            converter.close()


class RecordPipeline:
    """Converts and transforms messages on the task's thread.

    Messages are converted to columns if the key and value converters support this. Otherwise, they
    are processed row by row.
    """

    def __init__(
        self,
        converters: Converters,
        chain: TransformationChain,
        errors: ErrorHandler,
        replay_topic: str = "",
    ) -> None:
        """Create the pipeline.

        Records in `replay_topic` are dead-letter records. They are retried as if they came from
        their original topic.
        """
        self._replay_topic = replay_topic
        self._converters = converters
        self._chain = chain
        self._errors = errors
        self._warned: set[str] = set()

    def process(self, runs: Sequence[MessageRun]) -> list[Delivery]:
        """Return batches and lists of rows in the order of their messages.

        Failed records are reported and not returned.

        Raises:
            ToleranceExceededError: The failure of a record is not tolerated. No part of `runs` may
                be delivered.
        """
        results: list[Delivery] = []
        for run in runs:
            if run.topic == self._replay_topic:  # contains few records, but from many topics
                rows = self._chain.process_rows(self._to_records(run))
                if rows:
                    results.append(rows)
                continue
            try:
                batches = self._to_batches(run)
            # process row by row to retry each record as configured
            except (NotColumnar, RetriableError):
                rows = self._chain.process_rows(self._to_records(run))
                if rows:
                    results.append(rows)
            else:
                for batch in batches:
                    results.extend(self._chain.process(batch))
        return results

    def close(self) -> None:
        """Close the transformations and converters."""
        try:
            self._chain.close()
        finally:
            self._converters.close()

    def _to_batches(self, run: MessageRun) -> list[Batch]:
        c = self._converters
        raw_headers: list[RawHeaders] | None = None
        if run.headers is not None:
            raw_headers = [h or () for h in run.headers]
        keys = self._columns(c.key, c.key_name, run, run.keys, raw_headers)
        values = self._columns(c.value, c.value_name, run, run.values, raw_headers)
        bad = self._failed_rows(keys, values)
        headers = self._headers(run, bad)
        for row in sorted(bad):
            stage, name, error = bad[row]
            self._errors.counters.failures += 1
            self._errors.report(_failed(run, stage, name, row, error))
        origin = Origin(
            run.topic,
            run.partitions,
            run.offsets,
            run.timestamp_type,
            run.keys,
            run.values,
            run.headers,
        )
        whole = run.timestamps
        good = (
            None if not bad else pa.array([row not in bad for row in range(len(run))], pa.bool_())
        )
        batches = []
        for start, stop, key, value in _segments(keys, values):
            entire = stop - start == len(run)
            batch = Batch(
                run.topic,
                key,
                value,
                whole if entire else whole.slice(start, stop - start),
                headers if headers is None or entire else headers[start:stop],
                origin if entire else origin.slice(start, stop),
            )
            if good is not None:
                mask = good.slice(start, stop - start)
                if mask.true_count == 0:
                    continue
                if mask.true_count < len(mask):
                    batch = batch.where(mask)
            batches.append(batch)
        return batches

    def _columns(
        self,
        converter: Converter,
        name: str,
        run: MessageRun,
        data: Sequence[bytes | None],
        headers: Sequence[RawHeaders] | None,
    ) -> Sequence[ColumnRun]:
        try:
            runs = converter.to_batch(run.topic, data, headers)
        except (NotColumnar, RetriableError):
            raise
        except Exception as error:  # converting row by row identifies the failing record
            if name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "%s failed to convert a batch; converting row by row", name, exc_info=True
                )
            raise NotColumnar(name) from error
        if [r.start for r in runs] != [0, *(r.stop for r in runs[:-1])] or runs[-1].stop != len(
            data
        ):
            raise ConnectError(
                f"{name} returned the row ranges {[(r.start, r.stop) for r in runs]}, which do not "
                f"cover the {pluralize(len(data), 'message')} exactly"
            )
        return runs

    def _failed_rows(
        self, keys: Sequence[ColumnRun], values: Sequence[ColumnRun]
    ) -> dict[int, tuple[Stage, str, Exception]]:
        """Return the failure of each bad row, by row number.

        Only one failure per record is reported. If both converters fail, the key converter's
        failure takes precedence.

        Raises:
            RetriableError: A failure can be retried.
        """
        c = self._converters
        bad: dict[int, tuple[Stage, str, Exception]] = {}
        for run in values:
            bad |= {
                row: (Stage.VALUE_CONVERTER, c.value_name, error)
                for row, error in run.failures.items()
            }
        for run in keys:
            bad |= {
                row: (Stage.KEY_CONVERTER, c.key_name, error) for row, error in run.failures.items()
            }
        for _, _, error in bad.values():
            if isinstance(error, RetriableError):
                raise error
        return bad

    def _headers(
        self, run: MessageRun, bad: dict[int, tuple[Stage, str, Exception]]
    ) -> list[Headers] | None:
        if run.headers is None:
            return None
        headers = []
        for row, raw in enumerate(run.headers):
            converted = NO_HEADERS
            if raw and row not in bad:
                try:
                    converted = self._convert_headers(run.topic, raw)
                except RetriableError:
                    raise
                except Exception as error:  # noqa: BLE001 - any converter error is a failure of this record
                    bad[row] = (Stage.HEADER_CONVERTER, self._converters.header_name, error)
            headers.append(converted)
        return headers

    def _convert_headers(self, topic: str, raw: RawHeaders) -> Headers:
        convert = self._converters.header.to_connect_header
        converted = []
        for name, data in raw:
            schema, value = convert(topic, name, data)
            converted.append(Header(name, value, schema))
        return Headers(converted)

    def _to_records(self, run: MessageRun) -> list[SinkRecord]:
        rows = enumerate(zip(run.origins(), run.timestamps.to_pylist(), strict=True))
        records = (
            self._to_record(run, row, origin, timestamp) for row, (origin, timestamp) in rows
        )
        return [record for record in records if record is not None]

    def _to_record(
        self, run: MessageRun, row: int, origin: RecordOrigin, timestamp: int | None
    ) -> SinkRecord | None:
        c = self._converters
        topic, partition, raw = origin.topic, origin.partition, origin.headers
        replay = Replay.of(raw) if topic == self._replay_topic else None
        if replay is not None:
            topic, partition, raw = replay.topic, replay.partition, without_replay(raw)
            origin = origin._replace(shown_offset=replay.offset)
        key = self._one(
            run,
            row,
            Stage.KEY_CONVERTER,
            c.key_name,
            lambda: c.key.to_connect(topic, origin.key, raw),
        )
        if isinstance(key, Skipped):
            return None
        value = self._one(
            run,
            row,
            Stage.VALUE_CONVERTER,
            c.value_name,
            lambda: c.value.to_connect(topic, origin.value, raw),
        )
        if isinstance(value, Skipped):
            return None
        headers = NO_HEADERS
        if raw:
            converted = self._one(
                run,
                row,
                Stage.HEADER_CONVERTER,
                c.header_name,
                lambda: self._convert_headers(topic, raw),
            )
            if isinstance(converted, Skipped):
                return None
            headers = converted
        return SinkRecord(
            topic,
            partition,
            key.schema,
            key.value,
            value.schema,
            value.value,
            timestamp,
            headers,
            run.timestamp_type,
            origin,
        )

    def _one(
        self, run: MessageRun, row: int, stage: Stage, name: str, convert: Callable[[], T]
    ) -> T | Skipped:
        try:
            return convert()
        except Exception as error:  # noqa: BLE001 - any converter error is a failure of this record
            return self._errors.recover(
                stage, name, error, lambda last: _failed(run, stage, name, row, last), convert
            )


def _failed(
    run: MessageRun, stage: Stage, class_name: str, row: int, error: Exception
) -> FailedRecord:
    return FailedRecord(
        stage, class_name, error, run.origin(row), run.timestamps[row].as_py(), run.timestamp_type
    )


def _segments(
    keys: Sequence[ColumnRun], values: Sequence[ColumnRun]
) -> Iterator[tuple[int, int, Column, Column]]:
    """Yield the segments [start, stop) in which keys and values each have a single column."""
    k = v = start = 0
    while k < len(keys) and v < len(values):
        key, value = keys[k], values[v]
        stop = min(key.stop, value.stop)
        yield start, stop, _part(key, start, stop), _part(value, start, stop)
        k += key.stop == stop
        v += value.stop == stop
        start = stop


def _part(run: ColumnRun, start: int, stop: int) -> Column:
    if run.start == start and run.stop == stop:
        return run.column
    return run.column.slice(start - run.start, stop - run.start)

"""Fake clock, errant record reporter, and plugin metrics, and a function that creates records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from connect_py.api.batch import Batch
from connect_py.api.errors import ConnectError
from connect_py.api.record import (
    NO_HEADERS,
    Headers,
    RecordOrigin,
    SinkRecord,
    TimestampType,
)
from connect_py.api.schema import Schema, Value


class FakeClock:
    """A clock that advances only when code calls `sleep` or a test sets `now`."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self.now = 0.0  # seconds
        self.sleeps: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return self._start_ms + int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


@dataclass(slots=True)
class FakeErrantRecordReporter:
    """Collects reports. If `tolerate` is false, raises errors as with `errors.tolerance=none`."""

    tolerate: bool = True
    reports: list[tuple[RecordOrigin, Exception]] = field(default_factory=list)

    def report(self, record: SinkRecord, error: Exception) -> None:
        self._take(record.origin, error)

    def report_row(self, batch: Batch, row: int, error: Exception) -> None:
        self._take(batch.origin.slice(row, row + 1).records()[0], error)

    def _take(self, origin: RecordOrigin, error: Exception) -> None:
        self.reports.append((origin, error))
        if not self.tolerate:
            raise ConnectError("Tolerance exceeded in error handler") from error


@dataclass(slots=True)
class FakeMeasurement:
    """A `Gauge` and `Counter` whose value tests can read."""

    value: float = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def increment(self, by: float = 1) -> None:
        self.value += by


@dataclass(slots=True)
class FakePluginMetrics:
    """Implements `PluginMetrics`. Measurements are stored by name and labels."""

    measurements: dict[tuple[str, tuple[tuple[str, str], ...]], FakeMeasurement] = field(
        default_factory=dict
    )

    def gauge(
        self, name: str, doc: str, labels: Mapping[str, str] | None = None
    ) -> FakeMeasurement:
        return self.measurements.setdefault(
            (name, tuple(sorted((labels or {}).items()))), FakeMeasurement()
        )

    def counter(
        self, name: str, doc: str, labels: Mapping[str, str] | None = None
    ) -> FakeMeasurement:
        return self.gauge(name, doc, labels)


def sink_record(
    topic: str = "topic",
    *,
    value: Value = None,
    value_schema: Schema | None = None,
    key: Value = None,
    key_schema: Schema | None = None,
    partition: int = 0,
    offset: int = 0,
    timestamp: int | None = None,
    headers: Headers = NO_HEADERS,
) -> SinkRecord:
    """Return a record as if it had been consumed from this position, without raw bytes."""
    return SinkRecord(
        topic,
        partition,
        key_schema,
        key,
        value_schema,
        value,
        timestamp,
        headers,
        TimestampType.CREATE_TIME,
        RecordOrigin(topic, partition, offset),
    )

"""For tests of plugins: fakes that answer from plain data and write down what they were asked to do, and a check
that both forms of a transformation agree.

context = FakeSinkTaskContext(topics={"orders": 2})
task.initialize(context)
task.start({"file": "x"})
task.open(context.assign(TopicPartition("orders", 0)))
task.put([sink_record("orders", value="a", offset=0)])
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from connect_py.api.batch import Batch
from connect_py.api.cluster import ClientKind
from connect_py.api.errors import BadRows, ConnectError, NotColumnar, NotFoundError, RetriableError
from connect_py.api.record import (
    NO_HEADERS,
    Headers,
    OffsetAndMetadata,
    RecordOrigin,
    SinkRecord,
    SourceRecord,
    TimestampType,
    TopicPartition,
)
from connect_py.api.schema import Schema, Value
from connect_py.api.service import EXIT_FAILED, WAIT_SECONDS, ServiceAddress, SharedService
from connect_py.api.transformation import Transformation


class FakeClock:
    """A clock that moves when code sleeps on it or a test says so."""

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
    """Keeps reports; with `tolerate` off it refuses them, as a worker does under `errors.tolerance=none`."""

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
    """A `Gauge` and a `Counter`."""

    value: float = 0.0

    def set(self, value: float) -> None:
        self.value = value

    def increment(self, by: float = 1) -> None:
        self.value += by


@dataclass(slots=True)
class FakePluginMetrics:
    """`PluginMetrics` in a dictionary, by name and labels."""

    made: dict[tuple[str, tuple[tuple[str, str], ...]], FakeMeasurement] = field(default_factory=dict)

    def gauge(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> FakeMeasurement:
        return self.made.setdefault((name, tuple(sorted((labels or {}).items()))), FakeMeasurement())

    def counter(self, name: str, doc: str, labels: Mapping[str, str] | None = None) -> FakeMeasurement:
        return self.gauge(name, doc, labels)


_GRACE_SECONDS: Final = 5.0


class _FakeServiceProcess:
    """One service, run as a child of the test; started again as soon as a task asks for it after its death."""

    def __init__(self, service: SharedService, folder: Path, generations: Iterable[int]) -> None:
        self.users: set[FakeSharedServices] = set()
        self.failed: str | None = None
        self._service = service
        self._folder = folder
        self._generations = iter(generations)
        self._process: subprocess.Popen[bytes] | None = None
        self._address: ServiceAddress | None = None
        self._reader: threading.Thread | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        """Start the program unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        generation = next(self._generations)
        address = ServiceAddress(str(self._folder / f"{generation}.socket"), secrets.token_hex(16), generation)
        self.failed, self._address, self._ready = None, address, threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", self._service.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        first = {"socket": address.socket, "secret": address.secret, "settings": self._service.settings}
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it ended at once
            self._process.stdin.write(json.dumps(first).encode() + b"\n")
            self._process.stdin.flush()
        self._reader = threading.Thread(target=self._read, args=(self._process, self._ready), daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[bytes], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = json.loads(line)
            if "failed" in said and process.wait() == EXIT_FAILED:
                self.failed = said["failed"]
            if said.get("ready"):
                ready.set()
        process.wait()
        ready.set()

    def address(self, broken: int | None, timeout_seconds: float) -> ServiceAddress:
        """The address, once the program listens; errors as of `shared_service`."""
        if self._process is not None and self._address is not None and self._address.generation == broken:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if self.failed is None:
            self.start()
        ready, process, address = self._ready, self._process, self._address
        assert process is not None
        assert address is not None
        in_time = ready.wait(timeout_seconds)
        if (failed := self.failed) is not None:
            self.failed = None
            raise ConnectError(failed)
        if not in_time or process.poll() is not None:
            raise RetriableError(f"service {self._service.name} was not ready")
        return address

    def stop(self) -> None:
        """End the program."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(_GRACE_SECONDS)
        process.stdout.close()


class FakeSharedServices:
    """`SharedServices` for one user: programs run as children of the test, or `addresses` are handed out by name.

    Use it in a `with` block, or call `close`: programs that still run end with it. `user` makes another user of the
    same programs. `requested` has the services that were asked for, in order.
    """

    def __init__(
        self, addresses: Mapping[str, ServiceAddress] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        """`settings` are the worker's properties."""
        self.addresses = dict(addresses or {})
        self.settings = dict(settings or {})
        self.requested: list[SharedService] = []
        self._lock = threading.RLock()
        self._generations = itertools.count(1)
        self._folder: Path | None = None
        self._running: dict[str, _FakeServiceProcess] = {}
        self._first = self

    def user(self) -> FakeSharedServices:
        """Another task or connector of the same worker; `release_all` is its end."""
        other = FakeSharedServices(self.addresses, self.settings)
        other._first = self._first
        return other

    def shared_service(
        self, service: SharedService, *, broken: int | None = None, timeout_seconds: float = WAIT_SECONDS
    ) -> ServiceAddress:
        """See `SharedServices`."""
        self.requested.append(service)
        if service.name in self.addresses:
            return self.addresses[service.name]
        try:
            return self._used(service).address(broken, timeout_seconds)
        except RetriableError:
            raise
        except ConnectError:
            self.release_shared_service(service)
            raise

    def request_shared_service(self, service: SharedService) -> None:
        """See `SharedServices`."""
        self.requested.append(service)
        if service.name not in self.addresses:
            self._used(service).start()

    def release_shared_service(self, service: SharedService) -> None:
        """See `SharedServices`."""
        with self._first._lock:
            self._leave(self._key(service))

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        """See `SharedServices`."""
        return {key: value for key, value in self.settings.items() if key.startswith(prefix)}

    def release_all(self) -> None:
        """Use no service any more, as a task does that ends."""
        with self._first._lock:
            for key in list(self._first._running):
                self._leave(key)

    def close(self) -> None:
        """End all programs, also those in use."""
        first = self._first
        with first._lock:
            for running in first._running.values():
                running.stop()
            first._running.clear()
            if first._folder is not None:
                shutil.rmtree(first._folder, ignore_errors=True)
                first._folder = None

    def __enter__(self) -> FakeSharedServices:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _key(service: SharedService) -> str:
        return json.dumps([service.name, service.program, sorted(service.settings.items())])

    def _used(self, service: SharedService) -> _FakeServiceProcess:
        first = self._first
        with first._lock:
            if first._folder is None:
                first._folder = Path(tempfile.mkdtemp(prefix=f"connect-py-fake-{os.getpid()}-"))
            running = first._running.get(self._key(service))
            if running is None:
                running = _FakeServiceProcess(service, first._folder, first._generations)
                first._running[self._key(service)] = running
            running.users.add(self)
            return running

    def _leave(self, key: str) -> None:
        running = self._first._running.get(key)
        if running is None:
            return
        running.users.discard(self)
        if not running.users:
            del self._first._running[key]
            running.stop()


class _FakeServices:
    """The members of a context that ask for services."""

    services: FakeSharedServices

    def shared_service(
        self, service: SharedService, *, broken: int | None = None, timeout_seconds: float = WAIT_SECONDS
    ) -> ServiceAddress:
        return self.services.shared_service(service, broken=broken, timeout_seconds=timeout_seconds)

    def request_shared_service(self, service: SharedService) -> None:
        self.services.request_shared_service(service)

    def release_shared_service(self, service: SharedService) -> None:
        self.services.release_shared_service(service)

    def worker_settings(self, prefix: str) -> Mapping[str, str]:
        return self.services.worker_settings(prefix)


class FakeWaiting:
    """What a task or a connector waits for now: `waiting_for` has the reasons. Part of the contexts."""

    def __init__(self) -> None:
        self.waiting_for: dict[str, str] = {}
        self.waiting_limit: tuple[int, str] | None = None  # ms, and the configuration key that says so

    def waits(self, what: str, reason: str | None) -> None:
        if reason is None:
            self.waiting_for.pop(what, None)
        else:
            self.waiting_for[what] = reason

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        self.waiting_limit = None if milliseconds is None else (milliseconds, key)


class FakeSinkTaskContext(_FakeServices, FakeWaiting):
    """A `SinkTaskContext` over a cluster of plain data; tests change its members at will."""

    def __init__(
        self,
        *,
        connector: str = "connector",
        task: int = 0,
        topics: Mapping[str, int] | None = None,
        configs: Mapping[str, str] | None = None,
        cluster_id: str = "cluster",
        start_number: int = 1,
        group_id: str | None = None,
        reporter: FakeErrantRecordReporter | None = None,
        services: FakeSharedServices | None = None,
    ) -> None:
        """`topics` gives each topic's number of partitions; `services` may be a user of others' services."""
        FakeWaiting.__init__(self)
        self.services = services or FakeSharedServices()
        self.connector = connector
        self.task = task
        self.cluster_id = cluster_id
        self.start_number = start_number
        self.group_id = group_id or f"connect-{connector}"
        self.errant_record_reporter = reporter
        self.partition_counts = dict(topics or {})
        self.topic_ids = {topic: f"id-of-{topic}" for topic in self.partition_counts}
        self.group_offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        self.log_ranges: dict[TopicPartition, tuple[int, int]] = {}
        self.open_transactions: dict[TopicPartition, int] = {}  # where the first one begins
        self.client_settings: dict[str, object] = {"bootstrap.servers": "localhost:9092"}
        self.away = False  # the cluster does not answer
        self.seeks: list[dict[TopicPartition, int]] = []
        self.paused: set[TopicPartition] = set()
        self.timeouts: list[int] = []
        self.commits_requested = 0
        self.metrics = FakePluginMetrics()
        self._configs = dict(configs or {})
        self._assigned: set[TopicPartition] = set()

    def assign(self, *partitions: TopicPartition) -> list[TopicPartition]:
        """Give partitions to the task; returns them, for `open`."""
        self._assigned |= set(partitions)
        return list(partitions)

    def revoke(self, *partitions: TopicPartition) -> list[TopicPartition]:
        """Take partitions away; returns them, for `close`."""
        self._assigned -= set(partitions)
        return list(partitions)

    def configs(self) -> Mapping[str, str]:
        return dict(self._configs)

    def client_config(self, kind: ClientKind) -> dict[str, object]:
        return dict(self.client_settings)

    def _ask(self) -> None:
        if self.away:
            raise RetriableError("the cluster does not answer")

    def topic_id(self, topic: str) -> str:
        self._ask()
        if topic not in self.topic_ids:
            raise NotFoundError(f"topic {topic!r} does not exist")
        return self.topic_ids[topic]

    def partition_count(self, topic: str) -> int:
        self._ask()
        if topic not in self.partition_counts:
            raise NotFoundError(f"topic {topic!r} does not exist")
        return self.partition_counts[topic]

    def topics(self) -> Sequence[str]:
        self._ask()
        return sorted(self.partition_counts)

    def committed(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._ask()
        return {tp: self.group_offsets[tp] for tp in partitions if tp in self.group_offsets}

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        self._ask()
        ranges = {tp: self.log_ranges.get(tp, (0, 0)) for tp in partitions}
        if committed:
            ranges = {tp: (first, self.open_transactions.get(tp, end)) for tp, (first, end) in ranges.items()}
        return ranges

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._assigned)

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.seeks.append(dict(offsets))

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused |= self._owned(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self.paused -= self._owned(partitions)

    def _owned(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        foreign = set(partitions) - self._assigned
        if foreign:
            raise ConnectError(f"the task does not own {', '.join(map(str, sorted(foreign)))}")
        return set(partitions)

    def timeout(self, timeout_ms: int) -> None:
        self.timeouts.append(timeout_ms)

    def request_commit(self) -> None:
        self.commits_requested += 1


class FakeOffsetStorageReader:
    """Offsets by source partition, set by a test."""

    def __init__(self) -> None:
        self._stored: list[tuple[Mapping[str, Value], Mapping[str, Value]]] = []

    def store(self, partition: Mapping[str, Value], offset: Mapping[str, Value]) -> None:
        """Make this the offset of a source partition."""
        self._stored = [pair for pair in self._stored if pair[0] != partition]
        self._stored.append((dict(partition), dict(offset)))

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        return next((offset for stored, offset in self._stored if stored == partition), None)

    def offsets(self, partitions: Iterable[Mapping[str, Value]]) -> Sequence[Mapping[str, Value] | None]:
        return [self.offset(partition) for partition in partitions]


@dataclass(slots=True)
class FakeTransactionContext:
    """A `TransactionContext` that writes down what was asked for; None stands for the end of a batch."""

    committed: list[SourceRecord | None] = field(default_factory=list)
    aborted: list[SourceRecord | None] = field(default_factory=list)

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self.committed.append(record)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self.aborted.append(record)


@dataclass
class FakeSourceTaskContext(_FakeServices, FakeWaiting):
    """A `SourceTaskContext`."""

    connector: str = "connector"
    task: int = 0
    offset_storage_reader: FakeOffsetStorageReader = field(default_factory=FakeOffsetStorageReader)
    transaction_context: FakeTransactionContext | None = None
    metrics: FakePluginMetrics = field(default_factory=FakePluginMetrics)
    props: Mapping[str, str] = field(default_factory=dict)
    services: FakeSharedServices = field(default_factory=FakeSharedServices)

    def __post_init__(self) -> None:
        FakeWaiting.__init__(self)

    def configs(self) -> Mapping[str, str]:
        return dict(self.props)


@dataclass
class FakeConnectorContext(FakeWaiting):
    """A `ConnectorContext` that counts requests and keeps errors."""

    connector: str = "connector"
    reconfigurations: int = 0
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        FakeWaiting.__init__(self)

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1

    def raise_error(self, error: Exception) -> None:
        self.errors.append(error)


def check_batch_form(transformation: Transformation[SinkRecord], records: Sequence[SinkRecord]) -> int:
    """Compare the two forms of a transformation on the same records.

    A record that makes `apply` raise must be named by `BadRows` of `apply_batch`, as the worker asks: again, without
    the rows that are named, or along with what becomes of the others. Records of one partition have rising offsets.

    Returns:
        How many of the records had a batch form, and were compared.

    Raises:
        AssertionError: The forms differ.
    """
    return sum(_check_batch(transformation, batch) for batch in Batch.of(records))


def _check_batch(transformation: Transformation[SinkRecord], batch: Batch) -> int:
    expected: dict[int, SinkRecord | None] = {}
    bad: dict[int, Exception] = {}
    for index, record in enumerate(batch.records()):
        try:
            expected[index] = transformation.apply(record)
        except Exception as error:  # noqa: BLE001 - whatever it raises is this record's failure
            bad[index] = error
    made: Sequence[Batch] = ()
    named: set[int] = set()
    done = True
    try:
        made = transformation.apply_batch(batch)
    except NotColumnar:
        return 0
    except BadRows as error:
        named = set(error.errors)
        done = error.made is not None
        made = error.made or ()
    assert named == bad.keys(), f"bad rows: {sorted(named)} in columns, {sorted(bad)} in rows"
    if not done:
        return len(bad) + _check_good_rows(transformation, batch, expected.keys())
    place = {(r.origin.partition, r.origin.offset): r for each in made for r in each.records()}
    kept = {(r.origin.partition, r.origin.offset): r for r in expected.values() if r is not None}
    assert place == kept, f"columns give {place}, rows give {kept}"
    return len(batch)


def _check_good_rows(transformation: Transformation[SinkRecord], batch: Batch, good: Collection[int]) -> int:
    if not good:
        return 0
    import pyarrow as pa

    return _check_batch(transformation, batch.where(pa.array([row in good for row in range(len(batch))], pa.bool_())))


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
    """A record as if consumed from there; its raw bytes are unknown."""
    return SinkRecord(
        topic, partition, key_schema, key, value_schema, value, timestamp, headers, TimestampType.CREATE_TIME,
        RecordOrigin(topic, partition, offset),
    )  # fmt: skip

"""Fake contexts for tasks and connectors, backed by plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from connect_py.api.cluster import ClientKind
from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.api.record import (
    OffsetAndMetadata,
    SourceRecord,
    TopicPartition,
)
from connect_py.api.schema import Value
from connect_py.testing.fakes import FakeErrantRecordReporter, FakePluginMetrics
from connect_py.testing.services import FakeSharedServices, ServicesOfContext


class FakeWaiting:
    """Base class for the fake contexts. Records the reported waits and warnings."""

    def __init__(self) -> None:
        self.waiting_for: dict[str, str] = {}
        self.warnings: dict[str, str] = {}
        # limit in milliseconds, and the configuration key that sets it
        self.waiting_limit: tuple[int, str] | None = None

    def waits(self, subject: str, reason: str | None) -> None:
        if reason is None:
            self.waiting_for.pop(subject, None)
        else:
            self.waiting_for[subject] = reason

    def warns(self, subject: str, warning: str | None) -> None:
        if warning is None:
            self.warnings.pop(subject, None)
        else:
            self.warnings[subject] = warning

    def bound_waiting(self, milliseconds: int | None, key: str) -> None:
        self.waiting_limit = None if milliseconds is None else (milliseconds, key)


class FakeSinkTaskContext(ServicesOfContext, FakeWaiting):
    """A `SinkTaskContext` for a fake cluster, whose state is plain data that tests can modify."""

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
        """Create a context.

        Args:
            connector: Name of the connector.
            task: Task number.
            topics: Partition count by topic.
            configs: Task configuration.
            cluster_id: ID of the Kafka cluster.
            start_number: Offset of the config topic record that last started or changed the
                connector.
            group_id: Consumer group. The default is the connector's group.
            reporter: Reporter for errant records, or None if none is configured.
            services: Shared services. To share running services between contexts, pass the result
                of `FakeSharedServices.user`. The default starts its own services.
        """
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
        self.record_times: dict[
            TopicPartition, dict[int, int]
        ] = {}  # timestamp in epoch ms by offset
        # offset at which the first open transaction in each partition begins
        self.open_transactions: dict[TopicPartition, int] = {}
        self.client_settings: dict[str, object] = {"bootstrap.servers": "localhost:9092"}
        self.away = False  # True if requests to the cluster fail
        self.seeks: list[dict[TopicPartition, int]] = []
        self.paused: set[TopicPartition] = set()
        self.timeouts: list[int] = []
        self.commits_requested = 0
        self.stop_requests: list[str] = []  # reasons given for the requests
        self.metrics = FakePluginMetrics()
        self._configs = dict(configs or {})
        self._assigned: set[TopicPartition] = set()

    def assign(self, *partitions: TopicPartition) -> list[TopicPartition]:
        """Assign partitions to the task and return them as arguments for `open`."""
        self._assigned |= set(partitions)
        return list(partitions)

    def revoke(self, *partitions: TopicPartition) -> list[TopicPartition]:
        """Revoke partitions from the task and return them as arguments for `close`."""
        self._assigned -= set(partitions)
        return list(partitions)

    def configs(self) -> Mapping[str, str]:
        return dict(self._configs)

    def client_config(self, kind: ClientKind) -> dict[str, object]:
        return dict(self.client_settings)

    def _ask(self) -> None:
        if self.away:
            raise RetriableError("the cluster did not respond")

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

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        self._ask()
        return {tp: self.group_offsets[tp] for tp in partitions if tp in self.group_offsets}

    def log_range(
        self, partitions: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        self._ask()
        ranges = {tp: self.log_ranges.get(tp, (0, 0)) for tp in partitions}
        if committed:
            ranges = {
                tp: (first, self.open_transactions.get(tp, end))
                for tp, (first, end) in ranges.items()
            }
        return ranges

    def offsets_at(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        ends = {tp: end for tp, (_, end) in self.log_range(partitions).items()}
        times = {tp: self.record_times.get(tp, {}) for tp in ends}
        later = {
            tp: [offset for offset, ms in of.items() if ms >= timestamp_ms]
            for tp, of in times.items()
        }
        return {tp: min(later[tp], default=end) for tp, end in ends.items()}

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

    def request_stop(self, reason: str) -> None:
        self.stop_requests.append(reason)


class FakeOffsetStorageReader:
    """An `OffsetStorageReader` with offsets that a test sets."""

    def __init__(self) -> None:
        self._stored: list[tuple[Mapping[str, Value], Mapping[str, Value]]] = []

    def store(self, partition: Mapping[str, Value], offset: Mapping[str, Value]) -> None:
        """Set the offset of a source partition."""
        self._stored = [pair for pair in self._stored if pair[0] != partition]
        self._stored.append((dict(partition), dict(offset)))

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        return next((offset for stored, offset in self._stored if stored == partition), None)

    def offsets(
        self, partitions: Iterable[Mapping[str, Value]]
    ) -> Sequence[Mapping[str, Value] | None]:
        return [self.offset(partition) for partition in partitions]


@dataclass(slots=True)
class FakeTransactionContext:
    """A `TransactionContext` that records requests. None means the end of the current batch."""

    committed: list[SourceRecord | None] = field(default_factory=list)
    aborted: list[SourceRecord | None] = field(default_factory=list)

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        self.committed.append(record)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        self.aborted.append(record)


@dataclass
class FakeSourceTaskContext(ServicesOfContext, FakeWaiting):
    """A `SourceTaskContext` backed by plain data."""

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
    """A `ConnectorContext` that counts reconfiguration requests and collects errors."""

    connector: str = "connector"
    reconfigurations: int = 0
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        FakeWaiting.__init__(self)

    def request_task_reconfiguration(self) -> None:
        self.reconfigurations += 1

    def raise_error(self, error: Exception) -> None:
        self.errors.append(error)

"""`SourceTaskRunner`: the loop of a source task: poll, transform, convert, send, store offsets."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from connect_py.api.config import Type, parse, with_prefix
from connect_py.api.errors import ConnectError, NotFoundError, RetriableError
from connect_py.api.record import OffsetAndMetadata, SourceRecord
from connect_py.api.schema import Value
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.error_handling.error_handler import ErrorHandler, Skipped
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.kafka.cluster_admin import ClusterAdmin
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.task.messages import Paused, ReadSourceOffsets, Resumed, Started, TopicUsed, WriteSourceOffsets
from connect_py.task.record_pipeline import Converters
from connect_py.task.submitted_records import Submitted, SubmittedRecords
from connect_py.task.task_control import TaskControl, TaskStoppedError
from connect_py.task.transformation_chain import ChainLink, TransformationChain, apply_link

SEND_RETRY_SECONDS: Final = 0.1
POLL_RETRY_SECONDS: Final = 0.5
PAUSE_SLICE_SECONDS: Final = 0.2
ANSWER_SECONDS: Final = 30.0
PRODUCER_NAME: Final = "org.apache.kafka.clients.producer.KafkaProducer"  # the class that failed sends name

log = logging.getLogger(__name__)

T = TypeVar("T")


class WorkerOffsetStorageReader:
    """Asks the worker for stored offsets."""

    def __init__(self, control: TaskControl) -> None:
        self._control = control

    def offset(self, partition: Mapping[str, Value]) -> Mapping[str, Value] | None:
        """The offset of one source partition, or None; ConnectError when the worker cannot tell."""
        return self.offsets([partition])[0]

    def offsets(self, partitions: Iterable[Mapping[str, Value]]) -> Sequence[Mapping[str, Value] | None]:
        """The same for several, in order."""
        question = ReadSourceOffsets(self._control.next_number(), [dict(p) for p in partitions])
        found: Sequence[Mapping[str, Value] | None] = self._control.ask(question, ANSWER_SECONDS)
        return found


class WorkerSourceTaskContext:
    """Satisfies `connect_py.api.task.SourceTaskContext`."""

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
        task_config: Mapping[str, str],
        reader: WorkerOffsetStorageReader,
    ) -> None:
        self._id = id
        self._task_config = dict(task_config)
        self._reader = reader

    @property
    def connector(self) -> str:
        return self._id.connector

    @property
    def task(self) -> int:
        return self._id.task

    @property
    def offset_storage_reader(self) -> WorkerOffsetStorageReader:
        return self._reader

    def configs(self) -> Mapping[str, str]:
        return dict(self._task_config)


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """The `topic.creation.*` rules of a connector: the first group whose patterns fit, else the default group."""

    groups: Sequence[tuple[re.Pattern[str], re.Pattern[str] | None, int, int]]

    @classmethod
    def parse(cls, config: Mapping[str, str], *, enabled: bool) -> TopicCreation:
        """Read a connector's configuration; without a default group no topic is ever created."""
        default = with_prefix(config, "topic.creation.default.")
        if not enabled or not default:
            return cls(())
        groups = []
        for name in [*parse("topic.creation.groups", config.get("topic.creation.groups", ""), Type.LIST), "default"]:
            settings = default | with_prefix(config, f"topic.creation.{name}.")
            include = ".*" if name == "default" else "|".join(settings.get("include", "").split(","))
            exclude = "" if name == "default" else "|".join(settings.get("exclude", "").split(","))
            groups.append((
                re.compile(include), re.compile(exclude) if exclude else None,
                int(settings.get("partitions", -1)), int(settings.get("replication.factor", -1)),
            ))  # fmt: skip
        return cls(groups)

    def rule(self, topic: str) -> tuple[int, int] | None:
        """Partitions and replication factor for a topic, or None: it is not ours to create."""
        for include, exclude, partitions, replication_factor in self.groups:
            if include.fullmatch(topic) and not (exclude and exclude.fullmatch(topic)):
                return partitions, replication_factor
        return None


class SourceTaskRunner:
    """Owns the producer and calls the task, all on one thread. At least once: offsets follow acknowledgements."""

    def __init__(
        self,
        id: ConnectorTaskId,  # noqa: A002 - Connect's word
        task: SourceTask,
        task_config: Mapping[str, str],
        producer: Producer,
        admin: ClusterAdmin,
        topic_creation: TopicCreation,
        converters: Converters,
        chain: TransformationChain,
        errors: ErrorHandler,
        control: TaskControl,
        clock: Clock,
        *,
        commit_interval_ms: int,
        commit_timeout_ms: int,
    ) -> None:
        self._id = id
        self._task = task
        self._task_config = task_config
        self._producer = producer
        self._admin = admin
        self._topic_creation = topic_creation
        self._converters = converters
        self._chain = chain
        self._errors = errors
        self._control = control
        self._clock = clock
        self._commit_interval = commit_interval_ms / 1000
        self._commit_timeout = commit_timeout_ms / 1000
        self._submitted = SubmittedRecords()
        self._next_commit = 0.0
        self._known_topics: set[str] = set()
        self._failure: Exception | None = None
        self.polled = 0
        self.written = 0

    def run(self) -> None:
        """Start the task, loop until a stop is asked for, and store what was acknowledged; errors are raised."""
        self._task.start(self._task_config)
        self._control.send(Started())
        self._next_commit = self._clock.monotonic() + self._commit_interval
        try:
            while not self._control.stopping:
                self.iterate()
        except TaskStoppedError:
            log.debug("stopped while waiting")
        finally:
            self._producer.flush(self._commit_timeout)
            self._store_offsets()
        self._raise_failure()

    def iterate(self) -> None:
        """One round: poll, send, and store offsets if it is time."""
        if self._control.target is TargetState.PAUSED:
            self._pause()
            return
        try:
            records = self._task.poll()
        except RetriableError as error:
            log.warning("poll is repeated: %s", error)
            self._control.wait(POLL_RETRY_SECONDS)
            records = ()
        for record in records or ():
            self.polled += 1
            self._send(record)
        self._producer.poll(0)
        self._raise_failure()
        if self._clock.monotonic() >= self._next_commit:
            self._store_offsets()

    def _pause(self) -> None:
        self._control.send(Paused())
        while self._control.target is TargetState.PAUSED:
            self._producer.poll(0)
            if self._clock.monotonic() >= self._next_commit:
                self._store_offsets()
            self._control.wait(PAUSE_SLICE_SECONDS)
        self._control.send(Resumed())

    # Records.

    def _send(self, record: SourceRecord) -> None:
        submitted = self._submitted.submit(record.source_partition, record.source_offset)
        prepared = self._prepare(record)
        if prepared is None:
            self._submitted.acknowledge(submitted)
            self._task.commit_record(record, None)
            return
        final, key, value, headers = prepared
        self._ensure_topic(final.topic)
        arguments: dict[str, Any] = {} if final.partition is None else {"partition": final.partition}
        while True:
            try:
                self._producer.produce(
                    final.topic, value=value, key=key, headers=headers or None, timestamp=final.timestamp or 0,
                    on_delivery=lambda error, message: self._delivered(record, submitted, error, message), **arguments,
                )  # fmt: skip
                return
            except BufferError:  # the local queue is full: deliveries make room
                self._producer.poll(SEND_RETRY_SECONDS)
                self._control.check()
            except KafkaException as error:
                self._failed_send(record, submitted, ConnectError(f"cannot send to {final.topic}: {error}"))
                self._raise_failure()
                return

    def _prepare(
        self, record: SourceRecord
    ) -> tuple[SourceRecord, bytes | None, bytes | None, list[tuple[str, str | bytes | None]]] | None:
        """Transform and convert; None when the record was filtered, or failed and is tolerated."""
        final = record
        for link in self._chain.links:
            changed = self._transform(record, final, link)
            if changed is None or isinstance(changed, Skipped):
                return None
            final = changed
        c = self._converters
        key = self._one(
            record,
            Stage.KEY_CONVERTER,
            c.key_name,
            lambda: c.key.from_connect(final.topic, final.key_schema, final.key),
        )
        if isinstance(key, Skipped):
            return None
        value = self._one(
            record, Stage.VALUE_CONVERTER, c.value_name,
            lambda: c.value.from_connect(final.topic, final.value_schema, final.value),
        )  # fmt: skip
        if isinstance(value, Skipped):
            return None
        headers = self._one(record, Stage.HEADER_CONVERTER, c.header_name, lambda: self._headers(final))
        if isinstance(headers, Skipped):
            return None
        return final, key, value, headers

    def _transform(self, record: SourceRecord, current: SourceRecord, link: ChainLink) -> SourceRecord | Skipped | None:
        return self._one(record, Stage.TRANSFORMATION, link.class_name, lambda: apply_link(link, current))

    def _headers(self, record: SourceRecord) -> list[tuple[str, str | bytes | None]]:
        convert = self._converters.header.from_connect_header
        return [(h.key, convert(record.topic, h.key, h.schema, h.value)) for h in record.headers]

    def _one(self, record: SourceRecord, stage: Stage, name: str, call: Callable[[], T]) -> T | Skipped:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - any error of a plugin is a failure of this one record
            return self._errors.recover(stage, name, error, lambda last: self._failed(record, stage, name, last), call)

    def _failed(self, record: SourceRecord, stage: Stage, name: str, error: Exception) -> FailedRecord:
        where = f"{{topic='{record.topic}', sourcePartition={dict(record.source_partition)}}}"
        return FailedRecord(stage, name, error, source_record=where)

    def _delivered(self, record: SourceRecord, submitted: Submitted, error: KafkaError | None, message: Any) -> None:
        """Runs inside `poll` or `flush`, on the task thread."""
        if error is not None:
            text = f"record was not written to {message.topic()}: {error.str()}"
            self._failed_send(record, submitted, ConnectError(text))
            return
        self.written += 1
        self._submitted.acknowledge(submitted)
        try:
            self._task.commit_record(record, OffsetAndMetadata(message.offset()))
        except Exception as problem:  # noqa: BLE001 - must not unwind through the client; the loop raises it
            self._failure = self._failure or problem

    def _failed_send(self, record: SourceRecord, submitted: Submitted, error: ConnectError) -> None:
        try:
            self._errors.report(self._failed(record, Stage.KAFKA_PRODUCE, PRODUCER_NAME, error))
            self._submitted.acknowledge(submitted)
            self._task.commit_record(record, None)
        except Exception as problem:  # noqa: BLE001 - must not unwind through the client; the loop raises it
            self._failure = self._failure or problem

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _ensure_topic(self, topic: str) -> None:
        if topic in self._known_topics:
            return
        rule = self._topic_creation.rule(topic)
        if rule is not None:
            try:
                self._admin.topic_id(topic)
            except NotFoundError:
                if self._admin.create_topic(topic, *rule):
                    log.info("created topic %s with %d partitions", topic, rule[0])
        self._known_topics.add(topic)
        self._control.send(TopicUsed(topic))

    # Offsets.

    def _store_offsets(self) -> None:
        self._next_commit = self._clock.monotonic() + self._commit_interval
        offsets = self._submitted.committable()
        try:
            if offsets:
                self._control.ask(WriteSourceOffsets(self._control.next_number(), offsets), self._commit_timeout)
            self._task.commit()
        except ConnectError as error:
            # A later offset of the same partition covers these; at a stop they are read again.
            log.error("offsets were not stored: %s", error, extra={"action": "commit_failed"})

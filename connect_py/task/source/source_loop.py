"""`SourceTaskRunner`: the loop of a source task (poll, transform, convert, send, and commit)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Message

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.record import MutableHeaders, SourceRecord
from connect_py.api.task import SourceTask
from connect_py.clock import Clock
from connect_py.error_handling.error_handler import ErrorHandler, Skipped
from connect_py.error_handling.failed_record import FailedRecord
from connect_py.error_handling.stage import Stage
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.model import TargetState
from connect_py.task.messages import Paused, Resumed, Started
from connect_py.task.record_pipeline import Converters
from connect_py.task.source.source_committer import NotDeliveredError, SourceCommitter
from connect_py.task.source.source_producer import OutgoingRecord, SourceProducer
from connect_py.task.source.submitted_records import Submitted
from connect_py.task.source.topic_keeper import TopicKeeper
from connect_py.task.task_control import TaskControl
from connect_py.task.transformation_chain import ChainLink, TransformationChain, apply_link
from connect_py.task.wait_board import WaitBoard
from connect_py.task.worker_client import TaskStoppedError

QUEUE_FULL_SECONDS: Final = 0.1
POLL_RETRY_SECONDS: Final = 0.5
POLL: Final = "poll"  # shown in the status while the task cannot return records
PAUSE_SLICE_SECONDS: Final = 0.2
SERVE_EVERY: Final = 500  # number of records between checks for delivery reports
# class name in reports about failed sends
PRODUCER_NAME: Final = "org.apache.kafka.clients.producer.KafkaProducer"
# delivery errors for records in an aborted transaction
_PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})

log = logging.getLogger(__name__)

T = TypeVar("T")


class SourceTaskRunner:
    """Runs a source task and its producer on one thread.

    The committer implements the delivery guarantee.
    """

    def __init__(
        self,
        task: SourceTask,
        task_config: Mapping[str, str],
        producer: SourceProducer,
        topics: TopicKeeper,
        committer: SourceCommitter,
        converters: Converters,
        chain: TransformationChain,
        errors: ErrorHandler,
        control: TaskControl,
        metrics: SourceMetrics,
        clock: Clock,
        waiting: WaitBoard | None = None,
    ) -> None:
        self._task = task
        self._task_config = task_config
        self._producer = producer
        self._topics = topics
        self._committer = committer
        self._converters = converters
        self._chain = chain
        self._errors = errors
        self._control = control
        self._clock = clock
        self._waits = waiting or WaitBoard(clock, lambda _: None)
        self.metrics = metrics
        self._failure: Exception | None = None

    def run(self) -> None:
        """Start the task, loop until a stop is requested, and commit as much as possible.

        Raises the task's errors.
        """
        self._committer.open()
        self._task.start(self._task_config)
        self._control.notify(Started())
        self.metrics.state.change("running")
        failed = True
        try:
            while not self._control.stopping:
                self.iterate()
            failed = False
        except TaskStoppedError:
            failed = False
            log.debug("stopped while waiting")
        finally:
            self._committer.close(failed=failed)
        self._raise_failure()

    def iterate(self) -> None:
        """Run one iteration: poll, send, and commit if due."""
        if self._control.target is TargetState.PAUSED:
            self._pause()
            return
        self._waits.send_changes()
        self._waits.check()
        started = self._clock.monotonic()
        try:
            records = self._task.poll() or ()
            self._waits.waits(POLL, None)
        except RetriableError as error:
            log.warning("poll failed with a retriable error, retrying: %s", error)
            self._waits.waits(POLL, str(error))
            self._control.wait(POLL_RETRY_SECONDS)
            records = ()
        if records:
            self.metrics.poll(len(records), self._clock.monotonic() - started)
            for number, record in enumerate(records, start=1):
                self._send(record)
                if number % SERVE_EVERY == 0:
                    self._producer.poll(0)
                    self._raise_failure()
            self._committer.batch_done()
        self._serve()
        if records:
            self.metrics.sent(self._committer.active)

    def _serve(self) -> None:
        self._producer.poll(0)
        self._raise_failure()
        self._committer.tick()

    def _pause(self) -> None:
        self._control.notify(Paused())
        self.metrics.state.change("paused")
        while self._control.target is TargetState.PAUSED:
            self._serve()
            self._control.wait(PAUSE_SLICE_SECONDS)
        self.metrics.state.change("running")
        self._control.notify(Resumed())

    # Records

    def _send(self, record: SourceRecord) -> None:
        submitted = self._committer.submit(record)
        prepared = self._prepare(record)
        if prepared is None:
            self._committer.drop(submitted)
            return
        final, key, value, headers = prepared
        self._topics.ensure(final.topic)
        self._committer.sending(final.topic)
        outgoing = OutgoingRecord(
            final.topic,
            value,
            key,
            headers,
            final.timestamp or 0,
            final.partition,
            partial(self._delivered, submitted),
        )
        while True:
            try:
                self._producer.send(outgoing)
                break
            except BufferError:  # deliveries free up space in the local queue
                self._producer.poll(QUEUE_FULL_SECONDS)
                self._control.check()
            except KafkaException as error:
                if not self._committer.tolerates_lost_records:
                    self._committer.refused(error)
                    continue
                self._lost(
                    submitted,
                    NotDeliveredError(
                        f"failed to send a record to {final.topic}: {error.args[0].str()}"
                    ),
                )
                self._raise_failure()
                return
        self._committer.dispatched(submitted, outgoing)

    def _prepare(
        self, record: SourceRecord
    ) -> tuple[SourceRecord, bytes | None, bytes | None, MutableHeaders] | None:
        """Transform and convert a record.

        Return None if the record was filtered, or if it failed and the error is tolerated.

        Headers are converted first because the key and value converters may add headers.
        """
        final = record
        for link in self._chain.links:
            changed = self._transform(record, final, link)
            if changed is None or isinstance(changed, Skipped):
                return None
            final = changed
        c = self._converters
        headers = self._one(
            record, Stage.HEADER_CONVERTER, c.header_name, lambda: self._headers(final)
        )
        if isinstance(headers, Skipped):
            return None
        key = self._one(
            record,
            Stage.KEY_CONVERTER,
            c.key_name,
            lambda: c.key.from_connect(final.topic, final.key_schema, final.key, headers),
        )
        if isinstance(key, Skipped):
            return None
        value = self._one(
            record,
            Stage.VALUE_CONVERTER,
            c.value_name,
            lambda: c.value.from_connect(final.topic, final.value_schema, final.value, headers),
        )
        if isinstance(value, Skipped):
            return None
        return final, key, value, headers

    def _transform(
        self, record: SourceRecord, current: SourceRecord, link: ChainLink
    ) -> SourceRecord | Skipped | None:
        return self._one(
            record, Stage.TRANSFORMATION, link.class_name, lambda: apply_link(link, current)
        )

    def _headers(self, record: SourceRecord) -> MutableHeaders:
        convert = self._converters.header.from_connect_header
        return [(h.key, convert(record.topic, h.key, h.schema, h.value)) for h in record.headers]

    def _one(
        self, record: SourceRecord, stage: Stage, name: str, call: Callable[[], T]
    ) -> T | Skipped:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - any plugin error is a failure of this record
            return self._errors.recover(
                stage, name, error, lambda last: self._failed(record, stage, name, last), call
            )

    def _failed(
        self, record: SourceRecord, stage: Stage, name: str, error: Exception
    ) -> FailedRecord:
        where = f"{{topic='{record.topic}', sourcePartition={dict(record.source_partition)}}}"
        return FailedRecord(stage, name, error, source_record=where)

    def _delivered(self, submitted: Submitted, error: KafkaError | None, message: Message) -> None:
        """Process a delivery report. Called from the client's `poll` on the task's thread."""
        if error is None:
            self._committer.acknowledged(submitted, message)
        elif self._committer.tolerates_lost_records:
            reason = f"failed to write a record to {message.topic()}: {error.str()}"
            self._lost(submitted, NotDeliveredError(reason))
        else:
            if error.code() not in _PURGED:
                log.error("failed to write a record to %s: %s", message.topic(), error.str())
            self._committer.lost(submitted, error)

    def _lost(self, submitted: Submitted, error: ConnectError) -> None:
        """Report a lost record. The task fails unless the error is tolerated."""
        try:
            self._errors.report(
                self._failed(submitted.record, Stage.KAFKA_PRODUCE, PRODUCER_NAME, error)
            )
        except Exception as problem:  # noqa: BLE001 - must not unwind through the client; the loop raises it
            self._failure = self._failure or problem
        else:
            self._committer.lost(submitted, None)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

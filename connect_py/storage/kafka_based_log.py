"""`KafkaBasedLog`: reads one internal topic from its start on one thread, and writes to it."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from connect_py.api.errors import ConnectError
from connect_py.clock import Clock, SystemClock
from connect_py.kafka.client_log import PATIENCE_SECONDS, client_log
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import LogRecord, LogTimeoutError

log = logging.getLogger(__name__)

POLL_SLICE_SECONDS = 0.1  # maximum delay until a request is noticed; `poll` cannot be interrupted
BATCH = 1_000
METADATA_SECONDS = 30.0
ADMIN_SECONDS = 10.0
ADMIN_PAUSE_SECONDS = 1.0
STOP_SECONDS = 3.0
# a client that has not reached the end of the log but returns nothing for this long is replaced
STALLED_SECONDS = 15.0


@dataclass(slots=True)
class _ReadToEnd:
    future: Future[None]
    ends: Mapping[int, int] | None = None  # None if the end offsets are not known yet


class KafkaBasedLog:
    """A `StorageLog` in Kafka. Reads all partitions of a topic continuously on a dedicated thread.

    `start` returns immediately. `read_to_end` completes when all records written before the call
    have been applied. Thread-safe.
    """

    def __init__(
        self,
        topic: str,
        clients: StorageClients,
        client: str,
        apply: Callable[[LogRecord], None],
        *,
        read_committed: bool,
        clock: Clock | None = None,
        on_reset: Callable[[], None] | None = None,
    ) -> None:
        """Create the log.

        `on_reset` is called on the reader's thread when the topic has been recreated. The topic is
        then read again from its beginning.
        """
        self.topic = topic
        self.refusal: str | None = None  # error message if the broker denies reading the topic
        self._clients = clients
        self._client = client
        self._apply = apply
        self._read_committed = read_committed
        self._on_reset = on_reset
        self._clock = clock or SystemClock()
        self._requests: queue.SimpleQueue[_ReadToEnd] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._positions: dict[int, int] = {}
        self._producer: Producer | None = None
        self._producer_lock = threading.Lock()
        self._admin: AdminClient | None = None
        self._next_request_at = 0.0  # monotonic time, in seconds
        # monotonic time, in seconds, of the first failure since the last successful request
        self._unanswered_since: float | None = None
        self._lower_ends: dict[
            int, int
        ] = {}  # end offsets in the last response that were below the current positions
        self._has_progress = False  # True if the client has returned messages since the last check
        self._progress_at = 0.0  # monotonic time, in seconds
        self._thread = threading.Thread(
            target=self._run, name=f"KafkaBasedLog Work Thread - {topic}", daemon=True
        )

    def start(self) -> None:
        """Start reading."""
        self._thread.start()

    def stop(self) -> None:
        """Flush pending writes, stop the thread, and close the clients. Fail pending requests."""
        with self._producer_lock:
            if self._producer is not None and self._producer.flush(STOP_SECONDS):
                self._producer.purge()
                self._producer.flush(0)
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._fail_requests()

    def await_offset(self, offset: int, timeout: float) -> None:
        """Wait until the record at this offset in partition 0 has been applied.

        This is faster than waiting for the end of the topic if only a transaction marker follows
        the record.

        Raises:
            LogTimeoutError: The record was not applied within `timeout` seconds.
        """
        self._await(self._request({0: offset + 1}), timeout)  # offset after the last record to read

    def read_to_end(self) -> Future[None]:
        """Return a future that completes when all current records have been applied."""
        return self._request(None)

    def _request(self, ends: Mapping[int, int] | None) -> Future[None]:
        request = _ReadToEnd(Future(), ends)
        self._requests.put(request)
        if self._stopping.is_set():
            self._fail_requests()
        return request.future

    def _fail_requests(self) -> None:
        """Fail the pending requests because the reader has stopped."""
        while True:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return
            request.future.set_exception(
                ConnectError(f"the reader of topic '{self.topic}' has ended")
            )

    def await_end(self, timeout: float) -> None:
        """Wait until all records written before the call have been applied.

        Raises:
            LogTimeoutError: The records were not applied within `timeout` seconds.
        """
        self._await(self.read_to_end(), timeout)

    def _await(self, future: Future[None], timeout: float) -> None:
        try:
            future.result(timeout)
        except TimeoutError as error:
            raise LogTimeoutError(
                f"timed out after {timeout:g} s while reading topic '{self.topic}' to its end"
            ) from error

    def send(
        self,
        key: bytes,
        value: bytes | None,
        on_delivery: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        """Write one record asynchronously.

        `on_delivery` is called on the reader's thread or on a thread that calls `flush`.

        Raises:
            ConnectError: The local queue is full, or the client has failed.
        """
        try:
            self._writer().produce(self.topic, value, key, on_delivery=_delivery(on_delivery))
        except BufferError as error:
            raise ConnectError(f"too many pending writes to topic '{self.topic}'") from error
        except KafkaException as error:
            raise ConnectError(
                f"failed to write to topic '{self.topic}': {error.args[0].str()}"
            ) from error

    def write(self, key: bytes, value: bytes | None, timeout: float) -> None:
        """Write one record and wait for its acknowledgment.

        Raises:
            LogTimeoutError: The record was not acknowledged in time. It may still be written.
            ConnectError: The broker rejected the record.
        """
        outcome: Future[None] = Future()

        def done(error: KafkaError | None) -> None:
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(
                    ConnectError(f"failed to write to topic '{self.topic}': {error.str()}")
                )

        self.send(key, value, done)
        self.flush(timeout)
        if not outcome.done():
            raise LogTimeoutError(
                f"timed out after {timeout:g} s while writing to topic '{self.topic}'"
            )
        outcome.result()

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until all sent records are acknowledged or rejected."""
        self._writer().flush(timeout)

    def _writer(self) -> Producer:
        with self._producer_lock:
            if self._producer is None:
                self._producer = self._clients.producer(self._client)
            return self._producer

    def _run(self) -> None:
        consumer = self._clients.consumer(self._client, read_committed=self._read_committed)
        self._admin = self._clients.admin()
        waiting: list[_ReadToEnd] = []
        try:
            if self._assign(consumer):
                while not self._stopping.is_set():
                    self._step(consumer, waiting)
                    if self._is_stalled(waiting):
                        consumer = self._replace_client(consumer)
        finally:
            consumer.close()
            self._fail_requests()
            for request in waiting:
                request.future.set_exception(
                    ConnectError(f"the reader of topic '{self.topic}' has ended")
                )

    def _assign(self, consumer: Consumer) -> bool:
        """Assign all partitions from their beginning. Wait indefinitely until the topic exists."""
        since, warned = self._clock.monotonic(), False
        while not self._stopping.is_set():
            try:
                metadata = consumer.list_topics(self.topic, timeout=2.0).topics[self.topic]
                if metadata.error is None and metadata.partitions:
                    consumer.assign(
                        [
                            KafkaTopicPartition(self.topic, p, OFFSET_BEGINNING)
                            for p in metadata.partitions
                        ]
                    )
                    self._positions = dict.fromkeys(metadata.partitions, 0)
                    return True
            except KafkaException as error:
                log.debug("topic %s: waiting for metadata: %s", self.topic, error)
            if not warned and self._clock.monotonic() - since > METADATA_SECONDS:
                warned = True
                log.warning(
                    "topic '%s' does not exist in the cluster after %g s; still waiting",
                    self.topic,
                    METADATA_SECONDS,
                )
            self._stopping.wait(POLL_SLICE_SECONDS)
        return False

    def _step(self, consumer: Consumer, waiting: list[_ReadToEnd]) -> None:
        message = consumer.poll(POLL_SLICE_SECONDS)
        if message is not None:
            self._process(message)
            for more in consumer.consume(BATCH, 0):
                self._process(more)
        if self._producer is not None:
            self._producer.poll(0)
        while not self._requests.empty():
            waiting.append(self._requests.get())
        self._request_ends(consumer, [request for request in waiting if request.ends is None])
        for request in [r for r in waiting if r.ends is not None and self._reached(r.ends)]:
            waiting.remove(request)
            request.future.set_result(None)

    def _is_stalled(self, waiting: Sequence[_ReadToEnd]) -> bool:
        """Return True if the client has silently stopped reading, as observed after outages."""
        now = self._clock.monotonic()
        if self._has_progress or not any(request.ends is not None for request in waiting):
            self._has_progress, self._progress_at = False, now
        return now - self._progress_at >= STALLED_SECONDS

    def _replace_client(self, stalled: Consumer) -> Consumer:
        """Create a client that resumes at the positions of the stalled client."""
        log.warning(
            "topic '%s' has more records, but none were received for %g s: replacing the client",
            self.topic,
            STALLED_SECONDS,
            extra={"action": "client_renewed"},
        )
        stalled.close()
        consumer = self._clients.consumer(self._client, read_committed=self._read_committed)
        consumer.assign(
            [
                KafkaTopicPartition(self.topic, p, position)
                for p, position in self._positions.items()
            ]
        )
        self._progress_at = self._clock.monotonic()
        return consumer

    def _process(self, message: Message) -> None:
        self._has_progress = True
        error = message.error()
        partition, offset = message.partition() or 0, message.offset() or 0
        if error is not None:
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                # librdkafka requires a group ID and looks up the group's coordinator, but this
                # consumer never joins the group
                return
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.refusal = (
                    f"not authorized to read topic '{self.topic}': {error.str()} (required ACL: "
                    "Read and Describe)"
                )
            if error.code() == KafkaError._PARTITION_EOF:
                self.refusal = None
                self._positions[partition] = max(self._positions.get(partition, 0), offset)
            elif error.fatal():
                log.error("failed to read topic %s: %s", self.topic, error.str())
            else:
                client_log.warning("topic %s: %s", self.topic, error.str())
            return
        if offset < self._positions.get(partition, 0):
            self._reset(partition)
        kind, stamp = message.timestamp()
        record = LogRecord(
            partition,
            offset,
            -1 if kind == TIMESTAMP_NOT_AVAILABLE else stamp,
            message.key(),
            message.value(),
        )
        try:
            self._apply(record)
        except Exception:
            log.exception(
                "failed to apply a record of topic %s, partition %d, offset %d",
                self.topic,
                partition,
                offset,
            )
        self._positions[partition] = offset + 1

    def _request_ends(self, consumer: Consumer, requests: list[_ReadToEnd]) -> None:
        if not requests or self._admin is None or self._clock.monotonic() < self._next_request_at:
            return
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # untyped in the library
        spec = {KafkaTopicPartition(self.topic, p): latest for p in self._positions}
        try:
            futures = self._admin.list_offsets(
                spec, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ADMIN_SECONDS
            )
            ends = {
                partition.partition: future.result().offset for partition, future in futures.items()
            }
        except KafkaException as error:
            now = self._clock.monotonic()
            since = self._unanswered_since = (
                now if self._unanswered_since is None else self._unanswered_since
            )
            # a new topic briefly has no leader
            is_persistent = now - since >= PATIENCE_SECONDS
            level = logging.WARNING if is_persistent else logging.INFO
            client_log.log(
                level,
                "failed to read the end offsets of topic %s, will retry: %s",
                self.topic,
                error.args[0].str(),
            )
            # The client retains a leader epoch that a restarted broker rejects. A new client
            # fetches the epoch again.
            self._admin = self._clients.admin()
            self._next_request_at = self._clock.monotonic() + ADMIN_PAUSE_SECONDS
            return  # callers that wait for the result have a deadline
        self._unanswered_since = None
        lower = {
            partition: end
            for partition, end in ends.items()
            if end < self._positions.get(partition, 0)
        }
        # brokers have been observed to report lower end offsets while starting or stopping
        if lower and lower != self._lower_ends:
            self._lower_ends = lower
            self._next_request_at = self._clock.monotonic() + ADMIN_PAUSE_SECONDS
            return
        self._lower_ends = {}
        if lower:
            starts = {
                p: OFFSET_BEGINNING if p in lower else position
                for p, position in self._positions.items()
            }
            consumer.assign(
                [KafkaTopicPartition(self.topic, p, start) for p, start in starts.items()]
            )
            for partition in lower:
                self._reset(partition)
            return  # request the end offsets again, because the topic may still be growing
        for request in requests:
            request.ends = ends

    def _reset(self, partition: int) -> None:
        """Reset a partition's position after lower offsets show that the topic was recreated."""
        log.warning("topic %s was recreated: reading it again", self.topic)
        self._positions[partition] = 0
        if self._on_reset is not None:
            self._on_reset()

    def _reached(self, ends: Mapping[int, int]) -> bool:
        return all(self._positions.get(partition, 0) >= end for partition, end in ends.items())


@dataclass(frozen=True, slots=True)
class KafkaLogs:
    """Opens topics as logs. Implements `LogMaker`."""

    clients: StorageClients

    def log(
        self, topic: str, client: str, apply: Callable[[LogRecord], None], *, read_committed: bool
    ) -> KafkaBasedLog:
        return KafkaBasedLog(topic, self.clients, client, apply, read_committed=read_committed)


def _delivery(
    on_delivery: Callable[[KafkaError | None], None] | None,
) -> Callable[[KafkaError | None, Message], None] | None:
    if on_delivery is None:
        return None
    return lambda error, _message: on_delivery(error)

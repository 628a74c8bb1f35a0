"""`KafkaBasedLog`: one internal topic, read from its beginning by one thread, and written."""

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

POLL_SLICE_SECONDS = 0.1  # the client has no wakeup; requests are noticed this late at worst
BATCH = 1_000
METADATA_SECONDS = 30.0
ADMIN_SECONDS = 10.0
ADMIN_PAUSE_SECONDS = 1.0
STOP_SECONDS = 3.0
# a client that reads nothing for so long, though the log is longer, gets a successor
STALLED_SECONDS = 15.0


@dataclass(slots=True)
class _ReadToEnd:
    future: Future[None]
    ends: Mapping[int, int] | None = None  # None: not asked for yet


class KafkaBasedLog:
    """A `StorageLog` in Kafka: reads a topic for ever on a thread of its own, with all partitions
    assigned.

    `start` returns at once; `read_to_end` tells when everything written so far was applied. All
    methods may be called from any thread.
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
        """Prepare. `on_reset` is called on the reader's thread when the topic was made anew and is
        read again."""
        self.topic = topic
        self.refusal: str | None = None  # why the broker refuses reads of it
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
        self._ask_again_at = 0.0  # monotonic
        # monotonic; the first of the questions in a row that had no answer
        self._unknown_since: float | None = None
        self._seemed_lower: dict[
            int, int
        ] = {}  # ends that were below our positions when they were asked for last
        self._moved = False  # whether the client returned anything since that was looked at
        self._moved_at = 0.0  # monotonic
        self._thread = threading.Thread(
            target=self._run, name=f"KafkaBasedLog Work Thread - {topic}", daemon=True
        )

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Flush what was sent, end the thread, close the clients; requests that still wait fail."""
        with self._producer_lock:
            if self._producer is not None and self._producer.flush(STOP_SECONDS):
                self._producer.purge()
                self._producer.flush(0)
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)
        self._refuse_requests()

    def await_offset(self, offset: int, timeout: float) -> None:
        """Wait until this record of partition 0 was applied: quicker than the end when only a
        marker follows it.

        Raises:
            LogTimeoutError: It took longer than `timeout` seconds.
        """
        self._await(self._request({0: offset + 1}), timeout)  # last written -> next to read

    def read_to_end(self) -> Future[None]:
        """Done when every record that was in the topic at this call has been applied."""
        return self._request(None)

    def _request(self, ends: Mapping[int, int] | None) -> Future[None]:
        request = _ReadToEnd(Future(), ends)
        self._requests.put(request)
        if self._stopping.is_set():
            self._refuse_requests()
        return request.future

    def _refuse_requests(self) -> None:
        """Fail the requests that wait: the reader has ended."""
        while True:
            try:
                request = self._requests.get_nowait()
            except queue.Empty:
                return
            request.future.set_exception(
                ConnectError(f"the reader of topic '{self.topic}' has ended")
            )

    def await_end(self, timeout: float) -> None:
        """Wait for `read_to_end`.

        Raises:
            LogTimeoutError: It took longer than `timeout` seconds.
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
        done: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        """Write one record, soon; `done` is called on the reader's thread, or on the one that
        flushes.

        Raises:
            ConnectError: The local queue is full, or the client cannot go on.
        """
        try:
            self._writer().produce(self.topic, value, key, on_delivery=_delivery(done))
        except BufferError as error:
            raise ConnectError(
                f"too many records wait to be written to topic '{self.topic}'"
            ) from error
        except KafkaException as error:
            raise ConnectError(
                f"topic '{self.topic}' cannot be written: {error.args[0].str()}"
            ) from error

    def write(self, key: bytes, value: bytes | None, timeout: float) -> None:
        """Write one record and wait for its acknowledgement.

        Raises:
            LogTimeoutError: There was none in time; the record may still arrive.
            ConnectError: The broker refused it.
        """
        outcome: Future[None] = Future()

        def done(error: KafkaError | None) -> None:
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(
                    ConnectError(f"topic '{self.topic}' was not written: {error.str()}")
                )

        self.send(key, value, done)
        self.flush(timeout)
        if not outcome.done():
            raise LogTimeoutError(
                f"timed out after {timeout:g} s while writing topic '{self.topic}'"
            )
        outcome.result()

    def flush(self, timeout: float) -> None:
        """Wait until everything sent so far was acknowledged or refused, at most `timeout`
        seconds."""
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
                        consumer = self._succeeded(consumer)
        finally:
            consumer.close()
            self._refuse_requests()
            for request in waiting:
                request.future.set_exception(
                    ConnectError(f"the reader of topic '{self.topic}' has ended")
                )

    def _assign(self, consumer: Consumer) -> bool:
        """Take all partitions from their beginning, waiting for the topic as long as it takes."""
        since, warned = self._clock.monotonic(), False
        while not self._stopping.is_set():
            try:
                found = consumer.list_topics(self.topic, timeout=2.0).topics[self.topic]
                if found.error is None and found.partitions:
                    consumer.assign(
                        [
                            KafkaTopicPartition(self.topic, p, OFFSET_BEGINNING)
                            for p in found.partitions
                        ]
                    )
                    self._positions = dict.fromkeys(found.partitions, 0)
                    return True
            except KafkaException as error:
                log.debug("topic %s: no metadata yet: %s", self.topic, error)
            if not warned and self._clock.monotonic() - since > METADATA_SECONDS:
                warned = True
                log.warning(
                    "topic '%s' is not known to the cluster after %g s; still waiting",
                    self.topic,
                    METADATA_SECONDS,
                )
            self._stopping.wait(POLL_SLICE_SECONDS)
        return False

    def _step(self, consumer: Consumer, waiting: list[_ReadToEnd]) -> None:
        message = consumer.poll(POLL_SLICE_SECONDS)
        if message is not None:
            self._take(message)
            for more in consumer.consume(BATCH, 0):
                self._take(more)
        if self._producer is not None:
            self._producer.poll(0)
        while not self._requests.empty():
            waiting.append(self._requests.get())
        self._ask_ends(consumer, [request for request in waiting if request.ends is None])
        for request in [r for r in waiting if r.ends is not None and self._reached(r.ends)]:
            waiting.remove(request)
            request.future.set_result(None)

    def _is_stalled(self, waiting: Sequence[_ReadToEnd]) -> bool:
        """Whether the client has stopped without a word, which was seen after a broker had been
        away for a while."""
        now = self._clock.monotonic()
        if self._moved or not any(request.ends is not None for request in waiting):
            self._moved, self._moved_at = False, now
        return now - self._moved_at >= STALLED_SECONDS

    def _succeeded(self, stalled: Consumer) -> Consumer:
        """A new client that goes on where this one stood."""
        log.warning(
            "topic '%s' is longer than what was read, and nothing came for %g s: a new client "
            "reads it",
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
        self._moved_at = self._clock.monotonic()
        return consumer

    def _take(self, message: Message) -> None:
        self._moved = True
        error = message.error()
        partition, offset = message.partition() or 0, message.offset() or 0
        if error is not None:
            if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                # the client demands the name of a group and asks for its coordinator; this one
                # joins none
                return
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                self.refusal = (
                    f"topic '{self.topic}' may not be read: {error.str()} (ACL: Read "
                    f"and Describe on it)"
                )
            if error.code() == KafkaError._PARTITION_EOF:
                self.refusal = None
                self._positions[partition] = max(self._positions.get(partition, 0), offset)
            elif error.fatal():
                log.error("topic %s cannot be read: %s", self.topic, error.str())
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
                "topic %s, partition %d, offset %d could not be applied",
                self.topic,
                partition,
                offset,
            )
        self._positions[partition] = offset + 1

    def _ask_ends(self, consumer: Consumer, requests: list[_ReadToEnd]) -> None:
        if not requests or self._admin is None or self._clock.monotonic() < self._ask_again_at:
            return
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library's
        spec = {KafkaTopicPartition(self.topic, p): latest for p in self._positions}
        try:
            answers = self._admin.list_offsets(
                spec, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ADMIN_SECONDS
            )
            ends = {
                partition.partition: future.result().offset for partition, future in answers.items()
            }
        except KafkaException as error:
            now = self._clock.monotonic()
            since = self._unknown_since = (
                now if self._unknown_since is None else self._unknown_since
            )
            # a topic that was just made has no leader for a moment
            lasts = now - since >= PATIENCE_SECONDS
            level = logging.WARNING if lasts else logging.INFO
            client_log.log(
                level, "end of topic %s is not known yet: %s", self.topic, error.args[0].str()
            )
            # The client keeps the leader epoch that a restarted broker refuses, so a new one asks
            # again.
            self._admin = self._clients.admin()
            self._ask_again_at = self._clock.monotonic() + ADMIN_PAUSE_SECONDS
            return  # callers that wait have a deadline
        self._unknown_since = None
        lower = {
            partition: end
            for partition, end in ends.items()
            if end < self._positions.get(partition, 0)
        }
        # brokers that go down or come up have been seen to say so
        if lower and lower != self._seemed_lower:
            self._seemed_lower = lower
            self._ask_again_at = self._clock.monotonic() + ADMIN_PAUSE_SECONDS
            return
        self._seemed_lower = {}
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
            return  # and the ends are asked for again, as it may still be growing
        for request in requests:
            request.ends = ends

    def _reset(self, partition: int) -> None:
        """Offsets went back: this is another topic of the same name."""
        log.warning("topic %s was made anew: it is read again", self.topic)
        self._positions[partition] = 0
        if self._on_reset is not None:
            self._on_reset()

    def _reached(self, ends: Mapping[int, int]) -> bool:
        return all(self._positions.get(partition, 0) >= end for partition, end in ends.items())


@dataclass(frozen=True, slots=True)
class KafkaLogs:
    """Opens topics as logs: a `LogMaker`."""

    clients: StorageClients

    def log(
        self, topic: str, client: str, apply: Callable[[LogRecord], None], *, read_committed: bool
    ) -> KafkaBasedLog:
        return KafkaBasedLog(topic, self.clients, client, apply, read_committed=read_committed)


def _delivery(
    done: Callable[[KafkaError | None], None] | None,
) -> Callable[[KafkaError | None, Message], None] | None:
    return None if done is None else lambda error, _message: done(error)

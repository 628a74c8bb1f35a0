"""`SinkConsumer`: consumer for a sink task, with short polls and a rebalance listener."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.message_run import MessageRun
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.broker_errors import LastBrokerError
from connect_py.kafka.client_log import client_log
from connect_py.metrics.client_statistics import INTERVAL_MS, ClientStatistics
from connect_py.task.sink.consumed_messages import Consumed, message_runs
from connect_py.task.sink.paused_ends import PausedEnds
from connect_py.task.sink.queue_reader import PLUGINS, QueueReader
from connect_py.task.sink.start_positions import FIND_SECONDS, StartPositions

log = logging.getLogger(__name__)

CALLBACK_SECONDS: Final = 0.05  # maximum delay of a callback while waiting for messages
REPEAT_LOG_SECONDS: Final = 60.0  # minimum time between log lines about the same temporary error
# maximum total size of the values per poll; processing needs several times as much memory
POLL_BYTES: Final = 16 << 20
_COOPERATIVE: Final = "cooperative-sticky"
# Temporary errors, from which the client recovers automatically.
_TEMPORARY: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._PARTITION_EOF,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NOT_COORDINATOR,
        KafkaError._RESOLVE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.UNKNOWN,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
    }
)

# Client error after the election of a leader with a shorter log. The regex group captures the end
# of that log, or -1 if it is unknown.
_TRUNCATED: Final = re.compile(
    r"(?:log truncation detected at|No epoch found) .*: broker end offset is (-?\d+)"
)

Committed: TypeAlias = Callable[
    [KafkaError | None, Mapping[TopicPartition, OffsetAndMetadata]], None
]


class RebalanceListener(Protocol):
    """Receives rebalance events on the thread that calls `poll`.

    Errors from the listener propagate through `poll`.
    """

    def on_assigned(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle newly assigned partitions.

        `positions` contains the next offset to read and the committed metadata of each partition.
        """

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle revoked partitions. The task owns them until this method returns."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Handle lost partitions, which another task may already own."""

    def on_position_lost(self, partition: TopicPartition) -> bool:
        """Handle a position that the log no longer contains.

        Return False if the consumer should resume at the truncation offset or at the position that
        `auto.offset.reset` selects.
        """


class SinkConsumer:
    """Consumer for one sink task. Used on one thread.

    Start positions are set explicitly and are therefore always known.
    """

    def __init__(
        self, settings: Mapping[str, object], listener: RebalanceListener, on_commit: Committed
    ) -> None:
        """Create the client, which connects in the background.

        Raises:
            ConnectError: The settings are invalid.
        """
        self._listener = listener
        self._on_commit = on_commit
        self._incremental = _COOPERATIVE in str(settings.get("partition.assignment.strategy", ""))
        self._reset = str(settings.get("auto.offset.reset", "earliest"))
        self._assigned: set[TopicPartition] = set()
        # position of each partition that was assigned or repositioned during the current poll
        self._moved_in_poll: dict[TopicPartition, int] = {}
        self._revoked_in_poll = False  # partitions were revoked during the current poll
        self._seeks: dict[TopicPartition, int] = {}
        # next offset to return, by assigned partition
        self._next: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        # assigned partitions without messages so far; the reader must start following them, or
        # follow them again
        self._unread: set[TopicPartition] = set()
        # partitions that the client has stopped reading and does not accept seeks for
        self._stopped_partitions: set[TopicPartition] = set()
        # error message by partition, for partitions whose log does not contain the next offset
        self._lost: dict[TopicPartition, str] = {}
        # log ends that were reached since the last call to `ends`
        self._ends: dict[TopicPartition, int] = {}
        self._error: BaseException | None = None
        self._closing = False
        self._logged: dict[int, float] = {}  # time of the last log line, by error code
        self._broker_errors = LastBrokerError()
        self.statistics = ClientStatistics("consumer")
        self._reader: QueueReader | None = None
        try:
            self._consumer, self._reader = _client(
                {
                    "statistics.interval.ms": INTERVAL_MS,
                    **settings,
                    "stats_cb": self.statistics.take,
                    # the client would reset silently, but the task may select a better position
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,  # reports positions beyond control records
                    "on_commit": self._committed,
                    "error_cb": self._client_error,
                    "logger": client_log,
                }
            )
        except (KafkaException, TypeError, ValueError) as error:
            raise ConnectError(f"failed to create the consumer: {error}") from error
        self._starts = StartPositions(self._consumer, self._reset, self._check_temporary)
        self._paused_ends = PausedEnds(self._consumer, self.statistics)

    def __del__(self) -> None:
        """Close the reader first because the client cannot close while the reader has messages."""
        self._close_reader()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """Return the partitions that are currently assigned."""
        return frozenset(self._assigned)

    @property
    def cut_off(self) -> str | None:
        """Return the reason why no broker is connected, or None if a broker is connected.

        The result is based on the client's latest statistics.
        """
        return (self._broker_errors.reason or None) if self.statistics.cut_off else None

    def subscribe(self, topics: Sequence[str]) -> None:
        """Replace the current subscription with these topics.

        Partitions are assigned during `poll`.
        """
        self._consumer.subscribe(
            list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )

    def topics(self, timeout: float) -> dict[str, int]:
        """Return the partition count of each existing topic, within `timeout` seconds.

        Raises:
            RetriableError: The cluster does not respond.
            ConnectError: The cluster denies the request.
        """
        try:
            metadata = self._consumer.list_topics(timeout=timeout).topics
        except KafkaException as error:
            kind = ConnectError if error.args[0].code() in REFUSALS else RetriableError
            raise kind(f"failed to list the topics: {error.args[0].str()}") from error
        return {
            name: len(topic.partitions) for name, topic in metadata.items() if topic.error is None
        }

    def poll(self, limit: int, timeout: float) -> list[MessageRun]:
        """Return up to `limit` messages.

        Waits for the first message, then returns the available messages, up to `POLL_BYTES`.

        Messages from partitions that were assigned or revoked during the call are dropped, and are
        read again if necessary. If the log does not contain the next offset, this call returns the
        records before it, and the next call notifies the listener.

        Raises:
            ConnectError: The client has failed.
            Exception: The rebalance listener has failed.
        """
        self._find_positions()
        self._apply_seeks()
        self._paused_ends.update(self._paused)
        self._moved_in_poll.clear()
        self._revoked_in_poll = False
        runs = (
            self._poll_one_by_one(limit, timeout)
            if self._reader is None
            else self._read(self._reader, limit, timeout)
        )
        if self._revoked_in_poll or self._moved_in_poll or self._seeks:
            runs = self._without_moved(runs)
        returned = []
        for run in runs:
            new = run.since(self._next)
            if new is None or len(new) < len(run):
                log.warning("%s: dropping messages that were read twice", run.topic)
            if new is not None:
                self._next |= new.consumed()
                returned.append(new)
        self._next |= {tp: end for tp, end in self._ends.items() if end > self._next.get(tp, end)}
        return returned

    def _read(self, reader: QueueReader, limit: int, timeout: float) -> list[MessageRun]:
        """Serve callbacks and read from the forwarding queue until messages arrive."""
        deadline = time.monotonic() + timeout
        while True:
            stray: Consumed = self._consumer.poll(0)
            self._raise_error()
            if stray is not None:
                self._reread(stray)
            # the queue may contain messages from the previous assignment
            if self._revoked_in_poll or self._moved_in_poll:
                return []
            # when the client stops reading a partition, it removes the forwarding with some delay
            if self._unread:
                reader.follow(self._unread)
            remaining = deadline - time.monotonic()
            if reader.poll(limit, POLL_BYTES, min(remaining, CALLBACK_SECONDS)):
                break
            if remaining <= 0:
                return []
        for code, tp, offset, text in reader.failures():
            self._take_failure(KafkaError(code, text), tp, offset)
        runs = reader.runs()
        if self._unread:
            self._unread.difference_update(*(run.consumed() for run in runs))
        return runs

    def _reread(self, message: Consumed) -> None:
        """Reread a message from the main queue, because its partition is no longer forwarded."""
        is_record = self._is_record(message)
        tp = TopicPartition(message.topic(), message.partition())
        if tp in self._assigned:
            self._unread.add(tp)
            if is_record:
                self._seeks.setdefault(tp, self._next[tp])

    def _poll_one_by_one(self, limit: int, timeout: float) -> list[MessageRun]:
        first = self._consumer.poll(timeout)
        self._raise_error()
        if first is None:
            return []
        messages: list[Consumed] = [first]
        size = len(first)
        while len(messages) < limit and size < POLL_BYTES:
            # estimate how many messages fit, based on the size of the messages so far
            fitting = -(-(POLL_BYTES - size) * len(messages) // max(size, 1))
            requested = min(limit - len(messages), fitting)
            more = self._consumer.consume(requested, 0)
            self._raise_error()
            messages += more
            size += sum(map(len, more))
            if len(more) < requested:
                break
        # a KafkaError is always truthy and cannot be compared with None
        if any(map(Message.error, messages)):
            messages = [m for m in messages if self._is_record(m)]
        return message_runs(messages)

    def ends(self) -> dict[TopicPartition, int]:
        """Return the next offsets of partitions whose log end was reached since the last call.

        All records before these offsets have been returned. The offsets also skip any transaction
        markers and aborted records between the last record and the log end. `poll` does not report
        these.
        """
        ends, self._ends = self._ends, {}
        return ends

    def _is_record(self, message: Consumed) -> bool:
        error = message.error()
        if error is not None:
            self._take_failure(
                error, TopicPartition(message.topic(), message.partition()), message.offset()
            )
        return error is None

    def _take_failure(self, error: KafkaError, tp: TopicPartition, offset: int) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if tp in self._assigned:
                self._ends[tp] = offset
            self._unread.discard(tp)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._lose_position(tp, error.str())
        elif error.code() in _TEMPORARY and not error.fatal():
            self._log_error(error)
        else:
            raise ConnectError(f"the consumer has failed: {error.str()}")

    def _lose_position(self, tp: TopicPartition, reason: str) -> None:
        """Record that the log does not contain the next offset.

        The record was deleted by retention, or the log was truncated or replaced.
        """
        if tp not in self._assigned:
            return
        self._stopped_partitions.add(tp)
        # the error may refer to the previous assignment; if not, the client reports it again
        if tp in self._moved_in_poll:
            self._seeks.setdefault(tp, self._moved_in_poll[tp])
        elif tp not in self._seeks:
            self._lost[tp] = reason

    def _find_positions(self) -> None:
        """Notify the listener of lost positions. Reset the positions that it does not handle.

        The client's error may refer to a position from before a seek or from an earlier assignment.
        Therefore, the listener is called only if the log does not contain the current position.
        After a truncation, the log after the truncation offset is different and may have any
        length. If a broker does not respond, its partition waits while other partitions are read.
        """
        while self._lost:
            tp, reason = next(iter(self._lost.items()))
            del self._lost[tp]
            truncation = _TRUNCATED.search(reason)
            truncated_at = int(truncation[1]) if truncation else None
            try:
                low, high = self._starts.range(tp, FIND_SECONDS)
            except KafkaException as error:
                self._lost[tp] = reason  # tried again after the other partitions
                self._check_temporary(error.args[0], f"failed to find the position of {tp}")
                return
            offset = self._next[tp]
            if low <= offset <= (high if truncated_at is None else truncated_at):
                log.info(
                    "%s: resuming at offset %d, which the log contains: %s", tp, offset, reason
                )
            elif self._listener.on_position_lost(tp):
                continue
            elif self._reset == "error":
                raise ConnectError(
                    f"cannot resume reading {tp}, and auto.offset.reset is none: {reason}"
                )
            else:
                offset = (
                    truncated_at
                    if truncated_at is not None and low <= truncated_at < offset
                    else self._starts.edge(low, high)
                )
                log.warning("%s: resuming at offset %d: %s", tp, offset, reason)
            self._seeks[tp] = self._next[tp] = offset
            self._ends.pop(tp, None)

    def _check_temporary(self, error: KafkaError, context: str) -> None:
        """Log a temporary error. Raise any other error as a ConnectError."""
        if error.code() not in _TEMPORARY or error.fatal():
            raise ConnectError(f"{context}: {error.str()}")
        self._client_error(error)

    def _without_moved(self, runs: list[MessageRun]) -> list[MessageRun]:
        """Drop messages read before their partition was revoked, reassigned, or repositioned."""
        owned = [
            run
            for run in (run.only(self._assigned.__contains__) for run in runs)
            if run is not None
        ]
        self._ends = {tp: end for tp, end in self._ends.items() if tp in self._assigned}
        repositioned = self._moved_in_poll.keys() | self._seeks.keys()
        unmoved = [
            run
            for run in (run.only(lambda tp: tp not in repositioned) for run in owned)
            if run is not None
        ]
        ended = {tp: end for tp, end in self._ends.items() if tp not in repositioned}
        if sum(map(len, unmoved)) < sum(map(len, owned)) or len(ended) < len(self._ends):
            self._ends = ended
            for tp, offset in self._moved_in_poll.items():
                self._seeks.setdefault(tp, offset)
        return unmoved

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # Rebalances. Called from `poll`.

    def _assign(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        try:
            positions = self._starts.of(partitions)
            self._unread |= positions.keys()
            if self._reader is not None:
                self._reader.follow(self._unread)
            start = [
                ClientTopicPartition(tp.topic, tp.partition, at.offset)
                for tp, at in positions.items()
            ]
            if self._incremental:
                self._consumer.incremental_assign(start)
            else:
                self._consumer.assign(start)
            self._assigned |= positions.keys()
            self._next |= {tp: at.offset for tp, at in positions.items()}
            self._moved_in_poll |= {tp: at.offset for tp, at in positions.items()}
            self._listener.on_assigned(positions)
        except Exception as error:  # noqa: BLE001 - must not unwind through the client; poll raises it
            self._error = self._error or error

    def _revoke(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._give_up(partitions, self._listener.on_revoked)

    def _lose(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._give_up(partitions, self._listener.on_lost)

    def _give_up(
        self,
        partitions: Sequence[ClientTopicPartition],
        notify: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        revoked = [TopicPartition(p.topic, p.partition) for p in partitions]
        self._revoked_in_poll = True
        try:
            if not self._closing:
                notify(revoked)
        except Exception as error:  # noqa: BLE001 - must not unwind through the client; poll raises it
            self._error = self._error or error
        finally:
            # Otherwise, the client would keep the partition paused after its next assignment, and
            # this task would not resume it.
            self.resume([tp for tp in revoked if tp in self._paused])
            for owned in (self._assigned, self._unread, self._paused, self._stopped_partitions):
                owned.difference_update(revoked)
            for tp in revoked:
                for positions in (
                    self._seeks,
                    self._moved_in_poll,
                    self._next,
                    self._lost,
                    self._ends,
                ):
                    positions.pop(tp, None)
            if self._incremental:
                self._consumer.incremental_unassign(list(partitions))
            else:
                self._consumer.unassign()

    # Requests from the loop

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Pause assigned partitions until `resume` is called."""
        owned = [tp for tp in partitions if tp in self._assigned]
        self._paused.update(owned)
        if owned:
            self._consumer.pause([ClientTopicPartition(*tp) for tp in owned])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume assigned partitions."""
        owned = [tp for tp in partitions if tp in self._assigned]
        self._paused.difference_update(owned)
        if owned:
            self._consumer.resume([ClientTopicPartition(*tp) for tp in owned])

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the next offsets to read.

        Takes effect at the next poll, even if the client applies the seek later.
        """
        owned = {tp: offset for tp, offset in offsets.items() if tp in self._assigned}
        for tp in owned:
            self._lost.pop(tp, None)
            self._ends.pop(tp, None)
        self._seeks |= owned
        self._next |= owned
        self._moved_in_poll |= owned
        self._apply_seeks()

    def _apply_seeks(self) -> None:
        if stuck := {
            tp: offset for tp, offset in self._seeks.items() if tp in self._stopped_partitions
        }:
            self._assign_again(stuck)
        for tp, offset in list(self._seeks.items()):
            try:
                self._consumer.seek(ClientTopicPartition(tp.topic, tp.partition, offset))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise ConnectError(
                        f"cannot seek {tp} to {offset}: {error.args[0].str()}"
                    ) from error
                # the fetcher has not started yet
                log.debug("%s is not being read yet, delaying the seek to %d", tp, offset)
            else:
                del self._seeks[tp]

    def _assign_again(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reassign partitions that the client has stopped reading."""
        if self._incremental:
            again = [ClientTopicPartition(*tp) for tp in offsets]
            self._consumer.incremental_unassign(again)
            self._consumer.incremental_assign(
                [ClientTopicPartition(*tp, offset) for tp, offset in offsets.items()]
            )
        else:
            positions = {tp: self._next[tp] for tp in self._assigned} | dict(offsets)
            self._consumer.assign(
                [ClientTopicPartition(*tp, offset) for tp, offset in positions.items()]
            )
        if self._paused:
            self._consumer.pause([ClientTopicPartition(*tp) for tp in self._paused])
        self._stopped_partitions -= offsets.keys()
        self._unread |= self._assigned
        for tp in offsets:
            del self._seeks[tp]

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Send a commit. The callback receives its result during a later poll."""
        self._consumer.commit(offsets=_client_offsets(offsets), asynchronous=True)

    def commit_and_wait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> KafkaError | None:
        """Send a commit and wait for its result. Return the first error, or None on success."""
        try:
            outcome = self._consumer.commit(offsets=_client_offsets(offsets), asynchronous=False)
        except KafkaException as error:
            first: KafkaError = error.args[0]
            return first
        return next((p.error for p in outcome or () if p.error is not None), None)

    def _committed(self, error: KafkaError | None, partitions: list[ClientTopicPartition]) -> None:
        error = error or next((p.error for p in partitions if p.error is not None), None)
        offsets = {
            TopicPartition(p.topic, p.partition): OffsetAndMetadata(p.offset, p.metadata or "")
            for p in partitions
        }
        self._on_commit(error, offsets)

    def _client_error(self, error: KafkaError) -> None:
        if error.code() in REFUSALS or error.code() == KafkaError._FATAL or error.fatal():
            self._error = self._error or ConnectError(f"the consumer has failed: {error.str()}")
        else:
            self._broker_errors.record(error)
            self._log_error(error)

    def _log_error(self, error: KafkaError) -> None:
        now = time.monotonic()
        if now - self._logged.get(error.code(), -REPEAT_LOG_SECONDS) >= REPEAT_LOG_SECONDS:
            self._logged[error.code()] = now
            log.warning("consumer: %s", error.str())

    def close(self) -> None:
        """Leave the group. The listener is not notified of the remaining partitions."""
        self._closing = True
        self._close_reader()
        self._consumer.close()


def _client(settings: dict[str, Any]) -> tuple[Consumer, QueueReader | None]:
    """Create a client, with a `QueueReader` if the client accepts plugins.

    The native library registers a client even if its creation fails later. Therefore, a reader is
    requested only after the client has been created.
    """
    reading = QueueReader.settings(settings.get(PLUGINS))
    if not reading:
        return Consumer(settings), None
    try:
        client = Consumer({**settings, **reading})
    except KafkaException:
        client = Consumer(settings)
        log.warning(
            "messages are read one by one: the client does not accept the plugin", exc_info=True
        )
        return client, None
    return client, QueueReader.of_new_client()


def _client_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Any]:
    return [
        ClientTopicPartition(tp.topic, tp.partition, offset.offset, offset.metadata)
        for tp, offset in offsets.items()
    ]

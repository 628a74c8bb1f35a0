"""`SinkConsumer`: a task's consumer, made safe to poll in slices; a listener gets the
rebalances."""

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
from connect_py.kafka.broker_errors import BrokerNews
from connect_py.kafka.client_log import client_log
from connect_py.metrics.client_statistics import INTERVAL_MS, ClientStatistics
from connect_py.task.consumed_messages import Consumed, message_runs
from connect_py.task.paused_ends import PausedEnds
from connect_py.task.queue_reader import PLUGINS, QueueReader
from connect_py.task.start_positions import FIND_SECONDS, StartPositions

log = logging.getLogger(__name__)

CALLBACK_SECONDS: Final = 0.05  # how late a callback may be that comes while we wait for messages
NEWS_SECONDS: Final = 60.0  # until an error that passes is logged again: each attempt has it
# of values; what comes of them takes several times as much while they are worked on
POLL_BYTES: Final = 16 << 20
_COOPERATIVE: Final = "cooperative-sticky"
# Messages that carry these errors are news, not the end: the client goes on by itself.
_PASSING: Final = frozenset(
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

# How the client says that a leader was elected whose log ends earlier, and where it does; -1: it
# does not know.
_TRUNCATED: Final = re.compile(
    r"(?:log truncation detected at|No epoch found) .*: broker end offset is (-?\d+)"
)

Committed: TypeAlias = Callable[
    [KafkaError | None, Mapping[TopicPartition, OffsetAndMetadata]], None
]


class RebalanceListener(Protocol):
    """Called inside `poll`, on its thread. Errors are kept and raised by `poll`."""

    def on_assigned(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These partitions came, each with the next offset to read and the metadata committed along
        with it."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions go; they are still ours until this returns."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These partitions are gone, and another task may have them."""

    def on_position_lost(self, partition: TopicPartition) -> bool:
        """The log does not hold the next offset. False: read on where it was truncated, or
        `auto.offset.reset` says."""


class SinkConsumer:
    """One consumer, one thread. Positions are given explicitly at assignment, so that they are
    known."""

    def __init__(
        self, settings: Mapping[str, object], listener: RebalanceListener, on_commit: Committed
    ) -> None:
        """Make the client; it connects in the background.

        Raises:
            ConnectError: The settings are not acceptable.
        """
        self._listener = listener
        self._on_commit = on_commit
        self._incremental = _COOPERATIVE in str(settings.get("partition.assignment.strategy", ""))
        self._reset = str(settings.get("auto.offset.reset", "earliest"))
        self._assigned: set[TopicPartition] = set()
        self._fresh: dict[
            TopicPartition, int
        ] = {}  # assigned or moved inside the running poll, and to where
        self._gave_up = False  # partitions went inside the running poll
        self._seeks: dict[TopicPartition, int] = {}
        self._next: dict[TopicPartition, int] = {}  # assigned, and behind what was returned of it
        self._paused: set[TopicPartition] = set()
        # assigned, and nothing has come yet: to be followed (again)
        self._unheard: set[TopicPartition] = set()
        # the client has given up on them, and takes no seek
        self._stuck: set[TopicPartition] = set()
        self._lost: dict[TopicPartition, str] = {}  # the log does not hold the next offset, and why
        self._ends: dict[
            TopicPartition, int
        ] = {}  # where reading came to the end of the log, until `ends` is asked
        self._error: BaseException | None = None
        self._closing = False
        self._logged: dict[int, float] = {}  # errors, and when
        self._news = BrokerNews()
        self.statistics = ClientStatistics("consumer")
        self._reader: QueueReader | None = None
        try:
            self._consumer, self._reader = _client(
                {
                    "statistics.interval.ms": INTERVAL_MS,
                    **settings,
                    "stats_cb": self.statistics.take,
                    # the client would do it in silence, and the task may know better
                    "auto.offset.reset": "error",
                    "enable.partition.eof": True,  # tells positions beyond control records
                    "on_commit": self._committed,
                    "error_cb": self._client_error,
                    "logger": client_log,
                }
            )
        except (KafkaException, TypeError, ValueError) as error:
            raise ConnectError(f"the consumer cannot be made: {error}") from error
        self._starts = StartPositions(self._consumer, self._reset, self._expect)
        self._paused_ends = PausedEnds(self._consumer, self.statistics)

    def __del__(self) -> None:
        """Let go of the reader first: the client cannot end while the reader holds messages of
        it."""
        self._close_reader()

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that are ours now."""
        return frozenset(self._assigned)

    @property
    def cut_off(self) -> str | None:
        """Why no broker is connected; None: one is, as far as the client's last statistics tell."""
        return (self._news.reason or None) if self.statistics.cut_off else None

    def subscribe(self, topics: Sequence[str]) -> None:
        """Follow these topics, instead of earlier ones; partitions come by `poll`."""
        self._consumer.subscribe(
            list(topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
        )

    def topics(self, timeout: float) -> dict[str, int]:
        """All topics that exist, with their number of partitions; asked for at most `timeout`
        seconds.

        Raises:
            RetriableError: The cluster does not answer.
            ConnectError: It refuses.
        """
        try:
            listed = self._consumer.list_topics(timeout=timeout).topics
        except KafkaException as error:
            kind = ConnectError if error.args[0].code() in REFUSALS else RetriableError
            raise kind(f"the topics cannot be listed: {error.args[0].str()}") from error
        return {
            name: len(topic.partitions) for name, topic in listed.items() if topic.error is None
        }

    def poll(self, limit: int, timeout: float) -> list[MessageRun]:
        """Return up to `limit` messages: wait for the first, then take what is there, until
        `POLL_BYTES` are reached.

        Messages of partitions that came or went during the call are left out; they come again where
        they still matter. Where the log does not hold the next offset, what was read before it is
        returned, and the call after that one asks the listener.

        Raises: ConnectError: The client cannot go on, or a rebalance listener failed (its own error
            then).
        """
        self._find_positions()
        self._apply_seeks()
        self._paused_ends.look(self._paused)
        self._fresh.clear()
        self._gave_up = False
        runs = (
            self._poll_one_by_one(limit, timeout)
            if self._reader is None
            else self._read(self._reader, limit, timeout)
        )
        if self._gave_up or self._fresh or self._seeks:
            runs = self._without_moved(runs)
        returned = []
        for run in runs:
            new = run.since(self._next)
            if new is None or len(new) < len(run):
                log.warning("%s: messages that were read twice are left out", run.topic)
            if new is not None:
                self._next |= new.consumed()
                returned.append(new)
        self._next |= {tp: end for tp, end in self._ends.items() if end > self._next.get(tp, end)}
        return returned

    def _read(self, reader: QueueReader, limit: int, timeout: float) -> list[MessageRun]:
        """Serve callbacks, then read from the queue that partitions are forwarded to, until there
        is something."""
        deadline = time.monotonic() + timeout
        while True:
            stray: Consumed = self._consumer.poll(0)
            self._raise_kept()
            if stray is not None:
                self._take_stray(stray)
            if self._gave_up or self._fresh:  # what the queue holds may be of the assignment before
                return []
            # the client forgets whom it forwards to when it stops reading, and that takes a moment
            if self._unheard:
                reader.follow(self._unheard)
            left = deadline - time.monotonic()
            if reader.poll(limit, POLL_BYTES, min(left, CALLBACK_SECONDS)):
                break
            if left <= 0:
                return []
        for code, tp, offset, text in reader.failures():
            self._take_failure(KafkaError(code, text), tp, offset)
        runs = reader.runs()
        if self._unheard:
            self._unheard.difference_update(*(run.consumed() for run in runs))
        return runs

    def _take_stray(self, message: Consumed) -> None:
        """Read a message again that came by the main queue: its partition is not forwarded."""
        is_record = self._is_record(message)
        tp = TopicPartition(message.topic(), message.partition())
        if tp in self._assigned:
            self._unheard.add(tp)
            if is_record:
                self._seeks.setdefault(tp, self._next[tp])

    def _poll_one_by_one(self, limit: int, timeout: float) -> list[MessageRun]:
        first = self._consumer.poll(timeout)
        self._raise_kept()
        if first is None:
            return []
        messages: list[Consumed] = [first]
        size = len(first)
        while len(messages) < limit and size < POLL_BYTES:
            # if they are like those so far
            fitting = -(-(POLL_BYTES - size) * len(messages) // max(size, 1))
            asked = min(limit - len(messages), fitting)
            more = self._consumer.consume(asked, 0)
            self._raise_kept()
            messages += more
            size += sum(map(len, more))
            if len(more) < asked:
                break
        # an error is true whatever its code, and refuses `==` with None
        if any(map(Message.error, messages)):
            messages = [m for m in messages if self._is_record(m)]
        return message_runs(messages)

    def ends(self) -> dict[TopicPartition, int]:
        """The next offsets of partitions whose end the polls since the last call came to; each
        once.

        Everything below was returned. The log may hold markers of transactions, aborted ones too,
        between the last record and its end: these are passed over, and nothing else tells so.
        """
        found, self._ends = self._ends, {}
        return found

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
            self._unheard.discard(tp)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._lose_position(tp, error.str())
        elif error.code() in _PASSING and not error.fatal():
            self._tell(error)
        else:
            raise ConnectError(f"the consumer cannot go on: {error.str()}")

    def _lose_position(self, tp: TopicPartition, why: str) -> None:
        """The log does not hold the next offset: retention was faster, or it was truncated, or the
        topic is another."""
        if tp not in self._assigned:
            return
        self._stuck.add(tp)
        # said of this assignment, or of the one before; if of this one, it is said again
        if tp in self._fresh:
            self._seeks.setdefault(tp, self._fresh[tp])
        elif tp not in self._seeks:
            self._lost[tp] = why

    def _find_positions(self) -> None:
        """Ask the listener about lost positions; find new ones for what it does not see to.

        What the client tells may be of a position before a seek or of an earlier assignment, and
        nothing marks it: a position that the log does hold is not lost, and the listener is not
        asked. (What follows a truncation is another log, of any length.) Where the broker has no
        answer yet the partition waits, and the others are read on.
        """
        while self._lost:
            tp, why = next(iter(self._lost.items()))
            del self._lost[tp]
            found = _TRUNCATED.search(why)
            cut = int(found[1]) if found else None
            try:
                low, high = self._starts.range(tp, FIND_SECONDS)
            except KafkaException as error:
                self._lost[tp] = why  # behind the others
                self._expect(error.args[0], f"where to read {tp} on is not known")
                return
            offset = self._next[tp]
            if low <= offset <= (high if cut is None else cut):
                log.info("%s is read on from offset %d, which its log holds: %s", tp, offset, why)
            elif self._listener.on_position_lost(tp):
                continue
            elif self._reset == "error":
                raise ConnectError(f"{tp} cannot be read on, and auto.offset.reset is none: {why}")
            else:
                offset = (
                    cut if cut is not None and low <= cut < offset else self._starts.edge(low, high)
                )
                log.warning("%s is read on from offset %d: %s", tp, offset, why)
            self._seeks[tp] = self._next[tp] = offset
            self._ends.pop(tp, None)

    def _expect(self, error: KafkaError, what: str) -> None:
        """Tell of an error that passes, and raise others as `ConnectError`."""
        if error.code() not in _PASSING or error.fatal():
            raise ConnectError(f"{what}: {error.str()}")
        self._client_error(error)

    def _without_moved(self, runs: list[MessageRun]) -> list[MessageRun]:
        """Leave out messages read before a partition went, came again or was moved, or before a
        seek still to come."""
        ours = [
            run
            for run in (run.only(self._assigned.__contains__) for run in runs)
            if run is not None
        ]
        self._ends = {tp: end for tp, end in self._ends.items() if tp in self._assigned}
        moved = self._fresh.keys() | self._seeks.keys()
        kept = [
            run for run in (run.only(lambda tp: tp not in moved) for run in ours) if run is not None
        ]
        ended = {tp: end for tp, end in self._ends.items() if tp not in moved}
        if sum(map(len, kept)) < sum(map(len, ours)) or len(ended) < len(self._ends):
            self._ends = ended
            for tp, offset in self._fresh.items():
                self._seeks.setdefault(tp, offset)
        return kept

    def _raise_kept(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    # Rebalances. Everything below runs inside `poll`.

    def _assign(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        try:
            positions = self._starts.of(partitions)
            self._unheard |= positions.keys()
            if self._reader is not None:
                self._reader.follow(self._unheard)
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
            self._fresh |= {tp: at.offset for tp, at in positions.items()}
            self._listener.on_assigned(positions)
        except Exception as error:  # noqa: BLE001 - an error must not unwind through the client; poll raises it
            self._error = self._error or error

    def _revoke(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._give_up(partitions, self._listener.on_revoked)

    def _lose(self, consumer: Consumer, partitions: list[ClientTopicPartition]) -> None:
        self._give_up(partitions, self._listener.on_lost)

    def _give_up(
        self,
        partitions: Sequence[ClientTopicPartition],
        tell: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        going = [TopicPartition(p.topic, p.partition) for p in partitions]
        self._gave_up = True
        try:
            if not self._closing:
                tell(going)
        except Exception as error:  # noqa: BLE001 - an error must not unwind through the client; poll raises it
            self._error = self._error or error
        finally:
            # The client would keep a partition paused for when it comes back, and this task would
            # not resume it then.
            self.resume([tp for tp in going if tp in self._paused])
            for owned in (self._assigned, self._unheard, self._paused, self._stuck):
                owned.difference_update(going)
            for tp in going:
                for known in (self._seeks, self._fresh, self._next, self._lost, self._ends):
                    known.pop(tp, None)
            if self._incremental:
                self._consumer.incremental_unassign(list(partitions))
            else:
                self._consumer.unassign()

    # What the loop asks for.

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Read nothing from these (those that are ours) until `resume`."""
        ours = [tp for tp in partitions if tp in self._assigned]
        self._paused.update(ours)
        if ours:
            self._consumer.pause([ClientTopicPartition(*tp) for tp in ours])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these again."""
        ours = [tp for tp in partitions if tp in self._assigned]
        self._paused.difference_update(ours)
        if ours:
            self._consumer.resume([ClientTopicPartition(*tp) for tp in ours])

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make these the next offsets to read; holds for the next poll, also where the client needs
        a moment."""
        wanted = {tp: offset for tp, offset in offsets.items() if tp in self._assigned}
        for tp in wanted:
            self._lost.pop(tp, None)
            self._ends.pop(tp, None)
        self._seeks |= wanted
        self._next |= wanted
        self._fresh |= wanted
        self._apply_seeks()

    def _apply_seeks(self) -> None:
        if stuck := {tp: offset for tp, offset in self._seeks.items() if tp in self._stuck}:
            self._assign_again(stuck)
        for tp, offset in list(self._seeks.items()):
            try:
                self._consumer.seek(ClientTopicPartition(tp.topic, tp.partition, offset))
            except KafkaException as error:
                if error.args[0].code() != KafkaError._STATE:
                    raise ConnectError(
                        f"cannot seek {tp} to {offset}: {error.args[0].str()}"
                    ) from error
                # its fetcher is not up yet
                log.debug("%s is not read yet, seek to %d waits", tp, offset)
            else:
                del self._seeks[tp]

    def _assign_again(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have the client begin anew with partitions that it has given up on."""
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
        self._stuck -= offsets.keys()
        self._unheard |= self._assigned
        for tp in offsets:
            del self._seeks[tp]

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Send a commit; its outcome comes to the callback, inside a later poll."""
        self._consumer.commit(offsets=_client_offsets(offsets), asynchronous=True)

    def commit_and_wait(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> KafkaError | None:
        """Send a commit and wait for its outcome: None, or the first error."""
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
            self._error = self._error or ConnectError(f"the consumer cannot go on: {error.str()}")
        else:
            self._news.heard(error)
            self._tell(error)

    def _tell(self, error: KafkaError) -> None:
        now = time.monotonic()
        if now - self._logged.get(error.code(), -NEWS_SECONDS) >= NEWS_SECONDS:
            self._logged[error.code()] = now
            log.warning("consumer: %s", error.str())

    def close(self) -> None:
        """Leave the group. Partitions that are left are given up without a word to the listener."""
        self._closing = True
        self._close_reader()
        self._consumer.close()


def _client(settings: dict[str, Any]) -> tuple[Consumer, QueueReader | None]:
    """Make a client that can be read in large pieces, or, where it does not take plugins, one that
    cannot.

    The library knows of a client that it was made with even if making that one failed afterwards:
    it is asked for its reader only where that one is there.
    """
    reading = QueueReader.settings(settings.get(PLUGINS))
    if not reading:
        return Consumer(settings), None
    try:
        client = Consumer({**settings, **reading})
    except KafkaException:
        client = Consumer(settings)
        log.warning("messages are read one by one: the client refuses a plugin", exc_info=True)
        return client, None
    return client, QueueReader.of_new_client()


def _client_offsets(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[Any]:
    return [
        ClientTopicPartition(tp.topic, tp.partition, offset.offset, offset.metadata)
        for tp, offset in offsets.items()
    ]

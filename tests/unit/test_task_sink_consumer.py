from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.api.message_run import MessageRun
from connect_py.api.record import TopicPartition
from connect_py.task.sink import sink_consumer, start_positions
from connect_py.task.sink.queue_reader import PLUGINS, ClientFailure, QueueReader
from connect_py.task.sink.sink_consumer import RebalanceListener, SinkConsumer

ORDERS = TopicPartition("orders", 0)


class _Client:
    """A client that has these messages ready, all at once; its log holds offsets 5000 to 6000."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self._on_assign: Callable[..., None] | None = None
        self.positions: list[int] = []  # that it was assigned or sent to, in order
        self.watermarks: list[tuple[int, int] | KafkaError] = []  # answers before the usual one
        self.offset = 600  # that the group committed
        self.listed: KafkaError | None = None  # instead of topics

    def subscribe(self, topics: list[str], on_assign: Callable[..., None], **_: Any) -> None:
        self._on_assign = on_assign

    def poll(self, timeout: float) -> Message | None:
        if self._on_assign is not None:
            on_assign, self._on_assign = self._on_assign, None
            on_assign(self, [ClientTopicPartition(*ORDERS)])
        return self.messages.pop(0) if self.messages else None

    def consume(self, limit: int, timeout: float) -> list[Message]:
        taken, self.messages = self.messages[:limit], self.messages[limit:]
        return taken

    def committed(
        self, partitions: list[ClientTopicPartition], timeout: float
    ) -> list[ClientTopicPartition]:
        return [ClientTopicPartition(p.topic, p.partition, self.offset) for p in partitions]

    def position(self, partitions: list[ClientTopicPartition]) -> list[ClientTopicPartition]:
        return partitions

    def assign(self, partitions: list[ClientTopicPartition]) -> None:
        self.positions += [p.offset for p in partitions]

    def seek(self, partition: ClientTopicPartition) -> None:
        self.positions.append(partition.offset)

    def list_topics(self, timeout: float) -> None:
        raise KafkaException(self.listed)

    def get_watermark_offsets(
        self, partition: ClientTopicPartition, timeout: float
    ) -> tuple[int, int]:
        answer = self.watermarks.pop(0) if self.watermarks else (5000, 6000)
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer


class _Task(RebalanceListener):
    """Sees to a lost position by going to an offset, if it is given one."""

    consumer: SinkConsumer

    def __init__(self, goes_to: int | None = None) -> None:
        self._goes_to = goes_to
        self.lost: list[TopicPartition] = []

    def on_position_lost(self, partition: TopicPartition) -> bool:
        self.lost.append(partition)
        if self._goes_to is not None:
            self.consumer.seek({partition: self._goes_to})
        return self._goes_to is not None


def _record(offset: int) -> Message:
    return Message(topic="orders", partition=0, offset=offset, value=b"x")


def _news(code: int, reason: str | None = None) -> Message:
    return Message(topic="orders", partition=0, error=KafkaError(code, reason))


def _lost(reason: str = "Broker: Offset out of range") -> Message:
    return _news(KafkaError._AUTO_OFFSET_RESET, reason)


def _consumer(monkeypatch: pytest.MonkeyPatch, messages: list[Message]) -> SinkConsumer:
    monkeypatch.setattr(sink_consumer, "Consumer", lambda _: _Client(messages))
    return SinkConsumer({}, listener=None, on_commit=lambda *_: None)  # type: ignore[arg-type]  # no rebalance here


def _reader(
    monkeypatch: pytest.MonkeyPatch, messages: list[Message], task: _Task, reset: str = "earliest"
) -> tuple[SinkConsumer, _Client]:
    """A consumer that was just assigned its one partition, from offset 600."""
    client = _Client([])
    monkeypatch.setattr(sink_consumer, "Consumer", lambda _: client)
    task.consumer = SinkConsumer({"auto.offset.reset": reset}, task, lambda *_: None)
    task.consumer.subscribe(["orders"])
    assert task.consumer.poll(100, 0) == []
    assert client.positions == [600]
    client.messages = messages
    return task.consumer, client


def _offsets(runs: list[MessageRun]) -> list[int]:
    return [offset for run in runs for offset in run.offsets.to_pylist()]


def test_topic_that_does_not_exist_yet_causes_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _consumer(monkeypatch, [_news(KafkaError.UNKNOWN_TOPIC_OR_PART)])
    assert consumer.poll(100, 0) == []


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError.INCONSISTENT_TOPIC_ID,
    ],
)
def test_transient_client_error_is_logged_at_intervals_and_fails_nothing(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = _consumer(
        monkeypatch, [_news(code, "broker 1"), _record(4), _news(code, "broker 1")]
    )
    assert _offsets(consumer.poll(100, 0)) == [4]
    assert caplog.messages == ["consumer: broker 1"]
    monkeypatch.setattr(sink_consumer, "REPEAT_LOG_SECONDS", 0)
    consumer._take_failure(KafkaError(code, "broker 1"), ORDERS, 5)
    assert caplog.messages == ["consumer: broker 1"] * 2


def test_records_beside_news_of_the_client_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = _consumer(monkeypatch, [_record(4), _end(5), _record(5)])
    assert _offsets(consumer.poll(100, 0)) == [4, 5]


@pytest.mark.parametrize(
    "code", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.INVALID_MSG, KafkaError._BAD_MSG]
)
def test_an_error_that_the_client_cannot_survive_is_raised(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = _consumer(monkeypatch, [_record(4), _news(code)])
    with pytest.raises(ConnectError, match="the consumer has failed"):
        consumer.poll(100, 0)


def test_records_read_before_a_lost_position_arrive_before_the_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _Task()
    consumer, client = _reader(monkeypatch, [*map(_record, range(600, 640)), _lost()], task)
    assert _offsets(consumer.poll(100, 0)) == list(range(600, 640))
    client.messages.append(_record(5000))
    assert _offsets(consumer.poll(100, 0)) == [5000]
    assert task.lost == [ORDERS]
    assert client.positions == [600, 5000]


def test_task_may_choose_where_to_read_after_a_lost_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _Task(goes_to=300)
    consumer, client = _reader(
        monkeypatch, [_record(600), _lost(), *map(_record, range(300, 303))], task
    )
    assert _offsets(consumer.poll(2, 0)) == [600]
    assert _offsets(consumer.poll(100, 0)) == [300, 301, 302]
    assert client.positions == [600, 300]


def test_seek_by_the_task_suppresses_the_lost_position_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _Task()
    consumer, client = _reader(monkeypatch, [_record(600), _lost()], task)
    consumer.poll(100, 0)
    consumer.seek({ORDERS: 5500})
    assert consumer.poll(100, 0) == []
    assert task.lost == []
    assert client.positions == [600, 5500]


_TRUNCATED = (
    "Partition log truncation detected at offset 900 (leader epoch 3): broker end offset is 640 "
    "(offset leader epoch 2). Reset to INVALID.: Local: Partition log truncation detected "
    "(broker 1)"
)
_NO_EPOCH = (
    "No epoch found less or equal to offset 900 (leader epoch 3): broker end offset is -1 (offset "
    "leader epoch -1). "
    "Reset using configured policy.: Local: Partition log truncation detected (broker 1)"
)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_truncated_log_is_read_from_its_truncation_point(
    reset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _Task()
    consumer, client = _reader(
        monkeypatch, [_record(899), _lost(_TRUNCATED), _record(640)], task, reset
    )
    client.watermarks = [(500, 1000)]  # it has grown again
    assert _offsets(consumer.poll(2, 0)) == [899]
    assert _offsets(consumer.poll(2, 0)) == [640]
    assert task.lost == [ORDERS]
    assert client.positions == [600, 640]


@pytest.mark.parametrize("low", [0, 5000])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_log_truncated_at_an_unknown_offset_follows_the_reset_policy(
    reset: str, low: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = _Task()
    consumer, client = _reader(monkeypatch, [_lost(_NO_EPOCH)], task, reset)
    client.watermarks = [(low, 6000)]
    consumer.poll(100, 0)
    consumer.poll(100, 0)
    assert client.positions == [600, {"earliest": low, "latest": 6000}[reset]]
    assert task.lost == [ORDERS]


def test_truncated_log_without_a_reset_policy_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, _ = _reader(monkeypatch, [_lost(_TRUNCATED)], _Task(), "error")
    consumer.poll(100, 0)
    with pytest.raises(
        ConnectError, match=r"auto\.offset\.reset is none: Partition log truncation"
    ):
        consumer.poll(100, 0)


def test_client_library_still_words_its_truncation_errors_as_expected() -> None:
    folder = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = next(folder.glob("librdkafka*"), None)
    if library is None:
        pytest.skip("the client library of the system is used")
    words = library.read_bytes()
    assert b"log truncation detected at %s: broker end offset is %" in words
    assert b"No epoch found less or equal to %s: broker end offset is %" in words


def test_lost_position_waits_for_its_broker_while_records_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _Task()
    consumer, client = _reader(monkeypatch, [_lost()], task)
    client.watermarks = [
        KafkaError(KafkaError._TIMED_OUT),
        KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION),
    ]
    consumer.poll(100, 0)
    for number in range(len(client.watermarks)):
        client.messages.append(Message(topic="orders", partition=1, offset=number, value=b"x"))
        assert _offsets(consumer.poll(100, 0)) == [number]
        assert client.positions == [600]
    consumer.poll(100, 0)
    assert client.positions == [600, 5000]
    assert task.lost == [ORDERS], "it was asked once"


def test_lost_position_that_stays_unknown_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, client = _reader(monkeypatch, [_lost()], _Task())
    client.watermarks = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
    consumer.poll(100, 0)
    with pytest.raises(ConnectError, match="failed to find the position of orders-0"):
        consumer.poll(100, 0)


def _assigned_without_an_offset(
    monkeypatch: pytest.MonkeyPatch, answers: list[KafkaError]
) -> _Client:
    client = _Client([])
    client.offset, client.watermarks = -1001, [*answers]
    monkeypatch.setattr(sink_consumer, "Consumer", lambda _: client)
    monkeypatch.setattr(start_positions, "RETRY_SECONDS", 0)
    consumer = SinkConsumer({"auto.offset.reset": "latest"}, _Task(), lambda *_: None)
    consumer.subscribe(["orders"])
    consumer.poll(100, 0)
    return client


def test_start_of_a_partition_without_offset_is_requested_until_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passing = [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError._TRANSPORT,
    ]
    client = _assigned_without_an_offset(monkeypatch, [KafkaError(code) for code in passing])
    assert client.positions == [6000]


def test_an_assignment_whose_beginning_stays_unknown_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConnectError, match="failed to find the start position of orders-0"):
        _assigned_without_an_offset(
            monkeypatch, [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)]
        )
    monkeypatch.setattr(start_positions, "REQUEST_SECONDS", 0)
    with pytest.raises(ConnectError, match="failed to find the start position of orders-0"):
        _assigned_without_an_offset(monkeypatch, [KafkaError(KafkaError._TIMED_OUT)])


def test_errors_of_an_earlier_assignment_do_not_move_the_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = _Task()
    consumer, client = _reader(monkeypatch, [_record(600), _lost()], task)
    consumer.subscribe(["orders"])
    assert consumer.poll(100, 0) == [], "the record may be of the assignment before, too"
    client.messages.append(_record(600))
    assert _offsets(consumer.poll(100, 0)) == [600]
    assert task.lost == []
    assert set(client.positions) == {600}


class _Queue:
    """Replaces the compiled reader: returns the client's positions, and no messages."""

    def __init__(self) -> None:
        self.said: list[ClientFailure] = []

    def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Do nothing."""

    def poll(self, limit: int, size: int, timeout: float) -> int:
        return len(self.said)

    def failures(self) -> list[ClientFailure]:
        said, self.said = self.said, []
        return said

    def runs(self) -> list[MessageRun]:
        return []

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
@pytest.mark.parametrize("why", ["Broker: Offset out of range", _TRUNCATED])
def test_loss_queued_during_a_rebalance_does_not_move_valid_positions(
    reset: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, task = _Queue(), _Task()
    monkeypatch.setattr(QueueReader, "settings", lambda _: {PLUGINS: "reader.so"})
    monkeypatch.setattr(QueueReader, "of_new_client", lambda: queue)
    consumer, client = _reader(monkeypatch, [], task, reset)
    queue.said = [ClientFailure(KafkaError._AUTO_OFFSET_RESET, ORDERS, 900, why)]
    consumer.subscribe(["orders"])
    assert consumer.poll(100, 0) == [], "the queue is not read in this one"
    client.watermarks = [KafkaError(KafkaError._TIMED_OUT), (0, 6000)]
    for _ in range(3):
        assert consumer.poll(100, 0) == []
    assert task.lost == []
    assert client.positions == [600, 600, 600], (
        "assigned, assigned, and begun anew: the client may have given up"
    )


def test_task_handling_one_lost_position_may_move_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, client, _ = _rebalancing(monkeypatch)
    moved = {ORDERS: 5100, OTHER: 5200}
    client.messages = [
        Message(
            topic="orders", partition=tp.partition, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)
        )
        for tp in moved
    ]
    told: list[TopicPartition] = []

    def move(partition: TopicPartition) -> bool:
        told.append(partition)
        consumer.seek(moved)
        return True

    consumer._listener.on_position_lost = move  # type: ignore[method-assign]
    consumer.poll(100, 0)
    consumer.poll(100, 0)
    assert told == [ORDERS]
    assert client.positions[2:] == [5100, 5200]


def _end(offset: int) -> Message:
    return Message(
        topic="orders", partition=0, offset=offset, error=KafkaError(KafkaError._PARTITION_EOF)
    )


def test_end_of_a_log_is_reported_once_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, _ = _reader(monkeypatch, [_record(600), _end(602)], _Task())
    assert consumer.ends() == {}
    assert _offsets(consumer.poll(100, 0)) == [600]
    assert consumer.ends() == {ORDERS: 602}
    assert consumer.ends() == {}


def test_end_before_a_seek_or_assignment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, client = _reader(monkeypatch, [_end(700)], _Task())
    consumer.poll(100, 0)
    consumer.seek({ORDERS: 650})
    assert consumer.ends() == {}
    client.messages.append(_end(701))
    consumer.subscribe(["orders"])
    assert consumer.poll(100, 0) == []
    assert consumer.ends() == {}
    consumer.poll(100, 0)
    assert client.positions == [600, 650, 600, 600], "so that the end is told again"


def test_an_end_from_before_a_truncation_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, client = _reader(monkeypatch, [_record(600), _end(900), _lost(_TRUNCATED)], _Task())
    client.watermarks = [(500, 640)]
    consumer.poll(100, 0)
    consumer.poll(100, 0)
    assert consumer.ends() == {}, "reading goes on at 640"


def _polled_sizes(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int], limit: int = 4000
) -> list[list[int]]:
    """The sizes of the values that each poll returns, until nothing is left."""
    values = [
        Message(topic="orders", partition=0, offset=n, value=bytes(size))
        for n, size in enumerate(sizes)
    ]
    consumer = _consumer(monkeypatch, values)
    polls = []
    while runs := consumer.poll(limit, 0):
        polls.append([len(value or b"") for run in runs for value in run.values])
    assert [size for poll in polls for size in poll] == sizes
    return polls


def test_poll_of_large_messages_ends_at_the_byte_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_consumer, "POLL_BYTES", 1000)
    polls = _polled_sizes(monkeypatch, [100] * 95)
    assert [len(poll) for poll in polls] == [10] * 9 + [5]


def test_a_message_beyond_all_bounds_comes_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_consumer, "POLL_BYTES", 1000)
    assert _polled_sizes(monkeypatch, [5000, 5000, 1, 1]) == [[5000], [5000], [1, 1]]


def test_poll_of_small_messages_ends_at_the_record_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_consumer, "POLL_BYTES", 1_000_000)
    polls = _polled_sizes(monkeypatch, [0] * 50 + [100] * 50, limit=60)
    assert [len(poll) for poll in polls] == [60, 40]


def test_what_the_client_gives_twice_is_returned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, client = _reader(monkeypatch, [_record(600), _record(601)], _Task())
    assert _offsets(consumer.poll(100, 0)) == [600, 601]
    client.messages += [_record(600), _record(601), _record(602)]
    assert _offsets(consumer.poll(100, 0)) == [602]
    client.messages += [_record(601), _record(602)]
    assert consumer.poll(100, 0) == []
    consumer.seek({ORDERS: 601})
    client.messages += [_record(601)]
    assert _offsets(consumer.poll(100, 0)) == [601], "as it was asked to"


def test_client_without_plugin_support_is_read_record_by_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(settings: dict[str, Any]) -> _Client:
        if PLUGINS in settings:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG))
        return _Client([_record(4)])

    monkeypatch.setattr(sink_consumer, "Consumer", refuse)
    monkeypatch.setattr(QueueReader, "settings", lambda _: {PLUGINS: "reader.so"})
    monkeypatch.setattr(
        QueueReader, "of_new_client", lambda: pytest.fail("it would be of the client that is gone")
    )
    consumer = SinkConsumer({}, listener=None, on_commit=lambda *_: None)  # type: ignore[arg-type]  # no rebalance here
    assert _offsets(consumer.poll(100, 0)) == [4]


class _Rebalancing(_Client):
    """Has two partitions, and does something inside its second `consume`, as the client does with
    rebalances."""

    def __init__(self) -> None:
        super().__init__([])
        self._calls = 0
        self.callbacks: dict[str, Callable[..., None]] = {}
        self.during_second: Callable[[], None] = lambda: None

    def subscribe(self, topics: list[str], on_assign: Callable[..., None], **others: Any) -> None:
        super().subscribe(
            topics,
            lambda client, _: on_assign(client, [_client_place(tp) for tp in (ORDERS, OTHER)]),
        )
        self.callbacks = others

    def consume(self, limit: int, timeout: float) -> list[Message]:
        self._calls += 1
        if self._calls == 2:
            self.during_second()
        return super().consume(limit, timeout)

    def incremental_assign(self, partitions: list[ClientTopicPartition]) -> None:
        self.assign(partitions)

    def incremental_unassign(self, partitions: list[ClientTopicPartition]) -> None:
        """Do nothing."""


class _Closing(RebalanceListener):
    """Records its calls."""

    def __init__(self) -> None:
        self.closed: list[TopicPartition] = []

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.closed += partitions

    on_lost = on_revoked


OTHER = TopicPartition("orders", 1)


def _client_place(tp: TopicPartition) -> ClientTopicPartition:
    return ClientTopicPartition(tp.topic, tp.partition)


def _rebalancing(monkeypatch: pytest.MonkeyPatch) -> tuple[SinkConsumer, _Rebalancing, _Closing]:
    """A consumer of two partitions whose next poll asks the client more than once, for offsets 600
    to 629."""
    monkeypatch.setattr(sink_consumer, "POLL_BYTES", 1000)
    client, listener = _Rebalancing(), _Closing()
    monkeypatch.setattr(sink_consumer, "Consumer", lambda _: client)
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    consumer = SinkConsumer(settings, listener, lambda *_: None)
    consumer.subscribe(["orders"])
    assert consumer.poll(100, 0) == []
    # the first size makes the consumer request few messages, the others more
    sizes = [100] + [1] * 29
    client.messages = [
        Message(topic="orders", partition=n % 2, offset=600 + n, value=bytes(size))
        for n, size in enumerate(sizes)
    ]
    client.messages.insert(5, _end(700))
    return consumer, client, listener


@pytest.mark.parametrize("event", ["on_revoke", "on_lost"])
def test_poll_returns_nothing_of_a_partition_revoked_during_it(
    event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, client, listener = _rebalancing(monkeypatch)
    client.during_second = lambda: client.callbacks[event](client, [_client_place(ORDERS)])
    polled = consumer.poll(100, 0)
    assert listener.closed == [ORDERS]
    assert {tp for run in polled for tp in run.consumed()} == {OTHER}
    assert _offsets(polled) == list(range(601, 630, 2))
    assert consumer.ends() == {}


def test_poll_returns_nothing_of_a_partition_moved_during_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer, client, _ = _rebalancing(monkeypatch)
    client.during_second = lambda: consumer.seek({ORDERS: 300})
    assert _offsets(consumer.poll(100, 0)) == list(range(601, 630, 2))
    assert consumer.ends() == {}
    client.messages.append(_record(300))
    assert _offsets(consumer.poll(100, 0)) == [300]
    assert client.positions[2:] == [300, 300], "what came of it after the move was left out too"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._TRANSPORT, RetriableError),
        (KafkaError._TIMED_OUT, RetriableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ConnectError),
    ],
)
def test_failed_topic_listing_is_retriable_unless_it_is_refused(
    code: int, kind: type[ConnectError], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, client = _reader(monkeypatch, [], _Task())
    client.listed = KafkaError(code)
    with pytest.raises(ConnectError, match="failed to list the topics") as raised:
        consumer.topics(1.0)
    assert raised.type is kind


def test_news_that_take_turns_are_told_once_each(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = _consumer(monkeypatch, [])
    for _ in range(3):
        consumer._client_error(KafkaError(KafkaError._TRANSPORT, "Connect failed"))
        consumer._client_error(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert caplog.messages == ["consumer: Connect failed", "consumer: 1/1 brokers are down"]

"""The internal topics on a real broker: what is written, what is read back, and by which
settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from connect_py.api.errors import ConfigError
from connect_py.config.worker_config import StorageTopic
from connect_py.embedded.broker import KafkaBroker
from connect_py.model import ConnectorTaskId, State, Status, TargetState
from connect_py.storage import kafka_based_log
from connect_py.storage.config_state import (
    Change,
    ConnectorChanged,
    RestartRequest,
    RestartRequested,
)
from connect_py.storage.config_store import ConfigStore
from connect_py.storage.control_records import (
    Assignment,
    AssignmentVersion,
    Epoch,
    Heartbeat,
    MemberAssignment,
)
from connect_py.storage.control_store import ControlStore
from connect_py.storage.kafka_based_log import KafkaBasedLog, KafkaLogs
from connect_py.storage.leader_producer import FencedError, LeaderProducer
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.status_store import StatusStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import LogRecord, LogTimeoutError
from connect_py.storage.topic_admin import TopicAdmin

SECONDS = 20.0
TASK = ConnectorTaskId("a", 0)


@pytest.fixture
def clients(kafka_broker: KafkaBroker, topic_prefix: str) -> StorageClients:
    return StorageClients({"bootstrap.servers": kafka_broker.bootstrap_servers}, topic_prefix)


@pytest.fixture
def topic(clients: StorageClients, topic_prefix: str) -> Callable[..., str]:
    def create(name: str, partitions: int = 1) -> str:
        full = f"{topic_prefix}{name}"
        settings = {"cleanup.policy": "compact"}
        TopicAdmin(clients.admin()).ensure(
            StorageTopic(full, "offset.storage.topic", partitions, 1, settings)
        )
        return full

    return create


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


@contextmanager
def config_store(
    name: str, clients: StorageClients, leader: LeaderProducer
) -> Iterator[tuple[ConfigStore, list[Change]]]:
    changes: list[Change] = []
    store = ConfigStore(name, KafkaLogs(clients), leader, changes.extend)
    store.start()
    try:
        store.refresh(SECONDS)
        yield store, changes
    finally:
        store.stop()


def test_config_store_reads_back_its_writes_after_a_restart(
    clients: StorageClients, topic: Callable[..., str], topic_prefix: str
) -> None:
    name, leader = topic("config"), LeaderProducer(clients, topic_prefix)
    leader.acquire(SECONDS)
    with config_store(name, clients, leader) as (store, changes):
        store.put_connector_config("a", {"k": "ä\n", "none": None}, TargetState.PAUSED)
        store.put_task_configs("a", [{"t": "0"}, {"t": "1"}])
        store.put_target_state("a", TargetState.STARTED)
        store.put_restart_request(RestartRequest("a", include_tasks=True, only_failed=False))
        store.put_task_count_record("a", 2)
        before = store.snapshot()
        assert before.configs["a"] == {"k": "ä\n", "none": None}
        assert before.all_task_configs("a") == [{"t": "0"}, {"t": "1"}]
        assert changes[0] == ConnectorChanged("a")
        assert changes[-1] == RestartRequested(
            RestartRequest("a", include_tasks=True, only_failed=False)
        )
    with config_store(name, clients, leader) as (store, _):
        assert store.snapshot().configs == before.configs
        assert store.snapshot().task_configs == before.task_configs
        assert store.snapshot().start_numbers == before.start_numbers
        assert store.snapshot().target_state("a") is TargetState.STARTED


def test_config_store_reads_java_records_and_skips_aborted_transactions(
    kafka_broker: KafkaBroker, clients: StorageClients, topic: Callable[..., str], topic_prefix: str
) -> None:
    name = topic("config")
    producer = Producer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "transactional.id": f"{topic_prefix}x",
        }
    )
    producer.init_transactions(SECONDS)
    for key, value, commit in (
        ("connector-a", b'{"properties":{"name":"a"}}', True),
        ("connector-a", b'{"properties":{"name":"lost"}}', False),
    ):
        producer.begin_transaction()
        producer.produce(name, value, key)
        producer.flush(SECONDS)
        if commit:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)
    with config_store(name, clients, LeaderProducer(clients, topic_prefix)) as (store, _):
        assert store.snapshot().configs["a"] == {"name": "a"}


def test_old_leader_is_fenced_by_the_new_one(
    clients: StorageClients, topic: Callable[..., str], topic_prefix: str
) -> None:
    name = topic("config")
    old, new = LeaderProducer(clients, topic_prefix), LeaderProducer(clients, topic_prefix)
    old.acquire(SECONDS)
    with config_store(name, clients, old) as (store, _):
        store.put_connector_config("a", {})
        new.acquire(SECONDS)
        with pytest.raises(FencedError):
            store.put_connector_config("b", {})
        with pytest.raises(FencedError):
            store.put_connector_config("b", {})
        assert store.snapshot().connectors() == ["a"]
        store.put_target_state("a", TargetState.PAUSED)  # any worker may
        assert store.snapshot().target_state("a") is TargetState.PAUSED


def test_statuses_are_published_unless_a_newer_owner_has_spoken(
    clients: StorageClients, topic: Callable[..., str]
) -> None:
    name = topic("status", 3)
    store = StatusStore(name, KafkaLogs(clients))
    store.start()
    store.refresh(SECONDS)
    store.put(TASK, Status(State.RUNNING, "w2:1", 8, version="1"))
    eventually(lambda: store.get(TASK) is not None)
    store.put(TASK, Status(State.FAILED, "w1:1", 7, "late"))
    store.put("a", Status(State.RUNNING, "w1:1", 7))
    eventually(lambda: store.get("a") is not None)
    assert store.get(TASK) == Status(State.RUNNING, "w2:1", 8, version="1")
    for _ in range(3):
        store.put_topic(TASK, "orders")  # once is written
    eventually(lambda: [t.topic for t in store.topics("a")] == ["orders"])
    store.delete(TASK)
    store.delete_topics("a")
    store.flush(SECONDS)
    store.refresh(SECONDS)
    assert (store.get(TASK), store.topics("a"), store.highest_generation()) == (None, [], 8)
    store.stop()


def test_offsets_keep_javas_keys_and_javas_partition(
    kafka_broker: KafkaBroker, clients: StorageClients, topic: Callable[..., str]
) -> None:
    name, key = topic("offsets", 25), b'["c",{"zz":1,"filename":"/x"}]'
    java = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers, "partitioner": "murmur2"})
    java.produce(name, b'{"position":5}', key)
    java.flush(SECONDS)
    store = OffsetStore(name, KafkaLogs(clients))
    store.start()
    store.refresh(SECONDS)
    assert store.get("c", {"filename": "/x", "zz": 1}) == {"position": 5}
    store.set(
        "c", [({"filename": "/x", "zz": 1}, {"position": 6}), ({"filename": "/y"}, {"position": 1})]
    ).result(SECONDS)
    store.refresh(SECONDS)
    assert len(store.offsets("c")) == 2
    store.set("c", [({"filename": "/y"}, None)]).result(SECONDS)
    store.refresh(SECONDS)
    assert store.offsets("c") == [({"zz": 1, "filename": "/x"}, {"position": 6})]
    store.stop()
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "raw"})
    consumer.assign([TopicPartition(name, p, 0) for p in range(25)])
    found = []
    while len(found) < 4:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.key() == key:
            found.append(message.partition())
        elif message.error() is None:
            found.append(-1)
    consumer.close()
    assert len({p for p in found if p >= 0}) == 1


def test_control_topic_records_are_read_by_the_next_reader(
    clients: StorageClients, topic: Callable[..., str], topic_prefix: str
) -> None:
    name, leader = topic("control"), LeaderProducer(clients, topic_prefix)
    leader.acquire(SECONDS)
    heartbeat = Heartbeat(
        "m1",
        3,
        "http://w:1/",
        2,
        AssignmentVersion(2, 1),
        17,
        frozenset({"a", ConnectorTaskId("a", 0)}),
    )
    assignment = Assignment(
        AssignmentVersion(2, 1),
        20,
        17,
        {"m1": MemberAssignment("http://w:1/", heartbeat.assigned)},
        {ConnectorTaskId("b-c", 1): "http://w:2/"},
        5,
    )

    class Listener:
        def __init__(self) -> None:
            self.seen: list[object] = []
            self.on_heartbeat = self.on_left = self.on_epoch = self.on_assignment = self.seen.append

        def on_topic_lost(self) -> None:
            raise AssertionError("nobody made the topic anew")

    for _ in range(2):
        first = Listener()
        control = ControlStore(name, clients, leader, first)
        control.start()
        control.put_epoch(Epoch(2, "http://w:1/", 20), SECONDS)
        control._log.write(heartbeat.key, heartbeat.encode(), SECONDS)
        control.put_assignment(Epoch(2, "http://w:1/", 20), assignment, ["m0"], SECONDS)
        control.refresh(SECONDS)
        epoch = Epoch(2, "http://w:1/", 20)
        assert first.seen[-5:] == [epoch, heartbeat, "m0", epoch, assignment]
        control.stop()


def test_reading_a_missing_topic_ends_with_timeout_naming_it(clients: StorageClients) -> None:
    log = KafkaBasedLog("missing-topic", clients, "x", lambda record: None, read_committed=True)
    log.start()
    with pytest.raises(LogTimeoutError, match="while reading topic 'missing-topic' to its end"):
        log.await_end(0.5)
    log.stop()


def test_record_that_cannot_be_applied_does_not_stop_the_reader(
    clients: StorageClients, topic: Callable[..., str]
) -> None:
    name, seen = topic("log"), []

    def apply(record: LogRecord) -> None:
        if record.value == b"bad":
            raise ValueError("bad")
        seen.append(record.value)

    log = KafkaBasedLog(name, clients, "x", apply, read_committed=False)
    log.start()
    for value in (b"1", b"bad", b"2"):
        log.write(b"k", value, SECONDS)
    log.await_end(SECONDS)
    assert seen == [b"1", b"2"]
    log.stop()


def test_topics_are_created_with_settings_and_checked_when_existing(
    kafka_broker: KafkaBroker, clients: StorageClients, topic_prefix: str
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    topics = TopicAdmin(clients.admin())
    wanted = StorageTopic(
        f"{topic_prefix}s",
        "status.storage.topic",
        5,
        -1,
        {"cleanup.policy": "compact", "segment.bytes": "1048576"},
    )
    topics.ensure(wanted)
    topics.ensure(wanted)
    assert len(admin.list_topics(wanted.name, timeout=SECONDS).topics[wanted.name].partitions) == 5
    resource = ConfigResource(ResourceType.TOPIC, wanted.name)
    assert (
        admin.describe_configs([resource])[resource].result(SECONDS)["segment.bytes"].value
        == "1048576"
    )
    with pytest.raises(ConfigError, match="is missing"):
        TopicAdmin(clients.admin(), create=False).ensure(
            StorageTopic("none", "config.storage.topic", 1, 1)
        )
    loose = f"{topic_prefix}loose"
    admin.create_topics([NewTopic(loose, 1, 1, config={"cleanup.policy": "compact,delete"})])[
        loose
    ].result(SECONDS)
    with pytest.raises(ConfigError) as refused:
        topics.ensure(StorageTopic(loose, "status.storage.topic", 1, 1))
    assert "consistency and durability of connector and task statuses" in str(refused.value)
    assert "currently has 'cleanup.policy=compact,delete'" in str(refused.value)


def test_clients_have_the_settings_on_which_correctness_rests(clients: StorageClients) -> None:
    consumer = clients.consumer_settings("configs", read_committed=True)
    assert consumer["isolation.level"] == "read_committed"
    assert (
        clients.consumer_settings("statuses", read_committed=False)["isolation.level"]
        == "read_uncommitted"
    )
    assert (
        consumer["auto.offset.reset"],
        consumer["enable.auto.commit"],
        consumer["enable.auto.offset.store"],
    ) == (
        "earliest",
        False,
        False,
    )
    for producer in (clients.producer_settings("x"), clients.leader_settings("t")):
        assert (producer["partitioner"], producer["acks"]) == ("murmur2_random", "all")
        assert producer["max.in.flight.requests.per.connection"] == 1
    assert clients.leader_settings("t")["transaction.timeout.ms"] == 6_000
    assert (
        clients.member_settings("g", 10_000, 3_000)["partition.assignment.strategy"]
        == "cooperative-sticky"
    )


class _SaysLower:
    """An admin client that puts the end of each partition lower in its first answers."""

    def __init__(self, real: AdminClient, ends: list[int]) -> None:
        self._real = real
        self._ends = ends

    def list_offsets(
        self, spec: dict[TopicPartition, Any], **named: Any
    ) -> dict[TopicPartition, Future[Any]]:
        if not self._ends:
            return self._real.list_offsets(spec, **named)
        end = self._ends.pop(0)
        answers: dict[TopicPartition, Future[Any]] = {partition: Future() for partition in spec}
        for future in answers.values():
            future.set_result(SimpleNamespace(offset=end))
        return answers


@pytest.mark.parametrize(("ends", "times"), [([1], 1), ([0, 1], 1), ([1, 1], 2)])
def test_log_end_that_goes_back_is_requested_again_before_rereading(
    ends: list[int], times: int, clients: StorageClients, topic: Callable[..., str]
) -> None:
    name, seen = topic("log"), []
    log = KafkaBasedLog(
        name, clients, "x", lambda record: seen.append(record.value), read_committed=True
    )
    log.start()
    try:
        for value in (b"1", b"2"):
            log.write(b"k", value, SECONDS)
        log.await_end(SECONDS)
        log._admin = _SaysLower(clients.admin(), ends)  # type: ignore[assignment]  # a fake
        log.await_end(SECONDS)
        log.await_end(SECONDS)
        assert seen == [b"1", b"2"] * times
    finally:
        log.stop()


class _FallsSilent:
    """A consumer that returns nothing any more once `silent` is set."""

    def __init__(self, real: Consumer) -> None:
        self._real = real
        self.silent = False

    def poll(self, timeout: float) -> Message | None:
        message = self._real.poll(timeout)
        return None if self.silent else message

    def consume(self, limit: int, timeout: float) -> list[Message]:
        messages = self._real.consume(limit, timeout)
        return [] if self.silent else messages

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_silent_client_is_replaced_and_reading_resumes_at_same_position(
    clients: StorageClients,
    topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made: list[_FallsSilent] = []
    real = type(clients).consumer

    def consumer(self: StorageClients, client: str, *, read_committed: bool) -> Any:
        made.append(_FallsSilent(real(self, client, read_committed=read_committed)))
        return made[-1]

    monkeypatch.setattr(type(clients), "consumer", consumer)
    monkeypatch.setattr(kafka_based_log, "STALLED_SECONDS", 0.5)
    name, seen = topic("log"), []
    log = KafkaBasedLog(
        name, clients, "x", lambda record: seen.append(record.value), read_committed=True
    )
    log.start()
    try:
        log.write(b"k", b"1", SECONDS)
        log.await_end(SECONDS)
        made[0].silent = True
        log.write(b"k", b"2", SECONDS)
        log.await_end(SECONDS)
        assert (seen, len(made)) == ([b"1", b"2"], 2)
        assert f"topic '{name}' has more records, but none were received" in caplog.text
    finally:
        log.stop()

"""Source tasks of a worker against a real broker: offsets, transactions, topics of their own,
fencing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import fixtures.source_plugins as plugins
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType
from fixtures.topic_reader import read_topic
from fixtures.worker_news import News

from connect_py.api.errors import ConfigError
from connect_py.config.worker_config import StorageTopic
from connect_py.embedded.broker import KafkaBroker
from connect_py.kafka.client_config import ClientConfigs
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry, PluginTable
from connect_py.storage import compact_json
from connect_py.storage.connector_offset_store import ConnectorOffsetStores
from connect_py.storage.kafka_based_log import KafkaLogs
from connect_py.storage.offset_store import OffsetStore
from connect_py.storage.storage_clients import StorageClients
from connect_py.task.source.transaction_outcome import RecordPlace, is_committed
from connect_py.worker.producer_fence import fence_producers
from connect_py.worker.worker import Worker

DEADLINE_SECONDS = 40.0
STRING = "org.apache.kafka.connect.storage.StringConverter"


class Gate:
    """A herder's part, as if there were nothing to fence; writes down what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def fence_zombie_source_tasks(self, name: str) -> Future[None]:
        return self._done(f"fence {name}")

    def verify_source_task(self, id: ConnectorTaskId, start_number: int) -> Future[None]:  # noqa: A002 - Connect's word
        return self._done(f"verify {id} {start_number}")

    def _done(self, what: str) -> Future[None]:
        self.asked.append(what)
        future: Future[None] = Future()
        future.set_result(None)
        return future


class Bench:
    """A worker with its offset topic, and what a test asks of them."""

    def __init__(self, broker: KafkaBroker, prefix: str, directory: Path, **props: str) -> None:
        self.servers, self.prefix, self.directory = broker.bootstrap_servers, prefix, directory
        self.props = {
            "bootstrap.servers": self.servers,
            "group.id": f"{prefix}g",
            "offset.flush.interval.ms": "200",
            "key.converter": STRING,
            "value.converter": STRING,
            "header.converter": STRING,
            "producer.linger.ms": "0",
            **props,
        }
        admin = AdminClient({"bootstrap.servers": self.servers})
        self.topic, offsets = f"{prefix}numbers", f"{prefix}offsets"
        made = admin.create_topics(
            [
                NewTopic(offsets, 2, 1, config={"cleanup.policy": "compact"}),
                NewTopic(self.topic, 1, 1),
            ]
        )
        for future in made.values():
            future.result(DEADLINE_SECONDS)
        clients = StorageClients({"bootstrap.servers": self.servers}, f"{prefix}g-")
        self.offsets = OffsetStore(offsets, KafkaLogs(clients))
        self.offsets.start()
        self.offsets.refresh(DEADLINE_SECONDS)
        shared = StorageTopic(offsets, "offset.storage.topic", 2, 1, {"cleanup.policy": "compact"})
        self.listener, self.gate = News(), Gate()
        discovered = PluginRegistry.discover()
        self.worker = Worker(
            self.props,
            plugins=PluginRegistry([*discovered.tables, PluginTable(plugins.PLUGINS)]),
            listener=self.listener,
            source_offsets=self.offsets,
            offset_stores=ConnectorOffsetStores(self.offsets, self.props, shared),
            gate=self.gate,
        )
        self.worker.start()
        self.log = directory / "log"

    def config(self, **more: str) -> dict[str, str]:
        return {
            "name": "n",
            "connector.class": "test.NumberSourceConnector",
            "topic": self.topic,
            "until": "20",
            "batch": "5",
            "log": str(self.log),
            **more,
        }

    def run(self, config: Mapping[str, str], start_number: int = 1) -> ConnectorTaskId:
        task = ConnectorTaskId(config["name"], 0)
        self.worker.start_task(task, config, config, TargetState.STARTED, start_number)
        return task

    def stop(self, task: ConnectorTaskId) -> None:
        self.worker.stop_tasks([task]).result(DEADLINE_SECONDS)

    def notes(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def values(
        self,
        topic: str,
        isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    ) -> list[str]:
        """Everything in a topic now."""
        return [record.text for record in read_topic(self.servers, topic, isolation)]

    def until(self, check: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not check():
            assert self.listener.failures == [], f"while waiting for {what}"
            assert time.monotonic() < deadline, f"{what} not in time: {self.notes()[-5:]}"
            time.sleep(0.05)

    def failure(self) -> str:
        """The trace of the first task that failed."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self.listener.failures:
            assert time.monotonic() < deadline, "no task failed in time"
            time.sleep(0.05)
        return str(self.listener.failures[0][1])

    def next_number(self) -> object:
        self.offsets.refresh(DEADLINE_SECONDS)
        return (self.offsets.get("n", {"series": "s0"}) or {}).get("next")

    def close(self) -> None:
        self.worker.stop()
        self.offsets.stop()


Make = Callable[..., Bench]


@pytest.fixture
def make(kafka_broker: KafkaBroker, topic_prefix: str, tmp_path: Path) -> Iterator[Make]:
    benches: list[Bench] = []

    def make(**props: str) -> Bench:
        benches.append(Bench(kafka_broker, topic_prefix, tmp_path, **props))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


def numbers(until: int, *without: int) -> list[str]:
    return [str(n) for n in range(until) if n not in without]


def test_filtered_and_tolerated_records_move_the_source_offset_forward(make: Make) -> None:
    bench = make()
    config = bench.config(
        **{
            "transforms": "d",
            "transforms.d.type": "test.DropSevens",
            "errors.tolerance": "all",
            "until": "14",
        }
    )
    task = bench.run(config)
    bench.until(lambda: bench.next_number() == 14, "the offset behind a record that was skipped")
    assert bench.values(bench.topic) == numbers(14, 7, 13)
    assert {"record 6 sent", "record 7 -", "record 13 -"} <= set(bench.notes())
    assert "commit" in bench.notes()
    bench.stop(task)
    assert bench.notes()[-1] == "stop"
    bench.run({**config, "until": "16"})
    bench.until(lambda: bench.next_number() == 16, "the restarted task")
    assert "start 14" in bench.notes()
    assert bench.values(bench.topic) == numbers(16, 7, 13)


def test_transaction_aborted_by_task_is_dropped_and_not_repeated(make: Make) -> None:
    bench = make(**{"exactly.once.source.support": "enabled"})
    config = bench.config(**{"transaction.boundary": "connector", "aborted": "1,2"})
    task = bench.run(config, start_number=7)
    bench.until(lambda: bench.next_number() == 20, "all offsets")
    assert bench.gate.asked == ["fence n", "verify n-0 7"]
    assert bench.values(bench.topic) == numbers(20, *range(5, 15))
    bench.stop(task)
    bench.run({**config, "until": "25"}, start_number=8)
    bench.until(lambda: bench.next_number() == 25, "the restarted task")
    assert "start 20" in bench.notes()
    assert bench.values(bench.topic) == [*numbers(5), *(str(n) for n in range(15, 25))]


@pytest.mark.parametrize("boundary", ["poll", "interval"])
def test_own_offsets_topic_is_written_transactionally_and_copied(make: Make, boundary: str) -> None:
    bench = make(**{"exactly.once.source.support": "enabled"})
    own = f"{bench.prefix}own-offsets"
    config = bench.config(
        **{
            "transaction.boundary": boundary,
            "transaction.boundary.interval.ms": "300",
            "offsets.storage.topic": own,
        }
    )
    task = bench.run(config)
    bench.until(lambda: bench.next_number() == 20, "the copy in the worker's topic")
    assert bench.values(bench.topic) == numbers(20)
    assert compact_json.encode({"next": 20}).decode() in bench.values(own)
    # the copy does not count
    bench.offsets.set("n", [({"series": "s0"}, {"next": 3})]).result(DEADLINE_SECONDS)
    bench.stop(task)
    bench.run({**config, "until": "22"})
    bench.until(lambda: "start 20" in bench.notes(), "the restarted task")


@pytest.mark.parametrize("boundary", [pytest.param("poll", marks=pytest.mark.long), "interval"])
def test_transaction_expired_in_broker_outage_is_repeated_without_loss(
    make: Make, kafka_broker: KafkaBroker, boundary: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = make(**{"exactly.once.source.support": "enabled"})
    transaction_ms = 2_000
    bench.run(
        bench.config(
            **{
                "until": "50",
                "batch": "1",
                "pause": "0.05",
                "transaction.boundary": boundary,
                "transaction.boundary.interval.ms": "500",
                "producer.override.transaction.timeout.ms": str(transaction_ms),
            }
        )
    )
    bench.until(lambda: "commit" in bench.notes(), "the first commit")
    kafka_broker.pause()
    try:
        time.sleep(1.5 * transaction_ms / 1000)
    finally:
        kafka_broker.resume()
    bench.until(lambda: bench.next_number() == 50, "all offsets")
    assert bench.values(bench.topic) == numbers(50)
    assert "replacing the producer" in caplog.text
    assert bench.notes().count("start 0") == 1  # it is the same task all the time
    assert [note for note in bench.notes() if note.startswith("record")] == [
        f"record {n} sent" for n in range(50)
    ]


def test_one_record_tells_whether_its_transaction_was_committed(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    servers, topic = kafka_broker.bootstrap_servers, f"{topic_prefix}outcomes"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_SECONDS)
    settings = StorageClients({"bootstrap.servers": servers}, topic_prefix).consumer_settings(
        "o", read_committed=True
    )
    places: list[RecordPlace] = []

    def write(name: str) -> Producer:
        producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": f"{topic_prefix}{name}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(
            topic, b"x", on_delivery=lambda _, m: places.append(RecordPlace(topic, 0, m.offset()))
        )
        assert producer.flush(30) == 0
        return producer

    deadline = time.monotonic() + DEADLINE_SECONDS

    def check() -> None:
        assert time.monotonic() < deadline, "nobody knows"

    write("a").commit_transaction(30)
    open_one = write("b")
    assert is_committed(settings, places[0], check)
    write("c").commit_transaction(30)  # readers do not see it as long as the one before is open
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(is_committed, settings, places[2], check)
        with pytest.raises(TimeoutError):
            answer.result(1.0)
        open_one.abort_transaction(30)
        assert answer.result(DEADLINE_SECONDS)
    assert not is_committed(settings, places[1], check)
    write("d").abort_transaction(30)
    assert not is_committed(settings, places[3], check)  # nothing follows it


def test_transactional_source_may_not_write_to_its_offsets_topic(make: Make) -> None:
    bench = make(**{"exactly.once.source.support": "enabled"})
    bench.run(bench.config(topic=f"{bench.prefix}offsets"))
    assert "must not write to its offset topic" in bench.failure()


def test_a_topic_that_nobody_makes_is_waited_for(make: Make) -> None:
    bench = make()
    topic = f"{bench.prefix}late"
    bench.run(bench.config(topic=topic))
    bench.until(lambda: "start 0" in bench.notes(), "the start")
    time.sleep(0.5)
    assert not any(note.startswith("record") for note in bench.notes())
    admin = AdminClient({"bootstrap.servers": bench.servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_SECONDS)
    bench.until(lambda: bench.next_number() == 20, "the records")
    assert bench.values(topic) == numbers(20)
    assert bench.listener.failures == []


def test_topic_creation_settings_apply_and_invalid_ones_fail_the_task(make: Make) -> None:
    bench = make()
    topic = f"{bench.prefix}made"
    creation = {
        "topic.creation.default.partitions": "3",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.retention.ms": "123456789",
    }
    bench.run(bench.config(topic=topic, **creation))
    bench.until(lambda: bench.next_number() == 20, "the records")
    admin = AdminClient({"bootstrap.servers": bench.servers})
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 3
    resource = ConfigResource(ResourceType.TOPIC, topic)
    assert (
        admin.describe_configs([resource])[resource].result(10)["retention.ms"].value == "123456789"
    )
    task = ConnectorTaskId("bad", 0)
    config = bench.config(
        name="bad",
        topic=f"{topic}-2",
        **creation | {"topic.creation.default.replication.factor": "9"},
    )
    bench.worker.start_task(task, config, config, TargetState.STARTED, 1)
    assert "replication" in bench.failure().lower()
    started = bench.worker.start_connector(
        "n", bench.config(**{"topic.creation.groups": "a"}), TargetState.STARTED
    )
    with pytest.raises(
        ConfigError, match=r"Missing required configuration \"topic.creation.default.partitions\""
    ):
        started.result(DEADLINE_SECONDS)
    assert bench.listener.failures[-1][0] == "n"


def test_producers_of_all_tasks_of_an_earlier_set_are_fenced(make: Make) -> None:
    bench = make(**{"exactly.once.source.support": "enabled"})
    zombies = []
    for task in range(2):
        zombie = Producer(
            {"bootstrap.servers": bench.servers, "transactional.id": f"{bench.prefix}g-n-{task}"}
        )
        zombie.init_transactions(30)
        zombie.begin_transaction()
        zombie.produce(bench.topic, b"from the grave")
        zombie.flush(30)
        zombies.append(zombie)
    fence_producers(ClientConfigs(bench.props, bench.config(), "n"), 2)
    for zombie in zombies:
        with pytest.raises(KafkaException):
            zombie.commit_transaction(10)
    assert bench.values(bench.topic) == []
    assert bench.values(bench.topic, "read_uncommitted") == ["from the grave"] * 2

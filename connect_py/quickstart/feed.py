"""`Feed`: produces the shop's changes at a constant rate and records when they were written."""

from __future__ import annotations

import bisect
import logging
import threading
import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from connect_py.api.errors import ConnectError
from connect_py.api.record import TopicPartition
from connect_py.quickstart.envelope import key_bytes, topic_of, value_bytes
from connect_py.quickstart.shop import KEYS, Change, Shop

PARTITIONS = 2
TICK_SECONDS = 0.05
ADMIN_SECONDS = 30.0

# otherwise, the clients log to the terminal that shows the live view
_QUIET = logging.getLogger(f"{__name__}.client")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


class Feed:
    """Produces changes between `start` and `stop`. Counters may be read from any thread."""

    def __init__(self, bootstrap_servers: str, changes_per_second: float, seed: int = 7) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers}, logger=_QUIET)
        self._rate = changes_per_second
        self.shop = Shop(seed)
        self.changes = 0
        self.delivery_error: KafkaError | None = None
        self._written: dict[TopicPartition, tuple[list[int], list[float]]] = defaultdict(
            lambda: ([], [])
        )
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def create_topics(self) -> None:
        """Create the shop's topics.

        Raises:
            ConnectError: The broker rejects the request.
        """
        admin = self._admin
        topics = [NewTopic(topic_of(table), PARTITIONS, 1) for table in KEYS]
        for topic, future in admin.create_topics(topics).items():
            try:
                future.result(ADMIN_SECONDS)
            except Exception as error:
                raise ConnectError(f"topic {topic} cannot be created: {error}") from error

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop producing and wait until the broker has acknowledged all changes.

        Raises:
            ConnectError: A change was not written.
        """
        self._stopping.set()
        self._thread.join(ADMIN_SECONDS)
        if self.delivery_error is not None:
            raise ConnectError(f"a change could not be written: {self.delivery_error.str()}")

    def ends(self) -> dict[TopicPartition, int]:
        """Return the end offset of each partition, based on the acknowledged changes."""
        with self._lock:
            return {tp: offsets[-1] + 1 for tp, (offsets, _) in self._written.items() if offsets}

    def committed(self, group: str) -> dict[TopicPartition, int]:
        """Return the committed offsets of a consumer group.

        Raises:
            ConnectError: The broker does not respond.
        """
        settings = {
            "bootstrap.servers": self._bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
        }
        partitions = [
            ClientTopicPartition(topic_of(table), number)
            for table in KEYS
            for number in range(PARTITIONS)
        ]
        try:
            consumer = Consumer(settings, logger=_QUIET)  # never joins the group
            try:
                positions = consumer.committed(partitions, timeout=ADMIN_SECONDS)
            finally:
                consumer.close()
        except KafkaException as error:
            raise ConnectError(f"the offsets of group {group} cannot be read: {error}") from error
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in positions
            if each.offset >= 0
        }

    def written_at(self, partition: TopicPartition, offset: int) -> float | None:
        """Return the time when the first record at or after this offset was acknowledged.

        Return None if there is no such record yet.
        """
        with self._lock:
            offsets, times = self._written[partition]
            index = bisect.bisect_left(offsets, offset)
            return times[index] if index < len(times) else None

    def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "linger.ms": 5,
            },
            logger=_QUIET,
        )
        start = time.monotonic()
        while not self._stopping.is_set():
            due = (time.monotonic() - start) * self._rate
            while self.changes < due:
                for change in self.shop.changes(time.time_ns() // 1000):
                    self._write(producer, change)
            producer.poll(0)
            self._stopping.wait(TICK_SECONDS)
        producer.flush(ADMIN_SECONDS)

    def _write(self, producer: Producer, change: Change) -> None:
        self.changes += 1
        topic, key = topic_of(change.table), key_bytes(change)
        value = value_bytes(change, self.changes, time.time_ns() // 1_000_000)
        # a tombstone follows each delete
        for body in (value, None) if change.after is None else (value,):
            producer.produce(topic, body, key, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, record: Message) -> None:
        if error is not None:
            self.delivery_error = error
            return
        topic, partition, offset = record.topic(), record.partition(), record.offset()
        if topic is None or partition is None or offset is None:
            return
        with self._lock:
            offsets, times = self._written[TopicPartition(topic, partition)]
            offsets.append(offset)
            times.append(time.time())

"""`HelloSender`: writes this worker's hellos to the control topic, on a thread that nothing else
may hold up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.client_log import client_log
from connect_py.storage.control_records import Hello, hello_key
from connect_py.storage.storage_clients import Settings

POLL_SECONDS = 0.05  # the client has no wakeup; news waits this long at worst
STOP_SECONDS = 3.0


class HelloSender:
    """Sends what the group has to say until it is stopped."""

    def __init__(
        self,
        topic: str,
        settings: Settings,
        group: WorkerGroup,
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare. `on_refused` is called on the thread when the broker does not let this worker
        write the topic."""
        self._on_refused = on_refused
        self._topic = topic
        self._settings = settings
        self._group = group
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-hellos", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send what is left, and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        producer = Producer(self._settings, logger=client_log)
        while not self._stopping.is_set():
            self._send(producer)
            producer.poll(POLL_SECONDS)
            self._group.look_at_lease()
        self._send(producer)
        producer.flush(STOP_SECONDS / 2)

    def _send(self, producer: Producer) -> None:
        for member in self._group.farewells():
            self._write(producer, hello_key(member), None, None)
        hello = self._group.hello()
        if hello is not None:
            self._write(producer, hello.key, hello.encode(), hello)

    def _write(
        self, producer: Producer, key: bytes, value: bytes | None, hello: Hello | None
    ) -> None:
        try:
            producer.produce(self._topic, value, key, on_delivery=partial(self._delivered, hello))
        except (BufferError, KafkaException) as error:
            client_log.warning("the control topic cannot be written: %s", error)

    def _delivered(self, hello: Hello | None, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            client_log.warning("a hello did not reach the control topic: %s", error.str())
            if error.code() in REFUSALS:
                self._on_refused(f"topic '{self._topic}' may not be written (ACL: Write on it)")
        if hello is None:
            return
        if error is None:
            self._group.acknowledged(hello.member, hello.number)
        # after a time-out it may have arrived all the same
        elif error.code() != KafkaError._MSG_TIMED_OUT:
            self._group.undelivered(hello.member, hello.number)

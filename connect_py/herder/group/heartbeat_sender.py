"""`HeartbeatSender`: writes this worker's heartbeats to the control topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from connect_py.herder.group.worker_group import WorkerGroup
from connect_py.kafka.authorization_errors import REFUSALS
from connect_py.kafka.client_log import client_log
from connect_py.storage.control_records import Heartbeat, heartbeat_key
from connect_py.storage.storage_clients import Settings

POLL_SECONDS = 0.05  # a poll cannot be interrupted, so it may delay a heartbeat this long
STOP_SECONDS = 3.0


class HeartbeatSender:
    """Sends heartbeats, and announces members that have left, on a dedicated thread."""

    def __init__(
        self,
        topic: str,
        settings: Settings,
        group: WorkerGroup,
        on_refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Create the sender without starting it.

        `on_refused` is called on the sender's thread with a message if the broker does not
        authorize this worker to write to the topic.
        """
        self._on_refused = on_refused
        self._topic = topic
        self._settings = settings
        self._group = group
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="group-hellos", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send the remaining records and stop the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        producer = Producer(self._settings, logger=client_log)
        while not self._stopping.is_set():
            self._send(producer)
            producer.poll(POLL_SECONDS)
            self._group.check_lease()
        self._send(producer)
        producer.flush(STOP_SECONDS / 2)

    def _send(self, producer: Producer) -> None:
        for member in self._group.members_to_announce():
            self._write(producer, heartbeat_key(member), None, None)
        heartbeat = self._group.heartbeat()
        if heartbeat is not None:
            self._write(producer, heartbeat.key, heartbeat.encode(), heartbeat)

    def _write(
        self, producer: Producer, key: bytes, value: bytes | None, heartbeat: Heartbeat | None
    ) -> None:
        try:
            producer.produce(
                self._topic, value, key, on_delivery=partial(self._delivered, heartbeat)
            )
        except (BufferError, KafkaException) as error:
            client_log.warning("failed to write to the control topic: %s", error)

    def _delivered(
        self, heartbeat: Heartbeat | None, error: KafkaError | None, _message: Message
    ) -> None:
        if error is not None:
            client_log.warning(
                "failed to deliver a heartbeat to the control topic: %s", error.str()
            )
            if error.code() in REFUSALS:
                self._on_refused(
                    f"not authorized to write to topic '{self._topic}' (required ACL: Write)"
                )
        if heartbeat is None:
            return
        if error is None:
            self._group.acknowledged(heartbeat.member, heartbeat.number)
        # after a timeout, the record may nevertheless have been written
        elif error.code() != KafkaError._MSG_TIMED_OUT:
            self._group.undelivered(heartbeat.member, heartbeat.number)

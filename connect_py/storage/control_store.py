"""`ControlStore`: the worker group's own topic. It holds the epoch of the leader, and nothing that Java reads."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from connect_py.storage import compact_json
from connect_py.storage.kafka_based_log import KafkaBasedLog
from connect_py.storage.leader_producer import LeaderProducer
from connect_py.storage.storage_clients import StorageClients
from connect_py.storage.storage_log import LogRecord, Write

log = logging.getLogger(__name__)

EPOCH_KEY = b"epoch"
VERSION = 1
WRITE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Epoch:
    """One term of one leader. A higher number wins everywhere; the generation goes into statuses."""

    number: int
    worker_url: str
    generation: int

    def encode(self) -> bytes:
        return compact_json.encode(
            {"v": VERSION, "epoch": self.number, "worker": self.worker_url, "generation": self.generation}
        )

    @staticmethod
    def decode(value: bytes | None) -> Epoch | None:
        """None for anything that is no epoch; fields of later versions are ignored."""
        try:
            data = compact_json.decode(value or b"")
        except ValueError:
            return None
        if not isinstance(data, dict):
            return None
        number, url, generation = data.get("epoch"), data.get("worker"), data.get("generation")
        if not isinstance(number, int) or not isinstance(url, str) or not isinstance(generation, int):
            return None
        return Epoch(number, url, generation)


class ControlStore:
    """Reads the control topic; the leader writes it through its producer. Any thread may read."""

    def __init__(self, topic: str, clients: StorageClients, leader: LeaderProducer) -> None:
        self._topic = topic
        self._leader = leader
        self._lock = threading.Lock()
        self._highest: Epoch | None = None
        self._log = KafkaBasedLog(topic, clients, "control", self._apply, read_committed=True)

    def start(self) -> None:
        """Begin to read; `refresh` tells when the end is reached."""
        self._log.start()

    def stop(self) -> None:
        self._log.stop()

    def refresh(self, timeout: float) -> None:
        """Read to the end; LogTimeoutError."""
        self._log.await_end(timeout)

    def highest(self) -> Epoch | None:
        """The highest epoch read so far."""
        with self._lock:
            return self._highest

    def put_epoch(self, epoch: Epoch) -> None:
        """Announce a term; errors of `LeaderProducer.write`."""
        written = self._leader.write([Write(self._topic, EPOCH_KEY, epoch.encode())], WRITE_SECONDS)
        self._log.await_offset(written, WRITE_SECONDS)

    def _apply(self, record: LogRecord) -> None:
        if record.key != EPOCH_KEY:
            return
        epoch = Epoch.decode(record.value)
        if epoch is None:
            log.warning("control topic, offset %d: no readable epoch; skipped", record.offset)
            return
        with self._lock:
            if self._highest is None or epoch.number > self._highest.number:
                self._highest = epoch

"""A log that stops while Kafka is away leaves nobody waiting."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError

from connect_py.api.errors import ConnectError
from connect_py.storage import kafka_based_log
from connect_py.storage.kafka_based_log import KafkaBasedLog
from connect_py.storage.storage_clients import StorageClients


def test_writes_and_reads_under_way_fail_when_the_log_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_based_log, "STOP_SECONDS", 0.2)
    with socket.socket() as nobody:  # bound and not listening
        nobody.bind(("127.0.0.1", 0))
        clients = StorageClients(
            {"bootstrap.servers": f"127.0.0.1:{nobody.getsockname()[1]}"}, "x-"
        )
        log = KafkaBasedLog("t", clients, "c", lambda record: None, read_committed=True)
        outcomes: list[KafkaError | None] = []
        reading = log.read_to_end()
        log.send(b"k", b"v", outcomes.append)
        log.stop()
        (outcome,) = outcomes
        assert outcome is not None
        for refused in (reading, log.read_to_end()):
            with pytest.raises(ConnectError, match="has ended"):
                refused.result(5)

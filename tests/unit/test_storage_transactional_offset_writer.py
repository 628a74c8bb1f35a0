"""Offsets that cannot be written leave no transaction open, which readers would wait for."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from connect_py.api.errors import ConnectError
from connect_py.storage import transactional_offset_writer
from connect_py.storage.transactional_offset_writer import write_in_transaction


class BrokenProducer:
    """Fails at one step."""

    fails_at = ""
    calls: list[str]

    def __init__(self, settings: object, logger: object) -> None:
        BrokenProducer.calls = self.calls = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails_at:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def init_transactions(self, timeout: float) -> None:
        self._call("init")

    def begin_transaction(self) -> None:
        self._call("begin")

    def produce(self, topic: str, value: bytes | None, key: bytes) -> None:
        self._call("produce")

    def commit_transaction(self, timeout: float) -> None:
        self._call("commit")

    def abort_transaction(self, timeout: float) -> None:
        self._call("abort")


@pytest.mark.parametrize(
    ("fails_at", "calls"),
    [
        ("produce", ["init", "begin", "produce", "abort"]),
        ("commit", ["init", "begin", "produce", "commit", "abort"]),
        ("init", ["init", "abort"]),
    ],
)
def test_failed_write_aborts_its_transaction_and_raises_an_error(
    monkeypatch: pytest.MonkeyPatch, fails_at: str, calls: list[str]
) -> None:
    monkeypatch.setattr(transactional_offset_writer, "Producer", BrokenProducer)
    monkeypatch.setattr(BrokenProducer, "fails_at", fails_at)
    with pytest.raises(ConnectError, match="failed to write offsets to topic 'o'"):
        write_in_transaction({}, "o", [(b"k", None)], 1.0)
    assert BrokenProducer.calls == calls

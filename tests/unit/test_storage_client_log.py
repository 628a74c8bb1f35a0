"""The client library's floods are dammed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from fixtures.storage_fake_clock import FakeClock

from connect_py.kafka.client_log import PATIENCE_SECONDS, QUIET_SECONDS, RepeatFilter, client_log
from connect_py.storage.kafka_based_log import ADMIN_PAUSE_SECONDS, KafkaBasedLog


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("x", logging.ERROR, "x", 1, text, None, None)


def test_repeated_client_message_is_logged_once_with_the_suppressed_count() -> None:
    clock = FakeClock()
    repeats = RepeatFilter(clock)
    assert repeats.filter(record("FAIL [a#consumer-1] [thrd:x]: refused (after 1ms)"))
    assert repeats.filter(record("FAIL [b#consumer-2] [thrd:x]: refused"))
    for _ in range(3):
        assert not repeats.filter(record("FAIL [a#consumer-1] [thrd:y]: refused (after 2ms)"))
    assert repeats.filter(record("TXNERR [a#consumer-1] something else"))
    clock.sleep(QUIET_SECONDS)
    later = record("FAIL [a#consumer-1] [thrd:x]: refused")
    assert repeats.filter(later)
    assert later.getMessage() == "FAIL [a#consumer-1] [thrd:x]: refused (3 more like this in 30 s)"


def test_coordinator_load_is_a_warning_only_after_a_while() -> None:
    clock = FakeClock()
    repeats = RepeatFilter(clock)
    levels = []
    for _ in range(30):
        line = logging.LogRecord(
            "x", logging.WARNING, "x", 1, "GETPID [a#producer-1] load in progress", None, None
        )
        if repeats.filter(line):
            levels.append((clock.now, line.levelname))
        clock.sleep(0.5)
    assert levels == [(0.0, "INFO"), (PATIENCE_SECONDS, "WARNING")]


class UnledTopic:
    """An admin client of a cluster that has not chosen who leads the topic."""

    def list_offsets(self, *_: Any, **__: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "not leader"))


def test_new_topic_without_a_leader_warns_only_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    clients: Any = SimpleNamespace(admin=UnledTopic)
    reader = KafkaBasedLog("t", clients, "c", lambda _: None, read_committed=False, clock=clock)
    reader._admin, reader._positions = clients.admin(), {0: 0}
    caplog.set_level("INFO")
    monkeypatch.setattr(client_log, "filters", [])
    for _ in range(12):
        reader._request_ends(cast(Consumer, None), [cast(Any, object())])
        clock.sleep(ADMIN_PAUSE_SECONDS)
    assert [record.levelname for record in caplog.records] == ["INFO"] * 10 + ["WARNING"] * 2
    assert caplog.messages[0] == "failed to read the end offsets of topic t, will retry: not leader"

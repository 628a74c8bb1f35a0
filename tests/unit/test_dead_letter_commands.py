"""`connect-py dlq`, without Kafka and without a JVM."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from typer.testing import CliRunner

from connect_py.api.errors import ConnectError
from connectors.iceberg.commands.dlq import app
from connectors.iceberg.dead_letters import replay_log
from connectors.iceberg.dead_letters.letter import Letter
from connectors.iceberg.dead_letters.letter_table import LetterTable
from connectors.iceberg.dead_letters.replay_log import ReplayLog

CONFIG = {
    "name": "orders",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "jdbc",
    "errors.deadletterqueue.iceberg.table": "db.dead",
    "errors.deadletterqueue.iceberg.replay.topic": "again",
}


def dlq(folder: Path, command: str, *options: str) -> tuple[int, str]:
    posted = folder / "connector.json"
    posted.write_text(json.dumps(CONFIG))
    told = CliRunner().invoke(app, [command, "--config", str(posted), *options])
    return told.exit_code, told.output


def letter(offset: int) -> Letter:
    return Letter("orders", 0, offset, 0, 1_000, b"k", b"v", [], "value_converter", {})


class TopiclessConsumer:
    """Of a cluster that does not have the topic."""

    def __init__(self, settings: dict[str, Any]) -> None:
        assert settings["allow.auto.create.topics"] is False

    def list_topics(self, topic: str, _timeout: float) -> SimpleNamespace:
        missing = SimpleNamespace(error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), partitions={})
        return SimpleNamespace(topics={topic: missing})

    def close(self) -> None:
        """Nothing is held."""


def test_a_dry_run_takes_no_transactional_id_and_makes_no_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def acts(*_: object) -> None:
        pytest.fail("a dry run acts")

    monkeypatch.setattr(replay_log, "AdminClient", acts)
    monkeypatch.setattr(replay_log, "Producer", acts)
    monkeypatch.setattr(replay_log, "Consumer", TopiclessConsumer)
    monkeypatch.setattr(LetterTable, "letters", lambda *_, **__: [letter(1), letter(2)])
    status, told = dlq(tmp_path, "replay", "--bootstrap-servers", "none:1", "--dry-run")
    assert (status, told) == (0, "2 letters would be replayed, 0 were replayed before\n")


def test_a_topic_that_was_there_and_is_not_seen_now_is_not_taken_for_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_log, "Consumer", TopiclessConsumer)
    log = ReplayLog({"bootstrap.servers": "none:1"}, "again", "orders")
    log._producer = SimpleNamespace()  # type: ignore[assignment] # it is open, and did not make the topic
    with pytest.raises(ConnectError, match="again cannot be read"):
        log.written()

"""Lineage events and notices: their contents, their triggers, and that no caller waits."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from http_sink import HttpSink, http_sink
from iceberg_staging_rows import config, table

from connect_py.api.errors import ConfigError
from connect_py.api.record import TopicPartition
from connect_py.testing import FakePluginMetrics
from connectors.iceberg.config.allowed_settings import refused_settings
from connectors.iceberg.protocol.actions import CommitTable
from connectors.iceberg.protocol.commit_request import (
    CommitCounts,
    CommitOutcome,
    CommitStatus,
    EngineName,
)
from connectors.iceberg.protocol.ledger import Ledger, LedgerEntry, TableVersion, TopicLedger
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg_tools.outlets.background_sender import MAX_WAITING, BackgroundSender
from connectors.iceberg_tools.outlets.lineage import (
    Lineage,
    LineageJob,
    dataset_of,
    lineage_emitter,
)
from connectors.iceberg_tools.outlets.noticed_metrics import NoticedMetrics
from connectors.iceberg_tools.outlets.notices import Notices, to_webhook

JOB = LineageJob(
    "kafka-connect",
    "orders-sink",
    "11111111-1111-4111-8111-111111111111",
    "kafka://b:9092",
    "http://c",
    "1",
)


def commit() -> CommitTable:
    topics = {
        "orders": TopicLedger("i", {0: LedgerEntry(0, 10, 25), 1: LedgerEntry(0, 7, 7)}),
        "quiet": TopicLedger("j", {0: LedgerEntry(0, 3, 3)}),
    }
    ledger = Ledger(Epoch(1, "a"), "c", 1, "u", "k", topics)
    version = TableVersion("u", None, None)
    members: dict[str, Any] = {field.name: None for field in dataclasses.fields(CommitTable)}
    members |= {"table": "shop.orders", "commit": "c", "expected": version, "ledger": ledger}
    return CommitTable(**{**members, "files": {TopicPartition("orders", 0): []}})


def outcome(**more: Any) -> CommitOutcome:
    counts = CommitCounts(added_files=2, added_rows=50)
    return CommitOutcome(CommitStatus.COMMITTED, EngineName.MERGE, 99, "", counts, **more)


def described() -> Any:
    made = table(
        [
            ("id", "int"),
            (
                "tags",
                {"type": "list", "element-id": 9, "element-required": False, "element": "int"},
            ),
        ]
    )
    return dataclasses.replace(
        made, name="shop.orders", location="s3a://bucket/warehouse/shop/orders"
    )


def emitted(**props: str) -> None:
    emit = lineage_emitter(config(**props))
    assert emit is not None
    lineage = Lineage(JOB, emit, lambda _: None)
    lineage.committed(commit(), outcome(), described())
    lineage.close(10)


def check(events: list[dict[str, Any]]) -> None:
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "COMPLETE"]
    running = events[1]
    assert (running["job"]["namespace"], running["job"]["name"]) == ("kafka-connect", "orders-sink")
    assert running["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert {event["run"]["runId"] for event in events} == {JOB.run}
    [source] = running["inputs"]  # a topic without rows in this commit is none
    assert (source["namespace"], source["name"]) == ("kafka://b:9092", "orders")
    assert source["inputFacets"]["kafkaConnectOffsets"]["partitions"] == {"0": [10, 25]}
    [target] = running["outputs"]
    assert (target["namespace"], target["name"]) == ("s3://bucket", "warehouse/shop/orders")
    assert target["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "http://c", "name": "shop.orders", "type": "TABLE"}
    ]
    assert [(f["name"], f["type"]) for f in target["facets"]["schema"]["fields"]] == [
        ("id", "int"),
        ("tags", "list"),
    ]
    assert target["facets"]["version"]["datasetVersion"] == "99"
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 50


def test_commits_are_openlineage_events_over_http() -> None:
    with http_sink() as server:
        emitted(ext__openlineage__url=server.url, ext__openlineage__api_key="not-a-real-key")
    check(server.bodies)
    assert set(server.paths) == {"/api/v1/lineage"}
    assert set(server.authorization) == {"Bearer not-a-real-key"}


def test_commits_are_openlineage_events_in_a_file(tmp_path: Path) -> None:
    emitted(ext__openlineage__file=str(tmp_path / "events.jsonl"))
    check([json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()])


@pytest.mark.parametrize(
    ("location", "dataset"),
    [
        ("file:///w/t", ("file", "/w/t")),
        ("/w/t", ("file", "/w/t")),
        ("gs://b/w/t/", ("gs://b", "w/t")),
        ("abfss://c@a.dfs.core.windows.net/t", ("abfss://c@a.dfs.core.windows.net", "t")),
    ],
)
def test_tables_are_named_by_their_location(location: str, dataset: tuple[str, str]) -> None:
    assert dataset_of(location) == dataset


@pytest.mark.parametrize(
    ("props", "key"),
    [
        ({"ext__openlineage__url": "localhost:5000"}, "iceberg.ext.openlineage.url"),
        ({"ext__notices__webhook": "ftp://x"}, "iceberg.ext.notices.webhook"),
        (
            {"ext__openlineage__url": "http://x", "ext__openlineage__file": "/f"},
            "iceberg.ext.openlineage.file",
        ),
    ],
)
def test_addresses_that_make_no_sense_are_refused(props: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**props)
    assert refused.value.key == key


def test_a_file_of_ones_choice_needs_the_workers_leave() -> None:
    nothing: dict[str, str] = {}
    refused = refused_settings({"iceberg.ext.openlineage.file": "/etc/passwd"}, lambda _: nothing)
    assert [key for key, _ in refused] == ["iceberg.ext.openlineage.file"]


class Told:
    """Metrics that send notices to a server."""

    def __init__(self, server: HttpSink, stale_seconds: float | None = None) -> None:
        self._server = server
        self.notices = Notices("orders-sink", [to_webhook(server.url)], lambda _: None)
        self.metrics = NoticedMetrics(FakePluginMetrics(), self.notices, stale_seconds)

    def kinds(self) -> list[str]:
        self.notices.close(20)
        return [body["kind"] for body in self._server.bodies]


def test_notices_tell_of_turns_and_not_of_states() -> None:
    with http_sink() as server:
        told = Told(server, stale_seconds=60)
        for commits in (False, True, True, False, False):
            told.metrics.unpublished("shop.orders", commits=commits)
        for why in (None, "catalog is away", "catalog is still away", None):
            told.metrics.waiting("open", "shop.orders", why)
        for pending in (True, True, False):
            told.metrics.pending_change("shop.orders", "add column a", pending=pending)
        for lag in (0.0, 59.0, 61.0, 70.0, 3.0):
            told.metrics.age("shop.orders", 0.0, lag)
        told.metrics.evolved("shop.orders", ["add column b of type int"])
        told.metrics.committed("shop.orders", outcome(failed={"paid": 3}))
        told.metrics.committed("shop.orders", outcome())
        assert told.kinds() == [
            "unpublished",
            "published",
            "waiting",
            "working",
            "schema-change-pending",
            "schema-change-done",
            "stale",
            "fresh",
            "schema-changed",
            "not-as-expected",
        ]
    assert {body["connector"] for body in server.bodies} == {"orders-sink"}
    assert server.bodies[2]["text"] == "catalog is away"
    assert server.bodies[-1]["expectations"] == {"paid": 3}


def test_end_of_a_bounded_run_is_one_notice() -> None:
    with http_sink() as server:
        told = Told(server)
        for remaining in (7, 3, 0, 0):
            told.metrics.remaining(remaining)
        assert told.kinds() == ["stopping"]


def test_a_refused_notice_is_sent_again() -> None:
    with http_sink() as server:
        server.refusals = 1
        told = Told(server)
        told.metrics.evolved("shop.orders", ["x"])
        assert told.kinds() == ["schema-changed"]


def test_messages_never_block_and_are_dropped_when_too_many() -> None:
    outcomes: list[str] = []
    going, begun = threading.Event(), threading.Event()

    def send(_: int) -> None:
        begun.set()
        going.wait(20)

    sender = BackgroundSender("test", send, outcomes.append)
    sender.put(0)
    begun.wait(20)
    started = time.monotonic()
    for number in range(MAX_WAITING + 5):
        sender.put(number)
    assert time.monotonic() - started < 5
    assert outcomes == ["dropped"] * 5
    going.set()
    sender.close(20)
    assert outcomes.count("sent") >= 1


def test_messages_that_fail_thrice_are_counted_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "connectors.iceberg_tools.outlets.background_sender._PAUSES", (0.0, 0.0, 0.0)
    )
    outcomes: list[str] = []
    attempts: list[int] = []

    def send(number: int) -> None:
        attempts.append(number)
        if number == 1:
            raise OSError("no route")

    sender = BackgroundSender("test", send, outcomes.append)
    for number in (1, 2):
        sender.put(number)
    sender.close(20)
    assert (attempts, outcomes) == ([1, 1, 1, 2], ["failed", "sent"])

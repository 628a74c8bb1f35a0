"""`connect-py load` up to its first commit: what it refuses, and where it would begin and end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import Result
from fixtures.command_line import command_app, fake_parts
from typer.testing import CliRunner

from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.api.sink_host import SinkHost
from connectors.iceberg.config.keys import STOP_AT
from connectors.iceberg_tools.commands import load_plan
from connectors.iceberg_tools.commands.load import load
from connectors.iceberg_tools.operations import kafka_group

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
CONFIG = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
    "iceberg.catalog.type": "jdbc",
    "iceberg.catalog.uri": "jdbc:sqlite::memory:",
}


class Host:
    """A connector that never ran, and a topic with offsets 5 to 1000 and 0 to 7."""

    group_id = "connect-sink"

    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, OffsetAndMetadata]] = []

    def client_config(self, _kind: str) -> dict[str, Any]:
        return {}

    def worker_settings(self, _prefix: str) -> Mapping[str, str]:
        return {}

    def topics(self) -> list[str]:
        return ["orders"]

    def topic_id(self, _topic: str) -> str:
        return "id"

    def partition_count(self, _topic: str) -> int:
        return 2

    def log_range(
        self, _: Iterable[TopicPartition], *, committed: bool = False
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        return {FIRST: (5, 1000), SECOND: (0, 7)}

    def offsets_at(
        self, _: Iterable[TopicPartition], _timestamp_ms: int
    ) -> Mapping[TopicPartition, int]:
        return {FIRST: 400, SECOND: 7}

    def committed(self, _: Iterable[TopicPartition]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {}

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.commits.append(offsets)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()
    monkeypatch.setattr(kafka_group, "member_count", lambda *_: 0)
    return made


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[TopicPartition, int]]:
    """The starts and the ends that a plan would show."""
    bounds: list[Mapping[TopicPartition, int]] = []
    monkeypatch.setattr(
        load_plan, "show_plan", lambda _context, _props, _host, *found: bounds.extend(found)
    )
    return bounds


def run(host: Host, folder: Path, *words: str, **more: str) -> Result:
    file = folder / "sink.json"
    file.write_text(json.dumps({"name": "sink", "config": {**CONFIG, **more}}))
    app = command_app(load, parts=fake_parts(sink_host=lambda *_: cast(SinkHost, host)))
    return CliRunner().invoke(app, [str(file), "--bootstrap-server", "nowhere:1", *words])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--from", "2999-01-01T00:00:00Z"), "--from: 2999-01-01T00:00:00Z is in the future"),
        (("--to", "2999-01-01T00:00:00Z"), "--to: 2999-01-01T00:00:00Z is in the future"),
        (
            ("--from", "orders:0:900", "--to", "orders:0:100"),
            "--from: orders-0 would begin at offset 900, after its end at",
        ),
        (
            ("--from", "latest", "--to", "2026-01-01T00:00:00Z"),
            "--from: orders-0 would begin at offset 1000",
        ),
    ],
)
def test_bounds_without_a_range_are_refused_before_a_commit(
    host: Host, tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    refused = run(host, tmp_path, *words)
    assert (refused.exit_code, host.commits) == (1, [])
    assert refused.stderr.startswith(f"connect-py: {why}")


@pytest.mark.parametrize(
    ("words", "starts", "ends"),
    [
        ((), (5, 0), (1000, 7)),
        (("--to", "orders:0:100"), (5, 0), (100, 0)),
        (("--from", "2026-01-01T00:00:00Z", "--to", "orders:0:900"), (400, 7), (900, 7)),
    ],
)
def test_partition_that_the_end_leaves_out_is_not_loaded(
    host: Host,
    tmp_path: Path,
    planned: list[Mapping[TopicPartition, int]],
    words: tuple[str, ...],
    starts: tuple[int, int],
    ends: tuple[int, int],
) -> None:
    done = run(host, tmp_path, "--plan", *words)
    assert done.exit_code == 0, done.output
    assert planned == [dict(zip((FIRST, SECOND), each, strict=True)) for each in (starts, ends)]


def test_partition_created_again_is_not_read_beyond_its_end(
    host: Host,
    tmp_path: Path,
    planned: list[Mapping[TopicPartition, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The group still has an offset of the topic of before."""
    monkeypatch.setattr(host, "committed", lambda _: {SECOND: OffsetAndMetadata(1000)})
    done = run(host, tmp_path, "--plan", "--to", "orders:0:100")
    assert done.exit_code == 0, done.output
    assert planned[1] == {FIRST: 100, SECOND: 7}


@pytest.mark.parametrize(
    ("stop_at", "words", "ends"),
    [
        ("latest", (), (1000, 7)),
        ("2026-01-01T00:00:00Z", (), (400, 7)),
        ("orders:0:300", (), (300, 7)),  # as the connector: others to their ends
        ("orders:0:300", ("--to", "orders:0:200,orders:1:3"), (200, 3)),
        ('{"orders": {"0": 300}}', ("--to", "orders:0:500"), (300, 0)),
    ],
)
def test_load_ends_where_its_connector_stops_by_itself(
    host: Host,
    tmp_path: Path,
    planned: list[Mapping[TopicPartition, int]],
    stop_at: str,
    words: tuple[str, ...],
    ends: tuple[int, int],
) -> None:
    done = run(host, tmp_path, "--plan", *words, **{STOP_AT: stop_at})
    assert done.exit_code == 0, done.output
    assert planned[1] == {FIRST: ends[0], SECOND: ends[1]}


def test_begin_behind_the_connectors_own_stop_is_refused(host: Host, tmp_path: Path) -> None:
    refused = run(host, tmp_path, "--from", "orders:0:500", **{STOP_AT: "orders:0:300"})
    assert (refused.exit_code, host.commits) == (1, [])
    assert "orders-0 would begin at offset 500, after its end at 300" in refused.stderr

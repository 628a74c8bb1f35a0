"""Commands without a reachable Kafka print one line, and nothing else."""

from __future__ import annotations

import pytest

from connect_py.api.errors import ConnectError, RetriableError
from connectors.iceberg_tools.dead_letters import replay_log
from connectors.iceberg_tools.migration import kafka_traces

NOBODY = {"bootstrap.servers": "localhost:9"}
REFUSED = r"localhost:9/bootstrap: Connect to .* failed: Connection refused"


def test_failed_search_for_java_traces_names_reason_without_stderr_output(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_traces, "TIMEOUT_SECONDS", 0.5)
    with pytest.raises(RetriableError, match=f"control topic c: .*{REFUSED}"):
        kafka_traces.control_events(NOBODY, "c", "g")
    with pytest.raises(RetriableError, match=f"offsets of group g: .*{REFUSED}"):
        kafka_traces.group_offsets(NOBODY, "g")
    assert capfd.readouterr().err == ""


def test_a_replay_names_the_reason_and_writes_no_lines(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_log, "TIMEOUT_SECONDS", 0.5)
    log = replay_log.ReplayLog(NOBODY, "again", "orders")
    with pytest.raises(ConnectError, match=f"topic again cannot be read: .*{REFUSED}"):
        log.written()
    with pytest.raises(ConnectError, match=f"topic again cannot be created: .*{REFUSED}"):
        log.open()
    assert capfd.readouterr().err == ""

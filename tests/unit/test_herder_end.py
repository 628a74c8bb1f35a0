"""The end of a herder: whoever asked, or asks afterwards, gets an answer, whatever else goes
wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker, standalone_herder

from connect_py.api.errors import ConfigError, ConnectError

SECONDS = 30.0


class BreakingWorker(FakeWorker):
    """Neither starts nor stops."""

    def start(self) -> None:
        raise ValueError("cannot start")

    def stop(self, timeout: float | None = None) -> None:
        raise ValueError("cannot stop")


def test_a_request_after_the_end_is_refused_at_once(tmp_path: Path) -> None:
    herder = standalone_herder(tmp_path, FakeWorker)
    herder.start()
    assert herder.stop(SECONDS)
    with pytest.raises(ConnectError, match="Worker is shutting down"):
        herder.connector_info("a").result(SECONDS)


def test_herder_that_can_neither_start_nor_stop_still_ends(tmp_path: Path) -> None:
    herder = standalone_herder(tmp_path, BreakingWorker)
    waiting = herder.connector_info("a")
    herder.start()
    assert herder.wait(SECONDS)  # the worker process waits for this
    assert str(herder.failure) == "cannot start"
    with pytest.raises(ConnectError, match="Worker is shutting down"):
        waiting.result(SECONDS)


class UnsuitableWorker(FakeWorker):
    """Its configuration is not acceptable."""

    def start(self) -> None:
        raise ConfigError("offset.storage.replication.factor", "is 3")


def test_configuration_error_that_ends_herder_is_logged_without_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    herder = standalone_herder(tmp_path, UnsuitableWorker)
    herder.start()
    assert herder.wait(SECONDS)
    told = [
        record
        for record in caplog.records
        if record.getMessage().startswith("herder thread failed")
    ]
    assert [record.getMessage() for record in told] == [f"herder thread failed: {herder.failure}"]
    assert not told[0].exc_info

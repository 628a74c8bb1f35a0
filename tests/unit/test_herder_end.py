"""The end of a herder: every request is answered, even if the worker fails to start or stop."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker, herder_without_broker

from connect_py.api.errors import ConfigError, ConnectError

SECONDS = 30.0


class BrokenWorker(FakeWorker):
    """Neither starts nor stops."""

    def start(self) -> None:
        raise ValueError("cannot start")

    def stop(self, timeout: float | None = None) -> None:
        raise ValueError("cannot stop")


class MisconfiguredWorker(FakeWorker):
    def start(self) -> None:
        raise ConfigError("offset.storage.replication.factor", "is 3")


def test_request_after_the_end_fails_immediately(tmp_path: Path) -> None:
    herder = herder_without_broker(tmp_path, FakeWorker)
    herder.start()
    assert herder.stop(SECONDS)
    with pytest.raises(ConnectError, match="Worker is shutting down"):
        herder.connector_info("a").result(SECONDS)


def test_herder_that_can_neither_start_nor_stop_still_ends(tmp_path: Path) -> None:
    herder = herder_without_broker(tmp_path, BrokenWorker)
    pending = herder.connector_info("a")
    herder.start()
    assert herder.wait(SECONDS)  # the worker process waits for this
    assert str(herder.failure) == "cannot start"
    with pytest.raises(ConnectError, match="Worker is shutting down"):
        pending.result(SECONDS)


def test_configuration_error_that_ends_the_herder_is_logged_without_stack_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    herder = herder_without_broker(tmp_path, MisconfiguredWorker)
    herder.start()
    assert herder.wait(SECONDS)
    records = [
        record
        for record in caplog.records
        if record.getMessage().startswith("herder thread failed")
    ]
    assert [record.getMessage() for record in records] == [
        f"herder thread failed: {herder.failure}"
    ]
    assert not records[0].exc_info

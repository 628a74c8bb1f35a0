"""The end of a herder: whoever asked, or asks afterwards, gets an answer, whatever else goes wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures.herder_fake_worker import FakeWorker

from connect_py.api.errors import ConnectError
from connect_py.config.worker_config import StandaloneConfig
from connect_py.herder.standalone_herder import StandaloneHerder
from connect_py.herder.status_publisher import StatusPublisher
from connect_py.storage.offset_store import OffsetStore

SECONDS = 30.0


class BreakingWorker(FakeWorker):
    """Neither starts nor stops."""

    def start(self) -> None:
        raise ValueError("cannot start")

    def stop(self, timeout: float | None = None) -> None:
        raise ValueError("cannot stop")


def herder_of(folder: Path, worker: type[FakeWorker]) -> StandaloneHerder:
    def make_worker(publisher: StatusPublisher, _offsets: OffsetStore) -> FakeWorker:
        return worker(publisher)

    converter = "org.apache.kafka.connect.storage.StringConverter"
    config = StandaloneConfig.of({
        "bootstrap.servers": "localhost:1", "key.converter": converter, "value.converter": converter,
        "offset.storage.file.filename": str(folder / "offsets"),
    })  # fmt: skip
    return StandaloneHerder(
        config, cluster_id="x", advertised_url="http://localhost:8083/", commit="0", make_worker=make_worker
    )


def test_a_request_after_the_end_is_refused_at_once(tmp_path: Path) -> None:
    herder = herder_of(tmp_path, FakeWorker)
    herder.start()
    assert herder.stop(SECONDS)
    with pytest.raises(ConnectError, match="Worker is shutting down"):
        herder.connector_info("a").result(SECONDS)


def test_a_herder_that_can_neither_start_nor_stop_ends_all_the_same(tmp_path: Path) -> None:
    herder = herder_of(tmp_path, BreakingWorker)
    waiting = herder.connector_info("a")
    herder.start()
    assert herder.wait(SECONDS)  # the worker process waits for this
    assert str(herder.failure) == "cannot start"
    with pytest.raises(ConnectError, match="Worker is shutting down"):
        waiting.result(SECONDS)

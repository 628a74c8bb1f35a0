"""A worker whose limit of open files is the usual 1,024, and clients that hold more connections
than that."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

pytestmark = pytest.mark.timeout(400)

USUAL = 1024
IDLE = 1300


@pytest.fixture
def worker(kafka_broker: KafkaBroker, tmp_path: Path) -> Iterator[WorkerProcess]:
    made = WorkerProcess(tmp_path / "worker", kafka_broker.bootstrap_servers, "idle-connections")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * IDLE:
        pytest.skip(f"this test may not open {2 * IDLE} files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL, hard))
    try:
        made.start()
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        yield made
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        made.close()


def test_worker_serves_clients_while_1300_idle_connections_are_open(worker: WorkerProcess) -> None:
    host, _, port = worker.url.removeprefix("http://").partition(":")
    lines = worker.log_path.read_text().count("\n")
    with ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        for _ in range(5):
            assert httpx.get(f"{worker.url}/connectors", timeout=15).status_code == 200
        sink = {
            "connector.class": "FileStreamSink",
            "topics": "t",
            "file": str(worker.directory / "out"),
        }
        worker.put("sink", sink)
        worker.wait_for_states("sink", "RUNNING", "RUNNING")
    log = worker.log_path.read_text()
    assert "raised the limit on open files from 1024 to" in log
    assert log.count("client connections reached the limit of 1000") == 1
    # one line a minute about connections; the rest is of the connector
    assert log.count("\n") - lines < 1000

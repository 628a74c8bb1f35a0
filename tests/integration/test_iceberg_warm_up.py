"""The warm-up of the Spark driver runs while the driver is idle, gives way to requests, and leaves
nothing behind."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from command_lines import command_line
from fixtures.iceberg_commit import Lake, lake, lake_config

from connect_py.worker.local_services import LocalServices
from connectors.iceberg.driver.lake_client import PROGRAM, LakeClient, driver_service
from connectors.iceberg.driver.warm_up import COMMIT, WarmUp
from connectors.iceberg.errors import SparkDiedError, TableMissingError
from connectors.iceberg.protocol import faults

__all__ = ["lake"]

pytestmark = pytest.mark.timeout(300)  # a Spark driver starts on a busy machine
SECONDS = 120.0
STEPS = 18  # two tables: creation, three times staged and committed, evolution, clean-up


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def steps(log: str) -> int:
    ended = re.search(r"warm-up ended after (\d+) steps?", log)
    assert ended is not None, log
    return int(ended[1])


@pytest.fixture
def warm_up(lake: Lake, caplog: pytest.LogCaptureFixture) -> Iterator[WarmUp]:
    caplog.set_level("INFO", "connectors.iceberg.driver.warm_up")
    warm_up = WarmUp(lake.runtime)
    yield warm_up
    with warm_up.request(COMMIT):
        warm_up.join(SECONDS)
        assert not warm_up.is_alive()


@pytest.mark.long  # in every run: test_no_step_starts_while_a_request_runs_and_none_after_a_commit
def test_idle_driver_commits_to_private_tables_and_removes_them(
    lake: Lake,
    warm_up: WarmUp,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hits = tmp_path / "hits"
    monkeypatch.setenv(faults.LOG_VARIABLE, str(hits))
    faults.read_environment_again()
    try:
        warm_up.start()
        warm_up.join(SECONDS)
        assert not warm_up.is_alive()
    finally:
        monkeypatch.undo()
        faults.read_environment_again()
    assert steps(caplog.text) == STEPS
    assert not (lake.runtime.scratch / "warm-up").exists()
    assert not hits.exists()  # a kill that a test asks for would hit the wrong commit


def test_no_step_starts_while_a_request_runs_and_none_after_a_commit(
    lake: Lake, warm_up: WarmUp, caplog: pytest.LogCaptureFixture
) -> None:
    folder = lake.runtime.scratch / "warm-up"
    with warm_up.request("load"):
        warm_up.start()
        time.sleep(1.0)
        assert not folder.exists()
    with warm_up.request("load"):
        pass
    until(folder.exists, "the warm-up did not start after the last request")
    with warm_up.request(COMMIT):
        warm_up.join(SECONDS)
        assert not warm_up.is_alive()
    assert steps(caplog.text) < STEPS
    assert not folder.exists()


@pytest.mark.long  # in every run: test_no_step_starts_while_a_request_runs_and_none_after_a_commit
def test_driver_that_is_killed_during_its_warm_up_leaves_nothing_to_the_next_one(
    spark_environment: Mapping[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path_factory.mktemp("t")
    monkeypatch.setenv("TMPDIR", str(temporary))
    config = lake_config(temporary)

    def folders() -> list[Path]:
        return list(temporary.glob("connect-py-spark-*/warm-up"))

    with LocalServices("test") as services, LakeClient(services, config) as client:
        until(lambda: any(folders()), "the warm-up did not start")
        (left,) = folders()
        (driver,) = [
            child
            for child in psutil.Process().children(recursive=True)
            if command_line(child).endswith(PROGRAM)
        ]
        driver.kill()
        until(lambda: not client_answers(client), "the driver is not gone")
        client.start()
        assert client_answers(client)
        assert not left.exists()
        assert services.shared_service(driver_service(config)).generation == 2


def client_answers(client: LakeClient) -> bool:
    try:
        client.load("shop.nowhere", "key")
    except TableMissingError:
        return True
    except SparkDiedError:
        return False
    raise AssertionError("there is no such table")

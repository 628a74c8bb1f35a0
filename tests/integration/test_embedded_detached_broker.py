"""`connect-py kafka start` and `stop`, as somebody at a terminal uses them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from connect_py.embedded.detached_broker import DetachedBroker


def connect_py(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "from connect_py.cli import connect_py; connect_py()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "kafka"
    DetachedBroker(tmp_path / "kafka").stop()


@pytest.mark.long
def test_broker_outlives_its_command_and_keeps_port_and_topics(directory: Path) -> None:
    started = connect_py("kafka", "start", "--dir", str(directory))
    assert started.returncode == 0, started.stderr
    bootstrap_servers = started.stdout.strip()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic("kept", num_partitions=1)])["kept"].result(10)

    again = connect_py("kafka", "start", "--dir", str(directory))
    assert again.stdout == started.stdout
    assert "already running" in again.stderr

    pid = json.loads((directory / "broker.json").read_text())["pid"]
    assert connect_py("kafka", "stop", "--dir", str(directory)).returncode == 0
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE

    restarted = connect_py("kafka", "start", "--dir", str(directory))
    assert restarted.stdout == started.stdout
    assert "kept" in admin.list_topics(timeout=20).topics


def test_stop_without_a_broker_says_so_and_is_no_error(directory: Path) -> None:
    stopped = connect_py("kafka", "stop", "--dir", str(directory))
    assert stopped.returncode == 0
    assert "was not running" in stopped.stderr


def test_pid_that_now_belongs_to_somebody_else_is_left_alone(directory: Path) -> None:
    broker = DetachedBroker(directory)
    other = {"pid": psutil.Process().pid, "created": 1.0, "port": 9}
    (directory / "broker.json").write_text(json.dumps(other))
    assert not broker.stop()  # this process was not killed


def test_failed_start_is_one_message_without_a_trace(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "data").write_text("a file where a folder should be")
    failed = connect_py("kafka", "start", "--dir", str(directory))
    assert failed.returncode == 1
    assert failed.stderr.startswith("connect-py: ")
    assert "Traceback" not in failed.stderr

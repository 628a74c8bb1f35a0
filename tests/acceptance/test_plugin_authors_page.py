"""The package in docs/plugin-authors.md builds, passes its own tests, and runs in a worker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugin-authors.md"
SECONDS = 120.0  # for pip, mypy, pytest, a worker: each a few on a quiet machine
FILES = {
    "pyproject.toml",
    "lines_plugin/__init__.py",
    "lines_plugin/prefix.py",
    "lines_plugin/lines_sink.py",
    "tests/test_lines_plugin.py",
}
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page: each of its blocks that begins with the name of one."""
    folder = tmp_path_factory.mktemp("lines-plugin")
    blocks = dict(
        re.findall(
            r"^```\w+\n# (\S+\.(?:py|toml))\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
        )
    )
    assert set(blocks) == FILES
    for name, text in blocks.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def run(folder: Path, *command: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "MYPYPATH": str(ROOT),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_example_transformation_and_sink_have_at_most_thirty_lines(package: Path) -> None:
    for name in ("prefix", "lines_sink"):
        lines = (
            (package / "lines_plugin" / f"{name}.py")
            .read_text()
            .split("\nclass ", 1)[1]
            .splitlines()
        )
        assert len([line for line in lines if line]) <= 30


@pytest.mark.long
def test_the_tests_of_the_page_pass(package: Path) -> None:
    assert "2 passed" in run(
        package, "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", "tests"
    )


@pytest.mark.long  # in every run: test_a_plugin_of_every_kind_passes_a_strict_type_check
def test_the_package_of_the_page_has_good_types(package: Path) -> None:
    run(
        package,
        "mypy",
        "--strict",
        "--ignore-missing-imports",
        "lines_plugin",
        "tests/test_lines_plugin.py",
    )


def test_the_package_of_the_page_runs_in_a_worker(
    package: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    plugins = tmp_path / "plugins"
    run(
        package,
        "pip",
        "install",
        "--no-index",
        "--no-build-isolation",
        "--no-deps",
        "--quiet",
        "--target",
        str(plugins / "lines-plugin"),
        ".",
    )
    topic, lines = f"{topic_prefix}t", tmp_path / "lines.txt"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for value in ("a", "b"):
        producer.produce(topic, value.encode())
    assert producer.flush(SECONDS) == 0
    strings = "org.apache.kafka.connect.storage.StringConverter"
    worker = WorkerProcess(
        tmp_path / "worker",
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}g",
        {"plugin.path": str(plugins), "key.converter": strings, "value.converter": strings},
    )
    name = f"{topic_prefix}lines"
    try:
        worker.start()
        listed = {
            p["class"]: p["version"] for p in worker.get("/connector-plugins?connectorsOnly=false")
        }
        assert listed["com.example.LinesSinkConnector"] == listed["com.example.Prefix"] == "1.0"
        worker.put(
            name,
            {
                "connector.class": "LinesSink",
                "topics": topic,
                "file": str(lines),
                "transforms": "p",
                "transforms.p.type": "Prefix",
                "transforms.p.text": ">",
            },
        )
        worker.wait_for_states(name, "RUNNING", "RUNNING")
        worker.wait_until(
            lambda: lines.exists() and lines.read_text() == ">a\n>b\n", 60, "the lines"
        )
        assert worker.stop() == 0
    finally:
        worker.close()

"""The commands for a worker's REST API, on a worker that runs as a process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixtures.command_line import connect_py_program
from typer.testing import CliRunner, Result
from worker_process import WorkerProcess, free_port

from connect_py.embedded.broker import KafkaBroker

STRING = "org.apache.kafka.connect.storage.StringConverter"
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def worker(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WorkerProcess]:
    properties = {"key.converter": STRING, "value.converter": STRING}
    folder = tmp_path_factory.mktemp("worker")
    process = WorkerProcess(folder, kafka_broker.bootstrap_servers, "terminal-commands", properties)
    try:
        yield process.start()
    finally:
        process.close()


@pytest.fixture
def run(worker: WorkerProcess) -> Run:
    """A command, as on a terminal of 80 columns."""

    def invoke(*words: str, status: int = 0, answer: str | None = None) -> Result:
        environment = {"CONNECT_PY_URL": worker.url, "COLUMNS": "80"}
        result = CliRunner().invoke(connect_py_program(), words, env=environment, input=answer)
        assert result.exit_code == status, result.output
        assert max((len(line) for line in result.stdout.splitlines()), default=0) <= 80 or {
            "--json",
            "--config",
        } & {*words}
        return result

    return invoke


def rows(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines() if line.strip()]


def posted(path: Path, document: dict[str, Any]) -> str:
    path.write_text(json.dumps(document))
    return str(path)


@pytest.mark.timeout(400)
def test_connectors_are_created_watched_changed_and_deleted_by_commands(
    worker: WorkerProcess, run: Run, topic_prefix: str, tmp_path: Path
) -> None:
    topic = f"{topic_prefix}lines"
    lines = tmp_path / "in.txt"
    lines.write_text("one\ntwo\nthree\n")
    creation = {
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
    }
    source = {"connector.class": "FileStreamSource", "file": str(lines), "topic": topic, **creation}
    sink = {"connector.class": "FileStreamSink", "file": str(tmp_path / "out.txt"), "topics": topic}

    assert "There are no connectors" in run("status").stdout
    file = posted(tmp_path / "in.json", {"name": "t-in", "config": source})
    assert (
        run("connectors", "create", file, "--wait").stdout
        == "t-in: created\nt-in: RUNNING, tasks: 1 RUNNING\n"
    )
    out = posted(tmp_path / "out.json", {"name": "t-out", **sink})
    run("connectors", "create", out, "--wait")
    assert "Connector t-out already exists" in run("connectors", "create", out, status=1).stderr
    run("connectors", "create", out, "--replace")
    worker.wait_until(
        lambda: (tmp_path / "out.txt").read_text() == "one\ntwo\nthree\n", 40, "three lines"
    )

    wrong = posted(
        tmp_path / "wrong.json",
        {"name": "wrong", "config": {**sink, "tasks.max": "many", "topics": ""}},
    )
    refused = run("connectors", "create", wrong, status=1).stderr.splitlines()
    assert (
        "tasks.max: Invalid value many for configuration tasks.max: Not a number of type INT"
        in refused
    )
    assert refused[-1].endswith("nothing was changed")

    listed = rows(run("connectors", "ls"))
    assert [row[:5] for row in listed[1:]] == [
        ["t-in", "source", "RUNNING", "1", "RUNNING"],
        ["t-out", "sink", "RUNNING", "1", "RUNNING"],
    ]
    assert json.loads(run("connectors", "show", "t-out", "--config").stdout) == {
        "name": "t-out",
        "config": {"name": "t-out", **sink},
    }
    assert ["task", "0", "RUNNING", worker.url.removeprefix("http://")] in rows(
        run("connectors", "show", "t-out")
    )

    run("connectors", "pause", "t-out", "--wait")
    run("connectors", "resume", "t-out", "--wait")
    run("connectors", "stop", "t-out", "--wait")
    assert run("connectors", "offsets", "t-out", "--set", f"{topic}/0=1").stdout.startswith("The ")
    assert rows(run("connectors", "offsets", "t-out"))[1:] == [[topic, "0", "1"]]
    run("connectors", "offsets", "t-out", "--set", "no-offset", status=2)
    assert (
        "nothing was changed"
        in run("connectors", "delete", "t-out", "none", "--yes", status=1).stderr
    )
    run("connectors", "delete", "t-out", answer="n\n", status=1)
    run("connectors", "delete", "t-out", answer="y\n")
    assert [row[0] for row in rows(run("connectors", "ls"))[1:]] == ["t-in"]
    run("connectors", "delete", "t-in", "--yes")


@pytest.mark.timeout(400)
def test_status_and_top_show_failures_and_scripts_see_them(
    worker: WorkerProcess, run: Run, tmp_path: Path
) -> None:
    bad = {
        "name": "bad",
        "connector.class": "FileStreamSink",
        "file": "/no/such/folder/x",
        "topics": "t",
    }
    failed = run(
        "connectors", "create", posted(tmp_path / "bad.json", bad), "--wait", status=1
    ).stderr
    assert (
        "bad: task 0 failed:\norg.apache.kafka.connect.errors.ConnectException: Couldn't find or "
        "create" in failed
    )
    document = json.loads(run("status", "--json", status=1).stdout)
    assert (document["healthy"], document["runs"], list(document["connectors"])) == (
        True,
        False,
        ["bad"],
    )
    assert document["group"] == "terminal-commands"
    assert "ConnectException: Couldn't find" in " ".join(run("status", status=1).stdout.split())
    frame = run("top", "--once").stdout
    assert ["task", "0", "FAILED", "-", "-", "0"] in [line.split() for line in frame.splitlines()]
    assert "/no/such/folder/x" in frame
    for words in (("status",), ("top", "--once"), ("connectors", "ls")):
        silent = run(*words, "--url", f"http://127.0.0.1:{free_port()}", status=2)
        assert silent.stderr.startswith("connect-py: no worker responds at")

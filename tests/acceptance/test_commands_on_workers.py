"""Commands about a table use the Spark driver of a worker that runs the table's connector."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sink_case import SinkCase, case_on_own_worker

from connect_py.embedded.broker import KafkaBroker

PROGRAM = str(Path(sys.executable).parent / "connect-py")
KEYED = {"iceberg.tables.upsert-mode-enabled": "true", "iceberg.tables.default-id-columns": "id"}
SEPARATE = "starting a separate Spark driver"


@dataclass
class Commands:
    """Runs `connect-py` where each start of Java leaves a mark, and fails."""

    case: SinkCase
    folder: Path

    def __post_init__(self) -> None:
        java = self.folder / "java" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(f"#!/bin/sh\necho started >> {self.mark}\nexit 1\n")
        java.chmod(0o755)
        self.post(self.case.config())

    @property
    def mark(self) -> Path:
        return self.folder / "java-started"

    @property
    def posted(self) -> Path:
        return self.folder / "connector.json"

    def post(self, config: dict[str, str]) -> None:
        """Write the file that `--config` names."""
        self.posted.write_text(json.dumps({"name": self.case.name, "config": config}))

    def run(
        self, *words: str, status: int = 0, catalog: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        begun = time.monotonic()
        done = subprocess.run(
            self.line(*words, catalog=catalog),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        print(f"connect-py {' '.join(words)}: {time.monotonic() - begun:.2f} s")
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def line(self, *words: str, catalog: tuple[str, ...] = (), url: str | None = None) -> list[str]:
        name, *more = words
        where = catalog or ("--config", str(self.posted))
        return [PROGRAM, name, self.case.table, *more, *where, "--url", url or self.case.worker.url]

    def environment(self) -> dict[str, str]:
        java = str(self.folder / "java")
        # Spark's jars
        kept = {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
        paths = {
            "PATH": f"{java}/bin:/usr/bin:/bin",
            "PYTHONPATH": ":".join(filter(None, sys.path)),
        }
        return {**kept, **paths, "JAVA_HOME": java}

    def first_line(self, *words: str, url: str | None = None) -> str:
        """Return the first line on standard error of a command, which is then killed: its driver
        cannot start."""
        process = subprocess.Popen(
            self.line(*words, url=url), env=self.environment(), stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            deadline = time.monotonic() + 60
            while not self.mark.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            assert self.mark.exists()
        finally:
            process.kill()
            process.communicate()
        self.mark.unlink()  # only now: the command may have started Java again
        return line

    def on_worker(self, *words: str, status: int = 0, catalog: tuple[str, ...] = ()) -> str:
        """Run a command that must not start Java; return its output."""
        done = self.run(*words, status=status, catalog=catalog)
        assert not self.mark.exists(), done.stderr
        assert SEPARATE not in done.stderr
        return done.stdout

    def document(self, *words: str, status: int = 0, catalog: tuple[str, ...] = ()) -> Any:
        return json.loads(self.on_worker(*words, "--json", status=status, catalog=catalog))

    def history(self) -> list[int]:
        """Snapshots, oldest first."""
        return [each["snapshot"] for each in reversed(self.document("history")["snapshots"])]

    def await_refill(self) -> None:
        """Wait until the connector has written all rows again."""
        self.case.worker.wait_until(
            lambda: sorted(self.case.ids()) == list(range(8)), 90, "the replay of the rows"
        )

    def operate(self, operation: str, status: int, **arguments: Any) -> str:
        """Call an operation over REST; return the message of its refusal, or its result."""
        url = f"{self.case.worker.url}/connectors/{self.case.name}/operations/{operation}"
        answer = httpx.post(url, json={"table": self.case.table, **arguments}, timeout=100)
        assert answer.status_code == status, answer.text
        return str(answer.json()["message"]) if status >= 400 else answer.text


@pytest.fixture(scope="module")
def commands(
    tmp_path_factory: pytest.TempPathFactory, kafka_broker: KafkaBroker
) -> Iterator[Commands]:
    """Commands on one worker and table: each test works with the snapshots that it finds."""
    folder = tmp_path_factory.mktemp("commands")
    prefix = f"t{uuid.uuid4().hex[:10]}-"
    with case_on_own_worker(folder, kafka_broker.bootstrap_servers, prefix, {}, KEYED) as case:
        case.start()
        case.await_running()
        commands = Commands(case, folder)
        for ids in (range(5), range(3, 8)):
            case.produce_ids(ids)
            case.await_caught_up()
        yield commands


@pytest.mark.timeout(400)
def test_commands_use_the_driver_of_the_worker(commands: Commands) -> None:
    table = commands.case.table
    first, *_, last = commands.history()
    # a commit without rows may follow
    found = commands.document("diff", str(first), str(last), status=1)
    assert (found["before"], found["after"], found["keys"]) == (first, last, ["id"])
    assert found["counts"]["inserted"] == 3
    assert [row["key"] for row in found["rows"]] == [{"id": number} for number in (5, 6, 7)]
    assert f"{table}: {first} -> {last}, rows by key (id)" in commands.on_worker(
        "diff", str(first), str(last), status=1
    )
    assert commands.document("at", "--offset", f"{commands.case.name}:0:2")["snapshot"] == first
    assert commands.on_worker("at", "--offset", f"{commands.case.name}:0:5000", status=1) == ""
    assert (
        commands.on_worker("tag", "before", "--at", "first")
        == f"{table}: tag before is at snapshot {first}\n"
    )
    assert [each["name"] for each in commands.document("tag")["refs"]] == ["before"]
    assert commands.on_worker("tag", "before", status=1) == ""


@pytest.mark.timeout(300)
def test_rest_client_cannot_do_what_the_commands_refuse(commands: Commands) -> None:
    first, *_, last = commands.history()
    secret = commands.folder / "secret.json"
    secret.write_text('{"id": 1}')
    folder = str(commands.folder / "written")
    operate = commands.operate
    assert "unknown field `parquet`" in operate(
        "diff", 400, before="first", after="last", parquet=folder
    )
    assert "unknown field" in operate("scan", 400, where="true", function="os.system")
    assert "Expected `int`" in operate("history", 400, limit="many")
    assert "length >= 1" in operate("history", 400, table="")
    for where in (
        f"id IN (SELECT id FROM json.`{secret}`)",
        "id = (SELECT max(id) FROM lake.db.other)",
    ):
        assert "the condition contains a subquery" in operate("scan", 500, where=where)
    assert "calls a Java method" in operate(
        "scan", 500, where="java_method('java.lang.System', 'getenv', 'HOME') = 'x'"
    )
    refused = json.loads(
        operate("change-ref", 200, kind="branch", name="main", at="first", move=True)
    )["refused"]
    assert "main can only be moved by" in refused
    refused = json.loads(
        operate("change-ref", 200, kind="tag", name="connect-py-mine", at="first")
    )["refused"]
    assert "are reserved for the sink" in refused
    assert "check the table again" in operate(
        "rollback", 500, ref="main", head=first, snapshot=first
    )
    tables = [{"table": commands.case.table, "head": last, "snapshot": first}]
    assert "the connector is running" in operate("rewind", 500, mode="skip", tables=tables)
    assert not Path(folder).exists()
    assert last in commands.history()


@pytest.mark.timeout(400)
@pytest.mark.long  # in every run: test_commands_use_the_driver_of_the_worker
def test_changes_of_the_past_use_the_driver_of_the_worker(commands: Commands) -> None:
    first, *_ = commands.history()
    assert (
        "the connector is running"
        in commands.run("rewind", "--to", "first", "--skip", "--yes", status=1).stderr
    )
    commands.case.stop()
    shown = commands.document("rewind", "--to", "first")
    assert (shown["tables"][0]["to"], shown["refused"], shown["heads"]) == (first, [], {})
    assert commands.document("rewind", "--to", "first", "--replay", "--yes")["heads"] == {
        commands.case.table: first
    }
    commands.case.resume()
    commands.case.await_running()
    commands.await_refill()
    middle, *_ = commands.history()
    assert commands.document("rollback", "--to", str(middle), "--yes")["done"]
    commands.await_refill()
    refused = commands.run("rebuild", status=2)
    assert "--changelog: is required" in refused.stderr
    assert not commands.mark.exists()


@pytest.mark.timeout(300)
@pytest.mark.long  # in every run: test_commands_use_the_driver_of_the_worker
def test_catalog_without_a_connector_is_found_on_the_worker(commands: Commands) -> None:
    config = commands.case.config()
    prefix = "iceberg.catalog."
    named = [
        f"{key.removeprefix(prefix)}={value}"
        for key, value in config.items()
        if key.startswith(prefix)
    ]
    catalog = (
        "--catalog",
        config.get("iceberg.catalog", "iceberg"),
        *(word for each in named for word in ("--catalog-property", each)),
    )
    assert len(commands.document("history", catalog=catalog)["snapshots"]) >= 2
    # The key of the connector is not used, as without a worker.
    assert commands.document("diff", "first", "last", status=1, catalog=catalog)["keys"] == []


@pytest.mark.timeout(300)
@pytest.mark.long  # in every run: test_commands_use_the_driver_of_the_worker
def test_separate_driver_is_announced_with_its_reason(commands: Commands) -> None:
    """Here it cannot start: Java fails."""
    absent = commands.first_line("history", url="http://127.0.0.1:9")
    assert f"{SEPARATE}: no worker responds at http://127.0.0.1:9" in absent
    commands.post({**commands.case.config(), "iceberg.tables.default-commit-branch": "other"})
    changed = commands.first_line("history")
    assert f"connector {commands.case.name} at {commands.case.worker.url} has different" in changed
    assert "iceberg.tables.default-commit-branch" in changed
    commands.post(commands.case.config())
    files = commands.first_line("diff", "first", "last", "--parquet", str(commands.folder / "out"))
    assert f"{SEPARATE}: --parquet writes files with your permissions" in files


@pytest.mark.timeout(300)
@pytest.mark.long  # in every run: test_commands_use_the_driver_of_the_worker
def test_other_commands_use_the_driver_of_the_worker(commands: Commands) -> None:
    first, *_ = commands.history()
    assert commands.document("branch", "trial", "--at", "first")["snapshot"] == first
    assert commands.document("scan", "--where", "id = 7")["levels"][0]["rows"] >= 8
    assert commands.document("audit")["verdict"] == "proven"
    none_due = ("small-files=0", "manifests=0", "delete-ratio=0", "delete-files=0")
    settings = [word for each in none_due for word in ("--set", each)]
    assert "nothing is due" in commands.on_worker("maintain", "--dry-run", *settings)
    assert "compact data files" in commands.on_worker("maintain", "--now", "--set", "small-files=1")
    assert commands.document("rollback", "--to", "first", "--dry-run")["to"] == first

"""`connect-py pipeline` against a worker that keeps connectors and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fixtures.command_line import command_app
from pipeline_files import shop
from pipeline_worker import RUNS, PipelineWorker, pipeline_worker
from typer.testing import CliRunner

from connectors.iceberg_tools.commands.pipeline import apply, destroy, plan, schema, status
from connectors.iceberg_tools.pipeline import rollout, worker_client
from connectors.iceberg_tools.pipeline.connector_plan import HIDDEN, to_display

CATALOG = "type: rest\nuri: http://catalog:8181\ntoken: tell-no-one"
APP = command_app(apply, destroy, plan, schema, status)
NAMES = ["shop-masters", "shop-orders", "shop-clicks"]


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[PipelineWorker]:
    monkeypatch.setattr(rollout, "_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(worker_client, "_CONFLICT_PAUSE_SECONDS", 0.01)
    with pipeline_worker() as serving:
        yield serving


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(shop(CATALOG))
    return path


def run(
    worker: PipelineWorker, command: str, file: Path, *words: str, typed: str = ""
) -> tuple[int, str]:
    done = CliRunner().invoke(APP, [command, str(file), "--url", worker.url, *words], input=typed)
    return done.exit_code, done.output


def run_json(
    worker: PipelineWorker, command: str, file: Path, *words: str
) -> tuple[int, dict[str, Any]]:
    status, text = run(worker, command, file, "--json", *words)
    return status, json.loads(text)


def test_plan_shows_what_apply_does_and_changes_nothing(worker: PipelineWorker, file: Path) -> None:
    status, text = run(worker, "plan", file)
    assert status == 1
    assert text.splitlines()[:3] == [
        "create    shop-masters",
        "  + connect_py.pipeline: shop",
        "  + connector.class: org.apache.iceberg.connect.IcebergSinkConnector",
    ]
    assert text.splitlines()[-1] == "3 to create"
    assert "tell-no-one" not in text
    assert f"  + iceberg.catalog.token: {HIDDEN}" in text
    assert worker.changes == []


def test_second_apply_finds_nothing_that_it_could_change(
    worker: PipelineWorker, file: Path
) -> None:
    status, found = run_json(worker, "apply", file)
    assert (status, found["done"]) == (0, [f"created {name}" for name in NAMES])
    assert [each["runs"] for each in found["connectors"]] == [True] * 3
    assert run(worker, "plan", file) == (
        0,
        "".join(f"unchanged {name}\n" for name in NAMES) + "3 unchanged\n",
    )
    assert run_json(worker, "apply", file)[1]["done"] == []
    assert len(worker.changes) == 3


def test_changed_keys_are_shown_with_their_values(worker: PipelineWorker, file: Path) -> None:
    run(worker, "apply", file)
    changed = shop(CATALOG.replace("tell", "show")).replace("interval: 1m", "interval: 2m")
    file.write_text(
        changed.replace("    write-mode: append\n", "    write-mode: append\n    tasks: 2\n")
    )
    worker.connectors["shop-clicks"]["iceberg.ext.null-key"] = "skip"
    status, text = run(worker, "plan", file)
    assert status == 1
    assert text.split("change    shop-clicks\n")[1] == (
        f"  ~ iceberg.catalog.token: {HIDDEN} -> {HIDDEN}\n"
        "  ~ iceberg.control.commit.interval-ms: 60000 -> 120000\n"
        "  - iceberg.ext.null-key: skip\n"
        "  + tasks.max: 2\n"
        "3 to change\n"
    )


def test_connector_that_the_file_no_longer_names_is_deleted(
    worker: PipelineWorker, file: Path
) -> None:
    run(worker, "apply", file)
    worker.connectors["other"] = {"connector.class": "X"}
    file.write_text(shop(CATALOG).partition("  clicks:")[0])
    status, text = run(worker, "apply", file, typed="n\n")
    assert (status, "delete    shop-clicks" in text, list(worker.connectors)) == (
        1,
        True,
        [*NAMES, "other"],
    )
    assert run(worker, "apply", file, "--yes")[0] == 0
    assert list(worker.connectors) == [*NAMES[:2], "other"]


def test_connectors_of_others_are_left_alone_unless_adopted(
    worker: PipelineWorker, file: Path
) -> None:
    worker.connectors = {
        "shop-orders": {"a": "b"},
        "shop-clicks": {"connect_py.pipeline": "clicks"},
    }
    status, text = run(worker, "apply", file)
    assert (status, worker.changes) == (2, [])
    assert "connect-py: connector shop-orders has no pipeline; --adopt adds it" in text
    assert "connect-py: connector shop-clicks is managed by pipeline clicks" in text
    del worker.connectors["shop-clicks"]
    assert run(worker, "apply", file, "--adopt")[0] == 0
    assert worker.connectors["shop-orders"]["connect_py.pipeline"] == "shop"


def test_worker_that_refuses_one_connector_changes_none(worker: PipelineWorker, file: Path) -> None:
    worker.problems["shop-orders"] = {
        "iceberg.table.shop.orders.sort-by": "is not possible",
        "x": "is missing",
    }
    status, text = run(worker, "apply", file)
    assert (status, worker.changes) == (2, [])
    lines = file.read_text().splitlines()
    line = lines.index("        sort-by: [customer, placed desc]") + 1
    assert (
        f"{file}:{line}:9: targets.orders.tables.shop.orders.sort-by: is not possible (key "
        f"iceberg.table." in text
    )
    assert (
        f"{file}:{lines.index('  orders:') + 1}:3: targets.orders: is missing (key x of connector "
        f"shop-orders)" in text
    )


def test_mistakes_of_a_file_come_as_json_too(worker: PipelineWorker, file: Path) -> None:
    file.write_text(shop(CATALOG).replace("  format: json", "  formt: json"))
    status, found = run_json(worker, "plan", file)
    assert status == 2
    assert found["mistakes"] == [
        {
            "line": 7,
            "column": 3,
            "field": "defaults.formt",
            "problem": "is unknown",
            "hint": "did you mean format?",
        }
    ]


def test_file_in_another_encoding_is_a_mistake_with_its_place(
    worker: PipelineWorker, file: Path
) -> None:
    file.write_bytes("pipeline: shop\nworker: Zürich".encode("latin-1"))
    status, found = run_json(worker, "plan", file)
    [mistake] = found["mistakes"]
    assert (status, mistake["line"], mistake["column"]) == (2, 2, 10)
    assert "not valid UTF-8" in mistake["problem"]


@pytest.mark.parametrize("answer", ['["a"]', '{"a": {}}', "<html>", ""])
def test_address_that_is_no_worker_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    monkeypatch.setattr(httpx.Client, "request", lambda *_, **__: httpx.Response(200, text=answer))
    done = CliRunner().invoke(APP, ["status", str(file), "--url", "http://shop:8083"])
    assert (done.exit_code, done.output[:52]) == (
        2,
        "connect-py: http://shop:8083 does not respond like a",
    )


def test_request_that_fails_midway_says_what_was_done(worker: PipelineWorker, file: Path) -> None:
    worker.refused, worker.conflicts = {"shop-orders"}, 2
    status, text = run(worker, "apply", file)
    assert (status, worker.changes) == (2, ["PUT shop-masters"])
    assert "created shop-masters\nconnect-py: shop-orders: PUT" in text
    assert text.endswith("failed with status 500: no space; apply again to continue from here\n")


def test_connector_that_does_not_run_is_shown_with_its_reason(
    worker: PipelineWorker, file: Path
) -> None:
    waiting = {
        "for": "coordinator",
        "since": "2026-01-02T03:04:05Z",
        "reason": "the catalog: refused",
    }
    task = {"id": 0, "state": "RUNNING", "worker_id": "a:1", "waiting": waiting}
    fails = {
        "id": 0,
        "state": "FAILED",
        "worker_id": "a:1",
        "trace": "ValueError: no\n  at x\n  at y\n",
    }
    connector = {"state": "RUNNING", "worker_id": "a:1"}
    worker.statuses = {
        "shop-masters": {"connector": connector, "tasks": [task]},
        "shop-orders": {"connector": connector, "tasks": [fails]},
        "shop-clicks": {"connector": {"state": "PAUSED", "worker_id": "a:1"}, "tasks": []},
    }
    shown_states = (
        "shop-masters: not running, 0 of 1 task running\n"
        "  task 0 is RUNNING: waits for coordinator since 2026-01-02T03:04:05Z: the catalog: "
        "refused\n"
        "shop-orders: not running, 0 of 1 task running\n"
        "  task 0 is FAILED: ValueError: no at x\n"
        "shop-clicks: PAUSED, 0 of 0 tasks running\n"
    )
    status, text = run(worker, "apply", file, "--deadline", "5")
    assert (status, text.endswith(shown_states)) == (1, True), text
    assert run(worker, "status", file) == (1, shown_states)


def failed(trace: str, part: str = "task") -> dict[str, Any]:
    connector, task = ({"state": "RUNNING", "worker_id": "a:1"} for _ in range(2))
    (task if part == "task" else connector).update(state="FAILED", trace=trace)
    return {"connector": connector, "tasks": [{"id": 0, **task}]}


def change(worker: PipelineWorker, file: Path) -> None:
    """A pipeline whose connectors run, and a change of all of them in the file."""
    assert run(worker, "apply", file)[0] == 0
    file.write_text(shop(CATALOG).replace("interval: 1m", "interval: 2m"))


@pytest.mark.parametrize("part", ["connector", "task"])
def test_failure_of_before_does_not_count_while_tasks_start(
    worker: PipelineWorker, file: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr(rollout, "_OLD_FAILURE_SECONDS", 1000.0)  # the machine may be slow
    change(worker, file)
    worker.passing["shop-orders"] = [failed("ValueError: no", part)] * 40
    status, text = run(worker, "apply", file)
    assert (status, "shop-orders: running" in text) == (0, True), text
    assert worker.passing["shop-orders"] == []


def test_failure_that_stays_counts_after_a_while(
    worker: PipelineWorker, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "_OLD_FAILURE_SECONDS", 0.5)
    change(worker, file)
    worker.statuses["shop-orders"] = failed("ValueError: no")
    begin = time.monotonic()
    status, text = run(worker, "apply", file)
    assert (status, "task 0 is FAILED: ValueError: no" in text) == (1, True), text
    assert 0.5 <= time.monotonic() - begin < 20


@pytest.mark.parametrize("between", [[], [RUNS, failed("ValueError: old")]])
def test_failure_that_is_another_one_counts_at_once(
    worker: PipelineWorker,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    between: list[dict[str, Any]],
) -> None:
    monkeypatch.setattr(rollout, "_OLD_FAILURE_SECONDS", 1000.0)
    change(worker, file)
    old = failed("ValueError: old")
    worker.passing["shop-orders"] = [old] * 5 + between
    worker.statuses["shop-orders"] = between[-1] if between else failed("ValueError: new")
    status, text = run(worker, "apply", file)
    assert (status, f"FAILED: ValueError: {'old' if between else 'new'}" in text) == (1, True), text
    assert worker.passing["shop-orders"] == []


def test_failure_of_tasks_with_old_configurations_does_not_count(
    worker: PipelineWorker, file: Path
) -> None:
    change(worker, file)
    worker.old_tasks["shop-orders"] = worker.connectors["shop-orders"]
    worker.statuses["shop-orders"] = failed("ValueError: another")
    begin = time.monotonic()
    assert run(worker, "apply", file, "--deadline", "1")[0] == 1
    assert time.monotonic() - begin >= 1


def test_connector_without_a_status_is_there_all_the_same(
    worker: PipelineWorker, file: Path
) -> None:
    run(worker, "apply", file)
    worker.statuses["shop-orders"] = {}
    assert run(worker, "plan", file)[0] == 0
    assert "shop-orders: not running\n  it has no status yet\n" in run(worker, "status", file)[1]


def test_status_names_connectors_that_are_not_there(worker: PipelineWorker, file: Path) -> None:
    worker.connectors = {"shop-old": {"connect_py.pipeline": "shop"}}
    status, text = run(worker, "status", file)
    assert status == 1
    assert (
        text
        == "".join(f"{name}: does not exist\n" for name in NAMES)
        + "shop-old: running, 1 of 1 task running\n"
    )


def test_destroy_deletes_what_belongs_to_the_pipeline_only(
    worker: PipelineWorker, file: Path
) -> None:
    worker.connectors["shop-other"] = {"connector.class": "X"}
    run(worker, "apply", file)
    assert run(worker, "destroy", file, typed="n\n")[0] == 1
    assert run(worker, "destroy", file, "--yes")[1] == "".join(
        f"deleted {name}\n" for name in sorted(NAMES)
    )
    assert list(worker.connectors) == ["shop-other"]
    assert run(worker, "destroy", file) == (0, "pipeline shop has no connectors\n")


def test_worker_that_does_not_answer_is_not_an_empty_one(file: Path) -> None:
    done = CliRunner().invoke(APP, ["plan", str(file), "--url", "http://127.0.0.1:1"])
    assert (done.exit_code, done.output[:50]) == (
        2,
        "connect-py: http://127.0.0.1:1 does not respond: [",
    )


def test_password_of_the_worker_logs_in_and_is_not_shown(
    worker: PipelineWorker, file: Path
) -> None:
    secret = worker.url.replace("//", "//ada:pass-word@")
    done = CliRunner().invoke(APP, ["plan", str(file), "--url", secret, "--json"])
    assert json.loads(done.output)["worker"] == worker.url
    assert worker.logins == {"Basic YWRhOnBhc3Mtd29yZA=="}


def test_schema_command_prints_what_editors_read() -> None:
    done = CliRunner().invoke(APP, ["schema"])
    assert json.loads(done.output)["required"] == ["pipeline", "targets"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("iceberg.catalog.s3.secret-access-key", "abc", HIDDEN),
        ("value.converter.basic.auth.user.info", "me:pw", HIDDEN),
        ("iceberg.catalog.credential", "${file:/etc/x:y}", "${file:/etc/x:y}"),
        (
            "iceberg.catalog.uri",
            "jdbc:postgresql://me:pw@db/x?password=pw",
            f"jdbc:postgresql://me:{HIDDEN}@db/x?password={HIDDEN}",
        ),
        ("iceberg.tables.default-id-columns", "token", "token"),
    ],
)
def test_secrets_are_hidden_and_their_references_are_not(
    key: str, value: str, expected: str
) -> None:
    assert to_display(key, value) == expected

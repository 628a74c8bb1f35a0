"""Checks of `connect-py doctor` that do not connect to Kafka, and hanging and failing checks."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from fixtures.command_line import connect_py_program
from typer.testing import CliRunner

from connect_py.api.check import Check, Finding, Verdict
from connect_py.api.errors import ConnectError
from connect_py.doctor import machine_checks
from connect_py.doctor.check_runner import run_checks
from connect_py.doctor.connector_checks import connector
from connect_py.doctor.files import Files
from connect_py.doctor.worker_checks import plugin_path, port, properties, read_worker
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.local_services import LocalServices

WORKER = {
    "bootstrap.servers": "127.0.0.1:1",
    "group.id": "g",
    "key.converter": "StringConverter",
    "value.converter": "StringConverter",
    **{f"{storage}.storage.topic": storage for storage in ("config", "status", "offset")},
}


def worker_file(folder: Path, **settings: str) -> Path:
    path = folder / "worker.properties"
    keys = {key if "." in key else key.replace("_", "."): value for key, value in settings.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in {**WORKER, **keys}.items()))
    return path


def only(findings: Sequence[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_hanging_check_and_error_of_a_check_are_failures() -> None:
    ended = threading.Event()

    def refuse() -> list[Finding]:
        raise ConnectError("not today")

    def hang() -> list[Finding]:
        ended.wait(30)
        return []

    findings = list(
        run_checks([Check("one", refuse), Check("two", hang, 0.05), Check("three", list)])
    )
    ended.set()
    assert [(each.subject, each.verdict, each.text) for each in findings] == [
        ("one", Verdict.FAIL, "not today"),
        ("two", Verdict.FAIL, "no response in 0.05 s"),
    ]


def test_port_in_use_is_reported_with_its_process() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        number = listening.getsockname()[1]
        # answers the request that detects a worker
        answers = threading.Thread(target=lambda: listening.accept()[0].close())
        answers.start()
        finding = only(list(port(f"http://127.0.0.1:{number}")))
        answers.join(10)
    assert finding.verdict is Verdict.FAIL
    assert f"process {os.getpid()}" in finding.text
    assert only(list(port("http://127.0.0.1:0"))).verdict is Verdict.OK


def test_unknown_keys_warn_and_missing_plugin_folders_fail(tmp_path: Path) -> None:
    path = worker_file(tmp_path, speling="1", plugin_path=str(tmp_path / "none"))
    config = read_worker(path)
    assert "speling" in only(list(properties(path, config))).text
    finding = only(list(plugin_path(config, PluginRegistry.discover())))
    assert (finding.verdict, finding.subject) == (Verdict.FAIL, "plugin.path")
    assert str(tmp_path / "none") in finding.text


@pytest.mark.parametrize(
    ("name", "ask", "remedy"),
    [
        ("CONNECT_PY_JAVA", machine_checks.java, "Set CONNECT_PY_JAVA"),
        ("CONNECT_PY_SPARK_JARS", machine_checks.jars, "Correct CONNECT_PY_SPARK_JARS"),
    ],
)
def test_invalid_paths_of_java_and_jars_have_a_remedy(
    name: str, ask: Callable[[Verdict], list[Finding]], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "/no/such/file")
    finding = only(list(ask(Verdict.WARN)))
    assert (finding.verdict, finding.remedy.startswith(remedy)) == (Verdict.WARN, True)
    assert "/no/such/file" in finding.text


def test_missing_jars_are_not_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECT_PY_CACHE", str(tmp_path))
    monkeypatch.delenv("CONNECT_PY_SPARK_JARS", raising=False)
    finding = only(list(machine_checks.jars(Verdict.FAIL)))
    assert (finding.verdict, finding.remedy) == (
        Verdict.FAIL,
        "Download them: connect-py jars spark",
    )
    assert list(tmp_path.iterdir()) == []


def test_connector_is_checked_with_settings_of_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has the catalog, allows a setting, and knows the value of a placeholder."""
    for name in ("CONNECT_PY_JAVA", "CONNECT_PY_SPARK_JARS"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setenv("DOCTORS_TABLE", "db.orders")
    java_options = "iceberg.spark.driver.extraJavaOptions"
    gives = {
        "connect_py.defaults.iceberg.catalog.type": "rest",
        "connect_py.spark.settings.allowed": java_options,
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",  # noqa: E501 - one literal
    }
    path = tmp_path / "orders.json"
    sink = {
        "name": "orders",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "orders",
    }
    path.write_text(
        json.dumps(sink | {"iceberg.tables": "${env:DOCTORS_TABLE}", java_options: "-Da=b"})
    )

    def findings(**worker: str) -> dict[str, Verdict]:
        files = Files.read(worker_file(tmp_path, **worker), path)
        assert not files.errors
        with LocalServices("doctor", files.worker) as services:
            return {
                each.subject: each.verdict
                for each in connector(files.connector, PluginRegistry.discover(), services)
            }

    assert findings(**gives) == {"connector": Verdict.OK}
    assert findings() == {"iceberg.catalog": Verdict.FAIL, java_options: Verdict.FAIL}
    monkeypatch.delenv("DOCTORS_TABLE")
    assert only(Files.read(worker_file(tmp_path, **gives), path).errors).subject == "placeholders"


def test_scripts_get_findings_as_json_and_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECT_PY_CACHE", str(tmp_path / "cache"))
    for name in ("CONNECT_PY_SPARK_JARS", "CONNECT_PY_JAVA"):  # as other tests export them
        monkeypatch.delenv(name, raising=False)
    worker = tmp_path / "worker.properties"
    worker.write_text("group.id=g\n")
    connector = tmp_path / "orders.json"
    iceberg = {
        "name": "orders",
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    }
    connector.write_text(json.dumps(iceberg))
    result = CliRunner().invoke(
        connect_py_program(), ["doctor", str(worker), str(connector), "--json"]
    )
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    findings = document["findings"]
    verdicts = {each["subject"]: each["verdict"] for each in findings}
    assert verdicts["properties"] == "fail"
    assert verdicts["jars"] == "fail"  # an Iceberg sink needs them
    assert verdicts["iceberg.tables"] == "fail"
    assert document["failed"] == sum(each["verdict"] == "fail" for each in findings)
    # nothing but a warning: no sink was named
    assert CliRunner().invoke(connect_py_program(), ["doctor"]).exit_code == 0

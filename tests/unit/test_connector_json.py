"""Connectors as people post them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from fixtures.command_line import command_context, fake_parts

from connect_py.api.errors import ConfigError
from connect_py.config.command_config import connector_properties
from connect_py.terminal.exit_status import errors_exit
from connectors.iceberg_tools.commands.connector_json import read_connector, resolve_connector

CLASS = "org.apache.iceberg.connect.IcebergSinkConnector"
PROVIDERS = "config.providers=env\nconfig.providers.env.class=EnvVarConfigProvider\n"
STATIC = "transforms.s.static.value"
CONTEXT = command_context(fake_parts(resolve=connector_properties))


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    """Return the properties of a worker with a config provider."""
    file = tmp_path / "worker.properties"
    file.write_text(PROVIDERS)
    return file


def posted_with(folder: Path, key: str, value: str) -> Path:
    file = folder / "sink.json"
    file.write_text(json.dumps({"name": "sink", "config": {"connector.class": CLASS, key: value}}))
    return file


@pytest.mark.parametrize(
    "posted",
    [
        {"name": "sink", "config": {"topics": "a"}},
        {"name": "sink", "topics": "a"},
        {"config": {"name": "sink", "topics": "a"}},
        {"name": None, "config": {"name": "sink", "topics": "a"}},
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_connector_has_its_name_in_each_shape(
    tmp_path: Path, posted: dict[str, Any], encoding: str
) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps(posted), encoding=encoding)
    assert read_connector(file) == {"name": "sink", "topics": "a"}


@pytest.mark.parametrize(
    "posted",
    [
        {"config": {"topics": "a"}},
        {"topics": "a"},
        {"name": "", "topics": "a"},
        {"name": None, "topics": "a"},
    ],
)
def test_connector_without_a_name_is_refused(tmp_path: Path, posted: dict[str, Any]) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps(posted))
    with pytest.raises(ConfigError, match=r"name: is missing in .*sink\.json"):
        read_connector(file)


@pytest.mark.parametrize(
    ("posted", "why"),
    [
        ({"name": "sink", "config": {"topics": ["a"]}}, "topics: must be a string"),
        ({"name": ["sink"], "config": {"topics": "a"}}, "name: must be a string"),
        ([], "expected a connector with a name and a config"),
    ],
)
def test_value_that_a_worker_refuses_is_refused(tmp_path: Path, posted: Any, why: str) -> None:
    file = tmp_path / "sink.json"
    file.write_text(json.dumps(posted))
    with pytest.raises(ConfigError, match=why):
        read_connector(file)


def test_deeply_nested_file_is_refused_without_a_trace(tmp_path: Path) -> None:
    file = tmp_path / "sink.json"
    file.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="recursion"):
        read_connector(file)


def test_connector_of_another_class_is_not_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"FileStreamSink is not an Iceberg sink"):
        resolve_connector(CONTEXT, posted_with(tmp_path, "connector.class", "FileStreamSink"), None)


def test_placeholders_have_the_values_of_the_workers_providers(
    tmp_path: Path, worker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE", "north ${env:NOT_AGAIN}")
    file = posted_with(tmp_path, STATIC, "of ${env:SITE}")
    with pytest.raises(ConfigError, match=STATIC):  # what looks like a placeholder without a value
        resolve_connector(CONTEXT, file, worker)
    monkeypatch.setenv("SITE", "north")
    assert resolve_connector(CONTEXT, file, worker)[STATIC] == "of north"
    assert (
        resolve_connector(CONTEXT, posted_with(tmp_path, STATIC, "${vault:a:b}"), worker)[STATIC]
        == "${vault:a:b}"
    )


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (
            STATIC,
            "${env:NO_SUCH_SITE}",
            "worker.properties configures does not have this value on this machine",
        ),
        ("iceberg.catalog.token", "${vault:a:token}", "uses a config provider"),
    ],
)
def test_placeholder_without_a_value_is_refused_by_its_key(
    tmp_path: Path, worker: Path, key: str, value: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{key}: .*{why}"):
        resolve_connector(CONTEXT, posted_with(tmp_path, key, value), worker)


def test_placeholder_without_a_workers_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{STATIC}: uses a config provider: .* --worker"):
        resolve_connector(CONTEXT, posted_with(tmp_path, STATIC, "${env:SITE}"), None)
    regex = posted_with(tmp_path, STATIC, "${topic}")
    assert resolve_connector(CONTEXT, regex, None)[STATIC] == "${topic}"


def test_error_of_a_command_hides_values_of_providers(
    tmp_path: Path,
    worker: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DOOR_KEY", "swordfish-4711")
    props = resolve_connector(CONTEXT, posted_with(tmp_path, STATIC, "${env:DOOR_KEY}"), worker)
    with pytest.raises(typer.Exit), errors_exit(2):
        raise ValueError(f"{props[STATIC]} does not fit")
    assert capsys.readouterr().err == "connect-py: [hidden] does not fit\n"


@pytest.mark.parametrize("error", [KeyError("state"), RuntimeError("odd")])
def test_unexpected_error_ends_with_the_failure_status_and_a_traceback(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, errors_exit(2):
        raise error
    assert ended.value.exit_code == 2
    first, *trace = capsys.readouterr().err.splitlines()
    assert first == f"connect-py: unexpected {type(error).__name__}: {error}"
    assert trace[0].startswith("Traceback ")


def test_question_without_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(ConfigError, match="use --yes"):
        CONTEXT.confirm("Delete it?")

"""The documentation is true: what it shows is accepted, and what it refers to is there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from connect_py.config.worker_config import DistributedConfig
from connect_py.plugins.plugin_registry import PluginRegistry
from rest.app import ADMIN_ENDPOINTS, ENDPOINTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(language: str) -> list[str]:
    return [block for page in PAGES for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)]


@pytest.mark.parametrize("text", _blocks("json"))
def test_connectors_in_the_documentation_are_valid(text: str) -> None:
    posted = json.loads(text)
    config = {"name": "example", **posted.get("config", posted)}
    registry = PluginRegistry.discover()
    connector = registry.load(registry.find_connector(config["connector.class"]))()
    problems = {key: value.errors for key, value in connector.validate(config).items() if value.errors}
    assert problems == {}


@pytest.mark.parametrize("text", _blocks("properties"))
def test_worker_properties_in_the_documentation_are_valid(text: str) -> None:
    pairs = (line.partition("=") for line in text.splitlines() if line)
    config = DistributedConfig.of({key: value for key, _, value in pairs})
    assert config.unknown == ()


@pytest.mark.parametrize("text", _blocks("python"))
def test_programs_in_the_documentation_compile(text: str) -> None:
    compile(text, "documentation", "exec")


def test_the_reference_pages_are_what_the_code_says() -> None:
    command = [sys.executable, str(ROOT / "docs" / "generate_reference.py"), "--check"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert answer.returncode == 0, answer.stderr


def test_the_security_page_names_every_path_of_the_api() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    spans = re.findall(r"`(?:[A-Z]+ )?(/[^`]*)`", page)
    named = [re.sub(r"{\w+}", "1", span) for span in spans]
    named += [f"/connectors/1{path}" for path in named]
    missing = [
        endpoint.pattern.pattern
        for endpoint in (*ENDPOINTS, *ADMIN_ENDPOINTS)
        if not any(endpoint.pattern.fullmatch(path) for path in named)
    ]
    assert not missing


def test_keys_named_in_the_documentation_exist() -> None:
    registry = PluginRegistry.discover()
    sink = registry.load(registry.find_connector("org.apache.iceberg.connect.IcebergSinkConnector"))
    named = {
        key
        for page in PAGES
        for key in re.findall(r"\biceberg\.(?:ext|control|tables)\.[a-z][\w.-]*[\w*]", page.read_text())
    }
    open_ended = ("iceberg.tables.auto-create-props.", "iceberg.tables.write-props.")
    named = {key for key in named if not key.startswith(open_ended)}
    assert named - set(sink.config_def.keys) == {"iceberg.tables.cdcField"}  # named as an old spelling


def test_links_between_pages_lead_somewhere() -> None:
    links = [(page, to) for page in PAGES for to in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())]
    dead = [(page.name, to) for page, to in links if "://" not in to and not (page.parent / to).exists()]
    assert dead == []


def test_tests_named_in_the_documentation_exist() -> None:
    modules = list((ROOT / "tests").rglob("test_*.py"))
    defined = {name for path in modules for name in re.findall(r"def (test_\w+)", path.read_text())}
    defined |= {path.stem for path in modules}
    prose = {page.name: re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE) for page in PAGES}
    named = {name: page for page, text in prose.items() for name in re.findall(r"\btest_\w+", text)}
    assert {name: page for name, page in named.items() if name not in defined} == {}


def test_every_known_defect_of_the_java_sinks_has_a_test() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text()
    listed = page.partition("## Known defects of the Java sinks")[2]
    rows = [line for line in listed.splitlines() if line.startswith("| ") and not line.startswith("| area")]
    assert len(rows) > 70
    assert [row for row in rows if not re.search(r"\| `test_\w+`[^|]*\|$", row)] == []

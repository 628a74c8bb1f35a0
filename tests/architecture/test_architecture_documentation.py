"""The documentation is true: its examples are accepted, and its references exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import tomllib
from itertools import pairwise
from pathlib import Path

import prose
import pytest

from connect_py.config.worker_config import DistributedConfig
from connect_py.plugins.plugin_registry import PluginRegistry
from connectors.iceberg.config.keys import AGGREGATE_PREFIX, EXPECT_PREFIX, MAINTENANCE_PREFIX
from connectors.iceberg.config.spellings import NEVER_VALID
from rest.app import ADMIN_ENDPOINTS, ENDPOINTS

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def _blocks(language: str) -> list[str]:
    return [
        textwrap.dedent(block)
        for page in PAGES
        for block in re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)
    ]


# Added to snippets that show only some keys of an Iceberg sink.
ICEBERG_SINK = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "shop.orders",
}


# Java's connectors run on Java's worker: tests/acceptance/test_postgres_demo.py.
@pytest.mark.parametrize(
    "text", [text for text in _blocks("json") if '"io.debezium.connector.' not in text]
)
def test_connectors_in_the_documentation_are_valid(text: str) -> None:
    posted = json.loads(text)
    config = {"name": "example", **posted.get("config", posted)}
    if "connector.class" not in config:
        config |= ICEBERG_SINK
    registry = PluginRegistry.discover()
    connector = registry.load(registry.find_connector(config["connector.class"]))()
    problems = {
        key: value.errors for key, value in connector.validate(config).items() if value.errors
    }
    assert problems == {}


@pytest.mark.parametrize("text", _blocks("properties"))
def test_worker_properties_in_the_documentation_are_valid(text: str) -> None:
    pairs = (line.partition("=") for line in text.splitlines() if line)
    config = DistributedConfig.of({key: value for key, _, value in pairs})
    assert config.unknown == ()


@pytest.mark.parametrize("text", _blocks("python"))
def test_every_program_in_the_documentation_compiles_as_python(text: str) -> None:
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
        for key in re.findall(
            r"\biceberg\.(?:ext|control|tables)\.[a-z][\w.-]*[\w*]", page.read_text()
        )
    }
    open_ended = (
        "iceberg.tables.auto-create-props.",
        "iceberg.tables.write-props.",
        EXPECT_PREFIX,
        AGGREGATE_PREFIX,
    )
    prefixes = {
        MAINTENANCE_PREFIX.rstrip("."),
        EXPECT_PREFIX.rstrip("."),
        AGGREGATE_PREFIX.rstrip("."),
    }
    named = {key for key in named if not key.startswith(open_ended)} - prefixes
    # the changelog names them
    went = {key for key in NEVER_VALID if key.startswith("iceberg.ext.")}
    # named as an old spelling
    assert named - set(sink.config_def.keys) - went == {"iceberg.tables.cdcField"}


def _anchors(page: Path) -> set[str]:
    """The names that GitHub and the site give to a page's headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
        for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


def test_every_link_between_pages_has_an_existing_target() -> None:
    links = [
        (page, to) for page in PAGES for to in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    ]
    dead = []
    for page, to in links:
        path, _, anchor = to.partition("#")
        target = page.parent / path if path else page
        if "://" in to:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            dead.append(f"{page.relative_to(ROOT)}: {to}")
    assert dead == []


def test_tests_named_in_the_documentation_exist() -> None:
    modules = list((ROOT / "tests").rglob("test_*.py"))
    defined = {name for path in modules for name in re.findall(r"def (test_\w+)", path.read_text())}
    defined |= {path.stem for path in modules}
    prose = {
        page.name: re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for page in PAGES
    }
    named = {
        name: page
        for page, text in prose.items()
        for name in re.findall(r"\btest_\w+(?![\w*])", text)
    }
    assert {name: page for name, page in named.items() if name not in defined} == {}


def test_every_known_defect_of_the_java_sinks_has_a_test() -> None:
    page = (ROOT / "docs" / "java-sink-defects.md").read_text()
    rows = [
        line
        for line in page.splitlines()
        if line.startswith("| ") and not line.startswith("| area")
    ]
    assert len(rows) > 70
    assert [row for row in rows if not re.search(r"\| `test_\w+`[^|]*\|$", row)] == []


def test_modules_on_the_pages_about_the_code_exist() -> None:
    page = (ROOT / "docs" / "internals" / "find-the-code.md").read_text()
    rows = [line for line in page.splitlines() if re.match(r"\| (?!topic |-)", line)]
    assert len(rows) > 30
    for row in rows:
        modules = [path for path in re.findall(r"`([\w./-]+)`", row) if "/" in path]
        assert modules, f"no module: {row}"
        missing = [path for path in modules if path != "/ui" and not (ROOT / path).exists()]
        assert missing == [], row
    for name in ("CONTRIBUTING.md", "docs/architecture.md"):
        paths = re.findall(r"`([\w.-]+/[\w./-]*\w)`", (ROOT / name).read_text())
        assert len(paths) > 10
        iceberg = ROOT / "connectors" / "iceberg"
        missing = [p for p in paths if not (ROOT / p).exists() and not (iceberg / p).exists()]
        assert missing == [], name


@pytest.mark.parametrize(
    ("contract", "folder", "heading"),
    [
        ("A reader and a record travel one way", "connect_py", "## Packages"),
        ("A row travels one way through the Iceberg sink", "connectors/iceberg", "The packages of"),
    ],
)
def test_map_of_packages_has_the_order_of_the_import_rules(
    contract: str, folder: str, heading: str
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each["name"] == contract]
    ranks = {
        module: rank for rank, layer in enumerate(layers) for module in re.split(r" [|:] ", layer)
    }
    page = (ROOT / "docs" / "architecture.md").read_text().partition(heading)[2]
    table = re.search(r"\n\|---.*?\n\n", page, re.DOTALL)
    assert table
    rows = []
    for row in table[0].splitlines()[2:-1]:
        paths = re.findall(r"`([\w./]+)`", row.split("|")[1])
        modules = [
            (path if (ROOT / path).exists() else f"{folder}/{path}").removesuffix(".py")
            for path in paths
        ]
        rows.append([ranks[module.replace("/", ".")] for module in modules])
    assert len(rows) > 10
    below = [max(upper) <= min(lower) for upper, lower in pairwise(rows)]
    assert all(below), rows


def test_the_site_has_a_place_for_every_page() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    placed = re.findall(r"[:-] ([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = [
        str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")
    ]
    assert sorted(placed) == sorted(pages)


def test_log_lines_to_look_for_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "how-to" / "watch-a-worker.md").read_text()
    lines = re.findall(r"^\| `([^`]+)` \|", page.partition("Lines to look for:")[2], re.MULTILINE)
    assert len(lines) > 10
    sources = [
        path.read_text()
        for name in ("connect_py", "connectors", "rest")
        for path in (ROOT / name).rglob("*.py")
    ]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))  # join adjacent string literals
    parts = [
        (line, part.strip()) for line in lines for part in line.split("…") if len(part.strip()) > 8
    ]
    assert [line for line, part in parts if part not in code] == []


def test_metrics_named_in_the_documentation_exist() -> None:
    sources = [
        path.read_text()
        for name in ("connect_py", "connectors", "rest")
        for path in (ROOT / name).rglob("*.py")
    ]
    code = "\n".join(sources)
    invented = ROOT / "docs" / "plugin-authors.md"  # its examples define additional names
    named = {
        name.removesuffix("_total")
        for page in PAGES
        if page != invented
        for name in re.findall(r"`connect_py_([a-z][a-z_]+)", page.read_text())
    }
    assert len(named) > 15
    assert [name for name in sorted(named) if name not in code] == []


def test_phrases_are_counted_in_prose_and_not_in_code(tmp_path: Path) -> None:
    sources = {
        "README.md": "It says so.\n\n    says\n\n```\nsays\n```\n`says` and [a link](says.md)\n",
        "connectors/sink/File.java": "int says; // the table\n// is no number\n",
        "rest/app.py": '"""Says it."""\n\nfound = 1  # what is\n# there says it\n',
        "tests/unit/test_app.py": "def test_it() -> None:\n    # the file says it\n    found = 1\n",
    }
    for name, source in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    report = prose.report(tmp_path, sources)
    assert report.totals() == {"code": 4, "pages": 1, "tests": 1, "names": 1, "docstrings": 0}
    assert report.matches["names"] == ["rest/app.py:3: found"]
    assert report.matches["is no X"] == ["connectors/sink/File.java:2: // is no number"]


def test_count_above_its_limit_is_reported() -> None:
    (message,) = prose.excess({"code": 3, "names": 2}, {"code": 2, "names": 2})
    assert message.startswith("prose: 3 code, 1 more than in prose_counts.json")

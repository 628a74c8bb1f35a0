"""Prometheus rules and Grafana dashboards in `monitoring` query metrics that a worker exports.

If promtool is installed, it evaluates the rules, too. The other tests need no external program.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from monitored_series import monitored_series

ROOT = Path(__file__).parents[2]
RULES = ROOT / "monitoring" / "prometheus-rules.yml"
SCENARIOS = ROOT / "tests" / "fixtures" / "prometheus_rules_test.yml"
PAGE = ROOT / "docs" / "how-to" / "alerts.md"
DASHBOARDS = sorted((ROOT / "monitoring" / "grafana").glob("*.json"))
SCRAPE_LABELS = {"job", "instance", "exported_instance"}  # added by Prometheus
BUILT_IN_VARIABLES = {"__rate_interval"}
PANEL_TYPES = {"row", "stat", "timeseries", "table"}  # available without plugins


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def panels(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["panels"])


def queries(path: Path) -> list[str]:
    """Return the expressions of a dashboard with values in place of its variables."""
    templates = [target["expr"] for panel in panels(path) for target in panel.get("targets", [])]
    return [
        re.sub(r"\$\w+", "x", template.replace("$__rate_interval", "5m")) for template in templates
    ]


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [
        query for path in DASHBOARDS for query in queries(path)
    ]


def nodes(expression: str) -> Iterator[Any]:
    collected: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), collected.append)
    return iter(collected)


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each series that an expression queries, and the labels that it matches."""
    for node in nodes(expression):
        selector = getattr(node, "vector_selector", node)
        if isinstance(selector, promql_parser.VectorSelector):
            assert selector.name, expression
            yield selector.name, {matcher.name for matcher in selector.matchers.matchers}


def grouped_by(expression: str) -> set[str]:
    """Return the labels that the aggregations of an expression preserve."""
    modifiers = (
        node.modifier for node in nodes(expression) if isinstance(node, promql_parser.AggregateExpr)
    )
    return {label for modifier in modifiers if modifier for label in modifier.labels}


def exported_series() -> dict[str, frozenset[str]]:
    return {
        name: labels | SCRAPE_LABELS
        for name, labels in {**monitored_series(), "up": frozenset()}.items()
    }


def test_expressions_query_exported_series_and_labels() -> None:
    exported = exported_series()
    assert len(expressions()) > 100
    for expression in expressions():
        queried = list(selectors(expression))
        assert queried, expression
        assert {name for name, _ in queried} - set(exported) == set(), expression
        for name, matched_labels in queried:
            assert matched_labels - exported[name] == set(), expression
        available = frozenset().union(*(exported[name] for name, _ in queried))
        assert grouped_by(expression) - available == set(), expression


def test_metrics_page_documents_every_queried_metric() -> None:
    pages = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    spans = re.findall(r"`([^`]+)`", pages)
    queried = {name for expression in expressions() for name, _ in selectors(expression)}
    connect_py_metrics = {name for name in queried if name.startswith("connect_py_")}
    documented = {span.partition("{")[0] for span in spans}
    suffixes = tuple(span for span in documented - {"_total", "_info"} if span.startswith("_"))
    assert len(connect_py_metrics) > 30
    undocumented = connect_py_metrics - documented
    assert {name for name in undocumented if not name.endswith(suffixes)} == set()


def test_every_alert_has_a_severity_and_annotations() -> None:
    for rule in rules():
        assert re.fullmatch(r"ConnectPy[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[mh]", rule["for"]), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule["alert"]
        assert (
            rule["annotations"]["runbook_url"] == f"docs/how-to/alerts.md#{rule['alert'].lower()}"
        )


def test_annotations_of_alerts_use_available_labels() -> None:
    for rule in rules():
        annotations = " ".join(rule["annotations"].values())
        used = set(re.findall(r"\$labels\.(\w+)", annotations))
        names = {name for name, _ in selectors(rule["expr"])}
        available = grouped_by(rule["expr"]) or frozenset().union(
            *(exported_series()[name] for name in names)
        )
        assert used - available == set(), rule["alert"]


def test_every_alert_has_a_section_on_the_page() -> None:
    described = re.findall(r"^### (ConnectPy\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(described) == sorted({rule["alert"] for rule in rules()})


def test_every_section_of_an_alert_has_meaning_checks_and_remedy() -> None:
    for section in PAGE.read_text().split("\n### ")[1:]:
        for part in ("**Meaning.**", "**Look at**", "**Mend.**"):
            assert part in section, section.partition("\n")[0]


def test_dashboards_match_their_description() -> None:
    command = [sys.executable, str(ROOT / "monitoring" / "dashboards.py"), "--check"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_complete_and_has_a_stable_uid(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    assert board["schemaVersion"] >= 39
    assert "id" not in board
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert {panel["type"] for panel in board["panels"]} <= PANEL_TYPES
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            refs = [target["refId"] for target in panel["targets"]]
            assert len(refs) == len(set(refs))
            assert all(target["expr"].strip() for target in panel["targets"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_of_a_dashboard_do_not_overlap(path: Path) -> None:
    occupied: set[tuple[int, int]] = set()
    for panel in panels(path):
        position = panel["gridPos"]
        assert position["x"] + position["w"] <= 24
        cells = {
            (x, y)
            for x in range(position["x"], position["x"] + position["w"])
            for y in range(position["y"], position["y"] + position["h"])
        }
        assert not cells & occupied, panel["title"]
        occupied |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_defines_the_variables_that_it_uses(path: Path) -> None:
    content = path.read_text()
    variables = {variable["name"] for variable in json.loads(content)["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", content)) - BUILT_IN_VARIABLES - {"__all"}
    assert {"datasource", "job", "worker", "connector"} <= variables
    assert used - variables == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_of_a_dashboard_query_exported_series(path: Path) -> None:
    for variable in json.loads(path.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert query, variable["name"]
            [(name, matched_labels)] = selectors(re.sub(r"\$\w+", "x", query[1]))
            assert {query[2], *matched_labels} - exported_series()[name] == set()


def test_uids_and_titles_of_dashboards_are_unique() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len(boards) == 4
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 4


def test_every_alert_fires_in_a_scenario_of_promtool() -> None:
    tests = yaml.safe_load(SCENARIOS.read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules()}


def test_every_alert_fires_and_ends_in_an_acceptance_test() -> None:
    source = "\n".join(
        path.read_text() for path in (ROOT / "tests" / "acceptance").glob("test_alerts_of_*.py")
    )
    fired = set(re.findall(r'await_firing\(\s*"(\w+)"', source))
    # alerts whose end a test awaits in a loop
    loops = " ".join(re.findall(r"for alert in \(([^)]+)\)", source))
    ended = set(re.findall(r'await_end\(\s*"(\w+)"', source)) | set(re.findall(r'"(\w+)"', loops))
    assert fired == ended == {rule["alert"] for rule in rules()}


def test_promtool_accepts_the_rules_and_their_scenarios() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it is part of Prometheus")
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(SCENARIOS)]):
        answer = subprocess.run(
            [promtool, *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr

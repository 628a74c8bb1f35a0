"""Rules for Prometheus and dashboards for Grafana in `monitoring`: they ask for what a worker
serves.

promtool evaluates the rules as well, where it is installed. Everything else needs no program of
Prometheus's.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
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
OF_PROMETHEUS = {"job", "instance", "exported_instance"}  # labels that a scrape adds
GRAFANAS_OWN = {"__rate_interval"}
PANELS = {"row", "stat", "timeseries", "table"}  # what every Grafana brings


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def panels(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["panels"])


def queries(path: Path) -> list[str]:
    """The expressions of a dashboard as Prometheus gets them."""
    texts = [target["expr"] for panel in panels(path) for target in panel.get("targets", [])]
    return [re.sub(r"\$\w+", "x", text.replace("$__rate_interval", "5m")) for text in texts]


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [
        query for path in DASHBOARDS for query in queries(path)
    ]


def nodes(expression: str) -> Iterator[Any]:
    found: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), found.append)
    return iter(found)


def selectors(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Names of the series that an expression asks for, with the labels that it compares."""
    for node in nodes(expression):
        selector = getattr(node, "vector_selector", node)
        if isinstance(selector, promql_parser.VectorSelector):
            assert selector.name, expression
            yield selector.name, {matcher.name for matcher in selector.matchers.matchers}


def grouped_by(expression: str) -> set[str]:
    """The labels that aggregations of an expression keep."""
    kept = (
        node.modifier for node in nodes(expression) if isinstance(node, promql_parser.AggregateExpr)
    )
    return {label for modifier in kept if modifier for label in modifier.labels}


def known_series() -> dict[str, frozenset[str]]:
    return {
        name: labels | OF_PROMETHEUS
        for name, labels in {**monitored_series(), "up": frozenset()}.items()
    }


def test_expressions_ask_for_series_and_labels_that_exist() -> None:
    known = known_series()
    assert len(expressions()) > 100
    for expression in expressions():
        asked = list(selectors(expression))
        assert asked, expression
        assert {name for name, _ in asked} - set(known) == set(), expression
        for name, compared in asked:
            assert compared - known[name] == set(), expression
        available = frozenset().union(*(known[name] for name, _ in asked))
        assert grouped_by(expression) - available == set(), expression


def test_the_metrics_page_documents_every_metric_of_ours_asked_for() -> None:
    pages = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    spans = re.findall(r"`([^`]+)`", pages)
    asked = {name for expression in expressions() for name, _ in selectors(expression)}
    ours = {name for name in asked if name.startswith("connect_py_")}
    written = {span.partition("{")[0] for span in spans}
    ends = tuple(span for span in written - {"_total", "_info"} if span.startswith("_"))
    assert len(ours) > 30
    assert {name for name in ours - written if not name.endswith(ends)} == set()


def test_every_alert_says_how_urgent_it_is_and_why() -> None:
    for rule in rules():
        assert re.fullmatch(r"ConnectPy[A-Za-z]+", rule["alert"])
        assert re.fullmatch(r"\d+[mh]", rule["for"]), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}, rule["alert"]
        assert (
            rule["annotations"]["runbook_url"] == f"docs/how-to/alerts.md#{rule['alert'].lower()}"
        )


def test_texts_of_alerts_use_labels_that_their_series_keep() -> None:
    for rule in rules():
        texts = " ".join(rule["annotations"].values())
        used = set(re.findall(r"\$labels\.(\w+)", texts))
        names = {name for name, _ in selectors(rule["expr"])}
        kept = grouped_by(rule["expr"]) or frozenset().union(
            *(known_series()[name] for name in names)
        )
        assert used - kept == set(), rule["alert"]


def test_every_alert_has_its_place_on_the_page() -> None:
    described = re.findall(r"^### (ConnectPy\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sorted(described) == sorted({rule["alert"] for rule in rules()})


def test_every_alert_on_the_page_says_what_to_do() -> None:
    for section in PAGE.read_text().split("\n### ")[1:]:
        for part in ("**Meaning.**", "**Look at**", "**Mend.**"):
            assert part in section, section.partition("\n")[0]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_complete_and_has_a_stable_uid(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    assert board["schemaVersion"] >= 39
    assert "id" not in board
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    assert {panel["type"] for panel in board["panels"]} <= PANELS
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
            assert panel["datasource"]["uid"] == "${datasource}"
            refs = [target["refId"] for target in panel["targets"]]
            assert len(refs) == len(set(refs))
            assert all(target["expr"].strip() for target in panel["targets"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_of_a_dashboard_lie_beside_each_other(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels(path):
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_that_a_dashboard_uses_are_defined_there(path: Path) -> None:
    text = path.read_text()
    variables = {variable["name"] for variable in json.loads(text)["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - GRAFANAS_OWN - {"__all"}
    assert {"datasource", "job", "worker", "connector"} <= variables
    assert used - variables == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_variables_of_a_dashboard_come_from_series_that_exist(path: Path) -> None:
    for variable in json.loads(path.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
            assert asked, variable["name"]
            [(name, compared)] = selectors(re.sub(r"\$\w+", "x", asked[1]))
            assert {asked[2], *compared} - known_series()[name] == set()


def test_uids_and_titles_of_dashboards_differ_from_each_other() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len(boards) == 4
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == 4


def test_every_alert_fires_in_one_of_promtools_scenarios() -> None:
    tests = yaml.safe_load(SCENARIOS.read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test["alert_rule_test"]
        if case["exp_alerts"]
    }
    assert fired == {rule["alert"] for rule in rules()}


def test_every_alert_fires_and_ends_on_real_parts() -> None:
    text = "\n".join(
        path.read_text() for path in (ROOT / "tests" / "acceptance").glob("test_alerts_of_*.py")
    )
    fired = set(re.findall(r'await_firing\(\s*"(\w+)"', text))
    # those whose ends a test awaits in a loop
    listed = " ".join(re.findall(r"for alert in \(([^)]+)\)", text))
    ended = set(re.findall(r'await_end\(\s*"(\w+)"', text)) | set(re.findall(r'"(\w+)"', listed))
    assert fired == ended == {rule["alert"] for rule in rules()}


def test_promtool_finds_that_alerts_fire_when_they_should() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed; it is part of Prometheus")
    for command in (["check", "rules", str(RULES)], ["test", "rules", str(SCENARIOS)]):
        answer = subprocess.run(
            [promtool, *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr

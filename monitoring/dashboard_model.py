"""Model of a Grafana dashboard, and its conversion to the JSON that Grafana imports.

Expressions are PromQL. A name from `MATCHERS` at the start of a selector's braces, as in
`up{worker}`, is replaced with matchers for the dashboard's variables. The functions `total`,
`maximum`, `rate`, `increase`, and `or_zero` return common aggregations.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# Label matchers with the variables of a dashboard, by name.
_WORKER = 'job=~"$job",instance=~"$worker"'
MATCHERS = {
    "worker": _WORKER,
    "driver": f'{_WORKER},service="spark-driver"',
    "consumer": f'{_WORKER},client_id=~"connector-consumer-($connector)-[0-9]+"',
    "connector": f'{_WORKER},connector=~"$connector"',
    "table": f'{_WORKER},connector=~"$connector",table=~"$table"',
}
_MATCHER_NAME = re.compile(r"\{(" + "|".join(MATCHERS) + r")(?=[,}])")
DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTH = 24  # columns of a dashboard
STAT_HEIGHT = 4
PANEL_HEIGHT = 8


@dataclass(frozen=True)
class Panel:
    """A panel of a dashboard. Its grid position is derived from the order of the panels."""

    type: str  # "row", "stat", "timeseries", or "table"
    title: str
    series: Mapping[str, str] = field(default_factory=dict)  # expression by legend
    unit: str = "none"  # Grafana unit ID
    description: str = ""
    thresholds: tuple[tuple[str, float], ...] = ()  # colors with their lower bounds
    stacked: bool = False


class Dashboard:
    """Panels that share the variables for the job, worker, connector, and possibly table."""

    def __init__(
        self, uid: str, title: str, description: str, *panels: Panel, by_table: bool = False
    ) -> None:
        self.uid = uid
        self.title = title
        self.description = description
        self.panels = panels
        self.by_table = by_table  # adds a variable for the table


def row(title: str) -> Panel:
    """Return a heading for the panels below it."""
    return Panel("row", title)


def stat(
    title: str,
    expression: str,
    *,
    unit: str = "none",
    orange: float | None = None,
    red: float | None = None,
    description: str = "",
) -> Panel:
    """Return a panel with one number, which is orange or red starting at these values."""
    colors = (("orange", orange), ("red", red))
    thresholds = tuple((color, value) for color, value in colors if value is not None)
    return Panel("stat", title, {"": expression}, unit, description, thresholds)


def graph(
    title: str,
    unit: str,
    series: str | Mapping[str, str],
    legend: str = "",
    *,
    stacked: bool = False,
    description: str = "",
) -> Panel:
    """Return a time series panel for one expression with its legend, or for several by legend."""
    lines = {legend: series} if isinstance(series, str) else series
    return Panel("timeseries", title, lines, unit, description, stacked=stacked)


def table(title: str, expression: str, *, description: str = "") -> Panel:
    """Return a panel that lists the labels of the current series."""
    return Panel("table", title, {"": expression}, description=description)


def total(selector: str, *, by: str) -> str:
    """Return the sum of a gauge for each combination of labels."""
    return f"sum by ({by}) ({selector})"


def maximum(selector: str, *, by: str) -> str:
    """Return the maximum of a gauge for each combination of labels."""
    return f"max by ({by}) ({selector})"


def rate(selector: str, *, by: str) -> str:
    """Return the per-second rate of a counter for each combination of labels."""
    return total(f"rate({selector}[$__rate_interval])", by=by)


def increase(selector: str, *, by: str = "") -> str:
    """Return the increase of a counter between two points, per series or combination of labels."""
    growth = f"increase({selector}[$__rate_interval])"
    return total(growth, by=by) if by else growth


def or_zero(expression: str) -> str:
    """Return an expression that is 0 where `expression` has no value."""
    return f"{expression} or vector(0)"


def dashboard_json(dashboard: Dashboard) -> str:
    """Return the content of the dashboard's JSON file."""
    panels = list(dashboard.panels)
    body = {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["connect-py"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "",
        "weekStart": "",
        "fiscalYearStartMonth": 0,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "timepicker": {},
        "annotations": {"list": []},
        "links": [
            {
                "type": "dashboards",
                "title": "connect-py",
                "tags": ["connect-py"],
                "asDropdown": False,
                "includeVars": True,
                "keepTime": True,
                "targetBlank": False,
                "icon": "external link",
                "tooltip": "",
                "url": "",
            }
        ],
        "templating": {"list": list(_variables(dashboard.by_table))},
        "panels": [
            _panel(number, panel, position)
            for number, (panel, position) in enumerate(
                zip(panels, _positions(panels), strict=True), 1
            )
        ],
    }
    return json.dumps(body, indent=2) + "\n"


def _variables(by_table: bool) -> Iterator[dict[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "regex": "",
        "refresh": 1,
        "hide": 0,
        "includeAll": False,
        "multi": False,
        "skipUrlSync": False,
        "options": [],
        "current": {},
    }
    worker_metrics = "kafka_connect_connect_worker_metrics"
    sources = {  # by variable: the series and the label that provide its values
        "job": (f"{worker_metrics}_task_count", "job"),
        "worker": (f'{worker_metrics}_task_count{{job=~"$job"}}', "instance"),
        "connector": (f'{worker_metrics}_connector_total_task_count{{job=~"$job"}}', "connector"),
    }
    if by_table:
        lag = 'connect_py_iceberg_lag_seconds{job=~"$job",connector=~"$connector"}'
        sources["table"] = (lag, "table")
    for name, (selector, label) in sources.items():
        query = f"label_values({selector}, {label})"
        yield {
            "name": name,
            "label": name.capitalize(),
            "type": "query",
            "datasource": DATA_SOURCE,
            "definition": query,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "hide": 0,
            "regex": "",
            "skipUrlSync": False,
            "options": [],
            "current": {"text": ["All"], "value": ["$__all"]},
        }


def _positions(panels: list[Panel]) -> Iterator[dict[str, int]]:
    """Yield grid positions. Consecutive stats share a line; other panels are placed in pairs."""
    x = y = height = 0
    for number, panel in enumerate(panels):
        if panel.type == "row":
            width, next_height = WIDTH, 1
        elif panel.type == "stat":
            width, next_height = WIDTH // _stats_around(panels, number), STAT_HEIGHT
        else:
            width, next_height = WIDTH // 2, PANEL_HEIGHT
        if x + width > WIDTH or next_height != height:
            x, y = 0, y + height
        height = next_height
        yield {"h": height, "w": width, "x": x, "y": y}
        x += width


def _stats_around(panels: list[Panel], number: int) -> int:
    """Return the length of the sequence of stats that contains the panel at this index."""
    first = last = number
    while panels[first - 1].type == "stat":
        first -= 1
    while panels[last + 1].type == "stat":
        last += 1
    return last - first + 1


def _panel(number: int, panel: Panel, position: dict[str, int]) -> dict[str, Any]:
    if panel.type == "row":
        return {
            "id": number,
            "type": "row",
            "title": panel.title,
            "collapsed": False,
            "panels": [],
            "gridPos": position,
        }
    content = {
        "id": number,
        "type": panel.type,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATA_SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": OPTIONS[panel.type],
        "targets": [
            _target(panel, ref_id, expression, legend)
            for ref_id, (legend, expression) in zip(
                string.ascii_uppercase, panel.series.items(), strict=False
            )
        ],
    }
    if panel.type == "table":
        hidden = {"excludeByName": {"Time": True, "__name__": True}}
        options = {**hidden, "indexByName": {}, "renameByName": {}}
        content["transformations"] = [{"id": "organize", "options": options}]
    return content


OPTIONS: dict[str, dict[str, Any]] = {
    "stat": {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "justifyMode": "auto",
        "orientation": "auto",
        "textMode": "auto",
    },
    "timeseries": {
        "legend": {
            "displayMode": "table",
            "placement": "bottom",
            "calcs": ["lastNotNull", "max"],
            "showLegend": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "table": {"showHeader": True, "cellHeight": "sm"},
}


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": value} for color, value in panel.thresholds]
    defaults = {
        "unit": panel.unit,
        "color": {"mode": "thresholds" if panel.type == "stat" else "palette-classic"},
        "thresholds": {"mode": "absolute", "steps": steps},
        "mappings": [],
    }
    if panel.type == "timeseries":
        defaults["custom"] = {
            "drawStyle": "line",
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 5,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
        }
    return defaults | {"min": 0}


def _target(panel: Panel, ref_id: str, expression: str, legend: str) -> dict[str, Any]:
    over_time = panel.type == "timeseries"
    target = {
        "refId": ref_id,
        "datasource": DATA_SOURCE,
        "editorMode": "code",
        "expr": _MATCHER_NAME.sub(lambda match: "{" + MATCHERS[match[1]], expression),
        "legendFormat": legend,
        "instant": not over_time,
        "range": over_time,
    }
    return target | {"format": "table"} if panel.type == "table" else target

"""`connect-py routes`: what would go where, by the configuration alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures.command_line import command_app
from iceberg_staging_rows import BASE, config
from typer.testing import CliRunner

from connectors.iceberg_tools.commands.route_preview import RoutePreview
from connectors.iceberg_tools.commands.routes import routes


def lines(topics: list[str], values: list[str] | None = None, **props: str) -> list[str]:
    return list(RoutePreview.of(config(**props), topics, values or []).lines())


def test_preview_shows_topics_with_their_tables_and_write_settings() -> None:
    shown = lines(
        ["shop.orders", "other"],
        ext__topic_to_table=r"shop\.(.*):db.{1}+audit.{1}",
        tables__upsert_mode_enabled="true",
        tables__default_id_columns="id",
        tables__default_partition_by="days(at), bucket(id, 16)",
        tables__auto_create_enabled="true",
        table__audit__orders__commit_branch="raw",
    )
    assert shown == [
        "shop.orders -> db.orders, audit.orders",
        "other -> no table: counted and dropped",
        "  db.orders: merge, key id, partitioned by day(at), bucket[16](id), branch main, created "
        "if missing",
        "  audit.orders: merge, key id, partitioned by day(at), bucket[16](id), branch raw, "
        "created if missing",
    ]


def test_rows_that_are_routed_by_a_field_need_a_value() -> None:
    regex = {
        "tables": "db.a,db.b",
        "tables__route_field": "kind",
        "table__db__a__route_regex": "a|ab",
        "table__db__b__route_regex": "ab",
        "ext__unrouted": "dlq",
    }
    assert lines(["t"], ["ab", "a", "x"], **regex)[:3] == [
        "t (ab) -> db.a, db.b",
        "t (a) -> db.a",
        "t (x) -> no table: sent to the dead-letter queue",
    ]
    assert "specify its values with --value" in lines(["t"], **regex)[0]
    dynamic = {"tables__dynamic_enabled": "true", "tables__route_field": "kind"}
    assert lines(["t"], ["Db.X"], **dynamic)[0] == "t (Db.X) -> db.x"


def test_the_command_reads_a_connector_as_it_is_posted(tmp_path: Path) -> None:
    app = command_app(routes)
    file = tmp_path / "orders.json"
    props = {**BASE, "topics": "a, b", "iceberg.ext.topic-to-table": "a:db.a"}
    file.write_text(json.dumps({"name": "orders", "config": props}))
    answer = CliRunner().invoke(app, [str(file), "--json"])
    assert answer.exit_code == 1  # rows of b go nowhere
    assert json.loads(answer.stdout)["routes"] == [
        {"topic": "a", "value": None, "tables": ["db.a"]},
        {"topic": "b", "value": None, "tables": []},
    ]
    answer = CliRunner().invoke(app, [str(file), "--topics", "a"])
    assert (answer.exit_code, answer.stdout.splitlines()[0]) == (0, "a -> db.a")
    file.write_text(
        json.dumps({"name": "orders", "config": {**props, "iceberg.ext.topic-to-table": "("}})
    )
    answer = CliRunner().invoke(app, [str(file)])
    assert answer.exit_code == 1
    assert "topic-to-table" in answer.output


@pytest.mark.parametrize("topics", [[], ["a"]])
def test_preview_shows_static_tables_taking_every_row(topics: list[str]) -> None:
    shown = lines(topics, tables="db.x,db.y")
    assert shown[len(topics) :] == [
        "  db.x: append, branch main, must exist",
        "  db.y: append, branch main, must exist",
    ]

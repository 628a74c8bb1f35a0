"""`iceberg.ext.cycle-aggregate.<table>`: how it is read, and who may set it."""

from __future__ import annotations

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.allowed_settings import refused_code
from connectors.iceberg.config.cycle_aggregate import CycleAggregate, parse_aggregates

SQL = "SELECT region, count(*) AS n FROM staged GROUP BY region"
PREFIX = "iceberg.ext.cycle-aggregate."


def settings(**more: str) -> dict[str, str]:
    return {"db.regions": SQL, **{f"db.regions.{name}": text for name, text in more.items()}}


def test_aggregate_follows_the_table_that_it_names() -> None:
    named = settings(keys="region, shop", add="n") | {"db.regions.from": "db.lines"}
    (found,) = parse_aggregates(named, ("db.orders", "db.lines"))
    assert found == CycleAggregate("db.regions", SQL, ("region", "shop"), ("n",), "db.lines")
    assert parse_aggregates(settings(keys="region"), ("db.orders",))[0].source == "db.orders"
    other = parse_aggregates(settings(keys="region", add="n"), ("db.orders",))[0]
    assert other.digest != parse_aggregates(settings(keys="region"), ("db.orders",))[0].digest


def test_only_its_own_table_has_the_aggregate() -> None:
    given = {
        f"{PREFIX}{key}": text
        for key, text in settings(keys="region", **{"from": "db.lines"}).items()
    }
    made = config(
        tables="db.orders,db.lines",
        **{key.removeprefix("iceberg."): text for key, text in given.items()},
    )
    assert [each.table for each in made.table("db.lines").aggregates] == ["db.regions"]
    assert made.table("db.orders").aggregates == ()
    assert not [text for text in made.warnings if "aggregate" in text]


@pytest.mark.parametrize(
    ("given", "tables", "why"),
    [
        (settings(), ("db.orders",), r"regions\.keys: is required"),
        (settings(keys="region"), ("db.orders", "db.lines"), r"regions\.from: is required"),
        (settings(keys="region"), None, r"regions\.from: is required"),
        (
            settings(keys="region") | {"db.regions.from": "db.x"},
            ("db.orders",),
            "no rows are routed to table db.x",
        ),
        (
            settings(keys="region", add="region"),
            ("db.orders",),
            r"regions\.add: region is a key column",
        ),
        (
            settings(keys="region") | {"db.regions": "SELECT 1"},
            ("db.orders",),
            "must read staged, removed",
        ),
        (
            settings(keys="region") | {"db.regions": "DROP TABLE x"},
            ("db.orders",),
            "expected a query",
        ),
        (settings(keys="region"), ("db.regions",), "is a destination table"),
        (settings(keys="[region"), ("db.orders",), "regions"),
        (
            {"db.regions.keys": "region"},
            ("db.orders",),
            r"iceberg\.ext\.cycle-aggregate\.db\.regions is not set",
        ),
    ],
)
def test_aggregate_that_makes_no_sense_is_refused(
    given: dict[str, str], tables: tuple[str, ...], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_aggregates(given, tables)


def test_queries_of_aggregates_need_the_workers_leave() -> None:
    props = {f"{PREFIX}{key}": text for key, text in settings(keys="region").items()}
    assert dict(refused_code(props, lambda _: {})).keys() == {f"{PREFIX}db.regions"}
    allowed = {"connect_py.spark.user-code.allowed": "iceberg.ext.cycle-aggregate.*"}
    assert dict(refused_code(props, lambda _: allowed)) == {}


@pytest.mark.parametrize(
    ("rest", "reads"),
    [
        ("FROM current", True),
        ("FROM staged JOIN\n  `Current` c USING (region)", True),
        ("FROM staged AS s, db.x, current c", True),
        ("FROM /* unchanged */ current WHERE EXISTS (SELECT 1 FROM staged)", True),
        ("FROM staged WHERE region IN (TABLE current)", True),
        (
            "FROM staged WHERE day = CURRENT_DATE AND day < current_date() -- not FROM current",
            False,
        ),
        ("FROM staged WHERE state IN ('it''s', 'current') OR note = 'from current'", False),
        ('FROM staged WHERE note = "the \\" join current"', False),
        (
            "FROM (SELECT sum(n) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM "
            "staged)",
            False,
        ),
        ("FROM staged s, lateral_view v, current.lines", False),
        ("FROM staged WHERE staged.current", False),
    ],
)
def test_only_a_relation_of_this_name_reads_the_aggregate(rest: str, reads: bool) -> None:
    assert (
        CycleAggregate("db.regions", f"SELECT * {rest}", ("region",), (), "db.lines").reads_current
        is reads
    )

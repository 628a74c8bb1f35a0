"""`iceberg.ext.cycle-sql` and `iceberg.ext.cycle-transform`: how they are read, and who may set
them."""

from __future__ import annotations

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConfigError
from connectors.iceberg.config.allowed_settings import refused_code
from connectors.iceberg.config.cycle_step import CycleStep

SQL = "SELECT * FROM staged WHERE n > 0"


def test_step_of_a_table_wins_over_the_connectors() -> None:
    made = config(
        ext__cycle_sql=SQL,
        table__orders__cycle_transform="shop.steps:rates",
        tables="db.orders,db.lines",
    )
    assert made.table("db.lines").step == CycleStep(sql=SQL)
    assert made.table("db.orders").step == CycleStep(function="shop.steps:rates")
    assert config().table("db.orders").step is None
    none = {"table__orders__cycle_sql": ""}
    assert config(ext__cycle_sql=SQL, **none).table("db.orders").step is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"ext__cycle_sql": "DROP TABLE x"}, "expected a query"),
        ({"ext__cycle_sql": "SELECT 1"}, "must read staged"),
        ({"ext__cycle_sql": "SELECT reflect('a', 'b') FROM staged"}, "must not contain reflect"),
        ({"ext__cycle_sql": "SELECT * FROM staged, parquet.`s3://x`"}, "must not contain"),
        ({"ext__cycle_transform": "steps"}, "expected module:function"),
        ({"ext__cycle_sql": SQL, "ext__cycle_transform": "a:b"}, "cannot be combined"),
        ({"table__orders__cycle_sql": "SELECT 1"}, "must read staged"),
    ],
)
def test_step_that_makes_no_sense_is_refused(settings: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config(**settings)


def test_steps_need_the_leave_of_the_worker() -> None:
    props = {
        "iceberg.ext.cycle-sql": SQL,
        "iceberg.table.db.orders.cycle-transform": "a:b",
        "iceberg.ext.tags": "",
    }

    def refused(allowed: str) -> dict[str, str]:
        return dict(refused_code(props, lambda _: {"connect_py.spark.user-code.allowed": allowed}))

    assert refused("*") == {}
    assert list(refused("iceberg.ext.*")) == ["iceberg.table.db.orders.cycle-transform"]
    assert refused("")["iceberg.ext.cycle-sql"].startswith("runs SQL in the worker's Spark driver")
    assert refused("")["iceberg.table.db.orders.cycle-transform"].startswith("runs code in")

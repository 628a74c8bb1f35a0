"""Commits to a REST catalog that rejects every ref except main."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fixtures.iceberg_commit import Lake, Sink, activate, lake, lake_config, order
from iceberg_rest_catalog import TOKEN, RestCatalogServer
from short_form import short_form

from connect_py.api.config import ConfigValue
from connect_py.testing.services import FakeSharedServices
from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.config.expectations import Expectation, ExpectationAction
from connectors.iceberg.connector import IcebergSinkConnector
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.errors import TableUnsuitableError
from connectors.iceberg.protocol.commit_request import EngineName, EngineSettings
from connectors.iceberg.protocol.own_refs import unpublished_branch
from connectors.iceberg.table.table import StagedFile, StagedKind

__all__ = ["lake"]

BRANCH = unpublished_branch("connect-orders")
COPY_ON_WRITE = {"write.merge.mode": "copy-on-write"}


@pytest.fixture(scope="module")
def rest_catalog() -> Iterator[RestCatalogServer]:
    """A REST server that rejects branches and tags."""
    with TemporaryDirectory() as folder:
        server = RestCatalogServer(Path(folder) / "rest", f"file://{folder}/warehouse", {}, dict)
        server.rejects_branches = True
        try:
            yield server
        finally:
            server.close()


@pytest.fixture(scope="module")
def branchless_lake(lake: Lake, rest_catalog: RestCatalogServer) -> Iterator[Lake]:
    """Another catalog of the same Spark."""
    place = Path(rest_catalog.warehouse.removeprefix("file://")).parent
    try:
        config = lake_config(place, {"type": "rest", "uri": rest_catalog.url, "token": TOKEN})
        session = lake.runtime.new_session(config.session_settings())
        yield Lake(lake.runtime, LakeSession(session, config.catalog, EngineSettings()), place)
    finally:
        activate(lake.catalog.spark)


def regions(sink: Sink) -> dict[str, str]:
    return {
        str(dict(row)["number"]): str(dict(row)["region"]) for row in sink.rows("number, region")
    }


@pytest.mark.parametrize(
    ("version", "properties", "engine"),
    short_form(
        [
            (3, {}, EngineName.MERGE),
            (2, {}, EngineName.MERGE),
            (3, COPY_ON_WRITE, EngineName.FULL_MERGE),
            (1, COPY_ON_WRITE, EngineName.FULL_MERGE),
        ],
        [(3, {}, EngineName.MERGE), (3, COPY_ON_WRITE, EngineName.FULL_MERGE)],
    ),
)
def test_upserts_deletes_and_partial_rows_need_no_branch(
    branchless_lake: Lake, version: int, properties: dict[str, str], engine: EngineName
) -> None:
    sink = branchless_lake.make(version=version, **properties)
    sink.commit(sink.stage([order(1, "a"), order(1, "b"), order(1, "c")]))
    files = sink.stage([order(1, "a", "south")]) + sink.stage(
        [{"shop": 1, "number": "b"}], StagedKind.DELETES
    )
    files += sink.stage([order(1, "c", None, amount=None)], StagedKind.CHANGES, ["region"])
    assert sink.commit(files, unpublished_branch=BRANCH).engine is engine
    assert regions(sink) == {"a": "south", "c": "north"}


def test_truncated_table_needs_no_branch(branchless_lake: Lake) -> None:
    sink = branchless_lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    truncate = StagedFile(StagedKind.TRUNCATES, "", 0, 0, 0, 0)
    assert sink.commit([truncate, *sink.stage([order(1, "z")])]).engine is EngineName.OVERWRITE
    assert regions(sink) == {"z": "north"}


def test_expectations_and_aggregates_need_no_branch(branchless_lake: Lake) -> None:
    sink = branchless_lake.make()
    sql = "SELECT region, count(*) AS orders FROM after GROUP BY region"
    more: dict[str, Any] = {
        "expectations": (
            Expectation("good", "region != 'bad'", ExpectationAction.DEAD_LETTER),
            Expectation("some", "SELECT count(*) > 0 FROM after", ExpectationAction.FAIL),
        ),
        "aggregates": (CycleAggregate(f"{sink.name}_regions", sql, ("region",), (), sink.name),),
        "rejected_table": f"{sink.name}_rejected",
    }
    sink.commit(sink.stage([order(1, "a"), order(1, "b")]), **more)
    sink.commit(sink.stage([order(1, "b", "south"), order(1, "c", "bad")]), **more)
    assert regions(sink) == {"a": "north", "b": "south"}
    counts = [tuple(dict(row).values()) for row in branchless_lake.rows(f"{sink.name}_regions")]
    assert sorted(counts) == [("north", 1), ("south", 1)]
    (rejected,) = branchless_lake.rows(f"{sink.name}_rejected", "number, region")
    assert dict(rejected) == {"number": "c", "region": "bad"}


def test_commit_branch_is_refused_with_the_catalogs_reason(branchless_lake: Lake) -> None:
    sink = branchless_lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    branch = Sink(
        branchless_lake, sink.name, sink.mode, sink.key_columns, ref="audit", cycle=sink.cycle
    )
    with pytest.raises(TableUnsuitableError) as refused:
        branch.commit(branch.stage([order(1, "b")]))
    assert "ref audit is not supported" in refused.value.why
    assert f"iceberg.table.{sink.name}.commit-branch" in refused.value.why
    assert regions(sink) == {"a": "north"}


def test_held_commit_is_refused_with_the_catalogs_reason(branchless_lake: Lake) -> None:
    sink = branchless_lake.make()
    sink.commit(sink.stage([order(1, "a")]))
    good = Expectation("good", "region != 'bad'", ExpectationAction.HOLD)
    with pytest.raises(TableUnsuitableError) as refused:
        sink.commit(
            sink.stage([order(1, "b", "bad")]), expectations=(good,), unpublished_branch=BRANCH
        )
    assert f"ref {BRANCH} is not supported" in refused.value.why
    assert "iceberg.ext.expect.<name>" in refused.value.why
    assert regions(sink) == {"a": "north"}


def test_post_is_refused_if_the_catalog_reports_that_it_rejects_branches(
    branchless_lake: Lake, rest_catalog: RestCatalogServer
) -> None:
    connector = IcebergSinkConnector()
    connector.services = FakeSharedServices({}, {})
    key = "iceberg.table.db.orders.commit-branch"
    props = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "name": "orders",
        "topics": "orders",
        "iceberg.tables": "db.orders",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": rest_catalog.url,
        "iceberg.catalog.token": TOKEN,
        "iceberg.catalog.warehouse": rest_catalog.warehouse,
        key: "audit",
    }
    assert connector.validate(props).get(key, ConfigValue(key)).errors == []
    rest_catalog.reports_only_main = True
    [error] = connector.validate(props)[key].errors
    assert "accepts only the branch main" in error

"""Tables that follow the commits of another one, on real tables, against dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from fixtures.iceberg_commit import ENGINES, Lake, Sink, lake, order

from connectors.iceberg.config.cycle_aggregate import CycleAggregate
from connectors.iceberg.protocol.commit_request import CommitRequest, EngineName
from connectors.iceberg.schema.table import StagedKind

__all__ = ["lake"]

BY_REGION = (
    "SELECT region, sum(n) AS orders, sum(n * amount) AS amount FROM ("
    "SELECT region, amount, 1 AS n FROM staged UNION ALL SELECT region, amount, -1 FROM removed) GROUP BY region"
)


@dataclass
class Followed:
    """A table whose orders are counted by region in another one, and what both should have."""

    sink: Sink
    orders: dict[str, str] = field(default_factory=dict)  # number -> region

    @property
    def aggregate(self) -> CycleAggregate:
        return CycleAggregate(
            f"{self.sink.name}_by_region", BY_REGION, ("region",), ("orders", "amount"), self.sink.name
        )

    def request(self, upserts: dict[str, str], deletes: Sequence[str] = (), **more: object) -> CommitRequest:
        files = self.sink.stage([order(1, number, region) for number, region in upserts.items()])
        if deletes:
            files += self.sink.stage([{"shop": 1, "number": number} for number in deletes], StagedKind.DELETES)
        return self.sink.request(files, **{"aggregates": (self.aggregate,), **more})  # type: ignore[arg-type] # by name

    def landed(self, upserts: dict[str, str], deletes: Sequence[str] = ()) -> None:
        self.orders = {n: r for n, r in self.orders.items() if n not in deletes} | upserts

    def expected(self) -> dict[str, int]:
        regions = list(self.orders.values())
        return {region: regions.count(region) for region in regions}

    def counted(self) -> dict[str, int]:
        rows = [dict(row) for row in self.sink.lake.rows(self.aggregate.table)]
        assert all(float(row["amount"]) == 1.25 * row["orders"] for row in rows), rows
        assert len({row["region"] for row in rows}) == len(rows), "a region has several rows"
        return {row["region"]: row["orders"] for row in rows if row["orders"]}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_aggregate_follows_upserts_and_deletes_of_each_commit(lake: Lake, engine: EngineName, version: int) -> None:
    followed = Followed(lake.make(version=version))
    for upserts, deletes in [
        ({"a": "north", "b": "south", "c": "north"}, ()),
        ({"a": "south", "d": "west"}, ("b",)),
        ({"e": "north"}, ("d", "no such order")),
    ]:
        outcome = followed.sink.committer(engine).commit(followed.request(upserts, deletes))
        assert outcome.snapshot_id is not None, outcome
        followed.landed(upserts, deletes)
        assert followed.counted() == followed.expected()

"""Which of the files that an orphan search found wait for a commit; without Spark."""

from __future__ import annotations

import json

import pytest
from fixtures.iceberg_history import CYCLE_1, KEY, WHOLE, snapshot, table

from connectors.iceberg.commit.rules import rejected_rows
from connectors.iceberg.commit.rules.aggregates import LEDGER as AGGREGATE_LEDGER
from connectors.iceberg.commit.rules.aggregates import PENDING
from connectors.iceberg.protocol.ledger import LedgerProperty
from connectors.iceberg.protocol.positions import Epoch
from connectors.iceberg.staging.staged_file_name import StagedFileName, owner_of
from connectors.iceberg_tools.maintenance.orphan_search import orphans_of

GROUP = "connect-orders"


def staged(connector: str, epoch: int) -> str:
    return (
        f"/t/data/{StagedFileName(connector, Epoch(epoch, 'a1'), 'U1', 1, 'orders-0', 0).encode()}"
    )


def made(connector: str, epoch: int) -> str:
    """A file in a folder of completed rows."""
    folder = f"{StagedFileName.epoch_prefix(connector, Epoch(epoch, 'a1'), 'U1')}c4-made"
    return f"/t/data/{folder}/region=north/00000-0-5f-00001.parquet"


def test_files_wait_by_the_epoch_of_their_own_connector() -> None:
    """The ledger of `orders` is of epoch 7; the other connector has not committed yet."""
    old = [staged("orders", 6), made("orders", 6), "/t/data/lost.parquet", "/t/metadata/1-m0.avro"]
    waiting = [staged("orders", 7), made("orders", 8), staged("new.one", 1), made("new.one", 1)]
    assert orphans_of(WHOLE, [*waiting, *old]) == old


@pytest.mark.parametrize("prefix", [AGGREGATE_LEDGER, rejected_rows.LEDGER])
def test_ledgers_of_following_tables_tell_the_epoch_as_well(prefix: str) -> None:
    text = LedgerProperty(CYCLE_1, 1, {}).to_json()
    metadata = table(snapshot(1, None, None), properties={f"{prefix}{GROUP}": text})
    assert orphans_of(metadata, [made("orders", 6), made("orders", 7)]) == [made("orders", 6)]


def test_files_that_properties_and_summaries_name_are_kept() -> None:
    """Whatever epoch wrote them."""
    names = ["pairs", "old-pairs", "rejected", "north", "south", "lost"]
    paths = {name: f"{made('orders', 6).rpartition('/')[0]}/{name}.parquet" for name in names}
    aggregates = [
        {"table": "shop.sums", "files": [{"path": paths["north"]}, {"path": ""}]},
        {"table": "shop.counts", "files": [{"path": paths["south"]}]},
    ]
    properties = {
        KEY: WHOLE.properties[KEY],
        f"connect-py.open-pairs.{GROUP}": paths["pairs"],
        f"{rejected_rows.REJECTED}{GROUP}": json.dumps(
            {"commit": "c4", "path": paths["rejected"], "rows": 1}
        ),
        f"{PENDING}{GROUP}": json.dumps({"made": aggregates}, separators=(",", ":")),
    }
    first = snapshot(1, CYCLE_1, None)
    first["summary"][f"connect-py.open-pairs.{GROUP}"] = paths["old-pairs"]
    assert orphans_of(table(first, properties=properties), [*paths.values()]) == [paths["lost"]]


def test_owner_of_a_file_stands_in_its_name_or_folder() -> None:
    for path in (staged("a.b", 3), made("a.b", 3)):
        owner = owner_of(path)
        assert owner is not None
        assert (owner.connector, owner.epoch, owner.table) == ("a.b", Epoch(3, "a1"), "U1")
    assert owner_of("/t/data/connect-py-orders/00000-0-5f-00001.parquet") is None

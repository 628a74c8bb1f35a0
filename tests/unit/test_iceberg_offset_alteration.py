from __future__ import annotations

from collections.abc import Mapping

import pytest

from connect_py.api.errors import ConnectError
from connect_py.api.record import OffsetAndMetadata, TopicPartition
from connect_py.testing import FakeSharedServices, FakeSinkTaskContext
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg.coordinator import offset_alteration
from connectors.iceberg.coordinator.offset_alteration import alter
from connectors.iceberg.protocol.ledger import (
    Ledger,
    LedgerEntry,
    LedgerProperty,
    Lookup,
    SnapshotView,
    TableView,
    TopicLedger,
    look_up,
)
from connectors.iceberg.protocol.offset_metadata import OffsetMetadata
from connectors.iceberg.protocol.positions import Epoch

P0, P1, OLD = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("gone", 0)
CONFIG = IcebergSinkConfig.parse(
    {
        "name": "c",
        "iceberg.tables": "db.t",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://h",
    }
)
NOBODY = FakeSharedServices()  # is not asked
LEDGER = Ledger(
    Epoch(7, "x"),
    "c1",
    1,
    "t1",
    "k",
    {"orders": TopicLedger("id-of-orders", {0: LedgerEntry(2, 0, 90)})},
)


def table(ledger: Ledger) -> Lookup:
    prop = LedgerProperty(ledger, 1, {}).to_json()
    return look_up(TableView("t1", [SnapshotView(1, ledger.to_json())], True, frozenset({1}), prop))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> dict[str, Lookup]:
    """What the catalog holds."""
    found: dict[str, Lookup] = {}
    monkeypatch.setattr(offset_alteration, "_look_up", lambda _config, _services, _tables: found)
    return found


@pytest.fixture
def cluster() -> FakeSinkTaskContext:
    context = FakeSinkTaskContext(topics={"orders": 2}, start_number=3)
    context.log_ranges = {P0: (10, 100), P1: (0, 50)}
    return context


def marked(offset: int, generation: int = 0) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        offset, OffsetMetadata(Epoch(6, "y"), generation, "id-of-orders").to_text()
    )


def seen(
    answer: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> dict[TopicPartition, tuple[int, int] | None]:
    """Offset and generation of each partition."""
    found: dict[TopicPartition, tuple[int, int] | None] = {}
    for tp, at in answer.items():
        mark = OffsetMetadata.from_text(at.metadata) if at is not None else None
        assert at is None or mark is not None
        found[tp] = (at.offset, mark.generation) if at is not None and mark is not None else None
    return found


def test_new_generation_exceeds_those_of_group_and_all_tables(
    cluster: FakeSinkTaskContext, tables: dict[str, Lookup]
) -> None:
    cluster.group_offsets = {P0: marked(90), P1: marked(40, generation=1)}
    tables["db.t"] = table(LEDGER)
    answer = alter(CONFIG, cluster, NOBODY, {P0: 20, P1: 50})
    assert seen(answer) == {P0: (20, 3), P1: (50, 2)}
    mark = OffsetMetadata.from_text(answer[P0].metadata if answer[P0] else None)
    assert mark is not None
    assert mark.epoch.number == 8  # above the ledger's
    assert seen(alter(CONFIG, cluster, NOBODY, {P1: None})) == {P1: (0, 2)}


def test_full_reset_includes_lost_partitions_and_drops_unconsumed_ones(
    cluster: FakeSinkTaskContext, tables: dict[str, Lookup]
) -> None:
    cluster.group_offsets = {P0: marked(90)}
    tables["db.t"] = table(LEDGER)
    assert seen(alter(CONFIG, cluster, NOBODY, {P0: None, OLD: None})) == {
        P0: (10, 3),
        P1: (0, 1),
        OLD: None,
    }
    cluster.group_offsets = {}
    assert seen(alter(CONFIG, cluster, NOBODY, {})) == {P0: (10, 3), P1: (0, 1)}


def test_a_reset_begins_where_a_new_connector_would(
    cluster: FakeSinkTaskContext, tables: dict[str, Lookup]
) -> None:
    cluster.client_settings["auto.offset.reset"] = "latest"
    assert alter(CONFIG, cluster, NOBODY, {}) == {}  # it never ran: nothing is to be reset
    assert seen(alter(CONFIG, cluster, NOBODY, {P0: 30})) == {P0: (30, 1), P1: (50, 1)}
    cluster.group_offsets = {P0: marked(90), P1: marked(40)}
    assert seen(alter(CONFIG, cluster, NOBODY, {P0: None})) == {P0: (100, 1)}
    cluster.open_transactions = {P0: 95}
    assert seen(alter(CONFIG, cluster, NOBODY, {P0: None})) == {P0: (100, 1)}
    cluster.client_settings["isolation.level"] = "read_committed"
    assert seen(alter(CONFIG, cluster, NOBODY, {P0: None})) == {P0: (95, 1)}, (
        "its rows are still to be read"
    )


@pytest.mark.parametrize(
    ("where", "offset", "why"),
    [
        (
            P0,
            9,
            "offset 9 is not in the log of partition 0 of topic orders, which has offsets 10 to",
        ),
        (
            P1,
            51,
            "offset 51 is not in the log of partition 1 of topic orders, which has offsets 0 to 50",
        ),
        (OLD, 0, "does not consume partition 0 of topic gone"),
        (TopicPartition("orders", 2), 0, "does not consume partition 2 of topic orders"),
    ],
)
def test_offset_that_no_coordinator_can_continue_from_is_refused(
    cluster: FakeSinkTaskContext,
    tables: dict[str, Lookup],
    where: TopicPartition,
    offset: int,
    why: str,
) -> None:
    with pytest.raises(ConnectError, match=why):
        alter(CONFIG, cluster, NOBODY, {where: offset})

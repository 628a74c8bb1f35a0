"""`RangeStage`: ranges that executors have read ahead, until their turn comes."""

from __future__ import annotations

import pytest

from connect_py.api.record import TopicPartition
from connectors.iceberg.config.sink_config import IcebergSinkConfig
from connectors.iceberg_tools.load.range_stage import RangeBasis, RangeStage, StagedRange
from connectors.iceberg_tools.load.range_work import RangeResult

HERE, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("orders", 1)
BASIS = RangeBasis({"db.orders": ("first", 0)})
CONFIG = {
    "name": "sink",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": "orders",
    "iceberg.tables": "db.orders",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://localhost",
}


def same(_: StagedRange) -> RangeBasis:
    return BASIS


@pytest.fixture
def stage() -> RangeStage:
    made = RangeStage(IcebergSinkConfig.parse(CONFIG), "sink-load", lambda _: 2)
    for partition in (HERE, ELSEWHERE):
        made.add_ahead(partition, [StagedRange(at, at + 10, None, BASIS) for at in (0, 10, 20)])
    return made


def test_ranges_are_taken_once_and_in_their_order(stage: RangeStage) -> None:
    taken = [stage.next_ahead(HERE, at, same) for at in (0, 10, 20, 30)]
    assert [each.begin if each else None for each in taken] == [0, 10, 20, None]
    assert stage.next_ahead(HERE, 0, same) is None


def test_ranges_behind_one_that_stopped_are_forgotten(stage: RangeStage) -> None:
    assert stage.next_ahead(HERE, 0, same) is not None
    assert stage.next_ahead(HERE, 7, same) is None  # the first one stopped within
    assert stage.next_ahead(HERE, 20, same) is None
    assert stage.next_ahead(ELSEWHERE, 0, same) is not None


@pytest.mark.parametrize(
    "now",
    [
        RangeBasis({"db.orders": ("second", 0)}),
        RangeBasis({"db.orders": ("first", 5)}),  # it needs rows from elsewhere on
        RangeBasis(BASIS.tables, {"orders": ("db.orders",)}),  # tombstones go to other tables
    ],
)
def test_ranges_that_would_be_staged_otherwise_are_forgotten(
    stage: RangeStage, now: RangeBasis
) -> None:
    assert stage.next_ahead(HERE, 0, lambda _: now) is None
    assert stage.next_ahead(HERE, 10, same) is None


def test_range_that_failed_counts_only_in_its_turn(stage: RangeStage) -> None:
    ranges = [
        StagedRange(at, at + 10, RangeResult(HERE, at, error="no table"), BASIS) for at in (0, 10)
    ]
    stage.add_ahead(HERE, ranges)
    assert stage.next_ahead(HERE, 0, same) is ranges[0]
    assert stage.next_ahead(HERE, 10, same) is None  # read again: its tables may be known now


def test_ranges_of_a_rewound_partition_are_forgotten(stage: RangeStage) -> None:
    stage.discard(HERE)
    assert stage.next_ahead(HERE, 0, same) is None
    assert stage.next_ahead(ELSEWHERE, 0, same) is not None

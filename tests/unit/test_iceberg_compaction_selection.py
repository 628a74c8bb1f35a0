"""Selection of files for a compaction, and of snapshots to expire; without Spark."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from fixtures.iceberg_history import CYCLE_1, KEY, snapshot, table

from connectors.iceberg.config.maintenance_policy import DAYS, HOURS, MaintenancePolicy
from connectors.iceberg.maintenance.compaction import (
    OPEN_FILE_BYTES,
    DataFileStats,
    _read_plan,
    mergeable_files,
    select_files,
)
from connectors.iceberg.maintenance.expiration import expired_snapshots, ledger_snapshots
from connectors.iceberg.protocol.ledger import LedgerProperty

MB = 1 << 20
TARGET = 512 * MB
ANY_COST = 1 << 40
POLICY = MaintenancePolicy()


def data_files(*sizes: int, partition: str = "p", deleted: float = 0.0) -> list[DataFileStats]:
    return [
        DataFileStats(index, partition, size, 1000, deleted) for index, size in enumerate(sizes)
    ]


def merged(*sizes: int) -> list[int]:
    return [file.size for file in mergeable_files(data_files(*sizes))]


def test_large_file_waits_until_the_others_have_its_size() -> None:
    assert merged(1, 2, 3) == [1, 2, 3]
    assert merged(300 * MB, 1 * MB, 2 * MB) == [1 * MB, 2 * MB]
    assert merged(12 * MB, *[4 * MB] * 3) == [4 * MB] * 3 + [12 * MB]
    assert merged(12 * MB, *[4 * MB] * 2) == [4 * MB] * 2


@pytest.mark.parametrize("size", [100 << 10, 1 * MB, 20 * MB])
def test_small_files_and_rewritten_bytes_grow_with_the_logarithm(size: int) -> None:
    files, added, rewritten, most = [], 0, 0, 0
    for _ in range(2000):
        files.append(size)
        added += size
        selection = select_files(data_files(*files), POLICY, TARGET, ANY_COST)
        if selection.files:
            total = sum(file.size for file in selection.files)
            rewritten += total
            for file in selection.files:
                files.remove(file.size)
            files += [TARGET] * (total // TARGET) + ([total % TARGET] if total % TARGET else [])
        most = max(most, sum(each < 0.75 * TARGET for each in files))
    assert most <= 20
    assert rewritten < 25 * added


def test_partition_with_enough_files_is_compacted_and_others_are_not() -> None:
    crowded = [DataFileStats(index, "a", 1000, 10) for index in range(10)]
    other = [DataFileStats(10 + index, "b", 1000, 10) for index in range(9)]
    selection = select_files([*crowded, *other], POLICY, TARGET, ANY_COST)
    assert {file.partition for file in selection.files} == {"a"}
    assert selection.reasons == ["10 small data files in one partition, at least 10"]
    assert select_files(other, POLICY, TARGET, ANY_COST) == select_files(
        [], POLICY, TARGET, ANY_COST
    )


def test_files_with_many_deletes_come_first() -> None:
    files = data_files(*[400 * MB] * 3)
    files[1] = dataclasses.replace(files[1], deleted_rows=500.0)
    files[2] = dataclasses.replace(files[2], deleted_rows=90.0)
    selection = select_files(files, POLICY, TARGET, ANY_COST)
    assert [file.index for file in selection.files] == [1]
    assert selection.reasons == ["20% of the rows in data files are deleted, at least 10%"]
    files[1] = dataclasses.replace(files[1], deleted_rows=200.0)
    assert not select_files(files, POLICY, TARGET, ANY_COST).files  # less than 10 % of the table


def test_limit_leaves_out_the_largest_files() -> None:
    files = data_files(*(index * 100_000 for index in range(1, 11)))
    selection = select_files(files, POLICY, TARGET, 3 * OPEN_FILE_BYTES + 600_000)
    assert [file.size for file in selection.files] == [100_000, 200_000, 300_000]
    assert selection.cost == 3 * OPEN_FILE_BYTES + 600_000
    too_low = select_files(files, POLICY, TARGET, 2 * OPEN_FILE_BYTES)
    assert (too_low.files, too_low.least_cost) == ([], 2 * OPEN_FILE_BYTES + 300_000)


def test_file_is_rewritten_once_even_if_both_triggers_apply() -> None:
    files = data_files(*[1000] * 10, deleted=500.0)
    selection = select_files(files, POLICY, TARGET, ANY_COST)
    assert sorted(file.index for file in selection.files) == list(range(10))
    assert len(selection.reasons) == 2


def test_triggers_that_are_off_select_nothing() -> None:
    off = MaintenancePolicy(small_files=0, delete_ratio=0)
    assert not select_files(data_files(*[1000] * 50, deleted=900.0), off, TARGET, ANY_COST).files


def test_deletes_of_several_files_are_divided_among_them() -> None:
    def data(rows: int) -> dict[str, Any]:
        return {"spec-id": 0, "partition": [], "file-size-in-bytes": 10, "record-count": rows}

    deletes = [
        {"content": "POSITION_DELETES", "record-count": 40},
        {"content": "EQUALITY_DELETES", "record-count": 40},
    ]
    tasks = [
        {"data-file": data(300), "delete-file-references": [0, 1]},
        {"data-file": data(100), "delete-file-references": [0]},
        {"data-file": data(5)},
    ]
    files, users, positions = _read_plan({"delete-files": deletes, "file-scan-tasks": tasks})
    assert [file.deleted_rows for file in files] == [30.0, 10.0, 0.0]
    assert users == {0: {0, 1}, 1: {0}}
    assert positions == {0: (0, 0), 1: (0, 1)}


# --- expiration

NOW = 1000 * DAYS


def line(ages_ms: list[int], **more: Any) -> Any:
    """A table whose snapshots have these ages, oldest first."""
    snapshots = []
    for number, age in enumerate(ages_ms, 1):
        made = snapshot(number, None, number - 1 or None)
        snapshots.append({**made, "timestamp-ms": NOW - age})
    return table(*snapshots, **more)


def expired(metadata: Any, policy: MaintenancePolicy = POLICY) -> list[int]:
    return expired_snapshots(metadata, policy, ledger_snapshots(metadata), NOW)


def test_snapshots_are_kept_for_five_days() -> None:
    ages = [7 * DAYS, 6 * DAYS, 5 * DAYS + 1, 5 * DAYS] + [2 * HOURS] * 20
    assert expired(line(ages)) == [1, 2, 3]


def test_newest_twenty_never_expire() -> None:
    assert expired(line([30 * DAYS] * 20)) == []
    assert expired(line([30 * DAYS] * 22)) == [1, 2]


def test_oldest_expire_beyond_a_thousand_but_not_within_an_hour() -> None:
    ages = [2 * DAYS] * 5 + [2 * HOURS] * 1000
    assert expired(line(ages)) == [1, 2, 3, 4, 5]
    assert expired(line([HOURS] * 1200)) == []
    assert expired(line(ages), MaintenancePolicy(snapshots=1003)) == [1, 2]
    assert expired(line(ages), MaintenancePolicy(snapshots=0)) == []


def test_snapshots_of_tags_branches_and_ledgers_never_expire() -> None:
    ages = [30 * DAYS] * 30
    refs = {
        "main": {"snapshot-id": 30, "type": "branch"},
        "monthly": {"snapshot-id": 2, "type": "tag"},
        "audit": {"snapshot-id": 4, "type": "branch"},
    }
    properties = {
        KEY: LedgerProperty(CYCLE_1, 6, {}).to_json(),
        "connect-py.aggregate.ledger.x": "damaged",
    }
    # branch `audit` has 1 to 4
    assert expired(line(ages, refs=refs, properties=properties)) == [5, 7, 8, 9, 10]

"""A worker of an earlier version is killed in the middle of a cycle, and this version continues.

The earlier version runs from this repository's history, in this environment. An upgrade finds its
tables, channel, and offsets. One version is the last whose sink committed without Spark's driver,
the other one the last that committed through scratch branches.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
from earlier_versions import (
    WITH_SCRATCH_BRANCHES,
    WITHOUT_SPARK_DRIVER,
    EarlierWorker,
    checked_out,
)
from exactly_once_events import (
    SHORT_TIMEOUTS,
    ChangeFeed,
    check_appends,
    check_upserts,
    connector_config,
    expected_appends,
    expected_upserts,
)
from kafka_offsets import caught_up
from lakehouse import Lakehouse
from loaded_topics import MODES
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker
from connectors.iceberg.protocol.own_refs import scratch_prefix


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[Path]:
    with checked_out(WITHOUT_SPARK_DRIVER, tmp_path / "earlier") as place:
        yield place


@pytest.mark.long
@pytest.mark.timeout(600)
# from a commit until the kill: where in the next cycle it comes
@pytest.mark.parametrize("seconds", [0.0, 0.7, 1.6])
def test_worker_continues_exactly_after_an_earlier_version_was_killed(
    seconds: float,
    earlier: Path,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
) -> None:
    servers, topic, group = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}orders",
        f"{topic_prefix}worker",
    )
    keys, lake = 3_000, Lakehouse(tmp_path / "lake")
    old = EarlierWorker(earlier, tmp_path / "old", servers, group, SHORT_TIMEOUTS)
    new = WorkerProcess(tmp_path / "new", servers, group, SHORT_TIMEOUTS)
    feed = ChangeFeed(servers, [topic], "json", keys, 1_000, limit=60_000)
    commits = lambda: sum(len(lake.ledgers(f"db.{mode}s")) for mode in MODES)  # noqa: E731 - a name for the condition
    try:
        old.start()
        for mode in MODES:
            config = connector_config(topic, "json", mode, f"db.{mode}s", "", lake.sink_config())
            old.put(f"{topic_prefix}{mode}", config)
        old.wait_until(lambda: commits() >= 3, 120, "commits of the earlier version")
        before = commits()
        old.wait_until(lambda: commits() > before, 60, "one more")
        time.sleep(seconds)
        old.kill_group()
        made_by_old = commits()
        new.start()
        produced = feed.wait(120)
        for mode in MODES:
            name = f"{topic_prefix}{mode}"
            new.wait_until(
                lambda name=name: caught_up(servers, name, topic), 180, f"{name} to catch up"
            )
        assert commits() > made_by_old
        check_appends(lake.rows("db.appends"), expected_appends(produced, keys))
        check_upserts(lake.rows("db.upserts"), expected_upserts(produced, keys))
        print([lake.assert_ledgers_chain(f"db.{mode}s") for mode in MODES])
    finally:
        feed.close()
        old.close()
        new.close()


@pytest.mark.long
@pytest.mark.timeout(900)  # two workers with a Spark driver, on a machine that others share
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("point", ["after_scratch_branch", "after_merge"])
def test_worker_removes_the_scratch_branches_of_a_killed_earlier_version(
    point: str,
    version: int,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    topic_prefix: str,
    spark_environment: dict[str, str],
) -> None:
    servers, topic, name = (
        kafka_broker.bootstrap_servers,
        f"{topic_prefix}orders",
        f"{topic_prefix}upserts",
    )
    table, keys, lake = "db.orders", 1_000, Lakehouse(tmp_path / "lake")
    config = {
        **connector_config(topic, "json", "upsert", table, "", lake.sink_config()),
        "iceberg.tables.auto-create-props.format-version": str(version),
    }
    new = WorkerProcess(tmp_path / "new", servers, f"{topic_prefix}worker", SHORT_TIMEOUTS)
    feed = ChangeFeed(servers, [topic], "json", keys, 500, limit=20_000)

    def branches() -> dict[str, int]:
        """Return the scratch branches of the connector, with their snapshots."""
        refs = lake.catalog.load_table(table).metadata.refs
        prefix = scratch_prefix(f"connect-{name}")
        return {ref: refs[ref].snapshot_id for ref in refs if ref.startswith(prefix)}

    try:
        with checked_out(WITH_SCRATCH_BRANCHES, tmp_path / "earlier") as earlier:
            old = EarlierWorker(
                earlier, tmp_path / "old", servers, f"{topic_prefix}worker", SHORT_TIMEOUTS
            )
            old.environment["CONNECT_PY_FAULTS"] = f"{point}=killgroup@3"
            try:
                old.start()
                old.put(name, config)
                old.wait_for_death(400)
            finally:
                old.close()
        metadata = lake.catalog.load_table(table).metadata
        scratch = set(branches().values()) - {metadata.current_snapshot_id}
        assert len(branches()) == 1
        assert len(scratch) == (point == "after_merge")
        files = scratch_files(lake, table, scratch)
        assert bool(files) == bool(scratch)
        commits = len(lake.ledgers(table))
        new.start()
        produced = feed.wait(120)
        new.wait_until(lambda: caught_up(servers, name, topic), 400, f"{name} to catch up")
        assert len(lake.ledgers(table)) > commits
        assert not branches()
        metadata = lake.catalog.load_table(table).metadata
        assert scratch.isdisjoint(each.snapshot_id for each in metadata.snapshots)
        new.wait_until(
            lambda: not any(path.exists() for path in files), 60, "the scratch files to be deleted"
        )
        check_upserts(lake.rows(table), expected_upserts(produced, keys))
        lake.assert_ledgers_chain(table)
    finally:
        feed.close()
        new.close()


def scratch_files(lake: Lakehouse, table: str, snapshots: Collection[int]) -> list[Path]:
    """Return the files that only these snapshots of a table refer to."""
    io = lake.catalog.load_table(table).io
    files: dict[bool, set[str]] = {True: set(), False: set()}
    for snapshot in lake.catalog.load_table(table).snapshots():
        for manifest in snapshot.manifests(io):
            entries = manifest.fetch_manifest_entry(io, discard_deleted=True)
            files[snapshot.snapshot_id in snapshots] |= {
                each.data_file.file_path for each in entries
            }
    return [Path(path.removeprefix("file:")) for path in files[True] - files[False]]

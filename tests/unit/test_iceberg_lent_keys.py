"""Keys to the storage that a catalog lent with a table are replaced in the tasks before they end."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
from iceberg_staging_rows import ORDERS_0, table
from sink_task_stand import EPOCH, Stand, make_stand

from connectors.iceberg.protocol.messages import Need, OpenTable, StartCommit, TableOpened
from connectors.iceberg.staging.wish import Wish

KEY, END = "s3.access-key-id", "s3.session-token-expires-at-ms"
OWN = {"s3.secret-access-key": "in the configuration", "s3.endpoint": "http://127.0.0.1:9"}


@pytest.fixture(params=["iceberg.catalog.", "iceberg.spark.sql.catalog.iceberg."])
def stand(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """With keys of its own to the storage, in Iceberg's words or in Spark's."""
    return make_stand(tmp_path, monkeypatch, {f"{request.param}{key}": value for key, value in OWN.items()})


def lend(stand: Stand, name: str, key: str, seconds: float) -> None:
    """Let the coordinator describe a table with keys that end after this time."""
    lent = {KEY: key, "client.region": "eu-west-1", END: str(int((time.time() + seconds) * 1000))}
    made = table([("n", "long")], folder=stand.folder / name)
    described = dataclasses.replace(made, io_properties=lent)
    stand.hear(TableOpened(EPOCH, name, "u", {ORDERS_0: 0}, json.dumps(described.to_json())))


def asked(stand: Stand) -> list[OpenTable]:
    """What is asked in a turn that looks after keys."""
    before = len(stand.writer.sent)
    stand.task._renewed_at = 0
    stand.hear()
    return [message for message in stand.writer.sent[before:] if isinstance(message, OpenTable)]


def storage(stand: Stand, name: str) -> dict[str, str]:
    return dict(stand.task._stage._stagers[name][1].description.io_properties)


def test_a_table_is_asked_for_again_before_its_keys_end_and_only_then(stand: Stand) -> None:
    lend(stand, "db.first", "old", seconds=60)
    lend(stand, "db.second", "other", seconds=3600)
    stand.put(0, 1)
    [message] = asked(stand)
    assert (message.table, message.need) == ("db.first", Need.EVOLVE)  # with CREATE the answer of before would do
    assert Wish.from_text(message.schema).changes == ()
    lend(stand, "db.first", "new", seconds=3600)
    stand.hear(StartCommit(EPOCH, 1, {}))
    assert asked(stand) == []


def test_rows_that_wait_are_written_with_the_newest_keys(stand: Stand) -> None:
    lend(stand, "db.first", "old", seconds=60)
    stand.put(0, 1)
    assert storage(stand, "db.first")[KEY] == "old"
    lend(stand, "db.first", "new", seconds=3600)
    stand.hear(StartCommit(EPOCH, 1, {}))
    assert storage(stand, "db.first")[KEY] == "new"
    [report] = stand.reports()
    assert stand.rows(report)["db.first"] == 2


def test_keys_of_the_configuration_need_not_be_told_to_a_task(stand: Stand) -> None:
    lend(stand, "db.first", "lent", seconds=60)
    stand.put(0)
    assert OWN.items() <= storage(stand, "db.first").items()
    assert "s3.region" not in storage(stand, "db.first")  # a guess, where the catalog does not say one

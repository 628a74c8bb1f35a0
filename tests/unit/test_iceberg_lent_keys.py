"""Tasks replace vended storage credentials before these expire."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import pytest
from iceberg_staging_rows import ORDERS_0, table
from sink_task_stand import EPOCH, Stand, make_stand

from connectors.iceberg.protocol.messages import Need, OpenTable, StartCommit, TableOpened
from connectors.iceberg.table.table import TableRequest

KEY, END = "s3.access-key-id", "s3.session-token-expires-at-ms"
OWN = {"s3.secret-access-key": "in the configuration", "s3.endpoint": "http://127.0.0.1:9"}


@pytest.fixture(params=["iceberg.catalog.", "iceberg.spark.sql.catalog.iceberg."])
def stand(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """With keys of its own to the storage, in Iceberg's words or in Spark's."""
    return make_stand(
        tmp_path, monkeypatch, {f"{request.param}{key}": value for key, value in OWN.items()}
    )


def lend(stand: Stand, name: str, key: str, seconds: float) -> None:
    """Let the coordinator describe a table with keys that end after this time."""
    lent = {KEY: key, "client.region": "eu-west-1", END: str(int((time.time() + seconds) * 1000))}
    made = table([("n", "long")], folder=stand.folder / name)
    described = dataclasses.replace(made, io_properties=lent)
    stand.hear(TableOpened(EPOCH, name, "u", {ORDERS_0: 0}, json.dumps(described.to_json())))


def asked(stand: Stand) -> list[OpenTable]:
    """What is asked in a turn that looks after keys."""
    before = len(stand.writer.sent)
    stand.task._turn._renewed_at = 0
    stand.hear()
    return [message for message in stand.writer.sent[before:] if isinstance(message, OpenTable)]


def storage(stand: Stand, name: str) -> dict[str, str]:
    return dict(stand.task._staging._tables[name].stager.description.io_properties)


def pass_time(stand: Stand, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let the clock on the wall show so much more."""
    monkeypatch.setattr(stand.task._staging, "_clock", lambda: int((time.time() + seconds) * 1000))


def test_table_is_requested_again_shortly_before_its_credentials_expire(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(stand, "db.first", "old", seconds=3600)
    lend(stand, "db.second", "other", seconds=36000)
    stand.put(0, 1)
    assert asked(stand) == []
    pass_time(stand, monkeypatch, 3400)
    [message] = asked(stand)
    # with CREATE, the previous answer would be sufficient
    assert (message.table, message.need) == ("db.first", Need.EVOLVE)
    assert TableRequest.from_text(message.schema).changes == ()


def test_table_without_new_rows_is_not_requested_again_after_answer(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(stand, "db.first", "old", seconds=3600)
    stand.put(0)
    pass_time(stand, monkeypatch, 3400)
    assert len(asked(stand)) == 1
    lend(stand, "db.first", "new", seconds=7200)
    assert asked(stand) == []
    assert storage(stand, "db.first")[KEY] == "new"


def test_short_keys_are_not_asked_for_during_their_whole_life(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(stand, "db.first", "old", seconds=120)
    stand.put(0)
    assert asked(stand) == []
    pass_time(stand, monkeypatch, 100)
    assert len(asked(stand)) == 1


def test_rows_that_wait_are_written_with_the_newest_keys(stand: Stand) -> None:
    lend(stand, "db.first", "old", seconds=60)
    stand.put(0, 1)
    assert storage(stand, "db.first")[KEY] == "old"
    lend(stand, "db.first", "new", seconds=3600)
    stand.hear(StartCommit(EPOCH, 1, {}))
    assert storage(stand, "db.first")[KEY] == "new"
    [report] = stand.reports()
    assert stand.rows(report)["db.first"] == 2


def test_rows_with_expired_credentials_wait_for_newer_ones_to_arrive(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lend(stand, "db.first", "old", seconds=60)
    stand.put(0, 1)
    pass_time(stand, monkeypatch, 61)
    stand.hear(StartCommit(EPOCH, 1, {}))
    assert stand.reports() == []
    assert "vended credentials for db.first have expired" in caplog.text
    assert len(asked(stand)) == 1
    stand.put(2)
    lend(stand, "db.first", "new", seconds=3600)
    stand.hear(StartCommit(EPOCH, 2, {}))
    [report] = stand.reports()
    assert (report.ranges[ORDERS_0].start, report.ranges[ORDERS_0].next) == (0, 3)
    assert stand.rows(report) == {"db.first": 3, "db.second": 3}


def test_keys_of_a_table_without_rows_may_end(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend(stand, "db.first", "old", seconds=60)
    stand.put(0, 1)
    stand.hear(StartCommit(EPOCH, 1, {}))
    pass_time(stand, monkeypatch, 61)
    stand.hear(StartCommit(EPOCH, 2, {}))
    assert len(stand.reports()) == 2


def test_configured_storage_credentials_apply_beside_the_vended_ones(stand: Stand) -> None:
    lend(stand, "db.first", "lent", seconds=60)
    stand.put(0)
    assert OWN.items() <= storage(stand, "db.first").items()
    # a guess, because the catalog does not specify it
    assert "s3.region" not in storage(stand, "db.first")

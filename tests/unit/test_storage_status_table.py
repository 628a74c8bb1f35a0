"""Records of the status topic in Java's bytes."""

from __future__ import annotations

import pytest

from connect_py.model import ConnectorTaskId, State, Status, Waiting
from connect_py.storage.status_table import (
    StatusTable,
    TopicStatus,
    status_key,
    status_value,
    topic_key,
    topic_value,
)
from rest.entities import task_state

TASK = ConnectorTaskId("a-b", 3)


def put(
    table: StatusTable, key: str, value: str | None, partition: int = 0, timestamp: int = 0
) -> None:
    table.apply(partition, timestamp, key.encode(), None if value is None else value.encode())


def value(state: str, worker: str = "w1:8083", generation: int = 7) -> str:
    return f'{{"state":"{state}","trace":null,"worker_id":"{worker}","generation":{generation},"version":"1.2"}}'  # noqa: E501 - one literal


def test_status_records_have_the_bytes_of_javas_worker() -> None:
    assert status_key("a") == b"status-connector-a"
    assert status_key(TASK) == b"status-task-a-b-3"
    status = Status(State.RUNNING, "10.0.0.5:8083", 7, version="1.2")
    expected = b'{"state":"RUNNING","trace":null,"worker_id":"10.0.0.5:8083","generation":7,"version":"1.2"}'  # noqa: E501 - one literal
    assert status_value(status) == expected
    assert status_value(Status(State.DESTROYED, "", 0)) is None
    assert topic_key("orders", "a:b") == b"status-topic-orders:connector-a:b"
    assert topic_value(TopicStatus("orders", "a", 0, 1718000000000)) == (
        b'{"topic":{"name":"orders","connector":"a","task":0,"discoverTimestamp":1718000000000}}'
    )


def test_statuses_are_read_back_also_without_newer_fields() -> None:
    table = StatusTable()
    put(table, "status-connector-a-b", value("FAILED").replace('"trace":null', '"trace":"boom"'))
    put(
        table, "status-task-a-b-3", '{"state":"RUNNING","worker_id":"w:1","generation":2,"later":1}'
    )
    assert table.get("a-b") == Status(State.FAILED, "w1:8083", 7, "boom", "1.2")
    assert table.tasks("a-b") == {3: Status(State.RUNNING, "w:1", 2)}
    assert table.highest_generation == 7
    put(table, "status-task-a-b-3", None)
    assert table.tasks("a-b") == {}


def test_waiting_member_is_written_only_while_the_task_waits() -> None:
    table = StatusTable()
    waiting = Waiting("catalog", 1718000000000, "refused")
    status = Status(State.RUNNING, "w:1", 2, version="1.2", waiting=waiting)
    written = status_value(status)
    assert written is not None
    assert written.endswith(
        b'"version":"1.2","waiting":{"for":"catalog","since":1718000000000,"reason":"refused"}}'
    )
    table.apply(0, 0, status_key(TASK), written)
    assert table.tasks("a-b") == {3: status}
    for odd in ('"x"', '{"for":"x"}', '{"for":1,"since":1,"reason":"r"}', "null"):
        put(
            table,
            "status-task-a-b-3",
            f'{{"state":"RUNNING","worker_id":"w:1","generation":2,"waiting":{odd}}}',
        )
        assert table.tasks("a-b") == {3: Status(State.RUNNING, "w:1", 2)}


def test_late_unassigned_status_of_an_old_owner_is_ignored() -> None:
    table = StatusTable()
    put(table, "status-task-a-b-3", value("RUNNING", "w2:8083", 8))
    put(table, "status-task-a-b-3", value("UNASSIGNED", "w1:8083", 8))
    assert table.tasks("a-b")[3].state is State.RUNNING
    put(table, "status-task-a-b-3", value("UNASSIGNED", "w1:8083", 9))
    assert table.tasks("a-b")[3].state is State.UNASSIGNED


def test_safe_put_yields_to_a_newer_owner_only() -> None:
    table = StatusTable()
    mine = Status(State.FAILED, "w1:8083", 7)
    assert table.permits_safe_put(TASK, mine)
    put(table, "status-task-a-b-3", value("RUNNING", "w2:8083", 7))
    assert table.permits_safe_put(TASK, mine)
    put(table, "status-task-a-b-3", value("RUNNING", "w2:8083", 8))
    assert not table.permits_safe_put(TASK, mine)
    put(table, "status-task-a-b-3", value("RUNNING", "w1:8083", 9))
    assert table.permits_safe_put(TASK, mine)


def test_topics_of_a_connector_are_tracked_until_removed() -> None:
    table = StatusTable()
    put(
        table,
        "status-topic-orders:connector-a",
        topic_value(TopicStatus("orders", "a", 0, 1)).decode(),
    )
    assert table.has_topic("a", "orders")
    put(table, "status-topic-orders:connector-a", None)
    assert table.topics("a") == []


def test_newest_of_a_key_in_two_partitions_wins() -> None:
    table = StatusTable()
    put(table, "status-connector-a", value("RUNNING"), partition=2, timestamp=200)
    put(table, "status-connector-a", value("FAILED"), partition=4, timestamp=100)
    status = table.get("a")
    assert status is not None
    assert status.state is State.RUNNING


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("status-task-a", value("RUNNING")),
        ("status-task-a-x", value("RUNNING")),
        ("status-connector-", value("RUNNING")),
        ("status-connector-a", value("BUSY")),
        ("status-connector-a", '{"state":"RUNNING","worker_id":"w","generation":3000000000}'),
        ("status-connector-a", "{"),
        ("status-topic-x", "{}"),
        ("status-topic-x:connector-a", '{"topic":{"name":"x"}}'),
        ("other", "{}"),
    ],
)
def test_what_has_the_wrong_shape_is_skipped(key: str, text: str) -> None:
    table = StatusTable()
    put(table, key, text)
    assert list(table.ids()) == []
    assert table.topics("a") == []


def test_warnings_member_is_written_only_while_there_are_warnings() -> None:
    table = StatusTable()
    status = Status(
        State.RUNNING, "w:1", 2, version="1.2", warnings=("many files", "many snapshots")
    )
    written = status_value(status)
    assert written is not None
    assert written.endswith(b'"version":"1.2","warnings":["many files","many snapshots"]}')
    table.apply(0, 0, status_key(TASK), written)
    assert table.tasks("a-b") == {3: status}
    assert task_state(3, status)["warnings"] == ["many files", "many snapshots"]
    for invalid in ('"x"', "[1]", "null", "{}"):
        put(
            table,
            "status-task-a-b-3",
            f'{{"state":"RUNNING","worker_id":"w:1","generation":2,"warnings":{invalid}}}',
        )
        assert table.tasks("a-b") == {3: Status(State.RUNNING, "w:1", 2)}
    assert "warnings" not in task_state(3, Status(State.RUNNING, "w:1", 2))

"""Records of the config topic in Java's bytes, applied one by one."""

from __future__ import annotations

import json

import pytest

from connect_py.model import ConnectorTaskId, TargetState
from connect_py.storage.config_state import (
    Change,
    ConfigTable,
    ConnectorChanged,
    ConnectorRemoved,
    LoggerLevelRequested,
    RestartRequest,
    RestartRequested,
    SessionKeyChanged,
    TargetStateChanged,
    TasksChanged,
    target_state_value,
)


class Topic:
    """A config topic whose keys and values are strings."""

    def __init__(self) -> None:
        self.table = ConfigTable()
        self.offset = 0

    def put(self, key: str, value: str | None) -> list[Change]:
        changes = self.table.apply(
            self.offset, key.encode(), None if value is None else value.encode()
        )
        self.offset += 1
        return changes


@pytest.fixture
def topic() -> Topic:
    return Topic()


def with_two_tasks(topic: Topic, name: str = "a-1") -> None:
    topic.put(f"connector-{name}", '{"properties":{"x":"1","n":null}}')
    topic.put(f"task-{name}-0", '{"properties":{"t":"0"}}')
    topic.put(f"task-{name}-1", '{"properties":{"t":"1"}}')
    topic.put(f"commit-{name}", '{"tasks":2}')


def test_task_configurations_count_from_their_commit_record_on(topic: Topic) -> None:
    assert topic.put("connector-a-1", '{"properties":{"x":"1"}}') == [ConnectorChanged("a-1")]
    assert topic.put("task-a-1-0", '{"properties":{"t":"0"}}') == []
    assert topic.table.snapshot().tasks("a-1") == []
    assert topic.put("commit-a-1", '{"tasks":1}') == [TasksChanged("a-1")]
    state = topic.table.snapshot()
    assert state.tasks("a-1") == [ConnectorTaskId("a-1", 0)]
    assert state.all_task_configs("a-1") == [{"t": "0"}]
    assert state.applied_configs["a-1"] == {"x": "1"}
    assert (state.generations["a-1"], state.start_numbers["a-1"], state.offset) == (0, 2, 3)
    assert state.target_state("a-1") is TargetState.STARTED
    assert "a-1" in state.pending_fencing


def test_commit_without_all_of_its_tasks_makes_the_connector_inconsistent(topic: Topic) -> None:
    with_two_tasks(topic)
    topic.put("task-a-1-1", '{"properties":{"t":"new"}}')
    assert topic.put("commit-a-1", '{"tasks":2}') == [TasksChanged("a-1")]
    state = topic.table.snapshot()
    assert state.inconsistent == {"a-1"}
    assert state.tasks("a-1") == []
    topic.put("task-a-1-0", '{"properties":{"t":"new"}}')
    topic.put("commit-a-1", '{"tasks":1}')
    state = topic.table.snapshot()
    assert state.all_task_configs("a-1") == [{"t": "new"}]
    assert state.generations["a-1"] == 1


def test_left_over_records_of_a_larger_task_set_are_harmless(topic: Topic) -> None:
    topic.put("connector-a", '{"properties":{}}')
    for number in (7, 1, 0):  # as compaction leaves them
        topic.put(f"task-a-{number}", f'{{"properties":{{"t":"{number}"}}}}')
    topic.put("commit-a", '{"tasks":1}')
    assert topic.table.snapshot().all_task_configs("a") == [{"t": "0"}]


def test_commit_of_a_connector_that_compaction_removed_is_ignored(topic: Topic) -> None:
    topic.put("task-a-0", '{"properties":{}}')
    assert topic.put("commit-a", '{"tasks":1}') == []
    topic.put("connector-a", '{"properties":{}}')
    topic.put("commit-a", '{"tasks":1}')  # the buffered task went with the first commit
    assert topic.table.snapshot().inconsistent == {"a"}


def test_deletion_takes_everything_but_the_target_state(topic: Topic) -> None:
    with_two_tasks(topic)
    topic.put("target-state-a-1", '{"state":"PAUSED","state.v2":"STOPPED"}')
    assert topic.put("connector-a-1", None) == [ConnectorRemoved("a-1")]
    state = topic.table.snapshot()
    assert (state.connectors(), state.task_configs, state.start_numbers) == ([], {}, {})
    assert state.target_states == {"a-1": TargetState.STOPPED}
    assert topic.put("target-state-a-1", None) == []
    assert topic.table.snapshot().target_states == {}


def test_target_state_reads_the_newer_field_before_the_older(topic: Topic) -> None:
    topic.put("connector-a", '{"properties":{}}')
    assert topic.put("target-state-a", '{"state":"PAUSED","state.v2":"STOPPED"}') == [
        TargetStateChanged("a")
    ]
    assert topic.table.snapshot().target_state("a") is TargetState.STOPPED
    topic.put("target-state-a", '{"state":"PAUSED"}')
    assert topic.table.snapshot().target_state("a") is TargetState.PAUSED
    assert topic.put("target-state-a", '{"state":"ASLEEP"}') == []
    assert topic.table.snapshot().target_state("a") is TargetState.PAUSED
    topic.put("target-state-a", None)
    assert topic.table.snapshot().target_state("a") is TargetState.STARTED
    assert target_state_value(TargetState.STOPPED) == {"state": "PAUSED", "state.v2": "STOPPED"}


def test_reason_of_a_stop_lasts_until_the_next_target_state(topic: Topic) -> None:
    topic.put("connector-a", '{"properties":{}}')
    topic.put("target-state-a", json.dumps(target_state_value(TargetState.STOPPED, "all is read")))
    assert topic.table.snapshot().stop_reasons == {"a": "all is read"}
    topic.put("target-state-a", '{"state":"ASLEEP"}')
    assert topic.table.snapshot().stop_reasons == {"a": "all is read"}
    topic.put("target-state-a", '{"state":"STARTED"}')
    assert topic.table.snapshot().stop_reasons == {}
    topic.put("target-state-a", '{"state":"PAUSED","state.v2":"STOPPED","reason":"all is read"}')
    topic.put("target-state-a", None)
    assert topic.table.snapshot().stop_reasons == {}


def test_commands_and_session_keys_are_read_from_records(topic: Topic) -> None:
    assert topic.put("restart-connector-a", '{"include-tasks":true}') == [
        RestartRequested(RestartRequest("a", include_tasks=True, only_failed=False))
    ]
    assert topic.put("logger-cluster-connect_py.task", '{"level":"debug"}') == [
        LoggerLevelRequested("connect_py.task", "DEBUG")
    ]
    (changed,) = topic.put(
        "session-key", '{"key":"AAAA","algorithm":"HmacSHA256","creation-timestamp":1718000000000}'
    )
    assert isinstance(changed, SessionKeyChanged)
    assert "AAAA" not in repr(changed)
    with_two_tasks(topic, "a")
    topic.put("tasks-fencing-a", '{"task-count":2}')
    state = topic.table.snapshot()
    assert (state.task_count_records, state.pending_fencing) == ({"a": 2}, frozenset())
    assert (state.session_key or changed.key).creation_timestamp == 1718000000000


def test_restart_requests_are_ranked_by_their_impact() -> None:
    # include_tasks, only_failed
    ranked = [(False, True), (True, True), (False, False), (True, False)]
    assert [RestartRequest("a", t, f).impact for t, f in ranked] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nonsense", "{}"),
        ("connector-a", "[1]"),
        ("connector-a", '{"properties":{"x":1}}'),
        ("connector-a", "{not json"),
        ("task-a", '{"properties":{}}'),
        ("task-a-x", '{"properties":{}}'),
        ("task-a-0", None),
        ("commit-a", '{"tasks":"2"}'),
        ("commit-a", None),
        ("tasks-fencing-a", '{"task-count":3000000000}'),
        ("restart-connector-a", '{"include-tasks":"yes"}'),
        ("session-key", '{"key":1}'),
        ("logger-cluster-x", '{"level":"loud"}'),
    ],
)
def test_what_has_the_wrong_shape_is_skipped(topic: Topic, key: str, value: str | None) -> None:
    assert topic.put(key, value) == []
    state = topic.table.snapshot()
    assert (state.connectors(), state.offset, state.session_key) == ([], 1, None)
    assert topic.table.apply(1, None, b"{}") == []
    assert topic.table.apply(2, b"\xff", b"{}") == []

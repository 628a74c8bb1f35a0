"""Work plans after changes of the config topic, restart plans, and task sets."""

from __future__ import annotations

from dataclasses import replace

from connect_py.herder.local_work.task_set import difference
from connect_py.herder.local_work.work_plan import (
    RequestedWork,
    SetTarget,
    StartConnector,
    StartTasks,
    StopConnector,
    StopTasks,
    plan,
)
from connect_py.herder.requests.restart_requests import plan_restart
from connect_py.model import ConnectorTaskId, State, Status, TargetState
from connect_py.storage.config_state import ClusterConfigState, RestartRequest

A0, A1 = ConnectorTaskId("a", 0), ConnectorTaskId("a", 1)
STATE = ClusterConfigState(
    offset=10,
    configs={"a": {"x": "1"}},
    target_states={"a": TargetState.STARTED},
    task_counts={"a": 2},
    task_configs={A0: {"t": "0"}, A1: {"t": "1"}},
    applied_configs={"a": {"x": "1"}},
    start_numbers={"a": 5},
    config_offsets={"a": 1},
)
RUNNING = RequestedWork(config_offset=1, tasks={A0: 5, A1: 5})


def held(**changes: object) -> dict[str, RequestedWork]:
    return {"a": replace(RUNNING, **changes)}  # type: ignore[arg-type]  # fields by name


def test_plan_starts_connector_and_tasks_when_nothing_runs() -> None:
    assert plan(STATE, {}) == [StartConnector("a"), StartTasks("a", (A0, A1))]


def test_plan_has_no_actions_when_everything_already_runs() -> None:
    assert plan(STATE, held()) == []


def test_worker_starts_its_assigned_tasks_and_stops_the_others() -> None:
    assert plan(STATE, {}, frozenset({A1})) == [StartTasks("a", (A1,))]
    assert plan(STATE, held(), frozenset({"a", A1})) == [StopTasks("a", (A0,))]
    assert plan(STATE, held(), frozenset({A0, A1})) == [StopConnector("a")]
    assert plan(STATE, held(tasks={A0: 5}), frozenset({"a", A0, A1})) == [StartTasks("a", (A1,))]
    # it is planned again after it has stopped
    assert plan(STATE, held(stopping={A0}), frozenset({"a", A0, A1})) == []
    assert plan(STATE, {}, frozenset({"b"})) == []


def test_new_connector_configuration_restarts_the_connector_but_not_its_tasks() -> None:
    assert plan(replace(STATE, config_offsets={"a": 7}), held()) == [StartConnector("a")]


def test_new_task_set_stops_the_old_one_first() -> None:
    newer = replace(STATE, start_numbers={"a": 9})
    assert plan(newer, held()) == [StopTasks("a", (A0, A1))]
    assert plan(newer, held(stopping={A0, A1})) == []
    assert plan(newer, held(tasks={A1: 5}, stopping={A1})) == []  # one of the old set still runs
    assert plan(newer, held(tasks={})) == [StartTasks("a", (A0, A1))]


def test_paused_connector_is_told_and_keeps_its_tasks() -> None:
    paused = replace(STATE, target_states={"a": TargetState.PAUSED})
    assert plan(paused, held()) == [SetTarget("a", TargetState.PAUSED)]
    assert plan(paused, held(config_offset=-1, tasks={A0: 5}), frozenset({A0})) == [
        SetTarget("a", TargetState.PAUSED)
    ]


def test_stopped_connector_stops_tasks_before_its_task_set_is_empty() -> None:
    stopped = replace(STATE, target_states={"a": TargetState.STOPPED})
    assert plan(stopped, held()) == [SetTarget("a", TargetState.STOPPED), StopTasks("a", (A0, A1))]
    assert plan(stopped, {}) == [StartConnector("a")]


def test_inconsistent_task_set_does_not_run() -> None:
    assert plan(replace(STATE, inconsistent=frozenset("a")), held()) == [StopTasks("a", (A0, A1))]


def test_deleted_connector_stops_after_its_tasks_and_once() -> None:
    gone = ClusterConfigState(offset=11)
    assert plan(gone, held()) == [StopTasks("a", (A0, A1))]
    assert plan(gone, held(stopping={A0, A1})) == []
    assert plan(gone, held(tasks={})) == [StopConnector("a")]
    assert plan(gone, held(tasks={}, leaving=True)) == []
    # made again meanwhile: starts when the old one has ended
    assert plan(STATE, held(leaving=True)) == []


def test_task_sets_differ_by_count_content_and_connector_configuration() -> None:
    same = [{"t": "0"}, {"t": "1"}]
    assert difference(STATE, "a", same) is None
    assert difference(STATE, "a", same[:1]) == "the number of tasks changes from 2 to 1"
    assert difference(STATE, "a", [{"t": "0"}, {"t": "2"}]) == "task configurations have changed"
    changed = replace(STATE, configs={"a": {"x": "2"}})
    assert difference(changed, "a", same) == "the connector's configuration has changed"
    assert (
        difference(replace(STATE, inconsistent=frozenset("a")), "a", same)
        == "its task configurations are incomplete"
    )


def test_restart_plan_chooses_connector_and_tasks_by_their_state() -> None:
    running, failed = Status(State.RUNNING, "w", 1), Status(State.FAILED, "w", 1, "boom")
    tasks = {1: running, 0: failed}
    all_of_it = plan_restart(
        RestartRequest("a", include_tasks=True, only_failed=False), running, tasks
    )
    assert (all_of_it.connector, all_of_it.tasks) == (True, (A0, A1))
    assert list(all_of_it.task_statuses) == [0, 1]
    only_failed = plan_restart(
        RestartRequest("a", include_tasks=True, only_failed=True), running, tasks
    )
    assert (only_failed.connector, only_failed.tasks) == (False, (A0,))
    assert only_failed.task_statuses[0] == replace(failed, state=State.RESTARTING)
    assert only_failed.connector_status is running
    nothing = plan_restart(
        RestartRequest("a", include_tasks=False, only_failed=True), running, tasks
    )
    assert (nothing.connector, nothing.tasks) == (False, ())

"""Execution of the work plan: obsolete answers, retries, and permanent failures."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest
from fixtures.herder_fake_worker import FakeWorker
from fixtures.herder_statuses import FakeStatusStore

from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.config.config_provider import ConfigResolver
from connect_py.futures import done, failed
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.herder.local_work.task_config_requests import TaskConfigRequests
from connect_py.herder.local_work.task_set import write_task_configs
from connect_py.herder.local_work.work_assignment import AllItems
from connect_py.herder.local_work.work_plan import RequestedItems
from connect_py.herder.local_work.work_runner import WorkRunner
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.model import ConnectorTaskId, State, Status, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.storage.status_table import StatusId
from connect_py.testing import FakeClock
from connect_py.worker.worker import TooManyTasksError
from connect_py.worker.worker_listener import WorkerListener

A0 = ConnectorTaskId("a", 0)
STATE = ClusterConfigState(offset=2, configs={"a": {"tasks.max": "1"}}, config_offsets={"a": 1})


class FakeConfigs:
    """A config store in memory."""

    def __init__(self, state: ClusterConfigState) -> None:
        self.state = state
        self.published: list[list[Mapping[str, str]]] = []
        self.failures = 0

    def snapshot(self) -> ClusterConfigState:
        return self.state

    def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectError("Error writing task configurations to Kafka")
        self.published.append(list(configs))


class SlowWorker(FakeWorker):
    """Answers requests for task configurations when a test completes `answers`."""

    def __init__(self, listener: WorkerListener) -> None:
        super().__init__(listener)
        self.answers: list[Future[list[dict[str, str]]]] = []

    def task_configs(
        self, name: str, config: Mapping[str, str], max_tasks: int
    ) -> Future[list[dict[str, str]]]:
        self.answers.append(Future())
        return self.answers[-1]


class WorkRunnerFixture:
    """A runner with a fake worker and stores in memory, whose thread is the test."""

    def __init__(
        self, resolver: ConfigResolver | None = None, state: ClusterConfigState = STATE
    ) -> None:
        resolver = resolver or ConfigResolver({})
        self.configs, self.statuses, self.clock = FakeConfigs(state), FakeStatusStore(), FakeClock()
        self.queue = RequestQueue(self.clock)
        self.publication: Future[None] | None = None  # result of a publication by another worker
        assignment, requested = AllItems(), RequestedItems()
        publisher = StatusPublisher(
            self.statuses,  # type: ignore[arg-type]  # implements the methods that it calls
            "w:1",
            assignment,
            self.clock,
            track_topics=True,
            version_of=lambda _: None,
            on_tasks_requested=lambda name: self.queue.put(lambda: self.task_configs.request(name)),
            on_stop_requested=lambda *_: None,
        )
        self.worker = SlowWorker(publisher)
        store: Any = self.configs
        self.task_configs = TaskConfigRequests(
            self.worker, store, publisher, resolver, self.queue, requested, self._publish
        )
        self.work = WorkRunner(
            self.worker,
            store,
            publisher,
            resolver,
            self.queue,
            requested,
            self.task_configs,
            assignment,
            on_stopped=lambda _: None,
        )

    def _publish(self, name: str, configs: Sequence[Mapping[str, str]]) -> Future[None]:
        if self.publication is not None:
            return self.publication
        try:
            self.write_task_configs(name, configs)
        except ConnectError as error:
            return failed(error)
        return done(None)

    def write_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        write_task_configs(self.configs, name, configs)  # type: ignore[arg-type]  # see above

    def run_due(self, seconds: float = 0.0) -> None:
        """Advance the clock, then run the due actions like the herder's thread."""
        self.clock.sleep(seconds)
        while actions := self.queue.due():
            for action in actions:
                action()

    def status(self, item: StatusId) -> Status:
        status = self.statuses.get(item)
        assert status is not None
        return status


@pytest.fixture
def runner() -> WorkRunnerFixture:
    runner = WorkRunnerFixture()
    runner.work.reconcile()
    runner.run_due()
    return runner


class HangingProvider(ConfigProvider):
    """Responds at the end of a test."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        self.released.wait()
        return ConfigData({})


def test_herder_does_not_wait_for_config_providers() -> None:
    provider = HangingProvider()
    config = {"tasks.max": "1", "password": "${v:db:password}"}
    runner = WorkRunnerFixture(
        ConfigResolver({"v": provider}, answer_seconds=5.0), replace(STATE, configs={"a": config})
    )
    runner.work.reconcile()
    runner.run_due()
    # if the herder had waited, no task configurations would have been requested
    assert (runner.worker.calls, len(runner.worker.answers)) == (["start a"], 1)
    provider.released.set()


def test_task_configurations_are_published_only_if_they_have_changed(
    runner: WorkRunnerFixture,
) -> None:
    runner.worker.answers[0].set_result([{"t": "0"}])
    runner.run_due()
    assert runner.configs.published == [[{"t": "0"}]]
    config = runner.configs.state.configs["a"]
    runner.configs.state = replace(
        STATE,
        task_counts={"a": 1},
        task_configs={A0: {"t": "0"}},
        applied_configs={"a": config},
        start_numbers={"a": 3},
    )
    runner.task_configs.request("a")
    runner.worker.answers[1].set_result([{"t": "0"}])
    runner.run_due()
    assert len(runner.configs.published) == 1
    runner.work.reconcile()
    assert runner.worker.calls[-1] == "start task a-0"
    assert runner.worker.connectors["a"].tasks == {0: ({"t": "0"}, 3)}


def test_hanging_answer_of_the_previous_instance_neither_blocks_nor_counts(
    runner: WorkRunnerFixture,
) -> None:
    runner.configs.state = replace(
        STATE, configs={"a": {"tasks.max": "2"}}, config_offsets={"a": 5}
    )
    runner.work.reconcile()
    runner.run_due()
    assert len(runner.worker.answers) == 2
    runner.worker.answers[1].set_result([{"t": "new"}])
    runner.run_due()
    runner.worker.answers[0].set_result([{"t": "old"}])
    runner.run_due()
    assert runner.configs.published == [[{"t": "new"}]]


def test_request_while_another_one_is_pending_is_repeated_afterward(
    runner: WorkRunnerFixture,
) -> None:
    runner.task_configs.request("a")
    assert len(runner.worker.answers) == 1
    runner.worker.answers[0].set_result([{"t": "possibly outdated"}])
    runner.run_due()
    assert runner.configs.published == []
    runner.worker.answers[1].set_result([{"t": "new"}])
    runner.run_due()
    assert runner.configs.published == [[{"t": "new"}]]


def test_failures_are_retried_with_increasing_delays(runner: WorkRunnerFixture) -> None:
    runner.worker.answers[0].set_exception(ConnectError("not now"))
    runner.run_due()
    assert len(runner.worker.answers) == 1
    runner.run_due(0.25)
    runner.worker.answers[1].set_exception(ConnectError("not yet"))
    runner.run_due()
    runner.run_due(0.25)
    assert len(runner.worker.answers) == 2
    runner.run_due(0.25)
    runner.configs.failures = 1  # this time the topic cannot be written
    runner.worker.answers[2].set_result([{"t": "0"}])
    runner.run_due()
    runner.run_due(1.0)
    runner.worker.answers[3].set_result([{"t": "0"}])
    runner.run_due()
    assert runner.configs.published == [[{"t": "0"}]]


def test_too_many_tasks_fail_the_connector_and_nothing_is_published(
    runner: WorkRunnerFixture,
) -> None:
    runner.worker.answers[0].set_exception(TooManyTasksError("2 tasks, 1 allowed"))
    runner.run_due(100.0)
    assert runner.status("a").state is State.FAILED
    assert "2 tasks, 1 allowed" in (runner.status("a").trace or "")
    assert (len(runner.worker.answers), runner.configs.published) == (1, [])


def test_task_configurations_of_a_deleted_or_paused_connector_are_not_requested(
    runner: WorkRunnerFixture,
) -> None:
    runner.worker.answers[0].set_exception(NotFoundError("gone"))
    runner.run_due(100.0)
    runner.configs.state = replace(STATE, target_states={"a": TargetState.PAUSED})
    runner.task_configs.request("a")
    runner.task_configs.request("b")
    assert len(runner.worker.answers) == 1


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(replace(STATE, target_states={"a": TargetState.STOPPED}), id="stopped"),
        pytest.param(replace(STATE, configs={}, config_offsets={}), id="deleted"),
    ],
)
def test_answer_is_not_published_once_the_connector_is_stopped(
    runner: WorkRunnerFixture, state: ClusterConfigState
) -> None:
    """The leader's thread may stop or delete it between the answer and the write. Publishing would
    start its tasks again."""
    published: Future[None] = Future()
    runner.publication = published
    runner.worker.answers[0].set_result([{"n": "0"}])
    runner.run_due()
    runner.configs.state = state
    with pytest.raises(ConnectError) as raised:
        runner.write_task_configs("a", [{"n": "0"}])
    published.set_exception(raised.value)
    runner.run_due(100.0)
    assert (len(runner.worker.answers), runner.configs.published) == (1, [])
    assert runner.status("a").state is State.RUNNING  # nothing failed


def test_stored_task_above_the_limit_fails_at_its_start() -> None:
    runner = WorkRunnerFixture()
    a1 = ConnectorTaskId("a", 1)
    runner.configs.state = replace(
        STATE, task_counts={"a": 2}, task_configs={A0: {}, a1: {}}, start_numbers={"a": 3}
    )
    runner.work.reconcile()
    assert runner.status(a1).state is State.FAILED
    assert runner.status(A0).state is State.RUNNING


def test_null_in_a_configuration_fails_the_connector_with_connects_message() -> None:
    runner = WorkRunnerFixture()
    runner.configs.state = replace(STATE, configs={"a": {"file": None}})
    runner.work.reconcile()
    assert "Non-string value found in original settings for key file: null" in (
        runner.status("a").trace or ""
    )


def test_restart_ignores_connectors_and_tasks_that_do_not_run_here(
    runner: WorkRunnerFixture,
) -> None:
    runner.worker.calls.clear()
    runner.work.restart("a", connector=True, tasks=[A0])
    runner.work.restart("zz", connector=True, tasks=[])
    assert runner.worker.calls == ["start a"]

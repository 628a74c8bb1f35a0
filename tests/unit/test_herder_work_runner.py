"""Carrying out the plan: whose answer counts, what is tried again, and what fails for good."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence, Set
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pytest
from fixtures.herder_fake_worker import FakeWorker

from connect_py.api.config_provider import ConfigData, ConfigProvider
from connect_py.api.errors import ConnectError, NotFoundError
from connect_py.config.config_provider import ConfigResolver
from connect_py.herder.thread.request_queue import RequestQueue
from connect_py.herder.work.status_publisher import StatusPublisher
from connect_py.herder.work.work_runner import WorkRunner
from connect_py.model import ConnectorTaskId, State, Status, TargetState
from connect_py.storage.config_state import ClusterConfigState
from connect_py.worker.worker import TooManyTasksError

A0 = ConnectorTaskId("a", 0)
STATE = ClusterConfigState(offset=2, configs={"a": {"tasks.max": "1"}}, config_offsets={"a": 1})


class FakeClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time_ms(self) -> int:
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeConfigs:
    """A config store that is a variable."""

    def __init__(self) -> None:
        self.state = STATE
        self.published: list[list[Mapping[str, str]]] = []
        self.failures = 0

    def snapshot(self) -> ClusterConfigState:
        return self.state

    def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectError("Error writing task configurations to Kafka")
        self.published.append(list(configs))


class FakeStatuses:
    """Statuses as they were put."""

    def __init__(self) -> None:
        self.last: dict[object, Status] = {}

    def put(self, id: object, status: Status) -> None:  # noqa: A002 - Connect's word
        self.last[id] = status


class SlowWorker(FakeWorker):
    """Answers when the test says so."""

    answers: list[Future[list[dict[str, str]]]]

    def task_configs(
        self, name: str, config: Mapping[str, str], max_tasks: int
    ) -> Future[list[dict[str, str]]]:
        self.answers.append(Future())
        return self.answers[-1]


@dataclass
class Bench:
    configs: FakeConfigs = field(default_factory=FakeConfigs)
    statuses: FakeStatuses = field(default_factory=FakeStatuses)
    clock: FakeClock = field(default_factory=FakeClock)
    resolver: ConfigResolver = field(default_factory=lambda: ConfigResolver({}))

    def __post_init__(self) -> None:
        self.queue = RequestQueue(self.clock)
        publisher = StatusPublisher(self.statuses, "w:1", track_topics=True)  # type: ignore[arg-type]
        publisher.on_tasks_requested = lambda name: self.queue.put(
            lambda: self.work.request_task_configs(name)
        )
        self.worker = SlowWorker(publisher)
        self.worker.answers = []
        self.work = WorkRunner(
            self.worker,
            self.configs,
            publisher,
            self.resolver,
            self.queue,
            lambda name: None,  # type: ignore[arg-type]
        )

    def turn(self, seconds: float = 0.0) -> None:
        """Let the herder's thread do what is due."""
        self.clock.now += seconds
        while due := self.queue.due():
            for action in due:
                action()


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.work.reconcile()
    made.turn()
    return made


class Hanging(ConfigProvider):
    """Answers when a test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def get(self, path: str, keys: Set[str]) -> ConfigData:
        self.over.wait()
        return ConfigData({})


def test_the_herder_does_not_wait_for_config_providers() -> None:
    provider = Hanging()
    bench = Bench(resolver=ConfigResolver({"v": provider}, answer_seconds=5.0))
    config = {"tasks.max": "1", "password": "${v:db:password}"}
    bench.configs.state = replace(STATE, configs={"a": config})
    bench.work.reconcile()
    bench.turn()
    # after a wait nobody would be asked
    assert (bench.worker.calls, len(bench.worker.answers)) == (["start a"], 1)
    provider.over.set()


def test_answer_is_published_once_and_only_if_it_is_news(bench: Bench) -> None:
    bench.worker.answers[0].set_result([{"t": "0"}])
    bench.turn()
    assert bench.configs.published == [[{"t": "0"}]]
    config = bench.configs.state.configs["a"]
    bench.configs.state = replace(
        STATE,
        task_counts={"a": 1},
        task_configs={A0: {"t": "0"}},
        applied_configs={"a": config},
        start_numbers={"a": 3},
    )
    bench.work.request_task_configs("a")
    bench.worker.answers[1].set_result([{"t": "0"}])
    bench.turn()
    assert len(bench.configs.published) == 1
    bench.work.reconcile()
    assert bench.worker.calls[-1] == "start task a-0"
    assert bench.worker.connectors["a"].tasks == {0: ({"t": "0"}, 3)}


def test_hanging_answer_of_an_earlier_life_neither_blocks_nor_counts(bench: Bench) -> None:
    bench.configs.state = replace(STATE, configs={"a": {"tasks.max": "2"}}, config_offsets={"a": 5})
    bench.work.reconcile()
    bench.turn()
    assert len(bench.worker.answers) == 2
    bench.worker.answers[1].set_result([{"t": "new"}])
    bench.turn()
    bench.worker.answers[0].set_result([{"t": "old"}])
    bench.turn()
    assert bench.configs.published == [[{"t": "new"}]]


def test_request_while_an_answer_is_under_way_is_asked_again(bench: Bench) -> None:
    bench.work.request_task_configs("a")
    assert len(bench.worker.answers) == 1
    bench.worker.answers[0].set_result([{"t": "perhaps old"}])
    bench.turn()
    assert bench.configs.published == []
    bench.worker.answers[1].set_result([{"t": "new"}])
    bench.turn()
    assert bench.configs.published == [[{"t": "new"}]]


def test_failures_are_tried_again_with_growing_pauses(bench: Bench) -> None:
    bench.worker.answers[0].set_exception(ConnectError("not now"))
    bench.turn()
    assert len(bench.worker.answers) == 1
    bench.turn(0.25)
    bench.worker.answers[1].set_exception(ConnectError("not yet"))
    bench.turn()
    bench.turn(0.25)
    assert len(bench.worker.answers) == 2
    bench.turn(0.25)
    bench.configs.failures = 1  # this time the topic cannot be written
    bench.worker.answers[2].set_result([{"t": "0"}])
    bench.turn()
    bench.turn(1.0)
    bench.worker.answers[3].set_result([{"t": "0"}])
    bench.turn()
    assert bench.configs.published == [[{"t": "0"}]]


def test_too_many_tasks_fail_the_connector_and_nothing_is_published(bench: Bench) -> None:
    bench.worker.answers[0].set_exception(TooManyTasksError("2 tasks, 1 allowed"))
    bench.turn(100.0)
    assert bench.statuses.last["a"].state is State.FAILED
    assert "2 tasks, 1 allowed" in (bench.statuses.last["a"].trace or "")
    assert (len(bench.worker.answers), bench.configs.published) == (1, [])


def test_connector_that_is_gone_or_paused_is_not_asked_again(bench: Bench) -> None:
    bench.worker.answers[0].set_exception(NotFoundError("gone"))
    bench.turn(100.0)
    bench.configs.state = replace(STATE, target_states={"a": TargetState.PAUSED})
    bench.work.request_task_configs("a")
    bench.work.request_task_configs("b")
    assert len(bench.worker.answers) == 1


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(replace(STATE, target_states={"a": TargetState.STOPPED}), id="stopped"),
        pytest.param(replace(STATE, configs={}, config_offsets={}), id="deleted"),
    ],
)
def test_answer_is_not_published_once_the_connector_is_stopped(
    bench: Bench, state: ClusterConfigState
) -> None:
    """The leader's thread may stop or delete it between the answer and the write; then its tasks
    would come back."""
    published: Future[None] = Future()
    bench.work.publish = lambda name, configs: published
    bench.worker.answers[0].set_result([{"n": "0"}])
    bench.turn()
    bench.configs.state = state
    with pytest.raises(ConnectError) as refused:
        bench.work.publish_task_configs("a", [{"n": "0"}])
    published.set_exception(refused.value)
    bench.turn(100.0)
    assert (len(bench.worker.answers), bench.configs.published) == (1, [])
    assert bench.statuses.last["a"].state is State.RUNNING  # nothing failed


def test_stored_task_above_the_limit_fails_at_its_start() -> None:
    bench = Bench()
    a1 = ConnectorTaskId("a", 1)
    bench.configs.state = replace(
        STATE, task_counts={"a": 2}, task_configs={A0: {}, a1: {}}, start_numbers={"a": 3}
    )
    bench.work.reconcile()
    assert bench.statuses.last[a1].state is State.FAILED
    assert bench.statuses.last[A0].state is State.RUNNING


def test_null_in_a_configuration_fails_the_connector_in_connects_words() -> None:
    bench = Bench()
    bench.configs.state = replace(STATE, configs={"a": {"file": None}})
    bench.work.reconcile()
    assert "Non-string value found in original settings for key file: null" in (
        bench.statuses.last["a"].trace or ""
    )


def test_restart_ignores_connectors_and_tasks_that_do_not_run_here(bench: Bench) -> None:
    bench.worker.calls.clear()
    bench.work.restart("a", connector=True, tasks=[A0])
    bench.work.restart("zz", connector=True, tasks=[])
    assert bench.worker.calls == ["start a"]

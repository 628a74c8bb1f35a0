"""The herder of a group of one on a real broker, with a worker that only pretends to run things."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from fixtures.herder_fake_worker import PLUGINS, FakeWorker
from fixtures.rest_serving import serving
from fixtures.topic_reader import read_topic

from connect_py.api.errors import AlreadyExistsError, ConnectError, NotFoundError
from connect_py.config.worker_config import DistributedConfig
from connect_py.embedded.broker import KafkaBroker
from connect_py.herder.distributed_herder import distributed_herder
from connect_py.herder.group.leader_calls import Signer
from connect_py.herder.herder import BadRequestError, InitialState, RequestTargetError
from connect_py.herder.local_work.status_publisher import StatusPublisher
from connect_py.model import ConnectorTaskId, State
from connect_py.storage.leader_producer import LeaderProducer
from connect_py.storage.storage_clients import StorageClients
from rest.app import create_app
from rest.leader_client import LeaderClient

SINK = {"connector.class": "DemoSink", "topics": "orders", "name": "a"}
SECONDS = 20.0


class ReachableLeader(LeaderClient):
    """Sends stop requests to `url`: the workers of these tests advertise addresses that do not
    exist."""

    def __init__(self) -> None:
        super().__init__()
        self.url = ""

    def request_stop(
        self, url: str, connector: str, start_number: int, reason: str, sign: Signer
    ) -> None:
        super().request_stop(self.url, connector, start_number, reason, sign)


def worker_config(broker: KafkaBroker, prefix: str, **more: str) -> DistributedConfig:
    props = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": f"{prefix}g",
        "key.converter": "DemoConverter",
        "value.converter": "DemoConverter",
        "header.converter": "com.example.DemoHeaderConverter",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "2",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
    }
    for storage in ("config", "status", "offset"):
        props[f"{storage}.storage.topic"] = f"{prefix}{storage}"
        props[f"{storage}.storage.replication.factor"] = "1"
    return DistributedConfig.of({**props, **more})


class Worker1:
    """A herder with its fake worker."""

    def __init__(
        self, broker: KafkaBroker, prefix: str, url: str = "http://w1:8083/", **more: str
    ) -> None:
        self.worker: FakeWorker
        config = worker_config(broker, prefix, **more)

        def create_worker(listener: StatusPublisher, *_: object) -> FakeWorker:
            self.worker = FakeWorker(listener)
            return self.worker

        self.clients = StorageClients(
            {"bootstrap.servers": broker.bootstrap_servers}, config.client_id_prefix
        )
        self.leader = ReachableLeader()
        self.herder = distributed_herder(
            config,
            plugins=PLUGINS,
            clients=self.clients,
            cluster_id="c",
            advertised_url=url,
            commit="0",
            create_worker=create_worker,
            leader_calls=self.leader,
        )

    def state(self, name: str = "a") -> State | None:
        try:
            return self.herder.connector_status(name).connector.state
        except NotFoundError:
            return None

    def tasks(self, name: str = "a") -> dict[int, State]:
        try:
            return {
                n: status.state for n, status in self.herder.connector_status(name).tasks.items()
            }
        except NotFoundError:
            return {}


def eventually(check: Callable[[], bool], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


@contextmanager
def running(broker: KafkaBroker, prefix: str, **more: str) -> Iterator[Worker1]:
    one = Worker1(broker, prefix, **more)
    one.herder.start()
    try:
        eventually(one.herder.started)
        yield one
    finally:
        assert one.herder.stop(SECONDS)
        assert one.herder.failure is None


def create(one: Worker1, **more: str) -> None:
    outcome = one.herder.put_connector("a", {**SINK, **more}, replace=False).result(SECONDS)
    assert outcome.created


def test_new_connector_runs_with_its_tasks_and_says_so(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one, **{"tasks.max": "2"})
        eventually(
            lambda: (
                one.state() is State.RUNNING and one.tasks() == {0: State.RUNNING, 1: State.RUNNING}
            )
        )
        status = one.herder.connector_status("a")
        assert status.type == "sink"
        assert (status.connector.worker_id, status.connector.version) == ("w1:8083", "1.0")
        assert one.herder.connector_info("a").result(SECONDS).tasks == [
            ConnectorTaskId("a", 0),
            ConnectorTaskId("a", 1),
        ]


def test_pause_resume_stop_and_delete_are_seen_in_the_statuses(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one)
        eventually(lambda: one.tasks() == {0: State.RUNNING})
        first = one.worker.connectors["a"].tasks[0][1]
        one.herder.pause_connector("a")
        eventually(lambda: one.state() is State.PAUSED and one.tasks() == {0: State.PAUSED})
        one.herder.resume_connector("a")
        eventually(lambda: one.state() is State.RUNNING and one.tasks() == {0: State.RUNNING})
        assert one.worker.connectors["a"].tasks[0][1] == first  # nothing was restarted
        one.herder.stop_connector("a").result(SECONDS)
        assert one.herder.task_infos("a").result(SECONDS) == []
        eventually(lambda: one.state() is State.STOPPED and one.tasks() == {})
        one.herder.pause_connector("a")
        eventually(lambda: one.state() is State.PAUSED)
        assert one.tasks() == {}
        one.herder.resume_connector("a")
        eventually(lambda: one.state() is State.RUNNING and one.tasks() == {0: State.RUNNING})
        assert one.worker.connectors["a"].tasks[0][1] > first  # a new start has a higher number
        one.herder.delete_connector("a").result(SECONDS)
        eventually(lambda: one.state() is None and one.tasks() == {})
        assert not one.worker.connectors
        with pytest.raises(NotFoundError, match="Connector a not found"):
            one.herder.delete_connector("a").result(SECONDS)


def test_connector_with_paused_or_stopped_initial_state_never_starts_tasks(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        for name, initial, shown in (
            ("p", InitialState.PAUSED, State.PAUSED),
            ("s", InitialState.STOPPED, State.STOPPED),
        ):
            one.herder.put_connector(
                name, {**SINK, "name": name}, replace=False, initial_state=initial
            ).result(SECONDS)
            eventually(lambda name=name, shown=shown: one.state(name) is shown)  # type: ignore[misc]
            assert one.tasks(name) == {}


def test_changed_configuration_restarts_connector_and_tasks_and_drops_surplus_ones(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one, **{"tasks.max": "3"})
        eventually(lambda: len(one.tasks()) == 3)
        before = one.worker.connectors["a"].tasks[0][1]
        patched = one.herder.patch_connector("a", {"tasks.max": "1", "demo.x": "y"}).result(SECONDS)
        assert patched.config == {**SINK, "tasks.max": "1", "demo.x": "y"}
        eventually(lambda: one.tasks() == {0: State.RUNNING})
        assert one.worker.connectors["a"].tasks[0][1] > before
        # Equal task maps, another connector configuration: tasks read that too.
        again = one.worker.connectors["a"].tasks[0][1]
        assert (
            not one.herder.put_connector("a", {**SINK, "demo.x": "z"}, replace=True)
            .result(SECONDS)
            .created
        )
        eventually(
            lambda: (
                0 in one.worker.connectors["a"].tasks
                and one.worker.connectors["a"].tasks[0][1] > again
            )
        )


def test_what_is_refused_is_not_stored(kafka_broker: KafkaBroker, topic_prefix: str) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one)
        with pytest.raises(AlreadyExistsError, match="Connector a already exists"):
            one.herder.put_connector("a", SINK, replace=False).result(SECONDS)
        with pytest.raises(
            BadRequestError, match=r"following 2 error\(s\):\nMust configure one of topics or"
        ):
            one.herder.put_connector(
                "b", {"connector.class": "DemoSink", "name": "b"}, replace=False
            ).result(SECONDS)
        assert one.herder.connectors() == ["a"]


def test_restarts_touch_what_was_asked_for(kafka_broker: KafkaBroker, topic_prefix: str) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one, **{"demo.x": "fail tasks", "tasks.max": "2"})
        eventually(lambda: one.tasks() == {0: State.FAILED, 1: State.FAILED})
        assert one.herder.connector_status("a").tasks[0].trace == "the task failed"
        one.worker.calls.clear()
        shown = one.herder.restart_connector_and_tasks(
            "a", include_tasks=False, only_failed=True
        ).result(SECONDS)
        assert shown.connector.state is State.RUNNING
        shown = one.herder.restart_connector_and_tasks(
            "a", include_tasks=True, only_failed=True
        ).result(SECONDS)
        for status in shown.tasks.values():
            assert (status.state, status.trace) == (State.RESTARTING, "the task failed")
        eventually(lambda: one.worker.calls == ["start task a-0", "start task a-1"])
        eventually(lambda: one.tasks() == {0: State.FAILED, 1: State.FAILED})
        one.worker.calls.clear()
        one.herder.restart_task(ConnectorTaskId("a", 1)).result(SECONDS)
        one.herder.restart_connector("a").result(SECONDS)
        assert one.worker.calls == ["start task a-1", "start a"]
        with pytest.raises(NotFoundError, match="Unknown task: a-7"):
            one.herder.restart_task(ConnectorTaskId("a", 7)).result(SECONDS)
        with pytest.raises(NotFoundError, match="Unknown connector: zz"):
            one.herder.restart_connector("zz").result(SECONDS)


def test_failed_start_is_published_and_a_new_configuration_cures_it(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one, **{"demo.x": "fail"})
        eventually(lambda: one.state() is State.FAILED)
        assert one.herder.connector_status("a").connector.trace == "the configuration is invalid"
        one.herder.put_connector("a", SINK, replace=True).result(SECONDS)
        eventually(lambda: one.state() is State.RUNNING and one.tasks() == {0: State.RUNNING})


def test_restarted_worker_resumes_from_the_topics(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one)
        one.herder.put_connector(
            "p", {**SINK, "name": "p"}, replace=False, initial_state=InitialState.PAUSED
        ).result(SECONDS)
        eventually(lambda: one.tasks() == {0: State.RUNNING})
        one.worker.listener.on_topic_used(ConnectorTaskId("a", 0), "orders")
        eventually(lambda: one.herder.active_topics("a") == ["orders"])
        number, generation = (
            one.worker.connectors["a"].tasks[0][1],
            one.herder.connector_status("a").connector.generation,
        )
    with running(kafka_broker, topic_prefix) as two:
        eventually(lambda: two.state() is State.RUNNING and two.tasks() == {0: State.RUNNING})
        eventually(lambda: two.state("p") is State.PAUSED)
        # nothing was written, so nothing was renumbered
        assert two.worker.connectors["a"].tasks[0][1] == number
        assert two.herder.connector_status("a").connector.generation > generation
        assert two.herder.active_topics("a") == ["orders"]
        two.herder.reset_active_topics("a")
        eventually(lambda: two.herder.active_topics("a") == [])


def test_worker_prestarts_services_of_connectors_that_are_to_run_wherever_they_do(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one)
        one.herder.put_connector(
            "paused", {**SINK, "name": "paused"}, replace=False, initial_state=InitialState.PAUSED
        ).result(SECONDS)
        assert one.worker.prestarted == {}
        with running(kafka_broker, topic_prefix, url="http://w2:8083/") as other:
            assert other.worker.prestarted == {"a": SINK}
            assert other.worker.calls[0] == "start"


def test_second_worker_takes_its_share_and_then_replaces_the_leader(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    now = {"scheduled.rebalance.max.delay.ms": "0"}
    second = Worker1(kafka_broker, topic_prefix, "http://w2:8083/", **now)
    try:
        with running(kafka_broker, topic_prefix, **now) as first:
            for name in ("a", "b"):
                first.herder.put_connector(name, {**SINK, "name": name}, replace=False).result(
                    SECONDS
                )
            eventually(lambda: first.tasks("a") == first.tasks("b") == {0: State.RUNNING})
            second.herder.start()
            eventually(second.herder.started)
            eventually(
                lambda: bool(second.worker.running_connectors() and second.worker.running_tasks())
            )
            for one in (first, second):
                assert (len(one.worker.running_connectors()), len(one.worker.running_tasks())) == (
                    1,
                    1,
                )
            moved = next(iter(second.worker.running_connectors()))
            eventually(
                lambda: first.herder.connector_status(moved).connector.worker_id == "w2:8083"
            )
            with pytest.raises(RequestTargetError) as refused:
                second.herder.put_connector("c", {**SINK, "name": "c"}, replace=False).result(
                    SECONDS
                )
            assert refused.value.url == "http://w1:8083/"
            with pytest.raises(RequestTargetError) as refused:
                first.herder.restart_connector(moved).result(SECONDS)
            assert refused.value.url == "http://w2:8083/"
            second.herder.restart_connector(moved).result(SECONDS)
            (task,) = second.worker.running_tasks()
            with serving(create_app(first.herder)) as leading:
                second.leader.url = str(leading.base_url)
                start_number = second.worker.start_number(task)
                second.worker.listener.on_stop_requested(task, start_number, "all records are read")
                eventually(
                    lambda: (
                        first.herder.connector_status(task.connector).stop_reason
                        == "all records are read"
                    )
                )
            eventually(lambda: second.worker.running_tasks() == frozenset())
            first.herder.resume_connector(task.connector)
        eventually(
            lambda: (
                len(second.worker.running_connectors()) == len(second.worker.running_tasks()) == 2
            )
        )
        eventually(lambda: second.herder.connector_status("a").connector.worker_id == "w2:8083")
        assert (
            second.herder.put_connector("c", {**SINK, "name": "c"}, replace=False)
            .result(SECONDS)
            .created
        )
    finally:
        assert second.herder.stop(SECONDS)


def test_fenced_leader_refuses_writes_and_goes_on_with_its_work(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        create(one)
        eventually(lambda: one.tasks() == {0: State.RUNNING})
        one.worker.calls.clear()
        other_leader = LeaderProducer(one.clients, f"{topic_prefix}g")
        other_leader.acquire(SECONDS)
        with pytest.raises(Exception, match="Failed to write to config topic"):
            one.herder.stop_connector("a").result(SECONDS)

        # It still owns partition 0 and therefore becomes the leader again.
        def stopped() -> bool:
            try:
                one.herder.stop_connector("a").result(SECONDS)
            except RequestTargetError:
                return False
            return True

        assert one.worker.calls == []
        eventually(stopped)
        eventually(lambda: one.worker.calls == ["stop task a-0"])


def test_config_topic_holds_javas_records_in_javas_order(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    with running(kafka_broker, topic_prefix) as one:
        one.herder.put_connector(
            "a", SINK, replace=False, initial_state=InitialState.RUNNING
        ).result(SECONDS)
        eventually(lambda: one.tasks() == {0: State.RUNNING})
        one.herder.stop_connector("a").result(SECONDS)
        one.herder.delete_connector("a").result(SECONDS)
    read = read_topic(kafka_broker.bootstrap_servers, f"{topic_prefix}config", "read_uncommitted")
    records = [
        ((r.key or b"").decode(), None if r.value is None else r.value.decode()) for r in read
    ]
    assert records[0][0] == "session-key"
    assert records[1:] == [
        ("target-state-a", '{"state":"STARTED","state.v2":"STARTED"}'),
        (
            "connector-a",
            '{"properties":{"connector.class":"DemoSink","topics":"orders","name":"a"}}',
        ),
        ("task-a-0", '{"properties":{"task.class":"com.example.DemoSinkTask","topics":"orders"}}'),
        ("commit-a", '{"tasks":1}'),
        ("commit-a", '{"tasks":0}'),
        ("target-state-a", '{"state":"PAUSED","state.v2":"STOPPED"}'),
        ("connector-a", None),
        ("target-state-a", None),
    ]


# in every run: test_transaction_expired_in_broker_outage_is_repeated_without_loss
@pytest.mark.long
@pytest.mark.timeout(400)  # a separate broker restarts, and a write must time out
def test_tasks_survive_a_broker_outage_and_config_writes_continue_afterwards(
    topic_prefix: str,
) -> None:
    with (
        KafkaBroker() as broker,
        running(broker, topic_prefix, **{"session.timeout.ms": "60000"}) as one,
    ):
        create(one)
        eventually(lambda: one.tasks() == {0: State.RUNNING})
        one.worker.calls.clear()
        broker.stop()
        with pytest.raises(ConnectError, match="Error writing connector configuration to Kafka"):
            one.herder.put_connector("b", {**SINK, "name": "b"}, replace=False).result(60)
        assert one.herder.connectors() == ["a"]
        broker.start()

        def written() -> bool:
            try:
                return (
                    one.herder.put_connector("c", {**SINK, "name": "c"}, replace=True).result(60)
                    is not None
                )
            except ConnectError:
                return False

        eventually(written, 60)
        eventually(lambda: one.tasks("c") == {0: State.RUNNING}, 60)
        assert "stop task a-0" not in one.worker.calls
        # it may have arrived after all
        assert "b" not in one.herder.connectors() or one.state("b") is State.RUNNING


def test_worker_refuses_a_group_with_members_of_another_protocol(
    kafka_broker: KafkaBroker, topic_prefix: str
) -> None:
    other = Consumer(
        {
            "bootstrap.servers": kafka_broker.bootstrap_servers,
            "group.id": f"{topic_prefix}g",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 6000,
        }
    )
    topic = f"{topic_prefix}t"
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    other.subscribe([topic])

    def joined() -> bool:
        other.poll(0.1)
        return bool(other.memberid())

    def ended() -> bool:
        other.poll(0.05)
        return one.herder.wait(0.05)

    one = Worker1(kafka_broker, topic_prefix)
    try:
        eventually(joined)
        one.herder.start()
        eventually(ended)
        assert "in use by members with a different protocol" in str(one.herder.failure)
        assert not one.herder.started()
    finally:
        one.herder.stop(SECONDS)
        other.close()

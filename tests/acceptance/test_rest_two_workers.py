"""Two workers of a group that asks for users: any of them takes any request."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rest_serving import error
from worker_process import WorkerProcess

from connect_py.embedded.broker import KafkaBroker

SECONDS = 90.0  # for anything that a group does
CONFLICT = (
    409,
    "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
)
EXTENSION = "org.apache.kafka.connect.rest.basic.auth.extension.BasicAuthSecurityRestExtension"
MODULE = EXTENSION.replace("BasicAuthSecurityRestExtension", "PropertyFileLoginModule")
TOPIC = "two-workers"


@pytest.fixture(scope="module")
def clients(
    kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[httpx.Client]]:
    """One client for each worker."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "users.properties").write_text("ann=secret\n")
    (folder / "jaas.conf").write_text(
        f'KafkaConnect {{ {MODULE} required file="{folder / "users.properties"}"; }};\n'
    )
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    workers = [
        WorkerProcess(
            folder / name,
            kafka_broker.bootstrap_servers,
            "two-workers",
            {"rest.extension.classes": EXTENSION, "scheduled.rebalance.max.delay.ms": "1000"},
            {"KAFKA_OPTS": f"-Djava.security.auth.login.config={folder / 'jaas.conf'}"},
        )
        for name in ("one", "two")
    ]
    clients = [
        httpx.Client(base_url=worker.url, timeout=100, auth=("ann", "secret")) for worker in workers
    ]
    try:
        for worker in workers:
            worker.start(wait=False)
        for worker, client in zip(workers, clients, strict=True):
            eventually(lambda client=client: healthy(client), worker.log_end)
        yield clients
    finally:
        for client in clients:
            client.close()
        for worker in workers:
            worker.close()


def healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def eventually(check: Callable[[], bool], told: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + SECONDS
    while not check():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def follower(clients: list[httpx.Client]) -> httpx.Client:
    """The worker that does not lead."""
    for client in clients:
        if client.delete("/connectors/zz?forward=false").status_code == 409:
            return client
    raise AssertionError("both workers lead")


@pytest.fixture(scope="module")
def leader(clients: list[httpx.Client], follower: httpx.Client) -> httpx.Client:
    return next(client for client in clients if client is not follower)


def sink(tmp_path: Path) -> dict[str, str]:
    return {"connector.class": "FileStreamSink", "topics": TOPIC, "file": str(tmp_path / "lines")}


@pytest.mark.timeout(300)
def test_follower_creates_a_connector_under_its_own_location(
    follower: httpx.Client, leader: httpx.Client, tmp_path: Path
) -> None:
    body = {"name": "b", "config": sink(tmp_path)}
    assert error(follower.post("/connectors?forward=false", json=body)) == CONFLICT
    created = follower.post("/connectors", json=body)
    assert created.status_code == 201
    assert created.headers["location"] == f"{follower.base_url}/connectors/b"
    assert created.json()["config"] == {**sink(tmp_path), "name": "b"}
    assert error(follower.post("/connectors", json=body)) == (409, "Connector b already exists")
    eventually(lambda: leader.get("/connectors/b").status_code == 200)
    assert follower.post("/connectors", json=body, auth=("ann", "wrong")).status_code == 401


def test_follower_answers_errors_that_need_no_leader_and_forwards_others(
    follower: httpx.Client,
) -> None:
    for answer in (
        follower.delete("/connectors/zz?forward=false"),
        follower.patch("/connectors/zz/config?forward=false", json={}),
        follower.delete("/connectors/zz/offsets?forward=false"),
    ):
        assert error(answer) == CONFLICT
    assert error(follower.put("/connectors/zz/stop?forward=false")) == (404, "Unknown connector zz")
    assert error(follower.post("/connectors/zz/restart?forward=false")) == (
        404,
        "Unknown connector: zz",
    )
    assert error(follower.patch("/connectors/zz/offsets?forward=false", json={"offsets": []})) == (
        400,
        "Partitions / offsets need to be provided for an alter offsets request",
    )
    assert error(follower.delete("/connectors/zz")) == (404, "Connector zz not found")


@pytest.mark.timeout(300)
def test_tasks_of_connectors_on_either_worker_come_up(
    clients: list[httpx.Client], follower: httpx.Client, tmp_path: Path
) -> None:
    """Task configs of the follower's connectors are published by the leader, with a signed
    request.
    """
    names = [f"c{number}" for number in range(4)]
    for name in names:
        assert follower.put(f"/connectors/{name}/config", json=sink(tmp_path)).status_code == 201
    owners: dict[str, str] = {}

    def running() -> bool:
        listed = follower.get("/connectors?expand=status").json()
        states = {n: listed[n]["status"] for n in names if n in listed}
        owners.update({n: status["connector"]["worker_id"] for n, status in states.items()})
        return len(states) == len(names) and all(
            [status["connector"]["state"], *(task["state"] for task in status["tasks"])]
            == ["RUNNING", "RUNNING"]
            for status in states.values()
        )

    eventually(running, lambda: follower.get("/connectors?expand=status").text)
    assert len(set(owners.values())) == 2
    for name in names:  # the owner of each is one of two; either way the answer is the same
        assert follower.post(f"/connectors/{name}/restart").status_code == 204
        assert follower.post(f"/connectors/{name}/tasks/0/restart").status_code == 204
    planned = follower.post(f"/connectors/{names[0]}/restart?includeTasks=true")
    assert (planned.status_code, planned.json()["connector"]["state"]) == (202, "RESTARTING")
    eventually(running, lambda: follower.get("/connectors?expand=status").text)


def test_a_level_for_the_cluster_reaches_both(
    clients: list[httpx.Client], follower: httpx.Client
) -> None:
    assert (
        follower.put("/admin/loggers/two.workers?scope=cluster", json={"level": "WARN"}).status_code
        == 204
    )
    for client in clients:
        eventually(
            lambda client=client: client.get("/admin/loggers/two.workers").status_code == 200
        )
        assert client.get("/admin/loggers/two.workers").json()["level"] == "WARN"


def test_page_of_either_worker_knows_the_whole_group(
    leader: httpx.Client, follower: httpx.Client, tmp_path: Path
) -> None:
    names = [f"{client.base_url.host}:{client.base_url.port}" for client in (leader, follower)]
    for client, own in zip((leader, follower), names, strict=True):
        workers = client.get("/ui/worker.json").json()["workers"]
        assert {each["worker_id"]: (each["leader"], each["here"]) for each in workers} == {
            name: (name == names[0], name == own) for name in names
        }
    assert leader.put("/connectors/seen/config", json=sink(tmp_path)).status_code == 201
    try:
        for client in (leader, follower):
            eventually(lambda client=client: 'connector="seen"' in _of_group(client, names))
    finally:
        assert leader.delete("/connectors/seen").status_code == 204


def _of_group(client: httpx.Client, workers: list[str]) -> str:
    """Read the connector's metrics for the page, from any worker that runs it."""
    asked = ({"connector": "seen", "worker": worker} for worker in workers)
    return "".join(client.get("/ui/metrics.txt", params=query).text for query in asked)

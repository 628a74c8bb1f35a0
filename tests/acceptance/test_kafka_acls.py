"""A cluster that does not grant everything: a worker reports missing permissions and exits instead
of waiting indefinitely.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import httpx
import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from kafka_acls import AclBroker, Grant
from worker_process import WorkerProcess

from connect_py.api.errors import ConnectError, RetriableError
from connect_py.embedded.broker import KafkaBroker
from connect_py.kafka.client_config import translate
from connectors.iceberg.coordinator.channel_topic import CoordinatorWriter

ENDS_SECONDS = 150.0  # after a minute, plus a start on a crowded machine
TOPIC, GROUP, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
)
CREATE, DESCRIBE, READ, WRITE = (
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
    AclOperation.READ,
    AclOperation.WRITE,
)
LINES = "acl-lines"


def grants(group: str) -> list[Grant]:
    """Return the permissions that the manual lists for a worker."""
    literal = ResourcePatternType.LITERAL
    topics = [f"{group}-{kind}" for kind in ("config", "status", "offset", "control")]
    return [
        *(
            (TOPIC, topic, literal, operation)
            for topic in topics
            for operation in (CREATE, DESCRIBE, READ, WRITE)
        ),
        (GROUP, group, literal, READ),
        (TRANSACTIONAL_ID, f"connect-cluster-{group}", literal, WRITE),
        (TRANSACTIONAL_ID, f"connect-cluster-{group}", literal, DESCRIBE),
    ]


def without(
    wanted: Sequence[Grant], kind: ResourceType, suffix: str, operations: Sequence[AclOperation]
) -> list[Grant]:
    return [
        grant
        for grant in wanted
        if not (grant[0] is kind and grant[1].endswith(suffix) and grant[3] in operations)
    ]


@pytest.fixture(scope="module")
def broker() -> Iterator[AclBroker]:
    with AclBroker() as started:
        yield started


def worker(
    folder: Path, broker: KafkaBroker, group: str, client: Mapping[str, str]
) -> WorkerProcess:
    return WorkerProcess(folder / group, broker.bootstrap_servers, group, client)


@pytest.mark.long
@pytest.mark.timeout(150)  # a broker and a worker start
def test_a_worker_needs_no_more_than_the_manual_lists(broker: AclBroker, tmp_path: Path) -> None:
    broker.allow(
        [
            *grants("enough"),
            (TOPIC, LINES, ResourcePatternType.LITERAL, WRITE),
            (TOPIC, LINES, ResourcePatternType.LITERAL, CREATE),
        ]
    )
    one = worker(tmp_path, broker, "enough", broker.client)
    try:
        one.start()
        file = tmp_path / "lines.txt"
        file.write_text("hello\n")
        one.put(
            "lines",
            {
                "connector.class": "FileStreamSource",
                "file": str(file),
                "topic": LINES,
                "topic.creation.default.replication.factor": "1",
                "topic.creation.default.partitions": "1",
            },
        )
        one.wait_for_states("lines", "RUNNING", "RUNNING")
    finally:
        one.close()


@pytest.mark.long
@pytest.mark.timeout(300)  # a minute for an administrator, and workers that start at once
def test_worker_exits_with_2_and_names_the_missing_acl(broker: AclBroker, tmp_path: Path) -> None:
    everything = {
        group: grants(group) for group in ("no-create", "no-write", "no-read", "no-group")
    }
    granted = {
        "no-create": without(
            everything["no-create"], TOPIC, "-control", [CREATE, DESCRIBE, READ, WRITE]
        ),
        "no-write": without(everything["no-write"], TOPIC, "-control", [WRITE]),
        "no-read": without(everything["no-read"], TOPIC, "-control", [READ]),
        "no-group": without(everything["no-group"], GROUP, "", [READ]),
    }
    expected = {
        "no-create": "topic 'no-create-control' (control.storage.topic) does not exist or is not "
        "visible, and creating it is not authorized",
        "no-write": "not authorized to write to topic 'no-write-control' (required ACL: Write)",
        "no-read": "not authorized to read topic 'no-read-control'",
        "no-group": "not authorized to join group 'no-group'",
    }
    for one in granted.values():
        broker.allow(one)
    workers = {group: worker(tmp_path, broker, group, broker.client) for group in granted}
    begun = time.monotonic()
    try:
        for one in workers.values():
            one.start(wait=False)
        for group, one in workers.items():
            assert one.wait(max(1.0, begun + ENDS_SECONDS - time.monotonic())) == 2, one.log_end()
            last = [
                line for line in one.log_end(200).splitlines() if "Stopping due to error" in line
            ]
            assert len(last) == 1, one.log_end()
            assert "the cluster denies permissions that this worker needs" in last[0]
            assert expected[group] in last[0]
        assert time.monotonic() - begun > 60
    finally:
        for one in workers.values():
            one.close()


SINK = {
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "topics": LINES,
    "iceberg.tables": "a.lines",
    "iceberg.catalog.type": "rest",
    "iceberg.catalog.uri": "http://127.0.0.1:1",
}


def refusal(one: WorkerProcess, name: str) -> str:
    """Return the reason why an Iceberg sink is refused."""
    answer = httpx.put(f"{one.url}/connectors/{name}/config", json=SINK, timeout=100)
    assert answer.status_code == 400, answer.text
    return str(answer.json()["message"])


def source(folder: Path) -> dict[str, str]:
    file = folder / "lines.txt"
    file.write_text("hello\n")
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": LINES}


@pytest.mark.long
@pytest.mark.timeout(300)  # workers start three times, each after the wait for others
def test_single_worker_runs_without_transactions_but_a_second_is_refused(
    broker: AclBroker, tmp_path: Path
) -> None:
    broker.allow(
        [
            *without(grants("lone"), TRANSACTIONAL_ID, "", [WRITE, DESCRIBE]),
            (TOPIC, LINES, ResourcePatternType.LITERAL, WRITE),
            (TOPIC, LINES, ResourcePatternType.LITERAL, CREATE),
        ]
    )
    one = worker(tmp_path / "one", broker, "lone", broker.client)
    two = worker(tmp_path / "two", broker, "lone", broker.client)
    try:
        one.start()
        assert (
            "running without transactions: not authorized to use transactional id "
            "'connect-cluster-lone'" in one.log_end(200)
        )
        one.put("lines", source(tmp_path))
        one.wait_for_states("lines", "RUNNING", "RUNNING")
        why = refusal(one, "lake")
        assert "but the cluster denies them" in why
        assert (
            "TransactionalId 'connect-lake-coordinator' (required ACL: Write and Describe)" in why
        )
        two.start(wait=False)
        assert two.wait(ENDS_SECONDS) == 2, two.log_end()
        told = next(
            line for line in two.log_end(200).splitlines() if "Stopping due to error" in line
        )
        assert f"worker {one.url} of group" in told
        assert "grant Write and Describe on TransactionalId 'connect-cluster-lone'" in told
        one.wait_for_states("lines", "RUNNING", "RUNNING")
        one.kill_group()
        one.start()
        one.wait_for_states("lines", "RUNNING", "RUNNING")
    finally:
        two.close()
        one.close()


@pytest.mark.long
@pytest.mark.timeout(400)  # a dedicated broker, and a wait for other workers
def test_single_worker_runs_on_a_cluster_without_transaction_support(tmp_path: Path) -> None:
    with KafkaBroker(properties={"transaction.state.log.replication.factor": "3"}) as small:
        one = worker(tmp_path, small, "small", {})
        try:
            one.start()
            assert (
                "transaction.state.log.replication.factor is 3, the number of brokers is 1"
                in one.log_end(200)
            )
            one.put("lines", source(tmp_path))
            one.wait_for_states("lines", "RUNNING", "RUNNING")
            assert "the number of brokers is 1" in refusal(one, "lake")
        finally:
            one.close()


@pytest.mark.long  # in every run: test_coordinator_without_transactional_acl_fails_and_names_the_id
@pytest.mark.timeout(150)  # a worker starts
def test_iceberg_sink_without_acl_for_its_transactional_id_is_refused(
    broker: AclBroker, tmp_path: Path
) -> None:
    broker.allow(grants("sinks"))
    client = {**broker.client, **{f"producer.{key}": value for key, value in broker.client.items()}}
    one = worker(tmp_path, broker, "sinks", client)
    try:
        one.start()
        why = refusal(one, "lake")
        assert "the ACLs do not allow the transactional ID 'connect-lake-coordinator'" in why
        assert "ACL: Write and Describe" in why
        literal = ResourcePatternType.LITERAL
        broker.allow(
            (TRANSACTIONAL_ID, "connect-lake-coordinator", literal, each)
            for each in (WRITE, DESCRIBE)
        )
        validate = f"{one.url}/connector-plugins/IcebergSinkConnector/config/validate"
        checked = httpx.put(validate, json={**SINK, "name": "lake"}, timeout=100)
        assert checked.json()["error_count"] == 0, checked.text
    finally:
        one.close()


def test_coordinator_without_transactional_acl_fails_and_names_the_id(broker: AclBroker) -> None:
    """A task that retried would wait indefinitely, and look as if it were running."""
    with pytest.raises(
        ConnectError, match=r"transactional ID 'connect-x-coordinator' \(Write and Describe"
    ) as told:
        CoordinatorWriter(
            lambda kind: dict(translate(broker.client, kind)), "channel", "connect-x-coordinator"
        )
    assert not isinstance(told.value, RetriableError)
    assert "iceberg.coordinator.transactional.prefix" in str(told.value)

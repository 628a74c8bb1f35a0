"""A worker with a user-defined commit step: it is killed, the step fails and is fixed, and rows
remain exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from exactly_once_events import SHORT_TIMEOUTS
from sink_case import SinkCase, case_on_own_worker

from connect_py.embedded.broker import KafkaBroker

# Each answer of a step is tested in one process: `test_iceberg_cycle_step`.
pytestmark = pytest.mark.long
WORKER = {**SHORT_TIMEOUTS, "connect_py.spark.user-code.allowed": "iceberg.ext.cycle-sql"}
STEP = {"iceberg.ext.cycle-sql": "SELECT * FROM staged WHERE id % 3 <> 0"}


@pytest.fixture
def case(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> Iterator[SinkCase]:
    with case_on_own_worker(
        tmp_path, kafka_broker.bootstrap_servers, topic_prefix, WORKER, STEP
    ) as made:
        yield made


@pytest.mark.timeout(300)  # a worker that is killed, and its drivers
def test_step_of_a_worker_filters_exactly_through_death_and_repair(case: SinkCase) -> None:
    def await_rows(end: int) -> None:
        wanted = [number for number in range(end) if number % 3]
        case.worker.wait_until(lambda: case.ids() == wanted, 90, f"the rows below {end}")

    case.start()
    case.await_running()
    case.produce_ids(range(1000))
    await_rows(1000)
    case.produce_ids(range(1000, 1500))
    case.worker.kill_group()
    case.worker.start()
    await_rows(1500)
    case.stop()  # otherwise, the previous step may process the next rows
    case.start(iceberg__ext__cycle_sql="SELECT nothing FROM staged")
    case.produce_ids(range(1500, 1600))
    case.resume()
    case.await_log(
        "its partitions wait (consecutive failed cycles: 1): iceberg.ext.cycle-sql failed, so "
        "nothing is committed"
    )
    assert "cycle-sql failed" in case.await_waiting(f"commit to table {case.table}")["reason"]
    case.start()
    await_rows(1600)
    case.stop()
    slow = "SELECT * FROM staged WHERE id >= (SELECT count_if(id < 0) FROM range(1000000000000000))"
    case.start(iceberg__ext__cycle_sql=slow, iceberg__ext__commit_attempt_timeout_ms="10000")
    case.produce_ids(range(1600, 1700))
    case.resume()
    said = "did not finish within 10 s and was interrupted while iceberg.ext.cycle-sql ran"
    case.await_log(said, 150)  # a cycle has five attempts
    assert (
        "iceberg.ext.cycle-sql ran" in case.await_waiting(f"commit to table {case.table}")["reason"]
    )
    case.start()
    await_rows(1700)
    url = f"{case.worker.url}/connectors/{case.name}/config"
    refused = httpx.put(
        url, json=case.config() | {"iceberg.ext.cycle-transform": "os:system"}, timeout=60
    )
    assert (refused.status_code, "runs code in the worker's Spark driver" in refused.text) == (
        400,
        True,
    )

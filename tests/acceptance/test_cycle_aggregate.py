"""A worker with an aggregate table, which is killed at each step between both commits: both tables
remain exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from exactly_once_events import SHORT_TIMEOUTS
from sink_case import SinkCase, case_on_own_worker

from connect_py.embedded.broker import KafkaBroker

# Each step is tested in one process: `test_iceberg_cycle_aggregate`.
pytestmark = pytest.mark.long
WORKER = {**SHORT_TIMEOUTS, "connect_py.spark.user-code.allowed": "iceberg.ext.cycle-*"}
QUERY = "SELECT id % 7 AS digit, count(*) AS events, sum(id) AS total FROM staged GROUP BY id % 7"
POINTS = [  # the second commit of a cycle is the aggregate's
    "after_aggregate",
    "after_swap",
    "before_aggregate_commit",
    "after_swap=killgroup@2",
    "after_aggregate_commit",
]


@pytest.fixture
def case(
    tmp_path: Path, kafka_broker: KafkaBroker, topic_prefix: str, spark_environment: dict[str, str]
) -> Iterator[SinkCase]:
    with case_on_own_worker(
        tmp_path, kafka_broker.bootstrap_servers, topic_prefix, WORKER, {}
    ) as made:
        yield made


@pytest.mark.timeout(600)  # six runs of a worker
def test_aggregate_of_a_worker_is_exact_through_deaths(case: SinkCase, tmp_path: Path) -> None:
    faults, followed, aggregate = tmp_path / "faults", case.table, f"{case.table}_digits"
    setting = f"iceberg.ext.cycle-aggregate.{aggregate}"
    aggregated = {setting: QUERY, f"{setting}.keys": "digit", f"{setting}.add": "events,total"}
    case.extra = aggregated
    case.worker.kill_group()
    case.worker.environment["CONNECT_PY_FAULTS"] = f"@{faults}"
    case.worker.start()

    def counted() -> dict[int, tuple[int, int]]:
        if case.lakehouse.table(aggregate) is None:
            return {}
        rows = case.lakehouse.rows(aggregate).to_pylist()
        assert len({row["digit"] for row in rows}) == len(rows), "a key has several rows"
        return {row["digit"]: (row["events"], row["total"]) for row in rows}

    def await_rows(end: int) -> None:
        parts = {digit: range(digit, end, 7) for digit in range(7)}
        wanted = {digit: (len(part), sum(part)) for digit, part in parts.items()}
        case.worker.wait_until(lambda: case.ids() == [*range(end)], 90, f"the rows below {end}")
        case.worker.wait_until(
            lambda: counted() == wanted, 30, f"the aggregate of the rows below {end}"
        )

    case.start()
    case.produce_ids(range(100))
    await_rows(100)
    for number, point in enumerate(POINTS, 1):
        faults.write_text(point if "=" in point else f"{point}=killgroup")
        case.produce_ids(range(100 * number, 100 * number + 50))
        case.worker.wait_for_death(60)
        faults.unlink()
        case.produce_ids(range(100 * number + 50, 100 * number + 100))
        case.worker.start()
        await_rows(100 * number + 100)
    assert (
        case.worker.log_path.read_text(errors="replace").count(
            f"{aggregate}: rebuilding from all rows"
        )
        <= 2
    )
    commits = [len(case.lakehouse.table(name).snapshots()) for name in (followed, aggregate)]
    assert commits[0] == commits[1], "a commit is in the aggregate twice, or not at all"

"""Many connectors on one worker: REST stays quick, the front process small, and a kill is soon
forgotten."""

from __future__ import annotations

import math
import time
from pathlib import Path

import psutil
import pytest
from fixtures.worker_group import SESSION_SECONDS, GroupUnderTest, latencies

FRONT_BYTES = 150e6


def percentile(sorted_values: list[float], percent: float) -> float:
    return sorted_values[math.ceil(len(sorted_values) * percent / 100) - 1]


def check_front(group: GroupUnderTest, number: int) -> None:
    assert psutil.Process(group.workers[number].pid).memory_info().rss < FRONT_BYTES


@pytest.mark.long
@pytest.mark.timeout(1800)  # two hundred processes start, twice
def test_hundred_connectors_and_two_hundred_tasks_on_one_worker(tmp_path: Path) -> None:
    with GroupUnderTest(
        tmp_path, "load-", workers=2, **{"scheduled.rebalance.max.delay.ms": "0"}
    ) as group:
        group.start()
        for worker in group.workers:
            worker.wait_until(worker.healthy, 120, "the worker to be healthy")
        group.create(100, 200)
        group.items = 300
        group.settle(300)
        killed = 1 - group.leader()
        group.kill(killed)
        begun = time.monotonic()
        kept = 1 - killed
        group.workers[kept].wait_until(
            lambda: group.handed_over(kept),
            SESSION_SECONDS + 10,
            "everything to be given to the worker that is left",
        )
        handed_over = time.monotonic() - begun
        group.settle(300, [kept])
        settled = time.monotonic() - begun
        took = latencies(f"{group.workers[kept].url}/connectors?expand=status", 30)
        p50, p99 = percentile(took, 50), percentile(took, 99)
        front = psutil.Process(group.workers[kept].pid).memory_info().rss
        print(
            f"handed over after {handed_over:.1f} s, running after {settled:.1f} s, "
            f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms, front {front / 1e6:.0f} MB"
        )
        assert p50 < 0.1, (
            "while other tests keep both cores busy, a hundredth of the answers may take longer"
        )
        check_front(group, kept)
        group.check_nothing_ran_twice()

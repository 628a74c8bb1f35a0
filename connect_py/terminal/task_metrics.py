"""`TaskMetrics`: task activity, read from the Prometheus metrics of workers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

Key = tuple[str, str]  # connector and task number

# name suffixes that occur in every naming scheme that a worker supports
RATES: Final = ("_sink_record_read_rate", "_source_record_poll_rate")
LAGS: Final = (
    "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
    "kafka_consumer_fetch_manager_records_lag",
)
DEAD_LETTERS: Final = "connect_py_cdc_dlq_total"
LAST_COMMIT: Final = "connect_py_iceberg_last_commit_seconds"
WORKER_GROUP: Final = "connect_py_worker_group"
_NAMES: Final = (*LAGS, DEAD_LETTERS, LAST_COMMIT, WORKER_GROUP)
_LINE_PARTS: Final = (*(f"{suffix}{{" for suffix in RATES), *(f"{name}{{" for name in _NAMES))
_CONSUMER: Final = "connector-consumer-"


@dataclass(frozen=True, slots=True)
class TaskMetrics:
    """Metrics by connector and task. Keys without a reported value are missing."""

    records_per_second: Mapping[Key, float]
    lag: Mapping[Key, float]  # records between the position and the end of the log
    dead_letters: Mapping[Key, float]  # since the task started
    # time of each connector's last commit to any table, in epoch seconds
    last_commits: Mapping[str, float]

    @staticmethod
    def read(responses: Iterable[str], tasks: Iterable[Key]) -> TaskMetrics:
        """Parse the responses of all workers that run these tasks."""
        clients = {f"{_CONSUMER}{connector}-{task}": (connector, task) for connector, task in tasks}
        rates: dict[Key, float] = {}
        dead_letters: defaultdict[Key, float] = defaultdict(float)
        # keyed by partition, because a worker may report a partition with two naming schemes
        lags: dict[tuple[Key, str, str], float] = {}
        last_commits: dict[str, float] = {}
        for sample in (sample for response in responses for sample in _samples(response)):
            labels, value = sample.labels, sample.value
            key = (labels.get("connector", ""), labels.get("task", ""))
            if sample.name.endswith(RATES):
                rates[key] = value
            elif sample.name == DEAD_LETTERS:
                dead_letters[key] += value
            elif sample.name == LAST_COMMIT:
                last_commits[key[0]] = max(last_commits.get(key[0], 0.0), value)
            elif client := clients.get(labels.get("client_id") or labels.get("clientId", "")):
                lags[client, labels["topic"], labels["partition"]] = value
        lag: defaultdict[Key, float] = defaultdict(float)
        for (client, _, _), records in lags.items():
            lag[client] += records
        return TaskMetrics(rates, lag, dead_letters, last_commits)


def worker_group(response: str) -> str | None:
    """Return the group of the worker that returned the metrics, or None if it has no group."""
    samples = _samples(response)
    return next((each.labels["group"] for each in samples if each.name == WORKER_GROUP), None)


def _samples(response: str) -> Iterator[Sample]:
    """Yield only the samples that this module uses. A large worker reports thousands more."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in response.splitlines() if any(part in line for part in _LINE_PARTS)]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        yield from family.samples

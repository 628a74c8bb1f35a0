"""`Figures`: what the metrics of workers say about tasks, whichever names the workers give them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client.samples import Sample

Key = tuple[str, str]  # connector, task

# ends of names, the same in all families
RATES: Final = ("_sink_record_read_rate", "_source_record_poll_rate")
LAGS: Final = (
    "kafka_consumer_consumer_fetch_manager_metrics_records_lag",
    "kafka_consumer_fetch_manager_records_lag",
)
DEAD_LETTERS: Final = "connect_py_cdc_dlq_total"
LAST_COMMIT: Final = "connect_py_iceberg_last_commit_seconds"
WORKER_GROUP: Final = "connect_py_worker_group"
_NAMES: Final = (*LAGS, DEAD_LETTERS, LAST_COMMIT, WORKER_GROUP)
_WANTED: Final = (*(f"{end}{{" for end in RATES), *(f"{name}{{" for name in _NAMES))
_CONSUMER: Final = "connector-consumer-"


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures by connector and task; what no worker reports is missing."""

    records_per_second: Mapping[Key, float]
    lag: Mapping[Key, float]  # records between the position and the ends of the logs
    dead_letters: Mapping[Key, float]  # since the task started
    last_commits: Mapping[str, float]  # by connector, of all its tables: seconds since 1970

    @staticmethod
    def read(texts: Iterable[str], tasks: Iterable[Key]) -> Figures:
        """Read the metrics of all workers that run these tasks."""
        clients = {f"{_CONSUMER}{connector}-{task}": (connector, task) for connector, task in tasks}
        rates: dict[Key, float] = {}
        dead_letters: defaultdict[Key, float] = defaultdict(float)
        lags: dict[
            tuple[Key, str, str], float
        ] = {}  # a worker may report each under the names of two families
        last_commits: dict[str, float] = {}
        for sample in (sample for text in texts for sample in _samples(text)):
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
        return Figures(rates, lag, dead_letters, last_commits)


def worker_group(text: str) -> str | None:
    """The group of the worker with these metrics; None: it has none, or does not say."""
    return next(
        (sample.labels["group"] for sample in _samples(text) if sample.name == WORKER_GROUP), None
    )


def _samples(text: str) -> Iterator[Sample]:
    """The samples of these figures: a large worker has thousands of others."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in text.splitlines() if any(name in line for name in _WANTED)]
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        yield from family.samples

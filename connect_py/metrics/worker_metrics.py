"""`WorkerMetrics`: metrics of a worker's connectors, tasks, and startups.

Tasks send their metrics as reports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from connect_py.clock import Clock, SystemClock
from connect_py.metrics.client_statistics import ClientReport
from connect_py.metrics.samples import AnySample, OwnSample, Sample, TextSample
from connect_py.metrics.task_report import TaskReport
from connect_py.model import ConnectorTaskId, Waiting

WORKER: Final = "connect-worker-metrics"
TASK: Final = "connector-task-metrics"
CONNECTOR: Final = "connector-metrics"
WAITING: Final = "connect_py_waiting_seconds"
WAITING_DOC: Final = (
    "Seconds for which a running connector (no task label) or task has been waiting. Absent if "
    "it is not waiting."
)
STATES: Final = ("running", "paused", "failed", "unassigned", "destroyed", "restarting")
_SHARED: Final = (
    "running-ratio",
    "pause-ratio",
    "batch-size-",
    "offset-commit-avg",
    "offset-commit-max",
    "offset-commit-success",
    "offset-commit-failure",
)
_ERRORS: Final = ("total-", "deadletterqueue-", "last-error-")


@dataclass(slots=True)
class _Startups:
    """Startup counts of connectors or tasks."""

    attempts: int = 0
    successes: int = 0
    failures: int = 0

    def samples(self, kind: str) -> Iterator[Sample]:
        ended = self.successes + self.failures
        values = {
            "attempts-total": self.attempts,
            "success-total": self.successes,
            "success-percentage": self.successes / ended if ended else 0.0,
            "failure-total": self.failures,
            "failure-percentage": self.failures / ended if ended else 0.0,
        }
        for name, value in values.items():
            yield Sample(WORKER, f"{kind}-startup-{name}", value)


class WorkerMetrics:
    """Metrics of one worker. Thread-safe."""

    def __init__(
        self, describe: Callable[[str], Mapping[str, str]] | None = None, clock: Clock | None = None
    ) -> None:
        """Create the metrics.

        `describe` returns the class, type, and version of a connector on this worker, keyed by
        Kafka Connect's metric names.
        """
        self._describe = describe or (lambda _: {})
        self._lock = threading.Lock()
        self._connector_startups = _Startups()
        self._task_startups = _Startups()
        self._starting: set[str | ConnectorTaskId] = set()
        self._states: dict[str | ConnectorTaskId, str] = {}
        self._waits: dict[str | ConnectorTaskId, Waiting] = {}
        self._clock = clock or SystemClock()

    def _startups(self, item: str | ConnectorTaskId) -> _Startups:
        return (
            self._task_startups if isinstance(item, ConnectorTaskId) else self._connector_startups
        )

    def starting(self, item: str | ConnectorTaskId) -> None:
        """Record that a connector or task is about to start."""
        with self._lock:
            self._startups(item).attempts += 1
            self._starting.add(item)
            if self._states.get(item) != "restarting":
                self._states[item] = "unassigned"

    def became(self, item: str | ConnectorTaskId, state: str) -> None:
        """Record a new state, one of `STATES` or `stopped`.

        The first state after `starting` determines whether the start succeeded.
        """
        with self._lock:
            if item in self._starting:
                self._starting.discard(item)
                if state == "failed":
                    self._startups(item).failures += 1
                else:
                    self._startups(item).successes += 1
            self._states[item] = state
            if state in ("failed", "restarting"):
                self._waits.pop(item, None)

    def waits(self, item: str | ConnectorTaskId, waiting: Waiting | None) -> None:
        """Record why a connector or task is waiting, or None if it is no longer waiting."""
        with self._lock:
            if waiting is None:
                self._waits.pop(item, None)
            else:
                self._waits[item] = waiting

    def forget(self, item: str | ConnectorTaskId) -> None:
        """Remove a connector or task that no longer runs on this worker."""
        with self._lock:
            self._starting.discard(item)
            self._states.pop(item, None)
            self._waits.pop(item, None)

    def samples(
        self, reports: Mapping[ConnectorTaskId, TaskReport], connectors: Iterable[str]
    ) -> list[AnySample]:
        """Return the current values of all metrics."""
        with self._lock:
            states = dict(self._states)
            waits = dict(self._waits)
            samples: list[AnySample] = [
                *self._connector_startups.samples("connector"),
                *self._task_startups.samples("task"),
            ]
        names = sorted(connectors)
        samples.append(Sample(WORKER, "connector-count", len(names)))
        samples.append(Sample(WORKER, "task-count", len(reports)))
        for name in names:
            tags = {"connector": name}
            samples.append(TextSample(CONNECTOR, "status", states.get(name, "unassigned"), tags))
            samples.extend(
                TextSample(CONNECTOR, key, text, tags) for key, text in self._describe(name).items()
            )
        samples.extend(_task_counts(reports, states))
        for task, report in sorted(reports.items()):
            samples.extend(_task_samples(task, report, states.get(task, "unassigned")))
        samples.extend(self._waiting_samples(waits))
        return samples

    def _waiting_samples(
        self, waits: Mapping[str | ConnectorTaskId, Waiting]
    ) -> Iterator[OwnSample]:
        now = self._clock.time_ms()
        for item, waiting in waits.items():
            task = {"task": str(item.task)} if isinstance(item, ConnectorTaskId) else {}
            name = item.connector if isinstance(item, ConnectorTaskId) else item
            seconds = max(0.0, (now - waiting.since_ms) / 1000)
            yield OwnSample(
                WAITING, WAITING_DOC, seconds, {"connector": name, **task, "for": waiting.what}
            )


def _task_counts(
    reports: Mapping[ConnectorTaskId, TaskReport], states: Mapping[str | ConnectorTaskId, str]
) -> Iterator[Sample]:
    """Yield each connector's number of tasks on this worker, in total and by state."""
    for name in sorted({task.connector for task in reports}):
        task_states = [states.get(task, "unassigned") for task in reports if task.connector == name]
        tags = {"connector": name}
        yield Sample(WORKER, "connector-total-task-count", len(task_states), tags)
        for state in STATES:
            yield Sample(WORKER, f"connector-{state}-task-count", task_states.count(state), tags)


def _task_samples(task: ConnectorTaskId, report: TaskReport, state: str) -> Iterator[AnySample]:
    tags = {"connector": task.connector, "task": str(task.task)}
    yield TextSample(TASK, "status", state, tags)
    for name, text in report.attributes.items():
        yield TextSample(TASK, name, text, tags)
    for name, value in report.values.items():
        yield Sample(_group(name, report.kind), name, value, tags)
    for kind, alias, class_name, version in report.links:
        link = {**tags, kind: alias}
        yield TextSample(f"connector-{kind}-metrics", f"{kind}-class", class_name, link)
        yield TextSample(f"connector-{kind}-metrics", f"{kind}-version", version, link)
    for which, client in report.clients:
        yield from _client_samples(which, client)
    for metric in report.plugin:
        yield OwnSample(
            f"connect_py_{metric.name}", metric.doc, metric.value, {**tags, **dict(metric.labels)}
        )


def _group(name: str, kind: str) -> str:
    if name.startswith(_SHARED):
        return TASK
    return "task-error-metrics" if name.startswith(_ERRORS) else f"{kind}-task-metrics"


def _client_samples(which: str, report: ClientReport) -> Iterator[Sample]:
    domain = f"kafka.{which}"
    group = "consumer-fetch-manager-metrics" if which == "consumer" else "producer-metrics"
    tags = {"client-id": report.client_id}
    for name, value in report.values.items():
        yield Sample(group, name, value, tags, domain)
    for (topic, partition), lag in sorted(report.lag.items()):
        yield Sample(
            group, "records-lag", lag, {**tags, "topic": topic, "partition": str(partition)}, domain
        )

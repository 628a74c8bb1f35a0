"""Prometheus exposition format, with the metric names that Kafka Connect dashboards expect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from connect_py.metrics.samples import AnySample, OwnSample, Sample, TextSample

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
WORKER_GROUP: Final = "connect-worker-metrics"


class NameFamily(Enum):
    """Naming scheme for metrics. The values are the names used in the configuration."""

    # kafka_connect_<group>_<name>; string metrics are labels on the series kafka_connect_<group>
    CONFLUENT = "confluent"
    STRIMZI = "strimzi"  # as in the JMX exporter examples: without `connect-` and `-metrics`
    # like CONFLUENT, but the names of string metrics end with _info
    STRIMZI_REPORTER = "strimzi-reporter"


def prometheus_text(samples: Iterable[AnySample], families: Sequence[NameFamily]) -> bytes:
    """Return the samples in Prometheus exposition format.

    Do not call this function on an event loop. It takes milliseconds per hundred samples.
    """
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(list(samples), families))
    return generate_latest(registry)


class _Collector:
    """Prometheus collector that serves the samples of one scrape."""

    def __init__(self, samples: Sequence[AnySample], families: Sequence[NameFamily]) -> None:
        self._samples = samples
        self._families = families
        self._metrics: dict[str, Metric] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with all of its time series."""
        for sample in self._samples:
            if isinstance(sample, OwnSample):
                self._add(sample.name, sample.doc, sample.tags, sample.value)
            elif isinstance(sample, Sample):
                self._number(sample)
            else:
                self._text(sample)
        yield from self._metrics.values()

    def _number(self, sample: Sample) -> None:
        doc = f"{sample.name} of {sample.group}"
        for family in self._families:
            tags = sample.tags
            if family is NameFamily.CONFLUENT and sample.group == WORKER_GROUP and not tags:
                tags = {"connector": "aggregate"}
            for name in _spellings(f"{_prefix(family, sample)}_{_word(sample.name)}"):
                self._add(name, doc, _labels(family, tags), sample.value)

    def _text(self, sample: TextSample) -> None:
        doc = f"{sample.name} of {sample.group}, as a label"
        word = _word(sample.name)
        for family in self._families:
            prefix = _prefix(family, sample)
            name = {
                NameFamily.CONFLUENT: prefix,
                NameFamily.STRIMZI: f"{prefix}_{word}",
                NameFamily.STRIMZI_REPORTER: f"{prefix}_{word}_info",
            }[family]
            self._add(name, doc, {**_labels(family, sample.tags), word: sample.text}, 1.0)

    def _add(self, name: str, doc: str, labels: Mapping[str, str], value: float) -> None:
        from prometheus_client.core import Metric

        metric = self._metrics.get(name)
        if metric is None:
            # untyped, because the library appends `_total` to the names of counters
            metric = self._metrics[name] = Metric(name, doc, "untyped")
        if all(previous.labels != labels for previous in metric.samples[-1:]):
            metric.add_sample(name, dict(labels), value)


def _prefix(family: NameFamily, sample: Sample | TextSample) -> str:
    domain = sample.domain.replace(".", "_")
    if family is NameFamily.STRIMZI:
        group = sample.group.removeprefix("connect-").removesuffix("-metrics")
        if sample.domain != "kafka.connect":
            group = group.removeprefix("consumer-").removeprefix("producer-")
        return f"{domain}_{_word(group)}".removesuffix("_")
    return f"{domain}_{_word(sample.group)}"


def _labels(family: NameFamily, tags: Mapping[str, str]) -> dict[str, str]:
    if family is NameFamily.STRIMZI:
        return {
            "clientId" if key == "client-id" else _word(key): value for key, value in tags.items()
        }
    return {_word(key): value for key, value in tags.items()}


def _word(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _spellings(name: str) -> tuple[str, ...]:
    """Return a name with and without `_total`.

    Newer exporters drop the suffix and older exporters retain it, so dashboards may use either
    name.
    """
    return (name, name.removesuffix("_total")) if name.endswith("_total") else (name,)

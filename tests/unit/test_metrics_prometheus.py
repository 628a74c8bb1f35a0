"""Content of `/metrics`, and the names of metrics."""

from __future__ import annotations

import json
import re

import pytest

from connect_py.metrics.client_statistics import ClientStatistics
from connect_py.metrics.plugin_metrics import TaskPluginMetrics
from connect_py.metrics.prometheus_text import NameFamily, prometheus_text
from connect_py.metrics.sampled import SampledStat, StateRatios, Window
from connect_py.metrics.samples import OwnSample, Sample, TextSample
from connect_py.metrics.sink_metrics import SinkMetrics
from connect_py.metrics.source_metrics import SourceMetrics
from connect_py.metrics.task_report import TaskReport
from connect_py.metrics.worker_metrics import WorkerMetrics
from connect_py.model import ConnectorTaskId
from connect_py.testing import FakeClock

TASK = ConnectorTaskId("orders", 0)
SINK_NAMES = [
    "running-ratio",
    "pause-ratio",
    "batch-size-avg",
    "batch-size-max",
    "offset-commit-avg-time-ms",
    "offset-commit-max-time-ms",
    "offset-commit-success-percentage",
    "offset-commit-failure-percentage",
    "sink-record-read-rate",
    "sink-record-read-total",
    "sink-record-send-rate",
    "sink-record-send-total",
    "sink-record-active-count",
    "sink-record-active-count-max",
    "sink-record-active-count-avg",
    "partition-count",
    "put-batch-avg-time-ms",
    "put-batch-max-time-ms",
    "offset-commit-seq-no",
    "offset-commit-completion-rate",
    "offset-commit-completion-total",
    "offset-commit-skip-rate",
    "offset-commit-skip-total",
]
SOURCE_NAMES = [
    "source-record-poll-rate",
    "source-record-poll-total",
    "source-record-write-rate",
    "source-record-write-total",
    "source-record-active-count",
    "source-record-active-count-max",
    "source-record-active-count-avg",
    "poll-batch-avg-time-ms",
    "poll-batch-max-time-ms",
    "transaction-size-min",
    "transaction-size-avg",
    "transaction-size-max",
]


def lines(text: bytes) -> set[str]:
    return {line for line in text.decode().splitlines() if not line.startswith("#")}


def test_the_window_forgets_what_is_older_than_its_samples() -> None:
    clock = FakeClock()
    stat = SampledStat(clock, Window(30.0, 2))
    assert (stat.avg(), stat.max(), stat.min(), stat.rate()) == (0, 0, 0, 0)
    stat.record(10)
    clock.now += 31
    stat.record(20)
    stat.record(60)
    assert (stat.avg(), stat.max(), stat.min()) == (30, 60, 10)
    assert stat.rate() == 90 / 31
    clock.now += 35
    assert (stat.avg(), stat.max()) == (40, 60)
    clock.now += 100
    assert (stat.avg(), stat.max(), stat.rate()) == (0, 0, 0)


def test_ratios_are_shares_of_a_task_s_life() -> None:
    clock = FakeClock()
    state = StateRatios(clock)
    state.change("running")
    clock.now += 30
    state.change("paused")
    clock.now += 10
    assert (state.ratio("running"), state.ratio("paused"), state.ratio("failed")) == (
        0.75,
        0.25,
        0.0,
    )


def test_tasks_measure_everything_that_java_s_do() -> None:
    sink, source = SinkMetrics(FakeClock(), Window()), SourceMetrics(FakeClock(), Window())
    assert list(sink.values()) == SINK_NAMES
    assert list(source.values()) == SINK_NAMES[:8] + SOURCE_NAMES
    sink.poll(100)
    sink.put(90, 0.5)
    assert sink.values()["sink-record-active-count"] == 100
    sink.completed(0.25, 100)
    sink.skipped()
    values = sink.values()
    assert values["sink-record-active-count"] == 0
    assert values["put-batch-max-time-ms"] == 500
    assert values["offset-commit-success-percentage"] == 1
    assert values["offset-commit-skip-total"] == 1


NUMBERS = [
    Sample("connect-worker-metrics", "task-count", 3),
    Sample("connect-worker-metrics", "connector-failed-task-count", 1, {"connector": "orders"}),
    Sample("connect-worker-rebalance-metrics", "completed-rebalances-total", 2),
    Sample("sink-task-metrics", "sink-record-read-rate", 1.5, {"connector": "orders", "task": "0"}),
    Sample(
        "consumer-fetch-manager-metrics",
        "records-lag",
        7,
        {"client-id": "c", "topic": "t", "partition": "1"},
        "kafka.consumer",
    ),
    TextSample("connector-metrics", "status", "running", {"connector": "orders"}),
    TextSample("connector-metrics", "connector-type", "sink", {"connector": "orders"}),
    TextSample("connector-task-metrics", "status", "failed", {"connector": "orders", "task": "0"}),
    TextSample("app-info", "version", "4.1.1", {"client-id": "connect"}),
    OwnSample(
        "connect_py_iceberg_staged_cycles", "Cycles.", 2, {"connector": "orders", "task": "0"}
    ),
]


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (
            NameFamily.CONFLUENT,
            """kafka_connect_connect_worker_metrics_task_count{connector="aggregate"} 3.0
kafka_connect_connect_worker_metrics_connector_failed_task_count{connector="orders"} 1.0
kafka_connect_connect_worker_rebalance_metrics_completed_rebalances_total 2.0
kafka_connect_connect_worker_rebalance_metrics_completed_rebalances 2.0
kafka_connect_sink_task_metrics_sink_record_read_rate{connector="orders",task="0"} 1.5
kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="c",partition="1",topic="t"} 7.0
kafka_connect_connector_metrics{connector="orders",status="running"} 1.0
kafka_connect_connector_metrics{connector="orders",connector_type="sink"} 1.0
kafka_connect_connector_task_metrics{connector="orders",status="failed",task="0"} 1.0
kafka_connect_app_info{client_id="connect",version="4.1.1"} 1.0""",
        ),
        (
            NameFamily.STRIMZI,
            """kafka_connect_worker_task_count 3.0
kafka_connect_worker_connector_failed_task_count{connector="orders"} 1.0
kafka_connect_worker_rebalance_completed_rebalances_total 2.0
kafka_connect_worker_rebalance_completed_rebalances 2.0
kafka_connect_sink_task_sink_record_read_rate{connector="orders",task="0"} 1.5
kafka_consumer_fetch_manager_records_lag{clientId="c",partition="1",topic="t"} 7.0
kafka_connect_connector_status{connector="orders",status="running"} 1.0
kafka_connect_connector_connector_type{connector="orders",connector_type="sink"} 1.0
kafka_connect_connector_task_status{connector="orders",status="failed",task="0"} 1.0
kafka_connect_app_info_version{clientId="connect",version="4.1.1"} 1.0""",
        ),
        (
            NameFamily.STRIMZI_REPORTER,
            """kafka_connect_connect_worker_metrics_task_count 3.0
kafka_connect_connect_worker_metrics_connector_failed_task_count{connector="orders"} 1.0
kafka_connect_connect_worker_rebalance_metrics_completed_rebalances_total 2.0
kafka_connect_connect_worker_rebalance_metrics_completed_rebalances 2.0
kafka_connect_sink_task_metrics_sink_record_read_rate{connector="orders",task="0"} 1.5
kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="c",partition="1",topic="t"} 7.0
kafka_connect_connector_metrics_status_info{connector="orders",status="running"} 1.0
kafka_connect_connector_metrics_connector_type_info{connector="orders",connector_type="sink"} 1.0
kafka_connect_connector_task_metrics_status_info{connector="orders",status="failed",task="0"} 1.0
kafka_connect_app_info_version_info{client_id="connect",version="4.1.1"} 1.0""",
        ),
    ],
)
def test_names_are_those_that_dashboards_use(family: NameFamily, expected: str) -> None:
    own = 'connect_py_iceberg_staged_cycles{connector="orders",task="0"} 2.0'
    text = prometheus_text(NUMBERS, [family])
    assert lines(text) == {*expected.splitlines(), own}
    assert set(re.findall(r"# TYPE \S+ (\S+)", text.decode())) == {"untyped"}


def test_several_name_families_are_served_without_duplicate_series() -> None:
    every = prometheus_text(NUMBERS, list(NameFamily)).decode().splitlines()
    series = [line.rpartition(" ")[0] for line in every if not line.startswith("#")]
    assert len(series) == len(set(series))
    apart = {line for family in NameFamily for line in lines(prometheus_text(NUMBERS, [family]))}
    assert apart == {line for line in every if not line.startswith("#")}


def test_worker_counts_starts_and_states_and_forgets_removed_connectors() -> None:
    metrics = WorkerMetrics(lambda name: {"connector-type": "sink"})
    metrics.starting("orders")
    metrics.became("orders", "running")
    for number, state in enumerate(["running", "failed", "paused"]):
        metrics.starting(ConnectorTaskId("orders", number))
        metrics.became(ConnectorTaskId("orders", number), state)
    tasks = [ConnectorTaskId("orders", number) for number in range(3)]
    text = prometheus_text(
        metrics.samples(dict.fromkeys(tasks, TaskReport()), ["orders"]), [NameFamily.STRIMZI]
    )
    assert lines(text) >= {
        "kafka_connect_worker_connector_count 1.0",
        "kafka_connect_worker_task_count 3.0",
        "kafka_connect_worker_connector_startup_success_total 1.0",
        "kafka_connect_worker_task_startup_attempts_total 3.0",
        "kafka_connect_worker_task_startup_failure_total 1.0",
        'kafka_connect_worker_connector_total_task_count{connector="orders"} 3.0',
        'kafka_connect_worker_connector_failed_task_count{connector="orders"} 1.0',
        'kafka_connect_worker_connector_paused_task_count{connector="orders"} 1.0',
        'kafka_connect_worker_connector_destroyed_task_count{connector="orders"} 0.0',
        'kafka_connect_connector_task_status{connector="orders",status="failed",task="1"} 1.0',
        'kafka_connect_connector_connector_type{connector="orders",connector_type="sink"} 1.0',
    }
    metrics.forget("orders")
    for task in tasks:
        metrics.forget(task)
    left = prometheus_text(metrics.samples({}, []), [NameFamily.STRIMZI])
    assert not any("orders" in line for line in lines(left))


@pytest.mark.parametrize(
    ("states", "cut_off"),
    [
        (["INIT", "UP"], False),
        (["TRY_CONNECT", "UPDATE"], False),
        (["INIT", "TRY_CONNECT"], True),
        (["DOWN"], True),
    ],
)
def test_a_client_is_cut_off_when_no_broker_is_connected(states: list[str], cut_off: bool) -> None:
    statistics = ClientStatistics("consumer")
    brokers = {f"{place}:9092/{place}": {"state": state} for place, state in enumerate(states)}
    statistics.take(json.dumps({"client_id": "c", "ts": 1, "brokers": brokers}))
    assert statistics.cut_off is cut_off


def test_a_task_s_report_has_all_its_series() -> None:
    statistics = ClientStatistics("consumer")
    partition = {"partition": 0, "fetch_state": "active", "hi_offset": 50, "ls_offset": 50}
    for at, read in ((40, 100), (50, 300)):
        topic = {
            "topic": "t",
            "partitions": {"0": partition | {"app_offset": at - 3}, "-1": {"partition": -1}},
        }
        statistics.take(
            json.dumps(
                {
                    "client_id": "connector-consumer-orders-0",
                    "ts": read * 10_000,
                    "rxmsgs": read,
                    "rxmsg_bytes": 9,
                    "topics": {"t": topic},
                }
            )
        )
    assert statistics.report is not None
    assert statistics.report.lag == {("t", 0): 3}
    assert statistics.report.values["records-consumed-rate"] == 100
    plugin = TaskPluginMetrics()
    plugin.counter("iceberg_commits_total", "Commits.", {"engine": "delta"}).increment(2)
    assert plugin.counter("iceberg_commits_total", "Commits.", {"engine": "delta"}).value == 2
    values = {"running-ratio": 1.0, "sink-record-read-total": 5, "total-record-errors": 1}
    links = [("transform", "unwrap", "x.Unwrap", "3.0")]
    report = TaskReport(
        "sink",
        values,
        {"task-class": "x.Task"},
        links,
        [("consumer", statistics.report)],
        plugin.values(),
    )
    text = prometheus_text(WorkerMetrics().samples({TASK: report}, []), [NameFamily.CONFLUENT])
    assert lines(text) >= {
        'kafka_connect_connector_task_metrics_running_ratio{connector="orders",task="0"} 1.0',
        'kafka_connect_sink_task_metrics_sink_record_read_total{connector="orders",task="0"} 5.0',
        'kafka_connect_task_error_metrics_total_record_errors{connector="orders",task="0"} 1.0',
        'kafka_connect_connector_task_metrics{connector="orders",task="0",task_class="x.Task"} 1.0',
        'kafka_connect_connector_transform_metrics{connector="orders",task="0",transform="unwrap",'
        'transform_class="x.Unwrap"} 1.0',
        'kafka_consumer_consumer_fetch_manager_metrics_records_lag_max{client_id="connector-consumer-orders-0"} '  # noqa: E501 - one literal
        "3.0",
        'connect_py_iceberg_commits_total{connector="orders",engine="delta",task="0"} 2.0',
    }


@pytest.mark.parametrize("name", ["Commits", "commits-total", "1st", "", "_x"])
def test_names_of_measurements_that_prometheus_would_not_take_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="invalid name of a metric"):
        TaskPluginMetrics().gauge(name, "x")
    with pytest.raises(ValueError, match="ends with _total"):
        TaskPluginMetrics().counter("commits", "x")
    with pytest.raises(ValueError, match="invalid name of a metric"):
        TaskPluginMetrics().gauge("x", "x", {"connector": "mine"})

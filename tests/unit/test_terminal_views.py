"""Output of `connect-py top`, `status`, and `connectors` for the responses of a worker."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from connect_py.terminal.connector_view import ConnectorView, first_line
from connect_py.terminal.rest_client import RestClient, WorkerUnreachableError
from connect_py.terminal.task_metrics import TaskMetrics
from connect_py.terminal.top_view import top_frame

NOW = 1_800_000_000.0
LAG = "kafka_consumer_consumer_fetch_manager_metrics_records_lag"
METRICS = """\
# HELP kafka_connect_sink_task_metrics_sink_record_read_rate sink-record-read-rate
# TYPE kafka_connect_sink_task_metrics_sink_record_read_rate untyped
kafka_connect_sink_task_metrics_sink_record_read_rate{connector="orders",task="0"} 12345.6
kafka_connect_sink_task_sink_record_read_rate{connector="orders",task="0"} 12345.6
kafka_connect_sink_task_metrics_sink_record_read_rate{connector="orders",task="1"} 3.25
LAG{client_id="connector-consumer-orders-0",partition="0",topic="t"} 40.0
kafka_consumer_fetch_manager_records_lag{clientId="connector-consumer-orders-0",partition="0",topic="t"} 40.0
LAG{client_id="connector-consumer-orders-0",partition="1",topic="t"} 2.0
kafka_consumer_consumer_fetch_manager_metrics_records_lag{client_id="someone",partition="1",topic="t"} 9.0
connect_py_cdc_dlq_total{connector="orders",task="0",topic="t",reason="unrouted"} 3.0
connect_py_cdc_dlq_total{connector="orders",task="0",topic="t",reason="does_not_fit"} 4.0
connect_py_iceberg_last_commit_seconds{connector="orders",task="0",table="a"} 1799999000.0
connect_py_iceberg_last_commit_seconds{connector="orders",task="0",table="b"} 1799999988.0
""".replace("LAG", LAG)  # noqa: E501 - a table or a literal is wider
TRACE = "org.apache.kafka.connect.errors.ConnectException: no disk\n\tat somewhere\n"
WAITING = {
    "for": "table db.t",
    "since": "2026-08-22T10:00:00.123Z",
    "reason": "the catalog: Connection refused",
}
ANSWER: dict[str, Any] = {
    "orders": {
        "info": {"config": {"connector.class": "Sink"}, "type": "sink"},
        "status": {
            "connector": {"state": "RUNNING", "worker_id": "h1:8083"},
            "tasks": [
                {"id": 0, "state": "RUNNING", "worker_id": "h1:8083", "waiting": WAITING},
                {"id": 1, "state": "FAILED", "worker_id": "h2:8083", "trace": TRACE},
            ],
            "type": "sink",
        },
    },
    "a-connector-with-a-name-that-is-longer-than-its-column-on-eighty-columns": {
        "info": {"config": {}, "type": "source"},
        "status": {
            "connector": {"state": "PAUSED", "worker_id": "h1:8083"},
            "tasks": [],
            "type": "source",
        },
    },
}


class AnsweringWorker(RestClient):
    """One worker of two; the other one does not answer."""

    def __init__(self) -> None:
        pass

    @property
    def url(self) -> str:
        return "http://h1:8083"

    def connectors(self) -> dict[str, Any]:
        return ANSWER

    def metrics(self, worker_id: str | None = None) -> str:
        if worker_id == "h2:8083":
            raise WorkerUnreachableError("no worker responds at http://h2:8083")
        return METRICS


def test_metrics_are_the_same_under_the_names_of_every_family() -> None:
    metrics = TaskMetrics.read([METRICS], [("orders", "0"), ("orders", "1")])
    assert metrics.records_per_second == {("orders", "0"): 12345.6, ("orders", "1"): 3.25}
    assert metrics.lag == {("orders", "0"): 42.0}  # of both partitions, each once
    assert metrics.dead_letters == {("orders", "0"): 7.0}
    assert metrics.last_commits == {"orders": 1799999988.0}


def test_a_frame_of_top_fits_eighty_columns_whatever_it_shows() -> None:
    output = io.StringIO()
    Console(file=output, width=80).print(top_frame(AnsweringWorker(), NOW))
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[1:] if "task" in line and ", " not in line] == [
        ["task", "0", "RUNNING", "12.3k", "42", "7"],
        ["task", "1", "FAILED", "3.2", "-", "0"],
    ]
    assert lines[3].split() == ["orders", "RUNNING", "12.3k", "42", "12", "s", "7"]
    assert lines[2].startswith("a-connector-with-a-name-")
    assert "…" in lines[2]
    assert "orders, task 1: ConnectException: no disk" in lines
    assert "no worker responds at http://h2:8083" in lines


def test_failures_are_shown_before_what_waits() -> None:
    paused, orders = ConnectorView.all_of(ANSWER)
    assert (paused.runs, orders.runs) == (True, False)
    assert orders.remark() == "task 1: ConnectException: no disk"
    assert orders.tasks[0].remark() == "waits for table db.t: the catalog: Connection refused"
    assert orders.tasks_by_state() == "1 FAILED, 1 RUNNING"


@pytest.mark.parametrize(
    ("trace", "line"),
    [
        ("a.b.C: text: more\n  at x", "C: text: more"),
        ("\n  plain text, see a.b: c", "plain text, see a.b: c"),
        ("ValueError: 1", "ValueError: 1"),
        ("", ""),
    ],
)
def test_the_first_line_of_a_trace_names_its_class_shortly(trace: str, line: str) -> None:
    assert first_line(trace) == line

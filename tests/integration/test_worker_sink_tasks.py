"""Sink tasks in their processes, against a real broker: pause, rebalance, redelivery, dead letters,
death."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from recorded_sink import (
    DEADLINE_SECONDS,
    News,
    Sink,
    dead_letters,
    news,
    registry,
    sink,
    until,
    worker,
    worker_props,
)

from connect_py.embedded.broker import KafkaBroker
from connect_py.log_context import TextFormatter
from connect_py.model import TargetState
from connect_py.plugins.plugin_registry import PluginRegistry
from connect_py.worker.worker import Worker

__all__ = ["news", "registry", "sink", "worker"]  # fixtures


def test_records_reach_the_sink_and_their_offsets_the_group(sink: Sink, news: News) -> None:
    sink.create_topic()
    sink.produce(["a", "b", "c"])
    task = sink.start(mark="m1")
    news.wait_for("task_startup", task)
    until("three values", lambda: sink.values() == ["a", "b", "c"])
    until("a commit", lambda: sink.committed() == {0: (3, "m1")})
    sink.stop(task)
    news.wait_for("task_shutdown", task)
    assert ("topic_used", task, sink.topic) in news.items
    order = [e["event"] for e in sink.events()]
    assert order[0] == "start"
    assert order[1] == "open"
    assert order[-3:] == ["pre_commit", "close", "stop"]
    assert sink.events("start")[0]["number"] == 7
    assert sink.events("start")[0]["group"] == f"connect-{sink.name}"


def test_log_lines_of_task_process_arrive_with_their_context(
    sink: Sink, news: News, caplog: pytest.LogCaptureFixture
) -> None:
    sink.create_topic()
    with caplog.at_level(logging.INFO):
        task = sink.start()
        until("the line", lambda: any("subscribing to" in r.getMessage() for r in caplog.records))
    (line,) = [r for r in caplog.records if "subscribing to" in r.getMessage()]
    text = TextFormatter().format(line)
    message = f" INFO [{sink.name}|task-0] subscribing to {sink.topic} "
    assert f"{message}(connect_py.task.sink.subscription:" in text
    assert line.__dict__["action"] == "subscribe"
    sink.stop(task)


def test_an_unchanged_offset_with_new_metadata_is_committed_too(sink: Sink, news: News) -> None:
    sink.create_topic()
    sink.produce(["a"])
    task = sink.start(mark="old")
    until("a commit", lambda: sink.committed() == {0: (1, "old")})
    sink.stop(task)
    sink.start(mark="new")
    until("the same offset with the new mark", lambda: sink.committed() == {0: (1, "new")})
    assert sink.values() == ["a"]


def test_a_paused_task_receives_nothing_until_it_is_resumed(
    sink: Sink, worker: Worker, news: News
) -> None:
    sink.create_topic()
    sink.produce(["a"])
    task = sink.start()
    until("a", lambda: sink.values() == ["a"])
    worker.set_target_state(sink.name, TargetState.PAUSED)
    news.wait_for("task_pause", task)
    sink.produce(["b"])
    until("the commit that a pause asks for", lambda: sink.committed() == {0: (1, "")})
    time.sleep(1.0)
    assert sink.values() == ["a"]
    worker.set_target_state(sink.name, TargetState.STARTED)
    news.wait_for("task_resume", task)
    until("b", lambda: sink.values() == ["a", "b"])


def test_a_task_whose_target_is_paused_waits_before_it_starts(
    sink: Sink, worker: Worker, news: News
) -> None:
    sink.create_topic()
    task = sink.start(target=TargetState.PAUSED)
    news.wait_for("task_pause", task)
    assert sink.events() == []
    worker.set_target_state(sink.name, TargetState.STARTED)
    news.wait_for("task_resume", task)
    until("the start", lambda: bool(sink.events()))


@pytest.mark.parametrize("assignor", ["RangeAssignor", "CooperativeStickyAssignor"])
def test_partitions_move_to_a_second_task_without_loss_or_repetition(
    sink: Sink, news: News, assignor: str
) -> None:
    sink.config["consumer.override.partition.assignment.strategy"] = (
        f"org.apache.kafka.clients.consumer.{assignor}"
    )
    sink.create_topic(2)
    for partition in (0, 1):
        sink.produce([f"{partition}-{n}" for n in range(50)], partition)
    first = sink.start(0)
    until("all of the first half", lambda: len(sink.values()) == 100)
    second = sink.start(1)
    until("each owns one", lambda: sink.owned() in ({0: {0}, 1: {1}}, {0: {1}, 1: {0}}))
    for partition in (0, 1):
        sink.produce([f"{partition}-{n}" for n in range(50, 100)], partition)
    until("everything", lambda: len(sink.values()) >= 200)
    sink.stop(first, second)
    assert sorted(sink.values()) == sorted(f"{p}-{n}" for p in (0, 1) for n in range(100))
    assert sink.committed() == {0: (100, ""), 1: (100, "")}


def test_retriable_error_redelivers_same_rows_before_the_later_ones(sink: Sink, news: News) -> None:
    sink.create_topic()
    sink.switch("retry")
    sink.produce(["a", "b"])
    task = sink.start()
    until("two attempts", lambda: len(sink.events("retry")) >= 2)
    sink.produce(["c"])
    attempts = sink.events("retry")
    assert all(e["rows"] == attempts[0]["rows"] for e in attempts)
    assert sink.committed().get(0, (0, ""))[0] <= 0
    sink.switch("retry", False)
    until("all", lambda: sink.values() == ["a", "b", "c"])
    sink.stop(task)
    assert sink.committed() == {0: (3, "")}


@pytest.mark.parametrize("converter", ["test.TextConverter", "test.TextColumnConverter"])
def test_bad_records_reach_dead_letter_topic_byte_for_byte(
    sink: Sink, news: News, converter: str
) -> None:
    sink.create_topic()
    sink.produce(["a"])
    sink.produce(["bad"], key="k", headers=[("h", b"1")], timestamp=1_700_000_000_000)
    sink.produce(["report", "b"])
    queue = f"{sink.name}-dlq"
    task = sink.start(
        **{
            "value.converter": converter,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": queue,
            "errors.deadletterqueue.topic.replication.factor": "1",
            "errors.deadletterqueue.context.headers.enable": "true",
        }
    )
    converted, reported = dead_letters(sink, queue, 2)
    assert (converted.key(), converted.value()) == (b"k", b"bad")
    assert converted.timestamp()[1] == 1_700_000_000_000
    headers = converted.headers()
    assert headers[0] == ("h", b"1")
    told = {name.removeprefix("__connect.errors."): value for name, value in headers[1:]}
    trace = told.pop("exception.stacktrace")
    assert trace.startswith(b"org.apache.kafka.connect.errors.DataException: bad text\n")
    assert told == {
        "topic": sink.topic.encode(),
        "partition": b"0",
        "offset": b"1",
        "connector.name": sink.name.encode(),
        "task.id": b"0",
        "stage": b"VALUE_CONVERTER",
        "class.name": converter.encode(),
        "exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "exception.message": b"bad text",
    }
    assert dict(reported.headers())["__connect.errors.stage"] == b"TASK_PUT"
    until("the others, and the commit behind them", lambda: sink.committed() == {0: (4, "")})
    assert [value for value in sink.values() if value != "report"] == ["a", "b"]
    sink.stop(task)


def test_bad_record_without_tolerance_fails_task_and_stays_uncommitted(
    sink: Sink, news: News
) -> None:
    sink.create_topic()
    sink.produce(["a"])
    task = sink.start(mark="m")
    until("a commit", lambda: sink.committed() == {0: (1, "m")})
    sink.produce(["b", "bad", "c"])
    _, _, trace = news.wait_for("task_failure", task)
    assert "Tolerance exceeded in error handler" in trace
    assert "bad text" in trace
    assert sink.values() in (["a"], ["a", "b"])
    assert sink.committed()[0][0] <= 2
    assert sink.events()[-1]["event"] == "stop"
    assert task in sink.worker.running_tasks()


def test_converter_retries_unavailable_server_while_task_keeps_its_partitions(
    sink: Sink, news: News
) -> None:
    sink.create_topic()
    sink.produce(["a", "away", "b"])
    task = sink.start(
        **{
            "value.converter": "test.TextConverter",
            "value.converter.away.until": str(time.time() + 4),
            "errors.retry.timeout": "-1",
            "errors.retry.delay.max.ms": "500",
        }
    )
    until("all three", lambda: sink.values() == ["a", "away", "b"])
    assert len(sink.events("open")) == 1
    sink.stop(task)


def test_stop_during_retry_leaves_records_for_the_next_start(sink: Sink, news: News) -> None:
    sink.create_topic()
    sink.produce(["a", "away"])
    task = sink.start(
        **{
            "value.converter": "test.TextConverter",
            "value.converter.away.until": str(time.time() + 3600),
            "errors.retry.timeout": "-1",
            "errors.tolerance": "all",
        }
    )
    until("the task reads", lambda: ("topic_used", task, sink.topic) in news.items)
    sink.stop(task)
    news.wait_for("task_shutdown", task)
    assert sink.values() == []
    assert sink.committed().get(0, (0, ""))[0] <= 0


def test_put_error_fails_the_task_with_cause_in_trace(sink: Sink, news: News) -> None:
    sink.create_topic()
    sink.produce(["fail"])
    task = sink.start()
    _, _, trace = news.wait_for("task_failure", task)
    assert "Exiting WorkerSinkTask due to unrecoverable exception." in trace
    assert "put fails as asked" in trace


def test_a_killed_process_is_a_failed_task_that_says_so(sink: Sink, news: News) -> None:
    sink.create_topic()
    task = sink.start()
    until("its pid", lambda: sink.events("start"))
    os.kill(sink.events("start")[0]["pid"], signal.SIGKILL)
    _, _, trace = news.wait_for("task_failure", task)
    assert "killed by SIGKILL" in trace
    assert trace.startswith("org.apache.kafka.connect.errors.ConnectException: ")


def test_silent_task_process_is_killed_and_its_task_fails(
    kafka_broker: KafkaBroker,
    registry: PluginRegistry,
    news: News,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    worker = Worker(
        {**worker_props(kafka_broker), "session.timeout.ms": "2500"},
        plugins=registry,
        listener=news,
    )
    worker.start()
    try:
        sink = Sink(worker, news, kafka_broker, f"{topic_prefix}s", tmp_path)
        sink.create_topic()
        task = sink.start()
        news.wait_for("task_startup", task)
        pid = sink.events("start")[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        assert "was killed after 2 s without a heartbeat" in news.wait_for("task_failure", task)[2]
        until("the process is gone", lambda: not psutil.pid_exists(pid))
    finally:
        worker.stop()


def test_a_task_that_hangs_is_cancelled_and_commits_nothing(
    kafka_broker: KafkaBroker,
    registry: PluginRegistry,
    news: News,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    props = {**worker_props(kafka_broker), "task.shutdown.graceful.timeout.ms": "700"}
    worker = Worker(props, plugins=registry, listener=news)
    worker.start()
    try:
        sink = Sink(worker, news, kafka_broker, f"{topic_prefix}s", tmp_path)
        sink.create_topic()
        sink.switch("hang")
        sink.produce(["a"])
        task = sink.start()
        until("the task reads", lambda: ("topic_used", task, sink.topic) in news.items)
        pid = sink.events("start")[0]["pid"]
        sink.stop(task)
        news.wait_for("task_shutdown", task)
        until("the process is gone", lambda: not psutil.pid_exists(pid))
        assert sink.committed() == {}
        assert not any(item[0] == "task_failure" for item in news.items)
    finally:
        worker.stop()


def test_a_stopped_worker_leaves_no_process_behind(
    kafka_broker: KafkaBroker,
    registry: PluginRegistry,
    news: News,
    topic_prefix: str,
    tmp_path: Path,
) -> None:
    worker = Worker(worker_props(kafka_broker), plugins=registry, listener=news)
    worker.start()
    sink = Sink(worker, news, kafka_broker, f"{topic_prefix}s", tmp_path)
    sink.create_topic(2)
    worker.start_connector(sink.name, sink.config, TargetState.STARTED).result(DEADLINE_SECONDS)
    tasks = [sink.start(0), sink.start(1)]
    for task in tasks:
        news.wait_for("task_startup", task)
    pids = [e["pid"] for e in sink.events("start")]
    worker.stop()
    assert len(pids) == 2
    until("both processes are gone", lambda: not any(map(psutil.pid_exists, pids)), 5.0)
    for task in tasks:
        news.wait_for("task_shutdown", task)
    news.wait_for("connector_shutdown", sink.name)


def test_a_failed_task_starts_again_when_asked(sink: Sink, news: News) -> None:
    sink.create_topic()
    sink.switch("fail-start")
    task = sink.start()
    _, _, trace = news.wait_for("task_failure", task)
    assert "start fails as asked" in trace
    sink.switch("fail-start", False)
    sink.start()
    news.wait_for("task_startup", task)

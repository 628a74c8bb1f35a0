from __future__ import annotations

import os
from pathlib import Path

import pytest

import connectors.file_stream.file_stream_sink as sink_module
import connectors.file_stream.file_stream_source as source_module
from connect_py.api.errors import ConfigError, ConnectError
from connect_py.api.record import TopicPartition
from connect_py.api.schema import OPTIONAL_STRING, STRING, Struct, struct
from connect_py.api.task import ExactlyOnceSupport
from connect_py.java.strings import java_text
from connect_py.testing import FakeSinkTaskContext, FakeSourceTaskContext, sink_record
from connectors.file_stream.file_stream_sink import FileStreamSinkConnector, FileStreamSinkTask
from connectors.file_stream.file_stream_source import (
    FileStreamSourceConnector,
    FileStreamSourceTask,
)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "IDLE_SECONDS", 0.0)


def source(
    path: Path, context: FakeSourceTaskContext | None = None, **more: str
) -> FileStreamSourceTask:
    task = FileStreamSourceTask()
    task.initialize(context or FakeSourceTaskContext())
    task.start({"file": str(path), "topic": "lines", **more})
    return task


def lines(task: FileStreamSourceTask) -> list[tuple[str, int]]:
    return [(r.value, r.source_offset["position"]) for r in task.poll()]


def test_complete_line_becomes_a_record_with_its_end_position(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\ntwo\r\n\rfour\nhalf")
    task = source(path)
    assert lines(task) == [("one", 4), ("two", 9), ("", 10), ("four", 15)]
    assert lines(task) == []
    with path.open("ab") as more:
        more.write(" + ü\n".encode())
    assert lines(task) == [("half + ü", 25)]
    task.stop()


def test_record_names_its_file_and_has_text_but_no_key(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\n")
    task = source(path)
    (record,) = task.poll()
    assert (record.topic, record.key_schema, record.key, record.value_schema) == (
        "lines",
        None,
        None,
        STRING,
    )
    assert record.source_partition == {"filename": str(path)}
    task.stop()


def test_a_poll_takes_no_more_than_a_batch(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\nb\nc\n")
    task = source(path, **{"batch.size": "2"})
    assert [value for value, _ in lines(task)] == ["a", "b"]
    assert [value for value, _ in lines(task)] == ["c"]
    task.stop()


def test_reading_goes_on_behind_the_stored_position(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\ntwo\n")
    context = FakeSourceTaskContext()
    context.offset_storage_reader.store({"filename": str(path)}, {"position": 4})
    task = source(path, context)
    assert lines(task) == [("two", 8)]
    task.stop()


def test_a_stored_position_that_is_no_number_fails_the_task(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\n")
    context = FakeSourceTaskContext()
    context.offset_storage_reader.store({"filename": str(path)}, {"position": "4"})
    task = source(path, context)
    with pytest.raises(ConnectError, match="Offset position is the incorrect type"):
        task.poll()
    task.stop()


def test_a_file_that_comes_later_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "in"
    task = source(path)
    assert lines(task) == []
    path.write_bytes(b"one\n")
    assert lines(task) == [("one", 4)]
    task.stop()


def test_values_are_appended_as_java_prints_them(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("before\n")
    task = FileStreamSinkTask()
    task.initialize(FakeSinkTaskContext())
    task.start({"file": str(path)})
    schema = struct(("a", STRING), ("b", OPTIONAL_STRING))
    for value in ("text", None, {"a": [1, True, None], "b": 1.0}, Struct.of(schema, a="x")):
        task.put([sink_record(value=value)])
    task.pre_commit({TopicPartition("topic", 0): 4})
    assert path.read_text() == "before\ntext\nnull\n{a=[1, true, null], b=1.0}\nStruct{a=x}\n"
    task.stop()
    assert java_text(None, False) == "false"


def test_a_source_has_one_task_and_needs_a_topic(tmp_path: Path) -> None:
    connector = FileStreamSourceConnector()
    connector.start({"file": "x", "topic": "t"})
    assert connector.task_configs(5) == [{"file": "x", "topic": "t"}]
    with pytest.raises(ConfigError, match='Missing required configuration "topic"'):
        FileStreamSourceConnector().start({"file": "x"})
    sink = FileStreamSinkConnector()
    sink.start({"file": "x"})
    assert len(sink.task_configs(3)) == 3


@pytest.mark.parametrize(
    ("partition", "offset", "why"),
    [
        (
            {"filename": "x"},
            {},
            "Offset objects should either be null or contain the key 'position'",
        ),
        ({"filename": "x"}, {"position": "3"}, "is expected to be a Long value"),
        ({"filename": "x"}, {"position": None}, "is expected to be a Long value"),
        ({"filename": "x"}, {"position": True}, "is expected to be a Long value"),
        ({"filename": "x"}, {"position": 1.5}, "is expected to be a Long value"),
        ({"filename": "x"}, {"position": -1}, "should be a non-negative value"),
        (None, {"position": 1}, "Partition objects cannot be null"),
        ({}, {"position": 1}, "Partition objects should contain the key 'filename'"),
    ],
)
def test_a_source_refuses_offsets_that_it_could_not_start_at(
    partition: dict[str, object] | None, offset: dict[str, object], why: str
) -> None:
    with pytest.raises(ConnectError, match=why):
        FileStreamSourceConnector().alter_offsets(
            {"file": "x", "topic": "t"}, [(partition, offset)]
        )


def test_source_accepts_altered_offsets_except_for_standard_input() -> None:
    connector = FileStreamSourceConnector()
    taken = [
        ({"filename": "old", "more": 1}, {"position": 0, "more": "x"}),
        (None, None),
        ({}, None),
    ]
    assert connector.alter_offsets({"file": "x", "topic": "t"}, taken)
    with pytest.raises(ConnectError, match="stdin is used for input"):
        connector.alter_offsets({"topic": "t"}, [])


def test_sink_writes_lines_to_the_file_during_put(tmp_path: Path) -> None:
    path, task = tmp_path / "out", FileStreamSinkTask()
    task.initialize(FakeSinkTaskContext())
    task.start({"file": str(path)})
    task.put(
        [
            sink_record(value="one", value_schema=STRING),
            sink_record(value="two", value_schema=STRING),
        ]
    )
    assert path.read_text() == "one\ntwo\n"  # without a flush, which happens once per minute
    task.stop()


def test_a_sink_has_no_offsets_but_its_groups() -> None:
    assert FileStreamSinkConnector().alter_offsets({}, {TopicPartition("t", 0): None}) is True


def test_without_a_file_lines_come_from_standard_input_without_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(source_module, "STANDARD_INPUT", reading)
    task = FileStreamSourceTask()
    task.initialize(FakeSourceTaskContext())
    task.start({"topic": "lines", "file": ""})
    assert task.poll() == []  # no data, and no waiting
    os.write(writing, "eins\nzwö\nhal".encode())
    assert [(r.value, r.source_partition, r.source_offset) for r in task.poll()] == [
        ("eins", {"filename": None}, {"position": None}),
        ("zwö", {"filename": None}, {"position": None}),
    ]
    os.write(writing, b"f\n")
    assert [r.value for r in task.poll()] == ["half"]
    os.close(writing)
    assert task.poll() == []
    task.stop()
    os.close(reading)


def test_without_a_file_values_are_printed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(sink_module, "STANDARD_OUTPUT", writing)
    task = FileStreamSinkTask()
    task.initialize(FakeSinkTaskContext())
    task.start({})
    task.put([sink_record(value="zwö")])
    assert os.read(reading, 100) == "zwö\n".encode()
    task.stop()
    os.close(writing)
    os.close(reading)


def test_source_waits_for_a_file_shorter_than_its_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"one\n")
    context = FakeSourceTaskContext()
    context.offset_storage_reader.store({"filename": str(path)}, {"position": 8})
    task = source(path, context)
    assert lines(task) == []
    assert "was already read up to position 8" in caplog.text
    with path.open("ab") as more:
        more.write(b"two\nthree\n")
    assert lines(task) == [("three", 14)]
    task.stop()


def test_a_file_promises_exactly_once_and_standard_input_does_not() -> None:
    connector = FileStreamSourceConnector()
    assert (
        connector.exactly_once_support({"topic": "t", "file": "x"}) is ExactlyOnceSupport.SUPPORTED
    )
    assert (
        connector.exactly_once_support({"topic": "t", "file": ""}) is ExactlyOnceSupport.UNSUPPORTED
    )

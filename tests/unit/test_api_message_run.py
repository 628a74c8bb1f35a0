"""Messages as Spark's Kafka source has them, and the pipeline of a connector in another process."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest

from connect_py.api.batch import Batch
from connect_py.api.message_run import MessageRun
from connect_py.api.record import TimestampType
from connect_py.task.pipeline_factory import TaskPipelineFactory

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CONNECTOR = {
    "name": "orders",
    "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "copy",
    "transforms.copy.type": "org.apache.kafka.connect.transforms.InsertField$Value",
    "transforms.copy.static.field": "shop",
    "transforms.copy.static.value": "north",
}


def messages(
    *rows: tuple[str, int, int, bytes | None], kinds: Any = 0, headers: Any = None
) -> pa.RecordBatch:
    topics, partitions, offsets, values = zip(*rows, strict=True)
    count = len(rows)
    columns: dict[str, Any] = {
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": list(topics),
        "partition": list(partitions),
        "offset": list(offsets),
        "timestamp": pa.array([1000 * n for n in range(count)], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([kinds] * count if isinstance(kinds, int) else kinds, pa.int32()),
    }
    if headers is not None:
        columns["headers"] = pa.array(headers, HEADERS)
    return pa.RecordBatch.from_pydict(columns)


def test_spark_rows_become_runs_of_one_topic_and_timestamp() -> None:
    rows = [("a", 0, 5, b"1"), ("a", 1, 7, None), ("b", 0, 1, b"2"), ("b", 0, 2, b"3")]
    headers = [None, [{"key": "h", "value": b"x"}], None, None]
    first, second, third = MessageRun.of(messages(*rows, kinds=[0, 0, 0, 1], headers=headers))
    assert (first.topic, first.keys, first.values, first.headers) == (
        "a",
        [b"k"] * 2,
        [b"1", None],
        [None, [("h", b"x")]],
    )
    assert (first.starts, first.ends) == ({0: 5, 1: 7}, {0: 6, 1: 8})
    assert first.timestamps.to_pylist() == [0, 1]
    kinds = [run.timestamp_type for run in (first, second, third)]
    assert kinds == [
        TimestampType.CREATE_TIME,
        TimestampType.CREATE_TIME,
        TimestampType.LOG_APPEND_TIME,
    ]
    assert second.headers is None
    assert list(MessageRun.of(messages(*rows).slice(0, 0))) == []
    with pytest.raises(KeyError):
        list(MessageRun.of(messages(*rows).drop_columns(["topic"])))


def test_pipeline_of_a_connector_works_in_another_process() -> None:
    worker = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
    factory = pickle.loads(pickle.dumps(TaskPipelineFactory(CONNECTOR, worker)))
    pipeline = factory.open()
    rows = [
        ("a", 0, n, value)
        for n, value in enumerate([b'{"id": 1}', b"{", json.dumps({"id": 2}).encode()])
    ]
    output = pipeline.process(list(MessageRun.of(messages(*rows))))
    (batch,) = output.deliveries
    assert isinstance(batch, Batch)
    assert batch.value.data.to_pylist() == [{"id": 1, "shop": "north"}, {"id": 2, "shop": "north"}]
    (failure,) = output.failures
    assert (failure.origin.offset, failure.origin.value, failure.stage) == (
        1,
        b"{",
        "VALUE_CONVERTER",
    )
    assert output.metrics["total-records-skipped"] == 1
    assert pipeline.process([]).failures == []
    pipeline.close()

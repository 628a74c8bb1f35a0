"""Microseconds of CPU per change event, from bytes to columns: `python
tests/benchmarks/bench_converters.py`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import cdc_load  # noqa: E402 - found through the path above
import pyarrow as pa  # noqa: E402
from fixtures.schema_registry_stub import schema_registry  # noqa: E402

from connect_py.api.converter import Converter  # noqa: E402
from connect_py.converters.avro.avro_converter import AvroConverter  # noqa: E402
from connect_py.converters.json.json_converter import JsonConverter  # noqa: E402
from connect_py.converters.protobuf.protobuf_converter import ProtobufConverter  # noqa: E402

EVENTS = 20_000
KEYS = 5_000
CHUNK = 2_000
REPEATS = 7
GOALS = {"json": 2.5, "json-schema": 3.5, "avro": 1.2}  # microseconds per event


def messages(form: str) -> list[bytes | None]:
    """The values of the load, each delete followed by its tombstone."""
    _, value = cdc_load.encoder(form, None, "t")
    data: list[bytes | None] = []
    for _, event in cdc_load.events(EVENTS, KEYS):
        data.append(value(event))
        if event["op"] == "d":
            data.append(None)
    return data


def protobuf_messages(converter: ProtobufConverter) -> list[bytes | None]:
    """Return the same events; they have no goal, but columns must be faster."""
    reader = JsonConverter()
    reader.configure({}, is_key=False)
    return [
        converter.from_connect("t", *reader.to_connect("t", message))
        for message in messages("json-schema")
    ]


def measure(form: str, converter: Converter, data: list[bytes | None] | None = None) -> None:
    """Print the best of several passes, with its goal, and what rows cost."""
    data = messages(form) if data is None else data
    chunks = [data[i : i + CHUNK] for i in range(0, len(data), CHUNK)]
    columns = _best(lambda: [converter.to_batch("t", chunk) for chunk in chunks], REPEATS)
    rows = _best(lambda: [converter.to_connect("t", message) for message in data], 2)
    goal = f"goal {GOALS[form]}" if form in GOALS else f"{rows / columns:.1f} times as fast as rows"
    print(f"{form:12} {columns:5.2f} us per event, {goal}; by rows {rows:5.2f}")


def _best(work: Callable[[], object], repeats: int) -> float:
    """Microseconds of CPU per event."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best / EVENTS * 1e6


def main() -> None:
    """Measure each format."""
    pa.set_cpu_count(1)
    for form in ("json", "json-schema"):
        json_converter = JsonConverter()
        json_converter.configure(
            {"schemas.enable": str(form == "json-schema").lower()}, is_key=False
        )
        measure(form, json_converter)
    key, value = cdc_load.avro_schemas()
    with schema_registry(
        {1: {"schema": json.dumps(key)}, 2: {"schema": json.dumps(value)}}
    ) as stub:
        avro_converter = AvroConverter()
        avro_converter.configure({"schema.registry.url": stub.url}, is_key=False)
        measure("avro", avro_converter)
        avro_converter.close()
    with schema_registry({}) as stub:
        protobuf = ProtobufConverter()
        protobuf.configure({"schema.registry.url": stub.url}, is_key=False)
        measure("protobuf", protobuf, protobuf_messages(protobuf))
        protobuf.close()


if __name__ == "__main__":
    main()

"""Microseconds of CPU per change event, from bytes to columns: `python tests/benchmarks/bench_converters.py`."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "1"  # as in a task process
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import cdc_load  # noqa: E402 - found through the path above
import pyarrow as pa  # noqa: E402
from fixtures.schema_registry_stub import schema_registry  # noqa: E402

from connect_py.api.converter import Converter  # noqa: E402
from connect_py.converters.avro_converter import AvroConverter  # noqa: E402
from connect_py.converters.json_converter import JsonConverter  # noqa: E402

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


def measure(form: str, converter: Converter) -> None:
    """Print the best of several passes, with its goal."""
    data = messages(form)
    chunks = [data[i : i + CHUNK] for i in range(0, len(data), CHUNK)]
    best = float("inf")
    for _ in range(REPEATS):
        start = time.process_time()
        for chunk in chunks:
            converter.to_batch("t", chunk)
        best = min(best, time.process_time() - start)
    print(f"{form:12} {best / EVENTS * 1e6:5.2f} us per event, goal {GOALS[form]}")


def main() -> None:
    """Measure each format."""
    pa.set_cpu_count(1)
    for form in ("json", "json-schema"):
        json_converter = JsonConverter()
        json_converter.configure({"schemas.enable": str(form == "json-schema").lower()}, is_key=False)
        measure(form, json_converter)
    key, value = cdc_load.avro_schemas()
    with schema_registry({1: {"schema": json.dumps(key)}, 2: {"schema": json.dumps(value)}}) as stub:
        avro_converter = AvroConverter()
        avro_converter.configure({"schema.registry.url": stub.url}, is_key=False)
        measure("avro", avro_converter)
        avro_converter.close()


if __name__ == "__main__":
    main()

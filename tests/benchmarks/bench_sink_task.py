"""The cost per record of a sink task before its sink: consume, convert, transform; the sink
discards all records.

    python tests/benchmarks/bench_sink_task.py --events 200000 --format json-schema --unwrap

Starts a broker, loads it with Debezium change events (tombstones on), and runs one task in its
process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from connect_py.clock import SystemClock
from connect_py.embedded.broker import KafkaBroker
from connect_py.model import ConnectorTaskId, TargetState
from connect_py.plugins.plugin_registry import PluginRegistry, PluginTable
from connect_py.process.fork_server import ForkServer
from connect_py.task.messages import Failed, FromTask, TaskSpec
from connect_py.worker.process_task_host import ProcessTaskHost

HERE = Path(__file__).parent
PARTITIONS = 2
JSON = "org.apache.kafka.connect.json.JsonConverter"
UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    # no row is dropped
    "transforms.unwrap.delete.tombstone.handling.mode": "rewrite-with-tombstone",
}


def tell(message: FromTask) -> None:
    """Print failures."""
    if isinstance(message, Failed):
        print(message.trace, file=sys.stderr)


def load(broker: KafkaBroker, topic: str, format_: str, events: int) -> int:
    """Fill a topic and return its number of records."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    command = [
        sys.executable,
        str(HERE / "cdc_load.py"),
        "--bootstrap",
        broker.bootstrap_servers,
        "--topic",
        topic,
        "--format",
        format_,
        "-n",
        str(events),
        "--keys",
        str(max(1, events // 5)),
        "--tombstones",
    ]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    ends = admin.list_offsets(
        {TopicPartition(topic, p): OffsetSpec.latest() for p in range(PARTITIONS)}
    )
    return sum(future.result(30).offset for future in ends.values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--format", choices=["json", "json-schema"], default="json")
    parser.add_argument("--unwrap", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(HERE.parent))
    from fixtures import worker_plugins

    registry = PluginRegistry(
        [*PluginRegistry.discover().tables, PluginTable(worker_plugins.PLUGINS)]
    )
    server = ForkServer(registry.preload())
    server.start()
    with KafkaBroker() as broker, tempfile.TemporaryDirectory() as directory:
        records = load(broker, "events", options.format, options.events)
        result = Path(directory) / "result.json"
        schemas = "true" if options.format == "json-schema" else "false"
        config = {
            "name": "bench",
            "connector.class": "test.NullSinkConnector",
            "topics": "events",
            "expected": str(records),
            "record.file": str(result),
            "switch.dir": directory,
            "key.converter": JSON,
            "key.converter.schemas.enable": schemas,
            "value.converter": JSON,
            "value.converter.schemas.enable": schemas,
            "header.converter": JSON,
            **(UNWRAP if options.unwrap else {}),
        }
        worker = {"bootstrap.servers": broker.bootstrap_servers}
        spec = TaskSpec(
            ConnectorTaskId("bench", 0),
            worker,
            config,
            config,
            TargetState.STARTED,
            1,
            registry.tables,
        )
        host = ProcessTaskHost(spec, tell, server, SystemClock(), 60.0)
        host.start()
        deadline = time.monotonic() + 300
        while not result.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(0.5)
        measured = json.loads(result.read_text())
        memory = psutil.Process(host.pid).memory_full_info().pss / 1e6
        host.stop()
        host.wait(10)
    print(
        f"{measured['rows']} records in {measured['puts']} puts: "
        f"{measured['cpu'] / records * 1e6:.2f} us CPU, "
        f"{measured['seconds'] / records * 1e6:.2f} us elapsed per record; {memory:.0f} MB"
    )


if __name__ == "__main__":
    main()

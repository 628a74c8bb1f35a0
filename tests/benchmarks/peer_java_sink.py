"""The Iceberg project's own sink on the Java worker: the peer of our appends."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import cdc_load
from java_worker import JavaWorker
from lakehouse import Lakehouse
from loaded_topics import LoadedTopic, sink_config

from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.java_runtime import find_java

_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"
# of which the lock has parts only
_CONNECTORS = ("io.debezium--debezium-connector-m", "org.mongodb--")
# What Kafka's script gives a worker that nobody tuned.
_KAFKA_OPTIONS = (
    "-Xms256M",
    "-Xmx2G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


class JavaSinkWorker(JavaWorker):
    """The Java worker with all that the sink and the chains need: Parquet, converters,
    transformations."""

    def command(self) -> list[str]:
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        hadoop = sorted((Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar"))
        jars = [
            *JarLock.shipped("connect").resolve(),
            *(
                jar
                for jar in JarLock.shipped("transforms").resolve()
                if not jar.name.startswith(_CONNECTORS)
            ),
            *(jar for jar in JarLock.shipped("peers").resolve() if not of_spark(jar)),
            *(jar for jar in JarLock.shipped("spark").resolve() if "sqlite" in jar.name),
            *hadoop,
        ]
        command = super().command()
        return [
            str(find_java().path),
            *_KAFKA_OPTIONS,
            *(o for o in command if o.startswith("-Dlog4j2")),
            "-cp",
            os.pathsep.join(map(str, jars)),
            *command[-2:],
        ]


def of_spark(jar: Path) -> bool:
    """Return True if a jar of the lock `peers` is for Spark's Kafka source instead of the Java
    worker.
    """
    return jar.name.startswith(("org.apache.spark--", "org.apache.kafka--", "org.apache.commons--"))


def java_sink_config(
    topic: LoadedTopic, lake: Lakehouse, registry_url: str, bootstrap_servers: str
) -> dict[str, str]:
    """The connector as ours has it, with the one Avro converter that the public registry of jars
    carries."""
    config = {**sink_config(topic, "append", registry_url), **lake.sink_config()}
    config["iceberg.kafka.bootstrap.servers"] = bootstrap_servers
    if topic.form == "avro":
        for side in ("key", "value"):
            config[f"{side}.converter"] = _CONVERTER
            config |= {
                f"{side}.converter.apicurio.registry.{key}": value
                for key, value in {
                    "url": f"{registry_url}/apis/registry/v2",
                    "as-confluent": "true",
                    "use-id": "contentId",
                }.items()
            }
    return config


def rows_in_table(lake: Lakehouse, table_name: str, topic: LoadedTopic) -> int:
    """Records that an appended table covers: its rows, in proportion, because tombstones make
    none."""
    table = lake.table(table_name)
    snapshot = table.current_snapshot() if table is not None else None
    if snapshot is None or snapshot.summary is None:
        return 0
    rows = int(snapshot.summary.additional_properties["total-records"])
    return rows * topic.records // topic.events


class _Artifacts(BaseHTTPRequestHandler):
    """Responses of Apicurio's own API, which the converter requests, for the two schemas of the
    load.
    """

    texts: Mapping[str, str]

    def do_GET(self) -> None:
        parts = self.path.partition("?")[0].strip("/").split("/")
        known = parts[:5] == ["apis", "registry", "v2", "ids", "contentIds"] and self.texts.get(
            parts[5]
        )
        body = "[]" if parts[-1] == "references" else known or ""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@contextmanager
def artifacts() -> Iterator[str]:
    """Serve the schemas of the load as Apicurio does; yields the address."""
    handler = type(
        "Artifacts",
        (_Artifacts,),
        {
            "texts": {
                str(number): json.dumps(schema)
                for number, schema in enumerate(cdc_load.avro_schemas(), start=1)
            }
        },
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, name="artifacts")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

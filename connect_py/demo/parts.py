"""`DemoParts`: PostgreSQL, Kafka, Java's Kafka Connect with Debezium, and connect-py's worker."""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import resources
from pathlib import Path

from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.connect_process import ConnectProcess, JavaConnectProcess
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.java_connect import unpack_archives
from connect_py.embedded.postgres import HOST, PostgresServer
from connect_py.embedded.spark_environment import spark_environment
from connect_py.quickstart.spark_sql import write_spark_sql
from connect_py.quickstart.tables import CATALOG, NAMESPACE, warehouse_uri

DATABASE = "shop"
PREFIX = "shop.public."  # prefix of topic names, consisting of Debezium's prefix and the schema
SOURCE = "shop-source"
SINK = "shop-sink"
DEBEZIUM_USER = "debezium"
LOCKS = ("broker", "connect", "debezium")
_JSON = "org.apache.kafka.connect.json.JsonConverter"
# After a kill, a new worker can join the group only after the old worker's session has expired.
_SHORT_SESSIONS = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}


class DemoParts:
    """Starts the parts in order. Leaving the `with` block stops them in reverse order."""

    def __init__(
        self, directory: Path, report: Callable[[str], None], interrupted: threading.Event
    ) -> None:
        """Create the parts without starting them.

        Args:
            directory: An empty directory for all files.
            report: Called with a message for each part that has started.
            interrupted: Event that aborts a start in progress when it is set.

        Raises:
            PostgresError: PostgreSQL is not installed.
        """
        self._directory = directory
        self._report = report
        self._interrupted = interrupted
        self._stack = ExitStack()
        self.postgres = PostgresServer(directory / "postgres")
        self.broker = KafkaBroker(directory / "kafka")
        self.java: ConnectProcess
        self.worker: ConnectProcess

    def __enter__(self) -> DemoParts:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        directory, report = self._directory, self._report
        for name in LOCKS:
            JarLock.shipped(name).resolve()
        spark_environment()
        unpack_archives("debezium", directory / "plugins")
        report("Java libraries for Kafka, Connect, Debezium, and Spark are available")
        self._stack.callback(self.postgres.close)
        self.postgres.start()
        password = self._fill()
        report(
            f"PostgreSQL {self._version()} is running on port {self.postgres.port} with sample data"
        )
        servers = self._stack.enter_context(self.broker).bootstrap_servers
        report(f"Apache Kafka is running on {servers}")
        self.java = JavaConnectProcess(
            directory, "java-connect", "java-connect", servers, self._java_properties()
        )
        self.worker = ConnectProcess(
            directory,
            "worker",
            "connect-py",
            servers,
            {
                **_SHORT_SESSIONS,
                **{f"consumer.{key}": value for key, value in _SHORT_SESSIONS.items()},
            },
        )
        for process in (self.java, self.worker):
            process.launch()
            self._stack.callback(process.close)
        self._write_files(password)
        self.worker.wait_until_it_answers(self._interrupted)
        report(f"connect-py is running on {self.worker.url}, for the Iceberg sink")
        self.java.wait_until_it_answers(self._interrupted)
        report(f"Java's Kafka Connect is running on {self.java.url}, for Debezium")

    def _version(self) -> str:
        return self.postgres.run("SHOW server_version").split()[0]

    def _fill(self) -> str:
        """Create the database and Debezium's user, and return the user's password."""
        password = secrets.token_urlsafe(18)
        user = f"CREATE ROLE {DEBEZIUM_USER} LOGIN REPLICATION PASSWORD '{password}';"
        self.postgres.run(f"CREATE DATABASE {DATABASE};\n{user}")
        self.postgres.run(shop_sql(), DATABASE)
        return password

    def _java_properties(self) -> Mapping[str, str]:
        return {
            "plugin.path": str(self._directory / "plugins"),
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "1000",
            "config.providers": "file",
            "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",  # noqa: E501 - a single literal
        }

    def _write_files(self, password: str) -> None:
        secret = self._directory / "debezium.properties"
        secret.touch(mode=0o600)
        secret.write_text(f"password={password}\n")
        (self._directory / "shop.sql").write_text(shop_sql())
        for name, config in (
            (SOURCE, source_config(self.postgres.port, secret)),
            (SINK, sink_config(self._directory)),
        ):
            document = json.dumps({"name": name, "config": config}, indent=2)
            (self._directory / f"{name}.json").write_text(f"{document}\n")
        self.postgres.write_psql(self._directory / "psql", DATABASE)
        write_spark_sql(self._directory)


def shop_sql() -> str:
    """Return the SQL that creates the sample tables, their rows, and Debezium's publication."""
    return resources.files("connect_py.demo").joinpath("shop.sql").read_text("utf-8")


def source_config(port: int, secret: Path) -> Mapping[str, str]:
    """Return the configuration of Debezium's connector, for Java's worker."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": HOST,
        "database.port": str(port),
        "database.user": DEBEZIUM_USER,
        "database.password": f"${{file:{secret}:password}}",
        "database.dbname": DATABASE,
        "plugin.name": "pgoutput",
        "publication.name": "shop",
        "publication.autocreate.mode": "disabled",
        "schema.include.list": "public",
        "topic.prefix": "shop",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "key.converter": _JSON,
        "value.converter": _JSON,
        "value.converter.replace.null.with.default": "false",
    }


def sink_config(directory: Path) -> Mapping[str, str]:
    """Return the configuration of the Iceberg sink for all of the database's topics."""
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics.regex": "shop\\.public\\..*",
        "consumer.override.metadata.max.age.ms": "3000",
        "key.converter": _JSON,
        "value.converter": _JSON,
        "transforms": "unwrap",
        "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.unwrap.delete.tombstone.handling.mode": "tombstone",
        "iceberg.catalog": CATALOG,
        "iceberg.catalog.type": "jdbc",
        "iceberg.catalog.uri": f"jdbc:sqlite:{directory / 'catalog.db'}",
        "iceberg.catalog.jdbc.schema-version": "V1",
        "iceberg.catalog.warehouse": warehouse_uri(directory),
        "iceberg.ext.topic-to-table": f"shop\\.public\\.(.*):{NAMESPACE}.{{1}}",
        "iceberg.ext.key-source": "record",
        "iceberg.tables.auto-create-enabled": "true",
        "iceberg.tables.evolve-schema-enabled": "true",
        "iceberg.tables.upsert-mode-enabled": "true",
        "iceberg.control.commit.interval-ms": "2000",
    }


def shown_path(path: Path) -> str:
    """Return a path for the command line, relative if that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)

"""The Spark driver of a coordinator: one JVM, one session, one catalog. The only module that speaks py4j.

py4j reaches everything that is needed in the JVM (the session, the Iceberg catalog, our own classes), so pyspark's
session objects, which exist once per process for ever, are not used: a driver that died is replaced by a new one.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from connect_py.api.errors import CommitStateUnknownError, ConfigError, ConnectError
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    SparkDiedError,
    SparkLostError,
    TableForbiddenError,
    TableMissingError,
    TableUnsuitableError,
)
from connectors.iceberg.spark.gateway import SparkAbsentError, SparkGateway, SparkGatewayError

log = logging.getLogger(__name__)

STAGE_CATALOG: Final = "connect_py_stage"  # staged files, read as if they were a table
JAVA_SOURCES: Final = (
    "LedgerCheck",
    "StagedFiles",
    "RowDeletes",
    "TableAccess",
    "TableCommit",
)  # each sees those before
JAVA_PACKAGE: Final = "connectpy"
DEFAULT_HEAP: Final = "1g"
# C2 is asked ten times later than by default: it took 7 of the 17 CPU seconds of a driver's first two minutes, for work
# that comes a few times a minute. What is hot for hours gets there all the same.
STEADY_JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC", "-XX:Tier4InvocationThreshold=50000", "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000", "-XX:Tier4BackEdgeThreshold=400000",
)  # fmt: skip
QUICK_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_DEATH_SECONDS = 2.0
_WARM_UP_ROWS, _WARM_UP_ROUNDS = 20_000, 2
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """What a driver is made from; parsed once from the connector's properties."""

    catalog: str = "iceberg"  # name of the catalog
    catalog_properties: Mapping[str, str] = field(default_factory=dict)  # without `iceberg.catalog.`
    hadoop_properties: Mapping[str, str] = field(default_factory=dict)  # without `iceberg.hadoop.`
    spark_properties: Mapping[str, str] = field(default_factory=dict)  # `spark.…`
    quick_jvm: bool = False  # C1 and SerialGC: best for runs of minutes, worse for days

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> SparkConfig:
        """Take the keys `iceberg.catalog`, `iceberg.catalog.*`, `iceberg.hadoop.*`, `iceberg.spark.*`.

        `iceberg.spark.master` and `iceberg.spark.spark.master` both mean `spark.master`.

        Raises:
            ConfigError: A Spark Connect address, which has no JVM of ours to commit in.
        """

        def below(prefix: str) -> dict[str, str]:
            return {key[len(prefix) :]: value for key, value in properties.items() if key.startswith(prefix)}

        spark = {key if key.startswith("spark.") else f"spark.{key}": v for key, v in below("iceberg.spark.").items()}
        if "spark.remote" in spark:
            raise ConfigError("iceberg.spark.remote", "Spark Connect is not supported; set iceberg.spark.master")
        return SparkConfig(
            catalog=properties.get("iceberg.catalog", "iceberg"),
            catalog_properties=below("iceberg.catalog."),
            hadoop_properties=below("iceberg.hadoop."),
            spark_properties=spark,
            quick_jvm=properties.get("iceberg.ext.quick-jvm", "false").lower() == "true",
        )

    def jvm_options(self) -> list[str]:
        """Options that Spark cannot apply itself, because the JVM runs before the session exists."""
        own = [*(QUICK_JVM_OPTIONS if self.quick_jvm else STEADY_JVM_OPTIONS)]
        extra = self.spark_properties.get("spark.driver.extraJavaOptions", "").split()
        if any(_CHOOSES_COLLECTOR.fullmatch(option) for option in extra):  # Java refuses two
            own = [option for option in own if not _CHOOSES_COLLECTOR.fullmatch(option)]
        return [f"-Xmx{self.spark_properties.get('spark.driver.memory', DEFAULT_HEAP)}", *own, *extra]

    def session_settings(self) -> dict[str, str]:
        """Every setting of the session; the user's own come last and win."""
        cores = os.cpu_count() or 1
        prefix = f"spark.sql.catalog.{self.catalog}"
        return {
            "spark.app.name": "connect-py",
            "spark.master": f"local[{cores}]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.iceberg.distribution-mode": "none",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalogImplementation": "in-memory",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.ansi.enabled": "true",
            "spark.cleaner.periodicGC.interval": "30min",
            "spark.sql.ui.retainedExecutions": "1",
            "spark.ui.retainedJobs": "1",
            "spark.ui.retainedStages": "1",
            f"spark.sql.catalog.{STAGE_CATALOG}": "org.apache.iceberg.spark.SparkRewriteTableCatalog",
            prefix: _SPARK_CATALOG,
            **{f"{prefix}.{key}": value for key, value in self._catalog_settings().items()},
            **{f"{prefix}.hadoop.{key}": value for key, value in self.hadoop_properties.items()},
            **{f"spark.hadoop.{key}": value for key, value in self.hadoop_properties.items()},
            **self.spark_properties,
        }

    def _catalog_settings(self) -> dict[str, str]:
        settings = {"cache-enabled": "false", **self.catalog_properties}
        if "type" not in settings and "catalog-impl" not in settings:
            settings["type"] = "hive"  # as in Iceberg
        if settings.get("type") == "jdbc" or settings.get("catalog-impl", "").endswith(".JdbcCatalog"):
            settings.setdefault("jdbc.schema-version", "V1")  # what PyIceberg's SQL catalog makes and reads
        return settings


class SparkDriver:
    """Owns the JVM. One thread uses it; `alive` and `kill` may be called from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        launch: Callable[[Sequence[str], Path | None], SparkGateway] | None = None,
        log_path: Path | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            config: What the session is made from.
            launch: Makes the JVM from options and log path; `SparkGateway.from_environment` unless given.
            log_path: Where the JVM's output goes.
        """
        self.config = config
        self._launch = launch or (lambda options, path: SparkGateway.from_environment(options, path))
        self._log_path = log_path
        self._gateway: SparkGateway | None = None
        self._client: ClientServer | None = None
        self._objects: dict[str, Any] = {}

    def start(self) -> None:
        """Launch the JVM, make the session and compile our classes: two to four seconds.

        Raises:
            CatalogUnavailableError: Spark did not start; its log's last lines are in the message.
            SparkLostError: Java or a jar is missing.
        """
        if self._gateway is not None:
            raise RuntimeError("the driver was started before")
        try:
            self._gateway = self._launch(self.config.jvm_options(), self._log_path)
        except SparkAbsentError as error:
            raise SparkLostError(str(error)) from error
        except SparkGatewayError as error:
            raise CatalogUnavailableError(str(error)) from error
        try:
            self._client = ClientServer(
                java_parameters=JavaParameters(
                    port=self._gateway.port, auth_token=self._gateway.secret, auto_convert=True
                ),
                python_parameters=PythonParameters(port=0, eager_load=False),
            )
            with self.errors("the session"):
                self._objects = self._make_objects(self._client.jvm)
        except BaseException:
            self.kill()
            raise

    def alive(self) -> bool:
        """Whether the JVM exists. One that hangs does; see `deadline`."""
        return self._gateway is not None and self._gateway.running

    def stop(self) -> None:
        """End the JVM: ask first, then for certain. Does nothing when there is none."""
        gateway, self._gateway = self._gateway, None
        self._disconnect()
        if gateway is not None:
            gateway.stop()

    def kill(self) -> None:
        """End the JVM at once; whoever waits for it gets a `SparkDiedError`."""
        if self._gateway is not None:
            self._gateway.kill()
        self._disconnect()
        self._gateway = None

    def restart(self) -> None:
        """Replace the JVM, dead or not."""
        self.kill()
        self.start()

    @property
    def pid(self) -> int | None:
        """Process id of the JVM."""
        return self._gateway.pid if self._gateway is not None else None

    def __enter__(self) -> SparkDriver:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Kill the JVM when the block takes longer; the call inside then raises `SparkDiedError`."""
        gateway = self._gateway

        def end() -> None:
            log.error("Spark did not answer within %.0f s: its JVM is killed", seconds)
            if gateway is not None:
                gateway.kill()

        timer = threading.Timer(seconds, end)
        timer.name = "spark-deadline"
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def java(self, name: str) -> Any:
        """One of our Java objects, by class name."""
        if not self._objects:
            raise SparkDiedError("Spark is not running")
        return self._objects[name]

    def call(self, subject: str, class_name: str, method: str, *arguments: Any) -> Any:
        """Call a method of one of our Java objects that answers with JSON text, and parse it.

        Raises:
            TableMissingError, TableForbiddenError, TableUnsuitableError, CatalogUnavailableError,
            CommitStateUnknownError: As the Java exception says; `subject` names the table.
        """
        with self.errors(subject):
            text = getattr(self.java(class_name), method)(*arguments)
        return json.loads(text) if text is not None else None

    def sql(self, statement: str) -> None:
        """Run one statement. Errors as for `call`."""
        with self.errors(statement.split("\n", 1)[0]):
            self.java("session").sql(statement)

    def set_conf(self, settings: Mapping[str, str]) -> None:
        """Set session settings."""
        conf = self.java("session").conf()
        for key, value in settings.items():
            conf.set(key, value)

    def unset_conf(self, keys: Sequence[str]) -> None:
        """Take session settings back."""
        conf = self.java("session").conf()
        for key in keys:
            conf.unset(key)

    def warm_up(self, deadline_seconds: float = 120.0) -> None:
        """Commit to a scratch table, so that the first real commit finds loaded classes: 3 s for 2 s saved later.

        Good while nothing else is to be done; touches no catalog. Errors as for `call`.
        """
        with self.errors("the warm-up"), self.deadline(deadline_seconds):
            self.java("TableCommit").warmUp(_WARM_UP_ROWS, _WARM_UP_ROUNDS)

    @contextlib.contextmanager
    def errors(self, subject: str) -> Iterator[None]:
        """Translate what py4j and Java raise, once, here."""
        try:
            yield
        except Py4JJavaError as error:
            raise _translate(subject, error.java_exception) from error
        except (Py4JNetworkError, Py4JError, OSError) as error:
            if self._ended_within(_DEATH_SECONDS):
                raise SparkDiedError(f"{subject}: the JVM of Spark is gone") from error
            raise CatalogUnavailableError(f"{subject}: no answer from Spark: {error}") from error

    def _ended_within(self, seconds: float) -> bool:
        """A dead JVM's connections break some milliseconds before its process is seen to be gone."""
        gateway = self._gateway
        until = time.monotonic() + seconds
        while gateway is not None and gateway.running:
            if time.monotonic() >= until:
                return False
            time.sleep(0.02)
        return True

    def _make_objects(self, jvm: Any) -> dict[str, Any]:
        builder = jvm.org.apache.spark.sql.SparkSession.builder()
        for key, value in self.config.session_settings().items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext().setLogLevel("WARN")
        loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        folder = Path(__file__).parent
        objects: dict[str, Any] = {"session": session, "jvm": jvm}
        for name in JAVA_SOURCES:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook((folder / f"{name}.java").read_text())
            loader = compiler.getClassLoader()
        catalog = session.sessionState().catalogManager().catalog(self.config.catalog).icebergCatalog()
        for name in ("TableAccess", "TableCommit"):
            made = loader.loadClass(f"{JAVA_PACKAGE}.{name}").getMethod("make", _classes(jvm))
            objects[name] = made.invoke(None, _arguments(jvm, [session, catalog, STAGE_CATALOG]))
        return objects

    def _disconnect(self) -> None:
        client, self._client, self._objects = self._client, None, {}
        if client is not None:
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone
                client.shutdown()


def _classes(jvm: Any) -> Any:
    """`{Object.class}`: every `make` takes one array, which spares a look-up by types."""
    array = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.lang.Class"), 1)
    jvm.java.lang.reflect.Array.set(array, 0, jvm.java.lang.Class.forName("[Ljava.lang.Object;"))
    return array


def _arguments(jvm: Any, values: Sequence[Any]) -> Any:
    """`{{…}}`: the values in one array, as the one argument of `make`."""
    kind = jvm.java.lang.Class.forName("java.lang.Object")
    inner = jvm.java.lang.reflect.Array.newInstance(kind, len(values))
    for index, value in enumerate(values):
        jvm.java.lang.reflect.Array.set(inner, index, value)
    outer = jvm.java.lang.reflect.Array.newInstance(kind, 1)
    jvm.java.lang.reflect.Array.set(outer, 0, inner)
    return outer


_ICEBERG = "org.apache.iceberg.exceptions."
_MISSING = {f"{_ICEBERG}NoSuchTableException", f"{_ICEBERG}NoSuchNamespaceException"}
_FORBIDDEN = {f"{_ICEBERG}ForbiddenException", f"{_ICEBERG}NotAuthorizedException"}
_UNSUITABLE = {
    f"{_ICEBERG}NotFoundException",  # a file of the table, or a staged one
    f"{_ICEBERG}ValidationException",
    f"{_ICEBERG}BadRequestException",
    f"{_ICEBERG}UnprocessableEntityException",
    "java.lang.IllegalArgumentException",
    "java.lang.UnsupportedOperationException",
    "java.lang.ClassCastException",
    "java.lang.NullPointerException",
    "org.apache.spark.sql.AnalysisException",
    "org.apache.spark.sql.catalyst.ExtendedAnalysisException",
    "org.apache.spark.sql.catalyst.parser.ParseException",
}
_UNKNOWN = f"{_ICEBERG}CommitStateUnknownException"


def _translate(subject: str, exception: Any) -> ConnectError:
    """Our error for a Java exception, judged by the outermost class that says something."""
    chain: list[tuple[str, str]] = []
    cause = exception
    while cause is not None and len(chain) < 10:
        chain.append((cause.getClass().getName(), str(cause.getMessage() or "").split("\n", 1)[0]))
        cause = cause.getCause()
    for name, message in chain:
        if name == _UNKNOWN:
            return CommitStateUnknownError(f"{subject}: {message}")
        if name in _MISSING:
            return TableMissingError(subject, message)
        if name in _FORBIDDEN:
            return TableForbiddenError(subject, message)
        if name in _UNSUITABLE:
            return TableUnsuitableError(subject, f"{name.rsplit('.', 1)[-1]}: {message}")
    (name, message), (root, root_message) = chain[0], chain[-1]
    told = f"{name.rsplit('.', 1)[-1]}: {message}"
    if root_message and root_message not in message:  # what REST clients say first names no address
        told += f" ({root.rsplit('.', 1)[-1]}: {root_message})"
    return CatalogUnavailableError(f"{subject}: {told}")

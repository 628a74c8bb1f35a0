"""The JVM of a coordinator: one Iceberg catalog, and a Spark session if need be. The only module that speaks py4j.

Loading, creating and evolving tables, appends, and most deltas are work for Iceberg's own Java library, and the JVM has
little else on its class path if it can be helped. A Spark session costs two to three seconds of CPU, so it is made when
somebody first asks for it: SQL MERGE, rows with unavailable values, and tables whose keys have to be read by Spark. A
JVM without Spark is replaced then by one with it, as it is when a class is missing there.

py4j reaches everything that is needed in the JVM (the catalog, the session, our own classes), so pyspark's session
objects, which exist once per process for ever, are not used: a driver that died is replaced by a new one.
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

from connect_py.api.errors import ConnectError
from connectors.iceberg.spark.connect_session import ConnectSession
from connectors.iceberg.spark.errors import (
    CatalogUnavailableError,
    ClassMissingError,
    JavaError,
    SparkDiedError,
    SparkLostError,
    TableError,
)
from connectors.iceberg.spark.gateway import (
    JARS_VARIABLE,
    SparkAbsentError,
    SparkGateway,
    SparkGatewayError,
    has_files_of_settings,
)
from connectors.iceberg.spark.java_classes import JavaClasses
from connectors.iceberg.spark.java_errors import lacks_a_class, translated

log = logging.getLogger(__name__)

STAGE_CATALOG: Final = "connect_py_stage"  # staged files, read as if they were a table
ICEBERG_SOURCES: Final = (
    "LedgerCheck", "SureOperations", "Prepared", "ParquetFooter", "StagedFiles", "StagedBranches", "TableAccess",
    "RowDeletes", "Delta", "TableCommit", "LocalFiles", "LocalCatalog", "LastingFileSystem",
)  # fmt: skip # each sees those before
# For the audit, for rows with unavailable values, and for SQL merges.
LATE_SOURCES: Final = (("TableHistory",), ("TableRows",), ("BranchMerge",))
_FORGETFUL: Final = ("TableAccess", "TableHistory")  # calls need nothing that was left by one before
SPARK_SOURCES: Final = ("SparkSets", "SparkJoin")  # these need a session, and see the others
DEFAULT_HEAP: Final = "1g"
# C2 is asked ten times later than by default: it took 7 of the 17 CPU seconds of a driver's first two minutes, for work
# that comes a few times a minute. What is hot for hours gets there all the same.
STEADY_JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC", "-XX:Tier4InvocationThreshold=50000", "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000", "-XX:Tier4BackEdgeThreshold=400000",
)  # fmt: skip
QUICK_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LATE_COMPILER: Final = "-XX:CompileThresholdScaling=3"  # of what runs a hundred times, most never runs again
_CHOOSES_COLLECTOR = re.compile(r"-XX:\+Use\w+GC")
_DEATH_SECONDS = 2.0
_JAVA_FRAMES = 5  # of each exception of a Java trace
_SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"
_CLASS_PATH = "spark.driver.extraClassPath"
_CATALOGS_OF_ICEBERG = ("hadoop", "jdbc", "rest")  # whose classes all are in Iceberg's jar; Hive's are among Spark's
Launch = Callable[[Sequence[str], Path | None, bool], SparkGateway]


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """What a driver is made from; parsed once from the connector's properties."""

    catalog: str = "iceberg"  # name of the catalog
    catalog_properties: Mapping[str, str] = field(default_factory=dict)  # without `iceberg.catalog.`
    hadoop_properties: Mapping[str, str] = field(default_factory=dict)  # without `iceberg.hadoop.`
    spark_properties: Mapping[str, str] = field(default_factory=dict)  # `spark.…`
    quick_jvm: bool = False  # C1 and SerialGC: best for runs of minutes, worse for days
    needs_spark: bool = False  # it is known that a session will be asked for

    def jvm_options(self) -> list[str]:
        """Options that Spark cannot apply itself, because the JVM runs before the session exists."""
        own = [*(QUICK_JVM_OPTIONS if self.quick_jvm else STEADY_JVM_OPTIONS)]
        if self.quick_jvm and self.alone:
            own.append(LATE_COMPILER)
        extra = self.spark_properties.get("spark.driver.extraJavaOptions", "").split()
        if any(_CHOOSES_COLLECTOR.fullmatch(option) for option in extra):  # Java refuses two
            own = [option for option in own if not _CHOOSES_COLLECTOR.fullmatch(option)]
        return [f"-Xmx{self.spark_properties.get('spark.driver.memory', DEFAULT_HEAP)}", *own, *extra]

    @property
    def local(self) -> bool:
        """Whether Spark would run in this one JVM, and not on a cluster or behind Spark Connect."""
        return not self.remote and self.spark_properties.get("spark.master", "local").startswith("local")

    @property
    def alone(self) -> bool:
        """Whether a JVM with Iceberg's library and without Spark may do, for as long as nobody asks for a session."""
        settings = self.catalog_settings()
        own = settings.get("type") in _CATALOGS_OF_ICEBERG and "catalog-impl" not in settings
        places = has_files_of_settings() or bool(self.spark_properties.get(_CLASS_PATH))
        return own and not places and not self.needs_spark

    @property
    def on_this_machine(self) -> bool:
        """Whether catalog and tables are in a database and in folders, and nothing is said about file systems."""
        settings = self.catalog_settings()
        plain = settings.get("type") == "jdbc" and not {"catalog-impl", "io-impl"} & settings.keys()
        return plain and self.in_folders and not self.hadoop_settings()

    @property
    def in_folders(self) -> bool:
        """Whether the warehouse is a path, of this machine as far as nothing else is said."""
        return self.catalog_settings().get("warehouse", "").startswith(("/", "file:"))

    @property
    def remote(self) -> str:
        """URL of the Spark Connect server; empty: Spark runs in this JVM, or has its driver here."""
        return self.spark_properties.get("spark.remote", "")

    def catalog_settings(self) -> dict[str, str]:
        """What Iceberg's catalog is made from; what is said in Spark's words wins."""
        in_sparks_words = _below(f"spark.sql.catalog.{self.catalog}.", self.spark_properties)
        said = {k: v for k, v in in_sparks_words.items() if not k.startswith("hadoop.")}
        settings = {"cache-enabled": "false", **self.catalog_properties, **said}
        if "type" not in settings and "catalog-impl" not in settings:
            settings["type"] = "hive"  # as in Iceberg
        if settings.get("type") == "jdbc" or settings.get("catalog-impl", "").endswith(".JdbcCatalog"):
            settings.setdefault("jdbc.schema-version", "V1")  # what PyIceberg's SQL catalog makes and reads
            uri = settings.get("uri", "")
            if uri.startswith("jdbc:sqlite:") and "synchronous=" not in uri.lower():
                # Else a power loss may bring a deleted journal back, and SQLite takes a commit back with it.
                settings.setdefault("jdbc.synchronous", "EXTRA")
        return settings

    def hadoop_settings(self) -> dict[str, str]:
        """What Hadoop's file systems are told; what is said in Spark's words wins."""
        in_sparks_words = _below("spark.hadoop.", self.spark_properties)
        of_the_catalog = _below(f"spark.sql.catalog.{self.catalog}.hadoop.", self.spark_properties)
        return {**self.hadoop_properties, **in_sparks_words, **of_the_catalog}

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
            **{f"{prefix}.{key}": value for key, value in self.catalog_settings().items()},
            **{f"{prefix}.hadoop.{key}": value for key, value in self.hadoop_settings().items()},
            **{f"spark.hadoop.{key}": value for key, value in self.hadoop_settings().items()},
            **self._jars_for_executors(),
            **self.spark_properties,
        }

    def _jars_for_executors(self) -> dict[str, str]:
        """A cluster's executors get Iceberg from here, unless it is said where they have it."""
        if self.local or "spark.executor.extraClassPath" in self.spark_properties:
            return {}
        return {"spark.jars": ",".join(filter(None, os.environ.get(JARS_VARIABLE, "").split(os.pathsep)))}

    def remote_settings(self) -> dict[str, str]:
        """Settings of a session behind Spark Connect: those of one's own, for a server that belongs to somebody else.

        The catalog is among them; a server that knows a catalog of this name keeps its own.
        """
        prefix = f"spark.sql.catalog.{self.catalog}"
        return {
            "spark.sql.iceberg.distribution-mode": "none",
            "spark.sql.session.timeZone": "UTC",
            prefix: _SPARK_CATALOG,
            **{f"{prefix}.{key}": value for key, value in self.catalog_settings().items()},
            **{f"{prefix}.hadoop.{key}": value for key, value in self.hadoop_settings().items()},
            **{key: value for key, value in self.spark_properties.items() if key.startswith("spark.sql.")},
        }


def _below(prefix: str, properties: Mapping[str, str]) -> dict[str, str]:
    return {key[len(prefix) :]: value for key, value in properties.items() if key.startswith(prefix)}


class SparkDriver:
    """Owns the JVM. One thread uses it; `alive` and `kill` may be called from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        launch: Launch | None = None,
        log_path: Path | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            config: What the session is made from.
            launch: Makes the JVM from options, log path and whether Spark is on its class path;
                `SparkGateway.from_environment` unless given.
            log_path: Where the JVM's output goes.
        """
        self.config = config
        self._launch = launch or _launched
        self._log_path = log_path
        self._alone = config.alone  # the JVM has no Spark, and needed none up to now
        self._gateway: SparkGateway | None = None
        self._client: ClientServer | None = None
        self._objects: dict[str, Any] = {}
        self._classes: JavaClasses | None = None
        self._connect: ConnectSession | None = None
        self._lock = threading.Lock()  # a session elsewhere is made for a JVM that is there, or not at all

    def start(self) -> None:
        """Launch the JVM, make the catalog and load our classes: half a second.

        Raises:
            CatalogUnavailableError: Java did not start (its log's last lines are in the message), or the catalog
                cannot be made.
            SparkLostError: Java or a jar is missing.
        """
        if self._gateway is not None:
            raise RuntimeError("the driver was started before")
        try:
            self._start()
        except ClassMissingError as why:
            self._alone = False
            log.info("%s: Java starts again, with all of Spark's classes", why)
            self._start()

    def _start(self) -> None:
        try:
            self._gateway = self._launch(self.config.jvm_options(), self._log_path, not self._alone)
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
            with self.errors("the catalog", of_table=False):
                self._start_catalog(self._client.jvm)
        except BaseException:
            self.kill()
            raise

    def alive(self) -> bool:
        """Whether the JVM exists. One that hangs does; see `deadline`."""
        return self._gateway is not None and self._gateway.running

    def stop(self) -> None:
        """End the JVM: ask first, then for certain. Does nothing when there is none."""
        with self._lock:
            gateway, self._gateway = self._gateway, None
        try:
            if gateway is not None:
                gateway.stop()
        finally:
            self._disconnect()  # last: a server that is away is given some seconds

    def kill(self) -> None:
        """End the JVM at once; whoever waits for it gets a `SparkDiedError`."""
        with self._lock:
            gateway, self._gateway = self._gateway, None
        if gateway is not None:
            gateway.kill()
        self._disconnect()

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
        """End what takes longer.

        A statement elsewhere is given up with its session and raises a `CatalogUnavailableError`; what comes after it
        has the same time again. Otherwise the JVM is killed, and the call inside then raises a `SparkDiedError`.
        """
        done = threading.Event()

        def watch() -> None:
            while not done.wait(seconds):
                connect = self._connect
                if connect is None or not connect.running:
                    log.error("Spark did not answer within %.0f s: its JVM is killed", seconds)
                    if (gateway := self._gateway) is None:
                        continue  # another JVM is being started
                    gateway.kill()
                    return
                log.error("Spark Connect did not end a statement within %.0f s: it is given up", seconds)
                connect.give_up(f"the statement did not end within {seconds:.0f} s and was given up")

        threading.Thread(target=watch, name="spark-deadline", daemon=True).start()
        try:
            yield
        finally:
            done.set()

    def start_session(self) -> bool:
        """Make the Spark session, unless there is one: two to three seconds of CPU.

        Returns whether it took another JVM: what was prepared in the one before is gone then.

        Raises:
            CatalogUnavailableError: Spark refuses, or its cluster is away.
        """
        replaced = False
        if self.config.remote:
            self._elsewhere()
        elif self._objects and "session" not in self._objects:
            if replaced := self._alone:
                self._with_spark("a Spark session is wanted")
            assert self._client is not None  # the objects are its
            with self.errors("the Spark session", of_table=False):
                self._start_spark(self._client.jvm)
        return replaced

    def _with_spark(self, why: str) -> None:
        """Replace the JVM by one that has Spark on its class path."""
        self._alone = False
        if self._gateway is None:
            raise SparkDiedError("Spark is not running")
        log.info("Java starts again, with all of Spark's classes: %s", why)
        self.restart()

    def _elsewhere(self) -> ConnectSession:
        """The session behind Spark Connect."""
        with self._lock:
            if self._gateway is None:
                raise SparkDiedError("Spark is not running")
            if self._connect is None:
                self._connect = ConnectSession(self.config.remote, self.config.remote_settings())
            connect = self._connect
        connect.start()
        return connect

    def java(self, name: str) -> Any:
        """One of our Java objects by class name, or the `session`. The first look at what needs Spark starts it."""
        if name not in self._objects and name in ("session", *SPARK_SOURCES):
            self.start_session()
        late = next((sources for sources in LATE_SOURCES if name in sources), ())
        if name not in self._objects and late and self._objects and self._classes is not None:
            self._classes.load(late)
            self._objects |= {each: self._classes.make(each, [self._objects["catalog"]]) for each in late}
        if not self._objects:
            raise SparkDiedError("Spark is not running")
        return self._objects[name]

    def call(self, subject: str, class_name: str, method: str, *arguments: Any) -> Any:
        """Call a method of one of our Java objects that answers with JSON text, and parse it.

        Raises:
            TableMissingError, TableForbiddenError, TableUnsuitableError, CatalogUnavailableError,
            CommitStateUnknownError: As the Java exception says; `subject` names the table.
        """
        try:
            with self.errors(subject):
                text = getattr(self.java(class_name), method)(*arguments)
        except ClassMissingError as why:
            self._with_spark(str(why))
            if class_name not in _FORGETFUL:
                raise
            return self.call(subject, class_name, method, *arguments)
        return json.loads(text) if text is not None else None

    def sql(self, statement: str, settings: Mapping[str, str] | None = None, subject: str | None = None) -> None:
        """Run one statement, with these settings of the session for its time. Subject and errors as for `call`."""
        subject = subject or statement.split("\n", 1)[0]
        if self.config.remote:
            self._elsewhere().run(subject, statement, settings or {})
            return
        session = self.java("session")
        with self.errors(subject):
            for key, value in (settings or {}).items():
                session.conf().set(key, value)
            try:
                session.sql(statement)
            finally:
                for key in settings or ():
                    session.conf().unset(key)

    @contextlib.contextmanager
    def errors(self, subject: str, *, of_table: bool = True) -> Iterator[None]:
        """Translate what py4j and Java raise, once, here. `of_table`: the subject is the name of one."""
        try:
            yield
        except Py4JJavaError as error:
            if self._alone and (lacking := lacks_a_class(error.java_exception)):
                raise ClassMissingError(f"{subject}: {lacking}") from error
            told = translated(subject, error.java_exception)
            if isinstance(told, TableError) and not of_table:
                told = ConnectError(f"{subject}: {told.why}")
            raise told from _java_error(error)
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

    def _start_catalog(self, jvm: Any) -> None:
        self._classes = JavaClasses(jvm)
        self._classes.load(ICEBERG_SOURCES)
        settings = self.config.catalog_settings()
        if self._alone and self.config.on_this_machine:  # for Spark, Hadoop's file systems are made in any case
            catalog = self._classes.make("LocalCatalog", [self.config.catalog, settings])
        else:
            hadoop = jvm.org.apache.hadoop.conf.Configuration()
            for key, value in self.config.hadoop_settings().items():
                hadoop.set(key, value)
            if self.config.in_folders or not self._alone:  # else it may not be needed, and takes a fifth of a second
                self._classes.make("LastingFileSystem", [hadoop])
            catalog = jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(self.config.catalog, settings, hadoop)
        made = {name: self._classes.make(name, [catalog]) for name in ("TableAccess", "TableCommit")}
        self._objects = {"catalog": catalog, **made}

    def _start_spark(self, jvm: Any) -> None:
        builder = jvm.org.apache.spark.sql.SparkSession.builder().config(_default_settings(jvm))
        for key, value in self.config.session_settings().items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        assert self._classes is not None  # the catalog came first
        self._classes.load(SPARK_SOURCES)
        arguments = [session, self._objects["catalog"], self._objects["TableCommit"], STAGE_CATALOG]
        self._objects |= {"session": session, "SparkJoin": self._classes.make("SparkJoin", arguments)}

    def _disconnect(self) -> None:
        with self._lock:
            connect, self._connect = self._connect, None
        if connect is not None:
            connect.close()
        client, self._client, self._objects = self._client, None, {}
        if client is not None:
            with contextlib.suppress(Py4JError, OSError):  # the JVM may be gone
                client.shutdown()


def _java_error(error: Py4JJavaError) -> JavaError:
    """What it says now: py4j asks the JVM each time, which may be gone then. Of long traces the beginnings."""
    try:
        text = str(error)
    except (Py4JError, OSError):  # it is gone already
        text = str(error.errmsg)
    lines: list[str] = []
    frames = 0
    for line in text.splitlines():
        frames = frames + 1 if line.startswith("\tat ") else 0
        if frames <= _JAVA_FRAMES and not line.startswith("\t... "):
            lines.append(line)
    return JavaError("\n".join(lines))


def _launched(options: Sequence[str], log_path: Path | None, with_spark: bool) -> SparkGateway:
    return SparkGateway.from_environment(options, log_path, with_spark=with_spark)


def _default_settings(jvm: Any) -> Any:
    """A configuration with what `spark-defaults.conf` says, which Spark itself reads on its own road only."""
    configuration = jvm.org.apache.spark.SparkConf()
    jvm.org.apache.spark.util.Utils.loadDefaultSparkProperties(configuration, None)
    return configuration

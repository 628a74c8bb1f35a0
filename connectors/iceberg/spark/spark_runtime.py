"""`SparkRuntime`: the JVM of a driver, and the PySpark session that all connectors' sessions come from.

pyspark keeps one session per Python process, so a process has one runtime.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.iceberg.spark.durable_files import force_local_files
from connectors.iceberg.spark.errors import CatalogUnavailableError, SparkLostError
from connectors.iceberg.spark.gateway import GRACE_SECONDS, SparkAbsentError, SparkGateway, SparkGatewayError
from connectors.iceberg.spark.java_errors import translating

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOOPBACK = "127.0.0.1"


class SparkRuntime:
    """Made and stopped by one owner."""

    def __init__(self, jvm_options: Sequence[str], settings: Mapping[str, str], log_path: Path | None = None) -> None:
        """Launch the JVM with a class archive, if there is one, and make the session in it.

        Args:
            jvm_options: `SparkConfig.jvm_options`.
            settings: `SparkConfig.static_settings`.
            log_path: Where the JVM's output goes; None: where that of this process goes.

        Raises:
            CatalogUnavailableError: Java or the session did not start.
            SparkLostError: Java or a jar is missing.
        """
        if settings.get("spark.driver.bindAddress") == _LOOPBACK:
            os.environ["SPARK_LOCAL_IP"] = _LOOPBACK  # else Spark warns of the machine's name
        try:
            self._gateway = SparkGateway(jvm_options, log_path)
        except SparkAbsentError as error:
            raise SparkLostError(str(error)) from error
        except SparkGatewayError as error:
            raise CatalogUnavailableError(str(error)) from error
        try:
            with translating("Spark", of_table=False):
                self.spark = self._session(settings)
        except BaseException:
            self._gateway.kill()
            raise

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._gateway.pid

    @property
    def running(self) -> bool:
        return self._gateway.running

    def new_session(self, settings: Mapping[str, str]) -> SparkSession:
        """A session with settings and catalogs of its own, in the same JVM."""
        session = self.spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        return session

    def activate(self, session: SparkSession) -> None:
        """Make a session that of this thread: what Iceberg makes in the JVM takes its settings from there."""
        jvm: Any = session._jvm
        jvm.SparkSession.setActiveSession(session._jsparkSession)

    def heap_bytes(self) -> int:
        """The part of the JVM's heap that is in use."""
        jvm: Any = self.spark._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def wait(self, seconds: float | None = None) -> None:
        """Return when the JVM has ended, or after this long."""
        self._gateway.wait(seconds)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """End the JVM; kill it if it has not ended by then."""
        self._gateway.stop(grace_seconds)

    def kill(self) -> None:
        self._gateway.kill()

    def _session(self, settings: Mapping[str, str]) -> SparkSession:
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self._gateway.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self._gateway.secret
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        SparkContext._ensure_initialized()
        jvm: Any = SparkContext._jvm
        force_local_files(jvm)  # before anything in the JVM asks for a file
        configuration = SparkConf()
        jvm.org.apache.spark.util.Utils.loadDefaultSparkProperties(configuration._jconf, None)  # spark-defaults.conf
        for key, value in settings.items():
            configuration.set(key, value)
        return SparkSession.builder.config(conf=configuration).getOrCreate()

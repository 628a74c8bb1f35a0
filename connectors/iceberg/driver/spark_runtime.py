"""`SparkRuntime`: the JVM of a driver, and the PySpark session that all connectors' sessions come
from.

pyspark keeps one session per Python process, so a process has one runtime.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.iceberg.catalog.java_errors import translating
from connectors.iceberg.catalog.own_classes import define_classes, use_durable_files
from connectors.iceberg.driver.gateway import SparkGateway

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_LOOPBACK = "127.0.0.1"


class SparkRuntime(SparkGateway):
    """Made and stopped by one owner."""

    def __init__(
        self, jvm_options: Sequence[str], settings: Mapping[str, str], log_path: Path | None = None
    ) -> None:
        """Launch the JVM with a class archive, if there is one, and make the session in it.

        Args:
            jvm_options: `SparkConfig.jvm_options`.
            settings: `SparkConfig.static_settings`.
            log_path: Where the JVM's output goes; None: where that of this process goes.

        Raises:
            CatalogUnavailableError: The JVM or the session did not start.
            SparkLostError: Java or a jar is missing.
        """
        if settings.get("spark.driver.bindAddress") == _LOOPBACK:
            os.environ["SPARK_LOCAL_IP"] = _LOOPBACK  # else Spark warns of the machine's name
        super().__init__(jvm_options, log_path)
        try:
            with translating("Spark", of_table=False):
                self.spark = self._session(settings)
        except BaseException:
            self.kill()
            raise

    def new_session(self, settings: Mapping[str, str]) -> SparkSession:
        """A session with settings and catalogs of its own, in the same JVM, and that of this
        thread.

        What Iceberg makes in the JVM takes its settings from the thread's session.
        """
        session = self.spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        jvm: Any = session._jvm
        jvm.SparkSession.setActiveSession(session._jsparkSession)
        return session

    def heap_bytes(self) -> int:
        """The part of the JVM's heap that is in use."""
        jvm: Any = self.spark._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def _session(self, settings: Mapping[str, str]) -> SparkSession:
        if "spark.pyspark.python" in settings:  # which `spark-submit` alone would read
            os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
        elif settings.get("spark.master", "local").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for functions of a user's own
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self.secret
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        _replace_numpy_converters()
        SparkContext._ensure_initialized()
        jvm: Any = SparkContext._jvm
        define_classes(SparkContext._gateway)
        use_durable_files(jvm)  # before anything in the JVM asks for a file
        configuration = SparkConf()
        # spark-defaults.conf
        jvm.org.apache.spark.util.Utils.loadDefaultSparkProperties(configuration._jconf, None)
        for key, value in settings.items():
            configuration.set(key, value)
        return SparkSession.builder.config(conf=configuration).getOrCreate()


def _replace_numpy_converters() -> None:
    """Replace pyspark's py4j converters of NumPy values by equivalents without their imports.

    py4j asks each converter about each argument. With the first argument, pyspark's converters
    import pyspark.testing, and with it pandas, unittest, and grpc where they are installed: 1.5 CPU
    seconds, half as much as the JVM needs.
    """
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    class QuickArrayConverter(NumpyArrayConverter):
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")  # not imported: no object is an array
            return numpy is not None and isinstance(obj, numpy.ndarray) and obj.ndim == 1

    class QuickScalarConverter(NumpyScalarConverter):
        def can_convert(self, obj: Any) -> bool:
            numpy = sys.modules.get("numpy")
            return numpy is not None and isinstance(obj, numpy.generic)

    replacements = {
        NumpyArrayConverter: QuickArrayConverter,
        NumpyScalarConverter: QuickScalarConverter,
    }
    for index, converter in enumerate(INPUT_CONVERTER):
        if (replacement := replacements.get(type(converter))) is not None:
            INPUT_CONVERTER[index] = replacement()

"""`SparkRuntime`: the JVM of a driver, and its first PySpark session.

All sessions of connectors are created from this session.

A process has one runtime, because pyspark supports one JVM per Python process.
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
    """Created and stopped by one owner."""

    def __init__(
        self, jvm_options: Sequence[str], settings: Mapping[str, str], log_path: Path | None = None
    ) -> None:
        """Launch the JVM with a class archive, if there is one, and create the session in it.

        Args:
            jvm_options: `SparkConfig.jvm_options`.
            settings: `SparkConfig.static_settings`.
            log_path: The JVM's output is appended here; None: it is written to the output of this
                process.

        Raises:
            CatalogUnavailableError: The JVM or the session did not start.
            SparkLostError: Java or a jar is missing.
        """
        if settings.get("spark.driver.bindAddress") == _LOOPBACK:
            os.environ["SPARK_LOCAL_IP"] = _LOOPBACK  # otherwise, Spark warns about the host name
        super().__init__(jvm_options, log_path)
        try:
            with translating("Spark", of_table=False):
                self.spark = self._session(settings)
        except BaseException:
            self.kill()
            raise

    def new_session(self, settings: Mapping[str, str]) -> SparkSession:
        """Create the active session of this thread, with its own settings and catalogs.

        Iceberg uses the settings of the thread's session.
        """
        session = self.spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        jvm: Any = session._jvm
        jvm.SparkSession.setActiveSession(session._jsparkSession)
        return session

    def heap_bytes(self) -> int:
        """Return the used part of the JVM's heap."""
        jvm: Any = self.spark._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def _session(self, settings: Mapping[str, str]) -> SparkSession:
        if "spark.pyspark.python" in settings:  # otherwise, only `spark-submit` reads it
            os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
        elif settings.get("spark.master", "local").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for users' functions
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

    def quick(converter: Any, numpy_type: str, dimensions: int) -> Any:
        def can_convert(obj: Any) -> bool:
            numpy = sys.modules.get("numpy")  # not imported: no object is of NumPy
            return (
                numpy is not None
                and isinstance(obj, getattr(numpy, numpy_type))
                and obj.ndim == dimensions
            )

        converter.can_convert = can_convert
        return converter

    replacements = {
        NumpyArrayConverter: quick(NumpyArrayConverter(), "ndarray", 1),
        NumpyScalarConverter: quick(NumpyScalarConverter(), "generic", 0),
    }
    INPUT_CONVERTER[:] = [replacements.get(type(each), each) for each in INPUT_CONVERTER]

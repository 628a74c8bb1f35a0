"""`SparkRuntime`: the JVM of a driver and its first PySpark session.

All connector sessions are created from the first session. A process has only one runtime, because
pyspark supports one JVM per Python process.
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
    """A Spark gateway with a session. Only its owner may stop it."""

    def __init__(
        self, jvm_options: Sequence[str], settings: Mapping[str, str], log_path: Path | None = None
    ) -> None:
        """Start the JVM, with a class archive if one exists, and create the session.

        Args:
            jvm_options: `SparkConfig.jvm_options`.
            settings: `SparkConfig.static_settings`.
            log_path: The file to which the JVM's output is appended. If None, the JVM shares the
                output of this process.

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
        """Create a session with its own settings and catalogs, and make it active in this thread.

        Iceberg uses the settings of the calling thread's active session.
        """
        session = self.spark.newSession()
        for key, value in settings.items():
            session.conf.set(key, value)
        jvm: Any = session._jvm
        jvm.SparkSession.setActiveSession(session._jsparkSession)
        return session

    def heap_bytes(self) -> int:
        """Return the number of bytes that are in use in the JVM heap."""
        jvm: Any = self.spark._jvm
        runtime = jvm.java.lang.Runtime.getRuntime()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def _session(self, settings: Mapping[str, str]) -> SparkSession:
        if "spark.pyspark.python" in settings:  # without `spark-submit`, Spark would ignore it
            os.environ["PYSPARK_PYTHON"] = settings["spark.pyspark.python"]
        elif settings.get("spark.master", "local").startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for user functions
        os.environ["PYSPARK_GATEWAY_PORT"] = str(self.port)
        os.environ["PYSPARK_GATEWAY_SECRET"] = self.secret
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        _replace_numpy_converters()
        SparkContext._ensure_initialized()
        jvm: Any = SparkContext._jvm
        define_classes(SparkContext._gateway)
        use_durable_files(jvm)  # before anything in the JVM opens a file
        configuration = SparkConf()
        # read spark-defaults.conf
        jvm.org.apache.spark.util.Utils.loadDefaultSparkProperties(configuration._jconf, None)
        for key, value in settings.items():
            configuration.set(key, value)
        return SparkSession.builder.config(conf=configuration).getOrCreate()


def _replace_numpy_converters() -> None:
    """Replace pyspark's py4j converters for NumPy values with equivalents that import nothing.

    py4j calls each converter for each argument. On the first argument, pyspark's converters import
    pyspark.testing, which imports pandas, unittest, and grpc if they are installed. This takes
    1.5 s of CPU time, half as much as starting the JVM.
    """
    from py4j.protocol import INPUT_CONVERTER
    from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

    def quick(converter: Any, numpy_type: str, dimensions: int) -> Any:
        def can_convert(obj: Any) -> bool:
            numpy = sys.modules.get("numpy")  # if it is not imported, there are no NumPy objects
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

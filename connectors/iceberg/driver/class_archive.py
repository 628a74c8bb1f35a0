r"""Training run of a driver JVM, after which Java archives the loaded classes.

    CONNECT_PY_JAVA=... CONNECT_PY_SPARK_JARS=... CONNECT_PY_SPARK_CLASSES=... \
        python -m connectors.iceberg.driver.class_archive -XX:ArchiveClassesAtExit=spark.jsa

`connect-py archives` runs this program to create the archive. Java writes the archive on exit,
and writing it takes longer than the run itself. Another JVM compiles the sink's Java classes first.
Therefore, this JVM loads the compiled classes as a driver does, and the archive does not contain
the compiler.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from py4j.java_gateway import GatewayParameters, JavaGateway

from connectors.iceberg.catalog.own_classes import define_classes
from connectors.iceberg.driver.gateway import SparkGateway
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.driver.warm_up import training_config, training_steps
from connectors.iceberg.protocol.commit_request import EngineSettings

_EXIT_SECONDS: Final = 180.0


def run(java_options: Sequence[str]) -> None:
    """Create tables, append, merge, and clean up in a JVM with these options.

    The tables are in a SQLite catalog.
    """
    with tempfile.TemporaryDirectory(prefix="connect-py-training-") as folder:
        config = training_config(Path(folder))
        with SparkGateway() as compiling:
            parameters = GatewayParameters(port=compiling.port, auth_token=compiling.secret)
            define_classes(JavaGateway(gateway_parameters=parameters))
        options = [*config.jvm_options(), *java_options]
        runtime = SparkRuntime(options, config.static_settings(), Path(folder) / "spark.log")
        try:
            for full_merge in (False, True):
                session = runtime.new_session(config.session_settings())
                lake = LakeSession(session, config.catalog, EngineSettings(full_merge=full_merge))
                for version in (3, 2):
                    for _ in training_steps(lake, f"t{version}{full_merge}", version):
                        pass
        finally:
            runtime.stop(_EXIT_SECONDS)


if __name__ == "__main__":
    # py4j logs an error for each remaining Java object after the JVM has exited
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    run(sys.argv[1:])

"""A Spark driver imports only the modules that its commits need, and none of pyspark's tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(400)  # a JVM starts, on a busy machine

PROGRAM = """
import sys
from pathlib import Path
import numpy
from connectors.iceberg.driver.lake_session import LakeSession
from connectors.iceberg.driver.spark_runtime import SparkRuntime
from connectors.iceberg.driver.warm_up import training_config, training_steps
from connectors.iceberg.protocol.commit_request import EngineSettings

folder = Path(sys.argv[1])
config = training_config(folder)
runtime = SparkRuntime(config.jvm_options(), config.static_settings(), folder / "spark.log")
try:
    session = runtime.new_session(config.session_settings())
    for _ in training_steps(LakeSession(session, config.catalog, EngineSettings()), "t", 2):
        pass
    print(sorted({"pandas", "unittest", "pyspark.testing"} & sys.modules.keys()))
    print(session._jvm.java.util.Arrays.toString(numpy.array([1, 2])), session._jvm.Math.abs(numpy.int64(-3)))
finally:
    runtime.stop()
"""  # noqa: E501 - a table or a literal is wider


# in every run: test_plain_small_commit_makes_few_calls_one_statement_and_two_jobs
@pytest.mark.long
@pytest.mark.usefixtures("spark_environment")
def test_driver_commits_without_pandas_and_still_passes_numpy_values_to_java(
    tmp_path: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[1, 2] 3"]

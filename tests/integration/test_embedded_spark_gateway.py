"""The JVM for Spark: started by us, used by pyspark, ended with us. Needs the jars of the spark lock."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from connectors.iceberg.spark.gateway import SparkGateway, SparkGatewayError

QUICK = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def test_pyspark_uses_our_jvm_and_finds_iceberg_and_sqlite_in_it(
    spark_environment: dict[str, str], tmp_path: Path
) -> None:
    # In a process of its own: pyspark keeps one gateway per process for ever.
    program = textwrap.dedent("""
        import os, shlex, sys
        from pathlib import Path
        from connectors.iceberg.spark.gateway import SparkGateway
        with SparkGateway.from_environment(shlex.split(sys.argv[1]), Path(sys.argv[2])) as gateway:
            os.environ.update(gateway.environment())
            from pyspark.sql import SparkSession
            spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
            print(spark.range(7).count(), spark._jvm.java.lang.ProcessHandle.current().pid() == gateway.pid)
            load = spark._jvm.java.lang.Class.forName
            names = ("org.apache.iceberg.spark.SparkCatalog", "org.sqlite.JDBC")
            print(*[load(name).getSimpleName() for name in names])
            print(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
            spark.stop()
        print(gateway.running)
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, shlex.join(QUICK), tmp_path / "spark.log"],
        capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counted, classes, temporary, running = done.stdout.splitlines()
    assert counted == "7 True"
    assert classes == "SparkCatalog JDBC"
    assert not Path(temporary).exists()
    assert running == "False"
    assert "incubator" not in (tmp_path / "spark.log").read_text()


def test_jvm_dies_with_a_killed_owner_even_when_it_hangs(spark_environment: dict[str, str]) -> None:
    program = textwrap.dedent("""
        import shlex, sys, threading, time
        from connectors.iceberg.spark.gateway import SparkGateway
        made = []
        starter = threading.Thread(target=lambda: made.append(SparkGateway.from_environment(shlex.split(sys.argv[1]))))
        starter.start()
        starter.join()
        time.sleep(0.2)  # the end of the starting thread must not end the JVM
        print(made[0].pid, made[0].running, flush=True)
        time.sleep(60)
    """)
    owner = subprocess.Popen([sys.executable, "-c", program, shlex.join(QUICK)], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        pid, running = owner.stdout.readline().split()
        assert running == "True"
        java = psutil.Process(int(pid))
        java.suspend()
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait(10)
        psutil.wait_procs([java], timeout=10)
        assert not java.is_running() or java.status() == psutil.STATUS_ZOMBIE


def test_jvm_that_cannot_start_says_why(spark_environment: dict[str, str]) -> None:
    with pytest.raises(SparkGatewayError, match="Too small maximum heap"):
        SparkGateway.from_environment(["-Xmx1"])


def test_missing_jar_is_named(tmp_path: Path) -> None:
    with pytest.raises(SparkGatewayError, match=r"gone\.jar"):
        SparkGateway(Path(sys.executable), [tmp_path / "gone.jar"])


def test_missing_variables_are_named() -> None:
    with pytest.raises(SparkGatewayError, match="CONNECT_PY_JAVA and CONNECT_PY_SPARK_JARS"):
        SparkGateway.from_environment(environment={})

"""The JVM for Spark: started by us, reached by py4j, ended with us. Needs the jars of the spark
lock."""

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
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

from connectors.iceberg.config.spark_config import JARS_VARIABLE
from connectors.iceberg.driver.gateway import JAVA_VARIABLE, SparkGateway
from connectors.iceberg.errors import CatalogUnavailableError, SparkLostError

QUICK = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def test_jvm_listens_with_iceberg_spark_and_sqlite_on_its_classpath(
    spark_environment: dict[str, str], tmp_path: Path
) -> None:
    log = tmp_path / "spark.log"
    with SparkGateway(QUICK, log) as gateway:
        client = ClientServer(
            java_parameters=JavaParameters(port=gateway.port, auth_token=gateway.secret),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )
        jvm = client.jvm
        assert jvm.java.lang.ProcessHandle.current().pid() == gateway.pid
        for name in (
            "org.apache.iceberg.spark.SparkCatalog",
            "org.apache.spark.sql.SparkSession",
            "org.sqlite.JDBC",
        ):
            assert jvm.java.lang.Class.forName(name).getName() == name
        temporary = Path(jvm.java.lang.System.getProperty("java.io.tmpdir"))
        assert temporary.is_dir()
        assert gateway.secret not in log.read_text()
        client.shutdown()
    assert not gateway.running
    assert not temporary.exists()
    assert "incubator" not in log.read_text()


def test_jvm_dies_with_a_killed_owner_even_when_it_hangs(spark_environment: dict[str, str]) -> None:
    program = textwrap.dedent("""
        import shlex, sys, threading, time
        from connectors.iceberg.driver.gateway import SparkGateway
        made = []
        starter = threading.Thread(target=lambda: made.append(SparkGateway(shlex.split(sys.argv[1]))))
        starter.start()
        starter.join()
        time.sleep(0.2)  # the end of the starting thread must not end the JVM
        print(made[0].pid, made[0].running, flush=True)
        time.sleep(60)
    """)  # noqa: E501 - a table or a literal is wider
    owner = subprocess.Popen(
        [sys.executable, "-c", program, shlex.join(QUICK)], stdout=subprocess.PIPE, text=True
    )
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


def test_jvm_that_cannot_start_says_why(spark_environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(CatalogUnavailableError, match="Too small maximum heap"):
        SparkGateway(["-Xmx1"], tmp_path / "spark.log")


@pytest.mark.parametrize(
    ("java", "jar", "told"),
    [
        ("no/java", __file__, "no/java could not be started"),
        (sys.executable, "no/gone.jar", r"missing: no/gone\.jar"),
    ],
)
def test_java_or_a_jar_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, java: str, jar: str, told: str
) -> None:
    monkeypatch.setenv(JAVA_VARIABLE, java)
    monkeypatch.setenv(JARS_VARIABLE, jar)
    with pytest.raises(SparkLostError, match=told):
        SparkGateway()


def test_what_to_do_comes_before_the_variables_that_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = (
        r"^Spark cannot start: .*: run `connect-py jars spark` .* \(CONNECT_PY_JAVA and "
        r"CONNECT_PY_SPARK_JARS not set"
    )
    for name in (JAVA_VARIABLE, JARS_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SparkLostError, match=told):
        SparkGateway()


def test_java_output_before_listening_is_not_parsed_as_the_address(
    spark_environment: dict[str, str],
) -> None:
    with SparkGateway([*QUICK, "--show-version"]) as gateway:
        assert gateway.port > 0
        assert gateway.running

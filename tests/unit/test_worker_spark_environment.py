"""Spark environment that a worker exports to its processes, and warnings if Spark is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connect_py import worker_process
from connect_py.embedded import spark_environment
from connect_py.embedded.cache_directory import CACHE_VARIABLE
from connect_py.embedded.java_runtime import JavaNotFoundError
from connectors.iceberg.driver.gateway import (
    JARS_VARIABLE,
    JAVA_VARIABLE,
    PROBLEM_VARIABLE,
    why_absent,
)


@pytest.fixture(autouse=True)
def _no_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert PROBLEM_VARIABLE == spark_environment.PROBLEM_VARIABLE
    # restores the variable after the test
    monkeypatch.setenv(PROBLEM_VARIABLE, "of an earlier start")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    for name in (JAVA_VARIABLE, JARS_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_worker_without_spark_jars_warns_and_names_the_command(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker_process._export_spark_environment()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "run `connect-py jars spark` and restart the worker" in caplog.text
    assert "run `connect-py jars spark` and restart the worker" in (why_absent(os.environ) or "")


def test_connectors_are_told_that_java_is_missing_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def find_java() -> None:
        raise JavaNotFoundError(
            ("JAVA_HOME: /opt/java8/bin/java is Java 8, and 17 or newer is needed",)
        )

    monkeypatch.setattr(spark_environment, "find_java", find_java)
    monkeypatch.setenv(JARS_VARIABLE, str(tmp_path / "iceberg.jar"))
    worker_process._export_spark_environment()
    assert why_absent(os.environ) == (
        "Spark cannot start: no Java 17 to 21 found: JAVA_HOME: /opt/java8/bin/java is Java "
        "8, and 17 or newer is needed: install Java 17 or 21, or set JAVA_HOME, and restart the "
        "worker (CONNECT_PY_JAVA not set)"
    )

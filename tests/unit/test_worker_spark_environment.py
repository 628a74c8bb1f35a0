"""What a worker says at its start about Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect_py import worker_process
from connect_py.embedded.cache_directory import CACHE_VARIABLE


def test_worker_without_spark_jars_warns_and_names_the_command(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.delenv("CONNECT_PY_SPARK_JARS", raising=False)
    worker_process._export_spark_environment()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "run `connect-py jars spark` and restart the worker" in caplog.text

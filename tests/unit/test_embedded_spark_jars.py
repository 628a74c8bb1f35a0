"""Jars in addition to Spark's: S3's library only if it was downloaded, and after the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from connect_py.embedded.cache_directory import CACHE_VARIABLE
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.spark_environment import spark_jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide an empty cache whose jars are not verified."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(
        JarLock, "resolve", lambda self: [tmp_path / jar.file_name for jar in self.jars]
    )
    return tmp_path


def test_s3s_library_is_not_fetched_unasked(cache: Path) -> None:
    assert [jar.name for jar in spark_jars()] == [
        jar.file_name for jar in JarLock.shipped("spark").jars
    ]


def test_s3s_library_comes_last_once_it_was_fetched(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3 = s3_folder(cache)
    monkeypatch.setattr(JarLock, "complaints", lambda self, folder: [])
    assert spark_jars()[-1].name == s3.jars[-1].file_name
    assert len(spark_jars()) == len(JarLock.shipped("spark").jars) + 1


def test_damaged_s3_library_is_left_out_with_a_warning(
    cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    s3 = s3_folder(cache)
    (cache / "jars" / f"s3-{s3.fingerprint}" / s3.jars[0].file_name).write_bytes(b"half of it")
    assert [jar.name for jar in spark_jars()] == [
        jar.file_name for jar in JarLock.shipped("spark").jars
    ]
    assert "omitting the S3 library" in caplog.text
    assert "connect-py jars s3" in caplog.text


def s3_folder(cache: Path) -> JarLock:
    """A folder of S3's jars, without them."""
    s3 = JarLock.shipped("s3")
    (cache / "jars" / f"s3-{s3.fingerprint}").mkdir(parents=True)
    return s3

"""Start-up archives: made once, never half, never needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from connect_py.embedded.class_data_archive import ClassDataArchive
from connect_py.embedded.java_runtime import JavaRuntime


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassDataArchive:
    monkeypatch.setenv("CONNECT_PY_CACHE", str(tmp_path / "cache"))
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"jar")
    base = tmp_path / "jvm" / "lib" / "server" / "classes.jsa"
    base.parent.mkdir(parents=True)
    base.touch()
    return ClassDataArchive("broker", JavaRuntime(tmp_path / "jvm" / "bin" / "java", 21), (jar,))


def write_archive(options: Sequence[str]) -> None:
    Path(options[0].partition("=")[2]).write_bytes(b"classes")


def test_without_an_archive_there_are_no_options(archive: ClassDataArchive) -> None:
    assert archive.options() == []


def test_archive_is_recorded_once_and_then_used(archive: ClassDataArchive) -> None:
    assert archive.record(write_archive)
    assert f"-XX:SharedArchiveFile={archive.path}" in archive.options()
    assert not archive.record(write_archive)


def test_run_that_fails_leaves_no_half_archive(archive: ClassDataArchive) -> None:
    def fail(options: Sequence[str]) -> None:
        write_archive(options)
        raise OSError("killed while writing")

    with pytest.raises(OSError, match="killed"):
        archive.record(fail)
    assert archive.options() == []
    assert not list(archive.path.parent.glob("*.unfinished"))


def test_run_that_writes_nothing_is_no_success(archive: ClassDataArchive) -> None:
    assert not archive.record(lambda options: None)


def test_changed_jar_gets_another_class_data_archive_path(archive: ClassDataArchive) -> None:
    before = archive.path
    archive.jars[0].write_bytes(b"a newer jar")
    assert archive.path != before


def test_java_without_an_archive_of_its_own_is_not_asked(archive: ClassDataArchive) -> None:
    (archive.java.home / "lib" / "server" / "classes.jsa").unlink()
    assert not archive.record(write_archive)
    assert archive.options() == []

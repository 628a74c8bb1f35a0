"""SQLite's library for the JVM: taken out of the driver's jar once, and left to the driver where that cannot be."""

from __future__ import annotations

import os
import platform
import sys
import zipfile
from pathlib import Path

import pytest

from connectors.iceberg.spark.sqlite_library import library_options

LIBRARY = "libsqlitejdbc.so"
linux = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="elsewhere the driver does it"
)


def driver(folder: Path, entry: str) -> Path:
    jar = folder / "sqlite-jdbc-3.54.1.0.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr(entry, b"library")
    return jar


@linux
def test_library_is_taken_out_of_the_jar_once_and_named_to_the_driver(tmp_path: Path) -> None:
    jar = driver(tmp_path, f"org/sqlite/native/Linux/{platform.machine()}/{LIBRARY}")
    kept = tmp_path / "kept"
    options = library_options([tmp_path / "iceberg.jar", jar], kept)
    (library,) = kept.glob("*/*")
    assert options == [f"-Dorg.sqlite.lib.path={library.parent}", f"-Dorg.sqlite.lib.name={LIBRARY}"]
    assert library.read_bytes() == b"library"
    before = library.stat().st_ino
    assert library_options([jar], kept) == options
    assert library.stat().st_ino == before
    library.write_bytes(b"lib")  # the machine died while it was written
    assert library_options([jar], kept) == options
    assert library.read_bytes() == b"library"
    os.utime(jar, (1, 1))  # another jar of this name
    assert library_options([jar], kept) != options


@linux
@pytest.mark.parametrize("content", [b"", b"not a jar"])
def test_driver_helps_itself_where_its_jar_holds_no_such_library(tmp_path: Path, content: bytes) -> None:
    jar = driver(tmp_path, "org/sqlite/JDBC.class")
    assert library_options([jar], tmp_path / "kept") == []
    jar.write_bytes(content)
    assert library_options([jar], tmp_path / "kept") == []
    assert not list((tmp_path / "kept").glob("*/*"))


@linux
def test_driver_helps_itself_where_the_folder_cannot_be_written(tmp_path: Path) -> None:
    jar = driver(tmp_path, f"org/sqlite/native/Linux/{platform.machine()}/{LIBRARY}")
    (tmp_path / "kept").write_text("a file in its place")
    assert library_options([jar], tmp_path / "kept") == []
    assert library_options([], tmp_path / "other") == []

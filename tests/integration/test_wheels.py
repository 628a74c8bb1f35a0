"""Wheels: one serves all versions of Python 3, with the compiled libraries of its platform or
without any."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest
from wheels import ROOT, build_wheel, copy_sources

pytestmark = pytest.mark.timeout(400)  # the libraries are compiled


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def description(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        return archive.read(name).decode()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust compiler is installed")
def test_compiled_wheel_fits_its_platform_and_every_python_3(tmp_path: Path) -> None:
    wheel = build_wheel(copy_sources(tmp_path / "sources"), tmp_path / "made")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    assert {"connect_py/converters/native/_decoder.so", "connect_py/task/_reader.so"} <= names(
        wheel
    )
    assert "Root-Is-Purelib: false" in description(wheel)


@pytest.mark.long
def test_wheel_built_without_rust_compiler_fits_every_platform(tmp_path: Path) -> None:
    sources, nothing = copy_sources(tmp_path / "sources"), tmp_path / "nothing"
    nothing.mkdir()
    stale = sources / "build" / "lib" / "connect_py"
    stale.mkdir(parents=True)
    (stale / "removed.py").touch()
    wheel = build_wheel(sources, tmp_path / "made", {"PATH": str(nothing)})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in names(wheel) if name.endswith((".so", "/removed.py"))] == []
    page = ROOT / "rest" / "ui" / "static"
    assert {f"rest/ui/static/{file.name}" for file in page.iterdir()} <= names(wheel)
    assert "Root-Is-Purelib: true" in description(wheel)


def test_make_installs_no_tools_for_tests() -> None:
    def commands(target: str) -> str:
        """What make would run in a checkout where nothing was installed yet."""
        made = subprocess.run(
            ["make", "--dry-run", "--always-make", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return made.stdout

    assert "pip install" in commands("install")
    assert "dev]" not in commands("install")
    for target in ("dev", "lint", "test-logic", "test-parts", "test-workers"):
        assert "dev]" in commands(target), target

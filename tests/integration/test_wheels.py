"""Wheels fit one platform and all versions of Python 3, and contain the native libraries."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest
from wheels import ROOT, build_wheel, copy_sources, run_build

pytestmark = pytest.mark.timeout(400)  # compiles the libraries


def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def description(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        return archive.read(name).decode()


@pytest.mark.long
@pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust compiler is installed")
def test_compiled_wheel_fits_its_platform_and_every_python_3(tmp_path: Path) -> None:
    wheel = build_wheel(copy_sources(tmp_path / "sources"), tmp_path / "wheels")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")
    assert {"connect_py/converters/native/_decoder.so", "connect_py/task/sink/_reader.so"} <= names(
        wheel
    )
    assert "Root-Is-Purelib: false" in description(wheel)


@pytest.mark.long
def test_wheel_without_rust_compiler_fails_and_names_the_remedies(tmp_path: Path) -> None:
    no_compiler = tmp_path / "empty"
    no_compiler.mkdir()
    sources = copy_sources(tmp_path / "sources")
    result = run_build(sources, tmp_path / "wheels", {"PATH": str(no_compiler)})
    assert result.returncode != 0
    assert "cannot build a wheel without the native libraries" in result.stderr + result.stdout
    assert "CONNECT_PY_PURE_WHEEL=1" in result.stderr + result.stdout
    assert list((tmp_path / "wheels").glob("*.whl")) == []


@pytest.mark.long
def test_pure_wheel_fits_every_platform_and_contains_no_libraries(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    stale = sources / "build" / "lib" / "connect_py"
    stale.mkdir(parents=True)
    (stale / "removed.py").touch()
    wheel = build_wheel(sources, tmp_path / "wheels", {"CONNECT_PY_PURE_WHEEL": "1"})
    assert wheel.name.endswith("-py3-none-any.whl")
    assert [name for name in names(wheel) if name.endswith((".so", "/removed.py"))] == []
    page = ROOT / "rest" / "ui" / "static"
    assert {f"rest/ui/static/{file.name}" for file in page.iterdir()} <= names(wheel)
    assert "Root-Is-Purelib: true" in description(wheel)


def test_make_installs_no_tools_for_tests() -> None:
    def commands(target: str) -> str:
        """Return the commands of make in a checkout without an installation."""
        dry_run = subprocess.run(
            ["make", "--dry-run", "--always-make", target],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return dry_run.stdout

    assert "pip install" in commands("install")
    assert "dev]" not in commands("install")
    for target in ("dev", "lint", "test-logic", "test-parts", "test-workers"):
        assert "dev]" in commands(target), target

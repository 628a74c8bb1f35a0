"""A user's way: the wheel, an empty environment, no constraints, no compiler; then the quickstart,
and the demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from wheels import build_wheel, copy_sources

from connect_py.embedded.postgres import PostgresError, find_postgres

INSTALL_SECONDS = 400
RUN_SECONDS = 240
DEMO_SECONDS = 360
OLDEST = (3, 11)
# Hadoop runs some
SYSTEM_TOOLS = (
    "bash",
    "cat",
    "chmod",
    "dirname",
    "env",
    "hostname",
    "id",
    "ls",
    "ln",
    "readlink",
    "rm",
    "setpriv",
    "sh",
    "stat",
    "uname",
)
pytestmark = pytest.mark.timeout(INSTALL_SECONDS + RUN_SECONDS + DEMO_SECONDS + 60)


@cache
def interpreters() -> dict[tuple[int, int], Path]:
    """Return supported Pythons by version, from the path and from pyenv."""
    folders = [Path(each) for each in os.environ.get("PATH", "").split(os.pathsep)]
    folders += sorted(
        Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv").glob("versions/*/bin")
    )
    found: dict[tuple[int, int], Path] = {}
    for path in (path for folder in folders for path in folder.glob("python3.*")):
        version = re.fullmatch(r"python3\.(\d+)", path.name)
        if version and (3, int(version[1])) >= OLDEST and (python := _real(path)):
            found.setdefault((3, int(version[1])), python)
    return found


def _real(python: Path) -> Path | None:
    """The program that this path leads to, which may be a shim of pyenv; None: it lacks what
    `python -m venv` needs."""
    ask = [str(python), "-c", "import ensurepip, sys, venv; print(sys.executable)"]
    done = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=False)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(copy_sources(folder / "sources"), folder / "made")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Provide a folder for an environment, which takes a gigabyte."""
    yield tmp_path
    shutil.rmtree(tmp_path / "installed", ignore_errors=True)


@pytest.mark.long
@pytest.mark.parametrize("which", ["oldest", "newest"])
def test_wheel_installs_without_a_compiler_and_runs_the_quickstart(
    wheel: Path, home: Path, which: str
) -> None:
    python = _interpreter(which)
    tools = home / "tools"  # the whole path of all that runs here: no compiler, no Java
    tools.mkdir()
    for name in SYSTEM_TOOLS:
        if (found := shutil.which(name)) is not None:
            (tools / name).symlink_to(found)
    environment = {
        **{k: v for k, v in os.environ.items() if not _leads_elsewhere(k)},
        "PATH": str(tools),
    }

    def run(seconds: int, *command: str | Path) -> str:
        done = subprocess.run(
            command,
            cwd=home,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    run(60, python, "-m", "venv", home / "installed")
    commands = home / "installed" / "bin"
    run(INSTALL_SECONDS, commands / "python", "-m", "pip", "install", "--quiet", f"{wheel}[java]")
    assert "No broken requirements" in run(60, commands / "python", "-m", "pip", "check")
    loaded = (
        "from connect_py.converters.native.decoder import library; assert library() is not None"
    )
    run(60, commands / "python", "-c", loaded)
    shown = run(
        RUN_SECONDS, commands / "connect-py", "quickstart", "--seconds", "8", "--rate", "50"
    )
    assert "the tables hold exactly these" in " ".join(shown.split())
    if which == "newest" and has_postgres():
        # Debezium on the Java that the wheel brings
        run(DEMO_SECONDS, commands / "connect-py", "demo", "--tour")


def has_postgres() -> bool:
    """Return True if PostgreSQL's server is installed; otherwise, the demo's own tests are
    skipped.
    """
    try:
        find_postgres()
    except PostgresError:
        return False
    return True


def _interpreter(which: str) -> Path:
    found = interpreters()
    if which == "oldest":
        if OLDEST not in found:
            pytest.skip("no Python 3.11 with venv is installed")
        return found[OLDEST]
    if max(found, default=OLDEST) == OLDEST:
        pytest.skip("no Python newer than 3.11 is installed")
    return found[max(found)]


def _leads_elsewhere(variable: str) -> bool:
    """Variables that would bring in constraints, another Java, or modules of this environment."""
    return variable in ("PIP_CONSTRAINT", "JAVA_HOME", "PYTHONPATH", "VIRTUAL_ENV", "CC", "CXX")

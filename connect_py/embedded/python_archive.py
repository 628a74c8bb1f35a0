"""Archive of this Python environment for Spark executors, used with `spark.archives`.

It contains the interpreter, its standard library, and the installed distributions that connect-py
and other plugins require. It does not contain jars, which executors receive from the driver. It
runs on machines with the same operating system and processor architecture as this machine.
"""

from __future__ import annotations

import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from connect_py.api.errors import ConnectError

OWN: Final = "connect-py"
PYTHON: Final = "bin/python3"  # path in the archive
_PLUGINS: Final = "connect_py.plugins"
_PACKAGES: Final = ("connect_py", "connectors", "transforms", "rest")
_LEFT_OUT: Final = frozenset(
    {"__pycache__", "test", "tests", "idlelib", "ensurepip", "site-packages", "turtledemo"}
)
_NOT_NEEDED: Final = ("pyspark/jars/", "pyspark/examples/", "pyspark/data/")
# The interpreter locates its libraries and modules relative to itself, so the folder can be moved.
_START: Final = """\
#!/bin/sh
home=$(cd "$(dirname "$0")/.." && pwd)
export PYTHONHOME="$home" LD_LIBRARY_PATH="$home/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
exec "$home/bin/interpreter" "$@"
"""


class PythonArchiveError(ConnectError):
    """A required distribution is missing."""


def write_archive(path: Path, report: Callable[[str], None] = lambda _: None) -> int:
    """Write the archive and return the number of files in it.

    Args:
        path: Path of the `.tar.gz` file, which is replaced atomically.
        report: Called with the name of each distribution before it is added.

    Raises:
        PythonArchiveError: A required distribution is not installed.
        OSError: The file cannot be written.
    """
    library = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"
    count = 0
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        scratch = Path(file.name)
    try:
        with tarfile.open(scratch, "w:gz", compresslevel=3) as archive:
            for name, source in _members(library, report):
                archive.add(source, name, recursive=False)
                count += 1
        scratch.chmod(0o644)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return count


def _members(library: str, report: Callable[[str], None]) -> Iterator[tuple[str, Path]]:
    """Yield each file's name in the archive and its source path."""
    report("the interpreter")
    with tempfile.TemporaryDirectory(prefix="connect-py-archive-") as folder:
        yield PYTHON, _written(Path(folder, "python3"), _START, 0o755)
        yield from _interpreter(library)
        report(OWN)
        for package in _PACKAGES:
            for location in getattr(find_spec(package), "submodule_search_locations", None) or ():
                yield from _tree(Path(location), f"{library}/site-packages/{package}")
        connect_py = metadata.distribution(OWN)
        info = f"{library}/site-packages/connect_py-{connect_py.version}.dist-info"
        files = {
            "METADATA": f"Metadata-Version: 2.1\nName: {OWN}\nVersion: {connect_py.version}\n",
            "entry_points.txt": connect_py.read_text("entry_points.txt") or "",
        }
        for name, contents in files.items():
            yield f"{info}/{name}", _written(Path(folder, name), contents, 0o644)
        for distribution in _distributions():
            report(distribution.name)
            yield from _files(distribution, f"{library}/site-packages")


def _interpreter(library: str) -> Iterator[tuple[str, Path]]:
    yield "bin/interpreter", Path(sys.executable).resolve()
    shared = sysconfig.get_config_var("LDLIBRARY") or ""
    for file in Path(sysconfig.get_config_var("LIBDIR") or "").glob(f"{shared}*"):
        if shared.startswith("libpython") and ".so" in shared:
            yield f"lib/{file.name}", file.resolve()
    yield from _tree(Path(sysconfig.get_paths()["stdlib"]), library)


def _distributions() -> list[metadata.Distribution]:
    """Return the distributions that connect-py and plugins require, directly or transitively."""
    roots = [
        OWN,
        *{
            entry.dist.name
            for entry in metadata.entry_points(group=_PLUGINS)
            if entry.dist is not None
        },
    ]
    distributions: dict[str, metadata.Distribution] = {}
    visited: set[tuple[str, str]] = set()
    pending = [(name, "") for name in roots]
    while pending:
        name, extra = pending.pop()
        if (canonicalize_name(name), extra) in visited:
            continue
        visited.add((canonicalize_name(name), extra))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError as error:
            raise PythonArchiveError(f"{name} is required but not installed") from error
        if canonicalize_name(name) != OWN:
            distributions[canonicalize_name(name)] = distribution
        pending += _needed(distribution, extra)
    return [distributions[name] for name in sorted(distributions)]


def _needed(distribution: metadata.Distribution, extra: str) -> Iterator[tuple[str, str]]:
    """Yield a distribution's requirements in this environment, together with their extras."""
    for line in distribution.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield requirement.name, ""
            yield from ((requirement.name, each) for each in requirement.extras)


def _files(distribution: metadata.Distribution, folder: str) -> Iterator[tuple[str, Path]]:
    for file in distribution.files or ():
        path = PurePosixPath(file)
        source = Path(str(distribution.locate_file(file)))
        if (
            path.parts[0] == ".."
            or "__pycache__" in path.parts
            or str(path).startswith(_NOT_NEEDED)
        ):
            continue
        if source.is_file():
            yield f"{folder}/{path}", source


def _tree(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    for entry in sorted(root.iterdir()):
        if entry.name in _LEFT_OUT or entry.name.startswith("config-"):
            continue
        if entry.is_dir():
            yield from _tree(entry, f"{name}/{entry.name}")
        elif entry.is_file():
            yield f"{name}/{entry.name}", entry


def _written(path: Path, text: str, mode: int) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path

"""SQLite's library for the JVM, taken out of its driver's jar once and not at each start.

The driver would write it to a temporary folder and compare the two copies byte by byte: a fifteenth of the CPU time
until the first commit. It still does where the library that it is told of is missing or cannot be loaded.
"""

from __future__ import annotations

import logging
import os
import platform
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from connectors.iceberg.spark.kept_file import keep

log = logging.getLogger(__name__)

_LIBRARY: Final = "libsqlitejdbc.so"
_MACHINES: Final = ("x86_64", "aarch64")  # called so by both Python and the driver


def library_options(jars: Sequence[Path], folder: Path) -> list[str]:
    """JVM options that name the library, once it is in the folder; none where the driver should help itself.

    Args:
        jars: The class path; the driver's jar may be among them.
        folder: Where libraries are kept; made if missing.
    """
    drivers = [jar for jar in jars if "sqlite-jdbc" in jar.name]
    if len(drivers) != 1 or not _has_glibc() or platform.machine() not in _MACHINES:
        return []
    try:
        status = drivers[0].stat()
        place = folder / f"{drivers[0].stem}-{status.st_size}-{status.st_mtime_ns}-{platform.machine()}"
        with zipfile.ZipFile(drivers[0]) as jar:
            library = jar.getinfo(f"org/sqlite/native/Linux/{platform.machine()}/{_LIBRARY}")
            kept = place / _LIBRARY
            if not kept.is_file() or kept.stat().st_size != library.file_size:  # a machine may die while it is written
                keep(kept, jar.read(library))
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        log.debug("SQLite's library is not kept: %s", error)
        return []
    return [f"-Dorg.sqlite.lib.path={place}", f"-Dorg.sqlite.lib.name={_LIBRARY}"]


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError, AttributeError):  # another system, or musl
        return False

"""The sink's Java classes. They are compiled once, and defined in the JVM of each Spark driver.

| class | why it is not written in Python |
|---|---|
| `DurableFileSystem` | Hadoop calls it for every local file to force the file to disk |
| `RecordedTable` | Spark calls it while it plans and runs a MERGE |
| `RecordedCatalog` | Spark creates it to look up recorded tables by name |

The Janino compiler that ships with Spark compiles the sources. The bytecode is cached in the folder
CONNECT_PY_SPARK_CLASSES, which may be emptied at any time. The classes are defined in the system
class loader, because Spark and Iceberg look up classes by name there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

# folder that caches compiled classes; if the variable is unset, classes are not cached
CLASSES_VARIABLE: Final = "CONNECT_PY_SPARK_CLASSES"
# each class is listed after the classes that it uses
_SOURCES: Final = [
    Path(__file__).with_name(f"{name}.java")
    for name in ("DurableFileSystem", "RecordedTable", "RecordedCatalog")
]
_FILE_SYSTEM: Final = "connectpy.DurableFileSystem"
_KEY: Final = "fs.file.impl"


def define_classes(gateway: Any) -> None:
    """Define the classes in a JVM. Call this before anything in the JVM uses them.

    Args:
        gateway: A py4j gateway to the JVM.
    """
    jvm = gateway.jvm
    cache = _cache_file(jvm)
    if cache is not None and (cached := _read(cache)) is not None:
        for name, code in cached.items():
            _define(gateway, name, code)
        return
    compiled: dict[str, bytes] = {}
    for source in _SOURCES:
        for name, code in _compile(jvm, source).items():
            _define(gateway, name, code)
            compiled[name] = code
    if cache is not None:
        _write(cache, compiled)


def use_durable_files(jvm: Any) -> None:
    """Configure Hadoop to force local files to disk on close, and folders when an entry changes.

    Hadoop creates one local file system per JVM, from the first configuration that requests it. A
    file system that the user configured is not replaced. If Kerberos is configured, nothing is
    changed, because Hadoop would try to log in.
    """
    configuration = jvm.org.apache.hadoop.conf.Configuration()
    if (
        configuration.get(_KEY)
        or configuration.get("hadoop.security.authentication", "simple") != "simple"
    ):
        return
    configuration.set(_KEY, _FILE_SYSTEM)
    file_system = jvm.org.apache.hadoop.fs.FileSystem.get(
        jvm.java.net.URI.create("file:///"), configuration
    )
    name = file_system.getClass().getName()
    if name != _FILE_SYSTEM:
        log.warning("Hadoop uses file system %s, so local files are not forced to disk", name)


def java_array(gateway: Any, java_class: Any, elements: Sequence[Any]) -> Any:
    """Return a Java array of a py4j class with these elements."""
    array = gateway.new_array(java_class, len(elements))
    for index, element in enumerate(elements):
        array[index] = element
    return array


def _compile(jvm: Any, source: Path) -> Mapping[str, bytes]:
    """Return a source file's bytecode by class name. The classes it uses must be defined."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.ClassLoader.getSystemClassLoader())
    compiler.cook(source.read_text())
    return {str(name): bytes(code) for name, code in dict(compiler.getBytecodes()).items()}


def _define(gateway: Any, name: str, code: bytes) -> None:
    """Define a class in the system class loader.

    Reflection is required because `ClassLoader.defineClass` is protected.
    """
    lang = gateway.jvm.java.lang
    by_name, integer = lang.Class.forName, lang.Integer.TYPE
    types = (by_name("java.lang.String"), by_name("[B"), integer, integer)
    method = by_name("java.lang.ClassLoader").getDeclaredMethod(
        "defineClass", java_array(gateway, lang.Class, types)
    )
    method.setAccessible(True)
    arguments = java_array(gateway, lang.Object, (name, code, 0, len(code)))
    method.invoke(lang.ClassLoader.getSystemClassLoader(), arguments)


def _cache_file(jvm: Any) -> Path | None:
    """Return the cache file for these sources and this Java release, or None if caching is off."""
    folder = os.environ.get(CLASSES_VARIABLE)
    if not folder:
        return None
    release = jvm.java.lang.System.getProperty("java.specification.version")
    parts = [*(source.read_text() for source in _SOURCES), release]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Path(folder) / f"classes-{digest}.zip"


def _read(cache: Path) -> dict[str, bytes] | None:
    """Return the cached bytecode by class name in definition order, or None if it is not cached."""
    if not zipfile.is_zipfile(cache):
        return None
    with zipfile.ZipFile(cache) as file:
        return {name.removesuffix(".class"): file.read(name) for name in file.namelist()}


def _write(cache: Path, compiled: Mapping[str, bytes]) -> None:
    # rename a complete file, because other processes may write the cache concurrently
    unfinished = cache.with_name(f"{cache.name}.{uuid.uuid4().hex}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as stream:
            with zipfile.ZipFile(stream, "w") as file:
                for name, code in compiled.items():
                    file.writestr(f"{name}.class", code)
            os.fsync(stream.fileno())
        os.replace(unfinished, cache)
    except OSError as error:
        log.debug("compiled classes are not cached: %s", error)
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)

"""Local files that outlive a power loss: `DurableFileSystem.java` becomes Hadoop's file system of this machine.

This is the one Java class of ours. The Janino compiler that Spark carries compiles it once; the class is kept in the
folder that CONNECT_PY_SPARK_CLASSES names, which may be emptied at any time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

CLASSES_VARIABLE: Final = "CONNECT_PY_SPARK_CLASSES"  # a cache folder for compiled classes; unset: no cache
_SOURCE: Final = Path(__file__).with_name("DurableFileSystem.java")
_CLASS: Final = "connectpy.DurableFileSystem"
_KEY: Final = "fs.file.impl"


def force_local_files(jvm: Any) -> None:
    """Have files forced to the disk when they are closed, and folders when a name in them changes.

    Hadoop makes one local file system per JVM, by the first configuration that asks. A user's own class for it is left
    alone. So is Kerberos: the first caller has Hadoop log in.

    Args:
        jvm: py4j's view of it.
    """
    asking = jvm.org.apache.hadoop.conf.Configuration()
    if asking.get(_KEY) or asking.get("hadoop.security.authentication", "simple") != "simple":
        return
    loader = _loader(jvm)
    asking.setClassLoader(loader)
    asking.set(_KEY, _CLASS)  # configurations of others cannot name it: they would not find the class
    made = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI.create("file:///"), asking)
    if made.getClass().getName() != _CLASS:
        log.warning("local files are not forced to the disk: Hadoop's file system is %s", made.getClass().getName())


def _loader(jvm: Any) -> Any:
    """A Java class loader that has the class."""
    system = jvm.java.lang.ClassLoader.getSystemClassLoader()
    jar = _jar(jvm)
    if jar is not None and zipfile.is_zipfile(jar):
        urls = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Class.forName("java.net.URL"), 1)
        jvm.java.lang.reflect.Array.set(urls, 0, jvm.java.io.File(str(jar)).toURI().toURL())
        return jvm.java.net.URLClassLoader(urls, system)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(system)
    compiler.cook(_SOURCE.read_text())
    if jar is not None:
        unfinished = jar.with_name(f"{jar.name}.{uuid.uuid4().hex}")  # others may be at it too
        try:
            jar.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as kept:
                with zipfile.ZipFile(kept, "w") as file:
                    for name, code in dict(compiler.getBytecodes()).items():
                        file.writestr(f"{name.replace('.', '/')}.class", code)
                os.fsync(kept.fileno())
            os.replace(unfinished, jar)
        except OSError as error:
            log.debug("the compiled class is not kept: %s", error)
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
    return compiler.getClassLoader()


def _jar(jvm: Any) -> Path | None:
    folder = os.environ.get(CLASSES_VARIABLE)
    if not folder:
        return None
    parts = [_SOURCE.read_text(), jvm.java.lang.System.getProperty("java.specification.version")]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Path(folder) / f"durable-files-{digest}.jar"

"""Our Java classes in one JVM: compiled there by the Janino compiler that Spark carries, and kept for the next one.

Compiling costs half a second of CPU, loading what was compiled before a tenth of that. Compiled classes are kept in the
folder that CONNECT_PY_SPARK_CLASSES names, which may be emptied at any time. Their name tells sources, Java and class
path, so an old one is never taken.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from connectors.iceberg.spark.gateway import CLASSES_VARIABLE
from connectors.iceberg.spark.kept_file import keep

log = logging.getLogger(__name__)

PACKAGE: Final = "connectpy"
_FOLDER = Path(__file__).parent


class JavaClasses:
    """The classes of one JVM, in groups that are loaded one after the other. One thread at a time."""

    def __init__(self, jvm: Any) -> None:
        """`jvm`: py4j's view of it."""
        self._jvm = jvm
        self._loader = jvm.java.lang.ClassLoader.getSystemClassLoader()

    def load(self, sources: Sequence[str]) -> None:
        """Have these classes loaded, each seeing those before it; errors are py4j's."""
        jar = self._jar(sources)
        if jar is None or not zipfile.is_zipfile(jar):
            compiled = self._compile(sources)
            if jar is not None:
                _keep(jar, compiled)
            return
        urls = self._jvm.java.lang.reflect.Array.newInstance(self._jvm.java.lang.Class.forName("java.net.URL"), 1)
        self._jvm.java.lang.reflect.Array.set(urls, 0, self._jvm.java.io.File(str(jar)).toURI().toURL())
        self._loader = self._jvm.java.net.URLClassLoader(urls, self._loader)

    def make(self, name: str, arguments: Sequence[Any]) -> Any:
        """An object: what the static method `make` of this class returns for the arguments as an `Object[]`."""
        reflect = self._jvm.java.lang.reflect.Array
        objects = self._jvm.java.lang.Class.forName("[Ljava.lang.Object;")
        classes = reflect.newInstance(self._jvm.java.lang.Class.forName("java.lang.Class"), 1)
        reflect.set(classes, 0, objects)
        outer = reflect.newInstance(objects.getComponentType(), 1)
        inner = reflect.newInstance(objects.getComponentType(), len(arguments))
        for index, value in enumerate(arguments):
            reflect.set(inner, index, value)
        reflect.set(outer, 0, inner)
        return self._loader.loadClass(f"{PACKAGE}.{name}").getMethod("make", classes).invoke(None, outer)

    def _compile(self, sources: Sequence[str]) -> dict[str, bytes]:
        """Compile and load; returns the compiled classes by their names."""
        compiled: dict[str, bytes] = {}
        for name in sources:
            compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(self._loader)
            compiler.cook((_FOLDER / f"{name}.java").read_text())
            self._loader = compiler.getClassLoader()
            compiled |= dict(compiler.getBytecodes())
        return compiled

    def _jar(self, sources: Sequence[str]) -> Path | None:
        folder = os.environ.get(CLASSES_VARIABLE)
        if not folder:
            return None
        system = self._jvm.java.lang.System
        parts = [system.getProperty(name) for name in ("java.specification.version", "java.class.path")]
        parts += [source.read_text() for source in sorted(_FOLDER.glob("*.java"))]  # they are compiled against others
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return Path(folder) / f"{sources[-1]}-{digest}.jar"


def _keep(jar: Path, compiled: Mapping[str, bytes]) -> None:
    """Write a jar of these classes, if the folder lets us."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        for name, code in compiled.items():
            file.writestr(f"{name.replace('.', '/')}.class", code)
    try:
        keep(jar, content.getvalue())
    except OSError as error:
        log.debug("compiled classes are not kept: %s", error)

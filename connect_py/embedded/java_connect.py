"""Java's Kafka Connect worker, for connectors that are only available in Java."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from connect_py.embedded.cache_directory import cache_directory
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.java_runtime import find_java

_MAIN = "org.apache.kafka.connect.cli.ConnectDistributed"
_JVM_OPTIONS = (
    "-Xms64m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)
_LOGGING = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="ERROR">
  <Appenders>
    <Console name="out"><PatternLayout pattern="[%d] %p %X{connector.context}%m (%c:%L)%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""  # noqa: E501 - contains long lines


def java_connect_command(properties: Path, heap_mb: int = 512) -> list[str | Path]:
    """Return the command that runs version 4.1.1 of Java's worker. It logs to standard output.

    The class path contains Kafka's own plugins and the Iceberg sink. `plugin.path` in the
    properties adds other plugins.

    Raises:
        JavaNotFoundError, IvyError, JarLockError: See `find_java` and `JarLock.resolve`.
    """
    java, jars = find_java(), JarLock.shipped("connect").resolve()
    logging = cache_directory() / "java-connect-log4j2.xml"
    if not logging.exists() or logging.read_text() != _LOGGING:
        written = logging.with_suffix(f".{os.getpid()}")
        written.write_text(_LOGGING)
        written.replace(logging)  # a worker that is starting reads either the old or the new file
    return [
        java.path,
        *_JVM_OPTIONS,
        f"-Xmx{heap_mb}m",
        f"-Dlog4j2.configurationFile={logging}",
        "-cp",
        os.pathsep.join(map(str, jars)),
        _MAIN,
        properties,
    ]


def unpack_archives(lock: str, folder: Path) -> list[Path]:
    """Unpack the archives in a lock into a folder and return the archives' paths.

    Other files in the folder are retained.

    Raises:
        JavaNotFoundError, IvyError, JarLockError: See `JarLock.resolve`.
        OSError, tarfile.TarError: An archive could not be unpacked.
    """
    archives = [file for file in JarLock.shipped(lock).resolve() if file.name.endswith(".tar.gz")]
    folder.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return archives

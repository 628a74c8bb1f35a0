"""Creates class data archives, one per Java installation and set of jars.

Creating an archive takes about 30 seconds on one core.

`python -m connect_py.embedded.archives [broker] [spark]` creates missing archives (by default, both
of them). `make` and the image build run this command. `make_archives_in_background` is for programs
that started without archives. It runs at the lowest priority, so it uses only idle CPU time.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from connect_py.api.errors import ConnectError
from connect_py.embedded.broker import KafkaBroker
from connect_py.embedded.class_data_archive import ClassDataArchive
from connect_py.embedded.jar_lock import JarLock
from connect_py.embedded.java_runtime import find_java
from connect_py.embedded.spark_environment import (
    CLASSES_VARIABLE,
    JARS_VARIABLE,
    JAVA_VARIABLE,
    spark_archive,
    spark_environment,
)

# creation takes 30 seconds on an idle machine, but can take much longer at the lowest priority
_SPARK_SECONDS = 600.0
_NICE = 19
# A plugin module that is run by name, because the embedded runtime does not import plugins.
_SPARK_TRAINING = "connectors.iceberg.driver.class_archive"


class ArchiveError(ConnectError):
    """The process that creates an archive failed. The message contains the end of its output."""


def broker_archive() -> ClassDataArchive:
    """Return the class data archive for the Java version and jars that `KafkaBroker` uses."""
    return ClassDataArchive("broker", find_java(), tuple(JarLock.shipped("broker").resolve()))


def make_archives(*requested: str) -> list[str]:
    """Create missing archives and return their names.

    The arguments select archives, "broker" or "spark". The default is both.

    Raises:
        BrokerError, JavaNotFoundError, IvyError, JarLockError: See `KafkaBroker.start`.
        ArchiveError: The Spark process failed.
    """
    kinds = {"broker": (broker_archive, _run_broker), "spark": (spark_archive, _run_spark)}
    recordings = [(find(), run) for find, run in (kinds[name] for name in requested or kinds)]
    return [archive.name for archive, run in recordings if archive.record(run)]


def make_archives_in_background() -> None:
    """Create missing archives in a separate process at low priority. Never blocks."""
    archives = (broker_archive(), spark_archive())
    if all(archive.path.exists() or not archive.possible for archive in archives):
        return
    # The shell starts the process and exits immediately. The new process is then not a child of
    # this process, so this process can exit without waiting for it.
    subprocess.run(
        [
            "/bin/sh",
            "-c",
            f'nice -n {_NICE} "$@" &',
            "sh",
            sys.executable,
            "-m",
            "connect_py.embedded.archives",
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    )


def _run_broker(options: Sequence[str]) -> None:
    with KafkaBroker(java_options=options) as broker:
        # stop explicitly: Java writes the archive only on a normal exit, but closing a temporary
        # broker kills it
        broker.stop()


def _run_spark(options: Sequence[str]) -> None:
    # Omit the S3 library. An archive matches all class paths that start with its own class path,
    # and the S3 library is either at the end or missing.
    jars = os.environ.get(JARS_VARIABLE) or os.pathsep.join(
        map(str, JarLock.shipped("spark").resolve())
    )
    environment = spark_environment()
    locations = {name: environment[name] for name in (JAVA_VARIABLE, CLASSES_VARIABLE)}
    result = subprocess.run(
        [sys.executable, "-m", _SPARK_TRAINING, *options],
        env={**os.environ, **locations, JARS_VARIABLE: jars},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SPARK_SECONDS,
        check=False,
    )
    if result.returncode != 0:
        raise ArchiveError(
            "the Spark process that creates the class data archive failed:\n"
            + "\n".join(result.stderr.splitlines()[-25:])
        )


if __name__ == "__main__":
    make_archives(*sys.argv[1:])

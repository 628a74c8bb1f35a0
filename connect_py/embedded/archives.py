"""Records class archives: half a minute of one core, once per Java and set of jars.

`python -m connect_py.embedded.archives [broker] [spark]` records the missing archives, both by
default. `make` and the image run it. `make_archives_in_background` is for a first start without
them: at the lowest priority, it takes the time that the processors are idle.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

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

# half a minute on an idle machine; at the lowest priority it waits for everything else
_SPARK_SECONDS = 600.0
_NICE = 19
# A plugin's module, run by name: the embedded runtime does not import plugins.
_SPARK_TRAINING = "connectors.iceberg.driver.class_archive"


class ArchiveError(Exception):
    """A run that should have made an archive failed. The message carries its last lines."""


def broker_archive() -> ClassDataArchive:
    """The archive of the broker's classes for the Java and the jars that `KafkaBroker` uses."""
    return ClassDataArchive("broker", find_java(), tuple(JarLock.shipped("broker").resolve()))


def make_archives(*wanted: str) -> list[str]:
    """Make the archives that are missing, of "broker" and "spark" those that are named or both;
    return their names.

    Raises:
        BrokerError, JavaNotFoundError, IvyError, JarLockError: As for `KafkaBroker.start`.
        ArchiveError: Spark's run failed.
    """
    kinds = {"broker": (broker_archive, _run_broker), "spark": (spark_archive, _run_spark)}
    recordings = [(find(), run) for find, run in (kinds[name] for name in wanted or kinds)]
    return [archive.name for archive, run in recordings if archive.record(run)]


def make_archives_in_background() -> None:
    """Let a process of its own make what is missing, at low priority. Returns at once; no caller
    waits for it."""
    archives = (broker_archive(), spark_archive())
    if all(archive.path.exists() or not archive.possible for archive in archives):
        return
    # The shell ends at once, so what it leaves behind is no child of ours, and our stop does not
    # wait for it.
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
        # a temporary broker is otherwise killed, and Java writes the archive at a proper exit
        broker.stop()


def _run_spark(options: Sequence[str]) -> None:
    # Without S3's library: an archive fits class paths that begin with its own, and that one comes
    # last, or not at all.
    jars = os.environ.get(JARS_VARIABLE) or os.pathsep.join(
        map(str, JarLock.shipped("spark").resolve())
    )
    found = spark_environment()
    places = {name: found[name] for name in (JAVA_VARIABLE, CLASSES_VARIABLE)}
    done = subprocess.run(
        [sys.executable, "-m", _SPARK_TRAINING, *options],
        env={**os.environ, **places, JARS_VARIABLE: jars},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SPARK_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ArchiveError(
            "Spark's run for its archive failed:\n" + "\n".join(done.stderr.splitlines()[-25:])
        )


if __name__ == "__main__":
    make_archives(*sys.argv[1:])

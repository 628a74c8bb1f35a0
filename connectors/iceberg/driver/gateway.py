"""The JVM of a Spark driver, with Iceberg on its class path: launched, owned, gone when we are
gone.

Left to itself, pyspark would start the JVM through shell scripts, out of reach of the process that
must end it, with an incubating module that prints warnings and slows the start, and through Spark's
submission code, which costs twice what the JVM itself does. Here the options come from Spark's own
launcher class, so that an upgrade of Spark brings them along. The JVM is a plain child process that
listens for py4j: what it does then is up to its owner.

This module needs the folder that pyspark is installed in; it does not import pyspark.

The JVM dies with us: see `connect_py.process.child_process`. It reads its standard input, as
pyspark's own does.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from connect_py.process.child_process import ChildProcess
from connect_py.process.scratch_folder import scratch_folder
from connectors.iceberg.config.spark_config import JARS_VARIABLE
from connectors.iceberg.errors import CatalogUnavailableError, SparkLostError

JAVA_VARIABLE = "CONNECT_PY_JAVA"  # path of the java executable
OPTIONS_VARIABLE = "CONNECT_PY_SPARK_JAVA_OPTIONS"  # JVM options in shell quoting; may be missing
# why the worker set none of the above, and the remedy
PROBLEM_VARIABLE = "CONNECT_PY_SPARK_PROBLEM"

_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"  # the launcher's word for whom the options are
# says port and secret, ends with stdin
_GATEWAY = ("py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0")
_ADDRESS = re.compile(r"^(\d{1,5})\n(\S+)\n", re.MULTILINE)
_LOGGING = Path(__file__).with_name("log4j2.properties")
_UNWANTED = "--add-modules=jdk.incubator.vector"
_COMMAND_SECONDS = 30.0
_START_SECONDS = 60.0
_POLL_SECONDS = 0.02
GRACE_SECONDS = 5.0
_LINES = 25  # of a log that an error shows


class SparkGateway:
    """One JVM with a py4j gateway. Made and closed by one owner; `running`, `wait` and `kill` from
    any thread."""

    def __init__(self, java_options: Sequence[str] = (), log_path: Path | None = None) -> None:
        """Start the JVM and return when its gateway listens, after some tenths of a second.

        CONNECT_PY_JAVA, CONNECT_PY_SPARK_JARS and CONNECT_PY_SPARK_JAVA_OPTIONS say what is
        started; the worker sets them for its processes.

        Args: java_options: Win over those of the variable, and of Spark's launcher: `-Xmx2g`.
            log_path: The JVM's output is appended here; None: it goes where that of this process
            goes.

        Raises:
            SparkLostError: A variable, Java or a jar is missing.
            CatalogUnavailableError: The JVM ended, or did not listen in time.
        """
        if (absent := why_absent(os.environ)) is not None:
            raise SparkLostError(absent)
        self._scratch = scratch_folder("connect-py-spark-")
        # holds the secret: only this user may look into the folder
        output = self._scratch / "stdout"
        try:
            variables = _spark_variables(self._scratch)
            command = _command({**os.environ, **variables}, self._scratch, java_options)
            self._process = ChildProcess(
                command, log_path, environment=variables, output_path=output
            )
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        try:
            self.port, self.secret = self._address(output, log_path)
        except BaseException:
            self.kill()
            raise

    @property
    def scratch(self) -> Path:
        """A folder for temporary files. It is removed with the JVM, or by a later JVM if this
        process is killed."""
        return self._scratch

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the JVM exists; a hanging one does."""
        return self._process.status is None

    def wait(self, seconds: float | None = None) -> None:
        """Return when the JVM has ended, or after this long."""
        self._process.wait(seconds)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask the JVM to end (its shutdown hooks stop Spark), wait, and end it for certain after
        the grace."""
        self._process.stop(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """End the JVM now and remove its temporary files. Does nothing the second time.

        Raises:
            TimeoutError: It did not end, which only an uninterruptible disk wait explains.
        """
        self._process.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _address(self, output: Path, log_path: Path | None) -> tuple[int, str]:
        """Port and secret, once the JVM has printed them, a line each; agents and options may print
        before."""
        until = time.monotonic() + _START_SECONDS
        while (found := _ADDRESS.search(output.read_text(errors="replace"))) is None:
            late = time.monotonic() >= until
            if late or not self.running:
                why = (
                    f"did not listen within {_START_SECONDS:.0f} s"
                    if late
                    else "ended before it listened"
                )
                lines = (
                    ["see the log"]
                    if log_path is None
                    else log_path.read_text(errors="replace").splitlines()
                )
                raise CatalogUnavailableError(
                    f"the JVM for Spark {why}: " + "\n".join(lines[-_LINES:])
                )
            time.sleep(_POLL_SECONDS)
        return int(found[1]), found[2]


def why_absent(environment: Mapping[str, str]) -> str | None:
    """Return the reason why no JVM can start, and the remedy; None if a JVM can start."""
    if missing := [name for name in (JAVA_VARIABLE, JARS_VARIABLE) if not environment.get(name)]:
        default = "Spark's jars are missing: run `connect-py jars spark` and restart the worker"
        return (
            f"Spark cannot start: {environment.get(PROBLEM_VARIABLE) or default} "
            f"({' and '.join(missing)} not set)"
        )
    if importlib.util.find_spec("pyspark") is None:
        return "Spark cannot start: pyspark is not installed"
    if lost := [jar for jar in _jars(environment) if not Path(jar).is_file()]:
        return f"jars for Spark are missing: {', '.join(lost)}"
    # the launcher could only end without a word
    if shutil.which(java := environment[JAVA_VARIABLE]) is None:
        return f"{java} could not be started: there is no such program"
    return None


def _jars(environment: Mapping[str, str]) -> list[str]:
    return [jar for jar in environment[JARS_VARIABLE].split(os.pathsep) if jar]


def _command(
    environment: Mapping[str, str], scratch: Path, java_options: Sequence[str]
) -> list[str]:
    """The whole command: Spark's own options, with our jars behind its own on the class path."""
    java = environment[JAVA_VARIABLE]
    options = _launcher_options(java, environment)
    place = options.index("-cp") + 1
    options[place] = class_path(options[place], _jars(environment))
    return [
        java,
        "-XX:+DisplayVMOutputToStderr",  # to the log: what ends Java's start, or Java
        *options,
        f"-Dlog4j2.configurationFile={_LOGGING}",
        f"-Djava.io.tmpdir={scratch}",
        *shlex.split(environment.get(OPTIONS_VARIABLE, "")),
        *java_options,
        *_GATEWAY,
    ]


def _launcher_options(java: str, environment: Mapping[str, str]) -> list[str]:
    """Spark's own options for `pyspark-shell`."""
    asked = [
        java,
        "-Xmx64m",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        str(_launcher_jar()),
        "org.apache.spark.launcher.Main",
        _MAIN_CLASS,
        "pyspark-shell",
    ]
    try:
        answer = subprocess.run(
            asked,
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=True,
        )
    except OSError as error:
        raise SparkLostError(f"{java} could not be started: {error}") from error
    except subprocess.SubprocessError as error:
        raise CatalogUnavailableError(
            f"Spark's launcher failed: {error}: {getattr(error, 'stderr', '')}"
        ) from error
    # An empty line and a NUL come first, then each argument with a NUL behind it.
    words = [word for word in answer.stdout.strip("\n").split("\0") if word.strip()]
    return [word for word in words[1 : words.index(_MAIN_CLASS)] if word != _UNWANTED]


def _launcher_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # looks it up without importing it
    origin = spec.origin if spec is not None else None
    found = (
        sorted((Path(origin).parent / "jars").glob("spark-launcher_*.jar"))
        if origin is not None
        else []
    )
    if not found:
        raise SparkLostError("pyspark is not installed, or holds no jars of Spark")
    return found[-1]


def _spark_variables(scratch: Path) -> dict[str, str]:
    """What Spark's scripts would have exported."""
    launcher = _launcher_jar()
    return {
        "SPARK_HOME": str(launcher.parent.parent),
        "SPARK_SCALA_VERSION": launcher.name.removeprefix("spark-launcher_").split("-")[0],
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_DIRS": str(scratch),
    }


def class_path(spark: str, jars: Sequence[str]) -> str:
    """What exists of Spark's class path, wildcards as sorted files, then ours; each once.

    Java takes a wildcard in directory order, and an archive of loaded classes needs one order for
    ever.
    """
    entries: dict[str, None] = {}
    for entry in spark.split(os.pathsep):
        if entry.endswith("*"):
            entries |= dict.fromkeys(sorted(map(str, Path(entry).parent.glob("*.jar"))))
        elif entry and Path(entry).exists():
            entries[entry.rstrip(os.sep)] = None
    entries |= dict.fromkeys(jars)
    return os.pathsep.join(entries)

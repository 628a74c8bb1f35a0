"""The JVM of a Spark driver, with Iceberg on its class path, as a child process.

By default, pyspark starts the JVM through shell scripts, out of reach of the process that must end
it, with an incubating module that prints warnings and slows the start, and through Spark's
submission code, which costs twice as much as the JVM itself. This module asks Spark's launcher
class for the options, and an upgrade of Spark updates them. The JVM is a plain child process that
listens for py4j; its owner creates the session.

This module needs the folder that pyspark is installed in; it does not import pyspark.

The JVM ends when this process ends, see `connect_py.process.child_process`. It reads its standard
input, as the JVM of pyspark does.
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

_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"  # for the launcher
# prints port and secret, ends with stdin
_GATEWAY = ("py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0")
_ADDRESS = re.compile(r"^(\d{1,5})\n(\S+)\n", re.MULTILINE)
_LOGGING = Path(__file__).with_name("log4j2.properties")
_UNWANTED = "--add-modules=jdk.incubator.vector"
_COMMAND_SECONDS = 30.0
_START_SECONDS = 60.0
_POLL_SECONDS = 0.02
GRACE_SECONDS = 5.0
_LINES = 25  # of a log that an error shows


class SparkGateway(ChildProcess):
    """One JVM with a py4j gateway. One owner creates and stops it."""

    def __init__(self, java_options: Sequence[str] = (), log_path: Path | None = None) -> None:
        """Start the JVM and return when its gateway listens, after some tenths of a second.

        The worker sets CONNECT_PY_JAVA, CONNECT_PY_SPARK_JARS, and CONNECT_PY_SPARK_JAVA_OPTIONS
        for its processes.

        Args:
            java_options: Options that override the variable and Spark's launcher, such
                as `-Xmx2g`.
            log_path: The JVM's output is appended here; None: it is written to the output of this
                process.

        Raises:
            SparkLostError: A variable, Java, or a jar is missing.
            CatalogUnavailableError: The JVM ended, or did not listen in time.
        """
        if (absent := why_absent(os.environ)) is not None:
            raise SparkLostError(absent)
        # For temporary files. It is removed with the JVM, or by a later JVM if this process is
        # killed.
        self.scratch = scratch_folder("connect-py-spark-")
        # contains the secret: only this user can read the folder
        output = self.scratch / "stdout"
        try:
            launcher = _launcher_jar()
            # Spark's scripts would export these variables.
            variables = {
                "SPARK_HOME": str(launcher.parent.parent),
                "SPARK_SCALA_VERSION": launcher.name.removeprefix("spark-launcher_").split("-")[0],
                "SPARK_CONNECT_MODE": "0",
                "SPARK_LOCAL_DIRS": str(self.scratch),
            }
            command = _command({**os.environ, **variables}, self.scratch, java_options)
            super().__init__(command, log_path, environment=variables, output_path=output)
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise
        try:
            self.port, self.secret = self._address(output, log_path)
        except BaseException:
            self.kill()
            raise

    @property
    def running(self) -> bool:
        """True while the JVM exists, even if it hangs."""
        return self.status is None

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask the JVM to exit (its shutdown hooks stop Spark), and kill it after the grace."""
        super().stop(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill the JVM and remove its temporary files. Does nothing the second time.

        Raises:
            TimeoutError: It did not end, possibly because of an uninterruptible disk wait.
        """
        super().kill()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _address(self, output: Path, log_path: Path | None) -> tuple[int, str]:
        """Return port and secret when the JVM has printed them.

        Each has a line, possibly after the output of agents and options.
        """
        deadline = time.monotonic() + _START_SECONDS
        while (address := _ADDRESS.search(output.read_text(errors="replace"))) is None:
            is_late = time.monotonic() >= deadline
            if is_late or not self.running:
                reason = f"did not listen within {_START_SECONDS:.0f} s" if is_late else "ended"
                log = "see the log" if log_path is None else log_path.read_text(errors="replace")
                last_lines = "\n".join(log.splitlines()[-_LINES:])
                raise CatalogUnavailableError(f"the JVM of Spark {reason}: {last_lines}")
            time.sleep(_POLL_SECONDS)
        return int(address[1]), address[2]


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
    if missing := [jar for jar in _jars(environment) if not Path(jar).is_file()]:
        return f"jars for Spark are missing: {', '.join(missing)}"
    # the launcher would end without a message
    if shutil.which(java := environment[JAVA_VARIABLE]) is None:
        return f"{java} could not be started: there is no such program"
    return None


def _jars(environment: Mapping[str, str]) -> list[str]:
    return [jar for jar in environment[JARS_VARIABLE].split(os.pathsep) if jar]


def _command(
    environment: Mapping[str, str], scratch: Path, java_options: Sequence[str]
) -> list[str]:
    """Return the command: Spark's own options, with our jars after Spark's on the class path."""
    java = environment[JAVA_VARIABLE]
    options = _launcher_options(java, environment)
    index = options.index("-cp") + 1
    options[index] = class_path(options[index], _jars(environment))
    return [
        java,
        "-XX:+DisplayVMOutputToStderr",  # fatal errors of the JVM are logged
        *options,
        f"-Dlog4j2.configurationFile={_LOGGING}",
        f"-Djava.io.tmpdir={scratch}",
        *shlex.split(environment.get(OPTIONS_VARIABLE, "")),
        *java_options,
        *_GATEWAY,
    ]


def _launcher_options(java: str, environment: Mapping[str, str]) -> list[str]:
    """Return Spark's own options for `pyspark-shell`."""
    command = [
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
        result = subprocess.run(
            command,
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
    # an empty line and a NUL, then each argument, followed by a NUL
    words = [word for word in result.stdout.strip("\n").split("\0") if word.strip()]
    return [word for word in words[1 : words.index(_MAIN_CLASS)] if word != _UNWANTED]


def _launcher_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # looks it up without importing it
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    jars = sorted(jar for each in folders for jar in Path(each).glob("jars/spark-launcher_*.jar"))
    if not jars:
        raise SparkLostError("pyspark is not installed, or it contains no jars of Spark")
    return jars[-1]


def class_path(spark: str, jars: Sequence[str]) -> str:
    """Return the existing entries of Spark's class path, then our jars, without duplicates.

    Wildcards become sorted files: Java would use the order of the directory, and an archive of
    loaded classes requires a fixed order.
    """
    entries: dict[str, None] = {}
    for entry in spark.split(os.pathsep):
        if entry.endswith("*"):
            entries |= dict.fromkeys(sorted(map(str, Path(entry).parent.glob("*.jar"))))
        elif entry and Path(entry).exists():
            entries[entry.rstrip(os.sep)] = None
    entries |= dict.fromkeys(jars)
    return os.pathsep.join(entries)

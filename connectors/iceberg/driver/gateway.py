"""`SparkGateway`: the JVM of a Spark driver as a child process, with Iceberg on its class path.

By default, pyspark starts the JVM through shell scripts, so the calling process cannot terminate it
reliably. pyspark also loads an incubating module that prints warnings and slows down startup. In
addition, it runs Spark's submission code, which takes twice as long as starting the JVM.

Instead, this module requests the JVM options from Spark's launcher class, so they remain correct
after an upgrade of Spark. The JVM is a plain child process that listens for py4j connections. The
owner of the gateway creates the session. This module locates the pyspark package but does not
import it.

Like the JVM that pyspark starts, this JVM reads its standard input, and exits when this process
exits (see `connect_py.process.child_process`).
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
OPTIONS_VARIABLE = "CONNECT_PY_SPARK_JAVA_OPTIONS"  # JVM options with shell quoting; optional
# why the worker could not set the variables above, and how to fix it
PROBLEM_VARIABLE = "CONNECT_PY_SPARK_PROBLEM"

_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"  # argument of the launcher
# main class and its arguments; the JVM prints its port and secret, and exits when standard input is
# closed
_GATEWAY = ("py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0")
_ADDRESS = re.compile(r"^(\d{1,5})\n(\S+)\n", re.MULTILINE)
_LOGGING = Path(__file__).with_name("log4j2.properties")
_UNWANTED = "--add-modules=jdk.incubator.vector"
_COMMAND_SECONDS = 30.0
_START_SECONDS = 60.0
_POLL_SECONDS = 0.02
GRACE_SECONDS = 5.0
_LINES = 25  # maximum number of log lines in an error message


class SparkGateway(ChildProcess):
    """One JVM with a py4j gateway. Only its owner may stop it."""

    def __init__(self, java_options: Sequence[str] = (), log_path: Path | None = None) -> None:
        """Start the JVM, and wait until its gateway listens. This takes less than a second.

        The worker sets CONNECT_PY_JAVA, CONNECT_PY_SPARK_JARS, and CONNECT_PY_SPARK_JAVA_OPTIONS
        for its processes.

        Args:
            java_options: JVM options such as `-Xmx2g`. They take precedence over the options in
                CONNECT_PY_SPARK_JAVA_OPTIONS and over the options from Spark's launcher.
            log_path: The file to which the JVM's output is appended. If None, the JVM shares the
                output of this process.

        Raises:
            SparkLostError: A variable, Java, or a jar is missing.
            CatalogUnavailableError: The JVM exited, or did not listen in time.
        """
        if (absent := why_absent(os.environ)) is not None:
            raise SparkLostError(absent)
        # Folder for temporary files. It is removed when the JVM is stopped or, if this process is
        # killed, when a later JVM starts.
        self.scratch = scratch_folder("connect-py-spark-")
        # the file contains the secret; only this user can read the folder
        output = self.scratch / "stdout"
        try:
            launcher = _launcher_jar()
            # Spark's scripts would export these variables
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
        """True while the JVM process exists, even if it hangs."""
        return self.status is None

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Request an exit, so that shutdown hooks stop Spark. Kill the JVM after a grace period."""
        super().stop(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """Kill the JVM and remove its temporary files. Further calls have no effect.

        Raises:
            TimeoutError: The JVM did not exit, possibly because of an uninterruptible disk wait.
        """
        super().kill()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _address(self, output: Path, log_path: Path | None) -> tuple[int, str]:
        """Wait until the JVM has printed its port and secret, and return them.

        Each value is on a separate line. Java agents and JVM options may print other lines first.
        """
        deadline = time.monotonic() + _START_SECONDS
        while (address := _ADDRESS.search(output.read_text(errors="replace"))) is None:
            is_late = time.monotonic() >= deadline
            if is_late or not self.running:
                reason = f"did not listen within {_START_SECONDS:.0f} s" if is_late else "exited"
                log = "see the log" if log_path is None else log_path.read_text(errors="replace")
                last_lines = "\n".join(log.splitlines()[-_LINES:])
                raise CatalogUnavailableError(f"Spark's JVM {reason}: {last_lines}")
            time.sleep(_POLL_SECONDS)
        return int(address[1]), address[2]


def why_absent(environment: Mapping[str, str]) -> str | None:
    """Return the reason the JVM cannot start, with a remedy, or None if it can start."""
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
    # without this check, the launcher would exit without a message
    if shutil.which(java := environment[JAVA_VARIABLE]) is None:
        return f"{java} could not be started: the program does not exist"
    return None


def _jars(environment: Mapping[str, str]) -> list[str]:
    return [jar for jar in environment[JARS_VARIABLE].split(os.pathsep) if jar]


def _command(
    environment: Mapping[str, str], scratch: Path, java_options: Sequence[str]
) -> list[str]:
    """Return the command that starts the JVM. Our jars are at the end of the class path."""
    java = environment[JAVA_VARIABLE]
    options = _launcher_options(java, environment)
    index = options.index("-cp") + 1
    options[index] = class_path(options[index], _jars(environment))
    return [
        java,
        "-XX:+DisplayVMOutputToStderr",  # so that fatal JVM errors are logged
        *options,
        f"-Dlog4j2.configurationFile={_LOGGING}",
        f"-Djava.io.tmpdir={scratch}",
        *shlex.split(environment.get(OPTIONS_VARIABLE, "")),
        *java_options,
        *_GATEWAY,
    ]


def _launcher_options(java: str, environment: Mapping[str, str]) -> list[str]:
    """Return the JVM options that Spark's launcher uses for `pyspark-shell`."""
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
    # the output is an empty line and a NUL, followed by the arguments, each with a trailing NUL
    words = [word for word in result.stdout.strip("\n").split("\0") if word.strip()]
    return [word for word in words[1 : words.index(_MAIN_CLASS)] if word != _UNWANTED]


def _launcher_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # does not import pyspark
    folders = (spec.submodule_search_locations if spec is not None else None) or ()
    jars = sorted(jar for each in folders for jar in Path(each).glob("jars/spark-launcher_*.jar"))
    if not jars:
        raise SparkLostError("pyspark is not installed, or it does not contain Spark's jars")
    return jars[-1]


def class_path(spark: str, jars: Sequence[str]) -> str:
    """Return the existing entries of Spark's class path, followed by our jars, without duplicates.

    Wildcards are expanded to sorted files. Java would use directory order, but a class archive
    requires a fixed order.
    """
    entries: dict[str, None] = {}
    for entry in spark.split(os.pathsep):
        if entry.endswith("*"):
            entries |= dict.fromkeys(sorted(map(str, Path(entry).parent.glob("*.jar"))))
        elif entry and Path(entry).exists():
            entries[entry.rstrip(os.sep)] = None
    entries |= dict.fromkeys(jars)
    return os.pathsep.join(entries)

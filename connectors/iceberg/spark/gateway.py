"""The JVM of a Spark driver, with Iceberg on its class path: launched, owned, gone when we are gone.

Left to itself, pyspark would start the JVM through shell scripts, out of reach of the process that must end it, with
an incubating module that prints warnings and slows the start, and through Spark's submission code, which costs twice
what the JVM itself does. Here the options come from Spark's own launcher class, so that an upgrade of Spark brings them
along. The JVM is a plain child process that listens for py4j: what it does then is up to its owner.

This module needs the standard library and the folder pyspark is installed in; it does not import pyspark.

Linux kills the JVM when we die (PR_SET_PDEATHSIG). The kernel means the *thread* that forked when it says
parent, hence the keeper thread, which lives as long as the JVM does. Elsewhere the JVM
notices the end of its standard input, as pyspark's own does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from connect_py.api.errors import ConnectError

JAVA_VARIABLE = "CONNECT_PY_JAVA"  # path of the java executable
JARS_VARIABLE = "CONNECT_PY_SPARK_JARS"  # jars beside pyspark's own, joined by os.pathsep
OPTIONS_VARIABLE = "CONNECT_PY_SPARK_JAVA_OPTIONS"  # JVM options in shell quoting; may be missing
CLASSES_VARIABLE = "CONNECT_PY_SPARK_CLASSES"  # a folder for what is made of the jars; not set: it is made each time

LAUNCHER = """\
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    os._exit(1)  # the parent died before we could ask
os.execv(sys.argv[2], sys.argv[2:])
"""
_MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"  # the launcher's word for whom the options are
_GATEWAY = ("py4j.GatewayServer", "--enable-auth", "--die-on-broken-pipe", "0")  # says port and secret, ends with stdin
_ADDRESS = re.compile(r"^(\d{1,5})\n(\S+)\n", re.MULTILINE)
_LOGGING = Path(__file__).with_name("log4j2.properties")
_UNWANTED = "--add-modules=jdk.incubator.vector"
_COMMAND_SECONDS = 30.0
_POLL_SECONDS = 0.02
GRACE_SECONDS = 5.0
_KILL_SECONDS = 10.0


class SparkGatewayError(ConnectError):
    """The JVM for Spark did not start. The message carries the last lines of its log."""


class SparkAbsentError(SparkGatewayError):
    """Java or a jar is not there: trying again will not help."""


class SparkGateway:
    """One JVM with a py4j gateway. Made and closed by one owner; `running` and `kill` from any thread."""

    def __init__(
        self,
        java: Path,
        jars: Sequence[Path],
        java_options: Sequence[str] = (),
        log_path: Path | None = None,
        env: Mapping[str, str] | None = None,
        start_seconds: float = 60.0,
        *,
        inherit_output: bool = False,
    ) -> None:
        """Start the JVM and return when its gateway listens, after some tenths of a second.

        Args:
            java: The java executable.
            jars: Put behind pyspark's own on the class path; a missing file is an error.
            java_options: Win over those of Spark's launcher: `-Xmx2g`, `-XX:TieredStopAtLevel=1`.
            log_path: The JVM's output is appended here; without it, to a file that goes with `stop`.
            env: Variables on top of ours.
            start_seconds: How long the start may take.
            inherit_output: The JVM's output goes where that of this process goes.

        Raises:
            SparkGatewayError: The JVM ended, or did not listen in time.
        """
        if (absent := _absent(Path(java), jars)) is not None:
            raise SparkAbsentError(absent)
        self._scratch = Path(tempfile.mkdtemp(prefix="connect-py-spark-"))
        self.log_path = log_path or self._scratch / "spark.log"
        self._inherit_output = inherit_output
        self._said = self._scratch / "stdout"  # holds the secret, so nobody else may read it; mkdtemp sees to that
        self.port = 0
        self.secret = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        self._spawned = threading.Event()
        self._exited = threading.Event()
        self._stop_lock = threading.Lock()
        try:
            environment = {**os.environ, **(env or {}), **_spark_variables(self._scratch)}
            base = self._options(Path(java), environment)
            command = self._command(Path(java), base, [Path(jar) for jar in jars], java_options)
            self._keeper = threading.Thread(
                target=self._keep, args=(command, environment), name="spark-gateway", daemon=True
            )
            self._keeper.start()
            self._spawned.wait()
            if self._failure is not None:
                raise SparkAbsentError(f"{java} could not be started: {self._failure}") from self._failure
            self.port, self.secret = self._wait_for(start_seconds)
        except BaseException:
            self.kill()
            raise

    @classmethod
    def from_environment(
        cls,
        java_options: Sequence[str] = (),
        log_path: Path | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        inherit_output: bool = False,
    ) -> Self:
        """Start a JVM as CONNECT_PY_JAVA, CONNECT_PY_SPARK_JARS and CONNECT_PY_SPARK_JAVA_OPTIONS say.

        The worker sets them for its processes. `java_options` win over those of the variable.

        Raises:
            SparkGatewayError: A variable is missing, or as for the constructor.
        """
        environment = os.environ if environment is None else environment
        if (absent := why_absent(environment)) is not None:
            raise SparkAbsentError(absent)
        jars = _jars(environment)
        options = shlex.split(environment.get(OPTIONS_VARIABLE, ""))
        java = Path(environment[JAVA_VARIABLE])
        return cls(java, jars, [*options, *java_options], log_path, inherit_output=inherit_output)

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        assert self._process is not None  # the constructor waited for it
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the JVM exists; a hanging one does."""
        return self._process is not None and not self._exited.is_set()

    def wait(self, seconds: float | None = None) -> None:
        """Return when the JVM has ended, or after this long."""
        self._exited.wait(seconds)

    def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Ask the JVM to end (its shutdown hooks stop Spark), wait, and end it for certain after the grace."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):  # it is gone already
                self._process.stdin.close()
            self._exited.wait(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """End the JVM now and remove its temporary files. Does nothing the second time.

        Raises:
            SparkGatewayError: It did not end, which only an uninterruptible disk wait explains.
        """
        with self._stop_lock:
            if self._process is not None and self.running:
                self._process.send_signal(signal.SIGKILL)  # knows whether the id is still ours
                if not self._exited.wait(_KILL_SECONDS):
                    raise SparkGatewayError(f"process {self.pid} did not end {_KILL_SECONDS:.0f} s after SIGKILL")
            if self._process is not None:
                self._keeper.join(_KILL_SECONDS)
            shutil.rmtree(self._scratch, ignore_errors=True)

    def last_lines(self, count: int = 25) -> str:
        """The end of the JVM's log, for error messages."""
        try:
            return "\n".join(self.log_path.read_text(errors="replace").strip().splitlines()[-count:])
        except OSError as error:
            return f"(no log: {error})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _keep(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        launcher = [sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid())]
        try:
            with self.log_path.open("ab") as log, self._said.open("xb") as said:
                self._process = subprocess.Popen(
                    [*launcher, *command],
                    stdin=subprocess.PIPE,  # open as long as we live: the JVM ends at its end
                    stdout=said,
                    stderr=None if self._inherit_output else log,
                    env=dict(environment),
                    start_new_session=True,  # Ctrl-C in a terminal is ours to handle, not the JVM's
                )
        except OSError as error:
            self._failure = error
            return
        finally:
            self._spawned.set()
        self._process.wait()
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._exited.set()

    def _command(self, java: Path, base: Sequence[str], jars: Sequence[Path], java_options: Sequence[str]) -> list[str]:
        """The whole command; `base` are options, with a class path among them that the jars are put behind."""
        options = list(base)
        options[options.index("-cp") + 1] = _class_path(options[options.index("-cp") + 1], jars)
        return [
            str(java),
            "-XX:+DisplayVMOutputToStderr",  # to the log: what ends Java's start, or Java
            *options,
            f"-Djava.io.tmpdir={self._scratch}",
            *java_options,
            *_GATEWAY,
        ]

    def _options(self, java: Path, environment: Mapping[str, str]) -> list[str]:
        """Spark's own options for `pyspark-shell`."""
        asked = [
            str(java), "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-cp", str(_launcher_jar()), "org.apache.spark.launcher.Main", _MAIN_CLASS, "pyspark-shell",
        ]  # fmt: skip
        try:
            answer = subprocess.run(
                asked, env=dict(environment), capture_output=True, timeout=_COMMAND_SECONDS, check=False
            )
        except OSError as error:
            raise SparkAbsentError(f"{java} could not be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise SparkGatewayError(f"Spark's launcher could not be asked for its command: {error}") from error
        if answer.returncode != 0:
            raise SparkGatewayError(f"Spark's launcher failed: {answer.stderr.decode(errors='replace').strip()}")
        # An empty line and a NUL come first, then each argument with a NUL behind it.
        words = [word for word in answer.stdout.decode().strip("\n").split("\0") if word.strip()]
        options = [word for word in words[1 : words.index(_MAIN_CLASS)] if word != _UNWANTED]
        return [*options, f"-Dlog4j2.configurationFile={_LOGGING}"]

    def _wait_for(self, start_seconds: float) -> tuple[int, str]:
        """Port and secret, once the JVM has printed them, a line each; agents and options may print before."""
        deadline = time.monotonic() + start_seconds
        while (found := _ADDRESS.search(self._said.read_text(errors="replace"))) is None:
            if self._exited.wait(_POLL_SECONDS):
                raise SparkGatewayError(f"the JVM for Spark ended before it listened:\n{self.last_lines()}")
            if time.monotonic() >= deadline:
                raise SparkGatewayError(
                    f"timed out after {start_seconds:.0f} s while the JVM for Spark started:\n{self.last_lines()}"
                )
        return int(found[1]), found[2]


def why_absent(environment: Mapping[str, str]) -> str | None:
    """What is missing for a JVM to start, and what to do about it; None: nothing."""
    if missing := [name for name in (JAVA_VARIABLE, JARS_VARIABLE) if not environment.get(name)]:
        return (
            "Spark is not there: run `connect-py jars spark` and restart the worker. It tells its tasks where Java "
            "17 to 21 and the jars are, if it finds both; else its log says why not "
            f"({' and '.join(missing)} not set)"
        )
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not there: pyspark is not installed"
    return _absent(Path(environment[JAVA_VARIABLE]), _jars(environment))


def _absent(java: Path, jars: Sequence[Path]) -> str | None:
    if missing := [str(jar) for jar in jars if not Path(jar).is_file()]:
        return f"jars for Spark are missing: {', '.join(missing)}"
    if shutil.which(java) is None:  # the launcher could only end without a word
        return f"{java} could not be started: there is no such program"
    return None


def _jars(environment: Mapping[str, str]) -> list[Path]:
    return [Path(jar) for jar in environment[JARS_VARIABLE].split(os.pathsep) if jar]


def _spark_folder() -> Path:
    spec = importlib.util.find_spec("pyspark")  # looks it up without importing it
    if spec is None or spec.origin is None:
        raise SparkGatewayError("pyspark is not installed")
    return Path(spec.origin).parent


def _launcher_jar() -> Path:
    found = sorted((_spark_folder() / "jars").glob("spark-launcher_*.jar"))
    if not found:
        raise SparkGatewayError(f"{_spark_folder()} holds no jars of Spark")
    return found[-1]


def _spark_variables(scratch: Path) -> dict[str, str]:
    """What Spark's scripts would have exported."""
    scala = _launcher_jar().name.removeprefix("spark-launcher_").split("-")[0]
    return {
        "SPARK_HOME": str(_spark_folder()),
        "SPARK_SCALA_VERSION": scala,
        "SPARK_CONNECT_MODE": "0",
        "SPARK_LOCAL_DIRS": str(scratch),
    }


def _class_path(spark: str, jars: Sequence[Path]) -> str:
    """What exists of Spark's class path, wildcards as sorted files, then ours; each once.

    Java takes a wildcard in directory order, and an archive of loaded classes needs one order for ever.
    """
    entries: dict[str, None] = {}
    for entry in spark.split(os.pathsep):
        if entry.endswith("*"):
            entries |= dict.fromkeys(sorted(map(str, Path(entry).parent.glob("*.jar"))))
        elif entry and Path(entry).exists():
            entries[entry.rstrip(os.sep)] = None
    entries |= dict.fromkeys(map(str, jars))
    return os.pathsep.join(entries)

"""Downloads jars with Ivy, a Maven client that is installed as part of pyspark.

Jars are downloaded from Ivy's default repository, or from the repository at the address
CONNECT_PY_MAVEN_MIRROR, which must have Maven's layout. Proxies are read from HTTPS_PROXY,
HTTP_PROXY, and NO_PROXY. The trusted certificate authorities are those that Python trusts. These
settings are passed to the JVM in an argument file that only the user can read. On the command line,
a proxy password would be visible in the process list.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from connect_py.api.errors import ConnectError
from connect_py.embedded.java_runtime import JavaRuntime, find_java
from connect_py.embedded.truststore import truststore_options, write_truststore

MIRROR_VARIABLE = "CONNECT_PY_MAVEN_MIRROR"
_DEADLINE_SECONDS = 900.0
_POLL_SECONDS = 0.2
_QUIET_SECONDS = 1.0  # progress is displayed if a download takes longer than this
_FILE_NAME = "[organisation]--[artifact]--[revision](--[classifier]).[ext]"
# name of an XML namespace; Ivy does not open it as a URL
_MAVEN_NAMES = "http://ant.apache.org/ivy/maven"

# group, artifact, version, classifier (often empty), and extension (usually jar)
Coordinates = tuple[str, str, str, str, str]


class IvyError(ConnectError):
    """Ivy failed to download a file. The message contains the end of its output."""


def fetch(title: str, jars: Sequence[Coordinates], folder: Path) -> None:
    """Download files into `folder`. The caller verifies their digests.

    File names have the form `group--artifact--version[--classifier].extension`. Progress is
    displayed on stderr after one second.

    Raises:
        IvyError: A file is not available, or the download took longer than 15 minutes.
        JavaNotFoundError: No Java is available to run Ivy.
    """
    files: dict[
        tuple[str, str, str], str
    ] = {}  # Ivy expects one entry per module, with all of its classifiers
    for group, artifact, version, variant, extension in jars:
        kind = quoteattr(extension)
        file = f"<artifact name={quoteattr(artifact)} type={kind} ext={kind}{_variant(variant)}/>"
        files[group, artifact, version] = files.get((group, artifact, version), "") + file
    dependencies = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        f' transitive="false" conf="default->default">{artifacts}</dependency>'
        for (group, artifact, version), artifacts in files.items()
    )
    _run(title, dependencies, folder, sorted({extension for *_, extension in jars}), use_poms=False)


def fetch_transitively(title: str, roots: Sequence[Coordinates], folder: Path) -> None:
    """Download jars and their runtime dependencies.

    This function is used to create a lock, but never to resolve one.

    Raises:
        IvyError, JavaNotFoundError: See `fetch`.
    """
    dependencies = "\n".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)}"
        f' conf="default->default(runtime)"/>'
        for group, artifact, version, *_ in roots
    )
    _run(title, dependencies, folder, ["jar", "bundle"], use_poms=True)


def jvm_network_options(environment: Mapping[str, str]) -> list[str]:
    """Return the JVM options for the proxy variables, which may be upper or lower case."""

    def variable(name: str) -> str:
        return environment.get(name) or environment.get(name.lower()) or ""

    options: list[str] = []
    for scheme in ("https", "http"):
        if not (address := variable(f"{scheme.upper()}_PROXY")):
            continue
        parts = urlsplit(address if "://" in address else f"http://{address}")
        options += [
            f"-D{scheme}.proxyHost={parts.hostname}",
            f"-D{scheme}.proxyPort={parts.port or 80}",
        ]
        if parts.username:
            options += [
                f"-D{scheme}.proxyUser={unquote(parts.username)}",
                f"-D{scheme}.proxyPassword={unquote(parts.password or '')}",
                # Ivy reads these two properties for both schemes
                f"-Dhttp.proxyUser={unquote(parts.username)}",
                f"-Dhttp.proxyPassword={unquote(parts.password or '')}",
                # otherwise, Java does not send passwords to HTTPS proxies
                "-Djdk.http.auth.tunneling.disabledSchemes=",
            ]
    if options and (direct := variable("NO_PROXY")):
        hosts = [host.strip() for host in direct.split(",") if host.strip()]
        patterns = [f"*{host}" if host.startswith(".") else host for host in hosts]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return options


def _run(
    title: str, dependencies: str, folder: Path, types: Sequence[str], *, use_poms: bool
) -> None:
    java = find_java()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="connect-py-ivy-") as scratch_name:
        scratch = Path(scratch_name)
        (scratch / "ivy.xml").write_text(
            f'<ivy-module version="2.0" xmlns:m="{_MAVEN_NAMES}">'
            f'<info organisation="connect-py" module={quoteattr(title)}/>'
            '<configurations><conf name="default"/></configurations>'
            f"<dependencies>\n{dependencies}\n</dependencies></ivy-module>\n"
        )
        (scratch / "settings.xml").write_text(_settings(scratch / "cache", use_poms=use_poms))
        command = _command(java, scratch, folder, types)
        log_path = scratch / "log"
        with log_path.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            try:
                status = _wait(process, title, scratch / "cache")
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        if status != 0:
            last = log_path.read_text(errors="replace").strip().splitlines()[-25:]
            raise IvyError(f"failed to download the jars for {title}:\n" + "\n".join(last))


def _variant(name: str) -> str:
    return f" m:classifier={quoteattr(name)}" if name else ""


def _settings(cache: Path, *, use_poms: bool) -> str:
    mirror = os.environ.get(MIRROR_VARIABLE, "").strip()
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""
    poms = "" if use_poms else ' usepoms="false"'
    return (
        '<ivysettings><settings defaultResolver="jars"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/>"
        f'<resolvers><ibiblio name="jars" '
        f'm2compatible="true"{poms}{root}/></resolvers></ivysettings>\n'
    )


def _command(
    java: JavaRuntime, scratch: Path, folder: Path, types: Sequence[str]
) -> list[str | Path]:
    options = [
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *jvm_network_options(os.environ),
    ]
    truststore = scratch / "truststore.p12"
    if write_truststore(truststore):
        options += truststore_options(truststore)
    arguments = scratch / "java-arguments"
    arguments.touch(mode=0o600)
    arguments.write_text("".join(f'"{_escaped(option)}"\n' for option in options))
    return [
        java.path,
        f"@{arguments}",
        "-jar",
        _ivy_jar(),
        "-settings",
        scratch / "settings.xml",
        "-ivy",
        scratch / "ivy.xml",
        "-cache",
        scratch / "cache",
        "-types",
        *types,
        "-retrieve",
        f"{folder}/{_FILE_NAME}",
    ]


def _escaped(option: str) -> str:
    return option.replace("\\", "\\\\").replace('"', '\\"')


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # does not import pyspark
    if spec is None or spec.origin is None:
        raise IvyError(
            "pyspark is not installed; it contains the Ivy jar that downloads all other jars"
        )
    jars = sorted((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))
    if not jars:
        raise IvyError(f"the jars of {spec.origin} contain no ivy-*.jar")
    return jars[-1]


def _wait(process: subprocess.Popen[bytes], title: str, cache: Path) -> int:
    """Wait until Ivy exits, displaying the progress, and return its exit status."""
    started = time.monotonic()
    try:
        return process.wait(_QUIET_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # display the progress of a slow download
    console = Console(stderr=True)
    if not console.is_terminal:
        print(
            f"downloading the jars for {title}, which are then cached", file=sys.stderr, flush=True
        )
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task(f"downloading the jars for {title}", total=None)
        while time.monotonic() - started < _DEADLINE_SECONDS:
            try:
                return process.wait(_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                progress.update(task, completed=_bytes_in(cache))
    raise IvyError(
        f"timed out after {_DEADLINE_SECONDS:.0f} s while downloading the jars for {title}"
    )


def _bytes_in(cache: Path) -> int:
    total = 0
    for file in cache.rglob("*"):
        try:
            total += file.stat().st_size
        except FileNotFoundError:
            continue  # Ivy renames partial files
    return total

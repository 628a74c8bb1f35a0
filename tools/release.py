"""Create all files of a release in one folder, and print their sizes and checksums.

    python tools/release.py [--output build/release] [--site build/site]

Nothing is uploaded. The version is defined in `pyproject.toml` and must match the newest section of
`CHANGELOG.md`. Files that cannot be created here are listed with the reason: the image requires
Docker or Buildah, and a registry with its base image.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 400  # maximum number of words in the changelog section of a release
CHECKSUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be created from the current repository."""


def version() -> str:
    """Return the version in pyproject.toml, which must match the changelog's newest section."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    newest, words = newest_section((ROOT / "CHANGELOG.md").read_text())
    if newest != project["version"]:
        raise ReleaseError(
            f"pyproject.toml has version {project['version']}, the changelog begins with {newest}"
        )
    if words > MOST_WORDS:
        raise ReleaseError(
            f"the changelog's section {newest} has {words} words, expected at most {MOST_WORDS}"
        )
    return newest


def newest_section(changelog: str) -> tuple[str, int]:
    """Return the version of the first section and its number of words."""
    _, heading, rest = re.split(r"^## ([0-9][\w.]*).*\n", changelog, maxsplit=1, flags=re.MULTILINE)
    return heading, len(re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].split())


def make_packages(into: Path) -> None:
    """Build the source distribution, and build a wheel for this platform from it.

    The wheel contains the native libraries, which require a Rust compiler.
    """
    _run(sys.executable, "-m", "build", "--sdist", "--outdir", str(into), str(ROOT))
    (source,) = into.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(source) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = Path(folder).iterdir()
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", str(into), str(unpacked))
    _run(
        sys.executable, "-m", "twine", "check", "--strict", *map(str, (*into.glob("*.whl"), source))
    )


def make_archives(into: Path, release: str, site: Path) -> Iterator[str]:
    """Pack the documentation and the chart. Yield the reasons for missing files."""
    if (site / "index.html").exists():
        _pack(site, into / f"connect-py-{release}-documentation.tar.gz", "documentation")
    else:
        yield f"documentation: {site} has no pages; create them with `make site`"
    charts = sorted((ROOT / "deploy").rglob("Chart.yaml"))
    if not charts:
        yield "chart: the repository has none"
    for chart in charts:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(shutil.copytree(chart.parent, Path(folder) / chart.parent.name))
            text = re.sub(
                r"^(version|appVersion):.*$",
                rf'\1: "{release}"',
                chart.read_text(),
                flags=re.MULTILINE,
            )
            (copy / chart.name).write_text(text)
            _pack(copy, into / f"{copy.name}-{release}.tgz", copy.name)


def make_image(into: Path, release: str) -> Iterator[str]:
    """Build an archive of the image. Yield the reasons for missing files.

    The environment variable `BASE` sets the build argument of docker/Dockerfile.
    """
    recipe, image = ROOT / "docker" / "Dockerfile", f"connect-py:{release}"
    archive = into / f"connect-py-{release}-image.tar"
    base = ("--build-arg", f"BASE={os.environ['BASE']}") if "BASE" in os.environ else ()
    build = ("-f", str(recipe), "-t", image, *base, str(ROOT))
    if not recipe.exists():
        yield "image: the repository has no docker/Dockerfile"
        return
    try:
        if _engine_answers():
            _run("docker", "build", *build)
            _run("docker", "save", "-o", str(archive), image)
        elif shutil.which("buildah"):
            # the OCI format does not support health checks
            _run("buildah", "bud", "--format", "docker", *build)
            _run("buildah", "push", image, f"docker-archive:{archive}:{image}")
        else:
            yield "image: neither Docker nor Buildah is available"
    except ReleaseError as error:
        yield f"image: {str(error).strip().splitlines()[-1]}"


def _engine_answers() -> bool:
    """Return True if Docker is running. Some machines have only the Docker client."""
    if shutil.which("docker") is None:
        return False
    try:
        _run("docker", "info")
    except ReleaseError:
        return False
    return True


def write_checksums(folder: Path) -> list[tuple[str, int, str]]:
    """Write SHA256SUMS for `sha256sum -c`, and return the name, size, and SHA-256 of each file."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    checksums = [
        (path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    ]
    (folder / CHECKSUMS).write_text("".join(f"{digest}  {name}\n" for name, _, digest in checksums))
    return checksums


def _pack(folder: Path, archive: Path, name: str) -> None:
    """Pack a folder under a new name, with sorted entries and without owners and times."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted(folder.rglob("*")):
            packed.add(path, f"{name}/{path.relative_to(folder)}", recursive=False, filter=plain)


def _run(*command: str, **environment: str) -> None:
    process = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise ReleaseError(
            f"{' '.join(command)} ended with {process.returncode}:\n"
            + (process.stdout + process.stderr)[-6000:]
        )


def main() -> int:
    """Create the release. Return 1 on failure."""
    options = argparse.ArgumentParser(
        description="Creates all files of a release; uploads nothing."
    )
    options.add_argument("--output", type=Path, default=ROOT / "build" / "release")
    options.add_argument("--site", type=Path, default=ROOT / "build" / "site")
    chosen = options.parse_args()
    into: Path = chosen.output.resolve()
    try:
        release = version()
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        make_packages(into)
        missing = [*make_archives(into, release, chosen.site), *make_image(into, release)]
        checksums = write_checksums(into)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"connect-py {release}, in {into}:")
    for name, size, digest in checksums:
        print(f"  {name}  {size / 1e6:.1f} MB  sha256 {digest}")
    for reason in missing:
        print(f"  not made: {reason}")
    print("  nothing was uploaded")
    return 0


if __name__ == "__main__":
    sys.exit(main())

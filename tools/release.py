"""Makes all files of a release in one folder, and prints them with sizes and checksums. It uploads
nothing.

    python tools/release.py [--output build/release] [--site build/site]

The version stands in `pyproject.toml`, and the newest section of `CHANGELOG.md` has the same. What
cannot be made here is named with the reason: the image needs an engine of docker or buildah, and a
registry that has its base.
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
MOST_WORDS = 400  # of a release in the changelog
CHECKSUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The release cannot be made as the repository stands."""


def version() -> str:
    """The version of pyproject.toml, which the changelog's newest section must have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, words = newest_section((ROOT / "CHANGELOG.md").read_text())
    if found != project["version"]:
        raise ReleaseError(
            f"pyproject.toml has version {project['version']}, the changelog begins with {found}"
        )
    if words > MOST_WORDS:
        raise ReleaseError(
            f"the changelog's section {found} has {words} words, at most {MOST_WORDS} are for "
            f"operators"
        )
    return found


def newest_section(changelog: str) -> tuple[str, int]:
    """The version of the first section, and how many words it has."""
    _, heading, rest = re.split(r"^## ([0-9][\w.]*).*\n", changelog, maxsplit=1, flags=re.MULTILINE)
    return heading, len(re.split(r"^## ", rest, maxsplit=1, flags=re.MULTILINE)[0].split())


def make_packages(into: Path) -> None:
    """Build the source distribution, and a wheel for this platform from it.

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
    """The documentation and the chart; yields what is missing and why."""
    if (site / "index.html").exists():
        _pack(site, into / f"connect-py-{release}-documentation.tar.gz", "documentation")
    else:
        yield f"documentation: {site} has no pages, `make site` makes them"
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
    """The image as an archive; yields what is missing and why. `BASE` is that of
    docker/Dockerfile."""
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
            _run("buildah", "bud", "--format", "docker", *build)  # OCI's format has no health check
            _run("buildah", "push", image, f"docker-archive:{archive}:{image}")
        else:
            yield "image: neither an engine of docker nor buildah is here"
    except ReleaseError as error:
        yield f"image: {str(error).strip().splitlines()[-1]}"


def _engine_answers() -> bool:
    """Whether docker can build: machines have its client without an engine too."""
    if shutil.which("docker") is None:
        return False
    try:
        _run("docker", "info")
    except ReleaseError:
        return False
    return True


def write_checksums(folder: Path) -> list[tuple[str, int, str]]:
    """Name, size and SHA-256 of each file, which SHA256SUMS holds as `sha256sum -c` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    made = [
        (path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in files
    ]
    (folder / CHECKSUMS).write_text("".join(f"{digest}  {name}\n" for name, _, digest in made))
    return made


def _pack(folder: Path, archive: Path, name: str) -> None:
    """A folder under a name, in the order of its paths, without owners and times of this
    machine."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(archive, "w:gz") as packed:
        for path in sorted(folder.rglob("*")):
            packed.add(path, f"{name}/{path.relative_to(folder)}", recursive=False, filter=plain)


def _run(*command: str, **environment: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ReleaseError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-6000:]
        )


def main() -> int:
    """Make the release; returns 1 if it cannot be made."""
    options = argparse.ArgumentParser(description="Makes all files of a release; uploads nothing.")
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
        made = write_checksums(into)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"connect-py {release}, in {into}:")
    for name, size, digest in made:
        print(f"  {name}  {size / 1e6:.1f} MB  sha256 {digest}")
    for reason in missing:
        print(f"  not made: {reason}")
    print("  nothing was uploaded")
    return 0


if __name__ == "__main__":
    sys.exit(main())

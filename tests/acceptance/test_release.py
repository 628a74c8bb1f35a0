"""A release of the repository with `tools/release.py`: packages that install, and valid
checksums.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from importlib.util import find_spec
from pathlib import Path

import pytest
from wheels import ROOT, copy_sources

BUILD_SECONDS = 500
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PLATFORM = sysconfig.get_platform().replace("-", "_").replace(".", "_")
WHEEL = f"connect_py-{VERSION}-py3-none-{PLATFORM}.whl"
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(BUILD_SECONDS + 60),  # compiles the native libraries
    pytest.mark.skipif(shutil.which("cargo") is None, reason="no Rust compiler is installed"),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release, with tools that `make release` installs.

    Without the image, whose base is missing: see `test_container_image`.
    """
    folder = tmp_path_factory.mktemp("release")
    sources = copy_sources(folder / "sources")
    python = Path(sys.executable)
    if find_spec("twine") is None or find_spec("build") is None:
        subprocess.run([sys.executable, "-m", "venv", folder / "tools"], check=True, timeout=100)
        python = folder / "tools" / "bin" / "python"
        install = [
            python,
            "-m",
            "pip",
            "install",
            "-q",
            "-c",
            sources / "constraints.txt",
            "build",
            "twine",
        ]
        subprocess.run(install, check=True, timeout=200)
    site = folder / "site"
    site.mkdir()
    (site / "index.html").write_text("<p>pages</p>")
    command = [
        python,
        sources / "tools" / "release.py",
        "--output",
        folder / "files",
        "--site",
        site,
    ]
    environment = {**os.environ, "BASE": "localhost/connect-py-no-such-base"}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not made: image" in done.stdout
    assert done.stdout.count("not made") == 1
    assert "nothing was uploaded" in done.stdout
    print(done.stdout)
    return folder / "files"


def test_release_has_packages_documentation_and_true_checksums(made: Path) -> None:
    names = {path.name for path in made.iterdir()}
    assert {WHEEL, f"connect_py-{VERSION}.tar.gz"} <= names
    assert {
        f"connect-py-{VERSION}-documentation.tar.gz",
        f"connect-py-{VERSION}.tgz",
        "SHA256SUMS",
    } <= names
    assert [path.name for path in made.glob("*.whl")] == [WHEEL]
    sums = dict(
        reversed(line.split("  ")) for line in (made / "SHA256SUMS").read_text().splitlines()
    )
    assert sums == {
        name: hashlib.sha256((made / name).read_bytes()).hexdigest()
        for name in names - {"SHA256SUMS"}
    }


def test_metadata_of_the_wheel_describes_the_package(made: Path) -> None:
    with zipfile.ZipFile(made / WHEEL) as wheel:
        metadata = message_from_bytes(wheel.read(f"connect_py-{VERSION}.dist-info/METADATA"))
        assert f"connect_py-{VERSION}.dist-info/licenses/LICENSE" in wheel.namelist()
    assert (metadata["Name"], metadata["Version"]) == ("connect-py", VERSION)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "kafka-connect" in metadata["Keywords"]
    assert "Programming Language :: Python :: 3.11" in metadata.get_all("Classifier", [])


def test_source_distribution_has_what_both_libraries_are_made_of(made: Path) -> None:
    with tarfile.open(made / f"connect_py-{VERSION}.tar.gz") as archive:
        names = set(archive.getnames())
    assert {
        f"connect_py-{VERSION}/native/{library}/src/lib.rs" for library in ("decoder", "reader")
    } <= names
    assert f"connect_py-{VERSION}/README.md" in names
    assert not any("/tests/" in name for name in names)

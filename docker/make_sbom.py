"""Bill of materials of the image: Python packages from cyclonedx-py, jars, and Debian packages.

`make_sbom.py PYTHON_SBOM PREFIX OUTPUT`: PREFIX is the folder of the environment with its jars. The
result is validated against the CycloneDX schema, and an invalid result fails the build. Requires
the package cyclonedx-bom.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

# name, version, and architecture, separated by tabs
PACKAGES = Path("/usr/share/connect-py/packages.txt")
# group--artifact--version[--variant].jar: file names of a lock.
LOCKED = re.compile(r"(?P<group>.+?)--(?P<artifact>.+?)--(?P<version>.+?)(--(?P<variant>.+))?\.jar")
# Spark's jars in the package pyspark, without a group: artifact-version.jar.
BUNDLED = re.compile(r"(?P<artifact>.+?)-(?P<version>\d.*)\.jar")


def jars(prefix: Path) -> Iterator[dict[str, Any]]:
    """Yield every jar in the folder, with its Maven name if it is locked."""
    for path in sorted(prefix.rglob("*.jar")):
        if path.is_relative_to(prefix / "cache" / "classes"):
            continue  # compiled from our source
        locked, bundled = LOCKED.fullmatch(path.name), BUNDLED.fullmatch(path.name)
        match = locked or bundled
        component = {
            "type": "library",
            "bom-ref": str(path.relative_to(prefix)),
            "name": match["artifact"] if match else path.stem,
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
        }
        if match:
            component["version"] = match["version"]
        if locked:
            component["group"] = locked["group"]
            component["purl"] = (
                f"pkg:maven/{locked['group']}/{locked['artifact']}@{quote(locked['version'])}"
            )
        yield component


def debian_packages() -> Iterator[dict[str, Any]]:
    """Yield the packages that dpkg had installed before the compilers of the build."""
    listed = PACKAGES.read_text()
    for name, version, architecture in (line.split("\t") for line in listed.splitlines()):
        yield {
            "type": "library",
            "bom-ref": f"deb/{name}:{architecture}",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={architecture}",
        }


def main(source: str, prefix: str, output: str) -> int:
    """Write the file; return 1 if it does not match the schema."""
    bill = json.loads(Path(source).read_text())
    bill["components"] += [*jars(Path(prefix)), *debian_packages()]
    text = json.dumps(bill, indent=1)
    version = SchemaVersion.from_version(bill["specVersion"])
    if problem := JsonStrictValidator(version).validate_str(text):
        print(f"not a CycloneDX {bill['specVersion']} document: {problem}", file=sys.stderr)
        return 1
    Path(output).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

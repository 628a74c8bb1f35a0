"""The bill of materials of the image: Python packages as cyclonedx-py lists them, with jars and
Debian's packages.

`make_sbom.py PYTHON_SBOM PREFIX OUTPUT`: PREFIX is the folder of the environment with its jars. The
result is checked against CycloneDX's schema, so a wrong one ends the build. Needs the package
cyclonedx-bom.
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

# name, version and architecture, with tabs between them
PACKAGES = Path("/usr/share/connect-py/packages.txt")
# group--artifact--version[--variant].jar: the names of a lock's files.
LOCKED = re.compile(r"(?P<group>.+?)--(?P<artifact>.+?)--(?P<version>.+?)(--(?P<variant>.+))?\.jar")
# Spark's own, in the package pyspark, without a group: artifact-version.jar.
BUNDLED = re.compile(r"(?P<artifact>.+?)-(?P<version>\d.*)\.jar")


def jars(prefix: Path) -> Iterator[dict[str, Any]]:
    """Every jar below the folder: those of the locks by their Maven names, Spark's by their files'
    names."""
    for path in sorted(prefix.rglob("*.jar")):
        if path.is_relative_to(prefix / "cache" / "classes"):
            continue  # made of our own source
        locked, bundled = LOCKED.fullmatch(path.name), BUNDLED.fullmatch(path.name)
        found = locked or bundled
        component = {
            "type": "library",
            "bom-ref": str(path.relative_to(prefix)),
            "name": found["artifact"] if found else path.stem,
            "hashes": [
                {"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}
            ],
        }
        if found:
            component["version"] = found["version"]
        if locked:
            component["group"] = locked["group"]
            component["purl"] = (
                f"pkg:maven/{locked['group']}/{locked['artifact']}@{quote(locked['version'])}"
            )
        yield component


def debian_packages() -> Iterator[dict[str, Any]]:
    """What dpkg had installed before the compilers of the build came beside it."""
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
    """Write the file; 1 if it does not fit the schema."""
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

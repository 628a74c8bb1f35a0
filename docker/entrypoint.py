#!/opt/connect-py/bin/python
"""What a container of the image runs: a worker whose properties come from a file and from the
environment.

`connect-distributed` without a file gets /etc/connect-py/worker.properties (or
$CONNECT_PY_PROPERTIES), with the variables CONNECT_... in place of the file's keys. Any other
command runs as it is.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import javaproperties

FILE_VARIABLE = "CONNECT_PY_PROPERTIES"
DEFAULT_FILE = "/etc/connect-py/worker.properties"
PREFIX = "CONNECT_"
OWN_PREFIX = "CONNECT_PY_"  # variables of the program, not properties
WORKER = "connect-distributed"
WRONG_USAGE = 1


def key_of(variable: str) -> str:
    """The property of a variable: CONNECT_A_B is a.b; two underscores are one, three are a
    hyphen."""
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def properties_of(file: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The worker's properties: those of the file, and over them those of the environment."""
    given = {
        key_of(name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and not name.startswith(OWN_PREFIX)
    }
    return {**file, **given}


def write_properties(properties: Mapping[str, str]) -> Path:
    """Write them where only this user reads them, since values may be secrets."""
    folder = Path(tempfile.gettempdir()) / "connect-py"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "worker.properties"
    path.unlink(missing_ok=True)  # of an earlier start of this container
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="latin-1"
    ) as made:
        javaproperties.dump(dict(properties), made, timestamp=False)
    return path


def main(arguments: list[str]) -> NoReturn:
    """Become the command; a worker gets its properties first."""
    command = arguments or [WORKER]
    if command == [WORKER]:
        path = Path(os.environ.get(FILE_VARIABLE) or DEFAULT_FILE)
        try:
            with path.open("rb") as opened:
                file = dict(javaproperties.load(opened))
        except (OSError, ValueError) as error:
            print(f"connect-py: the worker's properties cannot be read: {error}", file=sys.stderr)
            sys.exit(WRONG_USAGE)
        properties = properties_of(file, os.environ)
        if not properties.get("bootstrap.servers"):
            print(
                f"connect-py: bootstrap.servers is not set: set CONNECT_BOOTSTRAP_SERVERS, or "
                f"mount {path}",
                file=sys.stderr,
            )
            sys.exit(WRONG_USAGE)
        command = [WORKER, str(write_properties(properties))]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"connect-py: {command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(WRONG_USAGE)


if __name__ == "__main__":
    main(sys.argv[1:])

#!/opt/connect-py/bin/python
"""Entry point of the image: run a worker with the properties of a file and of the environment.

`connect-distributed` without a file uses /etc/connect-py/worker.properties (or
$CONNECT_PY_PROPERTIES); variables CONNECT_... take precedence over the file. Any other command is
executed unchanged.
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
OWN_PREFIX = "CONNECT_PY_"  # variables of the program instead of properties
WORKER = "connect-distributed"
WRONG_USAGE = 1


def key_of(variable: str) -> str:
    """Return the property of a variable.

    CONNECT_A_B is a.b; two underscores are one underscore, three are a hyphen.
    """
    name = variable.removeprefix(PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def properties_of(file: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the worker's properties; the environment takes precedence over the file."""
    overrides = {
        key_of(name): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and not name.startswith(OWN_PREFIX)
    }
    return {**file, **overrides}


def write_properties(properties: Mapping[str, str]) -> Path:
    """Write the properties to a file that only this user can read: they may be secrets."""
    folder = Path(tempfile.gettempdir()) / "connect-py"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "worker.properties"
    path.unlink(missing_ok=True)  # left by an earlier start of this container
    with os.fdopen(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="latin-1"
    ) as stream:
        javaproperties.dump(dict(properties), stream, timestamp=False)
    return path


def main(arguments: list[str]) -> NoReturn:
    """Execute the command; write the properties of a worker first."""
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

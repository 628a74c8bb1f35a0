"""Runs the program of a shared service: `python -P -m connect_py.worker.service_launcher PARENT
MODULE [LOCATION]`.

On Linux the kernel kills this process when its parent dies. The kernel means the *thread* that
started it.
"""

from __future__ import annotations

import importlib.util
import json
import runpy
import sys

from connect_py.api.service import EXIT_FAILED
from connect_py.plugins.plugin_location import add_location
from connect_py.process.child_launcher import die_with_parent


def main(parent: int, module: str, location: str | None = None) -> None:
    """Become the program; `location` is the folder of `plugin.path` that it lies in."""
    die_with_parent(parent)
    if location is not None:
        add_location(location)
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package
        found = False
    if not found:
        print(json.dumps({"failed": f"there is no module {module}"}), flush=True)
        sys.exit(EXIT_FAILED)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

"""Runs the program of a shared service: `python -P -m connect_py.worker.service_launcher PARENT
MODULE [LOCATION]`.

On Linux, the kernel kills this process when the *thread* of its parent that started it exits.
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
    """Run the program. `location` is the folder of `plugin.path` that contains it."""
    die_with_parent(parent)
    if location is not None:
        add_location(location)
    try:
        exists = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package
        exists = False
    if not exists:
        print(json.dumps({"failed": f"module {module} not found"}), flush=True)
        sys.exit(EXIT_FAILED)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

"""Scans `plugin.path` for plugins that are not installed with the worker.

Each folder is scanned in a separate process.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, Final

from connect_py.api.errors import ConnectError
from connect_py.api.plugin import Plugin, PluginKind
from connect_py.plugins.plugin_location import add_location
from connect_py.plugins.plugin_table import GROUP, PluginTable, read_table

log = logging.getLogger(__name__)

SCAN_SECONDS: Final = 60.0  # timeout for each folder; folders are scanned concurrently
_SHOWN_CHARACTERS: Final = 2_000


def plugin_locations(paths: Iterable[str]) -> list[Path]:
    """Return the folders in `paths`, and their subfolders, that contain Python package metadata.

    `pip install --target` creates such a folder. Folders that cannot be read are logged and
    skipped.
    """
    locations: list[Path] = []
    for entry in paths:
        path = Path(entry.strip()).absolute()
        if not entry.strip():
            continue
        try:
            subfolders = sorted(
                each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")
            )
        except OSError as error:
            log.error(
                "Could not get listing for plugin path: %s. Ignoring. (%s)", path, error.strerror
            )
            continue
        candidates = [
            each
            for each in (path, *subfolders)
            if any(each.glob("*.dist-info")) or any(each.glob("*.egg-info"))
        ]
        if not candidates:
            log.info("plugin path %s does not contain Python plugins", path)
        locations += [each for each in candidates if each not in locations]
    return locations


def scan(locations: Sequence[Path]) -> list[PluginTable]:
    """Scan these folders and return their plugin tables.

    If the scan of a folder fails or times out, the folder is logged and skipped.
    """
    started = [
        (
            location,
            subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, str(location)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ),
        )
        for location in locations
    ]
    tables = []
    for location, process in started:
        try:
            output, errors = process.communicate(timeout=SCAN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            log.error(
                "failed to list plugins in %s: timed out after %g s",
                location,
                SCAN_SECONDS,
            )
            continue
        if process.returncode != 0:
            reason = errors[-_SHOWN_CHARACTERS:].strip() or f"exit status {process.returncode}"
            log.error("failed to list plugins in %s: %s", location, reason)
            continue
        if errors.strip():
            log.warning("plugins in %s: %s", location, errors[-_SHOWN_CHARACTERS:].strip())
        decoded = [_decode(entry) for entry in json.loads(output)]
        for table in decoded:
            log.info(
                "plugins in %s, version %s: %s",
                location,
                table.version,
                ", ".join(p.name for p in table.plugins),
            )
        tables += decoded
    return tables


def _encode(table: PluginTable) -> dict[str, Any]:
    return {
        "version": table.version,
        "plugins": [{**asdict(plugin), "kind": plugin.kind.name} for plugin in table.plugins],
    }


def _decode(entry: dict[str, Any]) -> PluginTable:
    plugins = tuple(
        Plugin(**{**fields, "kind": PluginKind[fields["kind"]]}) for fields in entry["plugins"]
    )
    return PluginTable(plugins, (), entry["version"])


def _tables(location: Path) -> Iterator[PluginTable]:
    """Yield the plugin tables from the distributions in a folder.

    Runs in the scanning process. Broken distributions are reported and skipped.
    """
    add_location(str(location))
    for distribution in distributions(path=[str(location)]):
        for entry in distribution.entry_points.select(group=GROUP):
            try:
                yield read_table(entry, distribution.version, str(location))
            except Exception as error:  # noqa: BLE001 - a plugin's module may raise any error
                print(
                    f"failed to load {entry.name} ({entry.value}): {type(error).__name__}: {error}",
                    file=sys.stderr,
                )


def main(location: Path) -> None:
    """Print the plugins in one folder to standard output as JSON.

    Output that the plugins print is redirected to standard error.
    """
    stdout, sys.stdout = sys.stdout, sys.stderr
    stdout.write(json.dumps([_encode(table) for table in _tables(location)]))
    stdout.flush()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ConnectError as error:
        sys.exit(str(error))

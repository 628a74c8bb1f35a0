"""`plugin.path`: folders of plugins that are not installed with the worker, each looked at in a
process of its own."""

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

SCAN_SECONDS: Final = 60.0  # for all folders, which are looked at side by side
_SHOWN_CHARACTERS: Final = 2_000


def plugin_locations(paths: Iterable[str]) -> list[Path]:
    """The folders that hold packages with their metadata: the paths themselves, and the folders in
    them.

    That is how `pip install --target` leaves a folder. What cannot be read is logged and left out.
    """
    found: list[Path] = []
    for text in paths:
        path = Path(text.strip()).absolute()
        if not text.strip():
            continue
        try:
            inside = sorted(
                each for each in path.iterdir() if each.is_dir() and not each.name.startswith(".")
            )
        except OSError as error:
            log.error(
                "Could not get listing for plugin path: %s. Ignoring. (%s)", path, error.strerror
            )
            continue
        here = [
            each
            for each in (path, *inside)
            if any(each.glob("*.dist-info")) or any(each.glob("*.egg-info"))
        ]
        if not here:
            log.info("plugin path %s holds no Python plugins", path)
        found += [each for each in here if each not in found]
    return found


def scan(locations: Sequence[Path]) -> list[PluginTable]:
    """The tables of these folders; one that cannot be read, or takes too long, is logged and left
    out."""
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
            answer, said = process.communicate(timeout=SCAN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            log.error(
                "plugins in %s cannot be used: they were not listed within %g s",
                location,
                SCAN_SECONDS,
            )
            continue
        if process.returncode != 0:
            why = (
                said[-_SHOWN_CHARACTERS:].strip()
                or f"listing them ended with status {process.returncode}"
            )
            log.error("plugins in %s cannot be used: %s", location, why)
            continue
        if said.strip():
            log.warning("plugins in %s: %s", location, said[-_SHOWN_CHARACTERS:].strip())
        found = [_decode(entry) for entry in json.loads(answer)]
        for table in found:
            log.info(
                "plugins of %s, version %s: %s",
                location,
                table.version,
                ", ".join(p.name for p in table.plugins),
            )
        tables += found
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
    """In the scanning process: what the distributions in one folder bring. A broken one is said,
    others go on."""
    add_location(str(location))
    for distribution in distributions(path=[str(location)]):
        for entry in distribution.entry_points.select(group=GROUP):
            try:
                yield read_table(entry, distribution.version, str(location))
            except Exception as error:  # noqa: BLE001 - whatever a plugin's module raises
                print(
                    f"{entry.name} ({entry.value}) cannot be used: {type(error).__name__}: {error}",
                    file=sys.stderr,
                )


def main(location: Path) -> None:
    """List the plugins of one folder on standard output; what they print themselves goes to
    standard error."""
    answer, sys.stdout = sys.stdout, sys.stderr
    answer.write(json.dumps([_encode(table) for table in _tables(location)]))
    answer.flush()


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ConnectError as error:
        sys.exit(str(error))

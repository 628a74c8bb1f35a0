"""Hadoop's configuration files: what `iceberg.hadoop-conf-dir` points to. Standard library only."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from connect_py.api.errors import ConfigError

FILES = ("core-site.xml", "hdfs-site.xml", "hive-site.xml")  # a later one wins, as in Hadoop


def read_hadoop_files(key: str, folder: str) -> dict[str, str]:
    """The properties of those files that are there; references such as ${user.name} are Hadoop's to
    resolve.

    Raises:
        ConfigError: Names `key`: the folder is not there, or a file is not of Hadoop's form.
    """
    if not Path(folder).is_dir():
        raise ConfigError(key, f"{folder} is not a folder on this machine")
    found: dict[str, str] = {}
    for path in (Path(folder) / name for name in FILES):
        if not path.is_file():
            continue
        try:
            root = ElementTree.parse(path).getroot()
        except (ElementTree.ParseError, OSError) as error:
            raise ConfigError(key, f"{path}: {error}") from error
        for item in root.iter("property"):
            name = (item.findtext("name") or "").strip()
            if name:
                found[name] = (item.findtext("value") or "").strip()
    return found

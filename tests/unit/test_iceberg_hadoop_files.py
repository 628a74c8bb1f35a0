"""Hadoop's configuration files."""

from __future__ import annotations

from pathlib import Path

import pytest
from iceberg_staging_rows import config

from connect_py.api.errors import ConfigError

SITE = (
    "<?xml version='1.0'?><configuration><property><name>{}</name><value> {} "
    "</value></property></configuration>"
)


def test_hadoop_files_are_read_in_order_and_connector_keys_win(tmp_path: Path) -> None:
    (tmp_path / "core-site.xml").write_text(SITE.format("fs.defaultFS", "hdfs://core"))
    (tmp_path / "hdfs-site.xml").write_text(SITE.format("fs.defaultFS", "hdfs://hdfs"))
    (tmp_path / "hive-site.xml").write_text(SITE.format("hive.metastore.uris", "thrift://hive"))
    (tmp_path / "yarn-site.xml").write_text("not read")
    made = config(hadoop_conf_dir=str(tmp_path), hadoop__hive__metastore__uris="thrift://mine")
    assert made.hadoop_settings() == {
        "fs.defaultFS": "hdfs://hdfs",
        "hive.metastore.uris": "thrift://mine",
    }
    assert config(hadoop__a="b").hadoop_settings() == {"a": "b"}


def test_missing_hadoop_folder_and_broken_file_are_named_in_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="hadoop-conf-dir"):
        config(hadoop_conf_dir=str(tmp_path / "nowhere")).hadoop_settings()
    (tmp_path / "core-site.xml").write_text("<configuration>")
    with pytest.raises(ConfigError, match=r"core-site\.xml"):
        config(hadoop_conf_dir=str(tmp_path)).hadoop_settings()

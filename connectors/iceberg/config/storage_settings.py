"""Storage settings: Hadoop configuration files, and `FileIO` properties for Java and PyIceberg."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from connect_py.api.errors import ConfigError

HADOOP_FILES: Final = (  # later files take precedence, as in Hadoop
    "core-site.xml",
    "hdfs-site.xml",
    "hive-site.xml",
)
# Prefixes of storage properties. Tasks receive only these properties, never a catalog's token or
# password.
_PREFIXES: Final = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "oss.", "hf.")
_ENDPOINT: Final = "s3.endpoint"
_PATH_STYLE: Final = "s3.path-style-access"
_VIRTUAL: Final = "s3.force-virtual-addressing"  # PyIceberg's inverse of `_PATH_STYLE`
_REGION: Final = "client.region"
_S3_REGION: Final = "s3.region"  # takes precedence over `_REGION` in PyIceberg
_ROLES: Final = (
    ("client.assume-role.arn", "client.role-arn"),
    ("client.assume-role.session-name", "client.role-session-name"),
)
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_RETRIES: Final = "s3.retry-strategy-impl"
PATIENT_RETRIES: Final = "connectors.iceberg.staging.s3_retry_strategy.PatientRetries"
# substring of keys such as s3.session-token-expires-at-ms and gcs.oauth2.token-expires-at
_EXPIRES: Final = "expires-at"
# Requests must be signed with a region, even if the storage at a custom endpoint has no regions.
_ANY_REGION: Final = "us-east-1"


def file_io_properties(
    properties: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the storage properties for Java's `FileIO` and for PyIceberg.

    Args:
        properties: Properties of a catalog or of Java's `FileIO`.
        environment: Environment variables that specify the region if the properties do not. The
            default is the environment of this process.
    """
    environment = os.environ if environment is None else environment
    settings = {key: value for key, value in properties.items() if key.startswith(_PREFIXES)}
    for java, python in _ROLES:
        if java in settings:
            settings.setdefault(python, settings[java])
    settings.setdefault(_RETRIES, PATIENT_RETRIES)
    if _ENDPOINT not in settings:
        return settings
    # Without a region, PyIceberg requests the bucket's region from AWS, and the request times
    # out if AWS is unreachable.
    if _REGION not in settings and _S3_REGION not in settings:
        region = next(filter(None, map(environment.get, _REGION_VARIABLES)), _ANY_REGION)
        settings[_S3_REGION] = region
    # With a custom endpoint, Arrow uses path-style access by default, but Java does not.
    if settings.get(_PATH_STYLE, "false").lower() != "true":
        settings.setdefault(_VIRTUAL, "true")
    return settings


def credentials_expiry_ms(settings: Mapping[str, str]) -> int | None:
    """Return the Unix time at which vended credentials expire, or None if it is unknown."""
    times = [int(value) for key, value in settings.items() if _EXPIRES in key and value.isdecimal()]
    return min(times, default=None)


def read_hadoop_files(key: str, folder: str) -> dict[str, str]:
    """Return the properties from the Hadoop configuration files in a folder.

    References such as `${user.name}` are returned unchanged, because Hadoop resolves them.

    Raises:
        ConfigError: The folder does not exist, or a file is not a Hadoop configuration file. The
            error message contains `key`.
    """
    if not Path(folder).is_dir():
        raise ConfigError(key, f"{folder} is not a folder on this machine")
    properties: dict[str, str] = {}
    for path in (Path(folder) / name for name in HADOOP_FILES):
        if not path.is_file():
            continue
        try:
            root = ElementTree.parse(path).getroot()
        except (ElementTree.ParseError, OSError) as error:
            raise ConfigError(key, f"{path}: {error}") from error
        for item in root.iter("property"):
            name = (item.findtext("name") or "").strip()
            if name:
                properties[name] = (item.findtext("value") or "").strip()
    return properties

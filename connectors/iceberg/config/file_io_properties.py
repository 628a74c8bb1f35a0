"""A storage's settings in the words of the Java library, and the same in PyIceberg's, which tasks
write with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

# What tasks get: storage keys only, never a catalog's own token or password.
_PREFIXES: Final = ("s3.", "gcs.", "adls.", "client.", "hdfs.", "oss.", "hf.")
_ENDPOINT: Final = "s3.endpoint"
_PATH_STYLE: Final = "s3.path-style-access"
_VIRTUAL: Final = "s3.force-virtual-addressing"  # PyIceberg's word for the opposite
_REGION: Final = "client.region"
_S3_REGION: Final = "s3.region"  # PyIceberg's own; it wins there
_ROLES: Final = (
    ("client.assume-role.arn", "client.role-arn"),
    ("client.assume-role.session-name", "client.role-session-name"),
)
_REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
_RETRIES: Final = "s3.retry-strategy-impl"
PATIENT_RETRIES: Final = "connectors.iceberg.staging.s3_retry_strategy.PatientRetries"
# s3.session-token-expires-at-ms, gcs.oauth2.token-expires-at and the like
_EXPIRES: Final = "expires-at"
# of storage at an address of its own: it has none, and requests are signed with one
_ANY_REGION: Final = "us-east-1"


def file_io_properties(
    properties: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Those of a file IO's properties that say how to reach the storage, fit for PyIceberg too.

    Args: properties: As Java's file IO has them, or a catalog. environment: Where a region may be
        named that the properties leave out; the process's own unless given.
    """
    environment = os.environ if environment is None else environment
    found = {key: value for key, value in properties.items() if key.startswith(_PREFIXES)}
    for java, python in _ROLES:
        if java in found:
            found.setdefault(python, found[java])
    found.setdefault(_RETRIES, PATIENT_RETRIES)
    if _ENDPOINT not in found:
        return found
    # PyIceberg would otherwise ask Amazon in which region the bucket is, and wait long where there
    # is no way to it.
    if _REGION not in found and _S3_REGION not in found:
        region = next(filter(None, map(environment.get, _REGION_VARIABLES)), _ANY_REGION)
        found[_S3_REGION] = region
    # With an endpoint Arrow takes path style by itself, and Java does not.
    if found.get(_PATH_STYLE, "false").lower() != "true":
        found.setdefault(_VIRTUAL, "true")
    return found


def lent_until_ms(settings: Mapping[str, str]) -> int | None:
    """When credentials that a catalog lent end, in milliseconds of the clock on the wall; None: no
    setting says."""
    ends = [int(value) for key, value in settings.items() if _EXPIRES in key and value.isdecimal()]
    return min(ends, default=None)

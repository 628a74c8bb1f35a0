"""Checks whether a REST catalog rejects the branches and tags that a connector requires.

The REST specification does not define how a catalog reports whether it supports branches and tags
on tables. Nessie accepts only `main`, because its own branches span the whole catalog, and returns
a property that identifies it as Nessie. Other catalogs without support for branches and tags reject
the first commit that requires them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from connect_py.api.config import with_prefix
from connectors.iceberg.config.ref_settings import ref_settings

if TYPE_CHECKING:
    import httpx  # at runtime, imported only for a request

    from connectors.iceberg.config.sink_config import IcebergSinkConfig

log = logging.getLogger(__name__)

_ONLY_MAIN: Final = "nessie.is-nessie-catalog"  # property in the catalog's configuration
_REST_CATALOG: Final = "org.apache.iceberg.rest.RESTCatalog"
_REQUEST_SECONDS: Final = 2.0  # timeout of each network operation
_SECONDS: Final = 5.0  # timeout of a whole request
_MAX_BYTES: Final = 1 << 20


def unsupported_ref_settings(config: IcebergSinkConfig) -> list[tuple[str, str]]:
    """Return the keys that require branches or tags that the catalog rejects, with error messages.

    If any key requires branches or tags, up to two requests are sent to a REST catalog. The list is
    empty if the catalog does not respond or requires authentication other than a token or a
    credential.
    """
    settings = dict(ref_settings(config))
    if not settings or not _accepts_only_main(config.catalog_properties()):
        return []
    return [
        (
            key,
            f"{feature} in the table, but the catalog accepts only the branch main "
            f"(it reports {_ONLY_MAIN}=true)",
        )
        for key, feature in settings.items()
    ]


def _accepts_only_main(properties: Mapping[str, str]) -> bool:
    """Return True if a REST catalog reports that it accepts only the branch main."""
    is_rest = properties.get("type") == "rest" or properties.get("catalog-impl") == _REST_CATALOG
    if not is_rest or not properties.get("uri"):
        return False
    import httpx  # imported here, because most connectors do not require a request

    uri = properties["uri"].rstrip("/")
    try:
        # Like the Java client, ignore the proxies and the .netrc file in the worker's environment.
        with httpx.Client(timeout=_REQUEST_SECONDS, trust_env=False) as client:
            headers = with_prefix(properties, "header.")
            if token := _token(client, uri, properties):
                headers["Authorization"] = f"Bearer {token}"
            warehouse = properties.get("warehouse")
            parameters = {} if warehouse is None else {"warehouse": warehouse}
            request = client.build_request(
                "GET", f"{uri}/v1/config", params=parameters, headers=headers
            )
            document = _json(client, request)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, TimeoutError) as error:
        log.debug("failed to load the configuration of catalog %s: %r", uri, error)
        return False
    return any(
        str(section.get(_ONLY_MAIN, "")).lower() == "true"
        for section in (document.get("overrides"), document.get("defaults"))
        if isinstance(section, dict)
    )


def _token(client: httpx.Client, uri: str, properties: Mapping[str, str]) -> str | None:
    """Return the bearer token, or None if the properties have neither a token nor a credential."""
    credential = properties.get("credential")
    if token := properties.get("token"):
        return token
    if not credential:
        return None
    client_id, colon, secret = credential.partition(":")
    if not colon:  # the credential consists only of a secret
        client_id, secret = "", credential
    form = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret,
        "scope": properties.get("scope", "catalog"),
    }
    address = properties.get("oauth2-server-uri", f"{uri}/v1/oauth/tokens")
    request = client.build_request(
        "POST", address, data={name: value for name, value in form.items() if value}
    )
    return str(_json(client, request).get("access_token", "")) or None


def _json(client: httpx.Client, request: httpx.Request) -> Mapping[str, Any]:
    """Send a request and return the object in the response.

    Raises:
        httpx.HTTPError: The request failed, or the response has an error status.
        ValueError: The response is not a JSON object, or is too large.
        TimeoutError: The response took too long.
    """
    deadline = time.monotonic() + _SECONDS
    body = bytearray()
    response = client.send(request, stream=True)
    try:
        response.raise_for_status()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MAX_BYTES:
                raise ValueError(f"the response has more than {_MAX_BYTES} bytes")
            if time.monotonic() > deadline:
                raise TimeoutError(f"the response took more than {_SECONDS:g} s")
    finally:
        response.close()
    document = json.loads(bytes(body))
    if not isinstance(document, dict):
        raise ValueError("the response is not a JSON object")
    return document

"""TLS contexts for HTTP, created from Java's `ssl.*` settings."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from connect_py.api.errors import ConfigError
from connect_py.tls.tls_material import TlsMaterial

_VERSIONS: Final = {
    "TLSv1": "TLSv1",
    "TLSv1.1": "TLSv1_1",
    "TLSv1.2": "TLSv1_2",
    "TLSv1.3": "TLSv1_3",
}
_CLIENT_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(props: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for an HTTPS listener.

    `ssl.client.auth` determines whether clients must present a certificate, which is verified
    against the trust store.

    Raises:
        ConfigError: The key is missing, or a store cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    material = _material(context, props)
    if material.key is None:
        raise ConfigError("ssl.keystore.location", "an HTTPS listener needs a key store")
    client_auth = props.get("ssl.client.auth", "none").strip().lower()
    if client_auth not in _CLIENT_AUTH:
        raise ConfigError("ssl.client.auth", "must be one of none, requested, required")
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, material)
    return context


def client_context(props: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for requests.

    It trusts the certificates in the trust store or, if none is configured, the system's
    authorities. If a client key is configured, its certificate is presented when the server
    requests one. Host names are verified only if `ssl.endpoint.identification.algorithm` is
    `https`.

    Raises:
        ConfigError: A store cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = (
        props.get("ssl.endpoint.identification.algorithm", "").strip().lower() == "https"
    )
    _trust(context, _material(context, props))
    return context


def _material(context: ssl.SSLContext, props: Mapping[str, str]) -> TlsMaterial:
    """Apply protocols, ciphers, and the key to a context, and return all material as PEM data."""
    enabled = [
        item.strip() for item in props.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3").split(",")
    ]
    unknown = [name for name in enabled if name not in _VERSIONS]
    if unknown:
        raise ConfigError(
            "ssl.enabled.protocols",
            f"expected values from {', '.join(_VERSIONS)}; found {', '.join(unknown)}",
        )
    versions = sorted(ssl.TLSVersion[_VERSIONS[name]] for name in enabled)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    material = TlsMaterial.of(props)
    try:
        if material.ciphers is not None:
            context.set_ciphers(material.ciphers)
    except ssl.SSLError as error:
        raise ConfigError("ssl.cipher.suites", "OpenSSL supports none of these") from error
    if material.key is not None:
        _add_key(context, f"{material.key}\n{material.chain or ''}")
    return material


def _add_key(context: ssl.SSLContext, pem: str) -> None:
    """Add a key to a context through a temporary file that only the current user can read.

    OpenSSL reads keys only from files.
    """
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise ConfigError(
            "ssl.keystore.location", "the key does not match its certificates"
        ) from error
    finally:
        Path(path).unlink()


def _trust(context: ssl.SSLContext, material: TlsMaterial) -> None:
    if material.authorities is None:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=material.authorities)
    except ssl.SSLError as error:
        raise ConfigError("ssl.truststore.location", "the certificates cannot be used") from error

"""TLS contexts for HTTP, made from Java's `ssl.*` settings: PEM texts and files, PKCS12 and JKS stores."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from connect_py.api.errors import ConfigError
from connect_py.kafka.cipher_suites import openssl_ciphers
from connect_py.kafka.key_stores import certificates_of, key_and_chain, private_key_of, trusted_certificates

_VERSIONS: Final = {"TLSv1": "TLSv1", "TLSv1.1": "TLSv1_1", "TLSv1.2": "TLSv1_2", "TLSv1.3": "TLSv1_3"}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(props: Mapping[str, str]) -> ssl.SSLContext:
    """For HTTPS listeners. `ssl.client.auth` says whether clients show a certificate that the trust store knows.

    Raises:
        ConfigError: There is no key, or a store cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, props)
    if not _add_key(context, props):
        raise ConfigError("ssl.keystore.location", "an HTTPS listener needs a key store")
    wanted = props.get("ssl.client.auth", "none").strip().lower()
    if wanted not in _CLIENT_AUTH:
        raise ConfigError("ssl.client.auth", "must be one of none, requested, required")
    context.verify_mode = _CLIENT_AUTH[wanted]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, props)
    return context


def client_context(props: Mapping[str, str]) -> ssl.SSLContext:
    """For requests to other workers: trusts the trust store, or the system's authorities without one.

    The own key, if there is one, is shown to who asks. Host names are checked if
    `ssl.endpoint.identification.algorithm` says so.

    Raises:
        ConfigError: A store cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = props.get("ssl.endpoint.identification.algorithm", "").strip().lower() == "https"
    _limit(context, props)
    _add_key(context, props)
    _trust(context, props)
    return context


def _limit(context: ssl.SSLContext, props: Mapping[str, str]) -> None:
    enabled = _items(props.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))
    unknown = [name for name in enabled if name not in _VERSIONS]
    if unknown or not enabled:
        raise ConfigError(
            "ssl.enabled.protocols", f"knows {', '.join(_VERSIONS)}, found {', '.join(unknown) or 'none'}"
        )
    versions = sorted(ssl.TLSVersion[_VERSIONS[name]] for name in enabled)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    ciphers = openssl_ciphers(_items(props.get("ssl.cipher.suites", "")))
    if ciphers is not None:
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError as error:
            raise ConfigError("ssl.cipher.suites", "OpenSSL knows none of these") from error


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _kind(props: Mapping[str, str], store: str) -> str:
    return (props.get(f"ssl.{store}.type") or "JKS").strip().upper()


def _add_key(context: ssl.SSLContext, props: Mapping[str, str]) -> bool:
    password = props.get("ssl.key.password")
    if props.get("ssl.keystore.key"):
        key = private_key_of(props["ssl.keystore.key"], password, "ssl.keystore.key")
        chain_key = "ssl.keystore.certificate.chain"
        chain = certificates_of(props.get(chain_key, ""), chain_key)
    elif props.get("ssl.keystore.location"):
        key, chain = key_and_chain(
            props["ssl.keystore.location"], _kind(props, "keystore"), props.get("ssl.keystore.password"), password
        )
    else:
        return False
    _with_file(key + chain, context.load_cert_chain)
    return True


def _with_file(pem: str, load: Callable[[str], None]) -> None:
    """OpenSSL reads keys from files only: one that nobody else may read, and not for long."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(pem)
        load(path)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError("ssl.keystore.location", "the key or its certificates cannot be used") from error
    finally:
        Path(path).unlink()


def _trust(context: ssl.SSLContext, props: Mapping[str, str]) -> None:
    location = props.get("ssl.truststore.location")
    if props.get("ssl.truststore.certificates"):
        pem = certificates_of(props["ssl.truststore.certificates"], "ssl.truststore.certificates")
    elif location:
        pem = trusted_certificates(location, _kind(props, "truststore"), props.get("ssl.truststore.password"))
    else:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(cadata=pem)
    except ssl.SSLError as error:
        raise ConfigError("ssl.truststore.location", "the certificates cannot be used") from error

"""Converts Java key stores (JKS, PKCS12), which librdkafka cannot read, to PEM data in memory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import Certificate, load_der_x509_certificate, load_pem_x509_certificates

from connect_py.api.errors import ConfigError
from connect_py.tls.java_key_store import JavaKeyStore, KeyStoreError, is_java_key_store


def trusted_certificates(location: str, kind: str, password: str | None) -> str:
    """Return the certificates in a trust store as PEM data.

    As in Java, JKS and PKCS12 are detected from the file's contents.

    Raises:
        ConfigError: The file cannot be read with this password, or contains no certificate.
    """
    if kind == "PEM":
        return certificates_of(
            _read(location, "ssl.truststore.location").decode("latin-1"), "ssl.truststore.location"
        )
    data = _read(location, "ssl.truststore.location")
    if is_java_key_store(data):
        entries = _java_store(
            data, location, password, "ssl.truststore.location"
        ).certificates.values()
        certificates = [_certificate(der, location, "ssl.truststore.location") for der in entries]
    else:
        store = _pkcs12(data, location, password, "ssl.truststore.location")
        certificates = [entry.certificate for entry in store.additional_certs]
        if store.cert is not None:
            certificates.append(store.cert.certificate)
    if not certificates:
        raise ConfigError("ssl.truststore.location", f"{location} contains no certificate")
    return _certificates_pem(certificates)


def key_and_chain(
    location: str, kind: str, password: str | None, key_password: str | None
) -> tuple[str, str]:
    """Return the decrypted private key and its certificate chain as PEM data.

    A file of type PEM contains both. As in Java, JKS (including JCEKS) and PKCS12 are detected from
    the file's contents.

    Raises:
        ConfigError: The file cannot be read with these passwords, or contains no key.
    """
    key_name = "ssl.keystore.location"
    if kind == "PEM":
        pem = _read(location, key_name).decode("latin-1")
        return private_key_of(pem, key_password, key_name), certificates_of(pem, key_name)
    data = _read(location, key_name)
    if not is_java_key_store(data):
        store = _pkcs12(data, location, password, key_name)
        if store.key is None or store.cert is None:
            raise ConfigError(key_name, f"{location} contains no private key")
        chain = [store.cert.certificate, *(entry.certificate for entry in store.additional_certs)]
        return _private_pem(store.key), _certificates_pem(chain)
    for entry in _java_store(data, location, password, key_name).keys.values():
        try:
            key = load_der_private_key(entry.decrypt(key_password or password or ""), None)
        except ValueError as error:
            raise ConfigError(
                key_name, f"the key in {location} cannot be read with ssl.key.password"
            ) from error
        return _private_pem(key), _certificates_pem(
            _certificate(der, location, key_name) for der in entry.chain
        )
    raise ConfigError(key_name, f"{location} contains no private key")


def certificates_of(pem: str, key: str) -> str:
    """Return the certificates in PEM data, with normalized line breaks.

    Raises:
        ConfigError: The data contains no valid certificate. The error names `key`.
    """
    blocks = _blocks(pem, "CERTIFICATE")
    try:
        certificates = [
            certificate
            for block in blocks
            for certificate in load_pem_x509_certificates(block.encode())
        ]
    except ValueError as error:
        raise ConfigError(key, "contains a certificate that cannot be read") from error
    if not certificates:
        raise ConfigError(key, "contains no certificate in PEM form")
    return _certificates_pem(certificates)


def private_key_of(pem: str, password: str | None, key: str) -> str:
    """Return the decrypted private key in PEM data.

    Raises:
        ConfigError: The data contains no valid private key. The error names `key`.
    """
    blocks = _blocks(pem, "[A-Z ]*PRIVATE KEY")
    if not blocks:
        raise ConfigError(key, "contains no private key in PEM form")
    encrypted = "ENCRYPTED" in blocks[0]
    try:
        private_key = load_pem_private_key(
            blocks[0].encode(), (password or "").encode() if encrypted else None
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(key, "the private key cannot be read with ssl.key.password") from error
    return _private_pem(private_key)


def _blocks(pem: str, label: str) -> list[str]:
    """Return PEM blocks with line breaks, which properties files may omit."""
    blocks = re.findall(rf"-----BEGIN ({label})-----(.*?)-----END \1-----", pem, re.DOTALL)
    return [
        "\n".join([f"-----BEGIN {name}-----", *_body_lines(body), f"-----END {name}-----", ""])
        for name, body in blocks
    ]


def _body_lines(body: str) -> list[str]:
    if ":" in body:  # an encrypted key in the legacy format, with header lines
        return body.strip().splitlines()
    text = "".join(body.split())
    return [text[at : at + 64] for at in range(0, len(text), 64)]


def _private_pem(key: PrivateKeyTypes) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _certificates_pem(certificates: Iterable[Certificate]) -> str:
    return "".join(certificate.public_bytes(Encoding.PEM).decode() for certificate in certificates)


def _read(location: str, key: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise ConfigError(key, f"{location} cannot be read: {error.strerror}") from error


def _java_store(data: bytes, location: str, password: str | None, key: str) -> JavaKeyStore:
    try:
        return JavaKeyStore.parse(data, password)
    except KeyStoreError as error:
        raise ConfigError(
            key, f"{location} is not a JKS store, or the password is wrong: {error}"
        ) from error


def _certificate(der: bytes, location: str, key: str) -> Certificate:
    try:
        return load_der_x509_certificate(der)
    except ValueError as error:
        raise ConfigError(key, f"{location} contains a certificate that cannot be read") from error


def _pkcs12(
    data: bytes, location: str, password: str | None, key: str
) -> pkcs12.PKCS12KeyAndCertificates:
    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise ConfigError(
            key, f"{location} is not a PKCS12 store, or the password is wrong"
        ) from error

"""Writes Python's trusted certificates to a truststore for a JVM.

An internal certificate authority is usually configured for Python, because pip needs it, but not
for a Java that was installed with pip. The file contains only public certificates. The password
protects nothing, but Java 17 does not read certificates from a store without a password.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
)

PASSWORD = "changeit"  # Java's customary password
_FILE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

log = logging.getLogger(__name__)


def write_truststore(path: Path, environment: Mapping[str, str] | None = None) -> bool:
    """Write a PKCS12 truststore to `path`.

    Return False, without writing a file, if Python has no trusted certificates.

    The certificates are read from the first of SSL_CERT_FILE, PIP_CERT, and REQUESTS_CA_BUNDLE that
    is the path of a file, otherwise from Python's default TLS context.
    """
    certificates = _certificates(os.environ if environment is None else environment)
    if not certificates:
        return False
    entries = [
        PKCS12Certificate(certificate, b"ca-%d" % n) for n, certificate in enumerate(certificates)
    ]
    path.write_bytes(serialize_java_truststore(entries, BestAvailableEncryption(PASSWORD.encode())))
    return True


def truststore_options(path: Path) -> list[str]:
    """Return the JVM options that trust the certificates in `path`."""
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _certificates(environment: Mapping[str, str]) -> list[x509.Certificate]:
    for variable in _FILE_VARIABLES:
        file = Path(environment.get(variable) or ".")
        if file.is_file():
            blocks = _PEM.findall(file.read_bytes())
            return _readable(x509.load_pem_x509_certificate, blocks)
    return _readable(
        x509.load_der_x509_certificate, ssl.create_default_context().get_ca_certs(binary_form=True)
    )


def _readable(
    load: Callable[[bytes], x509.Certificate], blocks: list[bytes]
) -> list[x509.Certificate]:
    """Return the valid certificates. Invalid certificates are omitted."""
    certificates = []
    for block in blocks:
        try:
            # the library warns, for example, about serial numbers that are not positive
            with warnings.catch_warnings(action="ignore"):
                certificates.append(load(block))
        except ValueError as error:
            log.debug("omitting a certificate from the truststore: %s", error)
    return certificates

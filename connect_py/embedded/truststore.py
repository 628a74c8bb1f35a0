"""The certificates Python trusts, in the form a JVM reads.

A company's own certificate authority is usually known to Python (pip needs it) and unknown to a
Java that came from pip. The file holds public certificates only; the password guards nothing, but
Java 17 reads no certificates from a store that has none.
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

PASSWORD = "changeit"  # Java's own customary word
_FILE_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

log = logging.getLogger(__name__)


def write_truststore(path: Path, environment: Mapping[str, str] | None = None) -> bool:
    """Write a PKCS12 truststore to `path`; False, and no file, when Python knows no authority
    either.

    The certificates are those of the first of SSL_CERT_FILE, PIP_CERT and REQUESTS_CA_BUNDLE that
    names a file, else those of Python's default TLS context.
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
    """The JVM options that make `path` the list of trusted authorities."""
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
    """Old authorities break today's rules now and then; one of them must not cost us the others."""
    certificates = []
    for block in blocks:
        try:
            # of serial numbers that are not positive, for one
            with warnings.catch_warnings(action="ignore"):
                certificates.append(load(block))
        except ValueError as error:
            log.debug("a certificate was left out of the truststore: %s", error)
    return certificates

"""Proxies and certificate authorities of the environment, as JVM options."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from connect_py.embedded.ivy import jvm_network_options
from connect_py.embedded.truststore import PASSWORD, truststore_options, write_truststore


def test_no_proxy_variables_give_no_options() -> None:
    assert jvm_network_options({"NO_PROXY": "localhost"}) == []


def test_proxy_with_password_and_exceptions_is_translated() -> None:
    options = jvm_network_options(
        {
            "https_proxy": "http://ann:p%40ss@proxy.example:3128",
            "NO_PROXY": "localhost, .example.org",
        }
    )
    assert "-Dhttps.proxyHost=proxy.example" in options
    assert "-Dhttps.proxyPort=3128" in options
    assert "-Dhttps.proxyUser=ann" in options
    assert "-Dhttps.proxyPassword=p@ss" in options
    assert "-Djdk.http.auth.tunneling.disabledSchemes=" in options
    assert "-Dhttp.nonProxyHosts=localhost|*.example.org" in options


def test_proxy_without_scheme_is_read_as_host_and_port() -> None:
    assert jvm_network_options({"HTTP_PROXY": "proxy.example:8080"}) == [
        "-Dhttp.proxyHost=proxy.example",
        "-Dhttp.proxyPort=8080",
    ]


def authority(name: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(
        subject, subject, key.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(start).not_valid_after(start.replace(year=2060))
    certificate = builder.sign(key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"])
def test_truststore_holds_the_authorities_python_was_told_of(variable: str, tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    bundle.write_bytes(b"# ours\n" + authority("one") + broken + authority("two"))
    store = tmp_path / "trust.p12"
    assert write_truststore(store, {variable: str(bundle)})
    _, _, certificates = pkcs12.load_key_and_certificates(store.read_bytes(), PASSWORD.encode())
    names = [certificate.subject.rfc4514_string() for certificate in certificates]
    assert names == ["CN=one", "CN=two"]  # the broken one cost us none of the others
    assert f"-Djavax.net.ssl.trustStore={store}" in truststore_options(store)


def test_empty_certificate_bundle_gives_no_truststore_file(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    assert not write_truststore(tmp_path / "trust.p12", {"SSL_CERT_FILE": str(bundle)})
    assert not (tmp_path / "trust.p12").exists()

"""Real Ivy against a repository of this test's own: on loopback, over TLS, under an authority
nobody else knows."""

from __future__ import annotations

import datetime
import functools
import hashlib
import http.server
import ipaddress
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from connect_py.embedded.ivy import MIRROR_VARIABLE, IvyError
from connect_py.embedded.jar_lock import Jar, JarLock, JarLockError

CONTENT = b"not really a jar, and Ivy does not mind"
JAR = Jar("org.example.shop", "till", "1.0", hashlib.sha256(CONTENT).hexdigest())
VARIANT = Jar("org.example.shop", "till", "1.0", hashlib.sha256(CONTENT * 2).hexdigest(), "nohive")
ARCHIVE = Jar(
    "org.example.shop", "till", "1.0", hashlib.sha256(CONTENT * 3).hexdigest(), "all", "tar.gz"
)


class Repository(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


def self_signed(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "repository of a test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(start).not_valid_after(start.replace(year=2060))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    certificate_file, key_file = folder / "ca.pem", folder / "key.pem"
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate_file, key_file


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "repository"
    folder = root / "org" / "example" / "shop" / "till" / "1.0"
    folder.mkdir(parents=True)
    (folder / "till-1.0.jar").write_bytes(CONTENT)
    (folder / "till-1.0-nohive.jar").write_bytes(CONTENT * 2)
    (folder / "till-1.0-all.tar.gz").write_bytes(CONTENT * 3)
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Repository, directory=str(root))
    )
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="repository")
    thread.start()
    monkeypatch.setenv(MIRROR_VARIABLE, f"https://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    for proxy in ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"):
        monkeypatch.delenv(proxy, raising=False)
    yield folder
    server.shutdown()
    thread.join(10)
    server.server_close()


def test_jars_come_from_a_mirror_under_the_authority_python_trusts(
    repository: Path, tmp_path: Path
) -> None:
    files = JarLock("shop", (JAR, VARIANT, ARCHIVE)).resolve(tmp_path / "cache")
    assert [file.read_bytes() for file in files] == [CONTENT, CONTENT * 2, CONTENT * 3]


def test_jar_that_the_mirror_changed_is_refused(repository: Path, tmp_path: Path) -> None:
    (repository / "till-1.0.jar").write_bytes(b"tampered with")
    with pytest.raises(JarLockError, match="sha256"):
        JarLock("shop", (JAR,)).resolve(tmp_path / "cache")


def test_jar_that_is_nowhere_is_named(repository: Path, tmp_path: Path) -> None:
    (repository / "till-1.0.jar").unlink()
    with pytest.raises(IvyError, match="till"):
        JarLock("shop", (JAR,)).resolve(tmp_path / "cache")


def test_kept_jars_need_neither_java_nor_network(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = JarLock("shop", (JAR,))
    kept = lock.resolve(tmp_path / "cache")
    monkeypatch.setenv(MIRROR_VARIABLE, "https://127.0.0.1:1/")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert lock.resolve(tmp_path / "cache") == kept

"""Certificates for the servers that tests start."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

_LEAF = """\
basicConstraints=critical,CA:FALSE
keyUsage=critical,digitalSignature
extendedKeyUsage=serverAuth,clientAuth
subjectAltName=IP:127.0.0.1,DNS:localhost
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
"""


@dataclass(frozen=True, slots=True)
class Certificates:
    """An authority and a certificate it signed, for 127.0.0.1 and localhost.

    Attributes:
        ca_file: The authority's certificate.
        cert_file: The signed certificate, good for a server and for a client.
        key_file: The key of `cert_file`.
    """

    ca_file: Path
    cert_file: Path
    key_file: Path


def make_certificates(directory: Path) -> Certificates:
    """Make an authority of one's own and a certificate, in a new directory."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.fail("these tests make certificates: install openssl (apt-get install openssl)")
    directory.mkdir()
    (directory / "leaf.ext").write_text(_LEAF)
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    signs = ["-subj", "/CN=tests-authority", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
    authority = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial"]
    for command in (
        ["req", "-x509", *new_key, *signs, "-days", "2", "-keyout", "ca.key", "-out", "ca.crt"],
        ["req", *new_key, "-subj", "/CN=localhost", "-keyout", "leaf.key", "-out", "leaf.csr"],
        [*"x509 -req -in leaf.csr -days 2 -extfile leaf.ext -out leaf.crt".split(), *authority],
    ):
        subprocess.run([openssl, *command], cwd=directory, check=True, capture_output=True)
    return Certificates(
        ca_file=directory / "ca.crt",
        cert_file=directory / "leaf.crt",
        key_file=directory / "leaf.key",
    )

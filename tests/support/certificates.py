"""An authority, a server's and a client's certificate, made anew for a test."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
CLIENT_KEY_PASSWORD = "open-sesame"


@dataclass(frozen=True)
class Certificates:
    """Paths of PEM files: ``server_chain`` holds key and certificate, as Kafka wants it; the client's key is locked."""

    authority: Path
    server_chain: Path
    client_certificate: Path
    client_key: Path
    client_key_password: str = CLIENT_KEY_PASSWORD

    @classmethod
    def make(cls, folder: Path) -> Self:
        folder.mkdir(parents=True)
        root_key = ec.generate_private_key(ec.SECP256R1())
        root = _certificate("test authority", root_key.public_key(), "test authority", root_key, authority=True)
        made = cls(*(folder / name for name in ("ca.pem", "server.pem", "client.pem", "client.key")))
        made.authority.write_bytes(root.public_bytes(PEM))
        server_key = ec.generate_private_key(ec.SECP256R1())
        server = _certificate("localhost", server_key.public_key(), "test authority", root_key)
        plain = serialization.NoEncryption()
        made.server_chain.write_bytes(_key(server_key, plain) + server.public_bytes(PEM))
        client_key = ec.generate_private_key(ec.SECP256R1())
        client = _certificate("agent", client_key.public_key(), "test authority", root_key)
        made.client_certificate.write_bytes(client.public_bytes(PEM))
        locked = serialization.BestAvailableEncryption(CLIENT_KEY_PASSWORD.encode())
        made.client_key.write_bytes(_key(client_key, locked))
        return made


def _key(key: ec.EllipticCurvePrivateKey, how: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, how)


def _certificate(
    name: str,
    public_key: ec.EllipticCurvePublicKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    *,
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    places = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .sign(signer, hashes.SHA256())
    )

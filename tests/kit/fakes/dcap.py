"""A stand-in for a TDX machine and Intel: quotes under the test's own root.

Everything but the signatures is the real quote's (``tests/vectors/dcap``): its layout, the processor's certificate
extension, patch levels and identities. New signatures are by keys made here, and refused under Intel's root.
"""

import datetime as dt
import hashlib
import json
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.x509.oid import NameOID

from kit.engines.http_servers import Handler, serving

VECTORS = Path(__file__).parents[2] / "vectors" / "dcap"
REAL_NOW = 1_750_377_600  # the real collateral is current

Key = ec.EllipticCurvePrivateKey

_SIGNED, _SIGNATURE, _KEY, _QE_REPORT, _QE_SIGNATURE = 632, 636, 700, 770, 1154
_REPORT_DATA = slice(568, 632)
_RT_MR3 = slice(520, 568)
_TD_ATTRIBUTES = 168
_PCK_EXTENSION = x509.ObjectIdentifier("1.2.840.113741.1.13.1")


def real(name: str) -> tuple[bytes, dict[str, str]]:
    collateral: dict[str, str] = json.loads((VECTORS / f"{name}_collateral.json").read_text())
    return (VECTORS / f"{name}_quote.bin").read_bytes(), collateral


def _raw_signature(key: Key, data: bytes) -> bytes:
    r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def _point(key: Key) -> bytes:
    numbers = key.public_key().public_numbers()
    return numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")


def _new_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


@dataclass
class Vendor:
    """Root, issuers and a machine of one test, valid for ten days around now by default."""

    days: int = 10
    root_key: Key = field(default_factory=_new_key)
    issuer_key: Key = field(default_factory=_new_key)
    signing_key: Key = field(default_factory=_new_key)
    machine_key: Key = field(default_factory=_new_key)
    attestation_key: Key = field(default_factory=_new_key)

    def __post_init__(self) -> None:
        self.now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self._quote, self._collateral = real("tdx")
        chain = x509.load_pem_x509_certificates(self._quote[self._quote.index(b"-----BEGIN") :].rstrip(b"\0"))
        self._real_leaf = chain[0]
        self.root = self._certificate("Intel SGX Root CA", self.root_key, None)
        self.issuer = self._certificate("Intel SGX PCK Platform CA", self.issuer_key, self.root)
        self.signer = self._certificate("Intel SGX TCB Signing", self.signing_key, self.root, is_ca=False)
        self.leaf = self._certificate(
            "Intel SGX PCK Certificate",
            self.machine_key,
            self.issuer,
            is_ca=False,
            extra=self._real_leaf.extensions.get_extension_for_oid(_PCK_EXTENSION).value,
        )

    @property
    def root_der(self) -> bytes:
        return self.root.public_bytes(serialization.Encoding.DER)

    def quote(self, report_data: bytes, *, software: bytes = bytes(48), debug: bool = False) -> bytes:
        """Return a TDX quote over 64 bytes of a machine whose last register is ``software``."""
        quote = bytearray(self._quote)
        quote[_REPORT_DATA] = report_data
        quote[_RT_MR3] = software
        if debug:
            quote[_TD_ATTRIBUTES] |= 1
        signature = _raw_signature(self.attestation_key, bytes(quote[:_SIGNED]))
        point = _point(self.attestation_key)
        report = bytearray(quote[_QE_REPORT:_QE_SIGNATURE])
        length = int.from_bytes(quote[1218:1220], "little")
        report[320:352] = hashlib.sha256(point + quote[1220 : 1220 + length]).digest()
        certified = bytes(report) + _raw_signature(self.machine_key, bytes(report)) + quote[1218 : 1220 + length]
        chain = self._pem(self.leaf, self.issuer, self.root).encode()
        certified += (5).to_bytes(2, "little") + len(chain).to_bytes(4, "little") + chain
        body = signature + point + (6).to_bytes(2, "little") + len(certified).to_bytes(4, "little") + certified
        return bytes(quote[:_SIGNED]) + len(body).to_bytes(4, "little") + body

    def collateral(self, *, status: str = "UpToDate", revoked: bool = False) -> dict[str, str]:
        tcb_info = self._dated(
            self._collateral["tcb_info"].replace('"tcbStatus":"UpToDate"', f'"tcbStatus":"{status}"')
        )
        identity = self._dated(self._collateral["qe_identity"])
        serial = self.leaf.serial_number if revoked else None
        return {
            "pck_crl_issuer_chain": self._pem(self.issuer, self.root),
            "root_ca_crl": self._revocations(self.root, self.root_key, None),
            "pck_crl": self._revocations(self.issuer, self.issuer_key, serial),
            "tcb_info_issuer_chain": self._pem(self.signer, self.root),
            "tcb_info": tcb_info,
            "tcb_info_signature": _raw_signature(self.signing_key, tcb_info.encode()).hex(),
            "qe_identity_issuer_chain": self._pem(self.signer, self.root),
            "qe_identity": identity,
            "qe_identity_signature": _raw_signature(self.signing_key, identity.encode()).hex(),
        }

    @contextmanager
    def pccs(self) -> Iterator[str]:
        """Yield the URL of a caching service for this vendor's collateral."""
        found = self.collateral()
        bodies = {
            "/sgx/certification/v4/pckcrl": (bytes.fromhex(found["pck_crl"]), "SGX-PCK-CRL-Issuer-Chain", "pck_crl"),
            "/sgx/certification/v4/rootcacrl": (found["root_ca_crl"].encode(), "X-None", "pck_crl"),
            "/tdx/certification/v4/tcb": (
                b'{"tcbInfo":%s,"signature":"%s"}' % (found["tcb_info"].encode(), found["tcb_info_signature"].encode()),
                "TCB-Info-Issuer-Chain",
                "tcb_info",
            ),
            "/tdx/certification/v4/qe/identity": (
                b'{"enclaveIdentity":%s,"signature":"%s"}'
                % (found["qe_identity"].encode(), found["qe_identity_signature"].encode()),
                "SGX-Enclave-Identity-Issuer-Chain",
                "qe_identity",
            ),
        }

        class Cache(Handler):
            def do_GET(self) -> None:
                known = bodies.get(urllib.parse.urlsplit(self.path).path)
                if known is None:
                    self.send_error(404)
                    return
                body, header, chain = known
                self.reply(body, **{header: urllib.parse.quote(found[f"{chain}_issuer_chain"])})

        with serving(Cache) as server:
            yield server.url

    def _dated(self, text: str) -> str:
        document = json.loads(text)
        document["issueDate"] = f"{self.now - dt.timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
        document["nextUpdate"] = f"{self.now + dt.timedelta(days=self.days):%Y-%m-%dT%H:%M:%SZ}"
        return json.dumps(document, separators=(",", ":"))

    def _certificate(
        self,
        name: str,
        key: Key,
        issuer: x509.Certificate | None,
        *,
        is_ca: bool = True,
        extra: x509.ExtensionType | None = None,
    ) -> x509.Certificate:
        subject = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test")]
        )
        signed_by = (
            self.issuer_key if issuer is not None and "PCK" in issuer.subject.rfc4514_string() else self.root_key
        )
        usage = x509.KeyUsage(not is_ca, not is_ca, False, False, False, is_ca, is_ca, False, False)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.subject if issuer else subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - dt.timedelta(days=365))
            .not_valid_after(self.now + dt.timedelta(days=3650))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key()), False)
            .add_extension(x509.CRLDistributionPoints([_DISTRIBUTION_POINT]), False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(usage, True)
            .add_extension(x509.BasicConstraints(is_ca, None), True)
        )
        if extra is not None:
            builder = builder.add_extension(extra, False)
        return builder.sign(signed_by, hashes.SHA256())

    def _revocations(self, issuer: x509.Certificate, key: Key, serial: int | None) -> str:
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(self.now - dt.timedelta(days=1))
            .next_update(self.now + dt.timedelta(days=self.days))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), False)
            .add_extension(x509.CRLNumber(1), False)
        )
        if serial is not None:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial)
            builder = builder.add_revoked_certificate(revoked.revocation_date(self.now - dt.timedelta(days=1)).build())
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER).hex()

    @staticmethod
    def _pem(*certificates: x509.Certificate) -> str:
        return "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in certificates)


_DISTRIBUTION_POINT = x509.DistributionPoint(
    [x509.UniformResourceIdentifier("http://127.0.0.1:1/root.crl")], None, None, None
)

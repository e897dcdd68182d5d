"""A stand-in for NVIDIA's service and GPUs: tokens under the test's own key.

The claims are those of the real answer (``tests/vectors/nvidia``); only names, times and nonce differ.
"""

import datetime as dt
import hashlib
import json
import stat
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from kit.engines.http_servers import Handler, serving
from zoo_protocol.attestation.gpu_attestation import ISSUER, GpuStatement

VECTORS = Path(__file__).parents[2] / "vectors" / "nvidia"
REAL_NONCE = bytes.fromhex("690bb51b904351e28100a0610fe60624255c26d7d38c53fb1285ecfed1cab17a")
REAL_NOW = 1_789_565_729  # ten seconds after the real tokens were signed
KEY_ID = "nv-eat-kid-test-1"
DAY = dt.timedelta(days=1)

Claims = dict[str, Any]


def real() -> GpuStatement:
    answer, keys = (json.loads((VECTORS / f"{name}.json").read_text()) for name in ("answer", "keys"))
    return GpuStatement.of_answer(answer, keys)


def real_claims() -> tuple[Claims, Claims]:
    found = real()
    overall, device = (
        jwt.decode(token, options={"verify_signature": False}) for token in (found.overall, found.devices["GPU-0"])
    )
    return overall, device


def _key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP384R1())


@dataclass
class AttestationService:
    """A service of one test with its own intermediate certificate."""

    intermediate_key: ec.EllipticCurvePrivateKey = field(default_factory=_key)
    key: ec.EllipticCurvePrivateKey = field(default_factory=_key)

    def __post_init__(self) -> None:
        self.now = dt.datetime.now(dt.UTC).replace(microsecond=0)
        self.intermediate = self.certificate("Intermediate", self.intermediate_key, 1000 * DAY)
        self.leaf = self.certificate("Service", self.key, 2 * DAY)

    def certificate(
        self, name: str, key: ec.EllipticCurvePrivateKey, valid: dt.timedelta, started: dt.timedelta = DAY
    ) -> x509.Certificate:
        builder = x509.CertificateBuilder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Intermediate")]),
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            key.public_key(),
            x509.random_serial_number(),
            self.now - started,
            self.now - started + valid,
        )
        return builder.sign(self.intermediate_key, hashes.SHA384())

    @property
    def trusted(self) -> str:
        public = self.intermediate_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(public).hexdigest()

    def answer(
        self, nonce: bytes, gpus: int = 1, *, overall: Claims | None = None, device: Claims | None = None
    ) -> Any:
        """Return a result for this machine's GPUs; ``overall`` and ``device`` replace claims."""
        at = int(self.now.timestamp())
        common = {"eat_nonce": nonce.hex(), "iat": at, "nbf": at, "exp": at + 3600, "iss": ISSUER}
        whole, one = real_claims()
        devices = {f"GPU-{n}": self.sign(one | common | {"ueid": str(n)} | (device or {})) for n in range(1, gpus + 1)}
        named = {
            name: ["DIGEST", ["SHA-256", hashlib.sha256(token.encode()).hexdigest()]] for name, token in devices.items()
        }
        return [["JWT", self.sign(whole | common | {"submods": named} | (overall or {}))], devices]

    def sign(self, claims: Claims, algorithm: str = "ES384", key: Any = None) -> str:
        return jwt.encode(claims, key or self.key, algorithm=algorithm, headers={"kid": KEY_ID})

    @property
    def key_set(self) -> Any:
        return {"keys": [{"kid": KEY_ID, "x5c": [self.base64(self.leaf), self.base64(self.intermediate)]}]}

    @staticmethod
    def base64(certificate: x509.Certificate) -> str:
        return b64encode(certificate.public_bytes(Encoding.DER)).decode()

    def statement(self, nonce: bytes, gpus: int = 1, **changes: Claims) -> GpuStatement:
        return GpuStatement.of_answer(self.answer(nonce, gpus, **changes), self.key_set)

    @contextmanager
    def served(self, gpus: int = 1) -> Iterator[str]:
        """Yield the base URL of the keys and of answers under ``/answer/NONCE``."""
        service = self

        class Answers(Handler):
            def do_GET(self) -> None:
                nonce = self.path.removeprefix("/answer/")
                found = service.key_set if nonce == self.path else service.answer(bytes.fromhex(nonce), gpus)
                self.reply(json.dumps(found).encode())

        with serving(Answers) as server:
            yield server.url


_TOOL = """#!{python}
import argparse, json, urllib.request
whole = argparse.ArgumentParser()
whole.add_argument("--format", choices=["json"], required=True)
whole.add_argument("--log-level")
attest = whole.add_subparsers(required=True).add_parser("attest")
attest.add_argument("--device", choices=["gpu"])
attest.add_argument("--verifier", choices=["remote"], required=True)
attest.add_argument("--nonce", required=True)
attest.add_argument("--nras-url", required=True)
asked = whole.parse_args()
answer = json.load(urllib.request.urlopen(asked.nras_url + "/answer/" + asked.nonce))
print(json.dumps({{"result_code": 0, "result_message": "Ok", "claims": [], "detached_eat": answer}}))
"""


def tool_in(directory: Path) -> str:
    """Write a program that answers as NVIDIA's ``nvattest`` 1.2."""
    path = directory / "nvattest"
    path.write_text(_TOOL.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)

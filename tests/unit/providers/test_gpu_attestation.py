"""Statements about GPUs: NVIDIA's real one on an H100, and those of a test service."""

import base64
import gc
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.errors import raises_code
from kit.fakes.dcap import Vendor
from kit.fakes.nras import DAY, KEY_ID, REAL_NONCE, REAL_NOW, AttestationService, real, tool_in
from kit.profile import examples

from zoo_compute.base.errors import ZooError
from zoo_compute.node.attestation import GpuSource
from zoo_protocol.attestation.gpu_attestation import NVIDIA_KEYS, Gpu, GpuStatement, QuoteRefused
from zoo_protocol.attestation.tee_quotes import Evidence, gpu_nonce, report_data, with_gpus

NONCE = bytes(range(32))
WALLET, OTHER, REGISTRY = ("0x" + digit * 20 for digit in ("22", "44", "11"))
CHALLENGE = "0x" + "33" * 32


@pytest.fixture(scope="module")
def service() -> AttestationService:
    return AttestationService()


def at(service: AttestationService) -> int:
    return int(service.now.timestamp())


def refused(statement: GpuStatement, service: AttestationService, *, nonce: bytes = NONCE, after: int = 0) -> str:
    with pytest.raises(QuoteRefused) as error:
        statement.verify(nonce, at(service) + after, [service.trusted])
    assert error.value.part == "gpu_statement"
    return f"{error.value.code}: {error.value}"


def test_real_h100_token_holds_for_nonce_and_time() -> None:
    statement = real()
    serial = "670675190330701367605337753580860420643006460535"
    assert statement.verify(REAL_NONCE, REAL_NOW) == (Gpu("GH100", serial, "595.71.05", "96.00.9F.00.04"),)
    for nonce, now, code in (
        (bytes(32), REAL_NOW, "unbound"),
        (REAL_NONCE, REAL_NOW + 3600, "unverified"),
        (REAL_NONCE, REAL_NOW - 120, "unverified"),
    ):
        with raises_code(QuoteRefused, code):
            statement.verify(nonce, now)
    assert statement.verify(REAL_NONCE, REAL_NOW + 3600, slack=3600)
    with pytest.raises(QuoteRefused, match="not trusted"):
        statement.verify(REAL_NONCE, REAL_NOW, ["00" * 32])


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("token", ["overall", "GPU-0"])
def test_tampered_real_token_is_refused(part: int, token: str) -> None:
    statement = real()
    pieces = (statement.overall if token == "overall" else statement.devices[token]).split(".")
    middle = len(pieces[part]) // 2
    pieces[part] = pieces[part][:middle] + ("A" if pieces[part][middle] != "A" else "B") + pieces[part][middle + 1 :]
    forged = ".".join(pieces)
    change = {"overall": forged} if token == "overall" else {"devices": {"GPU-0": forged}}
    with pytest.raises(QuoteRefused):
        replace(statement, **change).verify(REAL_NONCE, REAL_NOW)


def test_statement_holds_only_for_trusted_service(service: AttestationService) -> None:
    statement = service.statement(NONCE, 8)
    assert len(statement.verify(NONCE, at(service), [service.trusted])) == 8
    with pytest.raises(QuoteRefused, match="not trusted"):
        statement.verify(NONCE, at(service))
    assert GpuStatement.of_document(json.loads(json.dumps(statement.as_document()))) == statement


@pytest.mark.parametrize(
    ("device", "what"),
    [
        ({"measres": "fail"}, "measres"),
        ({"secboot": False}, "secboot"),
        ({"secboot": None}, "secboot"),
        ({"dbgstat": "enabled"}, "dbgstat"),
        ({"x-nvidia-gpu-attestation-report-nonce-match": False}, "nonce-match"),
        ({"x-nvidia-gpu-vbios-rim-signature-verified": False}, "vbios-rim-signature"),
        ({"x-nvidia-attestation-warning": "certificate on hold"}, "on hold"),
        ({"x-nvidia-gpu-attestation-report-cert-chain": {"x-nvidia-cert-status": "revoked"}}, "cert-chain"),
        ({"x-nvidia-gpu-driver-rim-cert-chain": {"x-nvidia-cert-ocsp-status": "unknown"}}, "cert-chain"),
        ({"hwmodel": None}, "no name"),
    ],
)
def test_unsound_gpu_is_refused_despite_overall_result(
    service: AttestationService, device: dict[str, object], what: str
) -> None:
    assert what in refused(service.statement(NONCE, device=device), service)


@pytest.mark.parametrize(
    ("overall", "why"),
    [
        ({"x-nvidia-overall-att-result": False}, "unverified: NVIDIA's verdict is negative"),
        ({"x-nvidia-overall-att-result": "true"}, "unverified: NVIDIA's verdict is negative"),
        ({"x-nvidia-ver": "9.0"}, "malformed: claims of version 9.0"),
        ({"submods": {}}, "unverified: NVIDIA's verdict names other GPUs"),
        ({"submods": ["GPU-1"]}, "malformed: the overall token does not name GPUs"),
        ({"iss": "https://nras.attestation-stg.nvidia.com"}, "unverified: a token is not NVIDIA's: Invalid issuer"),
        ({"eat_nonce": "00" * 32}, "unbound"),
        ({"exp": 0}, "unverified: a token is valid only from"),
        ({"exp": "soon"}, "malformed"),
    ],
)
def test_overall_result_is_checked(service: AttestationService, overall: dict[str, object], why: str) -> None:
    assert refused(service.statement(NONCE, overall=overall), service).startswith(why)


def test_each_token_has_its_own_nonce_and_time(service: AttestationService) -> None:
    assert refused(service.statement(NONCE), service, nonce=bytes(32)).startswith("unbound")
    assert refused(service.statement(NONCE, device={"eat_nonce": "00" * 32}), service).startswith("unbound")
    assert refused(service.statement(NONCE), service, after=3600).startswith("unverified: a token is valid")
    assert refused(service.statement(NONCE), service, after=-61).startswith("unverified: a token is valid")
    assert "valid only from" in refused(service.statement(NONCE, device={"exp": at(service) - 1}), service)


def test_gpus_cannot_be_added_swapped_or_counted_twice(service: AttestationService) -> None:
    two, other = service.statement(NONCE, 2), service.statement(NONCE, 3)
    for devices in (
        {"GPU-1": two.devices["GPU-1"]},
        dict(other.devices),
        {"GPU-1": two.devices["GPU-2"], "GPU-2": two.devices["GPU-1"]},
    ):
        assert "other GPUs" in refused(replace(two, devices=devices), service)
    assert "named twice" in refused(service.statement(NONCE, 2, device={"ueid": "7"}), service)
    assert refused(replace(two, devices={}), service).startswith("malformed")


def signed_by(service: AttestationService, key: ec.EllipticCurvePrivateKey, algorithm: str) -> GpuStatement:
    other = AttestationService(intermediate_key=service.intermediate_key, key=key)
    sign = other.sign
    other.sign = lambda claims, *_: sign(claims, algorithm)  # type: ignore[method-assign]
    return other.statement(NONCE)


def test_uncertified_keys_are_refused(service: AttestationService) -> None:
    foreign = AttestationService()
    mixed = [foreign.base64(foreign.leaf), service.base64(service.intermediate)]
    forged = GpuStatement.of_answer(foreign.answer(NONCE), {"keys": [{"kid": KEY_ID, "x5c": mixed}]})
    assert "certificate is not NVIDIA's" in refused(forged, service)
    swapped = replace(foreign.statement(NONCE), certificates=service.statement(NONCE).certificates)
    assert "Signature verification failed" in refused(swapped, service)
    assert "not on the curve" in refused(signed_by(service, ec.generate_private_key(ec.SECP256R1()), "ES256"), service)
    assert refused(replace(service.statement(NONCE), certificates={}), service).startswith("malformed")
    for started, valid in ((5 * DAY, 2 * DAY), (-DAY, 2 * DAY)):  # over, and to come
        leaf = service.certificate("Service", service.key, valid, started)
        chain = (service.base64(leaf), service.base64(service.intermediate))
        statement = replace(service.statement(NONCE), certificates={KEY_ID: chain})
        assert "no valid certificate" in refused(statement, service)


def test_foreign_signature_algorithm_is_refused(service: AttestationService) -> None:
    statement = service.statement(NONCE)
    payload = statement.overall.split(".")[1]
    none = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": KEY_ID}).encode()).decode().rstrip("=")
    assert "not allowed" in refused(replace(statement, overall=f"{none}.{payload}."), service)
    symmetric = service.sign({"iss": "x"}, "HS256", "k" * 32)
    assert "not allowed" in refused(replace(statement, overall=symmetric), service)


def test_deeply_nested_statement_is_refused() -> None:
    nested = replace(real(), overall=base64.urlsafe_b64encode(b"[" * 9000).decode() + ".e30.e30")
    gc.collect()  # finalisers of earlier tests' garbage would fail at this depth
    with pytest.raises(QuoteRefused):
        nested.verify(REAL_NONCE, REAL_NOW)


@settings(max_examples=examples(40, long=300), deadline=None)
@given(st.text(max_size=300), st.text(max_size=50), st.binary(max_size=60))
def test_malformed_statement_is_refused_with_reason(token: str, name: str, certificate: bytes) -> None:
    known = real()
    der = base64.b64encode(certificate).decode()
    for sent in (
        replace(known, overall=token),
        replace(known, devices={name: token}),
        replace(known, certificates={name: (der, der)}),
        replace(known, certificates={key: (der, chain[1]) for key, chain in known.certificates.items()}),
    ):
        with pytest.raises(QuoteRefused):
            sent.verify(REAL_NONCE, REAL_NOW)
    for document in (None, [], {}, {"overall": 1, "devices": {}, "certificates": {}}, known.as_document() | {"x": 1}):
        with pytest.raises(QuoteRefused):
            GpuStatement.of_document(document)


@pytest.mark.parametrize(
    ("which", "old", "new"),
    [
        (1, bytes.fromhex("a003020102"), bytes.fromhex("a003020121")),  # X.509 of version 34
        (1, b"GPU Intermediate", b"\xffPU Intermediate"),  # a name that is not UTF-8
        (0, b"GPU Intermediate", b"\xffPU Intermediate"),
    ],
)
def test_forged_certificates_are_refused_with_reason(which: int, old: bytes, new: bytes) -> None:
    known = real()
    for keys in (NVIDIA_KEYS, frozenset({"00" * 32})):
        chains = {}
        for key_id, chain in known.certificates.items():
            der = base64.b64decode(chain[which])
            assert old in der
            forged = base64.b64encode(der.replace(old, new)).decode()
            chains[key_id] = (chain[0], forged) if which else (forged, chain[1])
        with pytest.raises(QuoteRefused):
            replace(known, certificates=chains).verify(REAL_NONCE, REAL_NOW, keys)


def test_non_unicode_text_is_refused() -> None:
    with pytest.raises(QuoteRefused, match="not a JWT"):
        replace(real(), overall="\ud800").verify(REAL_NONCE, REAL_NOW)


@pytest.fixture(scope="module")
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture(scope="module")
def quoted(vendor: Vendor, service: AttestationService) -> Callable[..., Evidence]:
    def make(wallet: str = WALLET, asked_by: str = WALLET, *, bound: bool = True) -> Evidence:
        gpus = service.statement(gpu_nonce(1, REGISTRY, asked_by, CHALLENGE), 2)
        data = with_gpus(report_data(1, REGISTRY, wallet, CHALLENGE), gpus if bound else None)
        return Evidence(1, REGISTRY, wallet, CHALLENGE, vendor.quote(data), vendor.collateral(), gpus)

    return make


def test_quote_covers_gpus_of_its_environment(
    quoted: Callable[..., Evidence], vendor: Vendor, service: AttestationService
) -> None:
    def refusal(evidence: Evidence) -> tuple[str, str]:
        with pytest.raises(QuoteRefused) as error:
            evidence.verify(at(service), vendor.root_der, [service.trusted])
        return error.value.part, error.value.code

    found = quoted()
    assert [gpu.serial for gpu in found.verify(at(service), vendor.root_der, [service.trusted]).gpus] == ["1", "2"]
    assert Evidence.from_bytes(found.to_bytes()) == found
    assert refusal(quoted(bound=False)) == ("quote", "unbound")  # a statement was added
    assert refusal(replace(found, gpus=None)) == ("quote", "unbound")  # the statement was removed
    other = service.statement(gpu_nonce(1, REGISTRY, WALLET, CHALLENGE), 8)
    assert refusal(replace(found, gpus=other)) == ("quote", "unbound")  # another statement of the same challenge
    assert refusal(quoted(asked_by=OTHER)) == ("gpu_statement", "unbound")  # the GPUs answered for another wallet


def test_node_uses_nvidia_tool_and_needed_keys(service: AttestationService, tmp_path: Path) -> None:
    with service.served(3) as url:
        statement = GpuSource(tool_in(tmp_path), url).statement(NONCE)
    assert len(statement.verify(NONCE, at(service), [service.trusted])) == 3
    assert list(statement.certificates) == [KEY_ID]


def test_missing_tool_or_answer_gives_no_statement(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'Ensure the NVIDIA Driver is installed' >&2\nexit 1\n")
    broken.chmod(0o755)
    for tool, message in ((str(tmp_path / "none"), "No such file"), (str(broken), "NVIDIA Driver")):
        with raises_code(ZooError, "no-gpu-statement", match=message):
            GpuSource(tool, "http://127.0.0.1:1").statement(NONCE)
    with pytest.raises(ZooError):
        GpuSource(tool_in(tmp_path), "http://127.0.0.1:1").statement(NONCE)

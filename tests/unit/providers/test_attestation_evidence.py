"""Evidence of attestations: a vendor's real quotes, and quotes under a test root."""

import json
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.fakes.dcap import REAL_NOW, Vendor, real
from kit.profile import examples

from zoo_protocol.attestation.gpu_attestation import QuoteRefused
from zoo_protocol.attestation.tee_quotes import Evidence, Verified, key_of, measurement, report_data
from zoo_protocol.hashing import canonical_json

WALLET, OTHER, REGISTRY = ("0x" + digit * 20 for digit in ("22", "44", "11"))
NONCE = "0x" + "33" * 32
REAL_TDX_MEASUREMENT = "0xc25f606860c66715755b2da2205d3f452fdb8f1bcdfc5cbfdc51beefe80d814a"


@pytest.fixture(scope="module")
def vendor() -> Vendor:
    return Vendor()


@pytest.fixture(scope="module")
def evidence(vendor: Vendor) -> Evidence:
    quote = vendor.quote(report_data(1, REGISTRY, WALLET, NONCE))
    return Evidence(1, REGISTRY, WALLET, NONCE, quote, vendor.collateral())


def check(evidence: Evidence, vendor: Vendor) -> Verified:
    return evidence.verify(int(time.time()), vendor.root_der)


def refused(evidence: Evidence, now: int, root: bytes | None = None) -> str:
    with pytest.raises(QuoteRefused) as error:
        evidence.verify(now, root)
    return error.value.code


def test_real_tdx_quote_is_valid_for_bound_node(monkeypatch: pytest.MonkeyPatch) -> None:
    quote, collateral = real("tdx")
    found = Evidence(1, REGISTRY, WALLET, NONCE, quote, collateral)
    assert refused(found, REAL_NOW) == "unbound"
    monkeypatch.setattr("zoo_protocol.attestation.tee_quotes.report_data", lambda *_: quote[568:632])
    assert found.verify(REAL_NOW) == Verified("TDX", REAL_TDX_MEASUREMENT, "UpToDate", (), 1_752_919_235)
    assert refused(found, REAL_NOW + 40 * 86_400) == "unverified"  # Intel's statements have ended
    for at in (100, 300, 640, 800):
        forged = bytearray(quote)
        forged[at] ^= 1
        assert refused(replace(found, quote=bytes(forged)), REAL_NOW) == "unverified"


def test_real_sgx_quote_of_unhardened_platform_is_refused() -> None:
    quote, collateral = real("sgx")
    assert refused(Evidence(1, REGISTRY, WALLET, NONCE, quote, collateral), REAL_NOW) == "unverified"


def test_enclave_with_unmeasured_input_is_refused() -> None:
    quote, collateral = real("sgx")
    for at in (240, 303, 308):
        changed = bytearray(quote)
        changed[at] = 1
        with pytest.raises(QuoteRefused, match="CONFIGID"):
            Evidence(1, REGISTRY, WALLET, NONCE, bytes(changed), collateral).verify(REAL_NOW)


def test_quote_of_other_root_needs_its_trust(evidence: Evidence, vendor: Vendor) -> None:
    assert check(evidence, vendor).tcb_status == "UpToDate"
    assert refused(evidence, int(time.time())) == "unverified"


@pytest.mark.parametrize("change", [{"provider": OTHER}, {"nonce": "0x" + "34" * 32}, {"chain_id": 2}])
def test_quote_is_invalid_for_other_node(evidence: Evidence, vendor: Vendor, change: dict[str, object]) -> None:
    moved = replace(evidence, **change)  # type: ignore[arg-type]
    assert refused(moved, int(time.time()), vendor.root_der) == "unbound"


def test_debug_outdated_and_revoked_platforms_are_refused(evidence: Evidence, vendor: Vendor) -> None:
    data = report_data(1, REGISTRY, WALLET, NONCE)
    for changed in (
        replace(evidence, quote=vendor.quote(data, debug=True)),
        replace(evidence, collateral=vendor.collateral(status="OutOfDate")),
        replace(evidence, collateral=vendor.collateral(revoked=True)),
    ):
        assert refused(changed, int(time.time()), vendor.root_der) == "unverified"


def test_measurement_differs_for_other_software(evidence: Evidence, vendor: Vendor) -> None:
    data = report_data(1, REGISTRY, WALLET, NONCE)
    other = replace(evidence, quote=vendor.quote(data, software=bytes(47) + b"\1"))
    assert check(other, vendor).measurement != check(evidence, vendor).measurement


def test_evidence_survives_its_bytes_in_one_form_only(evidence: Evidence) -> None:
    content = evidence.to_bytes()
    assert Evidence.from_bytes(content) == evidence
    document = json.loads(content)
    changes: list[dict[str, object]] = [{"provider": 5}, {"provider": "0x22"}, {"nonce": "0x12"}, {"registry": None}]
    changes += [{"chain_id": "-1"}, {"gpus": None}, {"gpus": {}}, {"collateral": 1}]
    wrongs = [canonical_json(document | change) for change in changes]
    wrongs += [b"", b"[]", b"{}", b"[" * 100_000, content + b" ", content.replace(b"attestation/1", b"attestation/2")]
    for wrong in wrongs:
        with pytest.raises(QuoteRefused):
            Evidence.from_bytes(wrong)


@settings(max_examples=examples(40, long=300), deadline=None)
@given(quote=st.binary(max_size=700), at=st.integers(0, 5000), byte=st.integers(0, 255))
def test_malformed_evidence_is_refused_with_reason(quote: bytes, at: int, byte: int) -> None:
    known, collateral = real("tdx")
    changed = bytearray(known)
    changed[at % len(changed)] = byte
    for sent in (quote, bytes(changed), known[:at]):
        reason = refused(Evidence(1, REGISTRY, WALLET, NONCE, sent, collateral), REAL_NOW)
        assert reason in ("malformed", "unverified", "unbound")
    assert refused(Evidence(1, REGISTRY, WALLET, NONCE, known, {"pck_crl": "zz"}), REAL_NOW) == "malformed"


def test_chain_keys_and_measurement_match_fixed_values() -> None:
    assert key_of(WALLET) == "0x" + "00" * 12 + "22" * 20
    assert len(report_data(1, REGISTRY, WALLET, NONCE)) == 64

    class Registers:
        mr_enclave, mr_signer = bytes(32), bytes(32)

    assert measurement("SGX", Registers()) == "0x45b2e3fbe26f76f06d8c3c88e246ad95aa72ba53564f7f358782ad9b68f0849c"

"""The EIP-712 encoding of all signed messages against the library's."""

import pytest
from eth_account import Account
from eth_account.messages import encode_typed_data
from hypothesis import given
from hypothesis import strategies as st

from zoo_protocol import messages
from zoo_protocol.messages import Ask, Domain, signable, struct_hash, typed_data


def _hex(size: int) -> st.SearchStrategy[str]:
    return st.binary(min_size=size, max_size=size).map(lambda raw: "0x" + raw.hex())


def _value(kind: str) -> st.SearchStrategy[object]:
    if kind.startswith("uint"):
        return st.integers(0, 2 ** int(kind[4:]) - 1)
    return _hex(20 if kind == "address" else 32)


_STRUCTS = [
    st.builds(message, **{field["name"]: _value(field["type"]) for field in fields})
    for message, fields in (
        (messages.JobOrder, messages.JobOrder.TYPE),
        (Ask, Ask.TYPE),
        (messages.UnitCommitment, messages.UnitCommitment.TYPE),
        (messages.Acknowledgement, messages.Acknowledgement.TYPE),
        (messages.Objection, messages.Objection.TYPE),
    )
]
_DOMAINS = st.builds(Domain, st.integers(0, 2**256 - 1), _hex(20), st.text(), st.text())


@given(_DOMAINS, st.one_of(_STRUCTS))
def test_messages_are_encoded_as_by_library(domain: Domain, message: messages.Message) -> None:
    document = typed_data(domain, message)
    theirs = encode_typed_data(full_message=document)
    assert signable(document) == theirs
    assert struct_hash(message) == "0x" + theirs.body.hex()


@given(st.integers(0, 2**64), _hex(20), st.text(), _hex(20), _hex(20), *[st.integers(0, 2**256 - 1)] * 3)
def test_permits_are_encoded_as_by_library(
    chain_id: int, token: str, name: str, owner: str, spender: str, value: int, nonce: int, deadline: int
) -> None:
    document = messages.permit_typed_data(chain_id, token, name, owner, spender, value, nonce, deadline)
    assert signable(document) == encode_typed_data(full_message=document)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gpus", 2**32),
        ("gpus", -1),
        ("gpus", "7"),
        ("provider", "0x" + "11" * 19),
        ("provider", "0x" + "zz" * 20),
        ("provider", "0x" + "1 " * 20),
        ("provider", 5),
    ],
)
def test_value_outside_its_type_is_refused(field: str, value: object) -> None:
    ask = {"provider": "0x" + "11" * 20, "tier": 1, "gpus": 1, "minPrice": 1, "validUntil": 1, "nonce": 1}
    with pytest.raises(ValueError):
        struct_hash(Ask(**ask | {field: value}))  # type: ignore[arg-type]


@given(st.integers(1, 2**200), _DOMAINS, st.one_of(_STRUCTS), st.booleans())
def test_signers_are_recovered_as_by_library(key: int, domain: Domain, message: messages.Message, low_v: bool) -> None:
    document = typed_data(domain, message)
    raw = bytes.fromhex(messages.sign("0x" + key.to_bytes(32).hex(), document)[2:])
    signature = "0x" + (raw[:64] + bytes([raw[64] - 27 if low_v else raw[64]])).hex()
    found = messages.recover(document, signature)
    assert found == Account.recover_message(signable(document), signature=signature)
    assert found == Account.from_key(key.to_bytes(32)).address


@given(st.binary(min_size=60, max_size=70))
def test_invalid_signature_raises_or_recovers_other_account(raw: bytes) -> None:
    document = typed_data(Domain(1, "0x" + "11" * 20), Ask("0x" + "22" * 20, 1, 1, 1, 1, 1))
    try:
        found = messages.recover(document, "0x" + raw.hex())
    except ValueError:
        return
    assert found == Account.recover_message(signable(document), signature="0x" + raw.hex())

"""Typed data against the example of EIP-712 ("Ether Mail"), and our messages."""

from typing import Any

import pytest
from eth_account import Account

from zoo_protocol.hashing import keccak, to_hex
from zoo_protocol.messages import Ask, Domain, digest, recover, recover_strictly, sign, signable, typed_data

MAIL: dict[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "version", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "Person": [{"name": "name", "type": "string"}, {"name": "wallet", "type": "address"}],
        "Mail": [
            {"name": "from", "type": "Person"},
            {"name": "to", "type": "Person"},
            {"name": "contents", "type": "string"},
        ],
    },
    "primaryType": "Mail",
    "domain": {
        "name": "Ether Mail",
        "version": "1",
        "chainId": 1,
        "verifyingContract": "0xCcCCccccCCCCcCCCCCCcCcCccCcCCCcCcccccccC",
    },
    "message": {
        "from": {"name": "Cow", "wallet": "0xCD2a3d9F938E13CD947Ec05AbC7FE734Df8DD826"},
        "to": {"name": "Bob", "wallet": "0xbBbBBBBbbBBBbbbBbbBbbbbBBbBbbbbBbBbbBBbB"},
        "contents": "Hello, Bob!",
    },
}
COW = keccak(b"cow")  # the EIP's private key
SIGNATURE = (
    "0x4355c47d63924e8a72e509b65029052eb6c299d53a04e167c5775fd466751c9d"
    "07299936d304c153f6443dfa05f40ff007d72911b6f72307f996231605b91562"
    "1c"
)


def test_eip_example_matches_published_hash_and_signature() -> None:
    form = signable(MAIL)
    assert to_hex(bytes(form.header)) == "0xf2cee375fa42b42143804025fc449deafd50cc031ca257e0b194a650a912090f"
    assert to_hex(bytes(form.body)) == "0xc52c0ee5d84264471806290a3f2c4cecfc5490626bf912d01f240d7a274b371e"
    signed = keccak(b"\x19" + bytes(form.version) + bytes(form.header) + bytes(form.body))
    assert to_hex(signed) == "0xbe609aee343fb3c4b28e1df9e632fca64fcfaede20f02e86244efddf30957bd2"
    assert sign(to_hex(COW), MAIL) == SIGNATURE
    assert recover(MAIL, SIGNATURE) == recover_strictly(MAIL, SIGNATURE) == MAIL["message"]["from"]["wallet"]


def test_changed_message_recovers_other_signer() -> None:
    changed = MAIL | {"message": MAIL["message"] | {"contents": "Hello, Eve!"}}
    assert recover(changed, SIGNATURE) != MAIL["message"]["from"]["wallet"]
    with pytest.raises(ValueError, match="malformed"):
        recover_strictly(MAIL, SIGNATURE[:-2] + "01")


def test_own_messages_match_handwritten_eip_hash() -> None:
    """Written by hand from the EIP: encodeType, encodeData, hashStruct, domain separator."""
    wallet = Account.create()
    ask = Ask(provider=str(wallet.address), tier=1, gpus=4, minPrice=2 * 10**18, validUntil=1_800_000_000, nonce=7)
    domain = Domain(31337, "0xCcCCccccCCCCcCCCCCCcCcCccCcCCCcCcccccccC")

    def word(value: int | str) -> bytes:
        return (value if isinstance(value, int) else int(value, 16)).to_bytes(32, "big")

    kind = keccak(b"Ask(address provider,uint8 tier,uint32 gpus,uint96 minPrice,uint40 validUntil,uint256 nonce)")
    body = keccak(kind + b"".join(word(v) for v in (ask.provider, 1, 4, 2 * 10**18, 1_800_000_000, 7)))
    domain_kind = keccak(b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
    separator = keccak(domain_kind + keccak(b"ZooCompute") + keccak(b"1") + word(31337) + word(domain.contract))
    assert digest(domain, ask) == keccak(b"\x19\x01" + separator + body)
    signature = sign(to_hex(bytes(wallet.key)), typed_data(domain, ask))
    assert len(signature) == 2 + 2 * 65
    assert recover(typed_data(domain, ask), signature) == wallet.address

"""The table of acts against the committed contracts, and the words of prepared acts."""

import pytest

from zoo_protocol import abi
from zoo_protocol.acts import export
from zoo_protocol.acts.calls import (
    Call,
    Contracts,
    Operation,
    cancel,
    execute,
    prepare,
    words_of_calls,
)
from zoo_protocol.acts.parameters import ActError, Kind, Parameter
from zoo_protocol.acts.roles import role_hash, role_name, roles_of
from zoo_protocol.acts.table import ACTS, STAGE_ROLES, Act
from zoo_protocol.content.cid import RAW, of_block
from zoo_protocol.contracts import CONTRACTS
from zoo_protocol.hashing import to_hex

TYPES = {
    Kind.ADDRESS: {"address"},
    Kind.ZEN: {"uint96", "uint256"},
    Kind.BPS: {"uint16"},
    Kind.SECONDS: {"uint256"},
    Kind.NUMBER: {"uint256"},
    Kind.CHOICE: {"uint8"},
    Kind.FLAG: {"bool"},
    Kind.HASH: {"bytes32"},
    Kind.PURPOSE: {"bytes32"},
    Kind.ROLE: {"bytes32"},
    Kind.LIST: {"tuple[]", "bytes32[]"},
}
PERSON = "0x00000000000000000000000000000000000000AA"
CONTRACTS_AT = Contracts(31337, {name: f"0x{index + 1:040x}" for index, name in enumerate(CONTRACTS)}, 172_800)
SALT = b"\x07" * 32
GRANT = {"recipient": PERSON, "amount": "1,250.5", "purpose": "Translations"}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_act_matches_contract_function(act: Act) -> None:
    inputs = abi.function(act.contract, act.function)["inputs"]
    assert [field["name"] for field in inputs] == [one.name for one in act.parameters]
    for field, one in zip(inputs, act.parameters, strict=True):
        assert field["type"] in TYPES[one.kind], one.name
    assert all(f"{{{one.name}}}" in act.words for one in act.parameters if one.kind not in (Kind.LIST, Kind.HASH))
    assert act.role is None or act.role in (*roles_of(act.contract), "the timelock")
    assert act.title
    assert not act.via_timelock or act.is_dangerous


def test_stage_roles_exist_in_timelock() -> None:
    assert set(STAGE_ROLES.values()) <= set(roles_of("Timelock"))


def test_role_names_round_trip() -> None:
    found = {role_name(role_hash(name) or "") for contract in CONTRACTS for name in roles_of(contract)}
    assert {"GUARDIAN_ROLE", "DEFAULT_ADMIN_ROLE", "ACKNOWLEDGER_ROLE"} <= found
    assert role_name("0x" + "ab" * 32) == "0x" + "ab" * 32


def test_proposal_states_amount_recipient_and_delay() -> None:
    prepared = prepare("treasury.grant", GRANT, CONTRACTS_AT, salt=SALT)
    assert prepared.words[0].startswith(
        f"Pay 1,250.5 ZEN (1250500000000000000000 wei) of the community grants to {PERSON}."
    )
    assert prepared.words[1] == "It can be executed 2 days after the proposal."
    assert (prepared.contract, prepared.function, prepared.role) == ("Timelock", "schedule", "PROPOSER_ROLE")
    assert (prepared.confirmation, prepared.amount_wei) == ("treasury.grant", 1_250_500_000_000_000_000_000)
    name, values = abi.decode_call("Timelock", prepared.data) or ("", {})
    assert (name, values["delay"], values["salt"]) == ("schedule", 172_800, to_hex(SALT))
    assert bytes.fromhex(values["data"][2:]) == prepared.effects[0].data


def test_stages_of_operation_share_its_id() -> None:
    operation = prepare("treasury.grant", GRANT, CONTRACTS_AT, salt=SALT).operation
    assert operation is not None
    executed, cancelled = execute(operation, CONTRACTS_AT), cancel(operation, CONTRACTS_AT)
    assert executed.words[0].startswith("Pay 1,250.5 ZEN")
    assert (executed.key, executed.title) == ("treasury.grant", "Execute: pay a community grant")
    assert abi.decode_call("Timelock", cancelled.data) == ("cancel", {"id": operation.id})
    assert (executed.confirmation, cancelled.confirmation) == ("timelock.execute", "timelock.cancel")
    assert cancelled.amount_wei == 0


def test_unknown_calls_show_contract_and_data() -> None:
    escrow = CONTRACTS_AT.addresses["JobEscrow"]
    calls = (
        Call(escrow, 0, abi.encode_call("JobEscrow", "beginDefaultAdminTransfer", [PERSON])),
        Call(escrow, 0, b"\x01\x02\x03\x04"),
        Call(PERSON, 5, b""),
    )
    assert words_of_calls(calls, CONTRACTS_AT) == (
        f"Call JobEscrow.beginDefaultAdminTransfer(newAdmin={PERSON}).",
        "Call JobEscrow with the unknown data 0x01020304.",
        f"Call the unknown contract {PERSON} with 0x, with 0.000000000000000005 native tokens (5 wei).",
    )
    batch = execute(Operation(calls, to_hex(SALT), is_batch=True), CONTRACTS_AT)
    assert (batch.key, batch.function, len(batch.words)) == (None, "executeBatch", 3)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"amount": "1.0000000000000000001"}, "amount"),
        ({"amount": "-1"}, "amount"),
        ({"amount": "0x5"}, "amount"),
        ({"amount": "1.5 wei"}, "amount"),
        ({"recipient": "0x" + "0" * 40}, "recipient"),
        ({"recipient": "0x5AAeb6053f3E94C9b9A09f33669435E7Ef1BeAed"}, "recipient"),
        ({"recipient": ""}, "recipient"),
        ({"note": "x"}, "note"),
    ],
    ids=["fine", "negative", "hex", "part-of-wei", "zero", "checksum", "missing", "unknown"],
)
def test_malformed_arguments_are_refused(change: dict[str, str], field: str) -> None:
    with pytest.raises(ActError) as refused:
        prepare("treasury.grant", GRANT | change, CONTRACTS_AT, salt=SALT)
    assert refused.value.field == field


def test_role_of_another_contract_is_refused() -> None:
    arguments = {"role": "TREASURER_ROLE", "account": PERSON}
    with pytest.raises(ActError, match="expected one of"):
        prepare("jobescrow.grant-role", arguments, CONTRACTS_AT, salt=SALT)
    prepared = prepare("treasury.grant-role", arguments, CONTRACTS_AT, salt=SALT)
    assert prepared.words[0] == f"Give {PERSON} the role TREASURER_ROLE of Treasury."


def test_purposes_are_hashes_of_documents() -> None:
    parameter = Parameter("purpose", "", Kind.PURPOSE)
    digest = parameter.parse(str(of_block(RAW, b"hello world")))
    assert parameter.parse("hello world") == digest  # the CID is that of this text
    assert parameter.parse(digest) == digest


def test_exports_hold_the_same_call() -> None:
    prepared = prepare("escrow.pause", {}, CONTRACTS_AT, salt=SALT)
    raw = export.raw_transaction(prepared, CONTRACTS_AT)
    safe = export.safe_transaction(prepared, CONTRACTS_AT, created_at_ms=1)
    assert raw == {"chain_id": 31337, "to": prepared.to, "value": "0", "data": to_hex(prepared.data)}
    assert {**safe["transactions"][0], "chain_id": int(safe["chainId"])} == raw | {
        "contractMethod": None,
        "contractInputsValues": None,
    }

"""Writes the vectors of Python and Solidity: ``python -m tools.message_vectors``.

The files are committed. ``tests/chain/test_contract_vectors.py`` compares them with what the Python rules give now, and
``contracts/test/system/Vectors.t.sol`` with what the contracts give. Integers are decimal strings, hashes 0x hex.
"""

import json
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eth_abi.abi import encode
from eth_account import Account

from market.domain.money import split, unit_price
from zoo_protocol import merkle, messages
from zoo_protocol.hashing import keccak, to_hex
from zoo_protocol.payments.settlement_batch import JobLine, batch_root
from zoo_protocol.verification import sampling, trace

DOMAIN = messages.Domain(84_532, "0x5FbDB2315678afecb367f032d93F642f64180aa3")
SIGNER_KEY = "0x" + "11" * 32
MAX = {bits: 2**bits - 1 for bits in (16, 32, 40, 48, 80, 96, 256)}

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "vectors"


def _hash(name: str) -> str:
    return to_hex(keccak(name.encode()))


def orders() -> list[messages.JobOrder]:
    signer = Account.from_key(SIGNER_KEY).address
    return [
        messages.JobOrder(signer, _hash("spec"), 1, 12, 90_000_000, 4, 200, 10**18, 25 * 10**17, 1_900_000_000, 7),
        messages.JobOrder(signer, "0x" + "00" * 32, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        messages.JobOrder(
            signer, "0x" + "ff" * 32, 255, MAX[32], MAX[48], MAX[16], MAX[16], MAX[96], MAX[80], MAX[40], MAX[256]
        ),
    ]


def commitments(count: int) -> list[messages.UnitCommitment]:
    provider = Account.from_key(SIGNER_KEY).address
    units = [
        messages.UnitCommitment(_hash("job"), i // 4, i % 4, provider, _hash(f"trace {i}"), _hash(f"payload {i}"))
        for i in range(count - 1)
    ]
    return [*units, messages.UnitCommitment("0x" + "ff" * 32, MAX[32], MAX[32], provider, _hash("t"), _hash("p"))]


def window_leaf(unit: messages.UnitCommitment) -> bytes:
    types = ["bytes32", "uint32", "uint32", "address", "bytes32", "bytes32"]
    return merkle.leaf_hash(encode(types, [_abi_value(value) for value in asdict(unit).values()]))


def _abi_value(value: Any) -> Any:
    return bytes.fromhex(value[2:]) if isinstance(value, str) and len(value) == 66 else value


def _text(message: messages.Message) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(message).items()}


def _signed(message: messages.Message, domain: messages.Domain = DOMAIN) -> dict[str, Any]:
    return {
        **_text(message),
        "structHash": messages.struct_hash(message),
        "digest": to_hex(messages.digest(domain, message)),
        "signature": messages.sign(SIGNER_KEY, messages.typed_data(domain, message)),
    }


def message_vectors() -> dict[str, Any]:
    return {
        "chainId": str(DOMAIN.chain_id),
        "verifyingContract": DOMAIN.contract,
        "orders": [_signed(order) for order in orders()],
        "commitments": [_signed(unit) for unit in commitments(2)],
        "replays": [
            _signed(messages.ReplayCommitment(_hash("job"), 3, 1, 2, *map(_hash, ("start", "class", "result"))))
        ],
    }


def acknowledgements() -> list[messages.Acknowledgement]:
    leaf = to_hex(window_leaf(commitments(1)[0]))
    return [
        messages.Acknowledgement(leaf, 1_900_000_000),
        messages.Acknowledgement("0x" + "00" * 32, 0),
        messages.Acknowledgement("0x" + "ff" * 32, MAX[40]),
    ]


def acknowledgement_vectors() -> dict[str, Any]:
    domain = messages.omissions_domain(DOMAIN.chain_id, DOMAIN.contract)
    return {
        "chainId": str(domain.chain_id),
        "verifyingContract": domain.contract,
        "signer": Account.from_key(SIGNER_KEY).address,
        "acknowledgements": [_signed(message, domain) for message in acknowledgements()],
    }


def window_vectors() -> dict[str, Any]:
    windows = []
    for count in (1, 2, 3, 5, 7):
        units = commitments(count)
        leaves = [window_leaf(unit) for unit in units]
        proofs = [[to_hex(node) for node in merkle.proof(leaves, i)] for i in range(count)]
        entries = [
            {**_text(unit), "leaf": to_hex(leaf), "proof": proof}
            for unit, leaf, proof in zip(units, leaves, proofs, strict=True)
        ]
        windows.append({"root": to_hex(merkle.root(leaves)), "units": entries})
    return {"windows": windows}


def money_vectors() -> dict[str, Any]:
    dice = random.Random(20_300)
    pairs = [(0, 0), (MAX[80], MAX[48]), (1, 3_600_000_000), (10_000, 3_600_000_000), (9_999, 3_600_000_000)]
    pairs += [(25 * 10**17, 90_000_000), (399_999, 90_000_000), (400_000, 90_000_000), (4 * 10**18, 1), (8 * 10**18, 7)]
    pairs += [
        (dice.randrange(2 ** dice.randrange(1, 81)), dice.randrange(2 ** dice.randrange(1, 49))) for _ in range(40)
    ]
    return {
        "unitPrices": [
            {"price": str(price), "weight": str(weight), "unit": str(unit_price(price, weight))}
            for price, weight in pairs
        ],
        "splits": [_split_vector(dice) for _ in range(12)],
        "batches": [_batch_vector(dice, lines) for lines in (1, 2, 3)],
    }


def _split_vector(dice: random.Random) -> dict[str, Any]:
    price, weight = dice.randrange(10**15, 10**19), dice.randrange(10**6, 10**9)
    first, second, fee_bps = dice.randrange(1, 500), dice.randrange(1, 500), dice.choice([0, 1, 333, 500, 1_000])
    unit = unit_price(price, weight)
    escrowed = unit * (first + second) + dice.choice([0, 1, 9_999, dice.randrange(10**18)])
    result = split(escrowed, unit, first + second, fee_bps)
    return {
        "price": str(price),
        "weight": str(weight),
        "feeBps": str(fee_bps),
        "escrowed": str(escrowed),
        "units": [str(first), str(second)],
        **{name: str(amount) for name, amount in asdict(result).items()},
    }


def _batch_vector(dice: random.Random, count: int) -> dict[str, Any]:
    claims, units = dice.randbytes(32), dice.randbytes(32)
    lines = []
    for i in range(count):
        price, paid = dice.randrange(2**80), dice.randrange(2**32)
        lines.append(JobLine(_hash(f"job {i}"), price, paid, i, MAX[32], i % 2 == 0, _hash("record")))
    return {
        "claims": to_hex(claims),
        "units": to_hex(units),
        "lines": [_text_fields(line.as_argument()) for line in lines],
        "root": to_hex(batch_root(claims, units, lines)),
    }


def _text_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if type(value) is int else value for key, value in fields.items()}


def draw_vectors() -> dict[str, Any]:
    dice = random.Random(1_024)
    seeds = []
    for window in range(3):
        block_hash, root = dice.randbytes(32), dice.randbytes(32)
        seed = keccak(encode(["bytes32", "uint256", "bytes32"], [block_hash, window, root]))
        seeds.append({"blockHash": to_hex(block_hash), "root": to_hex(root), "seed": to_hex(seed)})
    words = []
    for domain, counter in (("count", 0), ("segment", 0), ("segment", 63), ("verifier", 2**64 - 1)):
        seed, subject = dice.randbytes(32), dice.randbytes(32)
        word = sampling.draw(seed, domain, subject, counter)
        given = {"seed": to_hex(seed), "domain": domain, "subject": to_hex(subject), "counter": str(counter)}
        words.append({**given, "word": to_hex(word.to_bytes(32, "big"))})
    chosen = []
    cases = ((1, 10_000), (4, 2_500), (4, 200), (12, 2_500), (64, 625), (64, 10_000), (100, 1_300), (7, 0))
    for segments, rate in cases:
        seed, root = dice.randbytes(32), dice.randbytes(32)
        drawn = [str(segment) for segment in sampling.draw_segments(seed, root, segments, rate)]
        given = {"seed": to_hex(seed), "traceRoot": to_hex(root), "segments": str(segments), "rateBps": str(rate)}
        chosen.append({**given, "drawn": drawn})
    return {"seeds": seeds, "words": words, "units": chosen}


def trace_vectors() -> dict[str, Any]:
    dice = random.Random(2_048)
    traces = []
    for segments in (1, 2, 4, 5, 64):
        job, environment = to_hex(dice.randbytes(32)), to_hex(dice.randbytes(32))
        place = (MAX[32], MAX[32]) if segments == 1 else (dice.randrange(1_000), dice.randrange(64))
        states = [dice.randbytes(32) for _ in range(segments + 1)]
        leaves = [trace.state_leaf(job, *place, j, state, environment) for j, state in enumerate(states)]
        boundaries = [
            {"state": to_hex(state), "leaf": to_hex(leaf), "proof": [to_hex(node) for node in merkle.proof(leaves, j)]}
            for j, (state, leaf) in enumerate(zip(states, leaves, strict=True))
        ]
        given = {"jobId": job, "round": str(place[0]), "slot": str(place[1]), "environmentClass": environment}
        traces.append({**given, "root": to_hex(trace.trace_root(leaves)), "boundaries": boundaries})
    return {"traces": traces}


VECTORS = {
    "messages.json": message_vectors,
    "acknowledgements.json": acknowledgement_vectors,
    "windows.json": window_vectors,
    "money.json": money_vectors,
    "draws.json": draw_vectors,
    "traces.json": trace_vectors,
}


def text_of(name: str) -> str:
    return json.dumps(VECTORS[name](), indent=1) + "\n"


if __name__ == "__main__":
    for file_name in VECTORS:
        (FOLDER / file_name).write_text(text_of(file_name), encoding="utf-8")
        print(f"wrote {file_name}")

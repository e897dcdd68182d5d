"""Disputes as rows, with the chain's events of their stories."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from eth_abi.abi import encode
from eth_utils.abi import collapse_if_tuple
from sqlalchemy import Connection, insert, text

from market.chain.contracts.codec import event_topic
from market.chain.models import ChainBlock, ChainCursor, ChainLog
from market.domain.lifecycle import DISPUTE_STATUSES, DisputeStatus
from market.verification.disputes.models import Challenge, Dispute, Verdict
from zoo_protocol.contracts import artifact
from zoo_protocol.hashing import sha256, to_hex

ZEN = 10**18
BOND_WEI = 100 * ZEN
STEP = 2
STATES = (
    DisputeStatus.PROVIDER_LOST,
    DisputeStatus.JUDGING,
    DisputeStatus.CHALLENGER_LOST,
    DisputeStatus.TRACE,
    DisputeStatus.STEP,
    DisputeStatus.DRAWING,
    DisputeStatus.UNDECIDED,
)
Event = tuple[str, str, dict[str, Any]]


def hash32(kind: str, number: int) -> str:
    return to_hex(sha256(f"{kind} {number}".encode()))


FIRST_BLOCK = 10_000
"""First block of the events, above those of a new chain."""


def add_disputes(
    connection: Connection, units: Sequence[Any], challenger: str, referees: Sequence[str], now: datetime
) -> None:
    """Dispute units (id, job_id, round, slot, provider), one in each state of ``STATES``."""
    block = FIRST_BLOCK
    for number, (unit, status) in enumerate(zip(units, STATES, strict=False), 1):
        dispute_id, key = hash32("dispute", number), hash32("unit key", number)
        opened = now - timedelta(hours=10 * number)
        reached = STATES_BEFORE[status]
        committee = list(referees) if "CommitteeDrawn" in reached else None
        events = _events(dispute_id, key, unit.provider, challenger, referees, status, int(now.timestamp()) + 3_600)
        connection.execute(
            insert(Dispute),
            {
                "id": dispute_id,
                "unit_key": key,
                "provider": unit.provider,
                "challenger": challenger,
                "segments": 4,
                "status": status,
                "step": STEP if "StepNamed" in reached else None,
                "states": [hash32("state", n) for n in range(5)] if "TraceShown" in reached else None,
                "draw": 0,
                "committee": committee,
                "opened_tx": hash32("tx", 100 * number),
                "ended_tx": hash32("tx", 100 * number + 9) if "DisputeEnded" in reached else None,
                "created_at": opened,
            },
        )
        _add_unit(connection, unit, number, dispute_id, key, status, challenger, now)
        for referee in (referees if status in DONE else referees[:1]) if committee else []:
            verdict = {"dispute_id": dispute_id, "draw": 0, "referee": referee, "signature": "0x"}
            correct = status == DisputeStatus.CHALLENGER_LOST
            reason = "step_correct" if correct else "step_false"
            connection.execute(insert(Verdict), verdict | {"provider_correct": correct, "reason": reason})
        for position, event in enumerate(event for event in events if event[1] in reached):
            _add_log(
                connection, event, block, int((opened + timedelta(minutes=9 * position)).timestamp()), number * 100
            )
            block += 1
    cursor = {"id": 1, "head_number": block, "head_hash": hash32("block", block)}
    connection.execute(insert(ChainCursor), cursor | {"finalised_number": block, "finalised_hash": cursor["head_hash"]})


DONE = frozenset({DisputeStatus.PROVIDER_LOST, DisputeStatus.CHALLENGER_LOST})
_OPENED = ("DisputeOpened", "TurnStarted")
_NAMED = (*_OPENED, "TraceShown", "StepNamed")
_DRAWN = (*_NAMED, "CommitteeDrawn")
_ENDED = (*_DRAWN, "VerdictGiven", "DisputeEnded")
STATES_BEFORE: dict[DisputeStatus, tuple[str, ...]] = {
    DisputeStatus.TRACE: _OPENED,
    DisputeStatus.STEP: (*_OPENED, "TraceShown"),
    DisputeStatus.DRAWING: _NAMED,
    DisputeStatus.JUDGING: _DRAWN,
    DisputeStatus.PROVIDER_LOST: (*_ENDED, "Slashed", "Credited"),
    DisputeStatus.CHALLENGER_LOST: _ENDED,
    DisputeStatus.UNDECIDED: (*_DRAWN, "DisputeEnded"),
}


def _events(
    dispute_id: str, key: str, provider: str, challenger: str, referees: Sequence[str], status: str, deadline: int
) -> list[Event]:
    of: dict[str, Any] = {"disputeId": dispute_id}
    state = DISPUTE_STATUSES.index(DisputeStatus(status))
    states = [hash32("state", n) for n in range(5)]
    opened = {"unitId": key, "provider": provider, "challenger": challenger, "segments": 4}
    drawn = {"draw": 0, "committee": list(referees)}
    slashed = {"provider": provider, "offence": 2, "evidence": dispute_id, "amount": 500 * ZEN, "share": 100 * ZEN}
    credited = [(challenger, BOND_WEI + 50 * ZEN), *((referee, 10 * ZEN) for referee in referees)]
    return [
        ("Disputes", "DisputeOpened", of | opened),
        ("Disputes", "TraceShown", of | {"environmentClass": hash32("class", 0), "states": states}),
        ("Disputes", "StepNamed", of | {"step": STEP}),
        ("Disputes", "CommitteeDrawn", of | drawn),
        (
            "Disputes",
            "TurnStarted",
            of | {"status": state, "deadline": deadline},
        ),
        (
            "Disputes",
            "VerdictGiven",
            of | {"draw": 0, "providerCorrect": status == DisputeStatus.CHALLENGER_LOST, "signatures": len(referees)},
        ),
        ("ProviderStaking", "Slashed", slashed),
        *(("Disputes", "Credited", of | {"account": one, "amount": amount}) for one, amount in credited),
        (
            "Disputes",
            "DisputeEnded",
            of | {"unitId": key, "outcome": state, "burned": 20 * ZEN},
        ),
    ]


def _add_log(connection: Connection, event: Event, block: int, timestamp: int, salt: int) -> None:
    contract, name, arguments = event
    topics, data = encode_log(contract, name, arguments)
    values = {"hash": hash32("block", block), "number": block, "parent_hash": hash32("block", block - 1)}
    connection.execute(insert(ChainBlock), values | {"timestamp": timestamp, "canonical": True})
    log = {"block_hash": values["hash"], "log_index": 0, "tx_hash": hash32("tx", salt + block), "contract": contract}
    connection.execute(insert(ChainLog), log | {"topics": topics, "data": data})


def encode_log(contract: str, event: str, arguments: dict[str, Any]) -> tuple[list[str], bytes]:
    """Return topics and data of a log; arguments that are left out are zero."""
    abi = next(item for item in artifact(contract).abi if item["type"] == "event" and item["name"] == event)
    values = [_native(field, arguments.get(field["name"], 0)) for field in abi["inputs"]]
    pairs = list(zip(abi["inputs"], values, strict=True))
    topics = [to_hex(encode([field["type"]], [value])) for field, value in pairs if field["indexed"]]
    plain = [(collapse_if_tuple(field), value) for field, value in pairs if not field["indexed"]]
    return [event_topic(contract, event), *topics], encode([kind for kind, _ in plain], [value for _, value in plain])


def _native(field: dict[str, Any], value: Any) -> Any:
    if field["type"].endswith("[]"):
        return [_native({"type": field["type"][:-2]}, item) for item in value]
    if field["type"].startswith("bytes") and isinstance(value, str):
        return bytes.fromhex(value[2:])
    return bytes(32) if field["type"] == "bytes32" and value == 0 else value


def _add_unit(
    connection: Connection,
    unit: Any,
    number: int,
    dispute_id: str,
    key: str,
    status: DisputeStatus,
    challenger: str,
    now: datetime,
) -> None:
    is_upheld = status == DisputeStatus.PROVIDER_LOST
    values = {"id": unit.id, "number": number, "key": key, "dispute": dispute_id, "now": now}
    unit_status = "rejected" if is_upheld else "disputed"
    leaves = [hash32(f"leaf {number}", n) for n in range(5)]
    connection.execute(
        text(
            "UPDATE units SET status = :status, dispute_id = :dispute, settlement_id = NULL,"
            " leaves = CAST(:leaves AS jsonb) WHERE id = :id"
        ),
        values | {"status": unit_status, "leaves": str(leaves).replace("'", '"')},
    )
    connection.execute(
        text("INSERT INTO acknowledgements (unit_id, leaf, include_by, signature) VALUES (:id, :key, :now, '0x');"),
        values,
    )
    connection.execute(
        insert(Challenge),
        {
            "unit_id": unit.id,
            "dispute_id": dispute_id,
            "unit_key": key,
            "job_id": unit.job_id,
            "round": unit.round,
            "slot": unit.slot,
            "provider": unit.provider,
            "challenger": challenger,
            "step": STEP,
            "status": "won" if is_upheld else "open",
            "evidence_cid": f"bafyevidence{number}",
            "open_by": now,
            "arguments": [],
            "convicted_in": dispute_id if is_upheld else None,
        },
    )
    _add_replays(connection, values)
    if is_upheld:
        connection.execute(
            text(
                "INSERT INTO slashes (job_id, unit_id, provider, offence, evidence, evidence_cid, path, amount_wei, tx)"
                " SELECT job_id, id, provider, 'incorrect_computation', :dispute, 'bafyevidence' || :number, 'dispute',"
                f" {500 * ZEN}, :dispute FROM units WHERE id = :id"
            ),
            values | {"number": str(number)},
        )


def _add_replays(connection: Connection, values: dict[str, Any]) -> None:
    """Let the first two verifiers find another end of the segment than the provider."""
    connection.execute(
        text(
            f"WITH one AS (INSERT INTO samples (unit_id, segment, status, canary_due, second_opinion)"
            f" VALUES (:id, {STEP}, 'failed', false, false)"
            " ON CONFLICT (unit_id, segment) DO UPDATE SET status = 'failed' RETURNING id)"
            " INSERT INTO replays (sample_id, verifier, status, end_leaf, salt)"
            " SELECT one.id, address, 'agreed', :leaf, :leaf FROM one, wallet WHERE kind = 'node' AND n IN (10, 20)"
            " ON CONFLICT DO NOTHING"
        ),
        values | {"leaf": hash32("true leaf", values["number"])},
    )

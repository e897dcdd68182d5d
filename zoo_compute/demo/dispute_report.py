"""Report on the demonstration's dishonest provider: detection, dispute and slash.

Sources: transactions from the contracts' events, replay results from the evidence on IPFS, verdicts from the market.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import Mismatch
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.client.client import Client
from zoo_compute.client.job import Job
from zoo_protocol.payments.job_record import VERIFIED
from zoo_protocol.verification import dispute_story

_MAX_EVIDENCE_BYTES = 1 << 20
_WIDTH = 110
FABRICATED = "It ran none of them. It submitted random numbers of the right size, and signed a made-up trace of them."


@dataclass(frozen=True, slots=True)
class Cast:
    """Addresses of the dishonest provider, honest providers and verifiers.

    ``attack`` tells in sentences how the dishonest provider worked.
    """

    adversary: str
    honest: list[str]
    verifiers: list[str]
    attack: str = FABRICATED


def build_report(client: Client, job: Job, receipt: Mapping[str, Any], cast: Cast) -> dict[str, Any]:
    """Return the report as JSON. Amounts are decimal strings of wei.

    Raises:
        Mismatch: no unit of the dishonest provider was disputed on chain.
        ChainDisagrees: an expected event is not on the chain.
    """
    disputed = [unit for unit in job.units() if unit["provider"] == cast.adversary and unit["dispute_id"]]
    if not disputed:
        raise Mismatch("demo-no-dispute", f"no unit of the dishonest provider {cast.adversary} was disputed on chain")
    unit = disputed[0]
    network = client.network()
    chain = ChainReader(network.rpc_url, network.contracts, network.start_block)
    evidence = _evidence(client, job, unit["dispute_id"])
    return {
        "cheat": cast.adversary,
        "attack": cast.attack,
        "unit": _unit(evidence, receipt, cast.adversary),
        "noticed": _noticed(evidence),
        **_on_chain(client, chain, unit["dispute_id"], evidence),
        "cost": _cost(chain, unit["dispute_id"], cast.adversary, receipt),
        "honest": _honest(chain, cast, receipt),
    }


def _evidence(client: Client, job: Job, dispute_id: str) -> dict[str, Any]:
    opening = next(
        event for event in job.events() if event.kind == "dispute" and event.data["dispute_id"] == dispute_id
    )
    found: dict[str, Any] = json.loads(client.fetch(opening.data["evidence_cid"], max_bytes=_MAX_EVIDENCE_BYTES))
    return found | {"cid": opening.data["evidence_cid"]}


def _unit(evidence: Mapping[str, Any], receipt: Mapping[str, Any], adversary: str) -> dict[str, Any]:
    training = evidence["spec"]["training_config"]
    place = evidence["unit"]["round"], evidence["unit"]["slot"]
    return {
        "round": place[0],
        "slot": place[1],
        "steps": training["inner_steps"],
        "slot_went_to": sorted(
            {unit["provider"] for unit in receipt["units"] if unit["slot"] == place[1] and unit["status"] == VERIFIED}
            - {adversary}
        ),
    }


def _noticed(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verifiers whose replay of the sampled segment mismatched, and their end states."""
    steps, segment = evidence["spec"]["training_config"]["segment_steps"], evidence["segment"]
    claimed = evidence["unit"]["leaves"][segment + 1]
    refuting = [replay for replay in evidence["replays"] if replay["end_leaf"] not in (None, claimed)]
    return {
        "segment": segment,
        "first_step": segment * steps + 1,
        "last_step": (segment + 1) * steps,
        "claimed": claimed,
        "computed": sorted({replay["end_leaf"] for replay in refuting}),
        "verifiers": [replay["verifier"] for replay in refuting],
        "evidence_cid": evidence["cid"],
    }


def _on_chain(client: Client, chain: ChainReader, dispute_id: str, evidence: Mapping[str, Any]) -> dict[str, Any]:
    window_tx = chain.window_tx(evidence["window"]["root"])
    steps = [{"event": "WindowCommitted", "what": dispute_story.COMMITTED, "tx": window_tx}]
    events = chain.dispute_events(dispute_id)
    for name, args, tx in events:
        if (words := dispute_story.step(name, args)) is not None:
            steps.append({"event": name, "what": words, "tx": tx})
    committee = next(args["committee"] for name, args, _ in reversed(events) if name == "CommitteeDrawn")
    signed = client.connection.get(f"/v1/disputes/{dispute_id}/verdicts")
    return {"dispute_id": dispute_id, "chain": steps, "committee": committee, "verdicts": signed}


def _cost(chain: ChainReader, dispute_id: str, adversary: str, receipt: Mapping[str, Any]) -> dict[str, Any]:
    lost = chain.slash(dispute_id, "incorrect_computation").amount
    events = chain.dispute_events(dispute_id)
    bond = chain.dispute_bond()
    challenger = next(args["challenger"] for name, args, _ in events if name == "DisputeOpened")
    credited: dict[str, int] = {}
    for name, args, _ in events:
        if name == "Credited":
            credited[args["account"]] = credited.get(args["account"], 0) + args["amount"]
    to_market = credited.pop(challenger) - bond
    unpaid = [unit for unit in receipt["units"] if unit["provider"] == adversary and int(unit["paid_wei"]) == 0]
    return {
        "lost_wei": str(lost),
        "left_wei": str(chain.stake_of(adversary)),
        "bond_returned_wei": str(bond),
        "to_challenger_wei": str(to_market),
        "to_referees_wei": {referee: str(amount) for referee, amount in credited.items()},
        "burned_wei": str(lost - to_market - sum(credited.values())),
        "units_unpaid": len(unpaid),
    }


def _honest(chain: ChainReader, cast: Cast, receipt: Mapping[str, Any]) -> dict[str, Any]:
    paid = {
        address: sum(int(unit["paid_wei"]) for unit in receipt["units"] if unit["provider"] == address)
        for address in cast.honest
    }
    stakes = {address: chain.stake_of(address) for address in (*cast.honest, *cast.verifiers)}
    return {
        "slashed": sorted({penalty.provider for penalty in chain.penalties()} - {cast.adversary}),
        "stakes_wei": {address: str(stake) for address, stake in stakes.items()},
        "paid_wei": {address: str(amount) for address, amount in paid.items()},
    }


def format_report(story: Mapping[str, Any]) -> str:
    """Return the report as text for a terminal."""
    parts = (_attack, _detection, _transactions, _verdicts, _penalty, _other_nodes)
    return "\n".join(["How the dishonest provider was caught", *(line for part in parts for line in part(story))])


def _attack(story: Mapping[str, Any]) -> list[str]:
    unit, provider = story["unit"], story["cheat"]
    return _paragraph(
        f"Attack. provider-1 ({provider}) got replica {unit['slot']} of round {unit['round']}: {unit['steps']} "
        f"training steps. {story['attack']}"
    )


def _detection(story: Mapping[str, Any]) -> list[str]:
    noticed = story["noticed"]
    return [
        *_paragraph(f"Detection. {dispute_story.detection(noticed['first_step'], noticed['last_step'])}"),
        *(f"    {verifier}" for verifier in noticed["verifiers"]),
        f"    end state signed by the provider   {noticed['claimed']}",
        *(f"    end state found by the verifiers   {leaf}" for leaf in noticed["computed"]),
    ]


def _transactions(story: Mapping[str, Any]) -> list[str]:
    return [
        *_paragraph(f"On chain. {dispute_story.ON_CHAIN}"),
        *(f"    {step['tx']}  {step['what']}" for step in story["chain"]),
    ]


def _verdicts(story: Mapping[str, Any]) -> list[str]:
    signed = {verdict["referee"]: verdict for verdict in story["verdicts"]}
    return [
        *_paragraph(
            f"Committee of dispute {story['dispute_id']}. {dispute_story.REFEREES} This small network has just enough "
            "of them, so the committee includes the verifiers above:"
        ),
        *(f"    {referee}  {_verdict(signed.get(referee))}" for referee in story["committee"]),
    ]


def _verdict(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return dispute_story.verdict(None)
    return dispute_story.verdict(verdict["provider_correct"], verdict["reason"])


def _penalty(story: Mapping[str, Any]) -> list[str]:
    cost = story["cost"]
    to_referees = sum(int(amount) for amount in cost["to_referees_wei"].values())
    division = dispute_story.division(_zen(cost["to_challenger_wei"]), _zen(to_referees), _zen(cost["burned_wei"]))
    return _paragraph(
        f"Penalty. The provider lost {_zen(cost['lost_wei'])} of its stake and has {_zen(cost['left_wei'])} left. It "
        f"gets no more work, and {cost['units_unpaid']} of its units are not paid. {division} The market has its bond "
        f"of {_zen(cost['bond_returned_wei'])} back."
    )


def _other_nodes(story: Mapping[str, Any]) -> list[str]:
    unit, honest = story["unit"], story["honest"]
    providers = len(honest["paid_wei"])
    earned = sum(int(amount) for amount in honest["paid_wei"].values())
    successor = f"The replica went to {', '.join(unit['slot_went_to'])}. " if unit["slot_went_to"] else ""
    return _paragraph(
        f"Other nodes. None of the {providers} honest providers and {len(honest['stakes_wei']) - providers} verifiers "
        f"lost any stake. {successor}The honest providers earned {_zen(earned)}."
    )


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _zen(wei: int | str) -> str:
    return f"{format_zen(int(wei))} ZEN"

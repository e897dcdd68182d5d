"""The demonstration's story: how its cheat was found, judged and punished, from the chain and from published evidence.

Nothing is told that was not looked up: transactions come from the contracts' events, what the verifiers computed from
the evidence, by its CID, and what each referee found from the verdicts that the market gathered.
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

_MAX_EVIDENCE_BYTES = 1 << 20
_WIDTH = 110
STEPS = {
    "DisputeOpened": "the market disputes the unit before the contract and puts up a bond",
    "TraceShown": "the contract asks for the whole trace; the cheat shows what it signed",
    "StepNamed": "the market names the piece that it rejects",
    "CommitteeDrawn": "the contract draws referees by the hash of a block that nobody chose",
    "VerdictGiven": "the referees' signatures convict; the contract takes the stake in the same transaction",
}
_REASONS = {"step_false": "I repeated that piece, and it does not end where the cheat says"}


@dataclass(frozen=True, slots=True)
class Cast:
    """Addresses of who plays: the cheat, the honest providers, and the verifiers, who are the referees too."""

    cheat: str
    honest: list[str]
    verifiers: list[str]


def gather(client: Client, job: Job, receipt: Mapping[str, Any], cast: Cast) -> dict[str, Any]:
    """All of the story as JSON; amounts are decimal strings of wei.

    Raises:
        Mismatch: there is no dispute to tell of: the cheat was not caught, or not by a committee.
        ChainDisagrees: the chain does not hold what the story needs.
    """
    disputed = [unit for unit in job.units() if unit["provider"] == cast.cheat and unit["dispute_id"]]
    if not disputed:
        raise Mismatch("demo-no-dispute", f"no unit of the cheat {cast.cheat} was disputed on chain")
    unit = disputed[0]
    network = client.network()
    chain = ChainReader(network.rpc_url, network.contracts, network.start_block)
    evidence = _evidence(client, job, unit["dispute_id"])
    return {
        "cheat": cast.cheat,
        "unit": _unit(evidence, receipt),
        "noticed": _noticed(evidence),
        **_on_chain(client, chain, unit["dispute_id"], evidence),
        "cost": _cost(chain, unit["dispute_id"], cast.cheat, receipt),
        "honest": _honest(chain, cast, receipt),
    }


def _evidence(client: Client, job: Job, dispute_id: str) -> dict[str, Any]:
    """What the market published when it opened the dispute: everything to replay the piece again."""
    opening = next(
        event for event in job.events() if event.kind == "dispute" and event.data["dispute_id"] == dispute_id
    )
    found: dict[str, Any] = json.loads(client.fetch(opening.data["evidence_cid"], max_bytes=_MAX_EVIDENCE_BYTES))
    return found | {"cid": opening.data["evidence_cid"]}


def _unit(evidence: Mapping[str, Any], receipt: Mapping[str, Any]) -> dict[str, Any]:
    training = evidence["spec"]["training_config"]
    place = evidence["unit"]["round"], evidence["unit"]["slot"]
    return {
        "round": place[0],
        "slot": place[1],
        "steps": training["inner_steps"],
        "slot_went_to": sorted(
            {unit["provider"] for unit in receipt["units"] if unit["slot"] == place[1] and unit["status"] == VERIFIED}
        ),
    }


def _noticed(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Who replayed the drawn piece and came to another end, and to which."""
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
    """What was put on chain, in order, and who judged."""
    committed = "what was signed is fixed, the cheat's result with it, before anybody can know what will be checked"
    steps = [{"event": "WindowCommitted", "what": committed, "tx": chain.window_tx(evidence["window"]["root"])}]
    events = chain.dispute_events(dispute_id)
    steps += [{"event": name, "what": STEPS[name], "tx": tx} for name, _, tx in events if name in STEPS]
    committee = next(args["committee"] for name, args, _ in reversed(events) if name == "CommitteeDrawn")
    signed = client.connection.get(f"/v1/disputes/{dispute_id}/verdicts")
    return {"dispute_id": dispute_id, "chain": steps, "committee": committee, "verdicts": signed}


def _cost(chain: ChainReader, dispute_id: str, cheat: str, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """What the cheat lost, and where that went: nobody gets all of it."""
    lost = chain.slash(dispute_id, "incorrect_computation").amount
    events = chain.dispute_events(dispute_id)
    bond = chain.dispute_bond()
    challenger = next(args["challenger"] for name, args, _ in events if name == "DisputeOpened")
    credited: dict[str, int] = {}
    for name, args, _ in events:
        if name == "Credited":
            credited[args["account"]] = credited.get(args["account"], 0) + args["amount"]
    to_market = credited.pop(challenger) - bond
    unpaid = [unit for unit in receipt["units"] if unit["provider"] == cheat and int(unit["paid_wei"]) == 0]
    return {
        "lost_wei": str(lost),
        "left_wei": str(chain.stake_of(cheat)),
        "bond_returned_wei": str(bond),
        "to_challenger_wei": str(to_market),
        "to_referees_wei": {referee: str(amount) for referee, amount in credited.items()},
        "burned_wei": str(lost - to_market - sum(credited.values())),
        "units_unpaid": len(unpaid),
    }


def _honest(chain: ChainReader, cast: Cast, receipt: Mapping[str, Any]) -> dict[str, Any]:
    """That everybody else kept everything, and what the providers among them earned."""
    paid = {
        address: sum(int(unit["paid_wei"]) for unit in receipt["units"] if unit["provider"] == address)
        for address in cast.honest
    }
    stakes = {address: chain.stake_of(address) for address in (*cast.honest, *cast.verifiers)}
    return {
        "slashed": sorted(chain.slashed() - {cast.cheat}),
        "stakes_wei": {address: str(stake) for address, stake in stakes.items()},
        "paid_wei": {address: str(amount) for address, amount in paid.items()},
    }


def tell(story: Mapping[str, Any]) -> str:
    """The story in words, for a terminal."""
    parts = (_skipped, _noted, _recorded, _judged, _paid_for, _kept)
    return "\n".join(["How the cheat was caught", *(line for part in parts for line in part(story))])


def _skipped(story: Mapping[str, Any]) -> list[str]:
    unit = story["unit"]
    return _paragraph(
        f"What it skipped. provider-1 ({story['cheat']}) was given slot {unit['slot']} of round {unit['round']}: "
        f"{unit['steps']} steps of training. It did none of them. It handed in random numbers of the right size, and "
        "signed a made-up trace of how it had come to them."
    )


def _noted(story: Mapping[str, Any]) -> list[str]:
    noticed = story["noticed"]
    return [
        *_paragraph(
            "Who noticed. After it had signed, the hash of a block drew some steps for a check, "
            f"{noticed['first_step']} to {noticed['last_step']} among them. These verifiers repeated them, each by "
            "itself and without knowing the other's result:"
        ),
        *(f"    {verifier}" for verifier in noticed["verifiers"]),
        f"    the cheat claims that these steps end in {noticed['claimed']}",
        *(f"    the verifiers found that they end in     {leaf}" for leaf in noticed["computed"]),
    ]


def _recorded(story: Mapping[str, Any]) -> list[str]:
    return [
        *_paragraph("What was put on chain, so that nobody has to believe the verifiers or the market:"),
        *(f"    {step['tx']}  {step['what']}" for step in story["chain"]),
    ]


def _judged(story: Mapping[str, Any]) -> list[str]:
    signed = {verdict["referee"]: verdict for verdict in story["verdicts"]}
    return [
        *_paragraph(
            f"Who judged. The referees of dispute {story['dispute_id']}. They are drawn from all staked verifiers, "
            "never the cheat, the payer or the market; this small network has just enough, so those who noticed sit "
            "among them:"
        ),
        *(f"    {referee}  {_opinion(signed.get(referee))}" for referee in story["committee"]),
    ]


def _opinion(verdict: Mapping[str, Any] | None) -> str:
    if verdict is None:
        return "had not signed yet when enough others had"
    side = "for the cheat" if verdict["provider_correct"] else "against the cheat"
    return f"signed {side}: {_REASONS.get(verdict['reason'], verdict['reason'])}"


def _paid_for(story: Mapping[str, Any]) -> list[str]:
    cost = story["cost"]
    to_referees = sum(int(amount) for amount in cost["to_referees_wei"].values())
    return _paragraph(
        f"What it cost. The cheat lost {_zen(cost['lost_wei'])} of its stake and has {_zen(cost['left_wei'])} left. It "
        f"gets no more work, and none of the {cost['units_unpaid']} units that it was given is paid. Of what it lost, "
        f"{_zen(cost['to_challenger_wei'])} cover the market's costs, {_zen(to_referees)} pay the referees who signed, "
        f"and {_zen(cost['burned_wei'])} are burned. The market has its bond of {_zen(cost['bond_returned_wei'])} back."
    )


def _kept(story: Mapping[str, Any]) -> list[str]:
    unit, honest = story["unit"], story["honest"]
    providers = len(honest["paid_wei"])
    earned = sum(int(amount) for amount in honest["paid_wei"].values())
    slot = f"The cheat's slot went to {', '.join(unit['slot_went_to'])}. " if unit["slot_went_to"] else ""
    return _paragraph(
        f"Everybody else. None of the {providers} honest providers beside it and "
        f"{len(honest['stakes_wei']) - providers} verifiers lost any stake. {slot}The providers earned {_zen(earned)}."
    )


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="  ")


def _zen(wei: int | str) -> str:
    return f"{format_zen(int(wei))} ZEN"

"""``zoo-compute dispute``: disputes of work units on chain, with a bond."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ConfigError, ZooError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.cli.verify import Profile, Unit, describe_attempt, replay_unit
from zoo_compute.terminal.output import (
    JsonFlag,
    JsonOfSent,
    Yes,
    confirm,
    print_facts,
    print_json,
    print_note,
    print_result,
    print_rows,
)

if TYPE_CHECKING:
    from training_gym.runtime.profile import ExecutionProfile
    from zoo_compute.audit.unit_record import Place
    from zoo_compute.chain.disputes import Dispute, DisputeChain
    from zoo_compute.client.client import Client

app = typer.Typer(name="dispute", help="Dispute a work unit on chain, with a bond.", no_args_is_help=True)
_TURNS = {
    "trace": "the provider must reveal its trace",
    "step": "the challenger must select the first wrong segment",
    "drawing": "any account may draw the committee after its seed block",
    "judging": "the committee replays the segment",
    "provider_lost": "upheld: the provider is slashed, the unit is not paid",
    "challenger_lost": "rejected: the challenger lost its bond",
    "undecided": "inconclusive: no slash, the unit is not paid",
    "moot": "closed: the unit lost another dispute",
}
_SIGNED = {"dispute_id": str, "draw": int, "provider_correct": bool, "reason": str, "signature": str}
Files = Annotated[
    list[Path] | None,
    typer.Option("--file", help="Read verdicts of `node verdicts --json`, not the market's; may be repeated."),
]
DisputeId = Annotated[str, typer.Argument(help="Id from `dispute open`.", metavar="DISPUTE")]


@app.command(name="open")
def open_(
    unit_id: Unit,
    provider: Annotated[str | None, typer.Option(help="Select one of several providers of the unit.")] = None,
    profile: Profile = None,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Replay the unit first; refuse if it is correct.")
    ] = True,
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Dispute a decided unit. You lose the bond if the provider is right.

    The unit is replayed first. Then the command shows the bond and asks.
    """
    from zoo_compute.audit.evidence import evidence_of
    from zoo_compute.audit.unit_record import Place, find_challenge, market_record_reader
    from zoo_compute.chain.wallet import checked_address
    from zoo_compute.node.execution import hardware

    place, named = Place.parse(unit_id), None if provider is None else checked_address(provider)
    runs_as = hardware.profile(profile)
    with open_client(api_url) as client:
        place = place.resolve(client)
        chain = _chain(client)
        with evidence_of(client.network()) as (reader, gateway):
            challenge = find_challenge(place, named, reader, gateway, market_record_reader(client.connection))
        chain.require_openable(challenge)
        accused, bond = challenge.unit.provider, f"{format_zen(chain.terms.bond)} ZEN"
        result = _replay(client, place, accused, runs_as, as_json) if replay else "not done"
    plan = {"unit": unit_id, "provider": accused, "replay": result, "bond": f"{bond}, lost if the provider is right"}
    confirm(plan, "Open the dispute?", yes=yes or as_json)
    opened, tx = chain.open(challenge)
    shown = {"dispute_id": opened, "unit_id": challenge.unit_id, "provider": accused, "tx": tx}
    if as_json:
        print_json({**shown, "bond_wei": str(chain.terms.bond), "replay": result})
        return
    print_facts({**shown, "bond": bond})
    print_note(f"after the trace reveal, select the first wrong segment: zoo-compute dispute name {opened} STEP")


def _replay(client: "Client", place: "Place", provider: str, runs_as: "ExecutionProfile", as_json: bool) -> str:
    """Replay the unit and return the result. Raises ZooError for correct work."""
    try:
        found = replay_unit(client, place, runs_as, as_json=as_json)
    except ZooError as error:
        return f"not possible: {error.detail}  [{error.code}]"
    attempt = next((one for one in found.attempts if one.provider == provider), None)
    if attempt is None:
        reason = next((one.reason for one in found.unchecked if one.provider == provider), "no attempt")
        return f"not possible: {reason}"
    if attempt.agrees:
        raise ZooError(
            "unit-correct",
            describe_attempt(attempt),
            remedy="A dispute would lose the bond. --no-replay opens it without this check.",
        )
    return describe_attempt(attempt)


@app.command()
def status(dispute_id: DisputeId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the state of a dispute, its response deadline and the revealed trace."""
    with open_client(api_url) as client:
        chain = _chain(client)
    facts = _facts(chain, _checked(dispute_id))
    if as_json:
        print_json(facts)
        return
    states, until = facts.pop("states"), facts["until"]
    facts["turn"] = f"{facts['turn']}: {_TURNS[facts['turn']]}"
    facts["until"] = None if until is None else datetime.fromtimestamp(until, UTC).isoformat()
    facts["signed"] = facts["signed"] or None
    print_facts({**facts, **{f"state {boundary}": state for boundary, state in enumerate(states)}})


@app.command()
def name(
    dispute_id: DisputeId,
    step: Annotated[int, typer.Argument(min=0, help="Number of the segment, from 0.", metavar="STEP")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Select the first wrong segment, or 0 for a wrong start state. A committee then replays it."""
    with open_client(api_url) as client:
        chain = _chain(client)
    _dispute(chain, _checked(dispute_id))
    print_result({"dispute_id": dispute_id, "step": step, "tx": chain.name_step(dispute_id, step)}, as_json=as_json)


@app.command()
def end(dispute_id: DisputeId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Advance a dispute after a missed response deadline, and withdraw your wallet's credits.

    A committee without a quorum is drawn again. Its members without a signature are delisted.
    """
    with open_client(api_url) as client:
        chain = _chain(client)
    found, ended = _dispute(chain, _checked(dispute_id)), None
    if found.phase is found.phase.JUDGING:
        ended = chain.replace_committee(dispute_id)
    elif not found.phase.is_end:
        ended = chain.expire(dispute_id)
    credited = chain.credits()
    withdrawn = chain.withdraw() if credited else None
    shown = {"dispute_id": dispute_id, "turn": chain.dispute(dispute_id).phase.name.lower(), "tx": ended}
    if as_json:
        print_json({**shown, "withdrawn_wei": str(credited), "withdrawal_tx": withdrawn})
    else:
        print_facts({**shown, "withdrawn": f"{format_zen(credited)} ZEN", "withdrawal": withdrawn})


@app.command()
def draw(dispute_id: DisputeId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Draw the committee, or set a new seed block if it is too old: then draw again."""
    with open_client(api_url) as client:
        chain = _chain(client)
    _dispute(chain, _checked(dispute_id))
    tx = chain.draw_committee(dispute_id)
    found = chain.dispute(dispute_id)
    shown = {"dispute_id": dispute_id, "turn": found.phase.name.lower(), "draw": found.draw, "tx": tx}
    if found.phase is found.phase.DRAWING:
        shown |= {"seed_block": found.seed_block, "committee": []}
    else:
        shown["committee"] = chain.committee(dispute_id)
    print_result(shown, as_json=as_json)


@app.command()
def verdicts(dispute_id: DisputeId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the verdicts of the current committee that the market has."""
    with open_client(api_url) as client:
        found = client.connection.get(f"/v1/disputes/{_checked(dispute_id)}/verdicts")
    rows = ([one["referee"], "provider" if one["provider_correct"] else "challenger", one["reason"]] for one in found)
    print_rows(found, ("referee", "in favour of", "reason"), rows, as_json=as_json)


@app.command()
def submit(
    dispute_id: DisputeId,
    file: Files = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Submit fewer signatures than the quorum. The contract stores them."),
    ] = False,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Submit the committee's verdict once a quorum has signed it.

    With --partial before that: these signers stay listed as referees if the committee misses its quorum.
    """
    with open_client(api_url) as client:
        chain, given = _chain(client), _given(client, _checked(dispute_id), file)
    signed = _signed(chain, _checked(dispute_id), given)
    enough = {correct: one for correct, one in signed.items() if len(one) >= chain.terms.quorum}
    sent = enough or {correct: one for correct, one in signed.items() if one and partial}
    most = max(len(one) for one in signed.values())
    if not sent:
        raise ZooError(
            "quorum-missed",
            f"{most} members have signed the same verdict; expected {chain.terms.quorum}",
            remedy="Wait for the others: zoo-compute dispute verdicts DISPUTE. Or store these: --partial.",
        )
    txs = [chain.submit_verdict(dispute_id, correct, one) for correct, one in sent.items()]
    turn = chain.dispute(dispute_id).phase.name.lower()
    print_result({"dispute_id": dispute_id, "turn": turn, "signatures": most, "tx": txs[-1]}, as_json=as_json)


@app.command("accuse")
def slash_referees(
    dispute_id: DisputeId, file: Files = None, api_url: ApiUrl = None, as_json: JsonFlag = False
) -> None:
    """Slash referees for equivocation, or for a verdict against all others of their committee.

    The signatures are the proof. The slashed stake is burned.
    """
    from zoo_compute.audit.misconduct_proof import CONTRADICTION, prove_misconduct, votes

    with open_client(api_url) as client:
        chain, given = _chain(client), _given(client, _checked(dispute_id), file)
    number, members = _dispute(chain, dispute_id).draw, chain.committee(dispute_id)
    proven = prove_misconduct(votes(chain, dispute_id, given), number, members)
    done = chain.penalties_in(dispute_id)
    shown = []
    for one in proven:
        if (one.draw, one.referee, one.offence) in done:
            continue
        if one.offence == CONTRADICTION:
            tx = chain.prove_contradiction(dispute_id, one.draw, one.signatures[True], one.signatures[False])
        else:
            tx = chain.prove_wrong_verdict(dispute_id, one.provider_correct, one.signatures, one.referee)
        shown.append({"referee": one.referee, "draw": one.draw, "offence": one.offence, "tx": tx})
    if not shown:
        raise ZooError(
            "nothing-to-accuse",  # prose: ok
            f"the {len(given)} signatures prove no misconduct without a slash so far",
            remedy="Give both verdicts of one referee, or those of a whole committee with one against all others.",
        )
    rows = (list(one.values()) for one in shown)
    print_rows(shown, ("referee", "committee", "offence", "tx"), rows, as_json=as_json)


@app.command()
def restore(
    unit_id: Annotated[str, typer.Argument(help="Leaf of the unit, from `dispute open`.", metavar="UNIT")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Release a unit's held payout after its rejected disputes and the dispute period."""
    with open_client(api_url) as client:
        tx = _chain(client).restore(_checked(unit_id, "unit"))
    print_result({"unit_id": unit_id, "tx": tx}, as_json=as_json)


def _given(client: "Client", dispute_id: str, files: list[Path] | None) -> list[dict[str, Any]]:
    """Return verdicts from ``files`` (referees' journals), or else from the market."""
    if files is None:
        found: list[dict[str, Any]] = client.connection.get(f"/v1/disputes/{dispute_id}/verdicts")
        return found
    return [verdict for path in files for verdict in _verdicts_in(path)]


def _verdicts_in(path: Path) -> list[dict[str, Any]]:
    try:
        found = [{name: one[name] for name in _SIGNED} for one in json.loads(path.read_text())]
        for one in found:
            for name, kind in _SIGNED.items():
                if not isinstance(one[name], kind):
                    raise TypeError(f"{name} cannot be {one[name]!r:.80}")
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        remedy = "Give the output of `zoo-compute node verdicts --json`."
        raise ConfigError(
            "verdicts-malformed", f"{path} has malformed verdicts: {error!r:.200}", remedy=remedy
        ) from error


def _signed(chain: "DisputeChain", dispute_id: str, given: "list[dict[str, Any]]") -> dict[bool, dict[str, str]]:
    """Return the current committee's signatures by outcome and referee."""
    number, members = _dispute(chain, dispute_id).draw, set(chain.committee(dispute_id))
    signed: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for verdict in given:
        if verdict.get("dispute_id", dispute_id) == dispute_id and verdict["draw"] == number:
            correct, signature = verdict["provider_correct"], verdict["signature"]
            signer = chain.signer(dispute_id, number, correct, verdict["reason"], signature)
            if signer in members:
                signed[correct][signer] = signature
    return signed


def _chain(client: "Client") -> "DisputeChain":
    from zoo_compute.chain.disputes import DisputeChain

    wallet, network = client.signing_wallet("this command"), client.network()
    return DisputeChain(network.rpc_url, network.contracts, wallet, network.start_block)


def _checked(named: str, what: str = "dispute") -> str:
    if re.fullmatch("0x[0-9a-fA-F]{64}", named):
        return named
    raise ConfigError(
        f"{what}-malformed",
        f"{named!r:.100} is not a {what} id",
        remedy="Give the id from `dispute open`: 0x and 64 hex digits.",
    )


def _dispute(chain: "DisputeChain", dispute_id: str) -> "Dispute":
    found = chain.dispute(dispute_id)
    if found.phase is found.phase.NONE:
        remedy = "Give the id from `dispute open`. GET /v1/disputes lists open disputes."
        raise ZooError("dispute-unknown", f"no dispute on chain has the id {dispute_id}", remedy=remedy)
    return found


def _facts(chain: "DisputeChain", dispute_id: str) -> dict[str, Any]:
    found, shown = _dispute(chain, dispute_id), chain.revealed_trace(dispute_id)
    members = chain.committee(dispute_id) if found.signed else []
    return {
        "dispute_id": dispute_id,
        "turn": found.phase.name.lower(),
        "reason": chain.inconclusive_reason(dispute_id) if found.phase is found.phase.UNDECIDED else None,
        "until": found.until,
        "step": found.step if found.phase > found.phase.STEP else None,
        "draw": found.draw if found.phase > found.phase.STEP else None,
        "signed": [members[seat] for seat in sorted(found.signed)],
        "states": [] if shown is None else shown.states,
    }

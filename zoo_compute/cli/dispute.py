"""``zoo-compute dispute``: reject a unit of work on chain, with a bond."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.amounts import format_zen
from zoo_compute.cli.output import JsonFlag, note, print_facts, print_json
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.errors import ConfigError

if TYPE_CHECKING:
    from zoo_compute.client import Client
    from zoo_compute.dispute_chain import DisputeChain

app = typer.Typer(help="Reject a unit of work on chain, with a bond.", no_args_is_help=True)

Unit = Annotated[str, typer.Argument(help="JOB:ROUND:SLOT, such as 0x12…:3:0.", metavar="ID")]
DisputeId = Annotated[str, typer.Argument(help="As `dispute open` gives it.", metavar="DISPUTE")]


@app.command(name="open")
def open_(
    unit_id: Unit,
    provider: Annotated[str | None, typer.Option(help="Whose attempt, where there were several.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Reject a settled unit: its provider has to show its trace, or loses. The bond is lost if the provider is right.

    Replay it first: zoo-compute verify unit ID.
    """
    from zoo_compute.challenge import find_challenge
    from zoo_compute.client import storage_errors
    from zoo_compute.gateway import GatewayClient
    from zoo_compute.settlement_events import ChainReader
    from zoo_compute.unit_check import Place

    place = Place.parse(unit_id)
    with open_client(api_url) as client:
        chain, network = _chain(client), client.network()
        reader = ChainReader(network.rpc_url, network.contracts)
        with storage_errors(), GatewayClient(network.gateways) as gateway:
            challenge = find_challenge(place, provider, reader, gateway)
    opened, tx = chain.open(challenge)
    shown = {"dispute_id": opened, "unit_id": challenge.unit_id, "provider": challenge.unit.provider, "tx": tx}
    if as_json:
        print_json({**shown, "bond_wei": str(chain.terms.bond)})
        return
    print_facts({**shown, "bond": f"{format_zen(chain.terms.bond)} ZEN"})
    note("once the trace is shown, name the first step whose end you reject: zoo-compute dispute name DISPUTE STEP")


@app.command()
def status(dispute_id: DisputeId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show where a dispute stands, and the states that were shown."""
    with open_client(api_url) as client:
        chain = _chain(client)
    facts = _facts(chain, _checked(dispute_id))
    if as_json:
        print_json(facts)
        return
    states = facts.pop("states")
    print_facts({**facts, **{f"state {boundary}": state for boundary, state in enumerate(states)}})


@app.command()
def name(
    dispute_id: DisputeId,
    step: Annotated[int, typer.Argument(min=0, help="From the boundary of that number to the next.", metavar="STEP")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Name the first step whose end you reject; 0 also where you reject the start. A committee then replays it."""
    with open_client(api_url) as client:
        tx = _chain(client).name_step(_checked(dispute_id), step)
    shown = {"dispute_id": dispute_id, "step": step, "tx": tx}
    if as_json:
        print_json(shown)
    else:
        print_facts(shown)


@app.command()
def end(dispute_id: DisputeId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """End a turn that was let pass, and take what disputes have credited to your wallet."""
    with open_client(api_url) as client:
        chain = _chain(client)
    found = chain.dispute(_checked(dispute_id))
    ended = None if found.turn.is_end else chain.expire(dispute_id)
    credited = chain.credits()
    withdrawn = chain.withdraw() if credited else None
    shown = {"dispute_id": dispute_id, "turn": chain.dispute(dispute_id).turn.name.lower(), "tx": ended}
    if as_json:
        print_json({**shown, "withdrawn_wei": str(credited), "withdrawal_tx": withdrawn})
    else:
        print_facts({**shown, "withdrawn": f"{format_zen(credited)} ZEN", "withdrawal": withdrawn})


def _chain(client: "Client") -> "DisputeChain":
    from zoo_compute.dispute_chain import DisputeChain

    if client.wallet is None:
        raise ConfigError("wallet-missing", "who rejects it?", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
    network = client.network()
    return DisputeChain(network.rpc_url, network.contracts, client.wallet)


def _checked(dispute_id: str) -> str:
    if re.fullmatch("0x[0-9a-fA-F]{64}", dispute_id):
        return dispute_id
    raise ConfigError("dispute-malformed", f"{dispute_id!r:.100} names no dispute", remedy="Give 0x and 64 hex digits.")


def _facts(chain: "DisputeChain", dispute_id: str) -> dict[str, Any]:
    found, shown = chain.dispute(dispute_id), chain.shown_trace(dispute_id)
    return {
        "dispute_id": dispute_id,
        "turn": found.turn.name.lower(),
        "until": found.until,
        "step": found.step if found.turn > found.turn.STEP else None,
        "states": [] if shown is None else shown.states,
    }

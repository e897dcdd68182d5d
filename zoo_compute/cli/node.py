"""``zoo-compute node``: provider and verifier nodes, their pay and disputes."""

import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ConfigError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import (
    JsonFlag,
    JsonOfSent,
    Yes,
    confirm,
    in_zen,
    log_to_stderr,
    print_facts,
    print_json,
    print_note,
    print_result,
    print_rows,
    print_table,
    zen_words,
)

if TYPE_CHECKING:
    from zoo_compute.base.models import OmissionClaim

app = typer.Typer(name="node", help="Run a provider or verifier node.", no_args_is_help=True)
_PROBE_BYTES = 8 << 30
StateDir = Annotated[Path, typer.Option(help="Use this node's state directory.")]
Recipient = Annotated[str | None, typer.Option(help="Pay to this address; default: your wallet.")]
Profile = Annotated[
    str | None, typer.Option(help="Set the execution profile: cpu-fp32 or cuda-bf16; default: by hardware.")
]


class Role(StrEnum):
    """Role of a node."""

    provider = "provider"
    verifier = "verifier"


@app.command()
def run(
    api_url: Annotated[str, typer.Option("--api-url", envvar="ZOO_API_URL", help="Use this market's base URL.")],
    state_dir: Annotated[Path, typer.Option(help="Keep data here that must survive a crash: states, pins.")],
    role: Annotated[Role, typer.Option(help="Choose: a provider trains, a verifier replays.")] = Role.provider,
    name: Annotated[str, typer.Option(help="Set the public name.")] = "node",
    region: Annotated[str, typer.Option(help="Declare the region, such as eu-west.")] = "local",
    site: Annotated[str | None, typer.Option(help="Declare the building; jobs spread over several.")] = None,
    asn: Annotated[int | None, typer.Option(min=1, help="Declare the network's autonomous system number.")] = None,
    owner: Annotated[str | None, typer.Option(help="Declare the owner; the same for all your nodes.")] = None,
    tier: Annotated[str, typer.Option(help="Offer this tier.")] = "bronze",
    min_price: Annotated[str, typer.Option(help="Set the lowest price, in ZEN per GPU-hour, net of the fee.")] = "0",
    profile: Profile = None,
    processes: Annotated[
        int | None, typer.Option(min=1, max=8, help="Train a unit on so many processes; default: one for each GPU.")
    ] = None,
    memory_gb: Annotated[int, typer.Option(min=1, help="Limit each training process, in GiB.")] = 8,
    keep_hours: Annotated[float, typer.Option(min=1, help="Keep states so many hours for disputes.")] = 48,
    payout_address: Recipient = None,
    claim_seconds: Annotated[float, typer.Option(min=1, help="Check for claimable pay every so many seconds.")] = 600,
    gateway: Annotated[
        list[str] | None, typer.Option(help="Add an IPFS gateway to the market's; may be repeated.")
    ] = None,
    referee: Annotated[
        bool, typer.Option("--referee/--no-referee", help="Let a verifier be a referee in disputes.")
    ] = True,
    link_mbps: Annotated[
        float | None, typer.Option(min=0.01, help="Limit each direction of the link, in Mbit/s; default: no limit.")
    ] = None,
    attest: Annotated[bool, typer.Option("--attest", help="Attest the TDX guest or the Gramine enclave.")] = False,
    pccs_url: Annotated[str | None, typer.Option(help="Get certificates for TEE quotes here; default: Intel.")] = None,
    yes: Yes = False,
) -> None:
    """Run a node with the wallet of ZOO_PRIVATE_KEY or ZOO_KEYSTORE until it is stopped.

    It registers, passes the benchmark, adds missing stake, places its ask and works. It needs outbound HTTP only.
    On a terminal it shows the missing stake and asks first.
    """
    from zoo_compute.base.amounts import parse_zen
    from zoo_compute.chain.wallet import checked_address
    from zoo_compute.node.config import NodeConfig
    from zoo_compute.node.process import run_node

    log_to_stderr()
    config = NodeConfig(
        api_url=api_url,
        role=role.value,
        state_dir=state_dir,
        name=name,
        region=region,
        tier=tier,
        min_price_wei=parse_zen(min_price, "min-price"),
        profile=profile,
        processes=processes,
        memory_gb=memory_gb,
        keep_hours=keep_hours,
        payout_address=None if payout_address is None else checked_address(payout_address),
        claim_seconds=claim_seconds,
        site=site,
        asn=asn,
        owner=owner,
        gateways=tuple(gateway or ()),
        referee=referee,
        link_mbps=link_mbps,
        attest=attest,
        pccs_url=pccs_url,
    )
    if not yes and sys.stdin.isatty():
        _confirm_stake(api_url, role, tier)
    run_node(config)


def _confirm_stake(api_url: str, role: Role, tier: str) -> None:
    with open_client(api_url) as client:
        network = client.network()
        if role is Role.provider and tier not in network.tiers:
            return  # the node refuses it
        account = client.chain("a node").stake_account()
    minimum = network.verifier_minimum_stake_wei
    if role is Role.provider:
        minimum = network.tiers[tier].minimum_stake_wei
    if account.stake < minimum:
        until = datetime.fromtimestamp(account.next_release_at, UTC)
        plan = {
            "stake to add": f"{format_zen(minimum - account.stake)} ZEN, once the benchmark is passed",
            "withdrawal": f"{until:%Y-%m-%d} if you unstake today; until then it can be slashed",
        }
        confirm(plan, "Run the node with this stake?", yes=False)


@app.command()
def environment(profile: Profile = None, as_json: JsonFlag = False) -> None:
    """Show this machine's environment class, without a market."""
    from zoo_compute.node.execution import hardware
    from zoo_compute.node.execution.executor import Executor, executor_errors

    chosen = hardware.profile(profile)
    with (
        tempfile.TemporaryDirectory(prefix="zoo-environment-") as directory,
        Executor(chosen, _PROBE_BYTES, Path(directory)) as executor,
        executor_errors(),
    ):
        shown = {"profile": chosen.name, "environment_class": executor.environment_class}
    print_result(shown, as_json=as_json)


@app.command()
def status(
    api_url: ApiUrl = None,
    address: Annotated[str | None, typer.Option(help="Show this node; default: your wallet's.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a node's status at the market."""
    from zoo_compute.chain.wallet import checked_address

    with open_client(api_url) as client:
        shown = checked_address(address) if address else client.signing_wallet("a call without --address").address
        found = client.connection.get(f"/v1/providers/{shown}")
    if as_json:
        print_json(found)
    else:
        names = ("address", "kind", "name", "status", "reason", "tier", "stake_wei", "reliability_bps")
        facts = in_zen({name: found[name] for name in (*names, "environment_class", "last_seen_at")})
        codes = ", ".join(problem["code"] for problem in found["problems"])
        print_facts(facts | {"processes": found["hardware"].get("processes"), "problems": codes or "none"})
        for problem in found["problems"]:
            print_note(f"{problem['detail']} {problem['remedy']}")


@app.command()
def earnings(
    api_url: ApiUrl = None,
    claimed: Annotated[bool, typer.Option("--claimed", help="Show claimed pay instead.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show your wallet's claimable pay from settled batches."""
    with open_client(api_url) as client:
        found = client.claims(claimed=claimed)
        omission_claims = [] if as_json else client.omission_claims()
    if as_json:
        print_json([claim.model_dump(mode="json", exclude={"proof"}) for claim in found])
        return
    rows = [
        (one.batch_id, " ".join(one.job_ids), zen_words(one.amount_wei), one.claimable_at, one.claim_tx)
        for one in found
    ]
    print_table(("batch", "jobs", "amount", "claimable at", "transaction"), rows)
    if omission_claims:
        print_note("omission claims:")
        _print_omission_claims(omission_claims)


@app.command()
def commit(
    days: Annotated[int, typer.Option(min=1, max=365, help="Commit for so many days from now.")],
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Commit on chain to your tier's uptime. This is final: each day below it costs a penalty."""
    with open_client(api_url) as client:
        chain = client.chain("committing")
        until = chain.time() + days * 86_400
        plan = {
            "committed until": f"{datetime.fromtimestamp(until, UTC):%Y-%m-%d %H:%M} UTC",
            "stake": f"{format_zen(chain.stake_account().stake)} ZEN, locked until then",
        }
        confirm(plan, "Commit? It cannot be taken back.", yes=yes or as_json)
        tx = chain.commit(until)
    print_result({"committed_until": datetime.fromtimestamp(until, UTC).isoformat(), "tx": tx}, as_json=as_json)


@app.command()
def rewards(
    api_url: ApiUrl = None,
    claim: Annotated[bool, typer.Option("--claim", help="Claim all claimable rewards now.")] = False,
    to: Recipient = None,
    as_json: JsonFlag = False,
) -> None:
    """Show rewards for uptime, bandwidth and verification. A running node claims them itself."""
    from zoo_compute.chain.wallet import checked_address

    if to is not None and not claim:
        raise ConfigError("nothing-to-send", "--to needs --claim", remedy="Add --claim.")
    payee = None if to is None else checked_address(to)
    with open_client(api_url) as client:
        taken, tx = client.claim_rewards(payee) if claim else (None, None)
        found = client.rewards()
    if as_json:
        shown = found.model_dump(mode="json", exclude={"next_after"})
        claimed_now = {"amount_wei": str(taken.amount_wei), "tx": tx} if taken else None
        print_json({**shown, "claimed_now": claimed_now})
        return
    facts: dict[str, object] = {"claimed": f"{format_zen(found.claimed_wei)} ZEN"}
    if taken:
        facts |= {"claimed now": f"{format_zen(taken.amount_wei)} ZEN", "transaction": tx}
    elif found.claimable:
        facts["claimable"] = f"{format_zen(found.claimable.amount_wei)} ZEN"
    elif claim:
        print_note("nothing is claimable now")
    if found.pending:
        facts["pending"] = f"{format_zen(found.pending.amount_wei)} ZEN, from {found.pending.claimable_at}"
    print_facts(facts)
    rows = [
        [
            f"{_date_of(earned.first_epoch)} to {_date_of(earned.last_epoch)}",
            *(f"{format_zen(wei)} ZEN" for wei in (earned.base_wei, earned.bandwidth_wei, earned.verifier_wei)),
        ]
        for earned in found.earnings
    ]
    print_table(("days (UTC)", "uptime", "bandwidth", "replays"), rows)


def _date_of(epoch: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=epoch)).isoformat()


@app.command()
def omissions(
    state_dir: StateDir,
    api_url: ApiUrl = None,
    prove: Annotated[bool, typer.Option("--prove", help="Claim omitted commitments and compensations now.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show inclusion of your acknowledged commitments on chain, and your omission claims.

    A running node claims by itself.
    """
    from zoo_compute.chain.omissions import OmissionChain
    from zoo_compute.node.disk.files import ACKNOWLEDGEMENTS, TRACES
    from zoo_compute.node.disk.traces import Traces
    from zoo_compute.node.disputes.omissions import Omissions
    from zoo_compute.node.work.acknowledgements import Journal

    _require_directory(state_dir)
    with open_client(api_url) as client:
        wallet, network = client.signing_wallet("this command"), client.network()
        watched = Omissions(
            Journal(state_dir / ACKNOWLEDGEMENTS),
            Traces(state_dir / TRACES),
            client.connection,
            lambda: OmissionChain(network.rpc_url, network.contracts, wallet),
        )
        found = [(finding, watched.act(finding, at_once=True) if prove else None) for finding in watched.look()]
        bond = watched.chain.bond()
        claims = client.omission_claims()
    if as_json:
        kept = [finding.as_json() | {"tx": tx} for finding, tx in found]
        listed = [claim.model_dump(mode="json") for claim in claims]
        print_json({"bond_wei": str(bond), "acknowledgements": kept, "claims": listed})
        return
    print_facts({"operator's bond": f"{format_zen(bond)} ZEN"})
    rows = [
        [one.acknowledgement.unit_id, one.acknowledgement.unit.round, one.acknowledgement.unit.slot, one.status, tx]
        for one, tx in found
    ]
    print_table(("commitment", "round", "slot", "status", "transaction"), rows)
    if claims:
        _print_omission_claims(claims)


def _require_directory(state_dir: Path) -> None:
    if not state_dir.is_dir():
        detail = f"--state-dir is {state_dir}; expected a directory"
        raise ConfigError("state-dir-missing", detail, remedy="Give your node's --state-dir.")


def _print_omission_claims(claims: "Sequence[OmissionClaim]") -> None:
    rows = [
        [
            claim.unit_id,
            claim.status,
            claim.deadline,
            None if claim.compensation_wei is None else f"{format_zen(claim.compensation_wei)} ZEN",
            claim.tx,
        ]
        for claim in claims
    ]
    print_table(("commitment", "claim", "answer until", "compensation", "transaction"), rows)


@app.command()
def disputes(
    state_dir: StateDir,
    api_url: ApiUrl = None,
    answer: Annotated[bool, typer.Option("--answer", help="Send each due answer now.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show your units' disputes: next step, response deadline, can your node answer.

    A running node answers by itself, which costs native tokens.
    """
    from zoo_compute.chain.disputes import DisputeChain
    from zoo_compute.node.disk.files import DISPUTES, TRACES
    from zoo_compute.node.disk.traces import Traces
    from zoo_compute.node.disputes.defence import Disputes, describe

    _require_directory(state_dir)
    log_to_stderr("WARNING")
    with open_client(api_url) as client:
        wallet, network = client.signing_wallet("this command"), client.network()
    chain = DisputeChain(network.rpc_url, network.contracts, wallet, network.start_block)
    watched = Disputes(state_dir / DISPUTES, Traces(state_dir / TRACES), lambda: chain)
    if answer:
        watched.watch()
    found = watched.look()
    balance, needed = chain.native_balance()
    if as_json:
        amounts = {"coin_wei": str(balance), "answer_costs_wei": str(needed)}
        print_json({**amounts, "disputes": [finding.as_json() for finding in found]})
        return
    enough = "enough" if balance >= needed else "too little"
    print_facts({"native tokens": f"{format_zen(balance)}, {enough} to answer, which costs up to {format_zen(needed)}"})
    rows = [[finding.opened.dispute_id, finding.opened.unit_id, describe(finding)] for finding in found]
    print_table(("dispute", "unit", "state"), rows)


@app.command()
def verdicts(state_dir: StateDir, as_json: JsonFlag = False) -> None:
    """Show the verdicts that your verifier signed; with --json, for `dispute submit --file`."""
    from dataclasses import asdict

    from zoo_compute.node.disk.files import VERDICTS
    from zoo_compute.node.disputes.referee import Verdicts

    _require_directory(state_dir)
    found = Verdicts(state_dir / VERDICTS).all()
    sides = {True: "provider", False: "challenger"}
    rows = (
        (one.dispute_id, one.draw, sides[one.provider_correct], one.reason, "yes" if one.delivered else "no")
        for one in found
    )
    columns = ("dispute", "committee", "in favour of", "reason", "delivered")
    print_rows([asdict(verdict) for verdict in found], columns, rows, as_json=as_json)


@app.command()
def claim(api_url: ApiUrl = None, to: Recipient = None, as_json: JsonFlag = False) -> None:
    """Claim all claimable pay of your wallet in one transaction."""
    from zoo_compute.chain.wallet import checked_address

    with open_client(api_url) as client:
        taken, tx = client.claim_earnings(None if to is None else checked_address(to))
    total = sum(item.amount_wei for item in taken)
    if as_json:
        print_json({"batches": [item.batch_id for item in taken], "amount_wei": str(total), "tx": tx})
    elif tx is None:
        print_note("nothing is claimable now")
    else:
        print_facts({"batches": len(taken), "amount": f"{format_zen(total)} ZEN", "transaction": tx})

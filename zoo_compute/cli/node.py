"""``zoo-compute node``: earn ZEN with your hardware."""

import tempfile
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ConfigError, ZooError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, in_zen, log_to_stderr, note, print_facts, print_json, print_table

if TYPE_CHECKING:
    from zoo_compute.base.models import OmissionClaim

app = typer.Typer(help="Run a provider or verifier node.", no_args_is_help=True)
_PROBE_BYTES = 8 << 30


class Role(StrEnum):
    """What a node does."""

    provider = "provider"
    verifier = "verifier"


@app.command()
def run(
    api_url: Annotated[str, typer.Option("--api-url", envvar="ZOO_API_URL", help="Base URL of the market.")],
    state_dir: Annotated[Path, typer.Option(help="What must survive a crash: states under challenge, pins.")],
    role: Annotated[Role, typer.Option(help="provider trains, verifier replays.")] = Role.provider,
    name: Annotated[str, typer.Option(help="Shown to others.")] = "node",
    region: Annotated[str, typer.Option(help="Where it stands, such as eu-west.")] = "local",
    site: Annotated[str | None, typer.Option(help="The building it stands in; jobs are spread over several.")] = None,
    asn: Annotated[int | None, typer.Option(min=1, help="Its network's autonomous system number.")] = None,
    owner: Annotated[str | None, typer.Option(help="Who owns it; the same for all your nodes.")] = None,
    tier: Annotated[str, typer.Option(help="The tier to offer.")] = "bronze",
    min_price: Annotated[str, typer.Option(help="Least price in ZEN per GPU-hour, net of the fee.")] = "0",
    profile: Annotated[str | None, typer.Option(help="Execution profile: cpu-avx2-1 or cuda-1.")] = None,
    memory_gb: Annotated[int, typer.Option(min=1, help="Bound on the training process.")] = 8,
    keep_hours: Annotated[float, typer.Option(min=1, help="How long states are kept for challenges.")] = 48,
    payout_address: Annotated[str | None, typer.Option(help="Where your pay goes; default: your wallet.")] = None,
    claim_seconds: Annotated[float, typer.Option(min=1, help="How often it looks for pay to claim.")] = 600,
    gateway: Annotated[
        list[str] | None, typer.Option(help="IPFS gateway asked besides the market's; may be repeated.")
    ] = None,
    referee: Annotated[
        bool, typer.Option("--referee/--no-referee", help="Whether a verifier judges disputes that it is drawn for.")
    ] = True,
    link_mbps: Annotated[
        float | None, typer.Option(min=0.01, help="Most that it uploads, and downloads, in Mbit/s; default: no limit.")
    ] = None,
    attest: Annotated[
        bool, typer.Option("--attest", help="It runs inside a TDX guest or under Gramine: have that attested.")
    ] = False,
    pccs_url: Annotated[
        str | None, typer.Option(help="Where certificates for quotes come from; default: Intel.")
    ] = None,
) -> None:
    """Run a node with the wallet of ZOO_PRIVATE_KEY or ZOO_KEYSTORE until it is stopped.

    It registers, passes the benchmark, stakes what is missing, offers itself and works. It needs outbound HTTP only.
    """
    from zoo_compute.base.amounts import parse_zen
    from zoo_compute.chain.wallet import checked_address
    from zoo_compute.node.config import NodeConfig
    from zoo_compute.node.serving import serve

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
    serve(config)


@app.command()
def environment(
    profile: Annotated[str | None, typer.Option(help="Execution profile: cpu-avx2-1 or cuda-1.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the environment class of this machine, as a node here would register it. It asks no market."""
    from zoo_compute.node.execution import hardware
    from zoo_compute.node.execution.executor import Executor, ExecutorError

    chosen = hardware.profile(profile)
    with (
        tempfile.TemporaryDirectory(prefix="zoo-environment-") as directory,
        Executor(chosen, _PROBE_BYTES, Path(directory)) as executor,
    ):
        try:
            shown = {"profile": chosen.name, "environment_class": executor.environment_class}
        except ExecutorError as error:
            raise ZooError(f"executor-{error.code.replace('_', '-')}", str(error)) from error
    if as_json:
        print_json(shown)
    else:
        print_facts(shown)


@app.command()
def status(
    api_url: ApiUrl = None,
    address: Annotated[str | None, typer.Option(help="Another node's address; default: your wallet's.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how the market sees a node."""
    from zoo_compute.chain.wallet import checked_address

    with open_client(api_url) as client:
        if address is None and client.wallet is None:
            raise ConfigError("wallet-missing", "whose node?", remedy="Give --address, or set ZOO_PRIVATE_KEY.")
        shown = checked_address(address) if address else client.wallet.address  # type: ignore[union-attr]
        found = client.connection.get(f"/v1/providers/{shown}")
    if as_json:
        print_json(found)
    else:
        names = (
            "address",
            "kind",
            "name",
            "status",
            "reason",
            "tier",
            "stake_wei",
            "reliability_bps",
            "environment_class",
            "last_seen_at",
        )
        print_facts(in_zen({name: found[name] for name in names}))


@app.command()
def earnings(
    api_url: ApiUrl = None,
    claimed: Annotated[bool, typer.Option("--claimed", help="What you took already.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what your wallet earned in settled batches and can claim."""
    with open_client(api_url) as client:
        found = client.claims(claimed=claimed)
        claimed_omissions = [] if as_json else client.omission_claims()
    if as_json:
        print_json([claim.model_dump(mode="json", exclude={"proof"}) for claim in found])
    else:
        rows = [
            [
                claim.batch_id,
                " ".join(claim.job_ids),
                f"{format_zen(claim.amount_wei)} ZEN",
                claim.claimable_at,
                claim.claim_tx,
            ]
            for claim in found
        ]
        print_table(("batch", "jobs", "amount", "claimable at", "transaction"), rows)
        if claimed_omissions:
            note("claims for commitments that the market left out:")
            _print_omission_claims(claimed_omissions)


@app.command()
def commit(
    days: Annotated[int, typer.Option(min=1, max=365, help="For how long, from now on.")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Promise on chain to keep your tier's uptime. It cannot be taken back; a day below it costs a penalty."""
    from zoo_compute.chain.transactions import Chain

    with open_client(api_url) as client:
        if client.wallet is None:
            raise ConfigError("wallet-missing", "who promises?", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
        network = client.network()
        chain = Chain(network.rpc_url, network.contracts, client.wallet)
        until = chain.time() + days * 86_400
        tx = chain.commit(until)
    shown = {"committed_until": datetime.fromtimestamp(until, UTC).isoformat(), "tx": tx}
    if as_json:
        print_json(shown)
    else:
        print_facts(shown)


@app.command()
def rewards(
    api_url: ApiUrl = None,
    claim: Annotated[bool, typer.Option("--claim", help="Take what can be taken now.")] = False,
    to: Annotated[str | None, typer.Option(help="Who receives it; default: your wallet.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what your wallet earned for uptime, bandwidth and verification. A running node claims by itself."""
    from zoo_compute.chain.wallet import checked_address

    if to is not None and not claim:
        raise ConfigError("nothing-to-send", "--to says where a claim goes", remedy="Give --claim with it.")
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
        note("nothing can be claimed now")
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
    """The day of an epoch, which is its number since 1970."""
    return (date(1970, 1, 1) + timedelta(days=epoch)).isoformat()


@app.command()
def omissions(
    state_dir: Annotated[Path, typer.Option(help="The node's state directory.")],
    api_url: ApiUrl = None,
    prove: Annotated[bool, typer.Option("--prove", help="Claim now what was left out, and take what is due.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show whether your acknowledged commitments are on chain, and your claims for those that were left out.

    A running node does all of this by itself. Each commitment is checked against the root on the chain.
    """
    from zoo_compute.chain.omissions import OmissionChain
    from zoo_compute.node.disk.state_directory import acknowledgements_in
    from zoo_compute.node.disputes.omissions import Omissions
    from zoo_compute.node.work.acknowledgements import Journal

    if not state_dir.is_dir():
        raise ConfigError("state-dir-missing", f"{state_dir} is no directory", remedy="Give your node's --state-dir.")
    with open_client(api_url) as client:
        wallet = client.wallet
        if wallet is None:
            raise ConfigError("wallet-missing", "whose node?", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
        network = client.network()
        watched = Omissions(
            Journal(acknowledgements_in(state_dir)),
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
        [finding.promise.unit_id, finding.promise.unit.round, finding.promise.unit.slot, finding.status, tx]
        for finding, tx in found
    ]
    print_table(("commitment", "round", "slot", "status", "transaction"), rows)
    if claims:
        _print_omission_claims(claims)


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
    state_dir: Annotated[Path, typer.Option(help="The node's state directory.")],
    api_url: ApiUrl = None,
    answer: Annotated[bool, typer.Option("--answer", help="Do now what is due in each.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the disputes of your units: what is awaited until when, and whether your node can answer.

    A running node answers by itself, which takes some of the chain's coin.
    """
    from zoo_compute.chain.disputes import DisputeChain
    from zoo_compute.node.disk.state_directory import disputes_in, traces_in
    from zoo_compute.node.disk.traces import Traces
    from zoo_compute.node.disputes.defence import Disputes, describe

    if not state_dir.is_dir():
        raise ConfigError("state-dir-missing", f"{state_dir} is no directory", remedy="Give your node's --state-dir.")
    log_to_stderr("WARNING")
    with open_client(api_url) as client:
        wallet = client.wallet
        if wallet is None:
            raise ConfigError("wallet-missing", "whose node?", remedy="Set ZOO_PRIVATE_KEY or ZOO_KEYSTORE.")
        network = client.network()
    chain = DisputeChain(network.rpc_url, network.contracts, wallet, network.start_block)
    watched = Disputes(disputes_in(state_dir), Traces(traces_in(state_dir)), lambda: chain)
    if answer:
        watched.watch()
    found = watched.look()
    coin, needed = chain.coin()
    if as_json:
        coins = {"coin_wei": str(coin), "answer_costs_wei": str(needed)}
        print_json({**coins, "disputes": [finding.as_json() for finding in found]})
        return
    enough = "enough" if coin >= needed else "too little"
    print_facts({"the chain's coin": f"{format_zen(coin)}, {enough} to answer, which takes up to {format_zen(needed)}"})
    rows = [[finding.opened.dispute_id, finding.opened.unit_id, describe(finding)] for finding in found]
    print_table(("dispute", "unit", "where it stands"), rows)


@app.command()
def verdicts(
    state_dir: Annotated[Path, typer.Option(help="The node's state directory.")], as_json: JsonFlag = False
) -> None:
    """Show what your verifier has signed as a referee of disputes; with --json, for `dispute submit --file`."""
    from dataclasses import asdict

    from zoo_compute.node.disk.state_directory import verdicts_in
    from zoo_compute.node.disputes.referee import Verdicts

    if not state_dir.is_dir():
        raise ConfigError("state-dir-missing", f"{state_dir} is no directory", remedy="Give your node's --state-dir.")
    found = Verdicts(verdicts_in(state_dir)).all()
    if as_json:
        print_json([asdict(verdict) for verdict in found])
        return
    rows = [
        [
            verdict.dispute_id,
            verdict.draw,
            "provider" if verdict.provider_correct else "challenger",
            verdict.reason,
            "yes" if verdict.delivered else "no",
        ]
        for verdict in found
    ]
    print_table(("dispute", "committee", "for the", "because", "delivered"), rows)


@app.command()
def claim(
    api_url: ApiUrl = None,
    to: Annotated[str | None, typer.Option(help="Who receives it; default: your wallet.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Take all that your wallet can claim now, in one transaction of your own."""
    from zoo_compute.chain.wallet import checked_address

    with open_client(api_url) as client:
        taken, tx = client.claim_earnings(None if to is None else checked_address(to))
    total = sum(item.amount_wei for item in taken)
    if as_json:
        print_json({"batches": [item.batch_id for item in taken], "amount_wei": str(total), "tx": tx})
    elif tx is None:
        note("nothing can be claimed now")
    else:
        print_facts({"batches": len(taken), "amount": f"{format_zen(total)} ZEN", "transaction": tx})

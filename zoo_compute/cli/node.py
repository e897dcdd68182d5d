"""``zoo-compute node``: earn ZEN with your hardware."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zoo_compute.amounts import format_zen
from zoo_compute.cli.output import JsonFlag, log_to_stderr, note, print_facts, print_json, print_table
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.errors import ConfigError

app = typer.Typer(help="Run a provider or verifier node.", no_args_is_help=True)


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
    tier: Annotated[str, typer.Option(help="The tier to offer.")] = "bronze",
    min_price: Annotated[str, typer.Option(help="Least price in ZEN per GPU-hour, net of the fee.")] = "0",
    profile: Annotated[str | None, typer.Option(help="Execution profile: cpu-avx2-1 or cuda-1.")] = None,
    memory_gb: Annotated[int, typer.Option(min=1, help="Bound on the training process.")] = 8,
    keep_hours: Annotated[float, typer.Option(min=1, help="How long states are kept for challenges.")] = 48,
    payout_address: Annotated[str | None, typer.Option(help="Where your pay goes; default: your wallet.")] = None,
    claim_seconds: Annotated[float, typer.Option(min=1, help="How often it looks for pay to claim.")] = 600,
) -> None:
    """Run a node with the wallet of ZOO_PRIVATE_KEY or ZOO_KEYSTORE until it is stopped.

    It registers, passes the benchmark, stakes what is missing, offers itself and works. It needs outbound HTTP only.
    """
    from zoo_compute.amounts import parse_zen
    from zoo_compute.node.agent import serve
    from zoo_compute.node.config import NodeConfig

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
        payout_address=payout_address,
        claim_seconds=claim_seconds,
    )
    serve(config)


@app.command()
def status(
    api_url: ApiUrl = None,
    address: Annotated[str | None, typer.Option(help="Another node's address; default: your wallet's.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show how the market sees a node."""
    with open_client(api_url) as client:
        if address is None and client.wallet is None:
            raise ConfigError("wallet-missing", "whose node?", remedy="Give --address, or set ZOO_PRIVATE_KEY.")
        shown = address or client.wallet.address  # type: ignore[union-attr]
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
            "environment_class",
            "last_seen_at",
        )
        print_facts({name: found[name] for name in names})


@app.command()
def earnings(
    api_url: ApiUrl = None,
    claimed: Annotated[bool, typer.Option("--claimed", help="What you took already.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what your wallet earned in settled batches and can claim."""
    with open_client(api_url) as client:
        found = client.claims(claimed=claimed)
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


@app.command()
def claim(
    api_url: ApiUrl = None,
    to: Annotated[str | None, typer.Option(help="Who receives it; default: your wallet.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Take all that your wallet can claim now, in one transaction of your own."""
    with open_client(api_url) as client:
        taken, tx = client.claim_earnings(to)
    total = sum(item.amount_wei for item in taken)
    if as_json:
        print_json({"batches": [item.batch_id for item in taken], "amount_wei": str(total), "tx": tx})
    elif tx is None:
        note("nothing can be claimed now")
    else:
        print_facts({"batches": len(taken), "amount": f"{format_zen(total)} ZEN", "transaction": tx})

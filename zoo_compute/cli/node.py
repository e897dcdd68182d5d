"""``zoo-compute node``: earn ZEN with your hardware."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zoo_compute.cli.output import JsonFlag, log_to_stderr, print_facts, print_json
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

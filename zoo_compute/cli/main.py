"""``zoo-compute``: all commands, and the exit code of each error."""

import errno
import io
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ExitCode, Unreachable, ZooError
from zoo_compute.cli import (
    auction,
    auth,
    balance,
    devnet,
    dispute,
    job,
    node,
    organisation,
    provider,
    verify,
    webhook,
)
from zoo_compute.cli.content import dataset, model
from zoo_compute.cli.governance import admin, guardian, treasury
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_facts, print_json, print_note, report

app = typer.Typer(
    help="Zoo Compute: order model training, or train models for pay. Only verified work is paid.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by the market, 4 no answer, 5 job without a model, "
    "6 mismatch with a hash or the chain, 7 devnet error, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
of_market = (job, dataset, model, balance, node, provider, verify, dispute, auction)
for group in (*of_market, devnet, auth, organisation, webhook, admin, treasury, guardian):
    app.add_typer(group.app)


@app.command()
def network(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show the network's parameters: chain, contracts, tiers and prices."""
    with open_client(api_url) as client:
        found = client.network()
        if as_json:
            print_json(client.connection.get("/v1/network"))
            return
    facts: dict[str, object] = {
        "network": found.name,
        "chain id": found.chain_id,
        "fee": f"{found.fee_bps / 100:g} % of pay",
    }
    facts |= {"rpc": found.rpc_url, "gateway": found.gateway_url} | dict(found.contracts)
    for name, tier in found.tiers.items():
        facts[f"tier {name}"] = f"{tier.gpus} GPUs, from {format_zen(tier.reserve_price_wei)} ZEN per GPU-hour"
    print_facts(facts)


class DemoJob(StrEnum):
    """Jobs of the demonstration."""

    TRAIN = "train"
    FINETUNE = "finetune"
    PROCESSES = "processes"


@app.command()
def demo(
    directory: Annotated[Path, typer.Option(help="Keep the devnet and the receipt here.")] = Path(".devnet"),
    job: Annotated[
        DemoJob, typer.Option(envvar="JOB", help="Train a model, also an adapter on it, or one on two processes.")
    ] = DemoJob.TRAIN,
    keep: Annotated[bool, typer.Option("--keep", envvar="KEEP", help="Leave the devnet running.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run a job from stake to receipt on a fresh devnet."""
    from zoo_compute.demo.finetune import run_finetune
    from zoo_compute.demo.processes import run_processes
    from zoo_compute.demo.run import run

    demos = {DemoJob.TRAIN: run, DemoJob.FINETUNE: run_finetune, DemoJob.PROCESSES: run_processes}
    demos[job](directory, keep=keep, as_json=as_json)


def main() -> None:
    """Run the command line and exit with a code of :class:`ExitCode`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not each encoding has the mark of rounded amounts
            stream.reconfigure(errors="replace")
    try:
        app()
    except ZooError as error:
        report(error, as_json="--json" in sys.argv)
        sys.exit(error.exit_code)
    except ValueError as error:
        if type(error).__module__ != "pydantic_core._pydantic_core":  # by name: --help does not load pydantic
            raise
        from zoo_compute.client.http import UNKNOWN_ANSWER

        detail = "the market's answer has an unknown form: " + str(error).splitlines()[0]
        report(Unreachable("answer-unknown", detail, remedy=UNKNOWN_ANSWER), as_json="--json" in sys.argv)
        sys.exit(ExitCode.UNREACHABLE)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            remedy = "Check the path, its permissions and the disk. The environment sets the paths of keys and logins."
            report(ZooError("system-refused", str(error), remedy=remedy), as_json="--json" in sys.argv)
            sys.exit(ExitCode.FAILED)
        print_note(f"error: standard output is not writable: {error.strerror}  [output-unwritable]")
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  buffered output would fail again at exit
        sys.exit(ExitCode.FAILED)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)

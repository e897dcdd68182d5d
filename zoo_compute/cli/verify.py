"""``zoo-compute verify``: replays and attestation checks on your own machine."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo_compute.base.errors import Mismatch, ZooError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, print_facts, print_json, print_note

if TYPE_CHECKING:
    from training_gym.runtime.profile import ExecutionProfile
    from zoo_compute.audit.unit_record import Place
    from zoo_compute.client.client import Client
    from zoo_compute.node.execution.executor import Progress
    from zoo_compute.replay.check import Attempt, AttemptTrace, Difference, UnitCheck

app = typer.Typer(name="verify", help="Check units and attestations on your own machine.", no_args_is_help=True)
_MEMORY_BYTES = 64 << 30
_NO_TRACE = (
    "without its leaves the first wrong step stays unknown. In a dispute the provider must reveal them on chain."
)
Profile = Annotated[
    str | None,
    typer.Option(help="Set the execution profile of the unit's node: cpu-fp32 or cuda-bf16; default: by hardware."),
]
Unit = Annotated[str, typer.Argument(help="JOB:ROUND:SLOT, such as 0x12…:3:0.", metavar="ID")]


@app.command()
def unit(
    unit_id: Unit,
    profile: Profile = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Replay a decided unit from public data, and compare it with the commitment on chain.

    If its replica state is not available, the replica's earlier units are replayed first.

    Exit code 6: the market paid for a mismatch or slashed for a match.
    """
    from zoo_compute.audit.unit_record import Place
    from zoo_compute.node.execution import hardware

    place, runs_as = Place.parse(unit_id), hardware.profile(profile)
    with open_client(api_url) as client:
        found = replay_unit(client, place.resolve(client), runs_as, as_json=as_json)
    report_unit(found, as_json=as_json)


def replay_unit(client: "Client", place: "Place", runs_as: "ExecutionProfile", *, as_json: bool) -> "UnitCheck":
    """Replay a decided unit on this machine.

    Raises:
        ZooError: it cannot be replayed here; :func:`zoo_compute.replay.check.check_unit` lists the codes.
    """
    from zoo_compute.audit.evidence import evidence_of
    from zoo_compute.audit.unit_record import market_record_reader
    from zoo_compute.node.execution.executor import Executor, executor_errors
    from zoo_compute.replay.check import check_unit

    with (
        tempfile.TemporaryDirectory(prefix="zoo-verify-") as directory,
        executor_errors(),
        evidence_of(client.network()) as (chain, gateway),
        Executor(runs_as, _MEMORY_BYTES, Path(directory)) as executor,
        _progress(as_json) as show,
    ):
        return check_unit(
            place,
            chain,
            gateway,
            Path(directory),
            executor.environment_class,
            lambda task: executor.run(task, on_progress=show),
            lambda leaf: _published_trace(client, leaf),
            market_record_reader(client.connection),
            print_note,
        )


@app.command("round")
def round_(
    round_id: Annotated[str, typer.Argument(help="JOB:ROUND, such as 0x12…:3.", metavar="ID")],
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Join a settled round's payloads again, and compare the checkpoint after it.

    Exit code 6: the checkpoint or its links differ. round-unsettled: no settlement has all of its units yet.
    """
    from zoo_compute.audit.unit_record import Place
    from zoo_compute.terminal.receipts import join_round, report_round

    place = Place.parse_round(round_id)
    with open_client(api_url) as client:
        job_id = place.resolve(client).job_id
        joined = join_round(client, job_id, place.round)
    report_round(job_id, place.round, joined, as_json=as_json)


@app.command()
def attestation(
    address: Annotated[str, typer.Argument(help="Wallet of the provider.")],
    api_url: ApiUrl = None,
    root_ca: Annotated[
        Path | None,
        typer.Option(help="Trust this root certificate (DER file); default: Intel's.", exists=True, dir_okay=False),
    ] = None,
    gpu_key: Annotated[
        list[str] | None,
        typer.Option(help="Trust this GPU key (hex SHA-256) instead of NVIDIA's; may be repeated."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the TEE quote of a provider's attestation from chain and IPFS.

    Exit code 6: the registry differs from the quote.
    """
    from zoo_compute.audit.attestation import check_attestation
    from zoo_compute.audit.evidence import evidence_of
    from zoo_compute.chain.wallet import checked_address
    from zoo_protocol.attestation.gpu_attestation import NVIDIA_KEYS

    provider = checked_address(address)
    with open_client(api_url) as client:
        network = client.network()
    root = root_ca.read_bytes() if root_ca else None
    with evidence_of(network) as (chain, gateway):
        found = check_attestation(provider, chain, gateway, root, gpu_key or NVIDIA_KEYS)
    if as_json:
        print_json(found.as_json())
        return
    print_facts(found.as_json())
    print_note("the registry agrees with the quote" if found.counts else "the quote is valid, but no longer accepted")


def _published_trace(client: "Client", leaf: str) -> "AttemptTrace | None":
    """Return the trace that the market publishes; its leaves are checked on chain."""
    from zoo_compute.replay.check import AttemptTrace

    try:
        answer = client.connection.get(f"/v1/commitments/{leaf}")
    except ZooError as error:  # a mismatch is reported without the market's trace too
        print_note(f"the market returned no trace of the unit ({error.code}: {error.detail}): {_NO_TRACE}")
        return None
    if answer["trace"] is None:
        print_note(f"the market has no trace of the unit: {_NO_TRACE}")
        return None
    return AttemptTrace(answer["trace"], {int(segment): cid for segment, cid in answer["states"].items()})


def report_unit(found: "UnitCheck", *, as_json: bool) -> None:
    """Print the results of a replay.

    Raises:
        Mismatch: the market's decision on an attempt contradicts the replay.
    """
    if as_json:
        print_json(asdict(found))
    else:
        print_facts({"environment class": found.environment_class})
        for attempt in found.attempts:
            print(describe_attempt(attempt))
        for left in found.unchecked:
            print(f"{left.provider}: not replayed: {left.reason}")
    wrong = [attempt.provider for attempt in found.attempts if attempt.misjudged]
    if not found.settled:
        print_note("the unit is not settled yet: only the market confirms its start files")
    if wrong:
        last = max(attempt.disputable_until for attempt in found.attempts if attempt.misjudged)
        end = datetime.fromtimestamp(last, UTC).isoformat()
        raise Mismatch(
            "unit-misjudged",
            f"the market's decision contradicts this replay for {', '.join(wrong)}",
            remedy=f"Dispute it by {end}, the end of its dispute period (zoo-compute dispute open), or report it to "
            "the market.",
        )
    print_note("the market's decision agrees with this replay")


def describe_attempt(attempt: "Attempt") -> str:
    """Return one line about an attempt: decision of the market, result of the replay."""
    decision = [attempt.status, attempt.reason, "forfeited after a dispute" if attempt.struck else None]
    decided = f"{attempt.provider} ({', '.join(filter(None, decision))})"
    if attempt.other_payload:
        return (
            f"{decided}: every step is as committed, but the payload differs from the signed one "
            "(the last STEP of `dispute name`)"
        )
    if attempt.difference is None:
        return f"{decided}: every step is as committed in window {attempt.window}, trace root {attempt.trace_root}"
    at = attempt.difference
    if at.diverges is not None:
        return f"{decided}: false, training diverges: {at.diverges} (steps from 0)"
    return f"{decided}: differs{_first_step(at)}{_first_tensor(at)}"


def _first_step(at: "Difference") -> str:
    if at.first_step is None or at.last_step is None:
        return "; the first wrong step is unknown without its leaves"
    if at.first_step == 0:
        return " from the start: another checkpoint or replica state (STEP 0 of `dispute name`)"
    number = at.last_step // (at.last_step - at.first_step + 1) - 1
    named = f"(STEP {number} of `dispute name`)"
    if at.first_step == at.last_step:
        return f" first in step {at.first_step} {named}"
    return f" first in one of the steps {at.first_step} to {at.last_step}, without a committed state between {named}"


def _first_tensor(at: "Difference") -> str:
    if at.where is None:
        return "; the first wrong tensor is unknown without its files"
    seen = "the payload, after the last step" if at.where == "payload" else f"the served {at.where}"
    if at.tensor is None:
        return f"; {seen}: no tensor differs"
    return f"; in {seen}, {at.tensor} differs in {at.entries:,} of {at.of:,} entries, by up to {at.largest:.3g}"


@contextmanager
def _progress(as_json: bool) -> "Iterator[Progress | None]":
    """Yield a callback that updates a progress bar on a terminal, or None."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        task = bars.add_task("replaying", total=None)
        yield lambda at: bars.update(task, completed=at["step"], total=at["steps"])

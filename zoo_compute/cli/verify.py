"""``zoo-compute verify``: check with your own machine what the market says."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zoo_compute.base.errors import Mismatch, ZooError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, note, print_facts, print_json

if TYPE_CHECKING:
    from zoo_compute.client.client import Client
    from zoo_compute.node.execution.executor import Progress
    from zoo_compute.replay.check import Attempt, Difference, Shown, UnitCheck

app = typer.Typer(help="Replay work with your own machine.", no_args_is_help=True)
_MEMORY_BYTES = 64 << 30
_TIMEOUT_SECONDS = 24 * 3600.0
_UNSHOWN = (
    "without its leaves it cannot be told in which step it differs first, only that it differs. "
    "In a dispute its provider has to show them on chain."
)
Unit = Annotated[str, typer.Argument(help="JOB:ROUND:SLOT, such as 0x12…:3:0.", metavar="ID")]


@app.command()
def unit(
    unit_id: Unit,
    profile: Annotated[
        str | None,
        typer.Option(help="Execution profile, as the unit's node had it: cpu-avx2-1 or cuda-1. Default: by hardware."),
    ] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Train a decided unit again, from public data alone, and compare with what was committed on chain.

    Where nobody has the slot state that it starts from, the slot's earlier units are replayed first.

    Ends with exit code 6 if the market paid for something else than its steps give, or punished what is right.
    """
    from zoo_compute.audit.evidence import evidence_errors
    from zoo_compute.audit.unit_record import Place, market_record_reader
    from zoo_compute.chain.settlements import ChainReader
    from zoo_compute.content.gateway import GatewayClient
    from zoo_compute.node.execution import hardware
    from zoo_compute.node.execution.executor import Executor, ExecutorError
    from zoo_compute.replay.check import check_unit

    place = Place.parse(unit_id)
    runs_as = hardware.profile(profile)
    with open_client(api_url) as client, tempfile.TemporaryDirectory(prefix="zoo-verify-") as directory:
        network = client.network()
        chain = ChainReader(network.rpc_url, network.contracts, network.start_block)
        try:
            with (
                evidence_errors(),
                GatewayClient(network.gateways) as gateway,
                Executor(runs_as, _MEMORY_BYTES, Path(directory)) as executor,
                _progress(as_json) as show,
            ):
                found = check_unit(
                    place,
                    chain,
                    gateway,
                    Path(directory),
                    executor.environment_class,
                    lambda task: executor.run(task, _TIMEOUT_SECONDS, show),
                    lambda leaf: _shown(client, leaf),
                    market_record_reader(client.connection),
                    note,
                )
        except ExecutorError as error:
            raise ZooError(f"executor-{error.code.replace('_', '-')}", str(error)) from error
    report_unit(found, as_json=as_json)


@app.command()
def attestation(
    address: Annotated[str, typer.Argument(help="The provider's wallet.")],
    api_url: ApiUrl = None,
    root_ca: Annotated[
        Path | None, typer.Option(help="DER file of another root of trust than Intel's.", exists=True, dir_okay=False)
    ] = None,
    gpu_key: Annotated[
        list[str] | None,
        typer.Option(help="SHA-256 (hex) of a key trusted for GPUs instead of NVIDIA's; may be repeated."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Check the quote by which a provider's key was attested, from the chain and IPFS alone.

    Ends with exit code 6 if the registry holds something else than the quote says.
    """
    from zoo_compute.audit.attestation import check_attestation
    from zoo_compute.audit.evidence import evidence_errors
    from zoo_compute.chain.settlements import ChainReader
    from zoo_compute.chain.wallet import checked_address
    from zoo_compute.content.gateway import GatewayClient
    from zoo_protocol.attestation.gpu_attestation import NVIDIA_KEYS

    provider = checked_address(address)
    with open_client(api_url) as client:
        network = client.network()
    chain = ChainReader(network.rpc_url, network.contracts, network.start_block)
    root = root_ca.read_bytes() if root_ca else None
    with evidence_errors(), GatewayClient(network.gateways) as gateway:
        found = check_attestation(provider, chain, gateway, root, gpu_key or NVIDIA_KEYS)
    if as_json:
        print_json(found.as_json())
        return
    print_facts(found.as_json())
    note("the registry holds what the quote says" if found.counts else "the quote holds, but it counts no longer")


def _shown(client: "Client", leaf: str) -> "Shown | None":
    """The trace as the market shows it to everybody; its leaves are checked against the chain."""
    from zoo_compute.replay.check import Shown

    try:
        answer = client.connection.get(f"/v1/commitments/{leaf}")
    except ZooError as error:  # that the unit is false must not go unsaid because the market does not answer
        note(f"the market shows no trace of the unit ({error.code}: {error.detail}): {_UNSHOWN}")
        return None
    if answer["trace"] is None:
        note(f"the market has no trace of the unit to show: {_UNSHOWN}")
        return None
    return Shown(answer["trace"], {int(segment): cid for segment, cid in answer["states"].items()})


def report_unit(found: "UnitCheck", *, as_json: bool) -> None:
    """Show what a replay found.

    Raises:
        Mismatch: the market decided otherwise about an attempt.
    """
    if as_json:
        print_json(found.to_dict())
    else:
        print_facts({"environment class": found.environment_class})
        for attempt in found.attempts:
            print(describe_attempt(attempt))
        for left in found.unchecked:
            print(f"{left.provider}: not replayed: {left.reason}")
    wrong = [attempt.provider for attempt in found.attempts if attempt.misjudged]
    if not found.settled:
        note("the unit is in no settlement yet: that it started from these files is the market's word alone")
    if wrong:
        last = max(attempt.disputable_until for attempt in found.attempts if attempt.misjudged)
        end = datetime.fromtimestamp(last, UTC).isoformat()
        raise Mismatch(
            "unit-misjudged",
            f"the market decided otherwise than this replay about {', '.join(wrong)}",
            remedy=f"Challenge it by {end}, when its dispute period ends (zoo-compute dispute open), or show this to "
            "the market.",
        )
    note("what the market decided is what this replay gives")


def describe_attempt(attempt: "Attempt") -> str:
    """What an attempt is worth, in words."""
    said = [attempt.status, attempt.reason, "struck after a dispute" if attempt.struck else None]
    decided = f"{attempt.provider} ({', '.join(filter(None, said))})"
    if attempt.other_payload:
        return (
            f"{decided}: every step is as committed, but the payload that was signed for is another than the last one "
            "gives (the last STEP of `dispute name`)"
        )
    if attempt.difference is None:
        return f"{decided}: every step is as committed in window {attempt.window}, trace root {attempt.trace_root}"
    at = attempt.difference
    if at.diverges is not None:
        return f"{decided}: false, for training diverges and leads to no state: {at.diverges} (steps from 0)"
    return f"{decided}: differs{_first_step(at)}{_first_tensor(at)}"


def _first_step(at: "Difference") -> str:
    if at.first_step is None or at.last_step is None:
        return "; in which step first is not known without its leaves"
    if at.first_step == 0:
        return " from the start: another checkpoint or slot state (STEP 0 of `dispute name`)"
    number = at.last_step // (at.last_step - at.first_step + 1) - 1
    named = f"(STEP {number} of `dispute name`)"
    if at.first_step == at.last_step:
        return f" first in step {at.first_step} {named}"
    return f" first in one of the steps {at.first_step} to {at.last_step}, between which no state is committed {named}"


def _first_tensor(at: "Difference") -> str:
    if at.where is None:
        return "; no file of it is at hand that shows in which tensor"
    seen = "the payload, after the last step" if at.where == "payload" else f"{at.where} that it served"
    if at.tensor is None:
        return f"; {seen}: no tensor differs"
    return f"; in {seen}, {at.tensor} differs in {at.entries:,} of {at.of:,} entries, by up to {at.largest:.3g}"


@contextmanager
def _progress(as_json: bool) -> "Iterator[Progress | None]":
    """What shows the steps: a bar on a terminal, nothing elsewhere."""
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True)) as bars:
        task = bars.add_task("replaying", total=None)
        yield lambda at: bars.update(task, completed=at["step"], total=at["steps"])

"""``zoo-compute job``: have a model trained, watch it, check what you paid for, and use it."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import JsonFlag, in_zen, note, print_facts, print_json, print_table

if TYPE_CHECKING:
    from zoo_compute.base.models import JobState
    from zoo_compute.client.jobspec import JobSpec

app = typer.Typer(help="Submit and follow training jobs.", no_args_is_help=True)
JobId = Annotated[str, typer.Argument(help="The job's id.", metavar="ID")]
JobFile = Annotated[Path, typer.Argument(help="The job: YAML or JSON.", metavar="FILE")]
Budget = Annotated[str | None, typer.Option("--budget", help="ZEN put in escrow at most, in place of the file's.")]
MaxPrice = Annotated[str | None, typer.Option("--max-price", help="Most ZEN per GPU-hour, in place of the file's.")]
Wait = Annotated[str | None, typer.Option("--wait", help="How long to wait for capacity: 30m, 2h.")]


@app.command()
def quote(
    file: JobFile,
    budget: Budget = None,
    max_price: MaxPrice = None,
    wait: Wait = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a job would cost. Commits to nothing."""
    from zoo_compute.base.amounts import format_zen

    with open_client(api_url) as client:
        found = client.quote(_spec(file, budget, max_price, wait))
    if as_json:
        print_json(found.model_dump(mode="json"))
        return
    last, seconds = found.cost_at_last_price_wei, found.expected_seconds
    by_size = ", ".join(f"{name} {value}" for name, value in found.settings_by_size.items())
    print_facts(
        {
            "set by the model's size": by_size or "nothing",
            "units of work": found.units,
            "training at reference speed": "unknown" if seconds is None else f"{timedelta(seconds=round(seconds))}",
            "over home links": _throughput(found.expected_throughput),
            "cost at the reserve price": f"{format_zen(found.cost_at_reserve_wei)} ZEN",
            "cost at the last price": "no trade yet" if last is None else f"{format_zen(last)} ZEN",
            "cost at most": f"{format_zen(found.cost_at_max_price_wei)} ZEN",
            "highest price it trades at": f"{format_zen(found.highest_payable_price_wei)} ZEN per GPU-hour",
            "network fee": f"{found.fee_bps / 100:g} % of payments, included",
            "one false segment is found with": f"{found.detection_probability:.1%} chance in a newcomer's unit, "
            f"{found.least_detection_probability:.1%} at least",
        }
    )
    for point in found.advice:
        note(f"{point['detail']} {point['remedy']}  [{point['code']}]")


def _throughput(expected: dict[str, Any] | None) -> str:
    if expected is None:
        return "unknown"
    return (
        f"{expected['share_of_ideal']:.0%} of the throughput in one place, {expected['round_seconds']:.3g} s a round "
        f"({expected['down_mbps']:g}/{expected['up_mbps']:g} Mb/s, an estimate)"
    )


@app.command()
def submit(
    file: JobFile,
    budget: Budget = None,
    max_price: MaxPrice = None,
    wait: Wait = None,
    follow: Annotated[bool, typer.Option("--watch", help="Stay and show its progress.")] = False,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Sign a job and put it into the market; its budget goes into escrow."""
    with open_client(api_url) as client:
        job = client.submit(_spec(file, budget, max_price, wait))
        if follow:
            note(f"submitted {job.id}")
            _watch(client, job.id, as_json)
        elif as_json:
            print_json(job.state().model_dump(mode="json"))
        else:
            print(job.id)


@app.command("list")
def list_jobs(api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """List your jobs, newest first."""
    with open_client(api_url) as client:
        found = list(client.jobs())
    if as_json:
        print_json([state.model_dump(mode="json") for state in found])
        return
    columns = ("id", "status", "reason", "tier", "round", "loss", "created")
    rows = [
        (
            state.id,
            state.status,
            state.reason,
            state.tier,
            f"{state.progress.round}/{state.rounds}",
            state.progress.validation_loss,
            f"{state.created_at:%Y-%m-%d %H:%M}",
        )
        for state in found
    ]
    print_table(columns, rows)


@app.command()
def show(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show one job."""
    with open_client(api_url) as client:
        _show(client.job(job_id).state(), as_json)


@app.command()
def why(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show why a job has not been matched, and what would help."""
    from zoo_compute.terminal.waiting import explain

    with open_client(api_url) as client:
        found = client.job(job_id).why()
    if as_json:
        print_json(found)
    else:
        explain(found)


@app.command()
def watch(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Follow a job until it is over; with --json one event a line."""
    with open_client(api_url) as client:
        _watch(client, job_id, as_json)


@app.command()
def cancel(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Stop a job: what was delivered is paid once it is checked, the rest is refunded."""
    with open_client(api_url) as client:
        _show(client.job(job_id).cancel(), as_json)


@app.command()
def amend(
    job_id: JobId,
    max_price: Annotated[str | None, typer.Option("--max-price", help="Most ZEN per GPU-hour from now on.")] = None,
    wait: Annotated[str | None, typer.Option("--wait", help="How much longer to wait, from now: 30m, 2h.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Change what a waiting job bids or how long it waits, within the order that you signed."""
    from zoo_compute.base.amounts import parse_zen
    from zoo_compute.client.jobspec import deadline, parse_duration

    price = None if max_price is None else parse_zen(max_price, "max_price")
    until = None if wait is None else deadline(parse_duration(wait, "wait"))
    with open_client(api_url) as client:
        _show(client.job(job_id).amend(max_price=price, wait_until=until), as_json)


@app.command()
def pause(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Give out no more work of a job; what is leased is finished and paid."""
    with open_client(api_url) as client:
        _show(client.job(job_id).pause(), as_json)


@app.command()
def resume(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Go on with a paused job."""
    with open_client(api_url) as client:
        _show(client.job(job_id).resume(), as_json)


@app.command()
def clone(
    job_id: JobId, budget: Budget = None, max_price: MaxPrice = None, api_url: ApiUrl = None, as_json: JsonFlag = False
) -> None:
    """Sign and submit the same job once more."""
    with open_client(api_url) as client:
        _show(client.job(job_id).clone(**_changes(budget, max_price)).state(), as_json)


@app.command()
def extend(
    job_id: JobId,
    budget: Budget = None,
    max_price: MaxPrice = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Further rounds; default: those it did not do.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Sign and submit a job that goes on from the last checkpoint of this one."""
    further = {} if rounds is None else {"rounds": rounds}
    with open_client(api_url) as client:
        _show(client.job(job_id).extend(**_changes(budget, max_price), **further).state(), as_json)


@app.command()
def metrics(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show how the training went, round by round."""
    with open_client(api_url) as client:
        rounds = client.job(job_id).metrics()
    if as_json:
        print_json(rounds)
        return
    columns = ["round", "validation_loss", "train_loss", "units_included", "units_excluded", "units_lost", "seconds"]
    print_table(columns, [[point[column] for column in columns] for point in rounds])


@app.command()
def efficiency(job_id: JobId, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show how efficiently it trained, against the same work in one place."""
    from zoo_compute.terminal.efficiency import print_efficiency

    with open_client(api_url) as client:
        found = client.job(job_id).efficiency()
    if as_json:
        print_json(found)
    else:
        print_efficiency(found)


@app.command()
def receipt(
    job_id: JobId,
    verify: Annotated[bool, typer.Option("--verify", help="Recompute it from chain and storage alone.")] = False,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a settled job's receipt; with --verify also everything in which it differs from chain and storage."""
    from zoo_compute.terminal.receipts import check_receipt, print_receipt

    with open_client(api_url) as client:
        found = client.job(job_id).receipt()
        if as_json:
            print_json(found)
        else:
            print_receipt(found)
        if verify:
            check_receipt(client, found)
            note("verified: chain and storage say the same")


@app.command()
def download(
    job_id: JobId,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("model.safetensors"),
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch the trained model, checked against its CID."""
    with open_client(api_url) as client:
        job = client.job(job_id)
        size = job.download(output)
        if as_json:
            print_json({"path": str(output), "size": size, "cid": job.state().final_model_cid})
        else:
            note(f"{output}: {size} bytes")


@app.command()
def sample(
    job_id: JobId,
    prompt: Annotated[str, typer.Option(help="What the model continues.")] = "The ",
    length: Annotated[int, typer.Option(min=1, max=100_000, help="Bytes to write.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.01, max=10, help="Lower is more predictable.")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal text.")] = 0,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Let the trained model write text."""
    with open_client(api_url) as client:
        text = client.job(job_id).sample(prompt, length, temperature=temperature, seed=seed)
    if as_json:
        print_json({"prompt": prompt, "text": text})
    else:
        print(prompt + text)


def _spec(file: Path, budget: str | None, max_price: str | None, wait: str | None) -> "JobSpec":
    from zoo_compute.client import jobspec

    given: dict[str, Any] = {"budget_max": budget, "max_price": max_price, "wait": wait}
    return jobspec.load(file, {name: value for name, value in given.items() if value is not None})


def _changes(budget: str | None, max_price: str | None) -> dict[str, Any]:
    from zoo_compute.base.amounts import parse_zen

    given = {"budget_max": budget, "max_price": max_price}
    return {name: parse_zen(amount, name) for name, amount in given.items() if amount is not None}


def _show(state: "JobState", as_json: bool) -> None:
    if as_json:
        print_json(state.model_dump(mode="json"))
        return
    facts = in_zen(state.model_dump(exclude={"progress", "spec", "unit_weight_us"}))
    print_facts(facts | {"rounds done": state.progress.round, "validation_loss": state.progress.validation_loss})


def _watch(client: Any, job_id: str, as_json: bool) -> None:
    from zoo_compute.base.errors import JobUnsuccessful
    from zoo_compute.terminal.watch import follow

    try:
        state = follow(client.job(job_id), as_json=as_json)
    except KeyboardInterrupt:
        note(f"the job goes on: zoo-compute job watch {job_id}, or end it: zoo-compute job cancel {job_id}")
        raise
    if not state.is_successful:
        reason = state.reason or state.status
        raise JobUnsuccessful(reason, f"job {state.id} ended as {state.status}: {reason}")
    note(f"settled; final validation loss {state.final_loss}, started from {state.initial_loss}")

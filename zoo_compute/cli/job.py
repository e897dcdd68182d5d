"""``zoo-compute job``: submit and follow jobs, verify receipts, use models."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zoo_compute.base.errors import ConfigError
from zoo_compute.cli.session import ApiUrl, open_client
from zoo_compute.terminal.output import (
    JsonFlag,
    JsonOfSent,
    Yes,
    confirm,
    in_zen,
    print_facts,
    print_json,
    print_note,
    print_records,
    print_result,
    print_rows,
    short_id,
    status_words,
)

if TYPE_CHECKING:
    from zoo_compute.base.models import JobState
    from zoo_compute.client.client import Client
    from zoo_compute.client.jobspec import JobSpec

app = typer.Typer(name="job", help="Submit and follow training jobs.", no_args_is_help=True)
JobId = Annotated[
    str | None,
    typer.Argument(help="Id of the job; of your own also its start, or the name; default: your newest.", metavar="ID"),
]
JobFile = Annotated[Path, typer.Argument(help="Job file: YAML or JSON.", metavar="FILE")]
Budget = Annotated[
    str | None, typer.Option("--budget", help="Limit the escrow, in ZEN; default: the file's, or the first job's.")
]
MaxPrice = Annotated[
    str | None, typer.Option("--max-price", help="Limit the price, in ZEN per GPU-hour; default: as for --budget.")
]
Nodes = Annotated[
    int | None, typer.Option("--nodes", min=1, help="Train on so many nodes, with the same settings; default: as many.")
]
Name = Annotated[
    str | None, typer.Option("--name", help="Name the job in lists; default: the file's, or the first job's.")
]
Organisation = Annotated[
    int | None,
    typer.Option(
        "--organisation",
        min=0,
        help="Submit for the organisation with this id of `org list`, 0: for your own account; default: the first "
        "job's, or your own account.",
    ),
]
Wait = Annotated[
    str | None,
    typer.Option("--wait", help="Wait so long for capacity: 30m, 2h; default: the file's time, or the first job's."),
]


@app.command()
def quote(
    file: JobFile,
    budget: Budget = None,
    max_price: MaxPrice = None,
    wait: Wait = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show settings and cost of a job without an order."""
    from zoo_compute.terminal.job_reports import print_quote

    with open_client(api_url) as client:
        found = client.quote(_spec(file, budget, max_price, wait))
    print_result(found, print_quote, as_json=as_json)


@app.command()
def submit(
    file: JobFile,
    budget: Budget = None,
    max_price: MaxPrice = None,
    wait: Wait = None,
    name: Name = None,
    organisation: Organisation = None,
    follow: Annotated[bool, typer.Option("--watch", help="Show its progress until it is over.")] = False,
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Show training and cost and ask; then sign and submit a job. Its budget goes into escrow."""
    from zoo_compute.terminal.job_reports import approval

    with open_client(api_url) as client:
        spec = _spec(file, budget, max_price, wait, name)
        job = client.submit(spec, approval(yes=yes or as_json), organisation=organisation)
        if follow:
            print_note(f"submitted {job.id}")
            _watch(client, job.id, as_json)
        elif as_json:
            print_json(job.state())
        else:
            print(job.id)


@app.command("list")
def list_jobs(
    organisation: Annotated[
        int | None,
        typer.Option("--organisation", min=0, help="List jobs of the organisation with this id of `org list`."),
    ] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """List your jobs, or an organisation's, newest first."""
    with open_client(api_url) as client:
        found = list(client.jobs(organisation=organisation))
    columns = ("id", "name", "status", "reason", "tier", "round", "loss", "created")
    rows = (
        (
            state.id if organisation else short_id(state.id),  # commands find other payers' jobs by the whole id
            state.name,
            status_words(state.status, is_paused=state.is_paused),
            state.reason,
            state.tier,
            f"{state.progress.round}/{state.rounds}",
            state.progress.validation_loss,
            f"{state.created_at:%Y-%m-%d %H:%M}",
        )
        for state in found
    )
    print_rows(found, columns, rows, as_json=as_json)


@app.command()
def show(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show one job."""
    with open_client(api_url) as client:
        _show(client.find_job(job_id).state(), as_json)


@app.command()
def why(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show why a job is not matched, waits or ended, and changes that help."""
    from zoo_compute.terminal.job_reports import print_diagnostics

    with open_client(api_url) as client:
        print_result(client.find_job(job_id).why(), print_diagnostics, as_json=as_json)


@app.command()
def watch(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Follow a job until it is over; with --json one event per line."""
    with open_client(api_url) as client:
        _watch(client, job_id, as_json)


@app.command()
def cancel(job_id: JobId = None, yes: Yes = False, api_url: ApiUrl = None, as_json: JsonOfSent = False) -> None:
    """Show a job and ask; then stop it: delivered units are paid, the rest is refunded."""
    with open_client(api_url) as client:
        job = client.find_job(job_id)
        state = job.state()
        plan = {
            "id": state.id,
            "name": state.name or "-",
            "status": status_words(state.status, is_paused=state.is_paused),
            "what happens": "delivered units are verified and paid, the rest is refunded",
        }
        confirm(plan, "Cancel this job?", yes=yes or as_json)
        _show(job.cancel(), as_json)


@app.command()
def amend(
    job_id: JobId = None,
    max_price: Annotated[str | None, typer.Option("--max-price", help="Limit the price, in ZEN per GPU-hour.")] = None,
    wait: Annotated[str | None, typer.Option("--wait", help="Wait so long from now on: 30m, 2h.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Change the bid or the wait of a waiting job, within the signed order."""
    changes = _changes(max_price=max_price, wait=wait)
    if not changes:
        remedy = "Give one or both, such as --max-price 2 or --wait 30m."
        raise ConfigError(
            "nothing-to-amend", "neither --max-price nor --wait is given, so nothing was sent", remedy=remedy
        )
    with open_client(api_url) as client:
        _show(client.find_job(job_id).amend(**changes), as_json)


@app.command()
def pause(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Pause a job; leased units are finished and paid."""
    with open_client(api_url) as client:
        _show(client.find_job(job_id).pause(), as_json)


@app.command()
def resume(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Resume a paused job."""
    with open_client(api_url) as client:
        _show(client.find_job(job_id).resume(), as_json)


@app.command()
def clone(
    job_id: JobId = None,
    budget: Budget = None,
    max_price: MaxPrice = None,
    nodes: Nodes = None,
    wait: Wait = None,
    name: Name = None,
    organisation: Organisation = None,
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Show training and cost of a copy of a job and ask; then sign and submit it."""
    from zoo_compute.terminal.job_reports import approval

    given = {"nodes": nodes, "name": name, "organisation": organisation, **_changes(budget, max_price, wait)}
    with open_client(api_url) as client:
        job, approve = client.find_job(job_id), approval(yes=yes or as_json)
        _show(job.clone(approve=approve, **given).state(), as_json)


@app.command()
def extend(
    job_id: JobId = None,
    budget: Budget = None,
    max_price: MaxPrice = None,
    nodes: Nodes = None,
    wait: Wait = None,
    name: Name = None,
    organisation: Organisation = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Train so many more rounds; default: the rest.")] = None,
    final_rate_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="End at this share of the peak rates; default: as the job did, but not above --start-rate-share.",
        ),
    ] = None,
    start_rate_share: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Start at this share above 0 of the peak rates; default: where the job ended, or began if that is 0.",
        ),
    ] = None,
    yes: Yes = False,
    api_url: ApiUrl = None,
    as_json: JsonOfSent = False,
) -> None:
    """Show training and cost and ask; then sign and submit a job that continues this one."""
    from zoo_compute.terminal.job_reports import approval

    given = {"nodes": nodes, "name": name, "organisation": organisation, **_changes(budget, max_price, wait)}
    given |= {"rounds": rounds, "final_rate_share": final_rate_share, "start_rate_share": start_rate_share}
    with open_client(api_url) as client:
        job, approve = client.find_job(job_id), approval(yes=yes or as_json)
        _show(job.extend(approve=approve, **given).state(), as_json)


@app.command()
def metrics(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show losses, units, times and rollbacks, by round."""
    with open_client(api_url) as client:
        rounds = client.find_job(job_id).metrics()
    columns = ["round", "validation_loss", "validation_error", "train_loss"]
    columns += ["units_included", "units_excluded", "units_lost", "seconds", "rollback_reason"]
    print_result(rounds, partial(print_records, columns), as_json=as_json)


@app.command()
def efficiency(job_id: JobId = None, api_url: ApiUrl = None, as_json: JsonFlag = False) -> None:
    """Show throughput and times, compared with the same nodes in one data centre."""
    from zoo_compute.terminal.job_reports import print_efficiency

    with open_client(api_url) as client:
        print_result(client.find_job(job_id).efficiency(), print_efficiency, as_json=as_json)


@app.command()
def receipt(
    job_id: JobId = None,
    verify: Annotated[bool, typer.Option("--verify", help="Recompute it from chain and storage.")] = False,
    rounds: Annotated[
        int, typer.Option(min=-1, help="Join the payloads of this many last rounds again with --verify; -1: all.")
    ] = 1,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a settled job's receipt; with --verify also its differences from chain and storage."""
    from zoo_compute.terminal.receipts import check_receipt, print_receipt

    with open_client(api_url) as client:
        found = client.find_job(job_id).receipt()
        print_result(found, print_receipt, as_json=as_json)
        if verify:
            check_receipt(client, found, None if rounds < 0 else rounds)
            print_note("verified: the receipt agrees with chain and storage")


@app.command()
def download(
    job_id: JobId = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write to this folder.")] = Path("model"),
    after: Annotated[int | None, typer.Option(min=0, help="Take the model after this round.")] = None,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch the trained model as a folder that `from_pretrained` loads."""
    with open_client(api_url) as client:
        job = client.find_job(job_id)
        size = job.download(output, after=after)
        if as_json:
            print_json({"path": str(output), "size": size, "cid": job.model_cid(after)})
        else:
            print_note(f"{output}: {size} bytes")


@app.command()
def sample(
    job_id: JobId = None,
    prompt: Annotated[str, typer.Option(help="Continue this text.")] = "The ",
    length: Annotated[int, typer.Option(min=1, max=100_000, help="Generate so many tokens.")] = 200,
    temperature: Annotated[float, typer.Option(min=0.01, max=10, help="Set the sampling temperature.")] = 0.8,
    seed: Annotated[int, typer.Option(min=0, help="Set the random seed.")] = 0,
    api_url: ApiUrl = None,
    as_json: JsonFlag = False,
) -> None:
    """Generate text with the trained model."""
    with open_client(api_url) as client:
        text = client.find_job(job_id).sample(prompt, length, temperature=temperature, seed=seed)
    if as_json:
        print_json({"prompt": prompt, "text": text})
    else:
        print(prompt + text)


def _spec(
    file: Path, budget: str | None, max_price: str | None, wait: str | None, name: str | None = None
) -> "JobSpec":
    from zoo_compute.client import jobspec

    given: dict[str, Any] = {"budget_max": budget, "max_price": max_price, "wait": wait, "name": name}
    return jobspec.load(file, {name: value for name, value in given.items() if value is not None})


def _changes(budget: str | None = None, max_price: str | None = None, wait: str | None = None) -> dict[str, Any]:
    from zoo_compute.base.amounts import parse_zen
    from zoo_compute.client.jobspec import deadline, parse_duration

    amounts = {"budget_max": budget, "max_price": max_price}
    given: dict[str, Any] = {name: parse_zen(text, name) for name, text in amounts.items() if text is not None}
    return given if wait is None else given | {"wait_until": deadline(parse_duration(wait, "wait"))}


def _show(state: "JobState", as_json: bool) -> None:
    if as_json:
        print_json(state)
        return
    facts = in_zen(state.model_dump(exclude={"progress", "spec", "unit_weight_us"}))
    loss = "validation_loss", "validation_error"
    facts |= {name: f"{facts[name]} per GPU-hour" for name in ("max_price", "price_cap") if facts[name] is not None}
    facts |= {"status": status_words(state.status, is_paused=state.is_paused), "rounds done": state.progress.round}
    print_facts(facts | {name: getattr(state.progress, name) for name in loss})


def _watch(client: "Client", job_id: str | None, as_json: bool) -> None:
    from zoo_compute.client.job import require_model
    from zoo_compute.terminal.watch import follow, loss_words

    job = client.find_job(job_id)
    try:
        state = follow(job, as_json=as_json)
    except KeyboardInterrupt:
        print_note(f"the job continues: zoo-compute job watch {job.id}, or end it: zoo-compute job cancel {job.id}")
        raise
    require_model(state)
    final, initial = loss_words(state.final_loss, state.final_error), loss_words(state.initial_loss, None)
    print_note(f"settled; final validation loss {final}, initially {initial}")

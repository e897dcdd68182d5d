"""Output of a job's progress: a bar on a terminal, a line per event elsewhere."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zoo_compute.base.models import Event, JobState
from zoo_compute.base.plain_json import to_json
from zoo_compute.client.job import Job
from zoo_compute.terminal.output import print_note, status_words, zen_words
from zoo_protocol.verification.training_faults import DIVERGED, DIVERGED_ADVICE, FAULTS


def follow(job: Job, *, as_json: bool, also: Callable[[Event], None] | None = None) -> JobState:
    """Show a job's events until it is over, pass each to ``also``; return its final state."""
    state = job.state()
    with _view(state, as_json) as show:
        for event in job.events():
            show(event)
            if also is not None:
                also(event)
    return job.state()


@contextmanager
def _view(state: JobState, as_json: bool) -> Iterator[Callable[[Event], None]]:
    if as_json:
        yield lambda event: print(to_json({"id": event.id, "kind": event.kind, **event.data}), flush=True)
    elif sys.stderr.isatty():
        with _bar(state) as show:
            yield show
    else:
        yield _print_line


def _print_line(event: Event) -> None:
    if (line := describe(event)) is not None:
        print_note(line)


def describe(event: Event) -> str | None:
    """Return one line about an event, or None for a kind that is not shown."""
    data = event.data
    match event.kind:
        case "status" if (data["status"], data.get("reason")) == ("failed", DIVERGED):
            return f"job is failed ({DIVERGED}). {DIVERGED_ADVICE}"
        case "status" if "paused" in data:
            words = status_words(data["status"], is_paused=data["paused"])
            return f"job is {words}" + ("" if data["paused"] else ", resumed")
        case "status":
            return f"job is {data['status']}" + (f" ({data['reason']})" if data.get("reason") else "")
        case "round":
            loss = data.get("validation_loss")
            return f"round {data['round']} of {data['rounds']} done" + (f", validation loss {loss}" if loss else "")
        case "validation":
            shown = loss_words(data["validation_loss"], data.get("validation_error"))
            samples = f" ({count} samples)" if (count := data.get("validation_samples")) else ""
            return f"validation loss after round {data['round']}: {shown}{samples}"
        case "rollback":
            return rollback_line(data)
        case "unit" if data["status"] in ("rejected", "lost"):
            where = f"round {data['round']}, slot {data['slot']}, {data['provider']}"
            return f"unit {data['status']}: {where} ({data['reason']})"
        case "late":
            place = f"round {data['round']}, slot {data['slot']}, segment {data['segment']}"
            revealed = f"revealed at {data['shown_at']}" if "shown_at" in data else "not revealed yet"
            return f"provider {data['provider']} is late with a state: {place}, {revealed}"
        case "dispute":
            return _dispute_line(data)
        case "slash" if "tx" in data:
            lost = f"provider {data['provider']} lost {zen_words(data['amount_wei'])} of its stake ({data['reason']}"
            return f"{lost}; decided by {_decided_by(data)})"
        case "slash":
            place = f"round {data['round']}, slot {data['slot']}"
            return f"provider {data['provider']} is at fault ({data['reason']}) in {place}"
    return None


def loss_words(loss: str | None, error: str | None) -> str:
    """Return a loss with its standard error, as far as they are known."""
    return (loss or "unknown") + (f" ± {error}" if error else "")


def rollback_line(data: Mapping[str, Any]) -> str:
    """Return one line about a rollback: its round, its target and the reason."""
    return f"round {data['round']} repeats the model after round {data['to']}: {fault_words(data['reason'])}"


def fault_words(reason: str) -> str:
    """Return the reason of a rollback in words, with its code."""
    return f"{FAULTS.get(reason, 'training went wrong')} ({reason})"


@contextmanager
def _bar(state: JobState) -> Iterator[Callable[[Event], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds, loss {task.fields[loss]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        words = status_words(state.status, is_paused=state.is_paused)
        task = progress.add_task(words, total=state.rounds, loss=state.progress.validation_loss or "-")

        def show(event: Event) -> None:
            data = event.data
            if event.kind == "status":
                words = status_words(data["status"], is_paused=data.get("paused", False))
                progress.update(task, description=words)
            elif event.kind in ("checkpoint", "validation"):
                if event.kind == "checkpoint":
                    progress.update(task, completed=data["round"])
                if data["validation_loss"] is not None:
                    progress.update(task, loss=data["validation_loss"])
            elif event.kind != "round" and (line := describe(event)):
                progress.console.print(line, markup=False, highlight=False)

        yield show


def _decided_by(data: Mapping[str, Any]) -> str:
    if data.get("path") == "dispute":
        return "a committee on chain"
    return "the market's operator" + (f", because of {data['path_reason']}" if data.get("path_reason") else "")


def _dispute_line(data: Mapping[str, Any]) -> str:
    where = f"round {data['round']}, slot {data['slot']}, {data['provider']}"
    lines = {
        "open": f"replays mismatch in segment {data['step']}: the market disputes it on chain, with a bond",
        "won": "upheld: the provider lost its dispute",
        "lost": "rejected: the segment is correct, the market lost its bond, the unit is paid",
        "lapsed": "the market selected no segment in time and lost its bond; the unit is not paid",
        "undecided": "inconclusive: no quorum in time; the unit is not paid, and there is no slash",
        "missed": "the dispute could not be opened in time: the operator decides",
    }
    reason = f" ({data['reason']})" if data.get("reason") else ""
    return f"dispute {data['dispute_id'][:10]}: {where}: {lines.get(data['state'], data['state'])}{reason}"

"""Output about a job: its quote and the consent to it, match diagnostics, efficiency."""

from datetime import UTC, datetime, timedelta
from typing import Any

from zoo_compute.base.amounts import format_zen
from zoo_compute.base.models import Quote
from zoo_compute.client.job import Approve
from zoo_compute.terminal.output import confirm, print_facts, print_note, print_table, zen, zen_words

_GIB = 1 << 30
_NODE_COLUMNS = ("node", "units", "compute", "transfer", "sent", "fetched", "last rate up", "last rate down")


def print_quote(found: Quote) -> None:
    """Print a quote, then its advice on standard error."""
    last, seconds = found.cost_at_last_price_wei, found.expected_seconds
    by_size = ", ".join(f"{name} {value}" for name, value in found.settings_by_size.items())
    print_facts(
        {
            "set by model and nodes": by_size or "nothing",
            **_training(found),
            "work units": found.units,
            "validation samples of a unit": found.validation_samples or "none; the market evaluates checkpoints",
            "speed it counts on": _speed(found),
            "memory of a unit": _memory(found),
            "training at reference speed": "unknown" if seconds is None else f"{timedelta(seconds=round(seconds))}",
            "over home links": _throughput(found.expected_throughput),
            "cost at the reserve price": zen_words(found.cost_at_reserve_wei),
            "cost at the last price": "no trade yet" if last is None else zen_words(last),
            "maximum cost": zen_words(found.cost_at_max_price_wei, is_limit=True),
            "highest price it trades at": f"{zen_words(found.highest_payable_price_wei, is_limit=True)} per GPU-hour",
            "network fee": f"{found.fee_bps / 100:g} % of payments, included",
            "detection of one false segment": f"{found.detection_probability:.1%} in a new provider's unit, "
            f"{found.least_detection_probability:.1%} at least",
        }
    )
    _print_advice(found)


def approval(*, yes: bool) -> Approve:
    """Return a function that shows advice, training and cost, and asks unless ``yes``."""

    def approve(found: Quote, budget_wei: int) -> None:
        _print_advice(found)
        if yes:
            return
        at_last = found.cost_at_last_price_wei or found.cost_at_reserve_wei
        expected = min(at_last, found.cost_at_max_price_wei)  # at a higher price the job does not trade
        plan = {
            **_training(found),
            "into escrow": f"{format_zen(budget_wei)} ZEN; what is not spent comes back",
            "balance": f"{format_zen(found.balance_wei)} ZEN",
            "deposited now": f"{format_zen(found.deposit_needed_wei)} ZEN",
            "expected cost": zen_words(expected),
            "maximum cost": zen_words(found.cost_at_max_price_wei, is_limit=True),
        }
        confirm(plan, "Submit?", yes=False)

    return approve


def _memory(found: Quote) -> str:
    if found.unit_memory_bytes is None or found.node_memory_bytes is None:
        return "unknown"
    return f"{found.unit_memory_bytes / _GIB:.2f} GiB; each GPU has {found.node_memory_bytes / _GIB:.2f} GiB for it"


def _training(found: Quote) -> dict[str, object]:
    """Return what decides the training, for the quote and for the consent to it."""
    training = found.spec["training_config"]
    return {
        "batch of a replica": f"{training['batch_size']} sequences per inner step",
        "optimiser": _optimiser(training),
        "learning rates": found.rate_schedule or "unknown",
        "rounds": training["rounds"],  # a job file may have epochs
    }


def _optimiser(training: dict[str, Any]) -> str:
    adamw = f"adamw, peak rate {training['learning_rate']:g}"
    if training["optimizer"] == "adamw":
        return adamw
    return f"muon, peak rate {training['muon_learning_rate']:g}; {adamw}, for the rest"


def _speed(found: Quote) -> str:
    if found.flops_per_gpu is None or found.peak_share_bps is None:
        return "unknown"
    precision, least = found.spec["training_config"]["precision"], found.min_mflops
    needed = f"; nodes from {least:,} MFLOP/s in the benchmark" if least else ""
    speed = f"{found.flops_per_gpu / 10**12:.4g} TFLOP/s per GPU in {precision}"
    used = "" if found.gpus_in_use is None else f"; {found.gpus_in_use} of {found.gpus} GPUs"
    return f"{speed}, {found.peak_share_bps / 100:g} % of its peak{used}{needed}"


def _print_advice(found: Quote) -> None:
    for point in found.advice:
        print_note(f"{point['detail']} {point['remedy']}  [{point['code']}]")


def _throughput(expected: dict[str, Any] | None) -> str:
    if expected is None:
        return "unknown"
    return (
        f"{expected['share_of_ideal']:.0%} of the throughput in one place, {expected['round_seconds']:.3g} s per round "
        f"({expected['down_mbps']:g}/{expected['up_mbps']:g} Mb/s, an estimate)"
    )


def print_diagnostics(why: dict[str, Any]) -> None:
    """Print findings, nodes left after each constraint, order books, and changes that help."""
    for finding in why["findings"]:
        print(f"{finding['sentence']}  [{finding['code']}]")
    if why["constraints"]:
        print(f"\nOf {why['nodes_total']} nodes of the tier; {why['nodes']} are wanted:")
        rows = [(step["code"], step["removes"], step["left"], step["sentence"]) for step in why["constraints"]]
        print_table(("constraint", "removes", "left", "which"), rows)
    if why["books"]:
        print(f"\nIts limit is {zen_words(why['limit_price_wei_per_gpu_hour'], is_limit=True)} per GPU-hour:")
        print_table(
            ("book", "class", "suitable", "affordable", "free", "price now", "last price", "next round", "expected"),
            [
                (
                    book["book"],
                    book["environment_class"][:10],
                    *(book[count] for count in ("suitable", "affordable", "free")),
                    *(zen(book[f"{which}_wei_per_gpu_hour"]) for which in ("price_now", "last_price")),
                    _next(book["next_round_at"]),
                    book["expected_at"],
                )
                for book in why["books"]
            ],
        )
    if why["changes"]:
        print("\nChanges that help (cancel the job for a full refund, then submit it again):")
        for change in why["changes"]:
            print(f"  {change['field']}: {change['sentence']}")


def _next(at: str | None) -> str | None:
    return "once it trades" if at is not None and datetime.fromisoformat(at) <= datetime.now(UTC) else at


def print_efficiency(found: dict[str, Any]) -> None:
    """Print the report of ``GET /v1/jobs/{id}/efficiency`` and a table of its nodes."""
    units = "{units_delivered} delivered, {units_late} of them late, {units_reported} with a report".format(**found)
    print_facts(
        {
            "from the match to the end of training": f"{_time(found['seconds'])} (or to the last unit so far)",
            "work units": units,
            "tokens": f"{found['tokens']:,}",
            "tokens per second": _rate(found["tokens_per_second"]),
            "the same nodes in one place": _rate(found["ideal_tokens_per_second"]),
            "share of that": _share(found["share_of_ideal"]),
            **{
                f"of the nodes' time, {part}": _share(found[f"share_{part}"])
                for part in ("compute", "transfer", "wait")
            },
            "sent": f"{_size(found['bytes_up'])}; of results {_size(found['bytes_up_measured'])}, as the market read",
            "fetched": _size(found["bytes_down"]),
            "not verified": "reports of nodes: compute, transfer, wait, one place, sent, fetched, the table",
        }
    )
    if found["nodes"]:
        print_table(_NODE_COLUMNS, [_row(node) for node in found["nodes"]])


def _row(node: dict[str, Any]) -> list[object]:
    return [
        node["provider"],
        node["units"],
        *(_time(node[f"seconds_{part}"]) for part in ("compute", "transfer")),
        *(_size(node[f"bytes_{way}"]) for way in ("up", "down")),
        *(_mbps(node[f"{way}_bytes_per_second"]) for way in ("up", "down")),
    ]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def _rate(tokens: float | None) -> str | None:
    return None if tokens is None else f"{tokens:,.1f}"


def _share(share: float | None) -> str | None:
    return None if share is None else f"{share:.1%}"


def _size(size: int) -> str:
    return f"{size / 1e6:,.2f} MB"


def _mbps(rate: int | None) -> str | None:
    return None if rate is None else f"{rate * 8 / 1e6:,.1f} Mb/s"

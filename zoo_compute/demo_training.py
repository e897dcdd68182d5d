"""How the demonstration's rounds went: what was sent, whose work was joined, what became of the slow and the absent.

Times, bytes and rates are what the nodes reported; what an update took are the bytes that lie on storage.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from training_gym.adaptation import choose_top_k
from training_gym.config import CHUNK, TrainingSpec
from zoo_compute.client import Client
from zoo_compute.job import Job

_MAX_UPDATE_BYTES = 1 << 24

Units = Sequence[Mapping[str, Any]]


def gather(client: Client, job: Job, slow: str, leaver: str, left_after: int, model_bytes: int) -> dict[str, Any]:
    """The training's story as JSON; ``leaver`` left after that round. Only for a job that trained to its end."""
    report, units = job.efficiency(), job.units()
    delivered = [unit for unit in units if unit["uploaded_at"]]
    lost = [unit["reason"] for unit in units if unit["provider"] == leaver and unit["status"] == "lost"]
    back = [unit for unit in delivered if unit["provider"] == leaver and unit["round"] >= left_after]
    return {
        "update_bytes": round(report["bytes_up_measured"] / max(1, len(delivered))),
        "model_bytes": model_bytes,
        "delivered": len(delivered),
        "joined": sum(unit["included"] is True for unit in delivered),
        "slow_link": _slow_link(client, job, slow, report, delivered),
        "leaver": {"left_after": left_after, "lost": lost, "delivered_since": len(back)},
        "tokens_per_second": report["tokens_per_second"],
        "share_of_ideal": report["share_of_ideal"],
        "shares": {part: report[f"share_{part}"] for part in ("compute", "transfer", "wait")},
    }


def _slow_link(client: Client, job: Job, slow: str, report: Mapping[str, Any], delivered: Units) -> dict[str, Any]:
    """What the market had the node on the slow link send, and what an update of all that the job asks for takes."""
    spec = TrainingSpec.from_dict(job.state().spec)
    own = [unit for unit in delivered if unit["provider"] == slow]
    node = next(node for node in report["nodes"] if node["provider"] == slow)
    least = min(own, key=lambda unit: unit["top_k"])
    whole = next(unit for unit in delivered if unit["top_k"] == spec.training.top_k)
    seconds = node["seconds_compute"] / node["units"]
    return {
        "provider": slow,
        "units": node["units"],
        "late": sum(bool(unit["rounds_late"]) for unit in own),
        "share_transfer": node["seconds_transfer"] / (node["seconds_compute"] + node["seconds_transfer"]),
        "bytes_per_second": node["up_bytes_per_second"],
        "seconds_per_unit": round(seconds, 3),
        "asked_of_others": spec.training.top_k,
        "told": [unit["top_k"] for unit in own],
        "fits": choose_top_k(spec, node["up_bytes_per_second"], seconds),
        "least_bytes": len(client.fetch(least["payload_cid"], max_bytes=_MAX_UPDATE_BYTES)),
        "whole_bytes": len(client.fetch(whole["payload_cid"], max_bytes=_MAX_UPDATE_BYTES)),
    }


def promises(training: Mapping[str, Any]) -> dict[str, bool]:
    """What the demonstration promises of its slow link, and whether it is so.

    What it is told to send is what goes up in a twentieth of a unit's time by its own report (decision 0023): less than
    all where that is less. An update of this job is so small that it fits, unless units take less than a third of a
    second; on a link on which it does not fit, a node could not show its states in time when they are drawn (0034).
    """
    slow = training["slow_link"]
    whole, told = slow["asked_of_others"], slow["told"]
    return {
        "the market asks of the slow link what it bears": (min(told) < whole) == (slow["fits"] < whole),
        "less is smaller": min(told) == whole or slow["least_bytes"] < slow["whole_bytes"],
    }


def tell(training: Mapping[str, Any], slow_node: str, link_mbps: float, leaver: str) -> list[str]:
    """The story in words, a line each."""
    slow, absent, shares = training["slow_link"], training["leaver"], training["shares"]
    shared = ", ".join(f"{share or 0:.0%} {part}" for part, share in shares.items())
    return [
        f"an update took {training['update_bytes'] / 1000:.0f} kB on the wire, "
        f"{training['model_bytes'] / training['update_bytes']:.0f} times less than the model; of "
        f"{training['delivered']} updates {training['joined']} were joined, robustly",
        f"{slow_node}, on {link_mbps:g} Mbit/s, delivered {slow['units']} units, {slow['late']} of them "
        f"late; {slow['share_transfer']:.0%} of its time went into transfers. {_told(slow)}",
        f"{leaver} left after round {absent['left_after']} ({', '.join(absent['lost']) or 'between two units'}), came "
        f"back and delivered {absent['delivered_since']} more units",
        f"{training['tokens_per_second']} tokens/s, {training['share_of_ideal'] or 0:.0%} of the same nodes in one "
        f"place ({shared}; by what the nodes report)",
    ]


def _told(slow: Mapping[str, Any]) -> str:
    rate, told = f"{slow['bytes_per_second'] / 1000:.0f} kB/s measured", sorted(set(slow["told"]), reverse=True)
    if told[-1] == slow["asked_of_others"]:
        return (
            f"With {rate} and units of {slow['seconds_per_unit']:.1f} s a whole update of {slow['whole_bytes']} bytes "
            "goes up in a twentieth of a unit's time, so the market had it send all"
        )
    return (
        f"With {rate} the market had it send {' or '.join(map(str, told))} of {CHUNK} entries: "
        f"{slow['least_bytes']} bytes instead of {slow['whole_bytes']}"
    )

"""Specifications of jobs that continue others, or have other numbers of nodes. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from training_gym.evaluate.extent import LEAST_SAMPLES


def continuation(spec: Mapping[str, Any], done: int, checkpoint: str, rounds: int) -> dict[str, Any]:
    """Return the specification of a job that goes on after ``done`` rounds of ``spec``.

    The rates start at their place in the schedule, or where they began if they ended at 0. The data go on in the same
    order.
    """
    training, data = dict(spec["training_config"]), dict(spec["data_config"])
    first, final = data.get("start_rate_share", 1.0), training["final_rate_share"]
    share = final if done == training["rounds"] else first - (first - final) * done / training["rounds"]
    training |= {"rounds": rounds, "warmup_steps": min(training["warmup_steps"], rounds * training["inner_steps"])}
    data |= {
        "start_checkpoint": checkpoint,
        "start_round": data.get("start_round", 0) + done,
        "start_rate_share": share or first,
    }
    return {**spec, "training_config": training, "data_config": data}


def with_rate_shares(spec: Mapping[str, Any], given: Mapping[str, float | None]) -> dict[str, Any]:
    """Return a continuation's ``spec`` with the ``given`` rate shares.

    Without a given final share, the rates do not rise above a given start. A job that diverged at high rates would
    reach these again.
    """
    final, start = given.get("final_rate_share"), given.get("start_rate_share")
    training, data = dict(spec["training_config"]), dict(spec["data_config"])
    if final is not None:
        training["final_rate_share"] = final
    elif start is not None:
        training["final_rate_share"] = min(training["final_rate_share"], start)
    if start is not None:
        data["start_rate_share"] = start
    return {**spec, "training_config": training, "data_config": data}


def settings_on_nodes(data: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """Return a ``data_config`` without its replicas, for as many ``nodes``.

    Rounds before a start checkpoint count as rounds of these, so that no number of nodes reads their data again. Fewer
    nodes leave the evaluation to the market if theirs would have too few samples for the rule of spikes.
    """
    found, before = {name: value for name, value in data.items() if name != "replicas"}, data.get("replicas", 1)
    if "start_round" in found:
        found["start_round"] = math.ceil(found["start_round"] * before / nodes)
    if nodes < before and found.get("validation_samples", 0) * nodes < LEAST_SAMPLES:
        found["validation_samples"] = 0
    return found

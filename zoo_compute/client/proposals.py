"""Proposals of the market for a clone or an extension, compared with the request."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from training_gym.units.continuations import continuation, settings_on_nodes, with_rate_shares
from zoo_compute.base.errors import Mismatch
from zoo_compute.base.models import Checkpoint, JobState
from zoo_compute.client.jobspec import deadline
from zoo_compute.client.orders import whole_seconds, with_validation_samples
from zoo_protocol.verification.training_faults import LARGEST_LOSS

_SLACK = timedelta(hours=1)
"""Covers the market's shortest wait in a proposal, and the difference of its clock from this machine's."""
_USUAL = {"start_round": 0, "start_rate_share": 1.0}
"""Settings that a specification leaves out at these values, and a request states."""


def check(
    request: Mapping[str, Any],
    state: JobState,
    changes: Mapping[str, Any],
    continued: Sequence[Checkpoint] | None,
    fetch: Callable[[str], bytes],
) -> None:
    """Compare a proposed request with the one that the job and ``changes`` give.

    Args:
        state: the job that is cloned or extended.
        changes: body of the caller's request.
        continued: checkpoints of a job that is extended, by round; None: a clone.
        fetch: returns a manifest's bytes, compared with their CID.

    Raises:
        Mismatch: they differ, or the extension starts from none of ``continued``.
    """
    for name, value in _terms(state, changes).items():
        if request.get(name) != value:
            raise _mismatch(name, request.get(name), value)
    spec = state.spec if continued is None else _continued(request, state, changes, continued)
    data = {"validation_samples": 0} | settings_on_nodes(spec["data_config"], request["nodes"])
    expected = with_validation_samples({**spec, "data_config": data, "nodes": request["nodes"]}, fetch)
    for section in "training_config", "data_config":
        wanted, found = expected[section], request[section]
        for name in sorted(wanted.keys() | found.keys()):
            usual = _USUAL.get(name)
            if found.get(name, usual) != wanted.get(name, usual):
                raise _mismatch(f"{section}.{name}", found.get(name), wanted.get(name, usual))
    _check_wait(request["wait_until"], changes.get("wait_until"), state.wait_until - state.created_at)


def _terms(state: JobState, changes: Mapping[str, Any]) -> dict[str, Any]:
    terms = {
        "budget_max": str(state.budget_wei),
        "max_price": str(state.max_price_wei),
        "name": state.name,
        "nodes": state.nodes,
        "tier": state.tier,
        "sampling_bps": state.sampling_bps,
        "model_config": state.spec["model_config"],
        "adapter_config": state.spec.get("adapter_config"),
    }
    return terms | {name: changes[name] for name in terms.keys() & changes.keys()}


def _continued(
    request: Mapping[str, Any], state: JobState, changes: Mapping[str, Any], checkpoints: Sequence[Checkpoint]
) -> dict[str, Any]:
    """Return the continuation's specification.

    The market chooses its start: the last checkpoint, or a better one if that is spoiled.
    """
    start, last = request["data_config"].get("start_checkpoint"), checkpoints[-1]
    if start not in [one.cid for one in checkpoints if _loss(one) <= _loss(last)]:
        raise _mismatch("start_checkpoint", start, f"{last.cid}, the last one, or one with a lower loss")
    done, whole = last.round, state.spec["training_config"]["rounds"]
    return with_rate_shares(
        continuation(state.spec, done, start, changes.get("rounds") or whole - done or whole), changes
    )


def _loss(checkpoint: Checkpoint) -> float:
    """Return a known loss; infinite if it is not, or not finite."""
    loss = math.inf if checkpoint.validation_loss is None else float(checkpoint.validation_loss)
    return loss if loss < LARGEST_LOSS else math.inf


def _check_wait(proposed: str, asked: str | None, usual: timedelta) -> None:
    """Compare a proposed ``wait_until`` with the one asked for, or with the usual wait.

    The contract refunds an unsettled budget only some time after that instant.
    """
    end = whole_seconds(proposed)
    if asked is None:
        is_expected, expected = end <= deadline(usual + _SLACK).timestamp(), f"{usual} from now"
    else:
        is_expected, expected = end == whole_seconds(asked), asked
    if not is_expected:
        raise _mismatch("wait_until", proposed, expected)


def _mismatch(name: str, found: object, expected: object) -> Mismatch:
    return Mismatch("quote-mismatch", f"the market proposes {name} {found!r}, not {expected!r}")

"""Simulation of a prepared act, with the refusal in words."""

from collections.abc import Callable
from dataclasses import dataclass

from zoo_protocol.acts.calls import TIMELOCK, Contracts, PreparedAct
from zoo_protocol.acts.refusals import explain

EthCall = Callable[[str, str, bytes], bytes | None]
"""Calls (sender, contract, data) at the latest block; returns revert data, or None on success."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """Outcome of a simulated act.

    Attributes:
        passes: the contract accepts the transaction now.
        error: name of the contract's error, if refused.
        refusal: sentence, if refused.
        warnings: reasons why a proposal would fail if it were executed now.
    """

    passes: bool
    error: str | None = None
    refusal: str | None = None
    warnings: tuple[str, ...] = ()


def simulate(prepared: PreparedAct, sender: str, contracts: Contracts, call: EthCall) -> Simulation:
    """Simulate an act from a person's account, and a proposal's effects from the timelock."""
    refused = call(sender, prepared.to, prepared.data)
    if refused is not None:
        error, words = explain(refused)
        return Simulation(passes=False, error=error, refusal=words)
    timelock = contracts.addresses[TIMELOCK]
    effects = (call(timelock, one.target, one.data) for one in prepared.effects)
    return Simulation(passes=True, warnings=tuple(explain(data)[1] for data in effects if data is not None))

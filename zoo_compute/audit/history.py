"""Sampling rates, recomputed from a provider's settled units on chain."""

from collections.abc import Iterator
from functools import cached_property

from zoo_compute.audit.settlements import Expect, units_of
from zoo_compute.chain.settlements import FALSE_WORK, ChainReader, Penalty
from zoo_compute.content.gateway import UNAVAILABLE, GatewayClient
from zoo_protocol.payments.job_record import PaidUnit, RecordError, UnitRecord
from zoo_protocol.payments.receipt import Settled, unit_price
from zoo_protocol.verification.rules import COMPARABLE_SHARE, sampling_rate_bps

NEWCOMER_BPS = 2_500
"""Rate of a provider without history, on every network (decision 2)."""


class Histories:
    """Comparable units of providers that were settled before a block."""

    def __init__(self, expect: Expect, chain: ChainReader, gateway: GatewayClient) -> None:
        self._expect, self._chain, self._gateway = expect, chain, gateway
        self._lists: dict[int, list[PaidUnit]] = {}
        self._weights: dict[str, int] = {}

    @cached_property
    def _lines(self) -> list[tuple[int, str, Settled]]:
        return self._chain.lines()

    @cached_property
    def _penalties(self) -> list[Penalty]:
        return self._chain.penalties()

    def check_rate(self, unit: UnitRecord, floor_bps: int, gross: int, block: int, where: str) -> None:
        """Check a unit's rate against its provider's history at ``block``, that of its window.

        Args:
            floor_bps: the job's rate.
            gross: price of the unit in wei.
        """
        rate = NEWCOMER_BPS if unit.sampling_bps is None else unit.sampling_bps
        if rate >= max(NEWCOMER_BPS, floor_bps):
            return
        attested = self._chain.was_attested(unit.provider, block)
        clean: set[tuple[str, int, int]] = set()
        least = sampling_rate_bps(0, NEWCOMER_BPS, floor_bps, attested=attested)
        for paid in self._before(unit.provider, block):
            if rate >= least:
                break
            if unit_price(int(paid.price), self._weight(paid.job_id)) >= gross // COMPARABLE_SHARE:
                clean.add((paid.job_id, paid.round, paid.slot))
                least = sampling_rate_bps(len(clean), NEWCOMER_BPS, floor_bps, attested=attested)
        self._expect("sampled_too_little", where, max(least, rate), rate)

    def _before(self, provider: str, block: int) -> Iterator[PaidUnit]:
        """Yield the provider's units settled since its last penalty, newest batch first."""
        mine = [one.block for one in self._penalties if one.provider == provider and one.offence in FALSE_WORK]
        since = max((one for one in mine if one < block), default=-1)
        batches = {line.batch: line for at, _, line in self._lines if since < at < block and line.batch}
        for number, line in batches.items():
            if number not in self._lists:
                try:
                    self._lists[number] = units_of(self._gateway, line)
                except (*UNAVAILABLE, RecordError) as error:
                    self._expect("unresolvable", f"batch {number}", line.record, str(error))
                    self._lists[number] = []
            yield from (paid for paid in self._lists[number] if paid.provider == provider)

    def _weight(self, job_id: str) -> int:
        if job_id not in self._weights:
            self._weights[job_id] = self._chain.opened(job_id).unit_weight
        return self._weights[job_id]

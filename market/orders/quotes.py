"""From a job description to the exact order its payer signs, and what it will cost."""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from market.chain.contracts.codec import Deployment
from market.chain.errors import ChainError
from market.chain.views import ChainViews, Funds
from market.domain.money import format_amount, max_deterred_unit_price, max_disputable_unit_price, unit_price
from market.domain.network import BPS, HOUR_US, NetworkParameters, Tier
from market.domain.verification.sampling import sampling_rate_bps
from market.jobs.pricing import highest_price
from market.orders.dataset_check import require_dataset
from market.orders.errors import BudgetBelowOneUnit, InvalidOrder, InvalidSpec
from market.orders.quote_advice import advice_on, expected_throughput, most_inner_steps
from market.orders.schemas import JobSpec, Quote
from market.platform.http.errors import ChainDown, UnknownTier
from market.platform.storage.client import Storage
from training_gym.spec.config import TrainingSpec, settings_by_size
from training_gym.spec.errors import SpecError
from zoo_protocol.messages import Domain, JobOrder, permit_typed_data, typed_data
from zoo_protocol.verification.sampling import detection_at_rate

TOKEN_NAME = "ZEN"


PERMIT_MARGIN = timedelta(hours=1)
"""How much longer than ``wait_until`` a quoted permit holds; a permit must at least reach ``wait_until``."""


_DAY = 86_400


MAX_UNITS = 10_000


_FASTEST = 10
"""No node is so many times faster than its tier's reference, which is 40 % of what the tier's own devices can do."""


_UINT80 = 2**80 - 1


_UINT96 = 2**96 - 1


_UINT40 = 2**40 - 1


_UINT48 = 2**48 - 1


@dataclass(frozen=True, slots=True)
class Terms:
    """A checked job: what is trained, in how many units of what size, for how much at most."""

    spec: TrainingSpec
    spec_json: bytes  # canonical, as it is hashed and stored
    spec_hash: str
    tier: Tier
    nodes: int
    units: int
    unit_weight_us: int
    sampling_bps: int
    budget_wei: int
    max_price_wei: int
    wait_until: datetime

    @property
    def unit_seconds(self) -> float:
        """What one unit takes at the tier's reference speed, all GPUs together."""
        return self.unit_weight_us / (self.tier.gpus * 10**6)

    def order(self, payer: str, nonce: int) -> JobOrder:
        """The order that ``payer`` signs; its struct hash is the job's id."""
        return JobOrder(
            payer=payer,
            specHash=self.spec_hash,
            tier=self.tier.id,
            units=self.units,
            unitWeight=self.unit_weight_us,
            segments=self.spec.segments,
            samplingBps=self.sampling_bps,
            budget=self.budget_wei,
            maxPrice=self.max_price_wei,
            waitUntil=int(self.wait_until.timestamp()),
            nonce=nonce,
        )


def terms(request: JobSpec, network: NetworkParameters, now: datetime) -> Terms:
    """Check everything about a job that needs neither network nor database.

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit: naming the field and what to do.
    """
    spec, spec_json, spec_hash = _canonical(request)
    tier = _tier(request.tier, network)
    units = spec.training.rounds * request.nodes
    if units > MAX_UNITS:
        raise InvalidOrder(
            f"{spec.training.rounds} rounds on {request.nodes} nodes are {units} units of work, beyond {MAX_UNITS}.",
            field="training_config.rounds",
            remedy="Take fewer rounds of more inner_steps, or fewer nodes.",
        )
    for name, amount, most in (
        ("budget_max", request.budget_max, _UINT96),
        ("max_price", request.max_price, _UINT80),
    ):
        if not 0 < amount <= most:
            raise InvalidOrder(f"{name} is {amount} wei.", field=name, remedy=f"Give an amount from 1 to {most} wei.")
    weight = -(-spec.flops_per_unit() * 10**6 // tier.reference_flops_per_gpu)
    sampling = _least_sampling(request, network)
    _require_end_before_refund(spec, weight / (tier.gpus * 10**6), network)
    _require_one_unit(request, tier, weight)
    _require_stake_covers_gain(request, tier, weight, spec.segments, sampling)
    _require_fee_covers_replay(request, weight, spec.segments, network.disputes.referee_fee_wei)
    return Terms(
        spec=spec,
        spec_json=spec_json,
        spec_hash=spec_hash,
        tier=tier,
        nodes=request.nodes,
        units=units,
        unit_weight_us=weight,
        sampling_bps=sampling,
        budget_wei=request.budget_max,
        max_price_wei=request.max_price,
        wait_until=_wait_until(request.wait_until, now),
    )


def require_unit_in_time(job: Terms, longest_round_seconds: float) -> None:
    """Check that some node could do a unit before the market gives the job up.

    Args:
        longest_round_seconds: a round that takes longer fails its job.

    Raises:
        InvalidOrder: none could. A unit that only slow nodes do too late is advice in the quote.
    """
    least = job.unit_seconds / _FASTEST
    if least > longest_round_seconds:
        fewer = most_inner_steps(job.spec, job.unit_seconds, longest_round_seconds)
        raise InvalidOrder(
            f"One unit takes {job.unit_seconds:.4g} s at the reference speed of {job.tier.name}, and {least:.4g} s at "
            f"{_FASTEST} times that; a round that cannot be closed within {longest_round_seconds:.4g} s fails its job.",
            field="training_config.inner_steps",
            remedy="Take a faster tier, a smaller batch_size, or fewer inner_steps a round: "
            f"with {fewer} a node of the reference speed is in time.",
            extra={"reason": "unit_too_long"},
        )


def quote(
    request: JobSpec,
    payer: str,
    *,
    network: NetworkParameters,
    deployment: Deployment,
    chain: ChainViews,
    storage: Storage,
    longest_round_seconds: float,
    last_price: Callable[[int], int | None],
    now: datetime,
) -> Quote:
    """Price a job and give the two documents that its payer signs to submit it. Writes nothing.

    Args:
        longest_round_seconds: as of :func:`require_unit_in_time`.
        last_price: gives the price in wei per GPU-hour at which a tier, by its id, traded last.

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit, DatasetNotFound, InvalidDataset, StorageDown,
        ChainDown.
    """
    job = terms(request, network, now)
    require_unit_in_time(job, longest_round_seconds)
    require_dataset(storage, job.spec)
    nonce = secrets.randbits(128)
    deadline = int((job.wait_until + PERMIT_MARGIN).timestamp())
    escrow = deployment.address("JobEscrow")
    order = typed_data(Domain(deployment.chain_id, escrow), job.order(payer, nonce))
    permit = permit_document(deployment, payer, job.budget_wei, funds_of(chain, payer).permit_nonce, deadline)
    best = highest_price(job.budget_wei, job.max_price_wei, job.units, job.unit_weight_us)
    at_reserve = unit_price(job.tier.reserve_price_wei, job.unit_weight_us)
    last = last_price(job.tier.id)
    throughput = expected_throughput(job.spec, job.nodes, job.unit_seconds)
    newcomer = network.newcomer_sampling_bps
    first_rate = sampling_rate_bps(0, newcomer, job.sampling_bps, attested=request.requirements.attested_only)
    return Quote(
        spec=job.spec.to_dict(),
        spec_hash=job.spec_hash,
        settings_by_size=settings_by_size(job.spec.model, request.training_settings),
        advice=advice_on(job.spec, throughput, longest_round_seconds),
        tier=job.tier.name,
        units=job.units,
        unit_weight_us=job.unit_weight_us,
        segments_per_unit=job.spec.segments,
        unit_price_at_reserve_wei=at_reserve,
        unit_price_at_max_price_wei=unit_price(job.max_price_wei, job.unit_weight_us),
        cost_at_reserve_wei=at_reserve * job.units,
        cost_at_max_price_wei=unit_price(best, job.unit_weight_us) * job.units,
        cost_at_last_price_wei=None if last is None else unit_price(last, job.unit_weight_us) * job.units,
        last_price_wei=last,
        highest_payable_price_wei=best,
        reserve_price_wei=job.tier.reserve_price_wei,
        fee_bps=network.fee_bps,
        newcomer_sampling_bps=newcomer,
        sampling_bps=job.sampling_bps,
        detection_probability=detection_at_rate(job.spec.segments, 1, first_rate),
        least_detection_probability=detection_at_rate(job.spec.segments, 1, job.sampling_bps),
        expected_seconds=job.spec.training.rounds * job.unit_seconds,
        expected_throughput=throughput,
        nonce=nonce,
        permit_deadline=deadline,
        order=_wallet_form(order),
        permit=_wallet_form(permit),
    )


def permit_document(deployment: Deployment, payer: str, value: int, nonce: int, deadline: int) -> dict[str, Any]:
    """The EIP-2612 permit of ``value`` wei for the escrow contract, at the payer's permit nonce."""
    return permit_typed_data(
        deployment.chain_id,
        deployment.address("ZenToken"),
        TOKEN_NAME,
        payer,
        deployment.address("JobEscrow"),
        value,
        nonce,
        deadline,
    )


def funds_of(chain: ChainViews, payer: str, max_age_seconds: float = 0.0) -> Funds:
    """What the payer holds and its permit nonce, as the chain says or said so long ago. Raises ChainDown."""
    try:
        return chain.funds(payer, max_age_seconds)
    except ChainError as error:
        raise ChainDown(str(error)) from error


class _Canonical(NamedTuple):
    spec: TrainingSpec
    json: bytes
    hash: str


def _canonical(request: JobSpec) -> _Canonical:
    """The checked specification of a request, as it is hashed and stored."""
    sections = {
        "model_config": request.model_settings,
        "data_config": request.data_settings,
        "training_config": request.training_settings,
    }
    return _canonical_of(json.dumps(sections))


@lru_cache(256)  # many jobs are of one specification; what is refused is not kept, and what is kept is short
def _canonical_of(sections: str) -> _Canonical:
    document = json.loads(sections)
    try:
        spec = TrainingSpec.from_dict(document)
    except SpecError as error:
        raise InvalidSpec(str(error), field=error.field, extra={"reason": error.code}) from error
    if spec.training.averaging != "rounds":
        raise InvalidSpec(
            "training_config.averaging is 'steps': each step would need the gradients of nodes that do not know each "
            "other, and no unit could be replayed alone, so none could be verified.",
            field="training_config.averaging",
            remedy="Leave averaging away, or choose the method slow_links, sparseloco or diloco; per-step averaging "
            "runs over machines of your own.",
            extra={"reason": "not_verifiable"},
        )
    if spec.training.powersgd_rank:  # refused here and not by from_dict, which reads the jobs of earlier versions too
        raise InvalidSpec(
            f"training_config.powersgd_rank is {spec.training.powersgd_rank}, and averaging 'rounds' sends no factors "
            "of gradients: it would do nothing.",
            field="training_config.powersgd_rank",
            remedy="Leave powersgd_rank away; top_k and value_bits say how payloads are compressed.",
            extra={"reason": "unused_setting"},
        )
    canonical = spec.to_json()
    return _Canonical(spec, canonical, spec.spec_hash(canonical))


def _tier(name: str, network: NetworkParameters) -> Tier:
    try:
        return network.tier(name)
    except KeyError:
        known = ", ".join(tier.name for tier in network.tiers)
        raise UnknownTier(
            f"{name!r} is no tier of this network.", field="tier", remedy=f"Choose one of: {known}."
        ) from None


def _least_sampling(request: JobSpec, network: NetworkParameters) -> int:
    """The payer's own lowest rate, or the network's: stakes cover no lower one, and no higher one is what rewards for
    replays are made for (decision 2)."""
    least, most = network.sampling_floor_bps, network.newcomer_sampling_bps
    wanted = least if request.sampling_bps is None else request.sampling_bps
    if not least <= wanted <= most:
        raise InvalidOrder(
            f"sampling_bps is {wanted}; this network draws from {least} to {most}.",
            field="sampling_bps",
            remedy=f"Give a rate from {least} to {most} basis points, or leave it away for {least}.",
        )
    return wanted


def _wait_until(wanted: datetime, now: datetime) -> datetime:
    whole = wanted.astimezone(UTC).replace(microsecond=0)
    if not now < whole or whole.timestamp() > _UINT40:
        raise InvalidOrder(
            f"wait_until is {wanted.isoformat()}, now is {now.isoformat(timespec='seconds')}.",
            field="wait_until",
            remedy="Give a time in the future, such as an hour from now, with its time zone.",
        )
    return whole


def _require_end_before_refund(spec: TrainingSpec, unit_seconds: float, network: NetworkParameters) -> None:
    """A job that begins when its payer waits no longer must be done before its escrow can be called back."""
    seconds, longest = spec.training.rounds * unit_seconds, network.longest_training_seconds
    if seconds > longest:
        raise InvalidOrder(
            f"{spec.training.rounds} rounds take {seconds / _DAY:.3g} days at the tier's reference speed. A job ends "
            f"{longest / _DAY:.3g} days after wait_until at the latest, or its escrow could be refunded unsettled.",
            field="training_config.rounds",
            remedy=f"Take at most {max(1, int(longest / unit_seconds))} rounds and extend the job later (POST "
            "/v1/jobs/{id}/extend), more nodes with fewer inner_steps each, or a faster tier.",
            extra={"reason": "job_too_long"},
        )


def _require_one_unit(request: JobSpec, tier: Tier, weight: int) -> None:
    unit = unit_price(request.max_price, weight)
    if unit == 0:
        least = -(-BPS * HOUR_US // weight)
        raise InvalidOrder(
            f"At max_price one unit costs less than {BPS} wei, the smallest amount that is paid.",
            field="max_price",
            remedy=f"Give at least {format_amount(least)} per GPU-hour; the reserve of {tier.name} is "
            f"{format_amount(tier.reserve_price_wei)}.",
        )
    if request.budget_max < unit:
        raise BudgetBelowOneUnit(
            f"One unit costs {format_amount(unit)} at max_price, budget_max is {format_amount(request.budget_max)}.",
            field="budget_max",
            remedy=f"Give at least {format_amount(unit)}, better the cost of all units, or lower max_price.",
        )


def _require_stake_covers_gain(request: JobSpec, tier: Tier, weight: int, segments: int, sampling_bps: int) -> None:
    """The escrow contract's own rule: who falsifies a segment must stand to lose more by the penalty than it gains."""
    unit = unit_price(request.max_price, weight)
    most = max_deterred_unit_price(tier.least_cheat_penalty_wei, segments, sampling_bps)
    if weight > _UINT48 or unit > most:
        raise InvalidOrder(
            f"One unit costs {format_amount(unit)} at max_price; the penalty that a cheat of tier {tier.name} risks, "
            f"{format_amount(tier.least_cheat_penalty_wei)} of its stake, deters cheating up to {format_amount(most)} "
            "a unit.",
            field="training_config.inner_steps",
            remedy="Take fewer inner_steps in each round, a lower max_price, or a tier with a higher stake.",
            extra={"reason": "stake_below_gain"},
        )


def _require_fee_covers_replay(request: JobSpec, weight: int, segments: int, referee_fee_wei: int) -> None:
    """The market's own rule: referees, who replay a disputed segment for a fixed fee, must not have to pay for it."""
    unit = unit_price(request.max_price, weight)
    most = max_disputable_unit_price(referee_fee_wei, segments)
    if unit > most:
        raise InvalidOrder(
            f"One unit of {segments} segments costs {format_amount(unit)} at max_price, beyond {format_amount(most)}: "
            f"a referee that replays one of them in a dispute is paid {format_amount(referee_fee_wei)}.",
            field="training_config.segment_steps",
            remedy="Take fewer segment_steps, so that a unit has more segments, fewer inner_steps in each round, or a "
            "lower max_price.",
            extra={"reason": "segment_above_referee_fee"},
        )


def _wallet_form(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the message's integers as decimal strings, which survive JSON and sign to the same hash."""
    message = {key: str(value) if isinstance(value, int) else value for key, value in document["message"].items()}
    return {**document, "message": message}

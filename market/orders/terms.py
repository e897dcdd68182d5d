"""Terms of a job: rules for a request, and the signed order. Pure."""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from market.chain.contracts.codec import Deployment
from market.domain.money import format_amount, max_deterred_unit_price, max_disputable_unit_price, unit_price
from market.domain.network import BPS, HOUR_US, MAX_SPEEDUP, NetworkParameters, Tier
from market.orders.errors import BudgetBelowOneUnit, InvalidOrder, InvalidSpec
from market.orders.quote_advice import max_inner_steps
from market.orders.schemas import JobSpec, SubmitJob
from market.orders.signatures import require_signature
from market.platform.http.errors import UnknownTier
from training_gym.evaluate.extent import is_affordable
from training_gym.spec.config import MAX_PARAMETERS, TrainingSpec
from training_gym.spec.costs import GPU_ROOM_BYTES, unit_memory_bytes, unit_weight_us, usable_gpu_bytes
from training_gym.spec.errors import SpecError
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.messages import Domain, JobOrder, struct_hash, typed_data

MAX_UNITS = 10_000
_DAY_SECONDS = 86_400
_GB, _GIB = 10**9, 1 << 30  # tiers and requirements count the former, readers of memory use the latter
_UINT40, _UINT48, _UINT80, _UINT96 = (2**bits - 1 for bits in (40, 48, 80, 96))


@dataclass(frozen=True, slots=True)
class Terms:
    """Valid request: training specification, number and size of units, price limits."""

    spec: TrainingSpec
    spec_json: bytes  # canonical, as it is hashed and stored
    spec_hash: str
    spec_cid: str
    tier: Tier
    nodes: int
    units: int
    unit_weight_us: int
    sampling_bps: int
    budget_wei: int
    max_price_wei: int
    wait_until: datetime
    min_mflops: int

    @property
    def unit_seconds(self) -> float:
        """Duration of one unit at the tier's reference speed, on the GPUs that it uses."""
        return _seconds(self.tier, self.unit_weight_us)

    def order(self, payer: str, nonce: int) -> JobOrder:
        """Return the order that ``payer`` signs. Its struct hash is the job's id."""
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


def order_document(order: JobOrder, deployment: Deployment) -> dict[str, Any]:
    """Return the EIP-712 document of an order for the escrow contract."""
    return typed_data(Domain(deployment.chain_id, deployment.address("JobEscrow")), order)


@dataclass(frozen=True, slots=True)
class SignedTerms:
    """Terms with the payer's valid signature over their order.

    ``covered_wei`` bounds the budgets of all the payer's orders (``Funds.covered_wei``); 0 until it is read.
    """

    request: SubmitJob
    terms: Terms
    order: JobOrder
    job_id: str
    order_signature: str
    covered_wei: int = 0


def parse_terms(
    request: JobSpec,
    network: NetworkParameters,
    now: datetime,
    longest_round_seconds: float = math.inf,
    max_parameters: int = MAX_PARAMETERS,
) -> Terms:
    """Check a request against all rules that need neither chain nor storage.

    Args:
        longest_round_seconds: a round that takes longer fails its job.
        max_parameters: parameters that a job of this market may train.

    Raises:
        InvalidSpec, UnknownTier, InvalidOrder, BudgetBelowOneUnit: with the field and a remedy.
    """
    canonical = _canonical(request)
    spec, tier = canonical.spec, _tier(request.tier, network)
    _require_size(spec, max_parameters)
    _require_memory(spec, tier, request.requirements.min_gpu_memory_gb)
    _require_evaluation(spec)
    units = spec.training.rounds * request.nodes
    if units > MAX_UNITS:
        raise InvalidOrder(
            f"{spec.training.rounds} rounds on {request.nodes} nodes are {units} units; expected at most {MAX_UNITS}.",
            field="training_config.rounds",
            remedy="Take fewer rounds with more inner_steps, or fewer nodes.",
        )
    for name, amount, limit in (
        ("budget_max", request.budget_max, _UINT96),
        ("max_price", request.max_price, _UINT80),
    ):
        if not 0 < amount <= limit:
            raise InvalidOrder(f"{name} is {amount} wei.", field=name, remedy=f"Give an amount from 1 to {limit} wei.")
    weight = unit_weight_us(spec, tier.gpus, tier.reference_flops_per_gpu.of(spec.training.precision))
    sampling_bps = _min_sampling_bps(request, network)
    _require_end_before_refund(spec, _seconds(tier, weight), network)
    _require_one_unit(request, tier, weight)
    _require_stake_covers_gain(request, tier, weight, spec.segments, sampling_bps)
    _require_fee_covers_replay(request, weight, spec.segments, network.disputes.referee_fee_wei)
    terms = Terms(
        spec=spec,
        spec_json=canonical.json,
        spec_hash=canonical.hash,
        spec_cid=canonical.cid,
        tier=tier,
        nodes=request.nodes,
        units=units,
        unit_weight_us=weight,
        sampling_bps=sampling_bps,
        budget_wei=request.budget_max,
        max_price_wei=request.max_price,
        wait_until=_wait_until(request.wait_until, now),
        min_mflops=_min_mflops(tier, weight, longest_round_seconds),
    )
    _require_unit_in_time(terms, longest_round_seconds)
    return terms


def sign_terms(request: SubmitJob, terms: Terms, payer: str, deployment: Deployment) -> SignedTerms:
    """Check the payer's signature over the order, which is rebuilt from the terms.

    Raises:
        InvalidSignature.
    """
    order = terms.order(payer, request.nonce)
    signature = require_signature(payer, order_document(order, deployment), request.order_signature, "order_signature")
    return SignedTerms(request, terms, order, struct_hash(order), signature)


class _Canonical(NamedTuple):
    spec: TrainingSpec
    json: bytes
    hash: str
    cid: str


def _canonical(request: JobSpec) -> _Canonical:
    return _canonical_of(json.dumps(request.sections()), request.nodes)


@lru_cache(256)  # many jobs share a specification; refusals are not cached
def _canonical_of(sections: str, nodes: int) -> _Canonical:
    try:
        spec = TrainingSpec.from_dict(json.loads(sections), nodes)
    except SpecError as error:
        raise InvalidSpec(str(error), field=error.field, extra={"reason": error.code}) from error
    if spec.training.averaging != "rounds":
        raise InvalidSpec(
            "training_config.averaging is 'steps'; expected 'rounds'. A unit of per-step averaging depends on the "
            "gradients of other nodes, so it cannot be replayed alone.",
            field="training_config.averaging",
            remedy="Choose the method default, slow_links, sparseloco or diloco, and omit averaging. Per-step "
            "averaging, as of ddp and powersgd, runs on your own machines.",
            extra={"reason": "not_verifiable"},
        )
    if spec.training.powersgd_rank:  # from_dict accepts it, because it also reads jobs of earlier versions
        raise InvalidSpec(
            f"training_config.powersgd_rank is {spec.training.powersgd_rank}; expected 0. Averaging 'rounds' sends no "
            "gradient factors.",
            field="training_config.powersgd_rank",
            remedy="Omit powersgd_rank. The settings top_k and value_bits compress payloads.",
            extra={"reason": "unused_setting"},
        )
    canonical = spec.to_json()
    return _Canonical(spec, canonical, spec.spec_hash(canonical), str(cid_of_file(canonical)))


def _tier(name: str, network: NetworkParameters) -> Tier:
    try:
        return network.tier(name)
    except KeyError:
        known = ", ".join(tier.name for tier in network.tiers)
        raise UnknownTier(
            f"tier is {name!r}; expected a tier of this network.", field="tier", remedy=f"Choose one of: {known}."
        ) from None


def _min_sampling_bps(request: JobSpec, network: NetworkParameters) -> int:
    # Stakes cover no lower rate than the network's floor. Replay rewards are planned for no rate above the newcomers'
    # (decision 2).
    lowest, highest = network.sampling_floor_bps, network.newcomer_sampling_bps
    wanted = lowest if request.sampling_bps is None else request.sampling_bps
    if not lowest <= wanted <= highest:
        raise InvalidOrder(
            f"sampling_bps is {wanted}; this network draws from {lowest} to {highest}.",
            field="sampling_bps",
            remedy=f"Give a rate from {lowest} to {highest} basis points, or omit it for {lowest}.",
        )
    return wanted


def _require_size(spec: TrainingSpec, max_parameters: int) -> None:
    trained = spec.num_parameters()
    if trained > max_parameters:
        raise InvalidSpec(
            f"The job trains {trained} parameters; this market allows {max_parameters}.",
            field="model_config.hidden_size",
            remedy="Take a smaller model, or train an adapter on it.",
            extra={"reason": "out_of_range"},
        )


def promised_memory_bytes(tier: Tier, required_gb: float) -> int:
    """Return the memory in bytes that tier and requirements promise to a unit on each GPU."""
    promised = round(max(tier.gpu_memory_gb, required_gb) * _GB)
    return usable_gpu_bytes(promised) if tier.needs_gpus else promised


def _require_memory(spec: TrainingSpec, tier: Tier, required_gb: float) -> None:
    """Refuse units beyond the GPU memory that the tier and the requirements promise."""
    needed, promised = unit_memory_bytes(spec), promised_memory_bytes(tier, required_gb)
    room = GPU_ROOM_BYTES if tier.needs_gpus else 0
    if needed > promised:
        raise InvalidOrder(
            f"One unit needs {needed / _GIB:.2f} GiB; each GPU of tier {tier.name} has {promised / _GIB:.2f} GiB "
            "for it.",
            field="tier",
            remedy="Set training_config.micro_batch_size below batch_size, shorten model_config.sequence_length, train "
            "an adapter, take a tier with more memory, or set requirements.min_gpu_memory_gb to "
            f"{-(-(needed + room) // _GB)} or more.",
            extra={"reason": "unit_too_large"},
        )


def _require_evaluation(spec: TrainingSpec) -> None:
    """Refuse a job that pays too little for the evaluation of its first and its final model."""
    if not is_affordable(spec):
        raise InvalidOrder(
            "The job trains less than 50 times what an evaluation of two samples takes.",
            field="training_config.rounds",
            remedy="Train more rounds or larger batches, or shorten model_config.sequence_length.",
            extra={"reason": "too_little_training"},
        )


def _seconds(tier: Tier, weight: int) -> float:
    return weight / (tier.gpus * 10**6)


def require_aggregation_memory(needed: int, available: int) -> None:
    """Refuse rounds beyond the smallest worker's bytes. Raises InvalidOrder."""
    if needed > available:
        raise InvalidOrder(
            f"Aggregating a round needs {needed / _GIB:.2f} GiB; this market's smallest worker has "
            f"{available / _GIB:.2f} GiB.",
            field="model_config",
            remedy="Take a smaller model, train an adapter, or take fewer nodes.",
            extra={"reason": "aggregation_too_large"},
        )


def _wait_until(wanted: datetime, now: datetime) -> datetime:
    whole = wanted.astimezone(UTC).replace(microsecond=0)
    if not now < whole or whole.timestamp() > _UINT40:
        raise InvalidOrder(
            f"wait_until is {wanted.isoformat()}, now is {now.isoformat(timespec='seconds')}.",
            field="wait_until",
            remedy="Give a future time with its time zone, such as an hour from now.",
        )
    return whole


def _min_mflops(tier: Tier, weight: int, longest_round_seconds: float) -> int:
    """Return the benchmark speed that a unit in time needs; 0: every node of the tier has it.

    A node of the lowest benchmark speed counts as one of the reference speed, a faster one in proportion.
    """
    needed = _seconds(tier, weight) / longest_round_seconds
    return math.ceil(tier.benchmark.min_mflops * needed) if needed > 1 else 0


def _require_unit_in_time(terms: Terms, longest_round_seconds: float) -> None:
    """Refuse units that no node can finish in time; the quote advises on slow nodes."""
    seconds = terms.unit_seconds
    fastest = seconds / MAX_SPEEDUP
    if fastest > longest_round_seconds:
        steps = max_inner_steps(terms.spec, seconds, longest_round_seconds)
        raise InvalidOrder(
            f"One unit takes {seconds:.4g} s at the reference speed of {terms.tier.name}, and {fastest:.4g} s at "
            f"{MAX_SPEEDUP} times that speed. A round longer than {longest_round_seconds:.4g} s fails its job.",
            field="training_config.inner_steps",
            remedy="Take a faster tier, a smaller batch_size, or fewer inner_steps per round: "
            f"with {steps} a node of the reference speed is in time.",
            extra={"reason": "unit_too_long"},
        )


def _require_end_before_refund(spec: TrainingSpec, unit_seconds: float, network: NetworkParameters) -> None:
    """Refuse jobs that, started at wait_until, would end after their escrow becomes refundable."""
    seconds, longest = spec.training.rounds * unit_seconds, network.longest_training_seconds
    if seconds > longest:
        raise InvalidOrder(
            f"{spec.training.rounds} rounds take {seconds / _DAY_SECONDS:.3g} days at the tier's reference speed; "
            f"expected at most {longest / _DAY_SECONDS:.3g} days after wait_until. Later, the escrow could be refunded "
            "before settlement.",
            field="training_config.rounds",
            remedy=f"Take at most {max(1, int(longest / unit_seconds))} rounds (fewer epochs) and extend the job later "
            "(`zoo-compute job extend`, POST /v1/jobs/{id}/extend), more nodes with fewer inner_steps each, or a "
            "faster tier.",
            extra={"reason": "job_too_long"},
        )


def _require_one_unit(request: JobSpec, tier: Tier, weight: int) -> None:
    unit = unit_price(request.max_price, weight)
    if unit == 0:
        lowest = -(-BPS * HOUR_US // weight)
        raise InvalidOrder(
            f"At max_price one unit costs less than {BPS} wei, the smallest payable amount.",
            field="max_price",
            remedy=f"Give at least {format_amount(lowest)} per GPU-hour. The reserve of {tier.name} is "
            f"{format_amount(tier.reserve_price_wei)}.",
        )
    if request.budget_max < unit:
        raise BudgetBelowOneUnit(
            f"budget_max is {format_amount(request.budget_max)}; one unit costs {format_amount(unit)} at max_price.",
            field="budget_max",
            remedy=f"Give at least {format_amount(unit)}, better the cost of all units, or lower max_price.",
        )


def _require_stake_covers_gain(request: JobSpec, tier: Tier, weight: int, segments: int, sampling_bps: int) -> None:
    """Apply the escrow's rule: the penalty for a false segment exceeds the gain."""
    unit = unit_price(request.max_price, weight)
    limit = max_deterred_unit_price(tier.min_fraud_penalty_wei, segments, sampling_bps)
    if weight > _UINT48 or unit > limit:
        raise InvalidOrder(
            f"One unit costs {format_amount(unit)} at max_price; expected at most {format_amount(limit)}. The penalty "
            f"of tier {tier.name}, {format_amount(tier.min_fraud_penalty_wei)}, deters false work up to that price.",
            field="training_config.inner_steps",
            remedy="Take fewer inner_steps in each round, a lower max_price, or a tier with a higher stake.",
            extra={"reason": "stake_below_gain"},
        )


def _require_fee_covers_replay(request: JobSpec, weight: int, segments: int, referee_fee_wei: int) -> None:
    """Apply the market's rule: the fixed referee fee covers the replay of one disputed segment."""
    unit = unit_price(request.max_price, weight)
    limit = max_disputable_unit_price(referee_fee_wei, segments)
    if unit > limit:
        raise InvalidOrder(
            f"One unit of {segments} segments costs {format_amount(unit)} at max_price; expected at most "
            f"{format_amount(limit)}. A referee that replays one segment in a dispute is paid "
            f"{format_amount(referee_fee_wei)}.",
            field="training_config.segment_steps",
            remedy="Take fewer segment_steps, so that a unit has more segments, fewer inner_steps in each round, or a "
            "lower max_price.",
            extra={"reason": "segment_above_referee_fee"},
        )

"""Quotes: the cost of a job's terms and the documents to sign. Pure."""

from collections.abc import Iterator

from market.chain.contracts.codec import Deployment
from market.domain.money import format_zen, unit_price
from market.domain.network import NetworkParameters
from market.jobs.pricing import highest_price
from market.orders.quote_advice import Advice, advice_on, expected_throughput, rate_schedule
from market.orders.schemas import JobSpec, Quote
from market.orders.signatures import wallet_form
from market.orders.terms import Terms, order_document, promised_memory_bytes
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import gpus_in_use, unit_memory_bytes
from training_gym.spec.defaults import settings_by_size
from training_gym.spec.methods import Start
from zoo_protocol.verification.rules import sampling_rate_bps
from zoo_protocol.verification.sampling import detection_at_rate


def quote(
    request: JobSpec,
    terms: Terms,
    payer: str,
    deployment: Deployment,
    *,
    available_wei: int,
    network: NetworkParameters,
    longest_round_seconds: float,
    last_price_wei: int | None,
    nodes_of_tier: int,
    epochs: float,
    nonce: int,
) -> Quote:
    """Price a job's terms and build the order that its payer signs.

    Args:
        available_wei: wei of the payer's balance that no other order takes.
        longest_round_seconds: a round that takes longer fails its job.
        last_price_wei: price per GPU-hour of the tier's last trade.
        nodes_of_tier: number of active nodes of the tier.
        epochs: how often the job reads its training split.
    """
    best = highest_price(terms.budget_wei, terms.max_price_wei, terms.units, terms.unit_weight_us)
    at_reserve = unit_price(terms.tier.reserve_price_wei, terms.unit_weight_us)
    at_last = None if last_price_wei is None else unit_price(last_price_wei, terms.unit_weight_us) * terms.units
    throughput = expected_throughput(terms.spec, terms.nodes, terms.unit_seconds)
    newcomer = network.newcomer_sampling_bps
    first_rate = sampling_rate_bps(0, newcomer, terms.sampling_bps, attested=request.requirements.attested_only)
    return Quote(
        spec=terms.spec.to_dict(),
        spec_hash=terms.spec_hash,
        settings_by_size=settings_by_size(terms.spec.model, request.training_settings, terms.nodes, _start(terms.spec)),
        rate_schedule=rate_schedule(terms.spec),
        advice=[
            *_no_trade(terms, nodes_of_tier),
            *advice_on(terms.spec, throughput, longest_round_seconds, terms.tier.gpus, epochs),
        ],
        tier=terms.tier.name,
        units=terms.units,
        unit_weight_us=terms.unit_weight_us,
        gpus=terms.tier.gpus,
        gpus_in_use=gpus_in_use(terms.spec, terms.tier.gpus),
        segments_per_unit=terms.spec.segments,
        validation_samples=terms.spec.validation_samples,
        flops_per_gpu=terms.tier.reference_flops_per_gpu.of(terms.spec.training.precision),
        peak_share_bps=terms.tier.reference_share_bps,
        min_mflops=terms.min_mflops,
        unit_memory_bytes=unit_memory_bytes(terms.spec),
        node_memory_bytes=promised_memory_bytes(terms.tier, request.requirements.min_gpu_memory_gb),
        unit_price_at_reserve_wei=at_reserve,
        unit_price_at_max_price_wei=unit_price(terms.max_price_wei, terms.unit_weight_us),
        cost_at_reserve_wei=at_reserve * terms.units,
        cost_at_max_price_wei=unit_price(best, terms.unit_weight_us) * terms.units,
        cost_at_last_price_wei=at_last,
        last_price_wei=last_price_wei,
        highest_payable_price_wei=best,
        reserve_price_wei=terms.tier.reserve_price_wei,
        fee_bps=network.fee_bps,
        newcomer_sampling_bps=newcomer,
        sampling_bps=terms.sampling_bps,
        detection_probability=detection_at_rate(terms.spec.segments, 1, first_rate),
        least_detection_probability=detection_at_rate(terms.spec.segments, 1, terms.sampling_bps),
        expected_seconds=terms.spec.training.rounds * terms.unit_seconds,
        expected_throughput=throughput,
        nonce=nonce,
        order=wallet_form(order_document(terms.order(payer, nonce), deployment)),
        balance_wei=max(0, available_wei),
        deposit_needed_wei=max(0, terms.budget_wei - available_wei),
    )


def _start(spec: TrainingSpec) -> Start:
    return "random" if spec.base is None else "adapter" if spec.adapter else "base"


def _no_trade(terms: Terms, nodes_of_tier: int) -> Iterator[Advice]:
    """Yield the reasons for which the job would not trade, with the values at which it would."""
    tier, reserve = terms.tier.name, terms.tier.reserve_price_wei
    needed = unit_price(reserve, terms.unit_weight_us) * terms.units
    if terms.max_price_wei < reserve:
        yield Advice(
            code="price_below_reserve",
            detail=f"Will not trade: max_price is {format_zen(terms.max_price_wei)} ZEN per GPU-hour.",
            remedy=f"Set max_price to at least {format_zen(reserve)}, the reserve price of {tier}.",
            field="max_price",
        )
    if terms.budget_wei < needed:
        yield Advice(
            code="budget_too_small",
            detail=f"Will not trade: budget_max is {format_zen(terms.budget_wei)} ZEN.",
            remedy=f"Set budget_max to at least {format_zen(needed)}, the cost at the reserve price of {tier}.",
            field="budget_max",
        )
    if terms.nodes > nodes_of_tier:
        yield Advice(
            code="too_few_nodes",
            detail=f"Will not trade now: it takes {terms.nodes} nodes, and {nodes_of_tier} of tier {tier} are active.",
            remedy=f"Set nodes to at most {nodes_of_tier}, take another tier, or wait.",
            field="nodes",
        )

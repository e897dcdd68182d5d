"""The arithmetic of quotes."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from market.domain.money import unit_price
from market.domain.network import BPS, HOUR_US, MAINNET, ZEN
from market.jobs.pricing import highest_price
from market.orders.errors import InvalidOrder
from market.orders.quote_advice import advice_on, expected_throughput, rate_schedule
from market.orders.schemas import JobSpec
from market.orders.terms import parse_terms
from training_gym.data.dataset import DatasetManifest, Shard
from training_gym.data.epochs import epochs_of
from training_gym.spec.config import TrainingSpec
from training_gym.spec.costs import fitting_count, flops_per_unit
from zoo_protocol.verification.sampling import detection_at_rate

NOW = datetime(2026, 1, 1, tzinfo=UTC)
amounts = st.integers(1, 2**96 - 1)


@given(budget=amounts, max_price=amounts, units=st.integers(1, 10_000), weight=st.integers(1, 2**64 - 1))
def test_highest_payable_price_is_maximum(budget: int, max_price: int, units: int, weight: int) -> None:
    best = highest_price(budget, max_price, units, weight)
    assert best <= max_price
    assert units * unit_price(best, weight) <= budget
    assert best == max_price or units * unit_price(best + 1, weight) > budget


@pytest.mark.parametrize(("segments", "rate_bps"), [(4, 2500), (8, 2500), (3, 2500), (10, 200), (1, 10_000)])
def test_detection_probability_matches_sampling(segments: int, rate_bps: int) -> None:
    whole, fraction = divmod(segments * rate_bps, 10_000)

    def share(drawn: int) -> float:
        draws = list(combinations(range(segments), drawn))
        return sum(0 in draw for draw in draws) / len(draws)

    expected = share(whole) + (share(min(whole + 1, segments)) - share(whole)) * fraction / 10_000
    assert detection_at_rate(segments, 1, rate_bps) == pytest.approx(expected)


def _request(
    tier: str,
    segments: int,
    max_price: int,
    inner_steps: int = 64,
    rounds: int = 1,
    precision: str = "bfloat16",
    shards: int | None = None,
) -> JobSpec:
    """Job that uses all GPUs of the tier, unless ``shards`` says otherwise."""
    steps = {"rounds": rounds, "inner_steps": inner_steps, "segment_steps": inner_steps // segments}
    steps["gradient_shards"] = MAINNET.tier(tier).gpus if shards is None else shards
    return JobSpec.model_validate(
        {
            "model_config": {
                "hidden_size": 1_536,
                "num_hidden_layers": 12 if tier == "iron" else 17,
                "num_attention_heads": 12,
                "sequence_length": 2_048,
            },
            "data_config": {"dataset": "b" * 59},
            "training_config": steps | {"batch_size": 512, "micro_batch_size": 1, "precision": precision},
            "tier": tier,
            "nodes": 1,
            "budget_max": str(2**90),
            "max_price": str(max_price),
            "wait_until": NOW + timedelta(hours=1),
        }
    )


def _dearest(tier: str, segments: int, unit_wei: int) -> int:
    """Highest price per GPU-hour at which a unit of such a job costs no more than that."""
    weight = parse_terms(_request(tier, segments, ZEN // 10), MAINNET, NOW).unit_weight_us
    limit = unit_wei - unit_wei % BPS + BPS
    return (limit * HOUR_US - 1) // weight


@pytest.mark.parametrize("segments", [1, 4, 64])
@pytest.mark.parametrize(
    ("tier", "segment_wei", "reason"),
    [
        # half of 1,000 ZEN, of which 66 % count, 2 % of a unit's segments sampled
        ("bronze", Fraction(500 * ZEN * 66 * 2, 100 * 98), "stake_below_gain"),
        ("silver", Fraction(10 * ZEN), "segment_above_referee_fee"),
        ("gold", Fraction(10 * ZEN), "segment_above_referee_fee"),
        ("iron", Fraction(500 * ZEN * 66 * 2, 100 * 98), "stake_below_gain"),
    ],
)
def test_most_expensive_order_of_tier_is_limit(tier: str, segment_wei: Fraction, reason: str, segments: int) -> None:
    """Bronze and Iron are bound by their stake, other tiers by the referees' fee for a replay."""
    most = int(segments * segment_wei)
    price = _dearest(tier, segments, most)
    taken = parse_terms(_request(tier, segments, price), MAINNET, NOW)
    assert most - BPS < unit_price(price, taken.unit_weight_us) <= most
    with pytest.raises(InvalidOrder) as refused:
        parse_terms(_request(tier, segments, price + 1), MAINNET, NOW)
    problem = refused.value
    assert problem.extra == {"reason": reason}
    assert str(most) in str(problem)
    assert problem.field is not None
    assert problem.field.startswith("training_config.")
    assert "max_price" in problem.remedy


def test_refused_segment_error_names_fee_and_remedy() -> None:
    price = _dearest("gold", 4, 40 * ZEN) + 1
    with pytest.raises(InvalidOrder, match=rf"is paid 10 ZEN \({10 * ZEN} wei\)") as refused:
        parse_terms(_request("gold", 4, price), MAINNET, NOW)
    assert refused.value.field == "training_config.segment_steps"
    assert parse_terms(_request("gold", 8, price), MAINNET, NOW).spec.segments == 8


def test_training_too_short_for_an_evaluation_is_refused() -> None:
    """Else the market would evaluate this model for days, for a unit of 0.01 ZEN."""
    request = _request("iron", 1, ZEN)
    sizes = {"hidden_size": 64, "num_hidden_layers": 128, "num_attention_heads": 1, "sequence_length": 131_072}
    few = {"rounds": 1, "inner_steps": 1, "segment_steps": 1, "batch_size": 1, "activation_checkpointing": True}
    training = request.training_settings | few | {"optimizer": "adamw"}
    request = request.model_copy(update={"model_settings": sizes, "training_settings": training})
    with pytest.raises(InvalidOrder, match="less than 50 times what an evaluation of two samples takes") as refused:
        parse_terms(request, MAINNET, NOW)
    assert (refused.value.field, refused.value.extra) == ("training_config.rounds", {"reason": "too_little_training"})


@pytest.mark.parametrize(("asked", "rate"), [(None, 200), (200, 200), (201, 201), (2_500, 2_500)])
def test_job_has_own_minimum_sampling_rate(asked: int | None, rate: int) -> None:
    request = _request("bronze", 4, ZEN // 10).model_copy(update={"sampling_bps": asked})
    found = parse_terms(request, MAINNET, NOW)
    assert (found.sampling_bps, found.order("0x" + "11" * 20, 1).samplingBps) == (rate, rate)


@pytest.mark.parametrize("asked", [1, 199, 2_501, 10_000])
def test_sampling_rate_outside_bounds_is_refused(asked: int) -> None:
    request = _request("bronze", 4, ZEN // 10).model_copy(update={"sampling_bps": asked})
    with pytest.raises(InvalidOrder, match=f"sampling_bps is {asked}; this network draws from 200 to 2500") as refused:
        parse_terms(request, MAINNET, NOW)
    assert refused.value.field == "sampling_bps"


def test_higher_rate_allows_more_expensive_units() -> None:
    """P d N s >= R (1 - s): the escrow contract's bound at the order's own rate."""
    price = _dearest("bronze", 4, 4 * 500 * ZEN * 66 * 2 // (100 * 98)) + 1
    request = _request("bronze", 4, price)
    with pytest.raises(InvalidOrder, match="deters false work up to"):
        parse_terms(request, MAINNET, NOW)
    assert parse_terms(request.model_copy(update={"sampling_bps": 201}), MAINNET, NOW).sampling_bps == 201


@pytest.mark.parametrize("tier", [tier.name for tier in MAINNET.tiers])
def test_every_specification_is_affordable_at_reserve_price(tier: str) -> None:
    """Not the longest round of the largest model, if only its unit has the most segments."""
    found = parse_terms(_request(tier, 64, MAINNET.tier(tier).reserve_price_wei, inner_steps=9_984), MAINNET, NOW)
    assert found.unit_weight_us > 10 * HOUR_US


def test_many_epochs_are_pointed_out() -> None:
    start = {"start_checkpoint": "Qm" + "c" * 44, "start_round": 10}
    dataset = {"dataset": "Qm" + "a" * 44, "replicas": 4, **start}
    training = {"rounds": 30, "inner_steps": 10, "segment_steps": 10, "batch_size": 32}
    spec = TrainingSpec.from_dict({"data_config": dataset, "training_config": training})
    expected = expected_throughput(spec, 4, compute_seconds=1000.0)
    for samples, codes in ((3_200, []), (3_000, ["many_epochs"])):
        shard = Shard("Qm" + "b" * 44, samples * spec.model.sequence_length + 1, "0x" + "11" * 32)
        epochs = epochs_of(spec, DatasetManifest((shard,), (shard,)))
        assert epochs == 40 * 10 * 32 * 4 / samples
        assert [point.code for point in advice_on(spec, expected, epochs=epochs)] == codes


@pytest.mark.parametrize(
    ("training", "codes"),
    [
        ({"rounds": 8}, []),  # every entry is sent
        ({"rounds": 63, "method": "slow_links"}, ["few_rounds"]),
        ({"rounds": 64, "method": "slow_links"}, []),
        ({"rounds": 63, "method": "sparseloco"}, []),  # nodes fetch the whole model
    ],
)
def test_few_sparse_rounds_are_pointed_out(training: dict[str, object], codes: list[str]) -> None:
    settings = {"batch_size": 32, **training}
    spec = TrainingSpec.from_dict({"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": settings})
    found = advice_on(spec, expected_throughput(spec, 4, compute_seconds=1000.0))
    assert [point.code for point in found] == codes
    if found:
        assert "at most 98.4% of the model" in found[0].detail
        assert "at least 64 rounds" in found[0].remedy


def test_job_waiting_more_than_training_is_warned() -> None:
    document = {"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": {"batch_size": 32}}
    spec = TrainingSpec.from_dict(document)
    for compute, codes in ((10.0, []), (0.1, ["low_throughput"])):
        expected = expected_throughput(spec, 4, compute)
        found = advice_on(spec, expected)
        assert [point.code for point in found] == codes
        assert (expected.share_of_ideal < 0.5) == bool(codes)
    assert f"{expected.share_of_ideal:.0%} of the throughput" in found[0].detail
    assert "round_delay 1" in found[0].remedy


@pytest.mark.parametrize(
    ("seconds", "codes"), [(299.0, []), (301.0, ["long_units"]), (900.0, ["long_units"]), (9_000.0, ["long_units"])]
)
def test_late_units_of_slow_nodes_are_warned(seconds: float, codes: list[str]) -> None:
    training = {"inner_steps": 90, "segment_steps": 10, "batch_size": 32}
    spec = TrainingSpec.from_dict({"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": training})
    found = advice_on(spec, expected_throughput(spec, 4, seconds), longest_round_seconds=900.0)
    assert [point.code for point in found] == codes
    if found:
        fewer = {301.0: 80, 900.0: 30, 9_000.0: 10}[seconds]  # whole segments; one at least
        assert f"at most {fewer} inner_steps" in found[0].remedy
        assert advice_on(spec, expected_throughput(spec, 4, seconds * fewer / 90), 900.0) == [] or seconds > 2_700


def test_impossible_unit_is_refused() -> None:
    request = _request("bronze", 64, ZEN)
    found = parse_terms(request, MAINNET, NOW)
    parse_terms(request, MAINNET, NOW, found.unit_seconds / 10)
    with pytest.raises(InvalidOrder) as refused:
        parse_terms(request, MAINNET, NOW, found.unit_seconds / 10 - 0.01)
    assert refused.value.field == "training_config.inner_steps"
    assert refused.value.extra["reason"] == "unit_too_long"
    assert "with 6 a node of the reference speed is in time" in str(refused.value.remedy)


def test_fitting_count_divides_shards() -> None:
    assert [fitting_count(8, available) for available in (1, 2, 3, 5, 8, 9)] == [1, 2, 2, 4, 8, 8]
    assert fitting_count(2, 8) == 2


@pytest.mark.parametrize("tier", [tier.name for tier in MAINNET.tiers])
def test_weight_follows_precision_of_job(tier: str) -> None:
    peak = MAINNET.tier(tier).peak_flops_per_gpu
    half, full = (
        parse_terms(_request(tier, 64, ZEN // 100, precision=name), MAINNET, NOW).unit_weight_us
        for name in ("bfloat16", "float32")
    )
    assert full / half == pytest.approx(peak.bfloat16 / peak.float32, rel=1e-6)


@pytest.mark.parametrize(("tier", "shares"), [("iron", [1, 1, 1, 1]), ("bronze", [4, 2, 1, 1]), ("gold", [8, 4, 2, 1])])
def test_unit_weight_counts_idle_gpus(tier: str, shares: list[int]) -> None:
    found = [parse_terms(_request(tier, 64, ZEN // 10, shards=shards), MAINNET, NOW) for shards in (1, 2, 4, 8)]
    least = flops_per_unit(found[-1].spec) / MAINNET.tier(tier).reference_flops_per_gpu.bfloat16
    assert [one.unit_weight_us / least / 10**6 for one in found] == pytest.approx(shares)
    fastest = least / MAINNET.tier(tier).gpus
    assert [one.unit_seconds / fastest for one in found] == pytest.approx(shares)
    assert found[0].order("0x" + "11" * 20, 1).unitWeight == found[0].unit_weight_us


@pytest.mark.parametrize(
    ("settings", "gpus", "remedy"),
    [
        ({}, 1, None),
        ({"gradient_shards": 8}, 4, None),
        ({"gradient_shards": 2}, 8, "Set gradient_shards to 8: a unit then takes and costs 1/4."),
        ({"batch_size": 6}, 4, "Make batch_size, now 6, a multiple of 4. Set gradient_shards to 4"),
    ],
)
def test_quote_advises_on_idle_gpus(settings: dict[str, object], gpus: int, remedy: str | None) -> None:
    spec = TrainingSpec.from_dict({"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": settings})
    found = advice_on(spec, expected_throughput(spec, 4, compute_seconds=100.0), gpus=gpus)
    idle = [point for point in found if point.code == "idle_gpus"]
    assert [point.remedy.startswith(remedy or "") for point in idle] == ([] if remedy is None else [True])


@pytest.mark.parametrize(
    ("model", "batch", "nodes", "remedy"),
    [
        ({}, 32, 4, None),  # 2,048 tokens
        ({}, 8, 1, None),
        ({"hidden_size": 1024, "num_hidden_layers": 4}, 8, 8, None),
        ({}, 32, 8, "Take 4 nodes with a batch_size of 64: as many tokens for about the same price, in 2 times"),
        ({}, 16, 4, "Take 2 nodes with a batch_size of 32"),
        ({}, 3, 5, "Take 1 node with a batch_size of 15"),
        ({}, 32, 3, None),
    ],
)
def test_quote_advises_on_small_batches(model: dict[str, object], batch: int, nodes: int, remedy: str | None) -> None:
    document = {"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": {"batch_size": batch}}
    spec = TrainingSpec.from_dict(document | {"model_config": model})
    found = advice_on(spec, expected_throughput(spec, nodes, compute_seconds=100.0))
    assert [point.code for point in found] == ([] if remedy is None else ["small_batches"])
    assert all(point.remedy.startswith(remedy or "") for point in found)


@pytest.mark.parametrize(
    ("batch", "shards", "nodes", "remedy"),
    [(40, 8, 5, "Take 4 nodes with a batch_size of 56"), (1024, 1, 64, "Take 16 nodes with a batch_size of 4096")],
)
def test_advised_batch_is_a_valid_one(batch: int, shards: int, nodes: int, remedy: str) -> None:
    settings = {"batch_size": batch, "gradient_shards": shards}
    spec = TrainingSpec.from_dict({"data_config": {"dataset": "Qm" + "a" * 44}, "training_config": settings})
    found = advice_on(spec, expected_throughput(spec, nodes, compute_seconds=100.0))
    assert found[0].remedy.startswith(remedy)


def test_long_unit_needs_faster_node_in_proportion() -> None:
    request = _request("bronze", 64, ZEN)
    seconds = parse_terms(request, MAINNET, NOW).unit_seconds
    needed = [parse_terms(request, MAINNET, NOW, seconds / speedup).min_mflops for speedup in (0.5, 1, 1.5, 4)]
    lowest = MAINNET.tier("bronze").benchmark.min_mflops
    assert needed == [0, 0, pytest.approx(1.5 * lowest, abs=1), pytest.approx(4 * lowest, abs=1)]


def test_job_outlasting_escrow_is_refused_with_max_rounds() -> None:
    def asked(rounds: int) -> JobSpec:
        return _request("bronze", 64, ZEN // 10, inner_steps=9_984, rounds=rounds)

    most = int(45 * 86_400 / parse_terms(asked(1), MAINNET, NOW).unit_seconds)
    assert most > 10
    assert parse_terms(asked(most), MAINNET, NOW).units == most
    with pytest.raises(InvalidOrder) as refused:
        parse_terms(asked(most + 1), MAINNET, NOW)
    assert refused.value.field == "training_config.rounds"
    assert refused.value.extra["reason"] == "job_too_long"
    assert f"at most {most} rounds" in str(refused.value.remedy)


_CID = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"


@pytest.mark.parametrize(
    ("training", "start", "expected"),
    [
        ({}, {}, "warm-up over 10 steps, then linear decay to 0% of the peak rates at step 144"),
        ({"final_rate_share": 1.0, "warmup_steps": 0}, {}, "warm-up over 0 steps, then constant"),
        ({"rounds": 2, "final_rate_share": 0.1}, {"start_model": _CID}, "anew"),
        ({}, {"start_checkpoint": _CID, "start_round": 8}, "fresh optimiser moments and error feedback"),
    ],
)
def test_quote_states_rate_schedule(training: dict[str, object], start: dict[str, object], expected: str) -> None:
    data = {"dataset": "x" * 46} | start
    spec = TrainingSpec.from_dict({"data_config": data, "training_config": training})
    assert rate_schedule(spec).endswith(expected)


def test_quote_states_rates_of_planned_continuation() -> None:
    data = {"dataset": "x" * 46, "start_checkpoint": _CID, "start_round": 4, "start_rate_share": 0.5}
    said = rate_schedule(TrainingSpec.from_dict({"data_config": data}))
    assert "linear change from 50% to 0% of the peak rates at step 144; continues with the checkpoint" in said
    assert "go on with round 5 of this size" in said
    said = rate_schedule(TrainingSpec.from_dict({"data_config": data, "training_config": {"final_rate_share": 0.5}}))
    assert "constant at 50% of the peak rates" in said

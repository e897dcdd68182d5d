"""The figures that the network was announced with, to the wei."""

import pytest

from market.domain.money import split, unit_price
from market.domain.network import DEVNET, HOUR_US, MAINNET, ZEN
from zoo_protocol.verification.sampling import detection_probability

PRICE = MAINNET.tier("bronze").reserve_price_wei


@pytest.mark.parametrize(("gpu_hours", "cost", "fee"), [(8_400, 21_000, 1_050), (960, 2_400, 120)])
@pytest.mark.parametrize("units_per_hour", [1, 4, 10_000])
def test_announced_trainings_have_published_cost(gpu_hours: int, cost: int, fee: int, units_per_hour: int) -> None:
    unit = unit_price(PRICE, HOUR_US // units_per_hour)
    money = split(cost * ZEN + 7, unit, gpu_hours * units_per_hour, MAINNET.fee_bps)
    assert (money.gross, money.fee, money.paid, money.refund) == (cost * ZEN, fee * ZEN, (cost - fee) * ZEN, 7)


@pytest.mark.parametrize(
    ("name", "gpus", "gpu_model", "ram_gb", "network_gbps", "uptime_bps", "price"),
    [
        ("bronze", 4, "A100 40GB", 256, 100, 9_500, 25 * ZEN // 10),
        ("silver", 8, "A100 80GB", 512, 200, 9_900, 4 * ZEN),
        ("gold", 8, "H100 80GB", 1_024, 400, 9_950, 8 * ZEN),
        ("iron", 1, "RTX 4080 16GB", 16, 0, 9_000, 78 * ZEN // 100),
    ],
)
def test_tiers_match_table(
    name: str, gpus: int, gpu_model: str, ram_gb: int, network_gbps: int, uptime_bps: int, price: int
) -> None:
    tier = MAINNET.tier(name)
    assert (tier.gpus, tier.gpu_model, tier.ram_gb, tier.network_gbps) == (gpus, gpu_model, ram_gb, network_gbps)
    assert (tier.uptime_sla_bps, tier.reserve_price_wei) == (uptime_bps, price)
    assert DEVNET.tier(name).reserve_price_wei == price
    assert MAINNET.fee_bps == DEVNET.fee_bps == 500


def test_iron_costs_as_bronze_per_operation() -> None:
    iron, bronze = MAINNET.tier("iron"), MAINNET.tier("bronze")
    share = iron.reference_flops_per_gpu.bfloat16 / bronze.reference_flops_per_gpu.bfloat16
    assert round(PRICE / ZEN * share, 2) * 100 == iron.reserve_price_wei * 100 / ZEN == 78
    assert iron.minimum_stake_wei == bronze.minimum_stake_wei


@pytest.mark.parametrize("name", [tier.name for tier in MAINNET.tiers])
def test_reference_speeds_are_stated_share_of_peak(name: str) -> None:
    tier = MAINNET.tier(name)
    peak, reference = tier.peak_flops_per_gpu, tier.reference_flops_per_gpu
    assert reference.float32 / peak.float32 == reference.bfloat16 / peak.bfloat16 == tier.reference_share_bps / 10_000


@pytest.mark.parametrize(("sampled", "percent"), [(1_000, 63.4), (5_000, 99.4)])
def test_hundred_false_steps_are_found_as_announced(sampled: int, percent: float) -> None:
    """At 1 % and 5 % of many steps, sampled without replacement."""
    assert round(100 * detection_probability(100_000, 100, sampled), 1) == percent

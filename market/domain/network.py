"""Network parameters: tiers, prices, stakes, fees, delays and penalties, one typed document per network.

``MAINNET`` holds the published numbers. ``DEVNET`` scales the hardware thresholds and the referees' committees down to
what a laptop runs, and changes nothing else about the rules.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

ZEN = 10**18  # wei of one ZEN
HOUR_US = 3_600_000_000  # microseconds of one GPU-hour
BPS = 10_000
"""Basis points in a whole. Unit prices are multiples of it, so that every fee in basis points is exact."""
ENDS_A_CHEAT = ("incorrect_computation", "withheld_data", "refused_data")
"""Rows of the penalty table. Silence and a refusal cost what a false step costs, or every cheat would choose them once
drawn."""
LEAST_CHEAT_PENALTY_BPS = 5_000
"""What they cost at least of everything at risk: a constant of the staking contract, on which orders count."""
EPOCH_SECONDS = 86_400
"""Length of an epoch, in which uptime is judged and for which rewards are paid; whole hours."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The hardware proof of work that earns a tier (``training_gym.hardware.challenge`` says what each part shows).

    ``size``, ``pool``, ``lanes``, ``rounds``, ``steps`` and ``opened`` are the work; ``min_mflops`` is the least rate
    of its chain (10**6 floating-point operations per second, over all lanes), ``min_walk_mbps`` of each lane's walk
    (10**6 bytes per second), ``min_upload_mbps`` that of the answer (10**6 bits per second). ``ready_seconds``: for the
    pools, before the market's clock runs; ``answer_seconds``: from the commitment to the answer.
    """

    size: int
    pool: int
    lanes: int
    rounds: int
    steps: int
    opened: int
    min_mflops: int
    min_walk_mbps: int
    min_upload_mbps: int
    ready_seconds: int
    answer_seconds: int


@dataclass(frozen=True, slots=True)
class Tier:
    """One row of the tier table.

    Memory in GB, network in Gbit/s, uptime in basis points, prices in wei per GPU-hour. ``needs_gpus``: no other device
    meets its benchmark.
    """

    id: int
    name: str
    gpu_model: str
    gpus: int
    gpu_memory_gb: int
    ram_gb: int
    network_gbps: int
    uptime_sla_bps: int
    reserve_price_wei: int
    minimum_stake_wei: int
    reference_flops_per_gpu: int
    benchmark: Benchmark
    needs_gpus: bool = True

    @property
    def least_cheat_penalty_wei(self) -> int:
        """What a cheat with no more than the tier's stake loses at least; ``leastCheatPenalty`` on chain."""
        return self.minimum_stake_wei * LEAST_CHEAT_PENALTY_BPS // BPS


@dataclass(frozen=True, slots=True)
class DisputeTerms:
    """What a challenge of a unit costs and how long its turns last. Amounts in wei, times in seconds.

    ``period`` is how long after its window's commitment a unit can be challenged; it must end before stakes can leave.
    """

    bond_wei: int
    cost_wei: int
    referee_fee_wei: int
    period_seconds: int
    turn_seconds: int
    verdict_seconds: int
    seed_delay_blocks: int
    seats: int
    quorum: int
    draws: int

    @property
    def longest(self) -> timedelta:
        """How long after its window's commitment a unit's last dispute may end: opened at the last moment, each of
        both parties' turns taken to its end, and every committee silent but the last."""
        return timedelta(seconds=self.period_seconds + 2 * self.turn_seconds + self.draws * self.verdict_seconds)


@dataclass(frozen=True, slots=True)
class OmissionTerms:
    """What the operator owes for an acknowledged commitment that it leaves out.

    Amounts in wei, times in seconds. The fields are those of the contract's struct, in its order.
    """

    deposit_wei: int
    compensation_wei: int
    claim_seconds: int
    answer_seconds: int
    withdraw_seconds: int


@dataclass(frozen=True, slots=True)
class NetworkParameters:
    """Everything that the rules of one network depend on. Delays in seconds, rates in basis points.

    ``replay_pay_bps``: what a verifier is paid for a replay, of the segment's share of its unit's gross price.
    ``replay_budget_bps``: what the replays of a post of rewards may be paid together, of the funds that are left.
    ``rebenchmark_mean_seconds``: between a passed benchmark and the next that is asked for, at a random time;
    ``rebenchmark_within_seconds``: by when it must be passed. ``benchmark_pause_seconds``: after a wrong answer, or one
    that was left out once it was known what to open.
    ``verdict_wait_seconds``: how long after a committee was drawn a quorum of it waits for the others' signatures.
    ``suspension_seconds``: how long a verifier is not drawn after the first time that two others overruled it.
    """

    name: str
    tiers: tuple[Tier, ...]
    fee_bps: int
    verifier_minimum_stake_wei: int
    unbonding_seconds: int
    refund_delay_seconds: int
    cancel_delay_seconds: int
    challenge_seconds: int
    token_cap_wei: int
    newcomer_sampling_bps: int
    sampling_floor_bps: int
    seed_delay_blocks: int
    disputes: DisputeTerms
    omissions: OmissionTerms
    timelock_seconds: int
    rebenchmark_mean_seconds: int
    benchmark_pause_seconds: int
    rebenchmark_within_seconds: int
    emission_yearly_wei: tuple[int, ...]
    base_apy_bps: int
    reward_epoch_seconds: int
    reward_delay_seconds: int
    bandwidth_wei_per_gib: int
    replay_pay_bps: int
    replay_budget_bps: int
    verdict_wait_seconds: int
    suspension_seconds: int
    attestation_seconds: int
    treasury_split_bps: tuple[tuple[str, int], ...]
    penalty_bps: tuple[tuple[str, int], ...]

    @property
    def longest_training_seconds(self) -> int:
        """How long after its ``wait_until`` a job may train. ``refund_delay_seconds`` after that anybody can have its
        escrow refunded, and what was delivered could not be paid: a quarter of that time is left to settle it.
        """
        return self.refund_delay_seconds * 3 // 4

    def tier(self, name: str) -> Tier:
        """The tier of that name.

        Raises:
            KeyError: if the network has no such tier.
        """
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise KeyError(name)

    def gpus_to_attest(self, tier_id: int | None, registered: int) -> int:
        """GPUs that a provider's attestation must cover: all that it registered, and no fewer than its tier stands for.

        What it registered is its own word, which is 0 as easily; that it has its tier's hardware it has proved.

        Args:
            tier_id: None as long as it has earned none.
        """
        of_tier = next((tier.gpus for tier in self.tiers if tier.id == tier_id and tier.needs_gpus), 0)
        return max(registered, of_tier)


MAINNET = NetworkParameters(
    name="mainnet",
    tiers=(
        # Each lane's pool fills two thirds of a device's memory. The rates are a fraction of what such devices reach,
        # by their makers' figures; they were not measured on them (decision 14).
        # Reference speeds: 40 % of the published dense bf16 peak (312 and 989 TFLOP/s), as tuned training reaches.
        Tier(
            1,
            "bronze",
            "A100 40GB",
            4,
            40,
            256,
            100,
            9_500,
            5 * ZEN // 2,
            1_000 * ZEN,
            125 * 10**12,
            Benchmark(8_192, 400, 4, 512, 20_000, 6, 40_000_000, 56_000, 1_000, 1_800, 300),
        ),
        Tier(
            2,
            "silver",
            "A100 80GB",
            8,
            80,
            512,
            200,
            9_900,
            4 * ZEN,
            5_000 * ZEN,
            125 * 10**12,
            Benchmark(8_192, 800, 8, 512, 20_000, 6, 80_000_000, 56_000, 1_000, 5_400, 300),
        ),
        Tier(
            3,
            "gold",
            "H100 80GB",
            8,
            80,
            1_024,
            400,
            9_950,
            8 * ZEN,
            20_000 * ZEN,
            400 * 10**12,
            Benchmark(8_192, 800, 8, 512, 20_000, 6, 160_000_000, 100_000, 2_000, 5_400, 300),
        ),
    ),
    fee_bps=500,
    verifier_minimum_stake_wei=500 * ZEN,
    unbonding_seconds=14 * 86_400,
    refund_delay_seconds=60 * 86_400,  # must exceed the longest job
    cancel_delay_seconds=3 * 86_400,
    challenge_seconds=86_400,
    token_cap_wei=1_000_000_000 * ZEN,
    newcomer_sampling_bps=2_500,
    sampling_floor_bps=200,
    seed_delay_blocks=2,
    disputes=DisputeTerms(
        bond_wei=100 * ZEN,
        cost_wei=50 * ZEN,
        referee_fee_wei=10 * ZEN,
        period_seconds=5 * 86_400,
        turn_seconds=6 * 3_600,
        verdict_seconds=86_400,
        seed_delay_blocks=2,
        seats=5,
        quorum=3,
        draws=3,
    ),
    omissions=OmissionTerms(
        deposit_wei=ZEN,
        compensation_wei=10 * ZEN,
        claim_seconds=7 * 86_400,
        answer_seconds=86_400,
        withdraw_seconds=14 * 86_400,
    ),
    timelock_seconds=2 * 86_400,
    rebenchmark_mean_seconds=7 * 86_400,
    benchmark_pause_seconds=86_400,
    rebenchmark_within_seconds=4 * 3_600,
    emission_yearly_wei=tuple(million * 10**6 * ZEN for million in (20, 17, 14, 12, 10, 9, 8, 7, 6, 5)),
    base_apy_bps=2_000,  # the contract holds it within 15 and 25 %
    reward_epoch_seconds=EPOCH_SECONDS,
    reward_delay_seconds=86_400,
    bandwidth_wei_per_gib=ZEN // 100,
    replay_pay_bps=12_500,
    replay_budget_bps=2_500,
    verdict_wait_seconds=3_600,
    suspension_seconds=30 * 86_400,
    attestation_seconds=90 * 86_400,
    treasury_split_bps=(("protocol_development", 5_000), ("security_audits", 3_000), ("community_grants", 2_000)),
    penalty_bps=(
        ("downtime", 500),
        ("incorrect_computation", 5_000),
        ("bandwidth_violation", 500),
        ("withheld_data", 5_000),
        ("wrong_replay", 2_000),
        ("contradicting_verdicts", 10_000),
        ("refused_data", 5_000),
    ),
)


def _laptop(tier: Tier) -> Tier:
    """The tier with thresholds that one CPU core meets; relations between the tiers stay."""
    return replace(
        tier,
        gpu_memory_gb=1,
        ram_gb=1,
        network_gbps=0,
        reference_flops_per_gpu=tier.reference_flops_per_gpu // 12_500,  # 10 GFLOP/s for Bronze
        benchmark=Benchmark(256, 16, 1, 32, 64, 8, 50, 1, 0, 60, 60),
        needs_gpus=False,
    )


DEVNET = replace(
    MAINNET,
    name="devnet",
    benchmark_pause_seconds=0,
    tiers=tuple(_laptop(tier) for tier in MAINNET.tiers),
    challenge_seconds=4,  # so that whoever tries the network sees a job's pay arrive
    disputes=replace(MAINNET.disputes, seats=3, quorum=2),  # a laptop runs three verifiers beside its providers
    verdict_wait_seconds=30,  # and a dispute's end
)

NETWORKS = {network.name: network for network in (MAINNET, DEVNET)}

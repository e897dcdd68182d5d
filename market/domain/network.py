"""Network parameters: tiers, prices, stakes, fees, delays and penalties of each network.

``MAINNET`` has the published numbers. ``DEVNET`` differs in hardware thresholds, committee sizes and a few delays, for
a laptop.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

ZEN = 10**18  # wei of one ZEN
HOUR_US = 3_600_000_000  # microseconds of one GPU-hour
BPS = 10_000
"""Basis points in a whole. Unit prices are multiples of it, so that every fee in basis points is exact."""
FALSE_WORK_OFFENCES = ("incorrect_computation", "withheld_data", "refused_data")
"""Rows of the penalty table with at least the lowest penalty for false work. A timeout and a refusal cost as much as a
false segment: a dishonest provider must not gain by either."""
MIN_FRAUD_PENALTY_BPS = 5_000
"""Their lowest share of the slashable balance: a constant of the staking contract, which bounds orders."""
MAX_SPEEDUP = 10
"""Upper bound of a node's speed over its tier's reference."""
REFERENCE_SHARE_BPS = 4_000
"""Share of the dense peak that a tier's reference speed counts on, as tuned training reaches."""
EPOCH_SECONDS = 86_400
"""Length of an epoch, the period of uptime and rewards; whole hours."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Hardware benchmark that earns a tier (:mod:`training_gym.hardware.challenge`).

    ``size``, ``pool``, ``lanes``, ``rounds``, ``steps`` and ``opened`` define the work. The lowest rates are:

    - ``min_mflops``: of the chain, in 10**6 floating-point operations per second over all lanes.
    - ``min_walk_mbps``: of each lane's walk, in 10**6 bytes per second.
    - ``min_upload_mbps``: of the answer, in 10**6 bits per second.

    ``ready_seconds`` bounds the preparation of the pools, before the timed part. ``answer_seconds`` bounds the time
    from the commitment to the answer.
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
class Speeds:
    """Dense speed of one GPU in FLOP/s by the precision of a job's matrix products."""

    float32: int
    bfloat16: int

    def of(self, precision: str) -> int:
        """Return the speed in ``training_config.precision``."""
        return {"float32": self.float32, "bfloat16": self.bfloat16}[precision]


@dataclass(frozen=True, slots=True)
class Tier:
    """Tier; prices in wei per GPU-hour. ``needs_gpus``: only GPUs pass its benchmark.

    ``peak_flops_per_gpu`` is the published dense peak. float32 counts without TF32, which float32 units do not use.
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
    peak_flops_per_gpu: Speeds
    benchmark: Benchmark
    needs_gpus: bool = True
    reference_share_bps: int = REFERENCE_SHARE_BPS

    @property
    def reference_flops_per_gpu(self) -> Speeds:
        """Return the speeds that prices, weights and quotes count on."""
        share, peak = self.reference_share_bps, self.peak_flops_per_gpu
        return Speeds(peak.float32 * share // BPS, peak.bfloat16 * share // BPS)

    @property
    def min_fraud_penalty_wei(self) -> int:
        """Return the lowest penalty for false work at the tier's minimum stake."""
        return self.minimum_stake_wei * MIN_FRAUD_PENALTY_BPS // BPS


@dataclass(frozen=True, slots=True)
class DisputeTerms:
    """Costs and deadlines of a dispute. ``turn_seconds`` is the response deadline.

    ``period_seconds`` is the challenge period after the commitment of the unit's window. It must be shorter than the
    unbonding delay.
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
        """Return the longest time from a window's commitment to the end of a dispute of its units.

        That dispute opens at the end of the period, both parties use their response deadlines, and only the last
        committee reaches a quorum.
        """
        return timedelta(seconds=self.period_seconds + 2 * self.turn_seconds + self.draws * self.verdict_seconds)


@dataclass(frozen=True, slots=True)
class OmissionTerms:
    """Compensation and deadlines of an omission claim, in the order of the contract's struct."""

    deposit_wei: int
    compensation_wei: int
    claim_seconds: int
    answer_seconds: int
    withdraw_seconds: int


@dataclass(frozen=True, slots=True)
class NetworkParameters:
    """All parameters of one network. Amounts in wei, rates in basis points.

    - ``replay_pay_bps``: a verifier's pay for a replay, of the segment's share of the unit's gross price.
    - ``replay_budget_bps``: bound of all replay pay in one post of rewards, of what the post may pay.
    - ``rebenchmark_mean_seconds``: mean of the random time from a passed benchmark to the next one.
    - ``rebenchmark_within_seconds``: deadline to pass it.
    - ``benchmark_pause_seconds``: pause after a wrong answer, or after none once the challenge was revealed.
    - ``max_speedup``: highest speed of a node, times its tier's reference. An earlier commitment is refused.
    - ``min_withheld_seconds``: time from a state's request before which it does not count as withheld.
    - ``verdict_wait_seconds``: time from a committee's draw during which its quorum waits for other signatures.
    - ``suspension_seconds``: suspension of a verifier that two others outvoted for the first time.
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
    max_speedup: int
    min_withheld_seconds: int
    verdict_wait_seconds: int
    suspension_seconds: int
    attestation_seconds: int
    treasury_split_bps: tuple[tuple[str, int], ...]
    penalty_bps: tuple[tuple[str, int], ...]

    @property
    def longest_training_seconds(self) -> int:
        """Return how long a job may train after its ``wait_until``.

        Any account can refund the escrow after ``refund_delay_seconds``. A quarter of it remains for the settlement.
        """
        return self.refund_delay_seconds * 3 // 4

    def tier(self, name: str) -> Tier:
        """Return the tier of that name.

        Raises:
            KeyError: if the network has no such tier.
        """
        for tier in self.tiers:
            if tier.name == name:
                return tier
        raise KeyError(name)

    def min_unit_time(self, tier_id: int, weight_us: int) -> timedelta:
        """Return the time that the fastest node of a tier needs for a unit of this weight."""
        gpus = next(tier.gpus for tier in self.tiers if tier.id == tier_id)
        return timedelta(microseconds=weight_us // (gpus * self.max_speedup))

    def gpus_to_attest(self, tier_id: int | None, registered: int) -> int:
        """Return the number of GPUs that a provider's attestation must cover.

        The registered number is a claim, so the GPUs of the tier that it proved are the minimum.

        Args:
            tier_id: earned tier, if any.
        """
        of_tier = next((tier.gpus for tier in self.tiers if tier.id == tier_id and tier.needs_gpus), 0)
        return max(registered, of_tier)


MAINNET = NetworkParameters(
    name="mainnet",
    tiers=(
        # Each lane's pool fills two thirds of a device's memory. The rates are a fraction of the published figures of
        # such devices, without a measurement (decision 14).
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
            Speeds(19_500 * 10**9, 312 * 10**12),
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
            Speeds(19_500 * 10**9, 312 * 10**12),
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
            Speeds(67 * 10**12, 989 * 10**12),
            Benchmark(8_192, 800, 8, 512, 20_000, 6, 160_000_000, 100_000, 2_000, 5_400, 300),
        ),
        # One consumer GPU at home. Its price is Bronze's per reference FLOP (decision 27). The benchmark's answer
        # proves the link, so no network is declared. Smaller matrices keep that answer short.
        Tier(
            4,
            "iron",
            "RTX 4080 16GB",
            1,
            16,
            16,
            0,
            9_000,
            78 * ZEN // 100,
            1_000 * ZEN,
            Speeds(48_700 * 10**9, 97_500 * 10**9),
            Benchmark(4_096, 640, 1, 4_608, 160_000, 6, 4_000_000, 40_000, 10, 600, 300),
        ),
    ),
    fee_bps=500,
    verifier_minimum_stake_wei=500 * ZEN,
    unbonding_seconds=14 * 86_400,
    refund_delay_seconds=60 * 86_400,  # exceeds the longest job
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
    base_apy_bps=2_000,  # the contract accepts 15 to 25 %
    reward_epoch_seconds=EPOCH_SECONDS,
    reward_delay_seconds=86_400,
    bandwidth_wei_per_gib=ZEN // 100,
    replay_pay_bps=12_500,
    replay_budget_bps=2_500,
    max_speedup=MAX_SPEEDUP,
    min_withheld_seconds=12 * 3_600,
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


def _laptop_speeds(peak: Speeds) -> Speeds:
    """Return one speed for both precisions; 40 % of it are 10 GFLOP/s for Bronze."""
    return Speeds(peak.bfloat16 // 12_480, peak.bfloat16 // 12_480)


def _laptop(tier: Tier) -> Tier:
    return replace(
        tier,
        gpu_memory_gb=1,
        ram_gb=1,
        network_gbps=0,
        peak_flops_per_gpu=_laptop_speeds(tier.peak_flops_per_gpu),
        benchmark=Benchmark(256, 16, 1, 32, 64, 8, 50, 1, 0, 60, 60),
        needs_gpus=False,
    )


DEVNET = replace(
    MAINNET,
    name="devnet",
    benchmark_pause_seconds=0,
    tiers=tuple(_laptop(tier) for tier in MAINNET.tiers),
    challenge_seconds=4,  # a demonstration waits for a payout
    disputes=replace(MAINNET.disputes, seats=3, quorum=2),  # a laptop runs three verifiers
    max_speedup=10**6,  # its reference speeds are not measured
    min_withheld_seconds=0,  # twice the time to the first deadline is enough
    verdict_wait_seconds=30,
)

NETWORKS = {network.name: network for network in (MAINNET, DEVNET)}

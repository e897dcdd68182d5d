"""Contract functions that the market uses, written by ``python -m market.chain.contracts.generate``.

A function that changes the chain gives a :class:`Call` for ``queue_intent(session, ..., **call)``, a view gives a
:class:`View` for ``ChainViews``. Names and order are the contracts'. Integers are ``int``, addresses and bytes 0x hex.
"""

from collections.abc import Sequence
from typing import TypedDict

from market.chain.contracts.codec import Call, View


class JobOrder(TypedDict):
    payer: str
    specHash: str | bytes
    tier: int
    units: int
    unitWeight: int
    segments: int
    samplingBps: int
    budget: int
    maxPrice: int
    waitUntil: int
    nonce: int


class JobEscrowBalance(TypedDict):
    free: int
    drawn: int


class JobEscrowJobLine(TypedDict):
    jobId: str | bytes
    price: int
    units: int
    fromRound: int
    toRound: int
    last: bool
    record: str | bytes


class JobEscrowJob(TypedDict):
    payer: str
    escrowed: int
    maxPrice: int
    unitWeight: int
    unitsLeft: int
    nextRound: int
    settleBy: int
    feeBps: int
    state: int


class JobEscrowBatch(TypedDict):
    net: int
    fee: int
    claimableAt: int
    id: int
    contested: bool


class UnitCommitment(TypedDict):
    jobId: str | bytes
    round: int
    slot: int
    provider: str
    traceRoot: str | bytes
    payloadHash: str | bytes


class DisputesDispute(TypedDict):
    challenger: str
    segments: int
    step: int
    deadline: int
    status: int
    draw: int
    provider: str
    seedBlock: int
    pool: int
    payer: str
    listedBy: int
    scheduledAt: int
    unitId: str | bytes
    committee: str | bytes


class DisputesUnit(TypedDict):
    open: int
    disputableUntil: int
    unpaid: bool
    convicted: bool


class RewardsEpoch(TypedDict):
    root: str | bytes
    total: int
    postedAt: int
    number: int


class RewardsPendingEpoch(TypedDict):
    epoch: RewardsEpoch
    claimableAt: int


class ZenToken:
    """Functions of the contract ZenToken."""

    @staticmethod
    def balanceOf(account: str) -> View[int]:
        return View(contract="ZenToken", function="balanceOf", arguments=[account])

    @staticmethod
    def totalSupply() -> View[int]:
        return View(contract="ZenToken", function="totalSupply", arguments=[])

    @staticmethod
    def nonces(owner: str) -> View[int]:
        return View(contract="ZenToken", function="nonces", arguments=[owner])

    @staticmethod
    def approve(spender: str, value: int) -> Call:
        return Call(contract="ZenToken", function="approve", arguments=[spender, value])

    @staticmethod
    def allowance(owner: str, spender: str) -> View[int]:
        return View(contract="ZenToken", function="allowance", arguments=[owner, spender])


class ProviderStaking:
    """Functions of the contract ProviderStaking."""

    @staticmethod
    def slash(provider: str, offence: int, evidence: str | bytes) -> Call:
        return Call(contract="ProviderStaking", function="slash", arguments=[provider, offence, evidence])

    @staticmethod
    def stakeOf(provider: str) -> View[int]:
        return View(contract="ProviderStaking", function="stakeOf", arguments=[provider])

    @staticmethod
    def atRisk(provider: str) -> View[int]:
        return View(contract="ProviderStaking", function="atRisk", arguments=[provider])

    @staticmethod
    def isJailed(provider: str) -> View[bool]:
        return View(contract="ProviderStaking", function="isJailed", arguments=[provider])

    @staticmethod
    def qualifies(provider: str, tier: int) -> View[bool]:
        return View(contract="ProviderStaking", function="qualifies", arguments=[provider, tier])


class JobEscrow:
    """Functions of the contract JobEscrow."""

    @staticmethod
    def deposit(payer: str, amount: int, permitDeadline: int, v: int, r: str | bytes, s: str | bytes) -> Call:
        return Call(contract="JobEscrow", function="deposit", arguments=[payer, amount, permitDeadline, v, r, s])

    @staticmethod
    def openJob(order: JobOrder, orderSignature: str | bytes) -> Call:
        return Call(contract="JobEscrow", function="openJob", arguments=[order, orderSignature])

    @staticmethod
    def balances(payer: str) -> View[JobEscrowBalance]:
        return View(contract="JobEscrow", function="balances", arguments=[payer])

    @staticmethod
    def settle(claims: str | bytes, units: str | bytes, lines: Sequence[JobEscrowJobLine]) -> Call:
        return Call(contract="JobEscrow", function="settle", arguments=[claims, units, lines])

    @staticmethod
    def collectFees(batchRoots: Sequence[str | bytes]) -> Call:
        return Call(contract="JobEscrow", function="collectFees", arguments=[batchRoots])

    @staticmethod
    def returnStruck(unitId: str | bytes) -> Call:
        return Call(contract="JobEscrow", function="returnStruck", arguments=[unitId])

    @staticmethod
    def jobs(jobId: str | bytes) -> View[JobEscrowJob]:
        return View(contract="JobEscrow", function="jobs", arguments=[jobId])

    @staticmethod
    def batches(batchRoot: str | bytes) -> View[JobEscrowBatch]:
        return View(contract="JobEscrow", function="batches", arguments=[batchRoot])


class WorkWindows:
    """Functions of the contract WorkWindows."""

    @staticmethod
    def commitWindow(root: str | bytes, leafCount: int) -> Call:
        return Call(contract="WorkWindows", function="commitWindow", arguments=[root, leafCount])

    @staticmethod
    def latchSeed(root: str | bytes) -> Call:
        return Call(contract="WorkWindows", function="latchSeed", arguments=[root])


class Omissions:
    """Functions of the contract Omissions."""

    @staticmethod
    def respond(unit: UnitCommitment, windowRoot: str | bytes, proof: Sequence[str | bytes]) -> Call:
        return Call(contract="Omissions", function="respond", arguments=[unit, windowRoot, proof])

    @staticmethod
    def bond() -> View[int]:
        return View(contract="Omissions", function="bond", arguments=[])


class Attestations:
    """Functions of the contract Attestations."""

    @staticmethod
    def attest(provider: str, key: str | bytes, measurement: str | bytes, expiresAt: int, report: str | bytes) -> Call:
        return Call(
            contract="Attestations", function="attest", arguments=[provider, key, measurement, expiresAt, report]
        )

    @staticmethod
    def isAccepted(measurement: str | bytes) -> View[bool]:
        return View(contract="Attestations", function="isAccepted", arguments=[measurement])


class Disputes:
    """Functions of the contract Disputes."""

    @staticmethod
    def open(
        order: JobOrder,
        unit: UnitCommitment,
        commitmentSignature: str | bytes,
        windowRoot: str | bytes,
        windowProof: Sequence[str | bytes],
    ) -> Call:
        return Call(
            contract="Disputes", function="open", arguments=[order, unit, commitmentSignature, windowRoot, windowProof]
        )

    @staticmethod
    def rejectLate(disputeId: str | bytes, windowRoot: str | bytes, windowProof: Sequence[str | bytes]) -> Call:
        return Call(contract="Disputes", function="rejectLate", arguments=[disputeId, windowRoot, windowProof])

    @staticmethod
    def nameStep(disputeId: str | bytes, step: int) -> Call:
        return Call(contract="Disputes", function="nameStep", arguments=[disputeId, step])

    @staticmethod
    def drawCommittee(disputeId: str | bytes) -> Call:
        return Call(contract="Disputes", function="drawCommittee", arguments=[disputeId])

    @staticmethod
    def submitVerdict(
        disputeId: str | bytes,
        providerCorrect: bool,
        committee: Sequence[str],
        signatures: Sequence[str | bytes],
    ) -> Call:
        return Call(
            contract="Disputes", function="submitVerdict", arguments=[disputeId, providerCorrect, committee, signatures]
        )

    @staticmethod
    def proveContradiction(
        disputeId: str | bytes,
        draw: int,
        forProvider: str | bytes,
        forChallenger: str | bytes,
    ) -> Call:
        return Call(
            contract="Disputes", function="proveContradiction", arguments=[disputeId, draw, forProvider, forChallenger]
        )

    @staticmethod
    def proveWrongVerdict(
        disputeId: str | bytes,
        providerCorrect: bool,
        committee: Sequence[str],
        signatures: Sequence[str | bytes],
        odd: int,
    ) -> Call:
        return Call(
            contract="Disputes",
            function="proveWrongVerdict",
            arguments=[disputeId, providerCorrect, committee, signatures, odd],
        )

    @staticmethod
    def expire(disputeId: str | bytes) -> Call:
        return Call(contract="Disputes", function="expire", arguments=[disputeId])

    @staticmethod
    def replaceCommittee(disputeId: str | bytes, committee: Sequence[str]) -> Call:
        return Call(contract="Disputes", function="replaceCommittee", arguments=[disputeId, committee])

    @staticmethod
    def dismiss(disputeId: str | bytes) -> Call:
        return Call(contract="Disputes", function="dismiss", arguments=[disputeId])

    @staticmethod
    def withhold(unit: UnitCommitment, batchId: int, price: int, proof: Sequence[str | bytes]) -> Call:
        return Call(contract="Disputes", function="withhold", arguments=[unit, batchId, price, proof])

    @staticmethod
    def restore(unitId: str | bytes) -> Call:
        return Call(contract="Disputes", function="restore", arguments=[unitId])

    @staticmethod
    def withdraw() -> Call:
        return Call(contract="Disputes", function="withdraw", arguments=[])

    @staticmethod
    def evict(referee: str) -> Call:
        return Call(contract="Disputes", function="evict", arguments=[referee])

    @staticmethod
    def disputes(disputeId: str | bytes) -> View[DisputesDispute]:
        return View(contract="Disputes", function="disputes", arguments=[disputeId])

    @staticmethod
    def units(unitId: str | bytes) -> View[DisputesUnit]:
        return View(contract="Disputes", function="units", arguments=[unitId])

    @staticmethod
    def credits(account: str) -> View[int]:
        return View(contract="Disputes", function="credits", arguments=[account])

    @staticmethod
    def pendingDraws() -> View[int]:
        return View(contract="Disputes", function="pendingDraws", arguments=[])

    @staticmethod
    def signedSeats(disputeId: str | bytes) -> View[int]:
        return View(contract="Disputes", function="signedSeats", arguments=[disputeId])


class Treasury:
    """Functions of the contract Treasury."""

    @staticmethod
    def available(destination: int) -> View[int]:
        return View(contract="Treasury", function="available", arguments=[destination])

    @staticmethod
    def spent(destination: int) -> View[int]:
        return View(contract="Treasury", function="spent", arguments=[destination])

    @staticmethod
    def received() -> View[int]:
        return View(contract="Treasury", function="received", arguments=[])


class Emission:
    """Functions of the contract Emission."""

    @staticmethod
    def release() -> Call:
        return Call(contract="Emission", function="release", arguments=[])


class Rewards:
    """Functions of the contract Rewards."""

    @staticmethod
    def postEpoch(root: str | bytes, baseTotal: int, bandwidthTotal: int, verifierTotal: int) -> Call:
        return Call(
            contract="Rewards", function="postEpoch", arguments=[root, baseTotal, bandwidthTotal, verifierTotal]
        )

    @staticmethod
    def currentEpoch() -> View[RewardsEpoch]:
        return View(contract="Rewards", function="currentEpoch", arguments=[])

    @staticmethod
    def pendingEpoch() -> View[RewardsPendingEpoch]:
        return View(contract="Rewards", function="pendingEpoch", arguments=[])

    @staticmethod
    def minEpoch() -> View[int]:
        return View(contract="Rewards", function="minEpoch", arguments=[])

    @staticmethod
    def apyBps() -> View[int]:
        return View(contract="Rewards", function="apyBps", arguments=[])

    @staticmethod
    def baseBound() -> View[int]:
        return View(contract="Rewards", function="baseBound", arguments=[])

    @staticmethod
    def postBound() -> View[int]:
        return View(contract="Rewards", function="postBound", arguments=[])

    @staticmethod
    def paidOut() -> View[int]:
        return View(contract="Rewards", function="paidOut", arguments=[])

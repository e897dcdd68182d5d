"""Contract functions that the market uses, written by ``python -m market.chain.contracts.generate``.

A function that changes the chain gives a :class:`Call` for ``queue_intent(session, ..., **call)``, a view gives a
:class:`View` for ``ChainViews``. Names and order are the contracts'. Integers are ``int``, addresses and bytes 0x hex.
"""

from collections.abc import Sequence
from typing import TypedDict

from market.chain.contracts.codec import Call, View, call


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
    @staticmethod
    def balanceOf(account: str) -> View[int]:
        return View("ZenToken", "balanceOf", [account])

    @staticmethod
    def totalSupply() -> View[int]:
        return View("ZenToken", "totalSupply", [])

    @staticmethod
    def nonces(owner: str) -> View[int]:
        return View("ZenToken", "nonces", [owner])

    @staticmethod
    def approve(spender: str, value: int) -> Call:
        return call("ZenToken", "approve", [spender, value])

    @staticmethod
    def allowance(owner: str, spender: str) -> View[int]:
        return View("ZenToken", "allowance", [owner, spender])


class ProviderStaking:
    @staticmethod
    def slash(provider: str, offence: int, evidence: str | bytes) -> Call:
        return call("ProviderStaking", "slash", [provider, offence, evidence])

    @staticmethod
    def stakeOf(provider: str) -> View[int]:
        return View("ProviderStaking", "stakeOf", [provider])

    @staticmethod
    def atRisk(provider: str) -> View[int]:
        return View("ProviderStaking", "atRisk", [provider])

    @staticmethod
    def isJailed(provider: str) -> View[bool]:
        return View("ProviderStaking", "isJailed", [provider])

    @staticmethod
    def qualifies(provider: str, tier: int) -> View[bool]:
        return View("ProviderStaking", "qualifies", [provider, tier])


class JobEscrow:
    @staticmethod
    def deposit(payer: str, amount: int, permitDeadline: int, v: int, r: str | bytes, s: str | bytes) -> Call:
        return call("JobEscrow", "deposit", [payer, amount, permitDeadline, v, r, s])

    @staticmethod
    def openJob(order: JobOrder, orderSignature: str | bytes) -> Call:
        return call("JobEscrow", "openJob", [order, orderSignature])

    @staticmethod
    def balances(payer: str) -> View[JobEscrowBalance]:
        return View("JobEscrow", "balances", [payer])

    @staticmethod
    def settle(claims: str | bytes, units: str | bytes, lines: Sequence[JobEscrowJobLine]) -> Call:
        return call("JobEscrow", "settle", [claims, units, lines])

    @staticmethod
    def collectFees(batchRoots: Sequence[str | bytes]) -> Call:
        return call("JobEscrow", "collectFees", [batchRoots])

    @staticmethod
    def returnStruck(unitId: str | bytes) -> Call:
        return call("JobEscrow", "returnStruck", [unitId])

    @staticmethod
    def jobs(jobId: str | bytes) -> View[JobEscrowJob]:
        return View("JobEscrow", "jobs", [jobId])

    @staticmethod
    def batches(batchRoot: str | bytes) -> View[JobEscrowBatch]:
        return View("JobEscrow", "batches", [batchRoot])


class WorkWindows:
    @staticmethod
    def commitWindow(root: str | bytes, leafCount: int) -> Call:
        return call("WorkWindows", "commitWindow", [root, leafCount])

    @staticmethod
    def latchSeed(root: str | bytes) -> Call:
        return call("WorkWindows", "latchSeed", [root])


class Omissions:
    @staticmethod
    def respond(unit: UnitCommitment, windowRoot: str | bytes, proof: Sequence[str | bytes]) -> Call:
        return call("Omissions", "respond", [unit, windowRoot, proof])

    @staticmethod
    def bond() -> View[int]:
        return View("Omissions", "bond", [])


class Attestations:
    @staticmethod
    def attest(provider: str, key: str | bytes, measurement: str | bytes, expiresAt: int, report: str | bytes) -> Call:
        return call("Attestations", "attest", [provider, key, measurement, expiresAt, report])

    @staticmethod
    def isAccepted(measurement: str | bytes) -> View[bool]:
        return View("Attestations", "isAccepted", [measurement])


class Disputes:
    @staticmethod
    def open(
        order: JobOrder,
        unit: UnitCommitment,
        commitmentSignature: str | bytes,
        windowRoot: str | bytes,
        windowProof: Sequence[str | bytes],
    ) -> Call:
        return call("Disputes", "open", [order, unit, commitmentSignature, windowRoot, windowProof])

    @staticmethod
    def rejectLate(disputeId: str | bytes, windowRoot: str | bytes, windowProof: Sequence[str | bytes]) -> Call:
        return call("Disputes", "rejectLate", [disputeId, windowRoot, windowProof])

    @staticmethod
    def nameStep(disputeId: str | bytes, step: int) -> Call:
        return call("Disputes", "nameStep", [disputeId, step])

    @staticmethod
    def drawCommittee(disputeId: str | bytes) -> Call:
        return call("Disputes", "drawCommittee", [disputeId])

    @staticmethod
    def submitVerdict(
        disputeId: str | bytes, providerCorrect: bool, committee: Sequence[str], signatures: Sequence[str | bytes]
    ) -> Call:
        return call("Disputes", "submitVerdict", [disputeId, providerCorrect, committee, signatures])

    @staticmethod
    def proveContradiction(
        disputeId: str | bytes, draw: int, forProvider: str | bytes, forChallenger: str | bytes
    ) -> Call:
        return call("Disputes", "proveContradiction", [disputeId, draw, forProvider, forChallenger])

    @staticmethod
    def proveWrongVerdict(
        disputeId: str | bytes,
        providerCorrect: bool,
        committee: Sequence[str],
        signatures: Sequence[str | bytes],
        odd: int,
    ) -> Call:
        return call("Disputes", "proveWrongVerdict", [disputeId, providerCorrect, committee, signatures, odd])

    @staticmethod
    def expire(disputeId: str | bytes) -> Call:
        return call("Disputes", "expire", [disputeId])

    @staticmethod
    def replaceCommittee(disputeId: str | bytes, committee: Sequence[str]) -> Call:
        return call("Disputes", "replaceCommittee", [disputeId, committee])

    @staticmethod
    def dismiss(disputeId: str | bytes) -> Call:
        return call("Disputes", "dismiss", [disputeId])

    @staticmethod
    def withhold(unit: UnitCommitment, batchId: int, price: int, proof: Sequence[str | bytes]) -> Call:
        return call("Disputes", "withhold", [unit, batchId, price, proof])

    @staticmethod
    def restore(unitId: str | bytes) -> Call:
        return call("Disputes", "restore", [unitId])

    @staticmethod
    def withdraw() -> Call:
        return call("Disputes", "withdraw", [])

    @staticmethod
    def evict(referee: str) -> Call:
        return call("Disputes", "evict", [referee])

    @staticmethod
    def disputes(disputeId: str | bytes) -> View[DisputesDispute]:
        return View("Disputes", "disputes", [disputeId])

    @staticmethod
    def units(unitId: str | bytes) -> View[DisputesUnit]:
        return View("Disputes", "units", [unitId])

    @staticmethod
    def credits(account: str) -> View[int]:
        return View("Disputes", "credits", [account])

    @staticmethod
    def pendingDraws() -> View[int]:
        return View("Disputes", "pendingDraws", [])


class Treasury:
    @staticmethod
    def available(destination: int) -> View[int]:
        return View("Treasury", "available", [destination])

    @staticmethod
    def spent(destination: int) -> View[int]:
        return View("Treasury", "spent", [destination])

    @staticmethod
    def received() -> View[int]:
        return View("Treasury", "received", [])


class Emission:
    @staticmethod
    def release() -> Call:
        return call("Emission", "release", [])


class Rewards:
    @staticmethod
    def postEpoch(root: str | bytes, baseTotal: int, bandwidthTotal: int, verifierTotal: int) -> Call:
        return call("Rewards", "postEpoch", [root, baseTotal, bandwidthTotal, verifierTotal])

    @staticmethod
    def currentEpoch() -> View[RewardsEpoch]:
        return View("Rewards", "currentEpoch", [])

    @staticmethod
    def pendingEpoch() -> View[RewardsPendingEpoch]:
        return View("Rewards", "pendingEpoch", [])

    @staticmethod
    def minEpoch() -> View[int]:
        return View("Rewards", "minEpoch", [])

    @staticmethod
    def apyBps() -> View[int]:
        return View("Rewards", "apyBps", [])

    @staticmethod
    def baseBound() -> View[int]:
        return View("Rewards", "baseBound", [])

    @staticmethod
    def postBound() -> View[int]:
        return View("Rewards", "postBound", [])

    @staticmethod
    def paidOut() -> View[int]:
        return View("Rewards", "paidOut", [])

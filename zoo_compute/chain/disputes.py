"""Calls and queries of providers and challengers on the contract Disputes."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from zoo_compute.base.errors import ZooError
from zoo_compute.chain import log_search
from zoo_compute.chain.transactions import Chain
from zoo_compute.chain.wallet import Block, Wallet, chain_errors
from zoo_protocol.hashing import from_hex, to_hex
from zoo_protocol.messages import (
    MAX_PROMISE_SECONDS,
    Domain,
    JobOrder,
    UnitCommitment,
    disputes_domain,
    finding_of,
    recover_strictly,
    typed_data,
)
from zoo_protocol.payments.job_record import leaf_of


@dataclass(frozen=True, slots=True)
class Challenge:
    """Arguments of ``Disputes.open``; hashes as 0x hex.

    Attributes:
        unit: the disputed commitment.
        signature: the provider's signature of the commitment.
        window_root: root of the committed window that contains it.
        window_proof: proof from its leaf to that root.
    """

    order: JobOrder
    unit: UnitCommitment
    signature: str
    window_root: str
    window_proof: list[str]

    @property
    def unit_id(self) -> str:
        """Leaf of the commitment in its window."""
        return to_hex(leaf_of(self.unit))


_JOB_STATE, _JOB_OPEN = 8, 1  # position in the escrow's struct, and its value while the job runs
_REVEAL_GAS = 250_000  # a trace of 64 segments takes 208,000


class DisputePhase(IntEnum):
    """``IDisputes.Status``: the pending action of a dispute, or its outcome."""

    NONE = 0
    TRACE = 1
    STEP = 2
    DRAWING = 3
    JUDGING = 4
    PROVIDER_LOST = 5
    CHALLENGER_LOST = 6
    UNDECIDED = 7
    MOOT = 8

    @property
    def is_end(self) -> bool:
        return self >= DisputePhase.PROVIDER_LOST


@dataclass(frozen=True, slots=True)
class Opened:
    """Opening of a dispute, in ``block``; ids as 0x hex."""

    dispute_id: str
    unit_id: str
    challenger: str
    segments: int
    block: int


@dataclass(frozen=True, slots=True)
class Dispute:
    """State of a dispute.

    Attributes:
        deadline: response deadline of the pending action, Unix seconds.
        draw: number of the current committee, from 0.
        seed_block: block whose hash draws the committee.
        signed: seats whose signatures the contract stores, fewer than the quorum.
    """

    phase: DisputePhase
    deadline: int
    step: int
    convicted: bool  # another dispute of the unit was upheld, so this one can only be dismissed
    draw: int = 0
    seed_block: int = 0
    signed: frozenset[int] = frozenset()

    @property
    def until(self) -> int | None:
        """Return the deadline if the pending action has one."""
        return self.deadline if self.phase in (DisputePhase.TRACE, DisputePhase.STEP, DisputePhase.JUDGING) else None


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of the contract in wei of ZEN and seconds; ``quorum`` is a number of signatures."""

    bond: int
    cost: int
    dispute_period: int
    response_seconds: int
    verdict_period: int
    quorum: int


@dataclass(frozen=True, slots=True)
class RevealedTrace:
    """Revealed trace of a unit: environment class and digests of all boundary states, 0x hex."""

    environment: str
    states: list[str]


class DisputeChain(Chain):
    """The contract Disputes with the wallet of a provider or of a challenger.

    ``start_block`` is the block of the contracts' deployment, where every search starts.
    """

    def __init__(self, rpc_url: str, contracts: Mapping[str, str], wallet: Wallet, start_block: int = 0) -> None:
        super().__init__(rpc_url, contracts, wallet)
        self._start = start_block
        self._disputes, self._omissions = map(self._contract, ("Disputes", "Omissions"))

    @cached_property
    def terms(self) -> Terms:
        """Constant terms of the contract."""
        with chain_errors():
            bond, cost, _, period, response, verdict, _, _, quorum, _ = self._disputes.functions.terms().call()
            return Terms(int(bond), int(cost), int(period), int(response), int(verdict), int(quorum))

    @cached_property
    def domain(self) -> Domain:
        """EIP-712 domain of verdicts."""
        with chain_errors():
            return disputes_domain(int(self._web3.eth.chain_id), str(self._disputes.address))

    @cached_property
    def trace_retention_seconds(self) -> int:
        """Return the period after its commitment in which a unit's trace can be requested.

        It is the sum of the latest inclusion after an omission claim, the dispute period and one response period.
        """
        with chain_errors():
            _, _, claim_period, response_period, _ = self._omissions.functions.terms().call()
        terms = self.terms
        return MAX_PROMISE_SECONDS + int(claim_period + response_period) + terms.dispute_period + terms.response_seconds

    def is_over(self, job_id: str, block: Block) -> bool:
        """Return whether a job was settled or refunded by ``block``; False for an unknown job."""
        with chain_errors():
            job = self._escrow.functions.jobs(from_hex(job_id)).call(block_identifier=block.number)
        return int(job[_JOB_STATE]) > _JOB_OPEN

    def first_block_since(self, timestamp: int, latest: Block) -> int:
        """Return the first block from ``start_block`` to ``latest`` not older than a Unix time."""
        low, high = min(self._start, latest.number), latest.number
        while low < high:
            middle = (low + high) // 2
            if self._block(middle).timestamp < timestamp:
                low = middle + 1
            else:
                high = middle
        return low

    def opened(self, first: int, last: int) -> list[Opened]:
        """Return disputes of the wallet's units opened in the blocks ``first`` to ``last``."""
        return [
            Opened(
                to_hex(event["args"]["disputeId"]),
                to_hex(event["args"]["unitId"]),
                str(event["args"]["challenger"]),
                int(event["args"]["segments"]),
                int(event["blockNumber"]),
            )
            for event in self._events("DisputeOpened", first, last, provider=self._sender)
        ]

    def _events(self, name: str, first: int, last: int, **filters: Any) -> list[Any]:
        with chain_errors():
            return log_search.all_events(self._disputes.events[name](), filters, first, last)

    def dispute(self, dispute_id: str, block: Block | None = None) -> Dispute:
        """Return the state of a dispute, as of ``block`` if given."""
        functions, at = self._disputes.functions, "latest" if block is None else block.number
        with chain_errors():
            found = functions.disputes(from_hex(dispute_id)).call(block_identifier=at)
            _, _, step, deadline, phase, draw, _, seed_block, _, _, _, _, unit_id, _ = found
            *_, convicted = functions.units(unit_id).call(block_identifier=at)
            seats = 0
            if phase == DisputePhase.JUDGING:
                seats = int(functions.signedSeats(from_hex(dispute_id)).call(block_identifier=at))
        signed = frozenset(seat for seat in range(seats.bit_length()) if seats >> seat & 1)
        return Dispute(
            DisputePhase(phase), int(deadline), int(step), bool(convicted), int(draw), int(seed_block), signed
        )

    def revealed_trace(self, dispute_id: str) -> RevealedTrace | None:
        """Return the trace revealed in a dispute; None before the reveal."""
        found = self._last_event("TraceShown", dispute_id)
        if found is None:
            return None
        return RevealedTrace(to_hex(found["environmentClass"]), [to_hex(state) for state in found["states"]])

    def committee(self, dispute_id: str) -> list[str]:
        """Return the members of the newest committee of a dispute; empty before the draw."""
        found = self._last_event("CommitteeDrawn", dispute_id)
        return [] if found is None else list(found["committee"])

    def inconclusive_reason(self, dispute_id: str) -> str:
        """Return ``no_quorum`` or ``too_few_referees``, the reason of an inconclusive dispute."""
        found = self._last_event("CommitteeDrawn", dispute_id)
        is_same_draw = found is not None and int(found["draw"]) == self.dispute(dispute_id).draw
        return "no_quorum" if is_same_draw else "too_few_referees"

    def _last_event(self, name: str, dispute_id: str) -> Any:
        opened = self._opened_event(dispute_id)
        if opened is None:
            return None
        with chain_errors():
            event, filters = self._disputes.events[name](), {"disputeId": from_hex(dispute_id)}
            found = log_search.newest(event, filters, opened["blockNumber"], self._web3.eth.block_number)
        return found["args"] if found else None

    def _opened_event(self, dispute_id: str) -> Any:
        """Return the opening event of a dispute; None if the dispute does not exist."""
        # Disputes last weeks, so the search starts at the newest block.
        if self.dispute(dispute_id).phase is DisputePhase.NONE:
            return None
        with chain_errors():
            event, filters = self._disputes.events.DisputeOpened(), {"disputeId": from_hex(dispute_id)}
            return log_search.newest(event, filters, self._start, self._web3.eth.block_number)

    def open(self, challenge: Challenge) -> tuple[str, str]:
        """Dispute a unit and approve the bond; return (dispute id, mined transaction's hash).

        Raises:
            ZooError: the wallet has disputed the unit before or has less ZEN than the bond, the contract refuses, or a
                transaction fails.
        """
        dispute_id = self.require_openable(challenge)
        self._approve(self._disputes, self.terms.bond)
        proof = [from_hex(node) for node in challenge.window_proof]
        order, unit, signature = astuple(challenge.order), astuple(challenge.unit), from_hex(challenge.signature, 65)
        call = self._disputes.functions.open(order, unit, signature, from_hex(challenge.window_root), proof)
        return dispute_id, self._send(call)

    def require_openable(self, challenge: Challenge) -> str:
        """Return the id that a dispute of this wallet would have.

        Raises:
            ZooError: the wallet has disputed the unit before, or has less ZEN than the bond.
        """
        with chain_errors():
            dispute_id = to_hex(self._disputes.functions.disputeIdOf(from_hex(challenge.unit_id), self._sender).call())
        if self.dispute(dispute_id).phase is not DisputePhase.NONE:
            raise ZooError("dispute-exists", f"{self._sender} has disputed this unit before: {dispute_id}")
        self._require_balance(self.terms.bond, "a dispute needs a bond of")
        return dispute_id

    def name_step(self, dispute_id: str, step: int) -> str:
        """Select the first wrong segment; returns the mined transaction's hash. Raises ZooError."""
        return self._send(self._disputes.functions.nameStep(from_hex(dispute_id), step))

    def reveal_trace(
        self, dispute_id: str, unit: UnitCommitment, environment: str, states: list[str], fee_percent: int
    ) -> str:
        """Reveal a unit's trace; returns the mined transaction's hash. Raises ZooError."""
        digests = [from_hex(state) for state in states]
        call = self._disputes.functions.showTrace(from_hex(dispute_id), astuple(unit), from_hex(environment), digests)
        return self._send(call, fee_percent)

    def is_late(self, dispute: Dispute, window_root: str) -> bool:
        """Return True if a dispute in phase TRACE was opened after the period of this window."""
        windows = self._contract("WorkWindows").functions
        with chain_errors():
            _, _, _, committed_at, _ = windows.windows(from_hex(window_root)).call()
        terms = self.terms
        return dispute.deadline - terms.response_seconds > int(committed_at) + terms.dispute_period

    def reject_late(self, dispute_id: str, window_root: str, proof: list[str], fee_percent: int) -> str:
        """Reject a late dispute; returns the mined transaction's hash. Raises ZooError."""
        shown = [from_hex(dispute_id), from_hex(window_root), [from_hex(node) for node in proof]]
        return self._send(self._disputes.functions.rejectLate(*shown), fee_percent)

    def expire(self, dispute_id: str) -> str:
        """End a missed response period; returns the mined transaction's hash. Raises ZooError."""
        return self._send(self._disputes.functions.expire(from_hex(dispute_id)))

    def replace_committee(self, dispute_id: str) -> str:
        """Replace a committee without quorum; returns the mined transaction's hash. Raises ZooError."""
        members = self.committee(dispute_id)
        return self._send(self._disputes.functions.replaceCommittee(from_hex(dispute_id), members))

    def draw_committee(self, dispute_id: str) -> str:
        """Draw the committee, or set a new seed block if the last one is too old. Raises ZooError."""
        return self._send(self._disputes.functions.drawCommittee(from_hex(dispute_id)))

    def submit_verdict(self, dispute_id: str, provider_correct: bool, signatures: Mapping[str, str]) -> str:
        """Execute a verdict or store signatures below the quorum; return the transaction's hash.

        Args:
            signatures: signatures by referee of the newest committee.

        Raises:
            ZooError: a signature is not of this verdict, or the transaction fails.
        """
        members = self.committee(dispute_id)
        given = [from_hex(signatures[member], 65) if member in signatures else b"" for member in members]
        call = self._disputes.functions.submitVerdict(from_hex(dispute_id), provider_correct, members, given)
        return self._send(call)

    def prove_contradiction(self, dispute_id: str, draw: int, for_provider: str, for_challenger: str) -> str:
        """Prove a referee's equivocation; returns the mined transaction's hash. Raises ZooError."""
        signatures = from_hex(for_provider, 65), from_hex(for_challenger, 65)
        return self._send(self._disputes.functions.proveContradiction(from_hex(dispute_id), draw, *signatures))

    def prove_wrong_verdict(
        self, dispute_id: str, provider_correct: bool, signatures: Mapping[str, str], odd: str
    ) -> str:
        """Prove that a member signed against all others; return the transaction's hash.

        Args:
            provider_correct: verdict of the others.
            signatures: signatures by referee, of every member.
            odd: member with the opposite verdict.

        Raises:
            ZooError: a signature is not of these verdicts, the member was slashed before, or the transaction fails.
        """
        members = self.committee(dispute_id)
        given = [from_hex(signatures[member], 65) for member in members]
        return self._send(
            self._disputes.functions.proveWrongVerdict(
                from_hex(dispute_id), provider_correct, members, given, members.index(odd)
            )
        )

    def penalties_in(self, dispute_id: str) -> set[tuple[int, str, int]]:
        """Return (draw, referee, penalty row) of every penalty for verdicts in a dispute."""
        opened = self._opened_event(dispute_id)
        if opened is None:
            return set()
        last = self.latest_block().number
        found = self._events("RefereePunished", opened["blockNumber"], last, disputeId=from_hex(dispute_id))
        return {(int(one["args"]["draw"]), str(one["args"]["referee"]), int(one["args"]["offence"])) for one in found}

    def signer(self, dispute_id: str, draw: int, provider_correct: bool, reason: str, signature: str) -> str | None:
        """Return the signer of a finding; None if the contract would not accept the signature."""
        try:
            message = finding_of(dispute_id, draw, provider_correct, reason)
            return recover_strictly(typed_data(self.domain, message), signature)
        except ValueError:
            return None

    def restore(self, unit_id: str) -> str:
        """Pay a held unit after its disputes; returns the mined transaction's hash. Raises ZooError."""
        return self._send(self._disputes.functions.restore(from_hex(unit_id)))

    def native_balance(self) -> tuple[int, int]:
        """Return the wallet's native tokens, and the possible cost of a trace reveal, both in wei."""
        with chain_errors():
            return int(self._web3.eth.get_balance(self._sender)), 2 * _REVEAL_GAS * int(self._web3.eth.gas_price)

    def credits(self) -> int:
        """Return the wallet's credits from disputes, wei."""
        with chain_errors():
            return int(self._disputes.functions.credits(self._sender).call())

    def withdraw(self) -> str:
        """Withdraw the credits; returns the mined transaction's hash. Raises ZooError."""
        return self._send(self._disputes.functions.withdraw())

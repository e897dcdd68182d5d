"""Referee duties of a staked verifier: replay the disputed segment and sign.

Committees are read from the contract's log, from the last final block on. A decision is on disk before its signature
leaves this node, so a referee never signs two verdicts for one committee. The market publishes signatures; without the
market they are in the journal.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo_compute.audit.dispute_case import Case, case_from_market, settled_case
from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ApiError, ConfigError, Unreachable, ZooError
from zoo_compute.chain.disputes import Dispute, DisputePhase, RevealedTrace
from zoo_compute.chain.referees import RefereeChain, Seat
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.chain.wallet import Block, Wallet, chain_errors
from zoo_compute.client.http import answer_errors
from zoo_compute.node.disk.files import write_json
from zoo_compute.node.disputes.segment_verdict import DataDeadline, Finding, NoVerdict, ReplayContext, decide_segment
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.market.calls import Market
from zoo_protocol import messages

log = logging.getLogger(__name__)

DATA_SHARE = 2
"""The provider has 1/2 of the verdict period to make its data available."""

OWN_CALL_SHARE = 8
"""In the last 1/8 of the verdict period a referee sends its own signature to the contract."""


@dataclass(frozen=True, slots=True)
class SignedVerdict:
    """Verdict that this referee signed. ``delivered``: the market has it."""

    dispute_id: str
    draw: int
    provider_correct: bool
    reason: str
    signature: str
    delivered: bool = False


class Verdicts:
    """Journal of verdicts: ``<directory>/<dispute id>-<draw>.json``, written atomically."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def find(self, dispute_id: str, draw: int) -> SignedVerdict | None:
        """Return the verdict signed for this committee.

        Raises:
            ConfigError: ``verdict-damaged``: a verdict was signed, so another one is not allowed.
        """
        path = self._file(dispute_id, draw)
        return _read(path) if path.exists() else None

    def keep(self, verdict: SignedVerdict) -> None:
        write_json(self._file(verdict.dispute_id, verdict.draw), asdict(verdict))

    def all(self) -> list[SignedVerdict]:
        """Return all verdicts signed here. Raises ConfigError as :meth:`find`."""
        return [_read(path) for path in sorted(self._directory.glob("*.json"))]

    def _file(self, dispute_id: str, draw: int) -> Path:
        return self._directory / f"{dispute_id}-{draw}.json"


def _read(path: Path) -> SignedVerdict:
    try:
        return SignedVerdict(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        remedy = "Restore the file or leave it. A second verdict for the committee would be slashed as equivocation."
        raise ConfigError("verdict-damaged", f"{path} is damaged: {error}", remedy=remedy) from error


@dataclass(eq=False)
class Referee:
    """Committee duties of one verifier.

    Args:
        connect, read: build the two chain clients, on first use.
        make_context: returns the tools of a replay; called for each verdict.
        owner: declared owner of this node. The referee signs nothing in favour of a provider with the same owner.
    """

    verdicts: Verdicts
    connect: Callable[[], RefereeChain]
    read: Callable[[], ChainReader]
    market: Market
    make_context: Callable[[], ReplayContext]
    wallet: Wallet
    owner: str | None = None
    _next_block: int | None = field(default=None, init=False)
    _seats: dict[tuple[str, int], Seat] = field(default_factory=dict, init=False)
    _logged: dict[tuple[str, int], str] = field(default_factory=dict, init=False)
    _declined: set[tuple[str, int]] = field(default_factory=set, init=False)

    @cached_property
    def chain(self) -> RefereeChain:
        return self.connect()

    @cached_property
    def _reader(self) -> ChainReader:
        return self.read()

    def watch(self) -> None:
        """Enlist, withdraw credits, find seats in committees and serve each.

        Errors of single seats are logged; the next run tries again.

        Raises:
            Unreachable: the chain does not answer; try again later.
        """
        self._keep_listed_and_paid()
        latest = self.chain.latest_block()
        self._search(latest)
        for seat in list(self._seats.values()):
            try:
                self._serve(seat)
            except (ZooError, OSError) as error:
                self._log_once(seat, logging.WARNING, str(error))

    def _keep_listed_and_paid(self) -> None:
        try:
            if self.chain.should_enlist():
                log.info("referee_enlisted tx=%s", self.chain.enlist())
            if (amount := self.chain.credits()) > 0:
                log.info("credits_withdrawn zen=%s tx=%s", format_zen(amount), self.chain.withdraw())
        except ZooError as error:  # for example no native token; committees are served all the same
            log.warning("referee_upkeep_failed error=%s remedy=%s", error, error.remedy or "")

    def _search(self, latest: Block) -> None:
        """Record seats since the last final block; initially since one verdict period ago."""
        if self._next_block is None or self._next_block > latest.number + 1:  # first run, or a reorg
            since = latest.timestamp - self.chain.terms.verdict_period
            self._next_block = self.chain.first_block_since(since, latest)
        for seat in self.chain.seats(self._next_block, latest.number):
            self._seats[seat.dispute_id, seat.draw] = seat
        searched = min(latest.number, self.chain.final_block().number)  # newer blocks can be final by now
        self._next_block = max(self._next_block, searched + 1)

    def _serve(self, seat: Seat) -> None:
        latest = self.chain.latest_block()
        state = self.chain.dispute(seat.dispute_id, latest)
        if state.phase is not DisputePhase.JUDGING or state.draw != seat.draw or state.convicted:
            if seat.block < (self._next_block or 0):  # final, so no reorg can restore the seat
                del self._seats[seat.dispute_id, seat.draw]
            return
        if latest.timestamp > state.deadline or (seat.dispute_id, seat.draw) in self._declined:
            return
        if seat.block >= (self._next_block or 0):
            return  # not final: after a reorg another segment could be selected
        verdict = self.verdicts.find(seat.dispute_id, seat.draw) or self._decide(seat, state, latest)
        if verdict is None:
            return
        if latest.timestamp > state.deadline - self.chain.terms.verdict_period // OWN_CALL_SHARE:
            self._submit(verdict, state)
        if not verdict.delivered:
            self.market.give_verdict(asdict(verdict))
            self.verdicts.keep(SignedVerdict(**{**asdict(verdict), "delivered": True}))
            log.info("verdict_delivered dispute=%s draw=%d", seat.dispute_id, seat.draw)

    def _decide(self, seat: Seat, state: Dispute, latest: Block) -> SignedVerdict | None:
        shown = self.chain.revealed_trace(seat.dispute_id)
        if shown is None:  # the trace precedes the committee, so the RPC node lags or hides logs
            self._log_once(seat, logging.WARNING, "no_verdict reason=trace_not_in_logs")
            return None
        data_time_is_over = latest.timestamp > state.deadline - self.chain.terms.verdict_period // DATA_SHARE
        try:
            is_own = self._has_same_owner(seat, data_time_is_over)
            found = self._find(seat, shown, state.step, data_time_is_over)
            if is_own and found.provider_correct:
                self._declined.add((seat.dispute_id, seat.draw))
                raise NoVerdict("own_provider", f"the provider's owner is {self.owner}, as this node's")
        except (NoVerdict, ExecutorError) as error:
            self._log_once(seat, logging.WARNING, f"no_verdict reason={error.code} error={error}")
            return None
        return self._sign(seat, found.provider_correct, found.reason)

    def _has_same_owner(self, seat: Seat, data_time_is_over: bool) -> bool:
        """Return True if the provider declares this node's owner; False if unknown in the end."""
        if self.owner is None:
            return False
        try:
            return self.market.owner_of(self.chain.opening(seat.dispute_id).provider) == self.owner
        except (ApiError, Unreachable) as error:
            if data_time_is_over:
                return False
            raise NoVerdict("market_unreachable", f"the provider's owner is not known: {error}") from error

    def _find(self, seat: Seat, shown: RevealedTrace, step: int, data_time_is_over: bool) -> Finding:
        context, record, outage = self.make_context(), None, ""
        try:
            record = self.market.dispute(seat.dispute_id)
        except (ApiError, Unreachable) as error:
            outage = str(error)
        case = self._case(seat, record, context)
        if case is None:
            raise NoVerdict("market_unreachable" if outage else "case_unknown", outage or "neither source has the unit")
        state_cid = None if record is None or record["step"] != step else record["state_cid"]
        return decide_segment(
            case, shown, step, state_cid, DataDeadline(data_time_is_over, could_serve=not outage), context
        )

    def _case(self, seat: Seat, record: dict[str, Any] | None, context: ReplayContext) -> Case | None:
        opening = self.chain.opening(seat.dispute_id)
        with chain_errors():
            settled = settled_case(opening, self._reader, context.gateway)
        if settled is not None or record is None:
            return settled
        with answer_errors("GET /v1/disputes/{id}"):
            return case_from_market({**record, "unit_id": opening.unit_id})

    def _sign(self, seat: Seat, provider_correct: bool, reason: str) -> SignedVerdict:
        """Sign and store a verdict; the stored one is delivered, also after a crash."""
        message = messages.finding_of(seat.dispute_id, seat.draw, provider_correct, reason)
        signature = self.wallet.sign_typed_data(messages.typed_data(self.chain.domain, message))
        verdict = SignedVerdict(seat.dispute_id, seat.draw, provider_correct, reason, signature)
        self.verdicts.keep(verdict)
        text = "verdict_signed dispute=%s draw=%d provider_correct=%s reason=%s"
        log.info(text, seat.dispute_id, seat.draw, provider_correct, reason)
        return verdict

    def _submit(self, verdict: SignedVerdict, state: Dispute) -> None:
        """Send the own signature to the contract if it is missing; an absent referee is delisted."""
        me = self.wallet.address
        if self.chain.committee(verdict.dispute_id).index(me) in state.signed:
            return
        tx = self.chain.submit_verdict(verdict.dispute_id, verdict.provider_correct, {me: verdict.signature})
        log.info("verdict_submitted dispute=%s draw=%d tx=%s", verdict.dispute_id, verdict.draw, tx)

    def _log_once(self, seat: Seat, level: int, what: str) -> None:
        if self._logged.get((seat.dispute_id, seat.draw)) != what:
            self._logged[seat.dispute_id, seat.draw] = what
            log.log(level, "referee dispute=%s draw=%d: %s", seat.dispute_id, seat.draw, what)

"""Judging disputes as a member of their committees: a staked verifier is drawn, replays one step, and signs.

Committees are found by the contract's log, from the last final block on. What was decided is written down, synced,
before its signature leaves: whatever happens in between, a referee never signs two verdicts for one committee. The
signature is delivered to the market, where everybody can read it and send it to the contract; without the market it is
in the journal.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from zoo_compute.audit.dispute_case import Case, case_from_market, settled_case
from zoo_compute.base.amounts import format_zen
from zoo_compute.base.errors import ApiError, ConfigError, Unreachable, ZooError
from zoo_compute.chain.disputes import Dispute, ShownTrace, Turn
from zoo_compute.chain.referees import RefereeChain, Seat
from zoo_compute.chain.settlements import ChainReader
from zoo_compute.chain.wallet import Block, Wallet, chain_errors
from zoo_compute.client.http import understood
from zoo_compute.node.disk.durable_files import write_json
from zoo_compute.node.disputes.judging import DataDeadline, Finding, ReplayContext, Undecided, judge
from zoo_compute.node.execution.executor import ExecutorError
from zoo_compute.node.market.calls import Market
from zoo_protocol import messages

log = logging.getLogger(__name__)


PATIENCE_SHARE = 2
"""Half of a committee's time is the provider's, to make its data available."""


OWN_CALL_SHARE = 8
"""In the last eighth of it, a referee sends its signature itself where the contract does not have it."""


@dataclass(frozen=True, slots=True)
class SignedVerdict:
    """What this referee signed for a committee, and whether the market has it."""

    dispute_id: str
    draw: int
    provider_correct: bool
    reason: str
    signature: str
    delivered: bool = False


class Verdicts:
    """The journal: ``<directory>/<dispute id>-<draw>.json``, each there in full or not at all."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def find(self, dispute_id: str, draw: int) -> SignedVerdict | None:
        """What was signed for this committee.

        Raises:
            ConfigError: ``verdict-damaged``: something was signed, so nothing else may be.
        """
        path = self._file(dispute_id, draw)
        return _read(path) if path.exists() else None

    def keep(self, verdict: SignedVerdict) -> None:
        """Write a verdict down."""
        write_json(self._file(verdict.dispute_id, verdict.draw), asdict(verdict))

    def all(self) -> list[SignedVerdict]:
        """Every verdict that was ever signed here. Raises ConfigError as :meth:`find`."""
        return [_read(path) for path in sorted(self._directory.glob("*.json"))]

    def _file(self, dispute_id: str, draw: int) -> Path:
        return self._directory / f"{dispute_id}-{draw}.json"


def _read(path: Path) -> SignedVerdict:
    try:
        return SignedVerdict(**json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        remedy = "Restore it, or leave it: a verdict was signed, and signing another could cost stake."
        raise ConfigError("verdict-damaged", f"{path} is damaged: {error}", remedy=remedy) from error


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a referee learns what a dispute is about: two ways to the chain, made when needed, and the market."""

    connect: Callable[[], RefereeChain]
    read: Callable[[], ChainReader]
    market: Market


class Referee:
    """One verifier's work in committees.

    Args:
        verdicts: the journal.
        bench: gives what it judges with; called for each judgement.
        wallet: signs.
        owner: whom this node declares as its owner. It signs nothing in favour of that one's providers.
    """

    def __init__(
        self,
        verdicts: Verdicts,
        sources: Sources,
        bench: Callable[[], ReplayContext],
        wallet: Wallet,
        owner: str | None = None,
    ) -> None:
        self._verdicts = verdicts
        self._sources = sources
        self._bench = bench
        self._wallet = wallet
        self._owner = owner
        self._connected: RefereeChain | None = None
        self._reader: ChainReader | None = None
        self._next_block: int | None = None
        self._seats: dict[tuple[str, int], Seat] = {}
        self._told: dict[tuple[str, int], str] = {}
        self._declined: set[tuple[str, int]] = set()

    @property
    def chain(self) -> RefereeChain:
        """The contract."""
        self._connected = self._connected or self._sources.connect()
        return self._connected

    def watch(self) -> None:
        """Be listed, take what verdicts brought, look for committees with a seat of one's own, and judge in each.

        What fails is logged and tried again at the next look.

        Raises:
            Unreachable: the chain does not answer; try again later.
        """
        self._keep_listed_and_paid()
        latest = self.chain.latest_block()
        self._search(latest)
        for seat in list(self._seats.values()):
            try:
                self._attend(seat)
            except (ZooError, OSError) as error:
                self._tell(seat, logging.WARNING, str(error))

    def _keep_listed_and_paid(self) -> None:
        try:
            if self.chain.should_enlist():
                log.info("listed as a referee of disputes in %s", self.chain.enlist())
            if (amount := self.chain.credits()) > 0:
                log.info("withdrew %s ZEN that disputes brought, in %s", format_zen(amount), self.chain.withdraw())
        except ZooError as error:  # no coin, say: what it was drawn for is judged all the same
            log.warning("not listed as a referee, or not paid: %s %s", error, error.remedy or "")

    def _search(self, latest: Block) -> None:
        """Take note of seats since the last final block; at first since a committee's time ago: older ones are over."""
        if self._next_block is None or self._next_block > latest.number + 1:  # or the chain was put back
            since = latest.timestamp - self.chain.terms.verdict_period
            self._next_block = self.chain.first_block_since(since, latest)
        for seat in self.chain.seats(self._next_block, latest.number):
            self._seats[seat.dispute_id, seat.draw] = seat
        searched = min(latest.number, self.chain.final_block().number)  # newer ones can have become final meanwhile
        self._next_block = max(self._next_block, searched + 1)

    def _attend(self, seat: Seat) -> None:
        latest = self.chain.latest_block()
        state = self.chain.dispute(seat.dispute_id, latest)
        if state.turn is not Turn.JUDGING or state.draw != seat.draw or state.convicted:
            if seat.block < (self._next_block or 0):  # its block is final, so the seat will not come back
                del self._seats[seat.dispute_id, seat.draw]
            return
        if latest.timestamp > state.deadline or (seat.dispute_id, seat.draw) in self._declined:
            return
        if seat.block >= (self._next_block or 0):
            return  # not final yet: if another step came to be named, a signature would be wrong
        verdict = self._verdicts.find(seat.dispute_id, seat.draw) or self._judge(seat, state, latest)
        if verdict is None:
            return
        if latest.timestamp > state.deadline - self.chain.terms.verdict_period // OWN_CALL_SHARE:
            self._put_on_chain(verdict, state)
        if not verdict.delivered:
            self._deliver(seat, verdict)

    def _judge(self, seat: Seat, state: Dispute, latest: Block) -> SignedVerdict | None:
        shown = self.chain.shown_trace(seat.dispute_id)
        if shown is None:  # no committee is drawn before it, so the chain's node lags behind or hides logs
            self._tell(seat, logging.WARNING, "no verdict: the chain's node does not give the trace that was shown")
            return None
        patience_is_over = latest.timestamp > state.deadline - self.chain.terms.verdict_period // PATIENCE_SHARE
        try:
            is_own = self._judges_its_own(seat, patience_is_over)
            found = self._find(seat, shown, state.step, patience_is_over)
            if is_own and found.provider_correct:
                self._declined.add((seat.dispute_id, seat.draw))
                raise Undecided("own_provider", f"the provider's owner is {self._owner}, as this node's")
        except (Undecided, ExecutorError) as error:
            self._tell(seat, logging.WARNING, f"no verdict: {error} [{error.code}]")
            return None
        return self._sign(seat, found.provider_correct, found.reason)

    def _judges_its_own(self, seat: Seat, patience_is_over: bool) -> bool:
        """Whether the provider declares the owner of this node; one that cannot be asked for has another in the end."""
        if self._owner is None:
            return False
        try:
            return self._sources.market.owner_of(self.chain.opening(seat.dispute_id).provider) == self._owner
        except (ApiError, Unreachable) as error:
            if patience_is_over:
                return False
            raise Undecided("market_unreachable", f"the provider's owner is not known: {error}") from error

    def _find(self, seat: Seat, shown: ShownTrace, step: int, patience_is_over: bool) -> Finding:
        bench, told, silence = self._bench(), None, ""
        try:
            told = self._sources.market.dispute(seat.dispute_id)
        except (ApiError, Unreachable) as error:
            silence = str(error)
        case = self._case(seat, told, bench)
        if case is None:
            raise Undecided("market_unreachable" if silence else "case_unknown", silence or "nobody knows the unit")
        state_cid = None if told is None or told["step"] != step else told["state_cid"]
        return judge(case, shown, step, state_cid, DataDeadline(patience_is_over, could_serve=not silence), bench)

    def _case(self, seat: Seat, told: dict[str, Any] | None, bench: ReplayContext) -> Case | None:
        """The case by the chain, where it names a record with the unit; else by the market."""
        opening = self.chain.opening(seat.dispute_id)
        self._reader = self._reader or self._sources.read()
        with chain_errors():
            settled = settled_case(opening, self._reader, bench.gateway)
        if settled is not None or told is None:
            return settled
        with understood("GET /v1/disputes/{id}"):
            return case_from_market({**told, "unit_id": opening.unit_id})

    def _sign(self, seat: Seat, provider_correct: bool, reason: str) -> SignedVerdict:
        """Decide for good: what is written here is what is delivered, also after a crash."""
        message = messages.finding_of(seat.dispute_id, seat.draw, provider_correct, reason)
        signature = self._wallet.sign_typed_data(messages.typed_data(self.chain.domain, message))
        verdict = SignedVerdict(seat.dispute_id, seat.draw, provider_correct, reason, signature)
        self._verdicts.keep(verdict)
        side = "its provider" if provider_correct else "its challenger"
        log.info("dispute %s, committee %d: signed for %s: %s", seat.dispute_id, seat.draw, side, reason)
        return verdict

    def _put_on_chain(self, verdict: SignedVerdict, state: Dispute) -> None:
        """Send the signature that nobody has sent: it counts there, and who has signed stays on the list."""
        me = self._wallet.address
        if self.chain.committee(verdict.dispute_id).index(me) in state.signed:
            return
        tx = self.chain.submit_verdict(verdict.dispute_id, verdict.provider_correct, {me: verdict.signature})
        log.info("dispute %s, committee %d: verdict sent to the contract in %s", verdict.dispute_id, verdict.draw, tx)

    def _deliver(self, seat: Seat, verdict: SignedVerdict) -> None:
        self._sources.market.give_verdict(asdict(verdict))
        self._verdicts.keep(SignedVerdict(**{**asdict(verdict), "delivered": True}))
        log.info("dispute %s, committee %d: verdict delivered", seat.dispute_id, seat.draw)

    def _tell(self, seat: Seat, level: int, what: str) -> None:
        """Log what became of a seat, once."""
        if self._told.get((seat.dispute_id, seat.draw)) != what:
            self._told[seat.dispute_id, seat.draw] = what
            log.log(level, "dispute %s, committee %d: %s", seat.dispute_id, seat.draw, what)

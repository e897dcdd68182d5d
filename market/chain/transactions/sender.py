"""Sender: makes every queued call exactly once, through one signer.

These rules prevent double and lost payments:

- Signed bytes are committed before any node gets them. Every retry sends the same bytes.
- The transaction that stores the bytes assigns the nonce, after a simulation. A call that reverts gets no nonce.
- A stuck transaction is outbid at its own nonce. A payment moves to another nonce only if a final foreign transaction
  has used its nonce.
- A mined transaction counts when its block is final. A reorg before that reverts it to broadcast.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from sqlalchemy.orm import Session

from market.chain import repository as chain_repository
from market.chain.contracts.codec import Deployment, encode_call
from market.chain.errors import (
    AlreadyKnown,
    ChainError,
    ExecutionReverted,
    InsufficientFunds,
    NonceTooLow,
    RpcError,
    RpcUnavailable,
    UnknownBlock,
)
from market.chain.models import OPERATOR, TxAttempt, TxIntent
from market.chain.rpc.client import Block, ChainClient, Receipt
from market.chain.transactions import fees
from market.chain.transactions.limits import Limits
from market.chain.transactions.signer import Signer
from market.domain.lifecycle import INTENT, IntentEvent, IntentStatus
from market.platform.db.session import Database
from market.platform.events.service import apply_event
from market.settings import Settings

IntentHandler = Callable[[Session, TxIntent], None]
IntentHandlers = Mapping[str, IntentHandler]
_log = structlog.get_logger(__name__)
GAP_KIND = "nonce_gap"
_MAX_UNMINED = 16  # number that nodes guarantee to keep per account
_PLAIN_TRANSFER_GAS = 21_000
_MAX_GAS = 1 << 24  # limit of a transaction (EIP-7825); a refused one would block its nonce


@dataclass(frozen=True, slots=True)
class _View:
    """State of the chain for one step. ``latest_nonce`` is the signer's next one at ``head``."""

    head: Block
    finalised: Block
    latest_nonce: int
    quote: fees.Fees


class Sender:
    """Sender of an account's intents, under an advisory lock per signer.

    ``handlers`` are by intent kind. They run in the transaction that makes an intent final or reverted.
    """

    def __init__(
        self,
        database: Database,
        client: ChainClient,
        deployment: Deployment,
        signer: Signer,
        settings: Settings,
        handlers: IntentHandlers,
        account: str = OPERATOR,
    ) -> None:
        self._database = database
        self._client = client
        self._deployment = deployment
        self._signer = signer
        self.address = signer.address
        self._limits = Limits.of(settings)
        self._fee_cap = settings.max_fee_gwei * 10**9
        self._stuck_after = settings.stuck_after_blocks
        self._handlers = handlers
        self._account = account
        self._seen_head = ""  # hash of the head at the last step

    def step(self) -> bool:
        """Record the outcomes of sent transactions, send some again, and send queued intents.

        Returns:
            False if there is nothing to do before the next block or intent.

        Raises:
            ChainError: the node is unreachable or refuses; a later call continues.
        """
        with self._database.transaction() as session:
            open_statuses = chain_repository.open_statuses(session, self._account, self.address)
        if not open_statuses:
            return False
        head = self._client.head()
        if open_statuses == {IntentStatus.MINED} and head.hash == self._seen_head:
            return False  # only a new block changes mined intents
        with self._database.advisory_lock(f"chain.sender.{self.address}") as held:
            if not held:
                return False
            finalised = self._client.finalised()
            view = _View(
                head,
                finalised,
                latest_nonce=self._client.nonce(self.address),
                quote=fees.quote(head.base_fee, self._client.priority_fee(), self._fee_cap),
            )
            tracked = self._track(view)
            filled = self._fill_gaps(view)
            self._send_again(view)
            sent = self._send_queued(view)
            self._seen_head = head.hash
            return sent or tracked or filled

    def _track(self, view: _View) -> bool:
        moved = False
        for intent in self._intents(*chain_repository.IN_FLIGHT):
            receipt = self._receipt(intent, view)
            why = self._revert_reason(intent, receipt) if receipt is not None and not receipt.succeeded else None
            foreign = receipt is None and self._is_displaced(intent, view)
            with self._database.transaction() as session:
                locked = chain_repository.locked_intent(session, intent.id)
                if receipt is not None:
                    moved |= self._record(session, locked, receipt, why, view)
                elif foreign:
                    self._displace(session, locked)
                    moved = True
                elif locked.status == IntentStatus.MINED:
                    locked.tx_hash = locked.block_number = locked.block_hash = None
                    _transition_intent(session, locked, IntentEvent.REORG, reason="reorganised")
                    moved = True
        return moved

    def _receipt(self, intent: TxIntent, view: _View) -> Receipt | None:
        """Return the receipt of the mined attempt; a final one counts only if on the chain."""
        attempts = (attempt for attempt in reversed(intent.attempts) if attempt.live)
        receipts = (self._client.receipt(attempt.hash) for attempt in attempts)
        found = next((receipt for receipt in receipts if receipt is not None), None)
        if found is None or found.block_number > view.finalised.number:
            return found
        block = self._client.block(found.block_number)
        return found if block is not None and block.hash == found.block_hash else None

    def _is_displaced(self, intent: TxIntent, view: _View) -> bool:
        # A missing receipt is not proof, because the node may lag. The foreign transaction must be in a final block.
        if intent.nonce is None or intent.nonce >= view.latest_nonce or intent.status == IntentStatus.MINED:
            return False
        try:
            if intent.nonce >= self._client.nonce(self.address, view.finalised.hash):
                return False
            holder = self._client.transaction_at(self.address, intent.nonce, view.finalised)
        except (RpcError, UnknownBlock) as error:  # many nodes lack the state of final blocks
            _log.error("nonce_holder_unknown", key=intent.key, nonce=intent.nonce, why=str(error))
            return False
        return holder not in {attempt.hash for attempt in intent.attempts}

    def _record(self, session: Session, intent: TxIntent, receipt: Receipt, why: str | None, view: _View) -> bool:
        """Update the intent's status from its receipt; return True if it changed."""
        moved = intent.status != IntentStatus.MINED
        if moved:
            _transition_intent(session, intent, IntentEvent.MINE)
        intent.tx_hash = receipt.tx_hash
        intent.block_number, intent.block_hash = receipt.block_number, receipt.block_hash
        if receipt.block_number > view.finalised.number:
            return moved
        if receipt.succeeded:
            _transition_intent(session, intent, IntentEvent.FINALISE)
        else:
            _transition_intent(session, intent, IntentEvent.REVERT, reason="reverted_on_chain", detail=why)
        self._run_handler(session, intent)
        return True

    def _displace(self, session: Session, intent: TxIntent) -> None:
        """Queue an intent again whose nonce a final foreign transaction used."""
        for attempt in intent.attempts:
            attempt.live = False
        intent.signer = intent.nonce = None
        _transition_intent(session, intent, IntentEvent.DISPLACE, reason="nonce_used_by_foreign_transaction")
        if intent.contract is None:  # the foreign transaction has filled the gap
            _transition_intent(session, intent, IntentEvent.REVERT, reason="gap_filled_by_foreign_transaction")

    def _revert_reason(self, intent: TxIntent, receipt: Receipt) -> str:
        """Return the revert reason of the same call after that block, nearly always the actual one."""
        to, data = self._call(intent)
        try:
            self._client.call(to, data, sender=self.address, block=receipt.block_number)
        except ExecutionReverted as error:
            return str(error)
        except ChainError as error:
            return f"the reason is unknown: {error}"
        return "the same call would not revert afterwards"

    def _run_handler(self, session: Session, intent: TxIntent) -> None:
        handler = self._handlers.get(intent.kind)
        if handler is not None:
            handler(session, intent)

    def _fill_gaps(self, view: _View) -> bool:
        """Fill each unused nonce by a transfer of 0 to the signer; it blocks all higher ones."""
        with self._database.transaction() as session:
            gaps = chain_repository.missing_nonces(session, self.address, view.latest_nonce)
            for nonce in gaps:
                key = f"{GAP_KIND}:{self.address}:{nonce}:{view.head.hash}"
                intent = TxIntent(
                    key=key,
                    kind=GAP_KIND,
                    account=self._account,
                    subject=self.address,
                    arguments=[],
                    status=IntentStatus.QUEUED,
                )
                session.add(intent)
                session.flush()
                self._sign(session, intent, nonce, _PLAIN_TRANSFER_GAS, view.quote)
        return bool(gaps)

    def _send_again(self, view: _View) -> None:
        for intent in self._intents(*chain_repository.UNMINED):
            attempt = intent.attempts[-1]
            if attempt.first_sent_block is not None and self._is_stuck(intent, attempt, view):
                attempt = self._replacement(intent, attempt, view) or attempt
            if attempt.last_sent_block is None or attempt.last_error or attempt.last_sent_block < view.head.number:
                self._broadcast(intent.id, attempt, view)

    def _is_stuck(self, intent: TxIntent, attempt: TxAttempt, view: _View) -> bool:
        """Return True if the lowest nonce has waited long; higher ones wait for it, not their fee."""
        waited = view.head.number - (attempt.first_sent_block or 0)
        return intent.nonce == view.latest_nonce and waited >= self._stuck_after

    def _replacement(self, intent: TxIntent, attempt: TxAttempt, view: _View) -> TxAttempt | None:
        old = fees.Fees(attempt.max_fee, attempt.priority_fee)
        raised = fees.replacement(old, view.quote, self._fee_cap)
        with self._database.transaction() as session:
            locked = chain_repository.locked_intent(session, intent.id)
            if raised is None:
                locked.reason, locked.detail = "fee_cap", f"outbidding {attempt.hash} would exceed {self._fee_cap} wei"
                return None
            return self._new_attempt(session, locked, attempt.nonce, attempt.gas_limit, raised)

    def _send_queued(self, view: _View) -> bool:
        sent, looked_at = False, 0
        room = _MAX_UNMINED - len(self._intents(*chain_repository.UNMINED))
        while room > 0:
            with self._database.transaction() as session:
                intent = chain_repository.next_queued(session, self._account, looked_at)
            if intent is None:
                break
            looked_at = intent.id
            attempt = self._prepare(intent, view)
            if attempt is not None:
                self._broadcast(intent.id, attempt, view)
                sent = True
                room -= 1
        return sent

    def _prepare(self, intent: TxIntent, view: _View) -> TxAttempt | None:
        """Simulate, assign a nonce and sign. Return None if the call reverts or must wait."""
        with self._database.transaction() as session:
            excess = self._limits.on_amount(session, intent)
        if excess is not None:
            self._wait(intent, *excess)
            return None
        try:
            # A third more: earlier transactions in the queue may change the cost.
            estimated = self._client.estimate_gas(self.address, *self._call(intent))
            gas = max(estimated, min(estimated * 4 // 3, _MAX_GAS))
        except ExecutionReverted as error:
            with self._database.transaction() as session:
                locked = chain_repository.locked_intent(session, intent.id)
                _transition_intent(session, locked, IntentEvent.REVERT, reason="simulation_reverted", detail=str(error))
                self._run_handler(session, locked)
            return None
        except (RpcError, InsufficientFunds) as error:  # later intents continue
            self._wait(intent, "not_estimated", str(error))
            return None
        with self._database.transaction() as session:
            excess = self._limits.on_gas(session, self.address, gas * view.quote.max_fee)
            if excess is None:
                locked = chain_repository.locked_intent(session, intent.id)
                nonce = max(chain_repository.next_nonce(session, self.address), view.latest_nonce)
                return self._sign(session, locked, nonce, gas, view.quote)
        self._wait(intent, *excess)
        return None

    def _wait(self, intent: TxIntent, reason: str, detail: str) -> None:
        """Leave an intent in the queue for the next step; log a new reason once."""
        if intent.reason != reason:
            _log.error("transaction_waits", key=intent.key, kind=intent.kind, reason=reason, detail=detail)
        with self._database.transaction() as session:
            locked = chain_repository.locked_intent(session, intent.id)
            locked.reason, locked.detail = reason, detail

    def _sign(self, session: Session, intent: TxIntent, nonce: int, gas_limit: int, quote: fees.Fees) -> TxAttempt:
        _transition_intent(session, intent, IntentEvent.SIGN)
        intent.signer, intent.nonce = self.address, nonce
        return self._new_attempt(session, intent, nonce, gas_limit, quote)

    def _new_attempt(
        self, session: Session, intent: TxIntent, nonce: int, gas_limit: int, quote: fees.Fees
    ) -> TxAttempt:
        to, data = self._call(intent)
        tx_hash, raw = self._signer.sign(
            {
                "type": 2,
                "chainId": self._client.chain_id,
                "nonce": nonce,
                "to": to,
                "value": 0,
                "data": data,
                "gas": gas_limit,
                "maxFeePerGas": quote.max_fee,
                "maxPriorityFeePerGas": quote.priority_fee,
            }
        )
        attempt = TxAttempt(
            intent_id=intent.id,
            signer=self.address,
            nonce=nonce,
            hash=tx_hash,
            raw=raw,
            gas_limit=gas_limit,
            max_fee=quote.max_fee,
            priority_fee=quote.priority_fee,
        )
        session.add(attempt)
        session.flush()
        return attempt

    def _broadcast(self, intent_id: int, attempt: TxAttempt, view: _View) -> None:
        """Send the stored bytes and record the answer; without one the outcome is open."""
        failure: ChainError | None = None
        accepted = False
        try:
            self._client.send_raw(attempt.raw)
            accepted = True
        except AlreadyKnown:
            accepted = True
        except NonceTooLow:
            pass  # this or a foreign transaction is mined; the receipts decide
        except ChainError as error:
            failure = error
        with self._database.transaction() as session:
            intent = chain_repository.locked_intent(session, intent_id)
            stored = next(own for own in intent.attempts if own.id == attempt.id)
            stored.first_sent_block = view.head.number if stored.first_sent_block is None else stored.first_sent_block
            stored.last_sent_block = view.head.number
            stored.last_error = None if failure is None else f"{failure.code}: {failure}"
            if accepted and intent.status == IntentStatus.SIGNED:
                _transition_intent(session, intent, IntentEvent.SEND)
        if isinstance(failure, RpcUnavailable):
            raise failure

    def _intents(self, *statuses: IntentStatus) -> list[TxIntent]:
        with self._database.transaction() as session:
            return chain_repository.sent_intents(session, self.address, statuses)

    def _call(self, intent: TxIntent) -> tuple[str, bytes]:
        """Return recipient and call data; a gap filler calls no contract."""
        if intent.contract is None or intent.function is None:
            return self.address, b""
        data = encode_call(intent.contract, intent.function, intent.arguments)
        return self._deployment.address(intent.contract), data


def _transition_intent(
    session: Session, intent: TxIntent, event: IntentEvent, *, reason: str | None = None, detail: str | None = None
) -> None:
    intent.reason, intent.detail = None, detail  # a reason belongs to one transition
    apply_event(session, intent, INTENT, event, subject=("tx_intent", str(intent.id)), reason=reason)

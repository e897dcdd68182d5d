"""Governance as JSON; amounts are decimal strings of wei."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from market.platform.http.types import AddressString, HashString, RequestModel, WeiOut
from zoo_protocol.acts.parameters import Kind
from zoo_protocol.acts.table import Delay, Stage

EventKind = Literal[
    "role_granted",
    "role_revoked",
    "admin_transfer",
    "paused",
    "unpaused",
    "delay_changed",
    "call_scheduled",
    "call_executed",
    "call_cancelled",
    "foreign_batch",
    "foreign_epoch",
    "batch_vetoed",
    "epoch_vetoed",
]
PayoutKind = Literal["batch", "epoch"]
OperationStatus = Literal["waiting", "due", "executed", "cancelled"]


class OperationCall(BaseModel):
    """One call of an operation, which the timelock makes."""

    target: str
    value_wei: WeiOut = Field(description="Native tokens that it sends.")
    data: str = Field(description="Call data, 0x hex.")


class OperationView(BaseModel):
    """Operation of the timelock."""

    id: str
    act: str | None = Field(description="Key of the act; null if the table of acts does not know it.")
    words: list[str] = Field(description="What it does, one sentence per call.")
    status: OperationStatus = Field(description="`waiting` until `ready_at`, then `due`.")
    scheduled_at: datetime
    scheduled_tx: str
    ready_at: datetime = Field(description="Time from which it can be executed.")
    ended_at: datetime | None
    ended_tx: str | None
    calls: list[OperationCall]
    predecessor: str
    salt: str


class OperationPage(BaseModel):
    items: list[OperationView]
    next_after: str | None = Field(description="Pass it as `after` for older operations; null at the end.")


class PayoutLine(BaseModel):
    """A job's line in a posted batch, from the chain."""

    job_id: str
    units: int
    from_round: int
    to_round: int
    paid_wei: WeiOut
    fee_wei: WeiOut
    last: bool


class Payee(BaseModel):
    """Account that a batch or epoch pays, by the market's own record."""

    account: str
    amount_wei: WeiOut


class PayoutView(BaseModel):
    """Settlement batch or reward epoch under its countdown, compared with the market's record."""

    kind: PayoutKind
    number: int
    root: str
    net_wei: WeiOut = Field(description="To providers, or all rewards of the epoch.")
    fee_wei: WeiOut = Field(description="To the treasury.")
    posted_at: datetime
    posted_tx: str
    claimable_at: datetime = Field(description="End of the countdown. A guardian can veto before.")
    vetoed_tx: str | None
    agrees: bool = Field(description="The market's own record has the same contents.")
    differences: list[str] = Field(description="Sentences; empty if it agrees.")
    lines: list[PayoutLine] = Field(description="Of a batch, by job.")
    payees: list[Payee] = Field(description="Largest payees of the market's record, at most 50.")
    payee_count: int


class EventView(BaseModel):
    """Event of governance on chain."""

    id: int
    kind: EventKind
    words: str
    contract: str
    role: str | None
    account: str | None
    operation_id: str | None
    tx_hash: str
    block_number: int
    at: datetime
    is_alarm: bool = Field(description="It was neither sent from here nor acknowledged.")
    acknowledged_by: str | None


class EventPage(BaseModel):
    items: list[EventView]
    next_after: int | None = Field(description="Pass it as `after` for older events; null at the end.")


class RoleHolder(BaseModel):
    """Account with a role of a contract."""

    contract: str
    role: str
    account: str
    since: datetime


class SentActRequest(RequestModel):
    """Transaction of an act that you sent."""

    tx_hash: HashString
    act: str = Field(max_length=64, description="Key of the act, or `timelock`.")
    stage: Stage


class ParameterValue(BaseModel):
    """Parameter of the contracts that an act changes."""

    act: str = Field(description="Key of the act that changes it.")
    label: str
    value: WeiOut = Field(description="Basis points, wei or seconds.")
    words: str = Field(description="The value with its unit.")
    changed_at: datetime | None = Field(description="Last change; null if no event shows one.")
    tx_hash: str | None
    pending: list[OperationView] = Field(description="Changes that wait in the timelock.")


class PaymentView(BaseModel):
    """Payment of the treasury."""

    fund: str
    recipient: str
    amount_wei: WeiOut
    purpose: str = Field(description="Hash of the document that states the purpose.")
    grant_id: int | None = Field(description="Number of the grant; null for other payments.")
    at: datetime
    tx_hash: str


class ParameterView(BaseModel):
    """Argument of an act."""

    name: str
    label: str
    kind: Kind
    choices: list[str] = Field(description="Accepted words, of kind `choice`.")
    expected: str = Field(description="Accepted form in words.")


class ActView(BaseModel):
    """Row of the table of acts."""

    key: str
    title: str
    contract: str
    function: str
    words: str = Field(description="Sentence with the arguments in braces.")
    role: str | None = Field(description="Role in the contract that the caller needs; null: any account.")
    delay: Delay
    is_dangerous: bool = Field(description="It takes a typed confirmation.")
    parameters: list[ParameterView]


class PrepareRequest(RequestModel):
    """Act of a person's account."""

    sender: AddressString = Field(description="Account that will sign.")
    arguments: dict[str, str] = Field(default_factory=dict, max_length=8, description="Text by argument name.")


class SenderRequest(RequestModel):
    sender: AddressString = Field(description="Account that will sign.")


class TransactionView(BaseModel):
    """Transaction for the wallet to sign."""

    chain_id: int
    to: str
    value: str
    data: str


class SimulationView(BaseModel):
    """Outcome of the transaction if it were sent now."""

    passes: bool
    error: str | None = Field(description="Name of the contract's error.")
    refusal: str | None = Field(description="Sentence, if the contract refuses it.")
    warnings: list[str] = Field(description="Reasons why a proposal would fail if it were executed now.")


class PreparedView(BaseModel):
    """An act ready to be signed elsewhere. The market holds no key of it."""

    act: str | None
    stage: Stage
    title: str
    words: list[str]
    contract: str
    function: str
    role: str | None
    delay_seconds: int = Field(description="Time until it can take effect.")
    confirmation: str | None = Field(description="Phrase to type before signing; null if none is needed.")
    amount_wei: WeiOut = Field(description="ZEN that it moves.")
    operation_id: str | None
    transaction: TransactionView
    safe: dict[str, Any] = Field(description="File for the transaction builder of a Safe.")
    simulation: SimulationView


class ActProgress(BaseModel):
    """State of a sent transaction."""

    tx_hash: str
    status: Literal["waiting", "mined", "final", "reverted"]
    block_number: int | None


class AuditEntry(BaseModel):
    """Transition of a state machine, or an act of a person."""

    id: int
    created_at: datetime
    subject_kind: str
    subject_id: str
    event: str
    from_status: str | None
    to_status: str | None
    reason: str | None
    actor: str
    data: dict[str, Any]


class AuditPage(BaseModel):
    items: list[AuditEntry]
    next_after: int | None = Field(description="Pass it as `after` for older entries; null at the end.")

"""The receipt as JSON; amounts are decimal strings of wei."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field


class ReceiptUnit(BaseModel):
    provider: str
    round: int
    slot: int
    status: str
    reason: str | None
    paid_wei: str
    trace_root: str | None
    payload_cid: str | None
    sampling_bps: int | None = Field(description="Sampling rate of its segments; null if it was not delivered.")
    drawn_segments: list[int] = Field(
        description="Segments that the seed selected for replay. All of them were replayed if the unit is verified."
    )
    detection_probability: float | None = Field(
        description="Probability before sampling that one false segment is replayed. With N segments and q sampled it "
        "is `1 - C(N-1, q) / C(N, q)`; if N times the rate is not whole, the mean over both q."
    )


class ReceiptSlash(BaseModel):
    provider: str
    reason: str
    amount_wei: str
    tx: str
    path: str = Field(description="Decision by a committee on chain (dispute) or by the operator's key (operator).")
    path_reason: str | None = Field(description="Reason of an operator's decision; null for a dispute.")


class ReceiptCheckpoint(BaseModel):
    round: int
    cid: str
    validation_loss: float | None
    validation_error: float | None = Field(description="Standard error of the loss.")
    validation_samples: int | None = Field(description="Number of samples that the loss is of.")
    pins: list[str] = Field(description="Providers that proved a copy.")


class ReceiptRollback(BaseModel):
    """A checkpoint that repeats an earlier one. No payload of its round is in the model."""

    round: int = Field(description="Round of the checkpoint, as in `checkpoints`.")
    to: int = Field(description="Round of the earlier checkpoint, the one with the lowest loss.")
    reason: str = Field(description="loss_spike, loss_not_finite, final_loss, step_not_finite or diverged")


class ReceiptSeconds(BaseModel):
    """Durations by the market's clock; null if the job ended before."""

    first_step: float | None = Field(description="From submission to the first reported training step.")
    total: float | None = Field(description="From submission to final settlement.")


class ReceiptSettlement(BaseModel):
    """The job's line in one batch: rounds `from_round` to before `to_round`."""

    batch: int = Field(description="Batch of the providers' claims; 0 if no unit was paid.")
    from_round: int
    to_round: int
    units: int
    paid_wei: str
    fee_wei: str
    tx: str


class Receipt(BaseModel):
    """paid + fee + refund == escrowed; fee is exactly fee_bps of paid + fee."""

    job_id: str
    tier: str
    outcome: str
    clearing_price_wei_per_gpu_hour: str
    budget_wei: str
    escrowed_wei: str
    paid_wei: str
    fee_wei: str
    refund_wei: str
    settlements: list[ReceiptSettlement] = Field(
        description="Lines that are not void, in order. The last one ended the job."
    )
    units: list[ReceiptUnit]
    slashes: list[ReceiptSlash]
    checkpoints: list[ReceiptCheckpoint]
    rollbacks: list[ReceiptRollback]
    initial_loss: float | None
    final_loss: float | None
    final_error: float | None = Field(description="Standard error of the final loss, in nats per token.")
    final_model_cid: str | None = Field(description="Last checkpoint's model, also if the job ended early.")
    settlement_tx: str
    treasury_balance_wei: str
    ledger_reconciled: bool = Field(
        description="The market's ledger equals the chain, by the comparison of `GET /v1/ledger/reconciliation`."
    )
    seconds: ReceiptSeconds


class ClaimView(BaseModel):
    """Your claim from one settlement batch: call `JobEscrow.claim` with it from your wallet."""

    job_ids: list[str] = Field(description="Jobs of the paid units.")
    batch_id: int
    amount_wei: str
    proof: list[str] = Field(description="From your claim's leaf to the batch's root, 0x hex.")
    claimable_at: datetime = Field(description="End of the batch's challenge period; the contract pays from then on.")
    claim_tx: str | None


class ClaimPage(BaseModel):
    items: list[ClaimView]
    next_after: int | None = Field(description="Pass it as `after` for the next page; null on the last one.")


class DecidedUnits(BaseModel):
    """The decided attempts at one unit."""

    record: dict[str, Any] = Field(description="A job record of these units and their windows alone.")

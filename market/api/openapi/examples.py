"""The examples of the OpenAPI document: one market, one job of four Bronze nodes, told by the names of fields.

Its money adds up: 32 units (8 rounds, 4 nodes) of an eighth of a GPU-hour at 2.5 ZEN are 10 ZEN, 9.5 for the nodes and
0.5 for the treasury; of the 12 ZEN in escrow 2 go back. :func:`market.api.openapi.document.install_openapi` puts
each value
where its name occurs; a test holds every one to the schema that it stands for.
"""

from typing import Any

PAYER = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"


NODE = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"


JOB_ID = "0x5be3c4f1d0a94b7ce1a7a26fd9a3f0b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f7"


HASH = "0x9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


OTHER_HASH = "0x60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"


SIGNATURE = "0x" + "4f" * 32 + "1c" * 32 + "1b"


TX = "0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3"


CID = "bafybeiejlvvmfokp5c6q2eqgbfjeaokz3nqho5c7yy3ov527vsatgsqfma"


EARLIER, NOW, LATER = "2026-03-01T11:42:10Z", "2026-03-01T12:00:00Z", "2026-03-01T18:00:00Z"


UNIX = 1_772_388_000


ZEN = 10**18


BOOK = "bronze.eu-west"


REGION = "eu-west"


def zen(thousandths: int) -> str:
    """An amount in wei, as it travels."""
    return str(thousandths * ZEN // 1_000)


_SPEC: dict[str, Any] = {
    "data_config": {"dataset": CID},
    "model_config": {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "sequence_length": 64},
    "training_config": {"rounds": 8, "inner_steps": 48, "batch_size": 16, "learning_rate": "0.003"},
}


DOMAIN = {"name": "ZooCompute", "version": "1", "chainId": 31337, "verifyingContract": NODE}


def _document(kind: str, **message: str) -> dict[str, Any]:
    """An EIP-712 document for a wallet, its types cut short."""
    fields = [
        {"name": name, "type": "address" if value.startswith("0x") else "uint256"} for name, value in message.items()
    ]
    return {"types": {kind: fields}, "primaryType": kind, "domain": DOMAIN, "message": message}


FIELDS: dict[str, Any] = {
    # --- who and what
    "account": PAYER,
    "address": PAYER,
    "payer": PAYER,
    "provider": NODE,
    "owner": "Zoo Labs",
    "name": "basement-1",
    "id": JOB_ID,
    "job_id": JOB_ID,
    "job_ids": [JOB_ID],
    "unit_id": HASH,
    "dispute_id": OTHER_HASH,
    "challenger": PAYER,
    "referee": NODE,
    "committee": [NODE],
    "segments": 8,
    "draw": 0,
    "checkpoint_cid": CID,
    "restored_payload_cid": None,
    "eager_payload_cid": None,
    "organisation": 7,
    "organisation_id": 7,
    "event_id": 1_204,
    "message_id": "msg_1204_3",
    # --- states
    "status": "running",
    "reason": None,
    "outcome": "completed",
    "statement": "Sign in to Zoo Compute.",
    "sentence": "5 nodes ask for more than the job's limit of 3 ZEN per GPU-hour.",
    "field": "max_price",
    "detail": "answers",
    "error": None,
    "response_status": 200,
    "attempts": 1,
    # --- instants
    "at": NOW,
    "created_at": EARLIER,
    "funded_at": "2026-03-01T11:42:31Z",
    "matched_at": "2026-03-01T11:42:40Z",
    "first_step_at": "2026-03-01T11:42:52Z",
    "trained_at": "2026-03-01T11:58:03Z",
    "settled_at": NOW,
    "committed_at": "2026-03-01T11:44:01Z",
    "uploaded_at": "2026-03-01T11:44:09Z",
    "decided_at": "2026-03-01T11:47:30Z",
    "paused_at": None,
    "expires_at": LATER,
    "wait_until": LATER,
    "valid_until": LATER,
    "validUntil": UNIX,
    "placed_at": EARLIER,
    "registered_at": "2026-01-12T08:30:00Z",
    "last_seen_at": NOW,
    "attested_until": "2026-05-30T00:00:00Z",
    "disputed_at": None,
    "closes_at": "2026-03-01T11:42:35Z",
    "closed_at": "2026-03-01T11:42:36Z",
    "cleared_at": "2026-03-01T11:42:40Z",
    "next_round_at": "2026-03-01T12:00:05Z",
    "expected_at": "2026-03-01T12:20:00Z",
    "claimable_at": "2026-03-02T12:00:00Z",
    "next_attempt_at": None,
    "delivered_at": NOW,
    "deadline": UNIX,
    "deadline_at": "2026-03-01T12:01:00Z",
    "permit_deadline": UNIX,
    "include_by": UNIX,
    "start": NOW,
    # --- durations
    "lease_seconds": 30.0,
    "ready_seconds": 900,
    "answer_seconds": 300,
    "next_within_seconds": 30.0,
    "verifiers_of_class": 5,
    "wait_seconds": 20.0,
    "seconds": 114.2,
    "expected_seconds": 900.0,
    "round_seconds": 48.9,
    "compute_seconds": 45.0,
    "closing_seconds": 1.2,
    "up_bytes": 6_300_000,
    "down_bytes": 6_300_000,
    "down_mbps": 100.0,
    "up_mbps": 20.0,
    "round_trip_seconds": 0.08,
    "first_step": 42.0,
    "seconds_compute": 3_180.0,
    "seconds_transfer": 220.5,
    "compute_ms": 99_400,
    "transfer_ms": 6_890,
    "total": 1_070.0,
    "expires_in_days": 90,
    "overlap_hours": 24,
    "unbonding_seconds": 1_209_600,
    "refund_delay_seconds": 5_184_000,
    "cancel_delay_seconds": 259_200,
    "challenge_seconds": 86_400,
    "fill_p50_ms": 4_200,
    "fill_p90_ms": 9_800,
    "round_trip_ms": 24,
    "session": "5f0e1c9a7b2d4863a1f45d0c8e92b7d6",
    "predecessors": ["c2a96e0b417f4d58b3e0917ad65f28c4"],
    # --- the job
    "spec": _SPEC,
    "request": {
        **_SPEC,
        "tier": "bronze",
        "nodes": 4,
        "budget_max": zen(12_000),
        "max_price": zen(3_000),
        "wait_until": LATER,
        "requirements": {"regions": [REGION], "min_reliability_bps": 8_000},
        "checkpoint": {"interval": 1, "storage": "ipfs", "redundancy": 3},
    },
    "settings_by_size": {"inner_steps": 30, "segment_steps": 6, "top_k": 64, "down_top_k": 64, "round_delay": 1},
    "model_config": _SPEC["model_config"],
    "data_config": _SPEC["data_config"],
    "training_config": _SPEC["training_config"],
    "checkpoint": {"interval": 1, "storage": "ipfs", "redundancy": 3},
    "interval": 1,
    "redundancy": 3,
    "requirements": {"regions": [REGION], "min_reliability_bps": 8_000},
    "regions": [REGION],
    "excluded_regions": ["us-east"],
    "environment_classes": [HASH],
    "environment_class": HASH,
    "min_gpu_memory_gb": 40,
    "min_reliability_bps": 8_000,
    "tier": "bronze",
    "nodes": 4,
    "rounds": 8,
    "round": 3,
    "from_round": 0,
    "to_round": 8,
    "slot": 1,
    "step": 24,
    "steps": 48,
    "units": 32,
    "units_ordered": 32,
    "units_included": 4,
    "units_excluded": 0,
    "units_lost": 0,
    "units_delivered": 32,
    "units_reported": 32,
    "units_late": 1,
    "top_k": 128,
    "rounds_late": None,
    "tolerated_segments": [],
    "doubts": [],
    "unit_weight_us": 450_000_000,
    "segments_per_unit": 8,
    "sampling_bps": 500,
    "detection_probability": 0.25,
    "least_detection_probability": 0.4,
    "tokens": 1_572_864,
    "tokens_per_second": 1_470.0,
    "ideal_tokens_per_second": 1_978.4,
    "share_of_ideal": 0.743,
    "share_compute": 0.743,
    "share_transfer": 0.052,
    "share_wait": 0.205,
    "bytes_up": 41_943_040,
    "bytes_down": 73_400_320,
    "bytes_up_measured": 41_418_752,
    "up_bytes_per_second": 2_500_000,
    "down_bytes_per_second": 12_500_000,
    "initial_loss": "5.5461",
    "final_loss": "2.4107",
    "validation_loss": "2.9312",
    "train_loss": "2.8804",
    # --- money
    "budget_max": zen(12_000),
    "budget_wei": zen(12_000),
    "escrowed_wei": zen(12_000),
    "max_price": zen(3_000),
    "max_price_wei": zen(3_000),
    "price_cap_wei": zen(3_000),
    "highest_payable_price_wei": zen(3_000),
    "limit_price_wei": zen(3_000),
    "limit_price_wei_per_gpu_hour": zen(3_000),
    "reserve_price_wei": zen(2_500),
    "clearing_price_wei_per_gpu_hour": zen(2_500),
    "price_wei_per_gpu_hour": zen(2_500),
    "price_now_wei_per_gpu_hour": zen(2_600),
    "last_price_wei_per_gpu_hour": zen(2_500),
    "last_wei": zen(2_500),
    "low_wei": zen(2_500),
    "high_wei": zen(2_800),
    "mean_wei": zen(2_600),
    "volume_us": "14400000000",
    "minPrice": zen(2_000),
    "min_price_wei": zen(2_000),
    "unit_price_wei": "312500000000000000",
    "unit_price_at_reserve_wei": "312500000000000000",
    "unit_price_at_max_price_wei": zen(375),
    "cost_at_reserve_wei": zen(10_000),
    "cost_at_last_price_wei": zen(10_000),
    "last_price_wei": zen(2_500),
    "cost_at_max_price_wei": zen(12_000),
    "paid_wei": zen(9_500),
    "fee_wei": zen(500),
    "refund_wei": zen(2_000),
    "fee_bps": 500,
    "per_job_wei": zen(100_000),
    "per_day_wei": zen(250_000),
    "total_wei": zen(5_000_000),
    "spent_today_wei": zen(12_000),
    "spent_total_wei": zen(84_500),
    "stake_wei": zen(1_000_000),
    "minimum_stake_wei": zen(1_000_000),
    "verifier_minimum_stake_wei": zen(500_000),
    "treasury_balance_wei": zen(1_240_500),
    "balance_wei": zen(1_240_500),
    "received_wei": zen(1_300_500),
    "available_wei": zen(620_250),
    "spent_wei": zen(30_000),
    "destination": "protocol_development",
    "share_bps": 5_000,
    "difference_wei": "0",
    "ledger_wei": zen(12_000),
    "chain_wei": zen(12_000),
    "unattributed_escrow_wei": "0",
    "unattributed_stake_wei": "0",
    "claimed_wei": zen(31_200),
    "cumulative_wei": zen(32_350),
    "amount_wei": zen(1_150),
    "base_wei": zen(547),
    "bandwidth_wei": zen(30),
    "verifier_wei": zen(10),
    "compensation_wei": zen(10_000),
    # --- chain
    "chain_id": 31337,
    "block": 1_402_118,
    "block_number": 1_402_118,
    "block_hash": TX,
    "checked": 214,
    "nonce": "218740981236540912374",
    "order": _document("JobOrder", payer=PAYER, units="32", budget=zen(12_000), nonce="218740981236540912374"),
    "permit": _document("Permit", owner=PAYER, spender=NODE, value=zen(12_000), nonce="0", deadline=str(UNIX)),
    "order_signature": SIGNATURE,
    "commitment_signature": SIGNATURE,
    "signature": SIGNATURE,
    "tx": TX,
    "open_tx": TX,
    "claim_tx": None,
    "settlement_tx": TX,
    "batch": 17,
    "batch_id": 17,
    "proof": [HASH, OTHER_HASH],
    "root": OTHER_HASH,
    "window_root": OTHER_HASH,
    "contracts": {"ZenToken": PAYER, "JobEscrow": NODE},
    "start_block": 1_398_004,
    "rpc_url": "https://rpc.example.com",
    "gateway_url": "https://ipfs.example.com",
    "gateway_urls": ["https://ipfs.example.com", "https://ipfs.example.org"],
    # --- content and commitments
    "cid": CID,
    "model_cid": CID,
    "final_model_cid": CID,
    "record_cid": CID,
    "spec_cid": CID,
    "payload_cid": CID,
    "state_cid": CID,
    "slot_state_cid": CID,
    "slot_state_digest": HASH,
    "published_cid": CID,
    "followed_cid": CID,
    "end_state_cid": None,
    "evidence_cid": CID,
    "evidence": HASH,
    "spec_hash": HASH,
    "trace": [HASH, OTHER_HASH],
    "states": {"1": CID},
    "trace_root": HASH,
    "payload_hash": OTHER_HASH,
    "payload_sha256": OTHER_HASH,
    "result_hash": HASH,
    "end_leaf": HASH,
    "inner_digest": None,
    "end_parameters_digest": OTHER_HASH,
    "leaves": [HASH, OTHER_HASH],
    "salt": OTHER_HASH,
    "seed": HASH,
    "exclusion_reason": None,
    "pins": [NODE],
    "size": 1_048_576,
    "task": {"round": 3, "slot": 1, "theta": CID, "spec": CID},
    "token": OTHER_HASH,
    # --- auctions
    "book": BOOK,
    "zone": REGION,
    "number": 41,
    "newest_round": 41,
    "bucket": "1h",
    "commitment": HASH,
    "book_hash": OTHER_HASH,
    "seed_block": 1_402_090,
    "seed_block_hash": TX,
    "secret": OTHER_HASH,
    "rule": "sbba",
    "arrival": 2,
    "bid": "b-6f1c",
    "asks": ["a-09d2"],
    "bid_nodes": 12,
    "ask_nodes": 9,
    "suitable": 9,
    "affordable": 6,
    "free": 3,
    "removes": 5,
    "left": 9,
    "nodes_total": 14,
    # --- keys, webhooks and pages
    "key": "zck_7Yw2mQ4bT9fK1sV6xR3nZ8cL5dH0jGpE",
    "prefix": "zck_7Yw2",
    "scopes": ["jobs:write", "storage:write"],
    "roles": ["user", "provider"],
    "url": "https://hooks.example.com/zoo",
    "payload": {
        "type": "job.status",
        "timestamp": NOW,
        "data": {"job_id": JOB_ID, "event_id": 1_204, "status": "running"},
    },
    "domain": "api.example.com",
    "uri": "https://api.example.com",
    "next": JOB_ID,
    "next_after": 41,
}
"""By the name of a field, wherever it occurs; what says something of a node is in ``examples_of_nodes``."""

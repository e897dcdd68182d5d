"""Examples of the OpenAPI document for one model, one parameter or one media type."""

from typing import Any

from market.api.openapi.examples import BOOK, CID, DOMAIN, EARLIER, HASH, JOB_ID, NODE, NOW, OTHER_HASH, PAYER, zen

OF_MODEL: dict[str, dict[str, Any]] = {
    "AcknowledgementView": {"unit_id": HASH},
    "Advice": {
        "code": "few_rounds",
        "detail": "20 rounds that move 64 of 4096 parameters each change at most 31.2% of the model.",
        "remedy": "Take at least 64 rounds, a larger top_k and down_top_k, or the method default, which sends every "
        "entry.",
        "field": "training_config.rounds",
    },
    "AskFields": {"tier": 1, "provider": NODE, "nonce": "7"},
    "AskView": {"id": HASH, "status": "open"},
    "BenchmarkView": {"size": 8_192, "rounds": 64, "steps": 10_000},
    "BalanceView": {"balance_wei": zen(42_000), "available_wei": zen(30_000)},
    "BegunView": {"nonce": HASH},
    "ChallengedView": {"id": "0c4f8a2e-5d41-4e27-9f3b-2b6f0c9a7e11"},
    "CompleteEvaluation": {"record": "2 16 46137344 128 1066526278942720 369098752"},
    "CompletePin": {"proof": HASH},
    "CaseView": {"order": {"payer": PAYER, "units": "32"}},
    "CommitState": {"id": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "status": "active"},
    "ConstraintView": {"code": "price"},
    "DeliveryView": {"id": 88, "status": "delivered"},
    "DepositView": {"id": 4_211, "status": "mined", "amount_wei": zen(12_000)},
    "Difference": {"name": "escrow of job " + JOB_ID},
    "DisputeSummary": {"status": "judging", "step": 3},
    "DisputeView": {"status": "judging", "step": 3, "states": [HASH]},
    "DomainView": DOMAIN,
    "Efficiency": {"claims": "seconds_compute, seconds_transfer, bytes_up, bytes_down"},
    "FailLease": {"code": "out_of_memory", "detail": "the batch does not fit into 40 GB"},
    "FileRequest": {"size": 70_000_000, "piece_bytes": 33_554_432, "pieces": [CID, CID, CID]},
    "HistoryPoint": {"rounds": 6},
    "KeyRequest": {"name": "training scripts"},
    "KeyView": {"id": 3, "name": "training scripts"},
    "LeaseState": {"id": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed", "status": "done"},
    "LeaseView": {"id": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"},
    "MemberView": {"address": NODE},
    "NetworkView": {"name": "mainnet"},
    "NewKeyView": {"id": 3, "name": "training scripts"},
    "NewWebhookView": {"id": 5, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
    "NodeProblem": {
        "code": "few_processes",
        "detail": "A unit uses at most 2 of the node's GPUs. Prices of bronze count on 4.",
        "remedy": "Run the node without --processes, or with --processes 4.",
    },
    "NonceView": {"nonce": "kW4gqZ0pXb7tR2yL"},
    "DecidedUnits": {"record": {"kind": "zoo-job-record/7", "job_id": JOB_ID, "segments": 10, "units": [{"round": 3}]}},
    "OmissionView": {"status": "open", "deadline": "2026-03-02T12:00:00Z", "include_by": NOW, "compensation_wei": None},
    "OrganisationView": {"id": 7, "name": "Zoo Labs"},
    "OrganisationRequest": {"name": "Zoo Labs"},
    "OrganisationPatch": {"name": "Zoo Labs"},
    "OwnOrders": {"bids": {"b-6f1c": JOB_ID}, "asks": {"a-09d2": NODE}},
    "ProviderPage": {"next_after": NODE},
    "ProviderView": {"address": NODE, "status": "active"},
    "PublishedAsk": {"id": "a-09d2"},
    "PublishedBid": {"id": "b-6f1c"},
    "Receipt": {"initial_loss": 5.5461, "final_loss": 2.4107, "final_error": 0.0061},
    "ReceiptCheckpoint": {"validation_loss": 2.4107, "validation_error": 0.0061, "validation_samples": 2048},
    "ReceiptRollback": {"round": 9, "to": 7, "reason": "loss_spike"},
    "ReceiptSlash": {"reason": "incorrect_computation", "amount_wei": zen(500_000)},
    "ReceiptUnit": {
        "status": "verified",
        "paid_wei": "296875000000000000",
        "sampling_bps": 2500,
        "drawn_segments": [2],
        "detection_probability": 0.25,
    },
    "RefereeVerdict": {"reason": "step_false", "provider_correct": False},
    "RewardProof": {"epoch": 41},
    "RewardsView": {"account": NODE, "next_after": None},
    "RolesRequest": {"roles": ["treasury"]},
    "RolesView": {"roles": ["treasury"]},
    "RoundSummary": {"status": "cleared", "reason": "traded"},
    "RoundView": {"status": "cleared", "reason": "traded"},
    "SessionView": {"token": "zcs_2uQ8vB5nX1kT7mW4yR9sD6fH3jL0pCzA"},
    "SignInRequest": {
        "message": f"api.example.com wants you to sign in with your Ethereum account:\n{PAYER}\n\n"
        "Sign in to Zoo Compute.\n\n"
        "URI: https://api.example.com\nVersion: 1\nChain ID: 31337\nNonce: kW4gqZ0pXb7tR2yL\n"
        f"Issued At: {NOW}\nExpiration Time: 2026-03-01T12:05:00Z"
    },
    "TierView": {"id": 1},
    "UnitView": {"id": 512, "status": "verified", "reason": None},
    "VerdictRequest": {"reason": "step_false", "provider_correct": False},
    "VerdictView": {"reason": "passed"},
    "WebhookView": {"id": 5},
    "Why": {"status": "matching", "reason": None},
    "Alive": {"status": "alive"},
    "Progress": {"units": {"verified": 32}, "round": 8},
    "JobView": {"status": "settled", "reason": "completed"},
    "WorkView": {"size": 8_192, "rounds": 64, "steps": 10_000},
}
"""Examples by model, for names with another meaning in it; models of one name share theirs."""

PARAMETERS: dict[str, Any] = {
    "address": NODE,
    "after": 41,
    "list_jobs.after": JOB_ID,
    "list_providers.after": NODE,
    "all": False,
    "ask_id": HASH,
    "benchmark_id": "0c4f8a2e-5d41-4e27-9f3b-2b6f0c9a7e11",
    "challenge_id": "5a1d6f0b-93c2-4c58-8e0f-2f7b9d1c4a36",
    "book": BOOK,
    "bucket": "1h",
    "cid": CID,
    "claimed": False,
    "created_before": NOW,
    "created_from": EARLIER,
    "delivery_id": 88,
    "deposit": zen(12_000),
    "dispute_id": OTHER_HASH,
    "draw": 0,
    "from": EARLIER,
    "idempotency-key": "6f1d3a52-8c0e-4b7a-9e51-0d2c4b6a8f13",
    "job_id": JOB_ID,
    "round": 3,
    "slot": 1,
    "key_id": 3,
    "last-event-id": 1_204,
    "lease_id": "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
    "limit": 20,
    "number": 41,
    "organisation": 7,
    "organisation_id": 7,
    "piece_cid": CID,
    "status": ["running", "verifying"],
    "tier": "bronze",
    "to": NOW,
    "unit_id": HASH,
    "webhook_id": 5,
    "X-Lease-Token": OTHER_HASH,
}
"""Examples by parameter name, or by operation and name."""

KEYS = {"tiers": "bronze", "checks": "database"}
"""Example keys by name of a field that maps keys to models."""

TEXTS = {
    "application/octet-stream": "To be, or not to be, that is the question",
    "text/event-stream": f'id: 1204\nevent: status\ndata: {{"status": "running", "job_id": "{JOB_ID}"}}\n\n',
    "text/plain": 'zoo_jobs{status="running"} 12.0\n',
}
"""Examples by media type other than JSON."""

"""Names that vulture cannot see in use. It reads this file; nothing imports it."""

from typing import Any

_: Any = object()

# Frameworks read or call these: http.server, uvicorn, SQLAlchemy, Pydantic, torch, Celery, Alembic, pytest, Hypothesis,
# python-multipart.
_.TestStore
_.__getattr__
_.abstract
_.argument_filters
_.branch_labels
_.cache_ok
_.capture_signals
_.close_connection
_.daemon_threads
_.depends_on
_.do_DELETE
_.do_GET
_.do_POST
_.down_revision
_.fairy
_.impl
_.loadscopereorder
_.log_message
_.model_config
_.mr_signer
_.on_end
_.on_header_end
_.on_header_field
_.on_header_value
_.on_headers_finished
_.on_part_begin
_.on_part_data
_.on_part_end
_.own_logs
_.process_bind_param
_.process_result_value
_.protocol_version
_.pytest_collection_modifyitems
_.pytest_configure
_.pytest_xdist_make_scheduler
_.pytestmark
_.request_queue_size
_.should_exit
_.task_default_queue
_.teardown

# An argument of a contract's constructor, through dataclasses.astuple.
_.withdraw_seconds

# Named by a string: uvicorn's factory argument and a type bound.
_.DataclassInstance
_.bare_app

# Fields that only appear in JSON.
_.FEATURES
_.architecture
_.attested_at
_.attested_gpus
_.available_wei
_.cancel_requested
_.chainId
_.closing_seconds
_.compute_ms
_.delivered_at
_.down_bytes_per_second
_.driver
_.eip712_domain
_.event_id
_.fill_p50_ms
_.fill_p90_ms
_.followed_cid
_.high_wei
_.last_price_wei
_.last_price_wei_per_gpu_hour
_.last_wei
_.ledger_reconciled
_.limit_price_wei_per_gpu_hour
_.low_wei
_.mean_wei
_.mflops
_.newest_round
_.next_round_at
_.next_within_seconds
_.nodes_total
_.open_tx
_.pck_certificate_chain
_.pck_crl
_.pck_crl_issuer_chain
_.piece_bytes
_.qe_identity
_.qe_identity_issuer_chain
_.qe_identity_signature
_.received_wei
_.registered_at
_.response_status
_.root_ca_crl
_.segments_per_unit
_.settlements
_.spent_today_wei
_.spent_total_wei
_.spent_wei
_.tcb_info_issuer_chain
_.tcb_info_signature
_.transfer_ms
_.treasury_balance_wei
_.unit_price_at_max_price_wei
_.unit_price_at_reserve_wei
_.unit_price_wei
_.units_excluded
_.units_included
_.units_late
_.units_lost
_.uri
_.vbios
_.verifyingContract

# Columns that only operators read.
_.delivered_at
_.ended_tx
_.event_id
_.from_status
_.latch_tx
_.opened_tx
_.response_status
_.subject_kind
_.to_status

# Fields and members of ABI structs and enumerations.
_.REFUNDED
_.available_wei
_.claimableAt
_.disputableUntil
_.feeBps
_.fromRound
_.listedBy
_.nextRound
_.postedAt
_.received_wei
_.scheduledAt
_.seedBlock
_.settleBy
_.settle_by
_.spent_wei
_.toRound
_.unitsLeft
_.units_left
_.withdraw_seconds
_.withdrawal_delay

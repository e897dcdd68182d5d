"""The examples of the OpenAPI document that say what a node is, has proven and has done."""

from typing import Any

from market.api.openapi.examples import CID, HASH, OTHER_HASH, REGION

_TOKEN = "eyJhbGciOiJFUzM4NCJ9.e30.c2lnbmF0dXJl"


_PEM = "-----BEGIN CERTIFICATE-----\n...\n-----END CERTIFICATE-----\n"


OF_NODES: dict[str, Any] = {
    # --- hardware, benchmark and record
    "region": REGION,
    "site": "fra-3",
    "asn": 64_496,
    "hardware": {"gpu_model": "A100 40GB", "gpu_count": 4, "gpu_memory_gb": 40, "ram_gb": 256, "network_gbps": 100},
    "gpu_model": "A100 40GB",
    "gpu_count": 4,
    "gpus": 4,
    "gpu_memory_gb": 40,
    "ram_gb": 256,
    "network_gbps": 100,
    "uptime_sla_bps": 9_500,
    "uptime_bps": 9_986,
    "reference_flops_per_gpu": 125 * 10**12,
    "min_mflops": 40_000_000,
    "min_walk_mbps": 56_000,
    "min_upload_mbps": 1_000,
    "mflops": 61_240_000,
    "pool": 400,
    "lanes": 4,
    "opened": 6,
    "benchmark_by": None,
    "challenge": HASH,
    "reliability_bps": 9_412,
    "counted_minutes": 1_440,
    "committed_minutes": 1_440,
    "committed_up_minutes": 1_438,
    "served_bytes": 3_221_225_472,
    "replays": 12,
    "verified": 96,
    "rejected": 0,
    "lost": 1,
    "refused": 0,
    "slashes": 0,
    "path": "dispute",
    "path_reason": None,
    "epoch": 20_513,
    "first_epoch": 20_512,
    "last_epoch": 20_513,
    "post": 41,
    "newcomer_sampling_bps": 2_500,
    "sampling_floor_bps": 200,
    "penalty_bps": {"downtime": 500, "incorrect_computation": 5_000},
    "treasury_split_bps": {"protocol_development": 5_000, "security_audits": 3_000, "community_grants": 2_000},
    "max_blob_bytes": 67_108_864,
    "max_bytes": 78_644_312,
    "piece_bytes": 4_194_304,
    "pieces": {"0": CID},
    # --- attestations (quotes and certificates are cut short)
    "tee": "TDX",
    "measurement": HASH,
    "tcb_status": "UpToDate",
    "advisories": ["INTEL-SA-00837"],
    "report": OTHER_HASH,
    "report_cid": CID,
    "report_data": HASH + "00" * 32,
    "gpu_nonce": HASH,
    "overall": _TOKEN,
    "devices": {"GPU-0": _TOKEN},
    "certificates": {"nv-eat-kid-prod-1": ["MIIDDjCCAfY=", "MIIDjjCCAxU="]},
    "serial": "670675190330701367605337753580860420643006460535",
    "driver": "595.71.05",
    "vbios": "96.00.9F.00.04",
    "quote": "0400020081000000" * 12,
    "pck_crl_issuer_chain": _PEM,
    "root_ca_crl": "30820120",
    "pck_crl": "30820a62",
    "tcb_info_issuer_chain": _PEM,
    "tcb_info": '{"id":"TDX","version":3}',
    "tcb_info_signature": "4f" * 64,
    "qe_identity_issuer_chain": _PEM,
    "qe_identity": '{"id":"TD_QE","version":2}',
    "qe_identity_signature": "4f" * 64,
    "pck_certificate_chain": _PEM,
}
"""By the name of a field, wherever it occurs."""

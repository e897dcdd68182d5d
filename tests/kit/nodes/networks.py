"""A network as a market names it, where nothing of it answers."""

from zoo_compute.base.models import Network

NETWORK = Network(
    name="devnet",
    chain_id=1,
    rpc_url="http://127.0.0.1:1",
    gateway_url="http://127.0.0.1:1",
    contracts={"JobEscrow": "0x" + "e5" * 20, "Omissions": "0x" + "e6" * 20},
    fee_bps=500,
    sampling_floor_bps=200,
    challenge_seconds=60,
    verifier_minimum_stake_wei=1,
    tiers={},
)

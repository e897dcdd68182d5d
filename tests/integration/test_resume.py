"""A job goes on in another process, from any round, with nothing but a checkpoint's CID: bit for bit the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ipfs_processes import StoreProcess

from training_gym.profile import CPU
from zoo_compute.gateway import GatewayClient

ROOT = Path(__file__).parents[2]
ROUNDS = 4

TRAIN = """
import json, sys, tempfile
from pathlib import Path
import httpx
from training_gym.aggregation import aggregate
from training_gym.checkpoint import *
from training_gym.config import ModelConfig, TrainingConfig, TrainingSpec
from training_gym.determinism import configure
from training_gym.distributed.trace import Unit
from training_gym.distributed.unit import run_unit
from training_gym.outer import initial_outer_state, load_outer_state, save_outer_state
from training_gym.profile import CPU
from training_gym.slot_state import load_slot_state
from zoo_compute.gateway import GatewayClient
import numpy as np

rpc, gateway, start, rounds = sys.argv[1], GatewayClient([sys.argv[2]]), sys.argv[3], int(sys.argv[4])
configure(CPU)
SLOTS, JOB = 2, "0x" + "11" * 32
spec = TrainingSpec(
    ModelConfig(hidden_size=16, num_layers=1, num_heads=2, sequence_length=16), "unused",
    TrainingConfig(
        rounds=rounds, inner_steps=6, segment_steps=3, batch_size=4, seed=3, outer_momentum=0.5, down_top_k=1024
    ),
)
text = np.frombuffer(b"".join(b"the %d sheep of the zoo. " % (n % 10) for n in range(400)), np.uint8)

def put(data):
    query = {"cid-version": "1", "raw-leaves": "true"}
    return httpx.post(rpc + "/api/v0/add", params=query, files={"file": data}, timeout=60).json()["Hash"]

def get(cid):
    return None if cid is None else gateway.fetch(cid, max_bytes=1 << 26)

def manifest(round_, parent, model, state, update, states):
    seen = round_ * 6
    files = (model, state, update, None, states)
    return CheckpointManifest(JOB, round_, parent, *files, seen, spec.spec_hash())

cid = start
if start == "none":
    cid = put(manifest(0, None, put(initial_checkpoint(spec)), None, None, {}).to_bytes())
    print(cid, flush=True)
while (at := CheckpointManifest.from_bytes(get(cid))).round < rounds:
    parameters, state = load_state(spec, get(at.model)), load_outer_state(spec, get(at.outer_state))
    payloads, states = {}, {}
    for slot in range(SLOTS):
        before = load_slot_state(spec, get(at.slot_states.get(str(slot))))
        with tempfile.TemporaryDirectory() as directory:
            done = run_unit(Unit(spec, JOB, at.round, slot, parameters, text, before, JOB), Path(directory))
        payloads[slot], states[str(slot)] = done.payload, put(done.slot_state)
    joined = aggregate(spec, parameters, payloads, outer_state=state)
    model, outer = put(save_state(joined.parameters)), put(save_outer_state(spec, joined.outer_state))
    cid = put(manifest(at.round + 1, cid, model, outer, put(joined.update), states).to_bytes())
    print(cid, flush=True)
"""


def trained(store: StoreProcess, start: str) -> list[str]:
    """CIDs of the checkpoints that a process of its own makes, from ``start`` on."""
    command = [sys.executable, "-c", TRAIN, store.rpc_url, store.gateway_url, start, str(ROUNDS)]
    environment = os.environ | CPU.variables | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


@pytest.fixture(scope="module")
def whole(store: StoreProcess) -> list[str]:
    """The checkpoints of a job that nothing interrupted."""
    return trained(store, "none")


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_another_process_goes_on_from_any_round_with_the_same_bits(
    store: StoreProcess,
    whole: list[str],
    round_: int,
) -> None:
    assert len(set(whole)) == ROUNDS + 1
    assert trained(store, whole[round_]) == whole[round_ + 1 :]
    with GatewayClient([store.gateway_url]) as gateway:
        assert whole[ROUNDS - 1].encode() in gateway.fetch(whole[ROUNDS], max_bytes=1 << 20)

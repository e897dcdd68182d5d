"""A job resumed in another process from any checkpoint's CID: bit for bit the same.

The cases are each method, both inner optimisers, round delay 1, and a payload too late for any round.
The resuming node has missed all earlier rounds and applies their updates where they exist.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit.engines.ipfs_processes import StoreProcess

from training_gym.runtime.profile import CPU
from zoo_compute.content.gateway import GatewayClient

ROOT = Path(__file__).parents[3]
ROUNDS = 3
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"method": "default"},
    "adamw_sparse_both_ways": {"method": "default", "optimizer": "adamw", "top_k": 300, "down_top_k": 200},
    "sparseloco": {"method": "sparseloco"},
    "diloco": {"method": "diloco"},
    "slow_links": {"method": "slow_links"},
}

TRAIN = """
import json, sys, tempfile
from pathlib import Path
import httpx
from training_gym.data.dataset import one_shard
from training_gym.exchange.early_start import start_parameters
from training_gym.aggregate.aggregation import aggregate
from training_gym.units.checkpoint import *
from training_gym.spec.config import TrainingSpec
from training_gym.runtime.determinism import configure
from training_gym.units.replica_state import save_slot_state
from training_gym.units.trace import Unit
from training_gym.units.unit import run_unit
from training_gym.exchange.deadlines import start_slot_state
from training_gym.aggregate.outer_step import catch_up, load_outer_state, save_outer_state
from training_gym.runtime.profile import CPU
from zoo_compute.content.gateway import GatewayClient

rpc, gateway = sys.argv[1], GatewayClient([sys.argv[2]])
starts, settings, rounds = json.loads(sys.argv[3]), json.loads(sys.argv[4]), int(sys.argv[5])
configure(CPU)
SLOTS, JOB, TOO_LATE = 3, "0x" + "11" * 32, (1, 2)  # round and slot of a payload that no round joins
short = {"rounds": rounds, "inner_steps": 6, "segment_steps": 3, "batch_size": 4, "seed": 3, "warmup_steps": 8}
spec = TrainingSpec.from_dict({
    "model_config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "sequence_length": 16},
    "data_config": {"dataset": "b" * 59},
    "training_config": settings | short,
})
text = one_shard(spec, b"".join(b"the %d sheep of the zoo. " % (n % 10) for n in range(400)))

def put(data):
    query, files = {"cid-version": "1", "raw-leaves": "true"}, {"file": data}
    return httpx.post(rpc + "/api/v0/add", params=query, files=files, timeout=60).json()["Hash"] if data else None

def get(cid):
    return None if cid is None else gateway.fetch(cid, max_bytes=1 << 26)

def read(cid):
    return CheckpointManifest.from_bytes(get(cid))

def manifest(round_, parent, model, state, update, sent, states):
    return CheckpointManifest(JOB, round_, parent, model, state, update, sent, states, round_ * 6, spec.spec_hash())

def followed(at):
    '''Its parameters by who has the first ones, and nothing since; at once where rounds have no updates.'''
    missed, first = [], at
    while first.parent is not None and spec.training.down_top_k:
        missed.insert(0, get(first.update))
        first = read(first.parent)
    parameters = load_state(spec, get(first.model))
    catch_up(spec, parameters, missed)
    assert save_state(parameters) == get(at.model)
    return parameters

def at_hand(at):
    '''Parameters and outer state: who made them has them in memory, whoever goes on from there in files alone.'''
    return made[at.round] if at.round in made else (followed(at), load_outer_state(spec, get(at.outer_state)))

def next_round(cid, at):
    '''The checkpoint after this one; nothing that is not at hand or named in it or in its parent.'''
    sent = json.loads(get(at.aggregation) or b"{}")
    before = read(at.parent) if spec.training.round_delay and at.parent else at
    (base, _), (parameters, state), payloads, states = at_hand(before), at_hand(at), {}, {}
    for slot in range(SLOTS):
        lost = get(sent[str(slot)]) if (at.round - 1, slot) == TOO_LATE else None
        eager = get(sent[str(slot)]) if before is not at and lost is None else None
        held = start_slot_state(spec, get(at.slot_states.get(str(slot))), lost)
        with tempfile.TemporaryDirectory() as directory:
            start = start_parameters(spec, base, eager)
            done = run_unit(Unit(spec, JOB, at.round, slot, start, text, held, JOB), Path(directory))
        payloads[slot], states[str(slot)] = done.payload, put(save_slot_state(done.slot_state))
    record = put(json.dumps({str(slot): put(payload) for slot, payload in payloads.items()}).encode())
    in_time = {slot: payload for slot, payload in payloads.items() if (at.round, slot) != TOO_LATE}
    joined = aggregate(spec, parameters, in_time, outer_state=state)
    made[at.round + 1] = joined.parameters, joined.outer_state
    model, outer = put(save_state(joined.parameters)), put(save_outer_state(spec, joined.outer_state))
    after = manifest(at.round + 1, cid, model, outer, put(joined.update), record, states).to_bytes()
    return put(after)

if not starts:
    starts = [put(manifest(0, None, put(initial_checkpoint(spec)), None, None, None, {}).to_bytes())]
    print(starts[0], end=" ")
for cid in starts:
    made = {}
    while (at := read(cid)).round < rounds:
        cid = next_round(cid, at)
        print(cid, end=" ")
    print()
"""


def trained(store: StoreProcess, settings: dict[str, Any], starts: list[str]) -> list[list[str]]:
    given = [store.rpc_url, store.gateway_url, json.dumps(starts), json.dumps(settings), str(ROUNDS)]
    environment = os.environ | CPU.variables | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", TRAIN, *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_other_process_resumes_any_round_bit_exactly(store: StoreProcess, settings: dict[str, Any]) -> None:
    [whole] = trained(store, settings, [])
    assert len(set(whole)) == ROUNDS + 1
    assert trained(store, settings, whole[:ROUNDS]) == [whole[round_ + 1 :] for round_ in range(ROUNDS)]
    with GatewayClient([store.gateway_url]) as gateway:
        assert whole[ROUNDS - 1].encode() in gateway.fetch(whole[ROUNDS], max_bytes=1 << 20)

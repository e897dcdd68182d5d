"""A unit replayed by an outsider: real training and store, a settled chain."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from eth_account import Account as Keys
from kit.errors import raises_code
from kit.verification.unit_check_fixtures import (  # noqa: F401  (fixtures)
    CHEAT,
    GONE,
    HONEST,
    JOB,
    Chain,
    World,
    chain_of_units,
    outsiders_world,
    settled_job,
    shown,
)

from training_gym.model.layout import initial_parameters
from training_gym.units.checkpoint import CheckpointManifest, save_state
from zoo_compute.audit.unit_record import Place, challenges_in
from zoo_compute.base.errors import ConfigError, Mismatch, ZooError
from zoo_compute.content.blockstore import BlockNotFound
from zoo_compute.content.gateway import GatewayClient
from zoo_protocol import merkle
from zoo_protocol.content.cid import digest_of
from zoo_protocol.hashing import canonical_json, from_hex, to_hex
from zoo_protocol.messages import Domain, UnitCommitment, sign, struct_hash, typed_data
from zoo_protocol.payments.job_record import SlashRecord, leaf_of, order_of, unit_leaf
from zoo_protocol.verification.trace import payload_hash


def test_one_replay_checks_all_attempts(world: World) -> None:
    honest, cheat = world.check().attempts
    assert (honest.provider, honest.agrees, honest.difference, honest.misjudged) == (HONEST, True, None, False)
    assert (cheat.provider, cheat.agrees, cheat.misjudged) == (CHEAT, False, False)
    assert cheat.difference is not None
    assert cheat.difference.first_step is None  # no node revealed its leaves
    assert (cheat.difference.where, cheat.difference.entries > 0) == ("payload", True)


def test_first_false_steps_and_tensor_are_found(world: World) -> None:
    served = shown(world, CHEAT, 2, 1)
    difference = world.check(find_trace=lambda leaf: served).attempts[1].difference
    assert difference is not None
    assert (difference.first_step, difference.last_step, difference.where) == (1, 2, "state 1")
    assert difference.tensor is not None
    assert difference.tensor.startswith("exp_avg.")  # first in the order of names, and a skipped step moves it
    assert 0 < difference.entries <= difference.of
    assert difference.largest > 0


def test_slash_evidence_reports_false_unit(world: World) -> None:
    served = shown(world, CHEAT, 1)
    evidence = {"unit": {"leaves": served.leaves}, "segment": 1, "state_cid": served.states[1]}
    cid = world.store.add(canonical_json(evidence))
    slash = SlashRecord(0, 1, CHEAT, "incorrect_computation", to_hex(digest_of(cid)), cid, "operator", None)
    world.record = replace(world.record, slashes=[slash])
    difference = world.check().attempts[1].difference
    assert difference is not None
    assert (difference.first_step, difference.where) == (1, "state 1")


@pytest.mark.parametrize("payload", ["gone", "no payload"])
def test_payment_for_false_unit_is_reported_without_files(world: World, payload: str) -> None:
    cid = GONE if payload == "gone" else world.store.add(b"no payload")
    world.change(1, status="verified", reason=None, payload_cid=cid)
    served = replace(shown(world, CHEAT), states={1: GONE, 3: GONE, 99: GONE})
    cheat = world.check(find_trace=lambda leaf: served).attempts[1]
    assert cheat.misjudged
    assert cheat.difference is not None
    assert (cheat.difference.first_step, cheat.difference.where) == (1, None)


def test_false_unit_files_are_read_within_specification_size(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of the provider are held in memory, whatever their size."""
    fetch, asked = GatewayClient.fetch, {}

    def noted(gateway: GatewayClient, cid: str, *, max_bytes: int) -> bytes:
        asked[cid] = max_bytes
        return fetch(gateway, cid, max_bytes=max_bytes)

    monkeypatch.setattr(GatewayClient, "fetch", noted)
    payload, state = (world.store.add(bytes([kind]) * (1 << 20)) for kind in range(2))
    world.change(1, payload_cid=payload)
    served = replace(shown(world, CHEAT), states={1: state})
    cheat = world.check(find_trace=lambda leaf: served).attempts[1]
    assert cheat.difference is not None
    assert (cheat.difference.first_step, cheat.difference.where) == (1, None)
    assert 0 < asked[payload] < 1 << 20
    assert 0 < asked[state] < 1 << 20


def test_record_without_commitment_names_no_unit(world: World) -> None:
    for number in range(2):
        world.change(number, trace_root=None, payload_hash=None)
    with raises_code(ZooError, "unit-unknown"):
        world.check()
    world.record = replace(world.record, job_id=struct_hash(order_of(world.record.order)))
    assert challenges_in(world.record, Place(world.record.job_id, 0, 1)) == []


@pytest.mark.parametrize("binds", ["its own", "another"])
def test_payload_not_matching_last_step_is_false(world: World, binds: str) -> None:
    """The trace is correct; the delivered, aggregated and paid payload is another one."""
    salt = "0x" + "5a" * 32
    digest = from_hex(world.results[HONEST]["payload_sha256"]) if binds == "its own" else bytes(32)
    world.change(0, salt=salt, payload_hash=to_hex(payload_hash(digest, HONEST, from_hex(salt))))
    changed = world.record.units[0]
    leaf = unit_leaf(JOB, 0, 1, HONEST, changed.trace_root or "", changed.payload_hash or "")
    [window] = world.record.windows
    leaves = [leaf, from_hex(window.leaves[1])]
    window = replace(window, root=to_hex(merkle.root(leaves)), leaves=[to_hex(one) for one in leaves])
    world.record = replace(world.record, windows=[window])
    found = world.check().attempts[0]
    assert found.trace_root == found.right_root
    assert (found.other_payload, found.agrees, found.misjudged) == (
        (False, True, False) if binds == "its own" else (True, False, True)
    )


def test_false_unit_is_reported_without_evidence(world: World) -> None:
    slash = SlashRecord(0, 1, CHEAT, "incorrect_computation", to_hex(digest_of(GONE)), GONE, "operator", None)
    world.record = replace(world.record, slashes=[slash])
    world.change(1, status="verified", reason=None)
    cheat = world.check(find_trace=lambda leaf: shown(world, CHEAT, 1)).attempts[1]
    assert cheat.misjudged
    assert cheat.difference is not None
    assert (cheat.difference.first_step, cheat.difference.where) == (1, "state 1")


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"[]", b'{"state_cid":null,"unit":{"leaves":[1]}}'])
def test_invalid_evidence_is_refused(world: World, content: bytes) -> None:
    cid = world.store.add(content)
    slash = SlashRecord(0, 1, CHEAT, "incorrect_computation", to_hex(digest_of(cid)), cid, "operator", None)
    world.record = replace(world.record, slashes=[slash])
    with raises_code(Mismatch, "bad-evidence"):
        world.check()


def test_state_differing_from_commitment_proves_nothing(world: World) -> None:
    foreign = replace(shown(world, CHEAT), states=shown(world, HONEST, 1).states)
    difference = world.check(find_trace=lambda leaf: foreign).attempts[1].difference
    assert difference is not None
    assert (difference.first_step, difference.where) == (1, "payload")


def test_leaves_differing_from_commitment_are_refused(world: World) -> None:
    with raises_code(Mismatch, "wrong-trace"):
        world.check(find_trace=lambda leaf: shown(world, HONEST))


def test_wrong_payment_or_slash_is_reported(world: World) -> None:
    world.change(0, status="rejected", reason="incorrect_computation")
    world.change(1, status="verified", reason=None)
    assert [attempt.misjudged for attempt in world.check().attempts] == [True, True]


@pytest.mark.parametrize(
    ("place", "code"), [(Place(JOB, 7, 1), "unit-unknown"), (Place("0x" + "00" * 32, 0, 1), "wrong-record")]
)
def test_missing_unit_is_named(world: World, place: Place, code: str) -> None:
    with raises_code(ZooError, code):
        world.check(place)


def test_unsettled_unit_must_be_awaited(world: World) -> None:
    for lines in ([], [(1, 2, False, world.record)]):  # nothing, or another round
        world.lines = lines
        with pytest.raises(ZooError) as error:
            world.check()
        assert (error.value.code, bool(error.value.remedy)) == ("unit-unsettled", True)


def test_unit_is_checked_while_job_runs(world: World) -> None:
    other = replace(world.record, units=[replace(unit, round=1) for unit in world.record.units])
    world.lines = [(0, 1, False, world.record), (1, 2, False, other)]
    assert [attempt.agrees for attempt in world.check().attempts] == [True, False]


def test_unsettled_unit_is_checked_by_signed_market_data(world: World) -> None:
    keys = Keys.create(), Keys.create()
    window = replace(world.record.windows[0], leaves=list(world.record.windows[0].leaves))
    units = list(world.record.units)
    for number, one in enumerate(keys):
        units[number] = replace(units[number], provider=one.address)
        unit = units[number]
        commitment = UnitCommitment(JOB, 0, 1, one.address, unit.trace_root or "", unit.payload_hash or "")
        document = typed_data(Domain(world.chain_id, world.address("JobEscrow")), commitment)
        units[number] = replace(unit, commitment_signature=sign(to_hex(one.key), document))
        window.leaves[number] = to_hex(leaf_of(commitment))
    window = replace(window, root=to_hex(merkle.root([from_hex(leaf) for leaf in window.leaves])))
    world.lines, world.market_record = [], replace(world.record, units=units, windows=[window])
    world.record = world.market_record
    found = world.check()
    assert ([attempt.agrees for attempt in found.attempts], found.settled) == ([True, False], False)
    units[0] = replace(units[0], commitment_signature=units[1].commitment_signature)
    with raises_code(Mismatch, "foreign-signature"):
        world.check()


def test_unit_forfeited_by_dispute_is_not_challenged_again(world: World) -> None:
    world.change(1, status="verified", reason=None)
    assert world.check().attempts[1].misjudged
    leaf = world.record.windows[0].leaves[1]
    world.struck = frozenset({leaf})
    cheat = world.check().attempts[1]
    assert (cheat.struck, cheat.agrees, cheat.misjudged) == (True, False, False)


def test_diverging_training_makes_every_commitment_false(world: World) -> None:
    parameters = initial_parameters(world.spec)
    broken = save_state(parameters | {"model.norm.weight": np.full_like(parameters["model.norm.weight"], 3e38)})
    manifest = CheckpointManifest(
        JOB, 0, None, world.store.add(broken), None, None, None, {}, 0, world.spec.spec_hash()
    )
    for number in range(2):
        world.change(number, start_checkpoint_cid=world.store.add(manifest.to_bytes()))
    honest, _ = world.check().attempts
    assert (honest.agrees, honest.misjudged, honest.right_root) == (False, True, None)
    assert honest.difference is not None
    assert honest.difference.diverges is not None
    assert "not finite" in honest.difference.diverges


def test_bits_of_another_class_are_not_compared(world: World) -> None:
    world.record = replace(world.record, environment_class="0x" + "99" * 32)
    with raises_code(ZooError, "environment-mismatch"):
        world.check()


def test_commitment_must_be_in_window_on_chain(world: World) -> None:
    world.change(0, trace_root="0x" + "77" * 32)
    with raises_code(Mismatch, "not-in-window"):
        world.check()


def test_another_specification_than_escrowed_is_refused(world: World) -> None:
    world.spec_hash = "0x" + "00" * 32
    with raises_code(Mismatch, "wrong-spec"):
        world.check()


def test_missing_data_is_named_by_cid(world: World) -> None:
    world.change(0, start_checkpoint_cid=GONE)
    world.record = replace(world.record, units=[world.record.units[0]])
    with pytest.raises(BlockNotFound, match=GONE):
        world.check()


def test_start_from_private_replica_state_is_reported(world: World) -> None:
    world.change(0, start_slot_state_cid=GONE)
    found = world.check()  # the other attempt began from public data
    assert [attempt.provider for attempt in found.attempts] == [CHEAT]
    assert [left.provider for left in found.unchecked] == [HONEST]
    world.change(1, start_slot_state_cid=GONE)
    with pytest.raises(ZooError) as error:
        world.check()
    assert (error.value.code, bool(error.value.remedy)) == ("slot-state-held-by-node", True)


def test_missing_replica_states_are_recomputed(chain: Chain) -> None:
    record, lines = chain.world.record, chain.world.lines
    chain.world.lines = [(n, n + 1, False, replace(record, units=[unit])) for n, unit in enumerate(record.units)]
    found = chain.check(2)  # from the records of earlier lines
    assert ([attempt.agrees for attempt in found.attempts], found.earlier) == ([True], ["0:1", "1:1"])
    chain.world.lines = lines
    found = chain.check(2)
    assert [(attempt.provider, attempt.agrees) for attempt in found.attempts] == [(HONEST, True)]
    assert (found.earlier, found.unchecked) == (["0:1", "1:1"], [])
    chain.world.store.add(chain.files[0].read_bytes())  # last: the store keeps it for later tests
    assert chain.check(2).earlier == ["1:1"]  # from the last that is public


def test_earlier_unit_with_other_end_state_is_named(chain: Chain) -> None:
    false = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"
    chain.world.change(0, slot_state_cid=false)
    chain.world.change(1, start_slot_state_cid=false)
    with raises_code(
        ZooError, "slot-state-held-by-node", match=f"round 0 give another replica state .* verify that unit: {JOB}:0:1"
    ):
        chain.check(2)


def test_result_is_plain_json(world: World) -> None:
    document = json.loads(json.dumps(asdict(world.check())))
    assert document["attempts"][0]["right_root"] == world.results[HONEST]["trace_root"]
    assert from_hex(document["environment_class"])


NO_PLACES = ["", JOB, f"{JOB}:1", f"{JOB}:a:0", f"{JOB[2:]}:0:0", f"{JOB}:0:-1", f"{JOB}:0:\u0663", f"{JOB}:0:{10**9}"]


@pytest.mark.parametrize("text", [*NO_PLACES, "0x" + "zz" * 32 + ":0:0", "0x" + "a " * 32 + ":0:0", f" {JOB}:0:0"])
def test_malformed_id_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Place.parse(text)


def test_hexadecimal_case_is_ignored() -> None:
    assert Place.parse("0x" + "AB" * 32 + ":1:2") == Place("0x" + "ab" * 32, 1, 2)

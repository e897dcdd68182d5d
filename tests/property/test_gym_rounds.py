"""A round's result is bit for bit the same for each order and aggregation tree."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.profile import examples
from kit.training import spec_of
from kit.uncompiled import uncompiled_loops

from training_gym.aggregate import aggregation, fixed_point
from training_gym.aggregate.aggregation import admit, aggregate, finish_aggregation, merge, sketch_seed
from training_gym.aggregate.fixed_point import FRACTION_BITS, dot, scaled, sketches, squared_distances
from training_gym.aggregate.outer_step import (
    catch_up,
    initial_outer_state,
    load_outer_state,
    outer_step,
    save_outer_state,
)
from training_gym.aggregate.robust import WEIGHT_ONE
from training_gym.aggregate.tree import Summary, decide_together, leaf_sum, load_sum, save_sum, summarise
from training_gym.compress.codes import count_levels
from training_gym.compress.link_adaptation import top_k_levels, with_top_k
from training_gym.compress.payload_format import Format, Payload, decode, decode_vector, encode, encode_vector
from training_gym.compress.positions import chunks_of
from training_gym.model.layout import initial_parameters, parameter_sizes
from training_gym.model.tensors import flatten
from training_gym.runtime import threads as runtime_threads
from training_gym.spec.architectures import read_model
from training_gym.spec.config import CHUNK, TrainingSpec
from training_gym.units.checkpoint import save_state
from zoo_protocol.content.unixfs import cid_of_file
from zoo_protocol.hashing import sha256

SPEC = spec_of(top_k=512, value_bits=4, outer_momentum=0.5, outer_learning_rate=0.9, down_top_k=256)
SIZE = SPEC.num_parameters()
to_fixed = partial(scaled, scale=2.0**FRACTION_BITS)
PARAMETERS = initial_parameters(SPEC)
LAST = np.random.default_rng(1000).normal(0, 0.01, SIZE).astype(np.float32)
STATE = replace(initial_outer_state(SPEC), aggregate=LAST)


def payload(seed: int, scale: float = 0.01) -> bytes:
    common = np.random.default_rng(1000).standard_normal(SIZE)
    own = np.random.default_rng(seed).standard_normal(SIZE)
    return encode(SPEC, (scale * (common + own)).astype(np.float32))


PAYLOADS = {slot: payload(slot, 0.01 * (1 + slot / 50)) for slot in range(9)} | {9: b"junk", 10: payload(10, 5.0)}
LATE = (2, 5)
WEIGHTS = {slot: WEIGHT_ONE // 2 if slot in LATE else WEIGHT_ONE for slot in PAYLOADS}
RESULT = aggregate(SPEC, PARAMETERS, PAYLOADS, WEIGHTS, STATE)


@st.composite
def trees(draw: st.DrawFn) -> list[list[int]]:
    slots = draw(st.permutations(sorted(PAYLOADS)))
    cuts = sorted(draw(st.lists(st.integers(0, len(slots)), max_size=5)))
    return [list(slots[start:end]) for start, end in zip([0, *cuts], [*cuts, len(slots)], strict=True)]


@settings(max_examples=examples(10, long=100), deadline=None)
@given(trees(), st.randoms(use_true_random=False))
def test_any_tree_and_order_give_same_checkpoint(leaves: list[list[int]], chance: object) -> None:
    seed = sketch_seed({slot: sha256(PAYLOADS[slot]) for leaf in leaves for slot in leaf})
    shares = [{slot: PAYLOADS[slot] for slot in leaf} for leaf in leaves]
    summaries = [json.dumps(summarise(SPEC, share, WEIGHTS, LAST, seed).to_json()) for share in shares]
    chance.shuffle(summaries)  # type: ignore[attr-defined]
    decision = decide_together(Summary.from_json(json.loads(text)) for text in summaries)
    assert dict(sorted(decision.verdicts.items())) == RESULT.verdicts
    sums = [load_sum(save_sum(leaf_sum(SPEC, share, decision))) for share in shares]
    while len(sums) > 1:  # aggregators meet in any order
        left = sums.pop(chance.randrange(len(sums)))  # type: ignore[attr-defined]
        right = sums.pop(chance.randrange(len(sums)))  # type: ignore[attr-defined]
        sums.append(merge(left, right))
    step = finish_aggregation(SPEC, PARAMETERS, decision.verdicts, sums[0], STATE)
    assert cid_of_file(save_state(step.parameters)) == cid_of_file(save_state(RESULT.parameters))
    assert step.update == RESULT.update
    assert save_outer_state(SPEC, step.outer_state) == save_outer_state(SPEC, RESULT.outer_state)


def test_tree_keeps_compression_levels() -> None:
    shares = [{slot: encode(with_top_k(SPEC, level), LAST)} for slot, level in enumerate(top_k_levels(SPEC))]
    summaries = [summarise(SPEC, share, WEIGHTS, LAST, b"seed").to_json() for share in shares]
    sent = [Summary.from_json(json.loads(json.dumps(summary))).measurements for summary in summaries]
    assert [one.top_k for leaf in sent for one in leaf.values()] == top_k_levels(SPEC)


@pytest.mark.parametrize(("top_k", "bits"), [(CHUNK, 2), (300, 4)])
def test_threads_sharing_work_give_same_checkpoint(monkeypatch: pytest.MonkeyPatch, top_k: int, bits: int) -> None:
    model = read_model({"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2, "sequence_length": 8})
    spec = TrainingSpec(model, "unused", replace(SPEC.training, top_k=top_k, value_bits=bits))
    dice, start = np.random.default_rng(0), initial_parameters(spec)
    drawn = dice.normal(0, 0.01, (6, spec.num_parameters())).astype(np.float32)
    state = replace(initial_outer_state(spec), aggregate=drawn[5])
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(runtime_threads, "THREADS", threads)
        assert len(runtime_threads.parts(spec.num_parameters())) == min(threads, 2)
        payloads = {slot: encode(spec, vector) for slot, vector in enumerate(drawn[:5])}
        result = aggregate(spec, start, payloads, outer_state=state)
        followed = {name: array.copy() for name, array in start.items()}
        catch_up(spec, followed, [result.update])
        assert save_state(followed) == save_state(result.parameters)
        found.append((payloads, result.update, save_state(followed), save_outer_state(spec, result.outer_state)))
    assert found[0] == found[1]


def test_each_payload_verdict_has_its_code() -> None:
    codes = {slot: verdict.code for slot, verdict in RESULT.verdicts.items()}
    assert codes == dict.fromkeys(range(9), "included") | {9: "malformed_wrong_size", 10: "norm_outlier"}


def test_mean_is_centered_clip_around_last_aggregate() -> None:
    taken = admit(SPEC, PAYLOADS, LAST)
    decoded = {slot: item.payload for slot, item in taken.items() if item.payload is not None and slot != 10}
    distances = {slot: np.linalg.norm(item.dense().astype(np.float64) - LAST) for slot, item in decoded.items()}
    reach = sorted(distances[slot] for slot in distances if slot not in LATE)[-3]  # of seven, two may be bad
    total = sum(
        WEIGHTS[slot] * (LAST + (item.dense() - LAST.astype(np.float64)) * min(1.0, reach / distances[slot]))
        for slot, item in decoded.items()
    )
    expected = total / sum(WEIGHTS[slot] for slot in decoded)
    np.testing.assert_allclose(RESULT.outer_state.aggregate, expected, atol=1e-8)


def test_distant_payload_with_ordinary_norm_is_excluded() -> None:
    good = {slot: payload(slot) for slot in range(8)}
    flipped = {slot: encode(SPEC, -_sent(slot)) for slot in (8, 9)}
    verdicts = aggregate(SPEC, PARAMETERS, good | flipped, outer_state=STATE).verdicts
    assert [slot for slot, verdict in verdicts.items() if verdict.code == "opposed"] == [8, 9]
    alike = aggregate(SPEC, PARAMETERS, good, outer_state=STATE).verdicts
    assert all(verdict.included for verdict in alike.values())


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_colluding_copies_are_excluded_without_effect(copies: int) -> None:
    good = {slot: payload(slot) for slot in range(copies, 8)}
    copy = encode(SPEC, -sum(_sent(slot) for slot in range(copies, 8)).astype(np.float32) / 4)
    result = aggregate(SPEC, PARAMETERS, good | dict.fromkeys(range(copies), copy), outer_state=STATE)
    codes = [verdict.code for verdict in result.verdicts.values()]
    assert codes == ["opposed", *["near_copy"] * (copies - 1), *["included"] * (8 - copies)]
    alone = aggregate(SPEC, PARAMETERS, good, outer_state=STATE)
    assert save_state(result.parameters) == save_state(alone.parameters)


def test_short_opposed_vector_is_excluded() -> None:
    good = {slot: payload(slot) for slot in range(7)}
    opposed = encode(SPEC, (-0.3 * _sent(7)).astype(np.float32))
    verdicts = aggregate(SPEC, PARAMETERS, good | {7: opposed}, outer_state=STATE).verdicts
    assert [slot for slot, verdict in verdicts.items() if not verdict.included] == [7]


def _sent(slot: int) -> np.ndarray:
    return decode(SPEC, payload(slot)).dense()


def test_node_with_missed_rounds_catches_up_bit_exactly() -> None:
    parameters, state, updates = PARAMETERS, initial_outer_state(SPEC), []
    for round_ in range(3):
        payloads = {slot: payload(20 * round_ + slot) for slot in range(4)}
        result = aggregate(SPEC, parameters, payloads, outer_state=state)
        parameters, updates = result.parameters, [*updates, result.update]
        state = load_outer_state(SPEC, save_outer_state(SPEC, result.outer_state))
    followed = {name: array.copy() for name, array in PARAMETERS.items()}
    catch_up(SPEC, followed, updates)
    assert save_state(followed) == save_state(parameters)
    assert len(b"".join(updates)) < 0.2 * 3 * 4 * SIZE


def test_values_excluded_from_updates_are_not_lost() -> None:
    parameters, state, steps = PARAMETERS, initial_outer_state(SPEC), np.zeros(SIZE)
    plain = replace(SPEC, training=replace(SPEC.training, down_top_k=0))
    for _ in range(20):
        full = outer_step(plain, parameters, LAST, state)
        steps += flatten(parameters).astype(np.float64) - flatten(full.parameters)
        step = outer_step(SPEC, parameters, LAST, state)
        parameters, state = step.parameters, step.state
    moved = flatten(PARAMETERS).astype(np.float64) - flatten(parameters)
    np.testing.assert_allclose(moved + state.residual, steps, atol=1e-5)


@settings(max_examples=examples(12, long=120), deadline=None)
@given(st.lists(st.tuples(st.floats(-64, 64, width=32), st.floats(-64, 64, width=32)), min_size=1, max_size=50))
def test_inner_products_are_exact(pairs: list[tuple[float, float]]) -> None:
    left, right = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    exact = sum(int(x) * int(y) for x, y in zip(to_fixed(left), to_fixed(right), strict=True))
    assert dot(left, right) == exact
    assert dot(np.tile(left, 2_000), np.tile(right, 2_000)) == 2_000 * exact


def test_sketches_estimate_distances_and_depend_on_seed() -> None:
    generator = np.random.default_rng(3)
    rows = generator.normal(0, 1e-3, (6, 50_000)).astype(np.float32)
    rows[5] += rows[4]
    format_ = Format((49_000, 1000), CHUNK, 8, bytes(32))
    sent = [decode_vector(format_, encode_vector(format_, row)) for row in rows]
    estimate = squared_distances(np.stack(sketches(sent, b"seed")))
    other = squared_distances(np.stack(sketches(sent, b"another")))
    assert (estimate != other).any()
    vectors = np.stack([payload.dense().astype(np.float64) for payload in sent])
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    true = ((directions[:, None] - directions[None]) ** 2).sum(-1)
    np.testing.assert_allclose(estimate / 2.0**40, true, atol=0.15)  # the deviation is sqrt(2 / 1024) = 0.044


@pytest.mark.parametrize("top_k", [300, CHUNK])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_code_arithmetic_matches_value_arithmetic(top_k: int, bits: int) -> None:
    sizes = (77, CHUNK, 2 * CHUNK + 5, 1)
    size, format_ = sum(sizes), Format(sizes, top_k, bits, bytes(32))
    generator = np.random.default_rng(top_k + bits)
    drawn = [generator.standard_normal(size).astype(np.float32) for _ in range(5)]  # four of them are sketched together
    sent = [decode_vector(format_, encode_vector(format_, vector)) for vector in drawn]
    whole, last = sent[0].dense(), drawn[2]
    assert (whole[sent[0].indices] == sent[0].values).all()
    total, moved, units = np.zeros(size, np.int64), last.copy(), fixed_point.units_of(sent[0], 1e9)
    for part in sent[0].chunks.cut(slice(start, min(start + 5000, size)) for start in range(0, size, 5000)):
        values = sent[0].chunks.values(part)  # in blocks, as threads do it
        sent[0].add_to(total[values], part, units)
        sent[0].add_to(moved[values], part, sent[0].meaning, -1)
    assert (total == np.rint(whole.astype(np.float64) * 1e9)).all()
    assert moved.tobytes() == np.where(whole == 0, last, last - whole).tobytes()
    assert fixed_point.product(sent[0], last) == dot(whole, last)
    assert fixed_point.squared_norm(sent[0]) == dot(whole, whole)
    assert [row.tolist() for row in sketches(sent, b"seed")] == [_sketched(one.dense(), b"seed") for one in sent]


def test_round_sketches_payloads_of_all_levels() -> None:
    payloads = []
    for top_k in (CHUNK, 300, 1):
        format_ = Format(parameter_sizes(SPEC), top_k, 4, bytes(32))
        payloads.append(decode_vector(format_, encode_vector(format_, LAST)))
    assert [row.tolist() for row in sketches(payloads, b"s")] == [_sketched(one.dense(), b"s") for one in payloads]


def _sketched(vector: np.ndarray, seed: bytes) -> list[int]:
    """Return the count-sketch by its definition: SplitMix64 of a position gives bucket and sign."""
    key = int.from_bytes(sha256(b"zoo-sketch-1" + seed)[:8], "big")
    word = np.arange(len(vector), dtype=np.uint64) + np.uint64(key)
    word *= np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    sums = np.zeros(1024, np.int64)
    np.add.at(sums, (word >> np.uint64(54)).astype(np.int64), to_fixed(vector) * np.where(word & np.uint64(1), -1, 1))
    return sums.tolist()


def test_sketch_equals_splitmix_of_positions() -> None:
    values = np.array([0.5, -64.0, 3e-5, 0.0, 1.0], np.float32)
    offsets, top_k, seed = np.array([0, 7, 4095, 1, 4094], np.uint16), 3, b"seed"
    codes = np.array([0, 1 + 128, 2, 0, 1], np.uint8)
    meaning = np.array([[0.5, 64.0, 3e-5, 1], [0.0, 1.0, 2.0, 3.0]], np.float32)
    chunks = chunks_of([2 * CHUNK], top_k)
    sent = Payload(chunks, offsets, codes, meaning, count_levels(codes, chunks.entries, 4))
    assert (sent.values == values).all()
    key = int.from_bytes(sha256(b"zoo-sketch-1" + seed)[:8], "big")
    expected = [0] * 1024
    for place, value in zip((0, 7, 4095, CHUNK + 1, CHUNK + 4094), values.tolist(), strict=True):
        word = (place + key) * 0x9E3779B97F4A7C15 % 2**64
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
        word ^= word >> 31
        expected[word >> 54] += round(value * 2**FRACTION_BITS) * (-1 if word & 1 else 1)
    assert sketches([sent], seed)[0].tolist() == expected


def _bits_of_round(spec: TrainingSpec, payloads: dict[int, bytes]) -> list[bytes]:
    result = aggregate(spec, PARAMETERS, payloads, WEIGHTS, STATE)
    followed = {name: array.copy() for name, array in PARAMETERS.items()}
    catch_up(spec, followed, [result.update])
    state = save_outer_state(spec, result.outer_state)
    return [save_state(result.parameters), save_state(followed), result.update, state, repr(result.verdicts).encode()]


@pytest.mark.parametrize(("top_k", "bits"), [(CHUNK, 2), (CHUNK, 8), (512, 4), (64, 2)])
def test_uncompiled_loops_give_same_bytes(top_k: int, bits: int) -> None:
    training = replace(SPEC.training, top_k=top_k, value_bits=bits, down_top_k=top_k, down_value_bits=bits)
    spec = replace(SPEC, training=training)
    vectors = [
        (LAST + 0.01 * np.random.default_rng(slot).standard_normal(SIZE)).astype(np.float32) for slot in range(6)
    ]
    payloads = {slot: encode(spec, vector) for slot, vector in enumerate(vectors)}
    bits_of_round = _bits_of_round(spec, payloads)
    with uncompiled_loops():
        assert {slot: encode(spec, vector) for slot, vector in enumerate(vectors)} == payloads
        assert _bits_of_round(spec, payloads) == bits_of_round


def test_round_has_published_bits() -> None:
    results = (save_state(RESULT.parameters), RESULT.update, RESULT.outer_state.aggregate.tobytes())
    assert [sha256(result).hex() for result in results] == [
        "ce680f31b9c090ec790289801d7ce022c2404d0eb6a76abc8f2b6018b0489789",
        "2c987bd620c0ea85d586d3e9b952f274cd21712335a7278ba89211a6c4b92237",
        "3cd1c900c72209315e28b5b70835f7faa667b5e75dd5e6b5aa4d8cc2fc93057d",
    ]


def test_sums_stay_within_their_integers() -> None:
    most = np.full(4, 64.0, np.float32)
    assert (to_fixed(most) == 1 << (FRACTION_BITS + 6)).all()
    assert ((1 << 20) << (FRACTION_BITS + 6)) < 1 << 63
    empty = aggregation.PartialSum(np.zeros(4, np.int64), WEIGHT_ONE, 0)
    assert not aggregation.finish(empty, most).any()


@pytest.mark.parametrize("wrong", [b"", b"{}", save_state(PARAMETERS)])
def test_foreign_outer_state_must_match_specification(wrong: bytes) -> None:
    with pytest.raises(ValueError):
        load_outer_state(SPEC, wrong)

"""Jobs that continue a checkpoint: data order and rate schedule."""

from dataclasses import replace

import pytest
from kit.training import SMALL, TEXT

from training_gym.data.dataset import one_shard, order_seed, unit_places
from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError
from training_gym.units.continuations import continuation, settings_on_nodes, with_rate_shares
from training_gym.units.steps import rate_share

CHECKPOINT = "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"


def spec_with(data: dict[str, object] | None = None, **training: object) -> TrainingSpec:
    document = {
        "model_config": SMALL.to_dict(),
        "data_config": {"dataset": "x" * 46, "replicas": 2} | (data or {}),
        "training_config": {"inner_steps": 5, "segment_steps": 5, "batch_size": 4, "rounds": 12, "warmup_steps": 2}
        | training,
    }
    return TrainingSpec.from_dict(document)


def test_planned_continuations_have_rates_of_whole_job() -> None:
    whole = spec_with().training
    shares = [rate_share(whole, round_, step, 99) for round_ in range(12) for step in range(5)]
    found = []
    for start, final in (1.0, 2 / 3), (2 / 3, 1 / 3), (1 / 3, 0.0):
        part = spec_with(rounds=4, final_rate_share=final).training
        found += [rate_share(part, round_, step, 99, start) for round_ in range(4) for step in range(5)]
    assert found == pytest.approx(shares)


def test_continuation_reads_next_data() -> None:
    whole, steps = spec_with(), range(5)
    order = one_shard(whole, TEXT).order
    later = spec_with({"start_checkpoint": CHECKPOINT, "start_round": 4})
    expected = [unit_places(whole, order, round_, 1, steps) for round_ in (4, 5)]
    assert [unit_places(later, one_shard(later, TEXT).order, round_, 1, steps) for round_ in (0, 1)] == expected


def test_start_model_changes_order_of_data() -> None:
    plain, started = spec_with(), spec_with({"start_model": CHECKPOINT})
    based = replace(plain, base=CHECKPOINT[::-1])
    continued = spec_with({"start_checkpoint": CHECKPOINT, "start_round": 1})
    assert order_seed(plain) == order_seed(continued) == plain.training.seed
    others = started, based, spec_with({"start_model": CHECKPOINT}, seed=1)
    assert len({order_seed(spec) for spec in (plain, *others)}) == 4
    places = [unit_places(spec, one_shard(spec, TEXT).order, 0, 0, range(5)) for spec in (plain, started)]
    assert places[0] != places[1]


@pytest.mark.parametrize("nodes", [1, 2, 3, 4])
def test_continuation_on_other_nodes_reads_next_data(nodes: int) -> None:
    def read(spec: TrainingSpec) -> list[tuple[int, int]]:
        order, rounds, slots = one_shard(spec, TEXT).order, range(spec.training.rounds), range(spec.replicas)
        return [one for n in rounds for slot in slots for one in unit_places(spec, order, n, slot, range(5))]

    before = spec_with({"start_model": CHECKPOINT}, rounds=3)
    document = continuation(before.to_dict(), 3, CHECKPOINT[::-1], 2)
    document["data_config"] = settings_on_nodes(document["data_config"], nodes)
    after = TrainingSpec.from_dict(document, nodes)
    assert order_seed(after) == order_seed(before)
    assert not set(read(before)) & set(read(after))
    assert after.start_round * nodes - 3 * 2 in range(nodes)  # skips less than a round


@pytest.mark.parametrize(
    ("samples", "before", "nodes", "expected"),
    [(2, 8, 2, 0), (2, 8, 8, 2), (2, 64, 8, 2), (9, 8, 2, 9), (2, 2, 2, 2), (2, 2, 4, 2), (0, 8, 2, 0)],
)
def test_few_samples_on_fewer_nodes_become_none(samples: int, before: int, nodes: int, expected: int) -> None:
    found = settings_on_nodes({"validation_samples": samples, "replicas": before}, nodes)
    assert found == {"validation_samples": expected}


def test_continuation_of_stopped_job_has_its_rates() -> None:
    whole = spec_with(final_rate_share=0.1)
    rest = TrainingSpec.from_dict(continuation(whole.to_dict(), 4, CHECKPOINT, 8))
    expected = [rate_share(whole.training, round_, step, 99) for round_ in range(4, 12) for step in range(5)]
    found = [
        rate_share(rest.training, round_, step, 99, rest.start_rate_share) for round_ in range(8) for step in range(5)
    ]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("first", [1.0, 0.3])
def test_rates_after_complete_decay_begin_as_before(first: float) -> None:
    """A third of the peak is what a job that diverged is extended with."""
    before = spec_with({"start_checkpoint": CHECKPOINT, "start_round": 4, "start_rate_share": first})
    ended = continuation(before.to_dict(), 12, CHECKPOINT[::-1], 4)
    assert ended["data_config"]["start_rate_share"] == first


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (1.0, 1.0)),
        ({"start_rate_share": None, "final_rate_share": None}, (1.0, 1.0)),
        ({"start_rate_share": 0.3}, (0.3, 0.3)),
        ({"start_rate_share": 0.3, "final_rate_share": 0.9}, (0.3, 0.9)),
        ({"final_rate_share": 0.0}, (1.0, 0.0)),
    ],
)
def test_rates_do_not_rise_above_given_start(given: dict[str, float | None], expected: tuple[float, float]) -> None:
    constant = continuation(spec_with(final_rate_share=1.0).to_dict(), 4, CHECKPOINT, 8)
    found = with_rate_shares(constant, given)
    assert (found["data_config"]["start_rate_share"], found["training_config"]["final_rate_share"]) == expected


def test_lower_final_share_stays_at_given_start() -> None:
    falling = continuation(spec_with(final_rate_share=0.1).to_dict(), 4, CHECKPOINT, 8)
    assert with_rate_shares(falling, {"start_rate_share": 0.3})["training_config"]["final_rate_share"] == 0.1


def test_short_continuation_has_short_warmup() -> None:
    whole = spec_with(warmup_steps=10)
    rest = TrainingSpec.from_dict(continuation(whole.to_dict(), 11, CHECKPOINT, 1))
    assert (rest.training.rounds, rest.training.warmup_steps) == (1, 5)


def test_continuation_survives_round_trip() -> None:
    data = {"start_checkpoint": CHECKPOINT, "start_round": 4, "start_rate_share": 0.5}
    spec = spec_with(data)
    assert TrainingSpec.from_dict(spec.to_dict()) == spec
    assert spec.to_dict()["data_config"].items() >= data.items()
    assert not data.keys() & spec_with().to_dict()["data_config"].keys()  # hashes of other jobs stay


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"start_round": 1}, "data_config.start_round"),
        ({"start_rate_share": 0.5}, "data_config.start_round"),
        ({"start_checkpoint": CHECKPOINT, "start_model": CHECKPOINT}, "data_config.start_model"),
        ({"start_checkpoint": CHECKPOINT, "start_round": -1}, "data_config.start_round"),
        ({"start_checkpoint": CHECKPOINT, "start_round": True}, "data_config.start_round"),
        ({"start_checkpoint": CHECKPOINT, "start_rate_share": float("nan")}, "data_config.start_rate_share"),
        ({"start_checkpoint": CHECKPOINT, "start_rate_share": 0}, "data_config.start_rate_share"),
        ({"start_checkpoint": "x"}, "data_config.start_checkpoint"),
    ],
)
def test_wrong_start_is_refused(data: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec_with(data)
    assert refused.value.field == field

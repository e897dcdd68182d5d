"""Datasets written from any records and read by units: content, order, borders and masks."""

import json
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.profile import examples
from kit.training import spec_of

from training_gym.data.build import BuiltDataset, Options, build_dataset
from training_gym.data.dataset import DatasetManifest, Split, read_split, training_samples
from training_gym.data.samples import IGNORED, Sample
from training_gym.data.text_sources import find_files
from training_gym.data.text_tokenizer import TextTokenizer, train_bpe
from training_gym.spec.architectures import read_model
from training_gym.spec.config import TrainingSpec

LENGTH, ROW_LENGTH = 8, 512
# A mark of the tokenizer becomes its special token, which decoding leaves out.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60).filter(
    lambda one: "<|" not in one
)
# A token may join the white space before a target and at its start, so targets begin with a letter.
ANSWER = st.builds(
    "a{}".format, st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="|"), max_size=20)
)
CONVERSATION = st.lists(st.tuples(ANY_TEXT, ANSWER, st.integers(0, 1)), min_size=1, max_size=3).filter(
    lambda turns: any(weight for _, _, weight in turns)
)
PREFERENCE = st.tuples(ANY_TEXT, ANSWER, ANSWER).filter(lambda one: one[1] != one[2])


@cache
def tokenizer() -> TextTokenizer:
    return TextTokenizer(train_bpe(iter(["The zoo has many animals, and each of them eats."]), 300))


def written(folder: Path, records: list[dict[str, Any]], shard_tokens: int) -> BuiltDataset:
    source = folder / "records.jsonl"
    source.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    files = find_files([str(source)])
    return build_dataset(files, files, tokenizer(), folder, Options(shard_tokens=shard_tokens))


def read(spec: TrainingSpec, folder: Path, built: BuiltDataset) -> Split:
    """Read the training split by its manifest's bytes, as a node does."""
    manifest = DatasetManifest.from_bytes((folder / "manifest.json").read_bytes())
    files = {shard.cid: folder / f"train-{number:05}.bin" for number, shard in enumerate(built.manifest.train)}
    return read_split(spec, manifest, manifest.train, lambda shard: files[shard.cid].read_bytes())


def spec_for(objective: str, length: int, slots: int) -> TrainingSpec:
    model = read_model(
        {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
        | {"sequence_length": length, "vocab_size": tokenizer().vocab_size}
    )
    spec = spec_of(model, objective=objective, batch_size=1)
    return TrainingSpec(spec.model, spec.dataset, spec.training, replicas=slots)


def key_of(sample: Sample) -> tuple[bytes, ...]:
    return tuple(part.tobytes() for row in sample for part in row)


def check_epochs(spec: TrainingSpec, split: Split, stored: list[Sample]) -> None:
    """Check that all slots together read each stored sample once an epoch."""
    slots, size = spec.replicas, len(stored)
    assert split.order.size == size
    epochs = [[training_samples(spec, split, 0, slot, step)[0] for step in range(size)] for slot in range(slots)]
    once = Counter(map(key_of, stored))
    assert Counter(key_of(sample) for own in epochs for sample in own) == {key: slots * n for key, n in once.items()}
    first = Counter(key_of(sample) for own in epochs for sample in own[: size // slots])
    assert all(count <= once[key] for key, count in first.items())


@settings(max_examples=examples(30, 200), deadline=None)
@given(texts=st.lists(ANY_TEXT, min_size=1, max_size=12), shard_tokens=st.integers(9, 80), slots=st.integers(1, 3))
def test_texts_come_back_whole_with_borders(texts: list[str], shard_tokens: int, slots: int) -> None:
    encode, end = tokenizer().encode, tokenizer().separator
    assert end is not None
    stream = [token for text in texts for token in (*encode([text])[0], end)]
    shards = [stream[start : start + shard_tokens] for start in range(0, len(stream), shard_tokens)]
    places = [(shard, start) for shard in shards for start in range(0, len(shard) - LENGTH, LENGTH)]
    with TemporaryDirectory() as directory:
        built = written(Path(directory), [{"text": text} for text in texts], shard_tokens)
        assert built.documents["train"] == len(texts)
        if not places:  # less than a sequence
            return
        spec = spec_for("causal_lm", LENGTH, slots)
        split = read(spec, Path(directory), built)
    stored = [split.sample(*split.order.in_order(index)) for index in range(len(places))]
    for (row,), (shard, start) in zip(stored, places, strict=True):
        assert list(row.inputs) == shard[start : start + LENGTH]
        following = shard[start + 1 : start + LENGTH + 1]
        place, previous = 0, end
        for number, token in enumerate(row.inputs):
            place = 0 if previous == end else place + 1
            assert row.positions[number] == place
            assert row.targets[number] == (IGNORED if token == end else following[number])
            previous = int(token)
    check_epochs(spec, split, stored)


def answer_of(row: Any) -> str:
    return tokenizer().decode([int(target) for target in row.targets if target != IGNORED])


@settings(max_examples=examples(25, 200), deadline=None)
@given(chats=st.lists(CONVERSATION, min_size=1, max_size=8), shard_tokens=st.integers(40, 400), slots=st.integers(1, 3))
def test_conversations_come_back_with_weighted_answers_as_targets(
    chats: list[list[tuple[str, str, int]]], shard_tokens: int, slots: int
) -> None:
    records = [
        {
            "messages": [
                message
                for question, answer, weight in chat
                for message in (
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": answer, "weight": weight},
                )
            ]
        }
        for chat in chats
    ]
    spec = spec_for("sft", 4 * ROW_LENGTH, slots)
    with TemporaryDirectory() as directory:
        split = read(spec, Path(directory), written(Path(directory), records, shard_tokens))
    stored = [split.sample(*split.order.in_order(index)) for index in range(len(chats))]
    for (row,), chat in zip(stored, chats, strict=True):
        assert answer_of(row) == "".join(answer for _, answer, weight in chat if weight)
        turns = (f"user\n{question}\nassistant\n{answer}\n" for question, answer, _ in chat)
        assert tokenizer().decode(row.inputs.tolist()) == "".join(turns).removesuffix("\n")
    check_epochs(spec, split, stored)


@settings(max_examples=examples(20, 200), deadline=None)
@given(pairs=st.lists(PREFERENCE, min_size=1, max_size=8), shard_tokens=st.integers(40, 400), slots=st.integers(1, 3))
def test_preferences_come_back_as_pairs(pairs: list[tuple[str, str, str]], shard_tokens: int, slots: int) -> None:
    records = [
        {
            "input": {"messages": [{"role": "user", "content": prompt}]},
            "preferred_output": [{"role": "assistant", "content": preferred}],
            "non_preferred_output": [{"role": "assistant", "content": other}],
        }
        for prompt, preferred, other in pairs
    ]
    spec = spec_for("dpo", ROW_LENGTH, slots)
    with TemporaryDirectory() as directory:
        split = read(spec, Path(directory), written(Path(directory), records, shard_tokens))
    stored = [split.sample(*split.order.in_order(index)) for index in range(len(pairs))]
    for sample, (_, preferred, other) in zip(stored, pairs, strict=True):
        assert [answer_of(row) for row in sample] == [preferred, other]
        prompts = [row.inputs[: int(np.argmax(row.targets != IGNORED)) + 1].tolist() for row in sample]
        assert prompts[0] == prompts[1]
    check_epochs(spec, split, stored)

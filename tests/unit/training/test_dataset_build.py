"""Datasets from files: what is written, what decides it, and what is refused."""

import gzip
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from kit.errors import raises_code

from training_gym.data.build import BuiltDataset, Options, bpe_of, build_dataset
from training_gym.data.dataset import DatasetManifest
from training_gym.data.shards import DTYPES
from training_gym.data.text_sources import MAX_PART_CHARACTERS, find_files
from training_gym.data.text_tokenizer import TextTokenizer, read_tokenizer_config, train_bpe
from training_gym.spec.errors import DataError

WORDS = "The zoo has many animals, and each of them eats something else.\n"
CHAT = {
    "messages": [
        {"role": "user", "content": "What eats a lion?"},
        {"role": "assistant", "content": "Meat."},
        {"role": "user", "content": "And a zebra?"},
        {"role": "assistant", "content": "Grass.", "weight": 0},
    ]
}
PREFERENCE = {
    "input": {"messages": [{"role": "user", "content": "Feed the lion?"}]},
    "preferred_output": [{"role": "assistant", "content": "Yes, with meat."}],
    "non_preferred_output": [{"role": "assistant", "content": "No."}],
}


@pytest.fixture(scope="module", name="bpe")
def trained_bpe() -> bytes:
    return train_bpe(iter([WORDS] * 3), 300)


@pytest.fixture(name="tokenizer")
def loaded_tokenizer(bpe: bytes) -> TextTokenizer:
    return TextTokenizer(bpe)


def lines(path: Path, *records: object) -> str:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return str(path)


def build(
    tokenizer: TextTokenizer, folder: Path, train: Sequence[str], validation: Sequence[str] = (), **options: Any
) -> BuiltDataset:
    out = folder / "built"
    out.mkdir()
    held_out = find_files(validation) if validation else []
    return build_dataset(find_files(train), held_out, tokenizer, out, Options(**options))


def tokens_of(built: BuiltDataset, split: str) -> list[int]:
    files = [path for path in built.files if path.name.startswith(split)]
    return [int(token) for path in files for token in np.frombuffer(path.read_bytes(), DTYPES[built.manifest.dtype])]


def rows_of(built: BuiltDataset, split: str = "train") -> list[tuple[list[int], list[bool]]]:
    """Read rows by the format's text: offsets, tokens, bits."""
    found = []
    for shard, path in zip(
        getattr(built.manifest, split), sorted(built.files[0].parent.glob(f"{split}-*")), strict=True
    ):
        content = path.read_bytes()
        assert len(content) == built.manifest.size_of(shard)
        rows = shard.samples * (2 if built.manifest.samples == "preferences" else 1)
        offsets = np.frombuffer(content[: 4 * (rows + 1)], "<u4")
        assert offsets[0] == 0
        assert offsets[-1] == shard.tokens
        width = DTYPES[built.manifest.dtype].itemsize
        tokens = np.frombuffer(content[4 * (rows + 1) :][: width * shard.tokens], DTYPES[built.manifest.dtype])
        bits = content[4 * (rows + 1) + width * shard.tokens :]
        mask = [bool(bits[place // 8] >> place % 8 & 1) for place in range(len(bits) * 8)]
        assert not any(mask[shard.tokens :])
        for start, end in pairwise(offsets):
            found.append(([int(token) for token in tokens[start:end]], mask[start:end]))
    return found


def target_text(tokenizer: TextTokenizer, row: tuple[list[int], list[bool]]) -> str:
    return tokenizer.decode([token for token, is_target in zip(*row, strict=True) if is_target])


def test_text_round_trips_with_separators(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    train = lines(tmp_path / "train.jsonl", {"text": WORDS, "id": 1}, {"text": "Zebra."})
    (tmp_path / "held.txt").write_text("Held out.")
    built = build(tokenizer, tmp_path, [train], [str(tmp_path / "held.txt")], licence="CC0-1.0")
    manifest = DatasetManifest.from_bytes((tmp_path / "built" / "manifest.json").read_bytes())
    assert manifest == built.manifest
    assert (manifest.samples, manifest.licence, manifest.source) == ("text", "CC0-1.0", "train.jsonl")
    end = manifest.separator
    assert tokens_of(built, "train") == [*tokenizer.encode([WORDS])[0], end, *tokenizer.encode(["Zebra."])[0], end]
    assert tokenizer.decode(tokens_of(built, "validation")) == "Held out."
    assert built.documents == {"train": 2, "validation": 1}


def test_shards_have_a_fixed_length(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(WORDS * 40)
    built = build(tokenizer, tmp_path, [str(tmp_path)], [str(tmp_path / "a.txt")], shard_tokens=100)
    sizes = [shard.tokens for shard in built.manifest.train]
    assert len(sizes) > 3
    assert set(sizes[:-1]) == {100}
    assert tokenizer.decode(tokens_of(built, "train")) == WORDS * 40


def test_validation_share_holds_out_whole_parts(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number} {WORDS}" for number in range(5000)))
    built = build(tokenizer, tmp_path, [str(tmp_path / "a.txt")], validation_share=0.2)
    train, held_out = (tokenizer.decode(tokens_of(built, split)).splitlines() for split in ("train", "validation"))
    assert 500 < len(held_out) < 1700
    assert sorted(train + held_out) == sorted(f"{number} {WORDS.strip()}" for number in range(5000))


@pytest.mark.parametrize("ending", ["", "\n"])
def test_long_text_keeps_every_character(ending: str, tokenizer: TextTokenizer, tmp_path: Path) -> None:
    text = "x" * (3 * MAX_PART_CHARACTERS) + "é word\n" * 60_000 + ending
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text("b")
    built = build(tokenizer, tmp_path, [str(tmp_path / "a.txt")], [str(tmp_path / "b.txt")])
    assert tokenizer.decode(tokens_of(built, "train")) == text
    assert tokens_of(built, "train").count(built.manifest.separator) == 1


def test_chat_targets_are_weighted_answers(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    train = lines(tmp_path / "a.jsonl", CHAT, {"prompt": "2 + 2 = ", "completion": "4"})
    built = build(tokenizer, tmp_path, [train], [train])
    rows = rows_of(built)
    assert [target_text(tokenizer, row) for row in rows] == ["Meat.", "4"]
    assert tokenizer.decode(rows[0][0]).count("zebra") == 1
    assert built.manifest.samples == "chat"
    assert [row[1][-1] for row in rows] == [False, True]  # a completion ends with the separator


def test_preference_rows_come_in_pairs(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    train = lines(tmp_path / "a.jsonl", *[PREFERENCE] * 5)
    built = build(tokenizer, tmp_path, [train], [train], shard_tokens=100)
    rows = rows_of(built)
    assert [target_text(tokenizer, row) for row in rows] == ["Yes, with meat.", "No."] * 5
    assert len(built.manifest.train) > 1
    assert sum(shard.samples for shard in built.manifest.train) == 5


UNMARKED = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}|{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
CHANGING = (
    "{% for m in messages %}<{{ m['role'] }}>{% if loop.last and m['role'] == 'assistant' %}think {% endif %}"
    "{{ m['content'] }}|{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize("template", [UNMARKED, CHANGING])
def test_template_without_marks_finds_answers(template: str, bpe: bytes, tmp_path: Path) -> None:
    tokenizer = TextTokenizer(bpe, read_tokenizer_config(b"{}", template.encode()))
    built = build(tokenizer, tmp_path, [lines(tmp_path / "a.jsonl", CHAT)], [lines(tmp_path / "b.jsonl", CHAT)])
    [row] = rows_of(built)
    assert target_text(tokenizer, row) == "Meat.|"


def test_parquet_equals_lines(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    records = [CHAT, {"messages": CHAT["messages"][:2]}]
    lines(tmp_path / "a.jsonl", *records)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
    found = []
    for number, name in enumerate(("a.jsonl", "a.parquet", "a.jsonl.gz")):
        folder = tmp_path / str(number)
        folder.mkdir()
        found.append(rows_of(build(tokenizer, folder, [str(tmp_path / name)], [str(tmp_path / name)])))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        ('{"text": "a"}\n{"text": \n', "malformed", "a.jsonl:2"),
        ('{"text": "a"}\n\n[1]\n', "wrong_type", "a.jsonl:3"),
        ('{"txt": "a"}\n', "unknown_form", "a.jsonl:1"),
        ('{"text": 5}\n', "wrong_type", "a.jsonl:1"),
        ('{"text": ""}\n', "no_target", "a.jsonl:1"),
        ('{"text": "\\ud800"}\n', "malformed", "a.jsonl:1"),
        ('{"text": "a"}\n{"prompt": "a", "completion": "b"}\n', "wrong_kind", "a.jsonl:2"),
        ('{"messages": []}\n', "wrong_type", "a.jsonl:1"),
        ('{"messages": [{"role": "user", "content": "a"}]}\n', "no_target", "a.jsonl:1"),
        ('{"messages": [{"role": "boss", "content": "a"}]}\n', "unsupported_value", "a.jsonl:1"),
        ('{"messages": [{"role": "assistant", "content": "a", "weight": 2}]}\n', "out_of_range", "a.jsonl:1"),
        ('{"messages": [{"role": "assistant", "tool_calls": []}]}\n', "unknown_key", "a.jsonl:1"),
        ('{"tools": [{}], "messages": []}\n', "unsupported_value", "a.jsonl:1"),
        ('{"input": {}, "preferred_output": [], "non_preferred_output": []}\n', "wrong_type", "a.jsonl:1"),
        ("[" * 100_000, "malformed", "a.jsonl:1"),
    ],
)
def test_broken_line_is_named(content: str, code: str, place: str, tokenizer: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(content)
    with raises_code(DataError, code) as refusal:
        build(tokenizer, tmp_path, [str(tmp_path / "a.jsonl")])
    assert refusal.value.field.endswith(place)


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("missing.txt", "not_found"),
        ("empty", "no_data"),
        ("binary.txt", "malformed"),
        ("broken.parquet", "unreadable"),
        ("broken.txt.gz", "unreadable"),
        ("ftp://host/a.txt", "unsupported_value"),
        ("simplecache::https://host/a.txt", "unsupported_value"),
    ],
)
def test_unusable_source_is_refused(source: str, code: str, tokenizer: TextTokenizer, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("binary.txt", "broken.parquet", "broken.txt.gz"):
        (tmp_path / name).write_bytes(b"\xff\xfe\x00 no text")
    with raises_code(DataError, code):
        build(tokenizer, tmp_path, [source if "://" in source else str(tmp_path / source)])


def test_split_without_document_is_refused(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    with raises_code(DataError, "too_short") as refusal:
        build(tokenizer, tmp_path, [lines(tmp_path / "a.jsonl", {"text": "a"})], validation_share=0.0)
    assert refusal.value.field == "validation"


def test_chat_needs_a_template(bpe: bytes, tmp_path: Path) -> None:
    with raises_code(DataError, "no_template"):
        build(TextTokenizer(bpe, {}), tmp_path, [lines(tmp_path / "a.jsonl", CHAT)])


@pytest.mark.parametrize("content", [b"{}", b"\xff", b'{"model": 5}'])
def test_foreign_tokenizer_is_refused(content: bytes) -> None:
    with raises_code(DataError, "malformed"):
        TextTokenizer(content)


def test_trained_tokenizer_is_equal_across_processes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{number * number} {WORDS}" for number in range(500)))
    probe = (
        "import sys; from training_gym.data.build import bpe_of; from training_gym.data.text_sources import find_files;"
        "sys.stdout.buffer.write(bpe_of(find_files(sys.argv[1:]), 400))"
    )
    theirs = subprocess.run([sys.executable, "-c", probe, str(tmp_path)], capture_output=True, check=True).stdout
    assert theirs == bpe_of(find_files([str(tmp_path)]), 400)
    assert TextTokenizer(theirs).vocab_size == 400


def test_build_memory_does_not_grow_with_text(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    peaks = []
    for name, times in (("small", 16_000), ("large", 48_000)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.txt").write_text(WORDS * times)
        tracemalloc.start()
        build(tokenizer, folder, [str(folder / "a.txt")], [str(folder / "a.txt")], shard_tokens=1 << 16)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]

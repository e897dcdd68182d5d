"""Runs of ``benchmarks.models`` that turn text into tokens, each in a fresh process."""

import tempfile
import time
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.training.corpus import standard_library
from training_gym.data.build import Options, bpe_of, build_dataset
from training_gym.data.records import Text
from training_gym.data.text_sources import find_files
from training_gym.data.text_tokenizer import TextTokenizer

_TEXT, _TOKENIZER = "text.txt", "tokenizer.json"
_VOCABULARY = 8192
_TEXTS_AT_ONCE = 128


def write_text(folder: Path, max_bytes: int) -> None:
    """Write text and a BPE of it to ``folder``."""
    (folder / _TEXT).write_bytes(standard_library(max_bytes)[0].tobytes().decode(errors="ignore").encode())
    (folder / _TOKENIZER).write_bytes(bpe_of(find_files([str(folder / _TEXT)]), _VOCABULARY))


def build_speed(folder: Path) -> float:
    """Return tokens a second of ``dataset push`` without its upload."""
    tokenizer = TextTokenizer((folder / _TOKENIZER).read_bytes())
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        built = build_dataset(find_files([str(folder / _TEXT)]), [], tokenizer, Path(directory), Options())
        seconds = time.perf_counter() - started
    return sum(shard.tokens for shard in (*built.manifest.train, *built.manifest.validation)) / seconds


def tokenizer_speed(folder: Path) -> float:
    """Return tokens a second of the tokenizer alone, on the same parts of the text in memory."""
    tokenizer = Tokenizer.from_str((folder / _TOKENIZER).read_text())
    records = [part.record for file in find_files([str(folder / _TEXT)]) for part in file.parts()]
    texts = [record.text for record in records if isinstance(record, Text)]
    started, tokens = time.perf_counter(), 0
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        found = tokenizer.encode_batch_fast(texts[first : first + _TEXTS_AT_ONCE], add_special_tokens=False)
        tokens += sum(len(one.ids) for one in found)
    return tokens / (time.perf_counter() - started)

"""BPE tokens of Python sources: the standard library and installed packages.

The text is read from the environment, so its versions decide the corpus. ``Corpus.digest`` names the tokens, and runs
of different corpora are never compared. Equal files count once. Whole files are held out.
"""

import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training_gym.data.dataset import Split
from training_gym.data.shards import Layout, ShardSize, Tokens
from training_gym.data.text_tokenizer import TextTokenizer, train_bpe
from training_gym.spec.config import TrainingSpec

SPLITS = ("train", "tuning", "validation")
_HELD_OUT = {7: "tuning", 15: "validation"}  # of every sixteen files
_MIN_BYTES, _MAX_BYTES = 1 << 9, 1 << 18  # longer files are tables
_TEXTS_AT_ONCE = 128


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Tokens by split; ``digest`` is of all tokens, as 16 hex digits."""

    tokens: dict[str, Tokens]
    separator: int
    digest: str

    def split(self, spec: TrainingSpec, name: str) -> Split:
        """Return one of ``SPLITS`` for a job's units."""
        tokens = self.tokens[name]
        layout = Layout("text", "uint16", self.separator)
        return Split(spec, layout, [ShardSize(len(tokens), 0)], {0: tokens.view(np.uint8)})


def read_corpus(packages: Sequence[str], max_characters: int, vocab_size: int, cache: Path) -> Corpus:
    """Return the tokens of the standard library and ``packages``.

    Args:
        packages: folders in ``site-packages``; ``*`` is all of them.
        max_characters: size of the text; files are taken in the order of their hashes.
        vocab_size: tokens of the BPE that the training files train.
        cache: folder that keeps the tokens.
    """
    texts = _texts(packages, max_characters)
    identity = hashlib.sha256(repr((vocab_size, len(texts), *map(hash_of, texts))).encode()).hexdigest()[:16]
    path = cache / f"corpus-{identity}.npz"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        splits: dict[str, list[str]] = {name: [] for name in SPLITS}
        for number, text in enumerate(texts):
            splits[_HELD_OUT.get(number % 16, "train")].append(text)
        tokenizer = TextTokenizer(train_bpe(iter(splits["train"]), vocab_size))
        arrays = {name: np.fromiter(_tokens(tokenizer, split), np.uint16) for name, split in splits.items()}
        np.savez(path, separator=np.array(tokenizer.separator or 0), **arrays)  # type: ignore[arg-type]
    with np.load(path) as found:
        tokens = {name: found[name] for name in SPLITS}
        digest = hashlib.sha256(b"".join(tokens[name].tobytes() for name in SPLITS)).hexdigest()[:16]
        return Corpus(tokens, int(found["separator"]), digest)


def hash_of(text: str) -> bytes:
    """Return the hash of a text without its spaces: equal but for layout is equal."""
    return hashlib.sha256("".join(text.split()).encode()).digest()


def _texts(packages: Sequence[str], max_characters: int) -> list[str]:
    found: dict[bytes, str] = {}
    for path in _paths(packages):
        if _MIN_BYTES <= path.stat().st_size <= _MAX_BYTES:
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            found.setdefault(hash_of(text), text)
    chosen, left = [], max_characters
    for _, text in sorted(found.items()):
        chosen.append(text)
        left -= len(text)
        if left < 0:
            break
    return chosen


def _paths(packages: Sequence[str]) -> list[Path]:
    library, site = Path(sysconfig.get_path("stdlib")), Path(sysconfig.get_path("purelib"))
    found = [path for path in library.rglob("*.py") if "site-packages" not in path.parts]
    for package in packages:
        found += site.glob("*/**/*.py") if package == "*" else (site / package).rglob("*.py")
    return sorted(found)


def _tokens(tokenizer: TextTokenizer, texts: Sequence[str]) -> Iterator[int]:
    for first in range(0, len(texts), _TEXTS_AT_ONCE):
        for tokens in tokenizer.encode(texts[first : first + _TEXTS_AT_ONCE]):
            yield from tokens
            yield tokenizer.separator or 0

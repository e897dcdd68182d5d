"""Tokenizers of datasets: a BPE trained on the data, or a model's own. No torch."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from training_gym.data.chat import ChatTemplate
from training_gym.data.records import Chat, Completion, Message, Preference, Record
from training_gym.data.shard_files import Row
from training_gym.spec.errors import DataError

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
MIN_VOCABULARY, MAX_VOCABULARY = 256 + len(SPECIAL_TOKENS), 1 << 18
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML, for tokenizers that are trained here; it marks what an assistant writes."""


class TextTokenizer:
    """Tokenizer of ``tokenizer.json`` with the settings of ``tokenizer_config.json``.

    Attributes:
        vocab_size: a number above every token.
        separator: token that ends a document; None: the tokenizer has none.

    Raises:
        DataError: a file is not what its name says.
    """

    def __init__(self, tokenizer: bytes, config: Mapping[str, Any] | None = None) -> None:
        try:
            self._tokenizer = Tokenizer.from_str(tokenizer.decode())
        except Exception as error:  # the library raises no class of its own
            raise DataError("malformed", "tokenizer.json", f"is not a tokenizer ({error!s:.200})") from error
        self.json = tokenizer
        known: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        if not known:
            raise DataError("malformed", "tokenizer.json", "has no token; choose another tokenizer")
        self.vocab_size = max(known.values()) + 1
        self.config = tokenizer_config(known) if config is None else dict(config)
        self._end = _token_text(self.config.get("eos_token")) or (END_OF_TEXT if END_OF_TEXT in known else None)
        self.separator = None if self._end is None else known.get(self._end)
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @property
    def dtype(self) -> str:
        """Name of the smallest type of tokens in a shard."""
        return "uint16" if self.vocab_size <= 1 << 16 else "uint32"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, without special tokens around it."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [one.ids for one in encoded]

    def rows(self, record: Record, where: str) -> list[Row]:
        """Return the row of a chat, or both rows of a preference, the preferred one first.

        Raises:
            DataError: the tokenizer has no chat template, or the template refuses the messages.
        """
        match record:
            case Completion(prompt, completion):
                text = prompt + completion
                return [self._row(text, [(len(prompt), len(text))], is_whole=False)]
            case Chat(messages):
                return [self._row(*self._template(where).render(messages, where))]
            case Preference(prompt, preferred, other):
                return [self._answer(prompt, answer, where) for answer in (preferred, other)]
        raise DataError("wrong_kind", where, "is text without a target; give conversations or completions")

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, special ones left out."""
        found: str = self._tokenizer.decode(list(tokens), skip_special_tokens=True)
        return found

    def _answer(self, prompt: tuple[Message, ...], answer: Message, where: str) -> Row:
        text, spans = self._template(where).render((*prompt, answer), where)
        return self._row(text, spans[-1:])

    def _template(self, where: str) -> ChatTemplate:
        template = self.config.get("chat_template")
        if isinstance(template, list):  # several, by name
            named = {one.get("name"): one.get("template") for one in template if isinstance(one, Mapping)}
            template = named.get("default")
        if not isinstance(template, str):
            remedy = "use a chat model's tokenizer, or bpe:8192"
            raise DataError("no_template", where, f"is a conversation, but the tokenizer has no template; {remedy}")
        names = ("bos_token", "eos_token", "unk_token", "pad_token")
        texts = {name: _token_text(self.config.get(name)) for name in names}
        return ChatTemplate(template, {name: text for name, text in texts.items() if text is not None})

    def _row(self, text: str, spans: Sequence[tuple[int, int]], *, is_whole: bool = True) -> Row:
        """Return the row of ``text`` whose targets begin in ``spans`` of characters."""
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        starts = np.array([start for start, _ in encoded.offsets], np.int64)
        targets = np.zeros(len(starts), np.bool_)
        for start, end in spans:
            targets |= (starts >= start) & (starts < end)
        tokens = np.array(encoded.ids, np.uint32)
        if is_whole or self.separator is None:
            return Row(tokens, targets)
        return Row(np.append(tokens, np.uint32(self.separator)), np.append(targets, np.True_))


def train_bpe(texts: Iterator[str], vocab_size: int) -> bytes:
    """Return ``tokenizer.json`` of a byte-level BPE of at most ``vocab_size`` tokens.

    Raises:
        DataError: the size is out of range.
    """
    if not MIN_VOCABULARY <= vocab_size <= MAX_VOCABULARY:
        detail = f"is {vocab_size} tokens; choose {MIN_VOCABULARY} to {MAX_VOCABULARY}"
        raise DataError("out_of_range", "tokenizer", detail)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    with _one_thread():
        tokenizer.train_from_iterator(texts, trainer)
    found: str = tokenizer.to_str()
    return found.encode()


def tokenizer_config(known: Mapping[str, int]) -> dict[str, Any]:
    """Return ``tokenizer_config.json`` of a tokenizer that is trained here."""
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    if END_OF_TEXT in known:
        config["eos_token"] = END_OF_TEXT
    if TURN_START in known and TURN_END in known:
        config |= {"chat_template": CHAT_TEMPLATE}
    return config


def read_tokenizer_config(config: bytes | None, template: bytes | None) -> dict[str, Any] | None:
    """Return the settings of a model's untrusted ``tokenizer_config.json`` and template.

    Raises:
        DataError: not a JSON object, or not UTF-8.
    """
    if config is None and template is None:
        return None
    try:
        document = json.loads(config or b"{}")
        text = None if template is None else template.decode()
    except (ValueError, RecursionError) as error:
        raise DataError("malformed", "tokenizer_config.json", f"is not JSON in UTF-8 ({error!s:.120})") from error
    if not isinstance(document, dict):
        raise DataError("wrong_type", "tokenizer_config.json", "must be a JSON object")
    return document if text is None else document | {"chat_template": text}


def _token_text(value: object) -> str | None:
    """Return the text of a token, which a configuration gives as text or as an object."""
    text = value.get("content") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Train in one thread, in which the order of equal counts is fixed."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before

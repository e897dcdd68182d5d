"""A training job as Python object, or as YAML or JSON file."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from training_gym.spec.config import TrainingSpec
from training_gym.spec.errors import SpecError
from zoo_compute.base.amounts import parse_zen
from zoo_compute.base.errors import ConfigError
from zoo_compute.client import datasets

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SETTINGS = "settings by name, such as {rounds: 100}"
_AMOUNT = "an amount of ZEN such as 2.5, or of wei such as '2500 wei'"

_KEYS: dict[str, tuple[type | tuple[type, ...], str]] = {
    "model_config": (dict, "settings by name, such as {hidden_size: 256}, or {base: CID}"),
    "adapter_config": (dict, "settings by name, such as {r: 16}"),
    "data_config": (dict, "{train: SOURCE, validation: SOURCE, tokenizer: bpe:8192} or {dataset: CID}"),
    "training_config": (dict, _SETTINGS),
    "name": (str, "lower-case letters, digits and dashes, such as shakespeare-1"),
    "tier": (str, "its name, such as bronze"),
    "nodes": (int, "a whole number"),
    "budget_max": ((str, int), _AMOUNT),
    "max_price": ((str, int), _AMOUNT),
    "wait": (str, "a number and a unit: 45s, 30m, 2h or 1d"),
    "checkpoint": (dict, "{interval: ROUNDS, redundancy: NODES}"),
    "requirements": (dict, "settings by name, such as {regions: [eu-west]}"),
    "sampling_bps": (int, "a whole number, such as 1000 for 10 %"),
}
"""Keys of a job file: type, and expected form for error messages."""

_AMOUNTS = ("budget_max", "max_price")
_FIELDS = {  # of a spec, by key
    **{"model_config": "model", "adapter_config": "adapter"},
    **{"data_config": "dataset", "training_config": "training"},
}
_SPLITS = ("train", "validation")
_START = ("start_model", "start_checkpoint", "start_round", "start_rate_share")
_OF_DATA = ("dataset", *_SPLITS, "tokenizer", "validation_samples", *_START)
_ANY_DATASET = "b" * 59
_DATA_REMEDY = "Write {train: SOURCE}, with validation and tokenizer as you need, or {dataset: CID}."
_DEEPEST = 3
"""Levels of objects below a key of a job file that errors name."""
_FLOAT, _TEXT = "tag:yaml.org,2002:float", "tag:yaml.org,2002:str"

_EXPONENT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+\Z")
"""Numbers such as 3e-4: numbers in YAML 1.2 and JSON, text in PyYAML's YAML 1.1."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Model, data, training settings, nodes, budget and wait of a job.

    Attributes:
        dataset: CID of a dataset manifest, or sources to build one from.
        budget_max: wei of ZEN in escrow, an upper bound of the cost.
        max_price: highest price in wei of ZEN per GPU-hour, fee included; None: the tier's reserve price.
        wait: time limit for capacity; afterwards the job expires with a full refund.
        model: ``hidden_size, num_hidden_layers, …``, or ``base``, the CID of a base model's manifest; the market fills
            in defaults, and sources without ``vocab_size`` set it.
        adapter: ``r, lora_alpha, …`` of an adapter on the frozen base; None trains all parameters.
        training: ``rounds`` or ``epochs``, and ``inner_steps, batch_size, learning_rate, …``.
        checkpoint: ``interval`` in rounds and ``redundancy`` in nodes.
        requirements: of each node: ``regions, excluded_regions, environment_classes, min_gpu_memory_gb,
            min_reliability_bps, attested_only``.
        sampling_bps: lowest share of each unit's segments to replay; None: the network's.
        name: name of the job in lists.
        validation_samples: validation samples that each unit evaluates on its checkpoint; 0: the market evaluates it;
            None: as many as 2 % of a unit's training allow.
        start_model: CID of initial parameters, such as a checkpoint's ``model_cid``.
        start_checkpoint: CID of a checkpoint to continue, with its outer state.
        start_round: rounds of this job's samples that were read before that checkpoint.
        start_rate_share: share of the peak rates at which their decay goes on.

    Raises:
        ConfigError: a setting of the start is malformed, or contradicts another.
    """

    dataset: str | datasets.Request
    budget_max: int
    max_price: int | None = None
    wait: timedelta = timedelta(hours=1)
    tier: str = "bronze"
    nodes: int = 1
    model: Mapping[str, Any] = field(default_factory=dict)
    adapter: Mapping[str, Any] | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: Mapping[str, Any] = field(default_factory=dict)
    requirements: Mapping[str, Any] = field(default_factory=dict)
    sampling_bps: int | None = None
    name: str | None = None
    validation_samples: int | None = None
    start_model: str | None = None
    start_checkpoint: str | None = None
    start_round: int | None = None
    start_rate_share: float | None = None

    def __post_init__(self) -> None:
        start = self._given(_START)
        try:
            TrainingSpec.from_dict({"data_config": {"dataset": _ANY_DATASET, **start}})
        except SpecError as error:
            remedy = "Client.job(ID).checkpoints() has the CIDs of checkpoints, and as model_cid of their models."
            raise ConfigError("job-start-unusable", str(error), remedy=remedy) from error

    def data_settings(self) -> dict[str, Any]:
        """Return the settings of ``data_config`` besides the dataset."""
        return self._given(("validation_samples", *_START))

    def _given(self, names: Iterable[str]) -> dict[str, Any]:
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def load(path: Path, overrides: Mapping[str, Any] | None = None) -> JobSpec:
    """Return the job in a YAML or JSON file; amounts in ZEN (``2.5``) or wei (``2500 wei``).

    ``data_config`` has either ``dataset``, a manifest's CID, or the sources ``train``, ``validation`` and
    ``tokenizer`` of :class:`zoo_compute.client.datasets.Request`. Paths are relative to the job file. The default
    tokenizer is the base model's, or without one a new BPE. ``validation_samples``, ``start_model``,
    ``start_checkpoint``, ``start_round`` and ``start_rate_share`` may stand next to either.

    Args:
        overrides: replace keys of the file.

    Raises:
        ConfigError: the file cannot be read, or a key is unknown, missing or of a wrong type.
    """
    document = {**_read(path), **(overrides or {})}
    for key, value in document.items():
        if key not in _KEYS:
            nearest = get_close_matches(str(key), list(_KEYS), n=1, cutoff=0.0)[0]
            raise _wrong(path, f"{key!r} is not a known key; the nearest is {nearest!r}")
        kind, written = _KEYS[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _wrong(path, f"{key} cannot be {value!r:.80}", remedy=f"Write {key} as {written}.")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            remedy = "Use finite numbers, and put quotes around text."
            named = _refused_by_json(key, value)
            raise _wrong(path, f"{named} has a value that JSON does not allow: {error}", remedy=remedy) from error
    for key in ("data_config", "budget_max"):
        if key not in document:
            raise _wrong(path, f"{key} is missing")
    fields: dict[str, Any] = {_FIELDS.get(key, key): value for key, value in document.items()}
    data = dict(fields["dataset"])
    fields["validation_samples"] = _validation_samples(path, data.pop("validation_samples", None))
    for name in data.keys() & set(_START):
        fields[name] = data.pop(name)
        if fields[name] is None:
            raise _wrong(path, f"data_config.{name} has no value", remedy="Give it one, or remove the key.")
    fields["dataset"] = _dataset(path, data, fields.get("model", {}).get("base"))
    fields |= {name: parse_zen(str(fields[name]), name) for name in _AMOUNTS if name in fields}
    if "wait" in fields:
        fields["wait"] = parse_duration(fields["wait"], "wait")
    return JobSpec(**fields)


def _refused_by_json(name: str, value: object) -> str:
    """Return the path of the first value in ``value``, at ``name``, that JSON does not allow."""
    is_shallow = name.count(".") < _DEEPEST  # aliases of YAML can make an object contain itself
    for key, one in value.items() if isinstance(value, dict) and is_shallow else ():
        try:
            json.dumps(one, allow_nan=False)
        except (TypeError, ValueError):
            return _refused_by_json(f"{name}.{key!s:.80}", one)
    return name


def parse_duration(text: str, name: str = "duration") -> timedelta:
    """Parse a whole number with the unit ``s``, ``m``, ``h`` or ``d``.

    Raises:
        ConfigError: malformed; the message starts with ``name``.
    """
    found = re.fullmatch(r"\s*(\d{1,6})\s*([smhd])\s*", text)
    if found is None:
        raise ConfigError(
            "duration-malformed",
            f"{name} is {text!r}",
            remedy="Write a number (at most six digits) and a unit: 45s, 30m, 2h or 1d.",
        )
    return timedelta(seconds=int(found[1]) * _SECONDS[found[2]])


def deadline(wait: timedelta) -> datetime:
    """Return the end of a wait that starts now, in whole seconds."""
    return (datetime.now(UTC) + wait).replace(microsecond=0)


def _read(path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads 3e-4 as a number and refuses duplicate keys."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [key.value for key, _ in node.value]
            for position, name in enumerate(names):
                if name in names[:position]:
                    raise _wrong(path, f"contains the key {name!r:.80} twice", remedy="Keep one of the two.")
            return super().construct_mapping(node, deep)

    Loader.add_implicit_resolver(_FLOAT, _EXPONENT, list("-+.0123456789"))
    try:
        loader = Loader(path.read_text())
        node = loader.get_single_node()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.value in _AMOUNTS and value.tag == _FLOAT:
                value.tag = _TEXT  # keeps every digit
        document = None if node is None else loader.construct_document(node)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise _wrong(path, f"is neither YAML nor JSON: {error}") from error
    except RecursionError as error:
        raise _wrong(path, "is nested too deeply") from error
    if not isinstance(document, dict):
        raise _wrong(path, "must contain an object with the keys " + ", ".join(_KEYS))
    return document


def _dataset(path: Path, document: dict[str, Any], base: object) -> str | datasets.Request:
    if unknown := sorted(map(str, document.keys() - set(_OF_DATA))):
        nearest = get_close_matches(unknown[0], _OF_DATA, n=1, cutoff=0.0)[0]
        detail = f"data_config.{unknown[0]:.80} is not a known key; the nearest is {nearest!r}"
        raise _wrong(path, detail, remedy=_DATA_REMEDY)
    if "dataset" in document:
        if set(document) == {"dataset"} and isinstance(document["dataset"], str):
            return document["dataset"]
        raise _wrong(path, "data_config.dataset must be a CID, and the only source", remedy=_DATA_REMEDY)
    if "train" not in document:
        raise _wrong(path, "data_config has neither train nor dataset", remedy=_DATA_REMEDY)
    train, validation = (_sources(path, name, document[name]) if name in document else () for name in _SPLITS)
    given = document.get("tokenizer", base if isinstance(base, str) else datasets.DEFAULT_TOKENIZER)
    if not isinstance(given, str):
        remedy = f"Write {datasets.DEFAULT_TOKENIZER} for a new one, or a model's folder, CID or hf://NAME."
        raise _wrong(path, f"data_config.tokenizer cannot be {given!r:.80}", remedy=remedy)
    folder = path.parent / given
    return datasets.Request(train, str(folder) if folder.is_dir() else given, validation)


def _validation_samples(path: Path, given: object) -> int | None:
    if given is None or type(given) is int:
        return given
    remedy = "Write a whole number; 0 lets the market evaluate checkpoints."
    raise _wrong(path, f"data_config.validation_samples cannot be {given!r:.80}", remedy=remedy)


def _sources(path: Path, name: str, given: object) -> tuple[str, ...]:
    """Return files, folders, patterns and URLs; paths are relative to the job file."""
    named: list[Any] = given if isinstance(given, list) else [given]
    if not named or not all(isinstance(one, str) and one for one in named):
        remedy = "Write a file, a folder, a pattern or a URL, or a list of them."
        raise _wrong(path, f"data_config.{name} cannot be {given!r:.80}", remedy=remedy)
    return tuple(one if "://" in one else str(path.parent / one) for one in named)


def _wrong(path: Path, detail: str, remedy: str | None = None) -> ConfigError:
    return ConfigError(
        "job-file-unusable", f"{path}: {detail}", remedy=remedy or f"The keys of a job file are {', '.join(_KEYS)}."
    )

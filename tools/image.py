"""Files of the container image, and the environments of compose, without Docker."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^${}]*))?\}")  # the innermost, as defaults contain others


def context(root: Path) -> Iterator[PurePosixPath]:
    """Return the files under ``root`` that .dockerignore lets into the image."""
    lines = [line for line in (root / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    rules = [(_pattern(line.removeprefix("!")), not line.startswith("!")) for line in lines]
    named = [line.removeprefix("!") for line in lines if line.startswith("!")]

    def is_ignored(path: PurePosixPath) -> bool:
        ways = [path, *path.parents][:-1]  # without the root
        return ([ignores for rule, ignores in rules if any(rule.fullmatch(str(way)) for way in ways)] or [False])[-1]

    for directory, folders, files in os.walk(root):
        here = PurePosixPath(Path(directory).relative_to(root))
        folders[:] = [one for one in folders if not is_ignored(here / one) or any(n.startswith(one) for n in named)]
        yield from (here / file for file in files if not is_ignored(here / file))


def _pattern(line: str) -> re.Pattern[str]:
    words = re.split(r"(\*\*/|\*)", line)
    return re.compile("".join({"**/": "(?:.*/)?", "*": "[^/]*"}.get(word, re.escape(word)) for word in words))


def environment(service: Mapping[str, Any], dotenv: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a compose service, if .env has ``dotenv``.

    Raises:
        ValueError: a variable that the service requires is not set.
    """
    return {
        **(dotenv if service.get("env_file") else {}),
        **{name: interpolate(str(value), dotenv) for name, value in service.get("environment", {}).items()},
    }


def interpolate(text: str, dotenv: Mapping[str, str]) -> str:
    """Replace ``${NAME}``, ``${NAME:-default}`` and ``${NAME:?error}``."""

    def value(found: re.Match[str]) -> str:
        name, operator, rest = found.groups()
        if operator == "?" and not dotenv.get(name):
            raise ValueError(rest)
        return dotenv.get(name) or (rest if operator == "-" else "")

    while (replaced := _VARIABLE.sub(value, text)) != text:
        text = replaced
    return text

"""Files of the container image, and the environments of compose, without Docker."""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

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


def instructions(root: Path) -> Iterator[tuple[str, str]]:
    """Return the Dockerfile's instructions: names and arguments, without comments."""
    text = re.sub(r"^\s*#.*\n", "", (root / "Dockerfile").read_text(), flags=re.MULTILINE)
    for line in filter(None, text.replace("\\\n", "").splitlines()):
        name, _, arguments = line.partition(" ")
        yield name, arguments.strip()


def build(root: Path, target: Path) -> dict[str, str]:
    """Build the image's files, ``app/`` and ``venv/``, and return its processes' environment.

    The steps are the Dockerfile's, without those that need root: a virtual environment replaces the base image.

    Raises:
        CalledProcessError: a step failed.
    """
    app, binaries = target / "app", target / "venv" / "bin"
    app.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", target / "venv"], check=True)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_"))}
    variables = {**kept, "PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(target), "PIP_NO_COMPILE": "1"}
    for name, arguments in instructions(root):
        if name == "ENV":
            variables |= dict(word.split("=", 1) for word in shlex.split(arguments))
        elif name == "COPY":
            _copy(root, app, shlex.split(arguments)[:-1])
        elif name == "RUN" and arguments.startswith("pip "):
            subprocess.run(["sh", "-c", arguments], cwd=app, env=variables, check=True)
    return variables


def _copy(root: Path, app: Path, sources: Sequence[str]) -> None:
    for path in context(root):
        if "." in sources or str(path) in sources:
            (app / path.parent).mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, app / path)


def checks(root: Path, dotenv: Mapping[str, str]) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Return services with commands that import and parse what they run, and their variables."""
    image_command: list[str] = next(json.loads(words) for name, words in instructions(root) if name == "CMD")
    services = yaml.safe_load((root / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        if "build" not in service:
            continue
        command, variables = service.get("command", image_command), environment(service, dotenv)
        if command[0] == "alembic":  # its help reads no migration
            yield name, ["alembic", "heads"], variables
            continue
        yield name, [*command, "--help"], variables
        if command[0] == "celery":  # its help loads no task
            program = f"from {command[2]} import app; app.loader.import_default_modules()"
            yield name, ["python", "-c", program], variables
        if command[0] == "zoo-compute":  # runs torch
            yield name, ["zoo-compute", "node", "environment"], variables


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the image's files in a folder and run the checks there; exit status 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python -m tools.image", description=__doc__)
    parser.add_argument("target", type=Path, help="build here; the folder must not exist")
    target = parser.parse_args(arguments).target.resolve()
    variables = build(ROOT, target)

    def run(check: tuple[str, list[str], dict[str, str]]) -> subprocess.CompletedProcess[str]:
        _, command, own = check
        return subprocess.run(command, cwd=target / "app", env={**variables, **own}, capture_output=True, text=True)

    distinct = {shlex.join(check[1]): check for check in checks(ROOT, {"POSTGRES_PASSWORD": "unused"})}
    failures = 0
    with ThreadPoolExecutor(2) as pool:
        for (line, (name, *_)), done in zip(distinct.items(), pool.map(run, distinct.values()), strict=True):
            print(f"{name}: {line}: {'failed' if done.returncode else 'ok'}")
            if done.returncode:
                failures += 1
                print(done.stdout + done.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

"""docker-compose.yml, .env.example and the settings that the code reads must agree."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from market.platform.http.bounded import BoundedProtocol
from market.server import configuration
from market.settings import Settings
from tools.image import context, environment, instructions

ROOT = Path(__file__).parents[3]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
HOLDERS: dict[str, set[str]] = {
    "deploy": {"OPERATOR", "ACKNOWLEDGER"},
    "migrate": set(),
    "api": {"ACKNOWLEDGER"},
    "worker": {"OPERATOR", "CHALLENGER", "PREVIOUS_CHALLENGER"},
    "webhooks": set(),
    "beat": set(),
    "console": {"ACKNOWLEDGER"},
}
MARKET_SERVICES = tuple(HOLDERS)
SECRET = re.compile(r"ZOO_(\w+?)_KEY(STORE\w*)?")


def services() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE)["services"])


def settings_variables() -> set[str]:
    return {f"ZOO_{name.upper()}" for name in Settings.model_fields}


def test_compose_file_follows_specification() -> None:
    parsed = compose_spec.PyCompose.from_json(json.dumps(yaml.safe_load(COMPOSE)))
    assert {"postgres", "redis", "kubo", "chain", *MARKET_SERVICES} <= set(parsed.service_names())


def test_parser_refuses_misspelt_key() -> None:
    misspelt = yaml.safe_load(COMPOSE.replace("    healthcheck:", "    healthchek:", 1))
    with pytest.raises(ValueError, match="healthchek"):
        compose_spec.PyCompose.from_json(json.dumps(misspelt))


@pytest.mark.parametrize("name", MARKET_SERVICES)
def test_compose_passes_all_settings_but_foreign_keys(name: str) -> None:
    """Every variable of .env.example has a value of its own, and then no value."""
    holders = {variable: found[1] for variable in settings_variables() if (found := SECRET.fullmatch(variable))}
    assert len(holders) == 4 * 4
    nodes = {"PROVIDER_PRIVATE_KEY", "VERIFIER_PRIVATE_KEY"}
    variables = settings_variables() | nodes | {"POSTGRES_PASSWORD", "OTEL_EXPORTER_OTLP_ENDPOINT"}
    foreign = nodes | {variable for variable, holder in holders.items() if holder not in HOLDERS[name]}
    given = environment(services()[name], {variable: f"of {variable}" for variable in variables})
    assert {key: given[key] for key in variables} == {key: "" if key in foreign else f"of {key}" for key in variables}
    defaults = environment(services()[name], dict.fromkeys(variables, ""))
    required = {f"ZOO_{name.upper()}" for name, field in Settings.model_fields.items() if field.is_required()}
    assert required <= {key for key, value in defaults.items() if value}


@pytest.mark.parametrize("role", ["provider", "verifier"])
def test_nodes_have_own_key_and_no_market_setting(role: str) -> None:
    own = f"{role.upper()}_PRIVATE_KEY"
    given = environment(services()[role], {"ZOO_OPERATOR_KEY": "secret", "POSTGRES_PASSWORD": "secret", own: "own"})
    assert given == {"ZOO_API_URL": "http://localhost:8000", "ZOO_PRIVATE_KEY": "own"}
    assert services()[role]["command"][:5] == ["zoo-compute", "node", "run", "--role", role]


def test_database_has_default_with_password_and_requires_one() -> None:
    given = environment(services()["api"], {"POSTGRES_PASSWORD": "abc"})
    assert given["ZOO_DATABASE_URL"] == "postgresql+psycopg://zoo:abc@postgres:5432/zoo"
    with pytest.raises(ValueError, match="set POSTGRES_PASSWORD"):
        environment(services()["postgres"], {"POSTGRES_PASSWORD": ""})


def test_secrets_folders_are_mounted_for_holders_only() -> None:
    for name in MARKET_SERVICES:
        mounted = {mount.split(":")[0] for mount in services()[name].get("volumes", []) if mount.startswith("./")}
        folders = {f"./secrets/{key.lower()}" for key in HOLDERS[name] - {"PREVIOUS_CHALLENGER"}}
        assert mounted == (set() if name == "deploy" else folders)  # it runs once, with plain keys


def test_keys_stay_out_of_image_and_repository(tmp_path: Path) -> None:
    secret = (".env", ".env.local", "secrets/operator/a.json", "UTC--2026--ab", "market/keystore.json", "market/.env")
    for name in (*secret, "market/app.py", "market/__pycache__/app.pyc", "alembic.ini", "benchmarks/api.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in (".gitignore", ".dockerignore", ".env.example"):
        shutil.copy(ROOT / name, tmp_path)
    assert {str(path) for path in context(tmp_path)} == {"market/app.py", "alembic.ini"}
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    ignored = subprocess.run(
        ["git", "check-ignore", *secret, ".env.example"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ignored.stdout.split() == list(secret)


def test_webhooks_run_apart() -> None:
    found = services()
    queues = {name: found[name]["command"][found[name]["command"].index("-Q") + 1] for name in ("worker", "webhooks")}
    assert queues == {"worker": "celery", "webhooks": "webhooks"}


def test_volumes_and_dependencies_exist() -> None:
    document = yaml.safe_load(COMPOSE)
    for name, service in document["services"].items():
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source.startswith("./") or source in document["volumes"], f"{name} mounts an undeclared volume"
        assert set(service.get("depends_on", {})) <= set(document["services"])


def test_api_runs_bounded_server_behind_proxy() -> None:
    found = services()
    assert "ports" not in found["api"]  # a peer that reaches it could send its own X-Forwarded-For
    assert configuration(found["api"]["command"][3:]).proxy_headers
    image = json.loads(re.findall(r"^CMD (.*)$", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[0])
    for command in (found["api"]["command"], image):
        assert command[:3] == ["python", "-m", "market.server"]
        http = configuration(command[3:]).http
        assert isinstance(http, type)
        assert issubclass(http, BoundedProtocol)


def test_clients_reach_kubo_by_address() -> None:
    """A gateway addressed as ``localhost`` redirects to a host name per CID."""
    for line in re.findall(r"ZOO_GATEWAY_URL.*", COMPOSE + (ROOT / ".env.example").read_text()):
        assert "localhost" not in line


def test_env_example_documents_exactly_all_settings() -> None:
    text = (ROOT / ".env.example").read_text()
    documented = set(re.findall(r"^(ZOO_\w+)=", text, flags=re.MULTILINE))
    assert documented == settings_variables()


def test_env_example_has_all_variables_of_compose() -> None:
    documented = set(re.findall(r"^(\w+)=", (ROOT / ".env.example").read_text(), flags=re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", COMPOSE)) <= documented


def test_env_example_states_defaults() -> None:
    text = (ROOT / ".env.example").read_text()
    stated = dict(re.findall(r"^(ZOO_\w+)=(.*)$", text, flags=re.MULTILINE))
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(stated[f"ZOO_{name.upper()}"]) == field.default, name


def test_image_installs_lock_with_dependencies() -> None:
    """The CUDA build of torch needs packages that the lock does not have."""
    [step] = [words for name, words in instructions(ROOT) if name == "RUN" and "requirements.lock" in words]
    assert "--no-deps" not in step
    assert "$TORCH_INDEX" in step


def test_image_runs_existing_modules() -> None:
    for name in MARKET_SERVICES:
        for word in services()[name].get("command", []):
            if re.fullmatch(r"(market|worker)(\.\w+)+", word):
                assert list(ROOT.glob(word.replace(".", "/") + "*")), f"{name} runs {word}, which is not there"

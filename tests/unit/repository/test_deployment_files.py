"""docker-compose.yml, .env.example and the settings that the code reads must agree."""

import json
import re
from pathlib import Path
from typing import Any

import compose_spec
import pytest
import yaml

from market.platform.http.bounded import BoundedProtocol
from market.server import configuration
from market.settings import Settings

ROOT = Path(__file__).parents[3]
COMPOSE = (ROOT / "docker-compose.yml").read_text()
MARKET_SERVICES = ("deploy", "migrate", "api", "worker", "webhooks", "beat", "console")


def services() -> dict[str, Any]:
    return dict(yaml.safe_load(COMPOSE)["services"])


def settings_variables() -> set[str]:
    return {f"ZOO_{name.upper()}" for name in Settings.model_fields}


def required_variables() -> set[str]:
    return {f"ZOO_{name.upper()}" for name, field in Settings.model_fields.items() if field.is_required()}


def test_compose_file_follows_specification() -> None:
    parsed = compose_spec.PyCompose.from_json(json.dumps(yaml.safe_load(COMPOSE)))
    assert {"postgres", "redis", "kubo", "chain", *MARKET_SERVICES} <= set(parsed.service_names())


def test_parser_refuses_misspelt_key() -> None:
    misspelt = yaml.safe_load(COMPOSE.replace("    healthcheck:", "    healthchek:", 1))
    with pytest.raises(ValueError, match="healthchek"):
        compose_spec.PyCompose.from_json(json.dumps(misspelt))


@pytest.mark.parametrize("name", MARKET_SERVICES)
def test_market_services_have_exactly_required_and_known_settings(name: str) -> None:
    given = {key for key in services()[name]["environment"] if key.startswith("ZOO_")}
    assert required_variables() <= given
    assert given <= settings_variables()


def test_webhooks_run_apart_and_without_keys() -> None:
    found = services()
    queues = {name: found[name]["command"][found[name]["command"].index("-Q") + 1] for name in ("worker", "webhooks")}
    assert queues == {"worker": "celery", "webhooks": "webhooks"}
    assert not [name for name in found["webhooks"]["environment"] if "KEY" in name]


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


def test_env_example_states_defaults() -> None:
    text = (ROOT / ".env.example").read_text()
    stated = dict(re.findall(r"^(ZOO_\w+)=(.*)$", text, flags=re.MULTILINE))
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | float) and not isinstance(field.default, bool):
            assert float(stated[f"ZOO_{name.upper()}"]) == field.default, name


def test_image_runs_existing_modules() -> None:
    for name in MARKET_SERVICES:
        for word in services()[name].get("command", []):
            if re.fullmatch(r"(market|worker)(\.\w+)+", word):
                assert list(ROOT.glob(word.replace(".", "/") + "*")), f"{name} runs {word}, which is not there"

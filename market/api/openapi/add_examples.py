"""Insertion of :mod:`market.api.openapi.examples` into the OpenAPI document."""

import re
from contextlib import suppress
from typing import Any

from market.api.openapi.examples import FIELDS
from market.api.openapi.governance_examples import GOVERNANCE_PARAMETERS, OF_GOVERNANCE
from market.api.openapi.model_examples import KEYS, OF_MODEL, PARAMETERS, TEXTS
from market.api.openapi.node_examples import OF_NODES
from market.platform.http.problem import MEDIA_TYPE

Schema = dict[str, Any]
_FIELDS = FIELDS | OF_NODES
_MODELS = OF_MODEL | OF_GOVERNANCE
_PARAMETERS = PARAMETERS | GOVERNANCE_PARAMETERS


class _Unknown(Exception):
    """A field has no example."""


def add_examples(document: Schema) -> None:
    """Add an example to every field, parameter, request body and response.

    A test finds those without an example in the tables.
    """
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        _illustrate_fields(name.rsplit("__")[-1], schema)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", []):
                _illustrate_parameter(parameter, operation["operationId"])
            for body in (*operation["responses"].values(), operation.get("requestBody", {})):
                _illustrate_contents(body.get("content", {}), path, schemas)


def _illustrate_contents(contents: dict[str, Schema], path: str, schemas: dict[str, Schema]) -> None:
    for media_type, content in contents.items():
        if media_type == MEDIA_TYPE:
            _place_refusals(content, path)
        else:
            with suppress(_Unknown):
                _illustrate_body(media_type, content, schemas)


def _illustrate_fields(model: str, schema: Schema) -> None:
    of_model = _MODELS.get(model, {})
    for name, field in schema.get("properties", {}).items():
        if name in of_model:
            field["examples"] = [of_model[name]]
        elif name in _FIELDS and not (_refers(field) or field.get("examples")):
            field["examples"] = [_FIELDS[name]]


def _refers(field: Schema) -> bool:
    variants = [field.get("items", {}), field.get("additionalProperties"), field, *field.get("anyOf", [])]
    return any(isinstance(one, dict) and ("$ref" in one or "enum" in one or "const" in one) for one in variants)


def _illustrate_parameter(parameter: Schema, operation_id: str) -> None:
    name = parameter["name"]
    value = _PARAMETERS.get(f"{operation_id}.{name}", _PARAMETERS.get(name))
    if value is not None:
        parameter["example"] = value


def _place_refusals(content: Schema, path: str) -> None:
    """Set the problems' ``instance``, and restore the nulls that the document omits."""
    for example in content["examples"].values():
        example["value"] = {"field": None, "remedy": None} | example["value"] | {"instance": _example_of(path)}


def _example_of(path: str) -> str:
    return re.sub(r"{(\w+)}", lambda match: str(_PARAMETERS.get(match[1], match[0])), path)


def _illustrate_body(media_type: str, content: Schema, schemas: dict[str, Schema]) -> None:
    if media_type in TEXTS:
        content.setdefault("schema", {"type": "string"})
        content["example"] = TEXTS[media_type]
    elif "oneOf" in content["schema"]:
        variants = {variant["$ref"].rsplit("/")[-1]: variant for variant in content["schema"]["oneOf"]}
        content["examples"] = {name: {"value": _compose(variant, schemas)} for name, variant in variants.items()}
    else:
        content["example"] = _compose(content["schema"], schemas)


def _compose(schema: Schema, schemas: dict[str, Schema]) -> Any:
    if schema.get("examples"):
        return schema["examples"][0]
    if "$ref" in schema:
        return _compose(schemas[schema["$ref"].rsplit("/")[-1]], schemas)
    if "anyOf" in schema:
        return _compose(schema["anyOf"][0], schemas)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema.get("default", schema["enum"][0])
    if schema.get("type") == "array":
        return [_compose(schema["items"], schemas)]
    if "properties" in schema:
        return {name: _compose_field(name, field, schemas) for name, field in schema["properties"].items()}
    if schema.get("type") == "boolean":
        return schema.get("default", True)
    raise _Unknown


def _compose_field(name: str, field: Schema, schemas: dict[str, Schema]) -> Any:
    if name in KEYS:
        return {KEYS[name]: _compose(field["additionalProperties"], schemas)}
    return _compose(field, schemas)

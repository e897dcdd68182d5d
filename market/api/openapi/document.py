"""Additions to the OpenAPI document: common problems, scopes, 304 responses and examples."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from market.accounts.errors import NotAuthenticated, ScopeMissing
from market.api.openapi.add_examples import add_examples
from market.platform.http.errors import (
    BodyTooLarge,
    DatabaseDown,
    InternalError,
    InvalidRequest,
    KeyReused,
    RateLimited,
    RequestInFlight,
    StateConflict,
)
from market.platform.http.problem import MarketError
from market.platform.http.refusals import Problem, add_refusal, refusals
from market.platform.http.scopes import SCOPE_KEY, scope_of

TAGS = [
    {"name": "network", "description": "Parameters of this network, which clients need for signatures."},
    {"name": "accounts", "description": "Sign-in with a wallet (EIP-4361), API keys with scopes and caps, roles."},
    {"name": "organisations", "description": "Shared budgets: members, roles and caps."},
    {"name": "webhooks", "description": "Events of your jobs, sent to your servers and signed (Standard Webhooks)."},
    {"name": "storage", "description": "Uploads to content-addressed storage."},
    {"name": "providers", "description": "Nodes: registration, heartbeats, benchmarks, asks and their public record."},
    {"name": "auctions", "description": "Order books, auction rounds and prices, with the data to repeat a clearing."},
    {"name": "jobs", "description": "Quotes and training jobs, from submission to receipt, and providers' pay."},
    {"name": "leases", "description": "Leases of nodes, and inclusion proofs of their commitments."},
    {"name": "rewards", "description": "Rewards of nodes for uptime, bandwidth and verification."},
    {"name": "ledger", "description": "Treasury, and comparison of the ledger with the chain."},
    {
        "name": "governance",
        "description": "Acts of treasury, admin and guardian; the timelock, alarms, the audit log.",
    },
    {"name": "operations", "description": "Health and metrics, for operators."},
]
"""Tags of the routes, in the order of the document."""

_METHODS = ("get", "put", "post", "delete", "patch")
_NOT_MODIFIED = {
    "description": "The resource still has the ETag in If-None-Match.",
    "headers": {"ETag": {"schema": {"type": "string", "examples": ['"5f2d0c9a1b7e4486"']}}},
}
_ALWAYS = (InvalidRequest, BodyTooLarge, RateLimited, InternalError, DatabaseDown)
COMMON = refusals(*_ALWAYS)


def install_openapi(app: FastAPI) -> None:
    """Add common responses, scopes and examples to the app's OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = generate()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.setdefault("Problem", Problem.model_json_schema())
            for path, operations in document["paths"].items():
                for method in _METHODS:
                    if method in operations:
                        _complete(operations[method], path, method)
            add_examples(document)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(operation: dict[str, Any], path: str, method: str) -> None:
    responses = operation["responses"]
    possible: list[type[MarketError]] = []
    if "security" in operation:
        operation[SCOPE_KEY] = scope_of(operation.get(SCOPE_KEY, ""), operation["tags"], method.upper())
        possible += [NotAuthenticated, ScopeMissing]
        if method != "get":  # an illegal transition without a problem of its own
            possible.append(StateConflict)
    if any(parameter["name"] == "idempotency-key" for parameter in operation.get("parameters", ())):
        possible += [KeyReused, RequestInFlight]
    for refusal in (*possible, *_ALWAYS):  # a route's own responses replace the common ones of the same status
        add_refusal(responses, refusal)
    if (
        method == "get"
        and path.startswith("/v1/")
        and "application/json" in responses.get("200", {}).get("content", {})
    ):
        responses["304"] = _NOT_MODIFIED


def operation_id(route: APIRoute) -> str:
    return route.name

"""Refusal of unknown query parameters, since an ignored typo changes the meaning."""

from inspect import isclass

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from market.platform.http.types import unknown_key


async def only_known_parameters(request: Request) -> None:
    """Refuse unknown query parameters of the routes under ``/v1``.

    Raises:
        RequestValidationError: names the parameter and the nearest one of the route.
    """
    if not request.scope["query_string"] or not request.scope["path"].startswith("/v1/"):
        return
    known = _parameters(request.scope["route"].dependant)
    for name in request.query_params:
        if name not in known:
            error = unknown_key(name, known)
            found = {"type": error.type, "loc": ("query",), "msg": error.message(), "ctx": error.context}
            raise RequestValidationError([found])


def _parameters(dependant: Dependant) -> list[str]:
    names = []
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isclass(model) and issubclass(model, BaseModel):  # one parameter for each of its fields
            names += [found.alias or name for name, found in model.model_fields.items()]
        else:
            names.append(field.alias)
    return names + [name for inner in dependant.dependencies for name in _parameters(inner)]

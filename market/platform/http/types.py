"""Field types that every request and response shares."""

import difflib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from eth_utils.address import is_checksum_address, to_checksum_address
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.functional_validators import AfterValidator
from pydantic.json_schema import WithJsonSchema
from pydantic_core import PydanticCustomError

from market.domain.money import MoneyError, parse_wei
from zoo_protocol.content.cid import ContentError, parse

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # JSON can hold half of a surrogate pair; UTF-8 cannot
_WEI_SCHEMA = {"type": "string", "pattern": "^(0|[1-9][0-9]{0,77})$"}


def _wei(value: object) -> int:
    try:
        return parse_wei(value)  # type: ignore[arg-type]  # it refuses other types
    except MoneyError as error:
        raise PydanticCustomError("wei", "{reason}", {"reason": str(error)}) from error


def _address(value: str) -> str:
    digits = value[2:]
    uniform = digits in (digits.lower(), digits.upper())
    if not uniform and not is_checksum_address(value):
        raise PydanticCustomError("address", "wrong EIP-55 checksum; copy the address again")
    return str(to_checksum_address(value))


def _cid(value: str) -> str:
    try:
        return str(parse(value))
    except ContentError as error:
        raise PydanticCustomError("cid", "{reason}", {"reason": str(error)}) from error


_as_text = PlainSerializer(str, return_type=str, when_used="json")

WeiString = Annotated[int, BeforeValidator(_wei), _as_text, WithJsonSchema(_WEI_SCHEMA)]
"""Amount in wei (or another uint256) in a request: a string of decimal digits; ``int`` in Python."""

WeiOut = Annotated[int, _as_text, WithJsonSchema(_WEI_SCHEMA, mode="serialization")]
"""Amount in wei (or another uint256) in a response: ``int`` in Python, a string of decimal digits in JSON."""

AddressString = Annotated[
    str,
    StringConstraints(pattern=r"^0x[0-9a-fA-F]{40}$"),
    AfterValidator(_address),
    WithJsonSchema({"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"}),
]
"""Account address; checksummed in Python."""

HashString = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$", to_lower=True)]
"""32 bytes as 0x hex, lower case in Python."""

SignatureString = Annotated[str, StringConstraints(pattern=r"^0x([0-9a-fA-F]{2}){1,4096}$")]
"""Signature as 0x hex: 65 bytes, or the format of a contract wallet."""

CidString = Annotated[str, StringConstraints(max_length=128), AfterValidator(_cid)]
"""CIDv1 (base32, raw or dag-pb, SHA2-256)."""

LAST_INSTANT = datetime(2999, 12, 31, 23, 59, 59, tzinfo=UTC)
Instant = Annotated[AwareDatetime, Field(ge=datetime(2000, 1, 1, tzinfo=UTC), le=LAST_INSTANT)]
"""Instant far enough from the limits of ``datetime`` to add to it and to change its time zone."""

RowId = Annotated[int, Field(ge=1, lt=2**31)]
"""Id of a row."""
_NUMBERS = (int, float, int | None, float | None, RowId | None)


def unknown_key(key: str, known: Sequence[str]) -> PydanticCustomError:
    """Return the validation error of an unknown key, with the nearest known one."""
    near = difflib.get_close_matches(key, known, n=1)
    context = {"key": key, "nearest": near[0] if near else None, "known": list(known)}
    return PydanticCustomError("unknown_key", "there is no such key", context)


class RequestModel(BaseModel):
    """Base of request bodies.

    It refuses unknown keys, true and false as numbers, and texts that PostgreSQL cannot store.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _name_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key, value in data.items():
                if key not in known:
                    raise unknown_key(str(key).encode("utf-8", "backslashreplace").decode(), known)
                if not _is_storable(value):
                    found = "{key} holds the character U+0000 or half of a surrogate pair"
                    raise PydanticCustomError("unstorable", found, {"key": str(key)})
        return data

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[info.field_name or ""]
        reads_itself = any(isinstance(one, BeforeValidator) for one in field.metadata)
        if isinstance(value, bool) and field.annotation in _NUMBERS and not reads_itself:
            raise PydanticCustomError("bool_as_number", "is true or false; give a number")
        return value


def _is_storable(value: Any) -> bool:
    """Return True if all texts in a JSON value can be stored, keys included."""
    waiting = [value]
    while waiting:  # a recursion would end at the depth that the JSON parser accepts
        item = waiting.pop()
        if isinstance(item, str) and _UNSTORABLE.search(item):
            return False
        if isinstance(item, dict):
            waiting += [*item, *item.values()]
        elif isinstance(item, list):
            waiting += item
    return True

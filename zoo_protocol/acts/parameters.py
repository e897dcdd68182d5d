"""Parameters of acts: typed values from the text of a form or command, and back to words."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from eth_utils.address import is_checksum_address, is_hex_address, to_checksum_address

from zoo_protocol.acts.roles import DEFAULT_ADMIN_ROLE, role_hash, role_name
from zoo_protocol.content.cid import ContentError, digest_of
from zoo_protocol.hashing import sha256, to_hex

ZEN = 10**18
_AMOUNT = re.compile(r"(?P<whole>\d{1,30})(?:\.(?P<fraction>\d{1,18}))?(?P<wei> ?wei)?", re.ASCII)
_HASH = re.compile(r"0x[0-9a-fA-F]{64}", re.ASCII)
_NUMBER = re.compile(r"\d{1,39}", re.ASCII)
_FLAGS = {"yes": True, "true": True, "no": False, "false": False}


class ActError(ValueError):
    """The act cannot be prepared. ``field`` names the argument, if one is at fault."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message if field is None else f"{field} {message}")
        self.field = field


class Kind(StrEnum):
    """Type of a parameter; it decides the form field, the check and the words."""

    ADDRESS = "address"
    ZEN = "zen"  # amount in ZEN, or in wei with that unit
    BPS = "bps"  # basis points
    SECONDS = "seconds"
    NUMBER = "number"
    CHOICE = "choice"
    FLAG = "flag"
    HASH = "hash"  # 32 bytes as 0x hex
    PURPOSE = "purpose"  # hash of a document: its CID, its hash, or its text
    ROLE = "role"  # name of a role of the act's contract
    LIST = "list"  # list of hashes or structs that the act's program reads, not a person


@dataclass(frozen=True, slots=True)
class Parameter:
    """Argument of a contract's function, in its order.

    Attributes:
        name: name in the ABI.
        label: words of the form field.
        choices: words by number, of kind CHOICE.
    """

    name: str
    label: str
    kind: Kind
    choices: tuple[tuple[int, str], ...] = ()

    def parse(self, given: object) -> Any:
        """Return the ABI value of a text (or of a list). Raises ActError."""
        if self.kind is Kind.LIST:
            if not isinstance(given, list):
                raise ActError(self.name, "is not a list")
            return given
        text = str(given).strip()
        value = _PARSERS[self.kind](self, text)
        if value is None:
            raise ActError(self.name, f"is {text!r:.80}; expected {self.expected}")
        return value

    def words(self, value: Any) -> str:
        """Return an ABI value for people: amounts in ZEN and exact wei, choices by name."""
        match self.kind:
            case Kind.ZEN:
                return exact_zen(int(value))
            case Kind.BPS:
                return f"{int(value) / 100:g} % ({value} bps)"
            case Kind.SECONDS:
                return duration(int(value))
            case Kind.CHOICE:
                return dict(self.choices).get(int(value), f"number {value}")
            case Kind.FLAG:
                return "yes" if value else "no"
            case Kind.ROLE:
                return role_name(value)
            case Kind.LIST:
                return f"{len(value)} entries" if len(value) != 1 else "1 entry"
            case _:
                return str(value)

    @property
    def expected(self) -> str:
        """Return the accepted form in words."""
        if self.kind is Kind.CHOICE:
            return "one of " + ", ".join(words for _, words in self.choices)
        return _EXPECTED[self.kind]


def exact_zen(wei: int) -> str:
    """Return an amount in ZEN without rounding, and in wei."""
    whole, fraction = divmod(wei, ZEN)
    digits = f"{fraction:018d}".rstrip("0")
    return f"{whole:,}{'.' + digits if digits else ''} ZEN ({wei} wei)"


def duration(seconds: int) -> str:
    """Return seconds in their two largest units, such as ``2 days 3 hours``."""
    parts = []
    rest = seconds
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'s' if count > 1 else ''}")
    return " ".join(parts[:2]) or "0 seconds"


def _address(_: Parameter, text: str) -> str | None:
    digits = text.removeprefix("0x")
    if not text.startswith("0x") or not is_hex_address(text) or int(text, 16) == 0:
        return None
    is_plain = digits in (digits.lower(), digits.upper())
    return str(to_checksum_address(text)) if is_plain or is_checksum_address(text) else None


def _zen(_: Parameter, text: str) -> int | None:
    found = _AMOUNT.fullmatch(text.replace(",", ""))
    if found is None:
        return None
    if found["wei"]:
        wei = None if found["fraction"] else int(found["whole"])
    else:
        wei = int(found["whole"]) * ZEN + int((found["fraction"] or "").ljust(18, "0"))
    return wei if wei is not None and wei < 2**96 else None


def _number(_: Parameter, text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _bps(parameter: Parameter, text: str) -> int | None:
    value = _number(parameter, text)
    return value if value is not None and value <= 10_000 else None


def _choice(parameter: Parameter, text: str) -> int | None:
    return next((number for number, words in parameter.choices if text.lower() in (words, str(number))), None)


def _flag(_: Parameter, text: str) -> bool | None:
    return _FLAGS.get(text.lower())


def _hash(_: Parameter, text: str) -> str | None:
    return text.lower() if _HASH.fullmatch(text) else None


def _purpose(_: Parameter, text: str) -> str | None:
    if not text or _HASH.fullmatch(text):
        return text.lower() or None
    try:
        return to_hex(digest_of(text))
    except ContentError:
        return to_hex(sha256(text.encode()))


def _role(_: Parameter, text: str) -> str | None:
    return None if text == DEFAULT_ADMIN_ROLE else role_hash(text)


_PARSERS = {
    Kind.ADDRESS: _address,
    Kind.ZEN: _zen,
    Kind.BPS: _bps,
    Kind.SECONDS: _number,
    Kind.NUMBER: _number,
    Kind.CHOICE: _choice,
    Kind.FLAG: _flag,
    Kind.HASH: _hash,
    Kind.PURPOSE: _purpose,
    Kind.ROLE: _role,
}
_EXPECTED = {
    Kind.ADDRESS: "0x and 40 hex digits, with a correct checksum",
    Kind.ZEN: "an amount in ZEN with at most 18 decimals, or a whole number of wei such as '5 wei'",
    Kind.BPS: "basis points from 0 to 10000",
    Kind.SECONDS: "a whole number of seconds",
    Kind.NUMBER: "a whole number",
    Kind.FLAG: "yes or no",
    Kind.HASH: "0x and 64 hex digits",
    Kind.PURPOSE: "a CID, 0x and 64 hex digits, or the text of the purpose",
    Kind.ROLE: "the name of a role of the contract, such as GUARDIAN_ROLE",
    Kind.LIST: "a list",
}

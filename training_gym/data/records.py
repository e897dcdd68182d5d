"""Training records in the forms of the ``openai`` client: text, chats and preferences."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training_gym.spec.errors import DataError

ROLES = ("system", "user", "assistant")
_FORMS = '{"text"}, {"messages"}, {"prompt", "completion"} or {"input", "preferred_output", "non_preferred_output"}'


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation; an assistant's with ``weight`` 0 is not a target of the loss."""

    role: str
    content: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Text:
    """A document, or a part of it."""

    text: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A conversation; the assistant's turns are targets."""

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """A prompt, and its continuation as target."""

    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Preference:
    """A conversation with a preferred and another answer."""

    prompt: tuple[Message, ...]
    preferred: Message
    other: Message


Record = Text | Chat | Completion | Preference
KINDS: Mapping[type[Record], str] = {Text: "text", Chat: "chat", Completion: "chat", Preference: "preferences"}
"""Kind of samples of each record."""


def read_record(document: object, where: str) -> Record:
    """Return the record in an untrusted ``document``; further keys such as ids are ignored.

    Args:
        where: file and line, for errors.

    Raises:
        DataError: it has none of the forms, or a value of a wrong type.
    """
    if not isinstance(document, Mapping):
        raise DataError("wrong_type", where, f"is not a JSON object; write one of {_FORMS}")
    if document.get("tools") or document.get("functions"):
        raise DataError("unsupported_value", where, "has tools, which are not supported; remove them")
    if "messages" in document:
        return _chat(document["messages"], where)
    if "completion" in document:
        return Completion(_text(document.get("prompt"), "prompt", where), _filled(document, "completion", where))
    if "preferred_output" in document:
        return _preference(document, where)
    if "text" in document:
        return Text(_filled(document, "text", where))
    raise DataError("unknown_form", where, f"has the keys {', '.join(map(str, document)):.200}; write {_FORMS}")


def texts_of(record: Record) -> list[str]:
    """Return the texts of a record, on which a tokenizer is trained."""
    match record:
        case Text(text):
            return [text]
        case Completion(prompt, completion):
            return [prompt, completion]
        case Chat(messages):
            return [message.content for message in messages]
        case Preference(prompt, preferred, other):
            return [message.content for message in (*prompt, preferred, other)]


def _chat(value: object, where: str) -> Chat:
    messages = _messages(value, "messages", where)
    if not any(message.role == "assistant" and message.weight for message in messages):
        detail = "has no assistant's message with weight 1, so nothing to learn; add one, or remove the line"
        raise DataError("no_target", where, detail)
    return Chat(messages)


def _preference(document: Mapping[Any, Any], where: str) -> Preference:
    given = document.get("input")
    prompt = _messages(given.get("messages") if isinstance(given, Mapping) else None, "input.messages", where)
    answers = [_messages(document.get(name), name, where) for name in ("preferred_output", "non_preferred_output")]
    for name, answer in zip(("preferred_output", "non_preferred_output"), answers, strict=True):
        if len(answer) != 1 or answer[0].role != "assistant":
            raise DataError("wrong_type", where, f"{name} must be a list of one assistant's message")
    if answers[0] == answers[1]:
        raise DataError("no_target", where, "has equal outputs; a preference needs two different ones")
    return Preference(prompt, answers[0][0], answers[1][0])


def _messages(value: object, name: str, where: str) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise DataError("wrong_type", where, f"{name} must be a list of messages with role and content")
    return tuple(_message(message, f"{name}.{number}", where) for number, message in enumerate(value))


def _message(value: object, name: str, where: str) -> Message:
    if not isinstance(value, Mapping):
        raise DataError("wrong_type", where, f"{name} must be an object with role and content")
    given = {key: entry for key, entry in value.items() if entry is not None}
    for key in given:
        if key not in ("role", "content", "weight", "name"):
            raise DataError("unknown_key", where, f"{name}.{key!s:.80} is not supported; remove it")
    if given.get("role") not in ROLES:
        raise DataError(
            "unsupported_value", where, f"{name}.role is {given.get('role')!r:.80}; choose one of {', '.join(ROLES)}"
        )
    weight = given.get("weight", 1)
    if type(weight) not in (int, float) or weight not in (0, 1):
        raise DataError("out_of_range", where, f"{name}.weight is {weight!r:.80}; choose 0 or 1")
    return Message(given["role"], _text(given.get("content"), f"{name}.content", where), int(weight))


def _filled(document: Mapping[Any, Any], name: str, where: str) -> str:
    text = _text(document[name], name, where)
    if not text:
        raise DataError("no_target", where, f"{name} is empty; remove the line")
    return text


def _text(value: object, name: str, where: str) -> str:
    if isinstance(value, list):  # the parts of a message of the `openai` client
        parts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in value
        ]
        value = "".join(map(str, parts)) if None not in parts else value
    if not isinstance(value, str):
        raise DataError("wrong_type", where, f"{name} is {value!r:.80}; expected text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError("malformed", where, f"{name} has half of a surrogate pair; write whole characters") from error
    return value

"""Chat templates: the text of a conversation, and which parts are targets. No torch."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from training_gym.data.records import Message
from training_gym.spec.errors import DataError

Span = tuple[int, int]
"""First character of a part, and its end."""
_MARKS_TARGETS = re.compile(r"\{%-?\s*generation\s*-?%\}")


class ChatTemplate:
    """Jinja template of a tokenizer, rendered by ``transformers`` in a sandbox.

    Args:
        template: text of the template.
        tokens: special tokens that it may name, such as ``bos_token``.
    """

    def __init__(self, template: str, tokens: Mapping[str, str]) -> None:
        self._template, self._tokens = template, tokens

    def render(self, messages: Sequence[Message], where: str) -> tuple[str, list[Span]]:
        """Return a conversation's text, and the spans of assistants' messages with weight 1.

        A template that marks them by ``{% generation %}`` decides the spans. In others, a span begins after the
        generation prompt and ends with the message and the tokens that close it.

        Raises:
            DataError: the template refuses the messages, or leaves out one of the assistant's.
        """
        assistants = [number for number, message in enumerate(messages) if message.role == "assistant"]
        if _MARKS_TARGETS.search(self._template):
            text, spans = self._marked(messages, where)
            if len(spans) != len(assistants):
                detail = f"has {len(assistants)} answers, of which the chat template marks {len(spans)}"
                raise DataError("unsupported_template", where, f"{detail}; use another tokenizer")
        else:
            text = self._text(messages, where)
            spans = [self._span(text, messages, number, where) for number in assistants]
        return text, [span for span, number in zip(spans, assistants, strict=True) if messages[number].weight]

    def _span(self, text: str, messages: Sequence[Message], number: int, where: str) -> Span:
        before = self._text(messages[:number], where, add_generation_prompt=True)
        after = self._text(messages[: number + 1], where)
        if text.startswith(before) and text.startswith(after) and len(after) > len(before):
            return len(before), len(after)
        # The template changes earlier turns once later ones follow, as those that remove a model's reasoning.
        content = messages[number].content.strip()
        start = len(before) if text.startswith(before) else -1
        found = text.find(content, start) if start >= 0 and content else -1
        if found < 0:
            detail = "has an answer that the chat template changes or leaves out; use another tokenizer, or shorten it"
            raise DataError("unsupported_template", where, detail)
        end = found + len(content)
        closing = after[after.rfind(content) + len(content) :]
        return start, end + len(closing) if text.startswith(closing, end) else end

    def _text(self, messages: Sequence[Message], where: str, *, add_generation_prompt: bool = False) -> str:
        found: str = self._render(messages, where, add_generation_prompt=add_generation_prompt)[0][0]
        return found

    def _marked(self, messages: Sequence[Message], where: str) -> tuple[str, list[Span]]:
        texts, spans = self._render(messages, where, return_assistant_tokens_mask=True)
        return texts[0], [(start, end) for start, end in spans[0]]

    def _render(self, messages: Sequence[Message], where: str, **options: Any) -> Any:
        from jinja2 import TemplateError
        from transformers.utils.chat_template_utils import render_jinja_template

        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return render_jinja_template([turns], chat_template=self._template, **(options | dict(self._tokens)))
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError) as error:
            detail = f"is refused by the chat template ({error!s:.200}); change the order of roles, or the tokenizer"
            raise DataError("unsupported_template", where, detail) from error

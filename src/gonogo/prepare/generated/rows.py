"""Generates rows of a dataset, with the columns and the format that a program reads and about the wanted length.

All words have two letters, so that each is one token in nearly every tokenizer, published or generated: the number of
words in a text is its length in tokens.
"""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Sequence
from typing import Any

_FILLER_WORDS = tuple("of to in it is be as at so we he by or on do if me my up an go no us am".split())  # noqa: SIM905

# The columns of each format and their kinds: text(s), int(s), float, flag(s), label, image(s) and so on; chat
# (messages with role and content), message (one of them, an answer), parts (chat with content parts), asked, answered
# (a chat of one message), turns (ShareGPT's from and value), exchanges (FineVision's user and assistant), tools and
# calls (JSON of functions and of function calls), and
# the values of which it holds one (``to_choice_kind``).
TEMPLATE = "apply_chat_template"
"""Is one of the columns that a program reads if it applies a chat template to them."""
FORMATS: dict[str, dict[str, str]] = {
    "alpaca": {"instruction": "text", "input": "text", "output": "text"},
    "messages": {"messages": "chat"},
    "sharegpt": {"id": "id", "conversations": "turns"},
    "conversations": {"conversations": "chat"},
    "preference-chats": {"chosen": "chat", "rejected": "chat"},
    "preference": {"prompt": "text", "chosen": "text", "rejected": "text"},
    "preference-chat": {"prompt": "asked", "chosen": "answered", "rejected": "answered"},
    "prompt-completion": {"prompt": "text", "completion": "text"},
    "prompt-response": {"prompt": "text", "response": "text"},
    "query-response": {"query": "text", "response": "text"},
    "question-answer": {"question": "text", "answer": "text"},
    "instruction-response": {"instruction": "text", "response": "text"},
    "prompts": {"prompt": "asked", "solution": "text"},
    "swift-preference": {"messages": "chat", "rejected_response": "text"},
    "swift-labelled": {"messages": "chat", "label": "flag"},
    "swift-prompts": {"messages": "asked", "solution": "text"},
    "text": {"text": "text"},
    "sentences": {"sentence1": "text", "sentence2": "text", "label": "label"},
    "classified": {"text": "text", "label": "label"},
    "images": {"image": "image", "label": "label"},
    "speech": {"audio": "audio", "text": "text"},
    "token-numbers": {"text": "text"},
}

# The share of a row's tokens by column name; any other column gets a fifth.
_LENGTH_SHARES = {
    "text": 0.97, "messages": 0.97, "conversations": 0.97, "output": 0.6, "completion": 0.6, "response": 0.6,
    "answer": 0.6, "chosen": 0.6, "rejected": 0.55, "rejected_response": 0.36,
    "answer_zh": 0.6, "answer_en": 0.55, "content": 0.97, "prompt": 0.3, "instruction": 0.25, "input": 0.1,
    "solution": 0.3, "article": 0.8, "document": 0.8, "code": 0.8,
}  # fmt: skip

# The first entry whose columns a program all reads is used; more specific ones come first.
_FORMAT_BY_KEYS = (
    ("sharegpt", {"conversations", "value"}),
    ("sharegpt", {"conversations", "from"}),
    ("conversations", {"conversations", "role"}),
    ("preference-chats", {"chosen", "rejected", TEMPLATE}),
    ("preference", {"chosen", "rejected"}),
    ("alpaca", {"instruction", "output"}),
    ("instruction-response", {"instruction", "response"}),
    ("messages", {"messages"}),
    ("sharegpt", {"conversations"}),
    ("prompt-completion", {"prompt", "completion"}),
    ("query-response", {"query", "response"}),
    ("prompt-response", {"prompt", "response"}),
    ("question-answer", {"question", "answer"}),
    ("prompts", {"prompt", "solution"}),
    ("sentences", {"sentence1", "sentence2"}),
    ("text", {"text"}),
)


def format_from_columns(columns: tuple[str, ...]) -> str | None:
    """The format that fits the columns that a program reads; None if none does."""
    names = set(columns)
    return next((name for name, wanted in _FORMAT_BY_KEYS if wanted <= names), None)


def guess_column_kind(column: str) -> str:
    """The kind of a column, guessed from its name."""
    name = column.lower()
    if name in ("messages", "conversation"):
        return "chat"
    if name == "conversations":
        return "turns"
    for words, kind in (
        (("images", "image_paths"), "images"), (("image", "img", "image_path", "image_file", "pixel_values"), "image"),
        (("videos", "video"), "video"), (("audio", "audios", "speech"), "audio"),
        (("label", "labels", "score", "rating"), "label"), (("id", "idx", "index", "uid"), "id"),
    ):  # fmt: skip
        if name in words:
            return kind
    return "text"


def generate_text(tokens: int, number: int) -> str:
    """A text of that many words, different for each ``number``."""
    return " ".join(random.Random(number).choices(_FILLER_WORDS, k=max(1, tokens)))


def to_choice_kind(values: Sequence[str]) -> str:
    """The kind of a column that holds one of these values: the values themselves, as JSON."""
    return json.dumps(list(values), ensure_ascii=False)


class RowGenerator:
    """Generates rows with given columns. ``media`` maps image, audio and video to the path that all rows use."""

    def __init__(self, columns: dict[str, str], tokens: int, media: dict[str, str]) -> None:
        self.columns = columns
        self.tokens = tokens
        self.media = media
        self._shares = {
            name: _LENGTH_SHARES.get(name, 0.2) for name, kind in columns.items() if _is_long_text_kind(kind)
        }

    def row(self, number: int) -> dict[str, Any]:
        """One row: alternately somewhat longer than ``tokens`` and a fifth shorter."""
        length = int(self.tokens * (1.05 if number % 2 == 0 else 0.8))
        whole = sum(self._shares.values()) or 1.0
        scale = length / whole
        tokens = {name: max(1, int(self._shares.get(name, 0.0) * scale)) for name in self.columns}
        conversation_tokens = min(
            (tokens[name] for name, kind in self.columns.items() if kind in _CONVERSATION_KINDS), default=0
        )
        return {
            name: self._conversation_turns(kind, conversation_tokens, number * 31, tokens[name], number * 31 + place)
            if kind in _CONVERSATION_KINDS
            else _hourly_timestamp(number)
            if kind == "date"
            else self._cell_value(name, kind, tokens[name], number * 31 + place)
            for place, (name, kind) in enumerate(self.columns.items())
        }

    def _cell_value(self, name: str, kind: str, tokens: int, number: int) -> Any:
        if kind.startswith("["):
            choices = json.loads(kind)
            return choices[number % len(choices)]
        if kind == "turn":
            return {"from": "gpt", "value": generate_text(tokens, number)}
        if kind == "message":
            return {"role": "assistant", "content": generate_text(tokens, number)}
        if kind in _ROLE_BY_KIND:
            return [{"role": _ROLE_BY_KIND[kind], "content": generate_text(tokens, number)}]
        if kind in ("image", "audio", "video"):
            return self.media.get(kind, "")
        if kind in ("images", "audios", "videos"):
            return [self.media.get(kind.removesuffix("s"), "")]
        if kind == "exchanges":
            half = max(1, tokens // 2)
            return [{"user": generate_text(half // 4, number + part),
                     "assistant": generate_text(half * 3 // 4, number + part + 2)}
                    for part in (0, 1)]  # fmt: skip
        if kind == "ints":
            return [number % 5, (number + 1) % 5]
        if kind in ("tools", "calls"):
            return _function_call_json(kind, number)
        if kind == "texts":
            return [generate_text(tokens // 2, number), generate_text(tokens // 2, number + 1)]
        if kind == "id":
            return str(number)
        if kind in ("int", "label"):
            return number % 2
        if kind == "float":
            return number % 8 / 8
        if kind == "flag":
            return number % 2 == 0
        if kind == "flags":
            return [number % 2 == 0, number % 3 == 0]
        return (
            f"{generate_text(tokens, number)} #### {number % 10}" if name == "answer" else generate_text(tokens, number)
        )

    def _conversation_turns(
        self, kind: str, shared_tokens: int, number: int, tokens: int, last_number: int
    ) -> list[dict[str, Any]]:
        """Two exchanges, with the image in the first question.

        The conversations of a row, chosen and rejected, differ only in the last answer: ``shared_tokens`` and
        ``number`` determine the rest, ``tokens`` and ``last_number`` that answer.
        """
        sees = [tag for tag in ("image", "video", "audio") if {tag, f"{tag}s"} & set(self.columns)]
        opening = "".join(f"<{tag}>\n" for tag in sees[:1] if kind != "parts")
        questions = (opening + generate_text(shared_tokens // 8, number), generate_text(shared_tokens // 8, number + 2))
        replies = (generate_text(shared_tokens * 3 // 8, number + 1), generate_text(tokens * 3 // 8, last_number + 3))
        turns = list(zip(questions, replies, strict=True))
        role, content, requires, answers = (
            ("from", "value", "human", "gpt") if kind == "turns" else ("role", "content", "user", "assistant")
        )
        told_so = [
            {role: who, content: words} for pair in turns for who, words in zip((requires, answers), pair, strict=True)
        ]
        return (
            [_message_with_content_parts(one, sees[:1] if at == 0 else []) for at, one in enumerate(told_so)]
            if kind == "parts"
            else told_so
        )


_FIRST_HOUR = datetime.datetime(2016, 7, 1)


def _hourly_timestamp(number: int) -> str:
    """The timestamp of a row in a generated time series: one row each hour."""
    return str(_FIRST_HOUR + datetime.timedelta(hours=number))


def _message_with_content_parts(message: dict[str, str], media_types: list[str]) -> dict[str, Any]:
    """The message with a list of content parts: the text, then one part for each media type."""
    seen = [{"index": 0, "text": None, "type": tag} for tag in media_types]
    return {**message, "content": [{"index": None, "text": message["content"], "type": "text"}, *seen]}


def _function_call_json(kind: str, number: int) -> str:
    """A JSON string with one function, or with one call of it."""
    name, requested = f"look_up_{number % 5}", generate_text(1, number)
    if kind == "calls":
        return json.dumps([{"name": name, "arguments": {"word": requested}}])
    word = {"word": {"description": "What is looked up.", "type": "str"}}
    return json.dumps([{"name": name, "description": "Looks a word up.", "parameters": word}])


_CONVERSATION_KINDS = ("chat", "turns", "parts")
_ROLE_BY_KIND = {"asked": "user", "answered": "assistant"}


def _is_long_text_kind(kind: str) -> bool:
    return kind in ("text", "texts", "exchanges", "turn", "message", *_CONVERSATION_KINDS, *_ROLE_BY_KIND)

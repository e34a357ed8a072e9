"""Placeholders for secrets in a program's environment: of the same length and format, without any of the content.

A placeholder is computed from the variable's name, the secret's length and its classes of characters, never from the
characters themselves: it can't be used to verify a guess of the secret.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import string
from collections.abc import Iterator
from itertools import islice

from gonogo.finding.secret_formats import is_secret, known_prefix, looks_random, replace_secrets

_CHARACTER_CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_HEXADECIMAL_PATTERN = re.compile(r"[0-9a-f]*|[0-9A-F]*")
_PUNCTUATION = frozenset("-_.:/+=@,;")
"""Punctuation that keeps its place in generated strings, such as a UUID or base64."""
_URL_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40}://)(?:([^/\s]*)@)?([^/\s?#@]*)(.*)", re.DOTALL)
_URL_VARIABLE_PATTERN = re.compile(r"(?:^|_)(?:DSN|WEBHOOKS?|UR[LI]|ENDPOINT)(?:_|$)", re.IGNORECASE)
_NON_SECRET_KEYS = frozenset({"type", "auth_uri", "token_uri", "universe_domain", "region", "auth_type"})
"""Keys of JSON credentials whose values describe the login method and are not secret."""


def without_secrets(name: str, value: str) -> str:
    """The value of a variable with secrets replaced; unchanged if it contains none."""
    if is_secret(name, value):
        return _replace_value(name, value)
    return replace_secrets(value, lambda prefix, rest: _fake_secret(name, prefix, rest))


def _replace_value(name: str, value: str) -> str:
    if prefix := known_prefix(value):
        return prefix + _fake_secret(name, prefix, value[len(prefix) :])
    if value.lstrip().startswith("-----BEGIN "):
        return replace_secrets(value, lambda prefix, rest: _fake_secret(name, prefix, rest))
    if value.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(_replace_in_json(name, json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return _similar_text(name, value)
    if (match := _URL_PATTERN.fullmatch(value)) and _URL_VARIABLE_PATTERN.search(name):
        scheme, user, host, rest = match.groups()
        kept = f"{':'.join(_similar_text(name, part) for part in user.split(':', 1))}@" if user else ""
        return f"{scheme}{kept}{host}{_similar_text(name, rest, structured=True)}"
    return _similar_text(name, value)


def _replace_in_json(name: str, value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {inner: _replace_in_json(f"{name} {inner}", one, str(inner)) for inner, one in value.items()}
    if isinstance(value, list):
        return [_replace_in_json(f"{name} {index}", one, key) for index, one in enumerate(value)]
    if isinstance(value, str) and key not in _NON_SECRET_KEYS:
        return _replace_value(name, value)
    return value


def _fake_secret(name: str, prefix: str, rest: str) -> str:
    if prefix.startswith("eyJ"):
        payload, dot, signature = rest.partition(".")
        return f"{_jwt_claims(name, len(payload))}{dot}{_similar_text(name, signature, structured=True)}"
    return _similar_text(name, rest, structured=True)


def _jwt_claims(name: str, length: int) -> str:
    """The payload of a JSON Web Token with the given length; decodes to an object."""
    spare = length * 3 // 4 - len(b'{"sub":""}')
    if spare < 0 or length % 4 == 1:
        return _make_placeholder(name, "a" * length, string.ascii_letters)
    claims = b'{"sub":"' + _make_placeholder(name, "a" * spare, string.ascii_lowercase).encode() + b'"}'
    return base64.urlsafe_b64encode(claims).decode().rstrip("=")


def _similar_text(name: str, text: str, structured: bool = False) -> str:
    """Text of the same length and classes of characters; with ``structured``, punctuation is kept."""
    letters = "".join(character for character in text if character.isalnum())
    if letters.isdecimal():
        alphabet = string.digits
    elif len(letters) >= 16 and _HEXADECIMAL_PATTERN.fullmatch(letters):
        alphabet = "0123456789abcdef" if letters == letters.lower() else "0123456789ABCDEF"
    else:
        alphabet = "".join(kind for kind in _CHARACTER_CLASSES if not set(kind).isdisjoint(letters))
    kept = _PUNCTUATION if structured or looks_random(text) else frozenset[str]()
    made = _make_placeholder(name, text, alphabet or string.ascii_lowercase, kept)
    return made if made != text or not letters else _make_placeholder(f"{name} again", text, alphabet or "xyz", kept)


def _make_placeholder(name: str, text: str, alphabet: str, kept_characters: frozenset[str] = frozenset()) -> str:
    numbers = islice(_pseudorandom_bytes(name), len(text))
    return "".join(
        character if character in kept_characters or character.isspace() else alphabet[number % len(alphabet)]
        for character, number in zip(text, numbers, strict=True)
    )


def _pseudorandom_bytes(name: str) -> Iterator[int]:
    """An endless sequence of numbers that depends on the name only."""
    block = hashlib.sha256(f"gonogo placeholder {name}".encode("utf-8", "surrogateescape")).digest()
    while True:
        yield from block
        block = hashlib.sha256(block).digest()

"""What a program is given in place of a secret: of the same length and form, and nothing of the secret itself.

A placeholder is made of the variable's name, of the secret's length and of the kinds of its characters, never of the
characters: nobody can try secrets against it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import string
from collections.abc import Iterator
from itertools import islice

from gonogo.finding.secret_formats import is_secret, known_prefix, looks_random, with_known_replaced

_CLASSES = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_HEXADECIMAL = re.compile(r"[0-9a-f]*|[0-9A-F]*")
_STRUCTURE = frozenset("-_.:/+=@,;")
"""Characters that stay where they are in what a machine has made: a UUID, base64."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,40}://)(?:([^/\s]*)@)?([^/\s?#@]*)(.*)", re.DOTALL)
_ADDRESS_NAME = re.compile(r"(?:^|_)(?:DSN|WEBHOOKS?|UR[LI]|ENDPOINT)(?:_|$)", re.IGNORECASE)
_NO_SECRETS = frozenset({"type", "auth_uri", "token_uri", "universe_domain", "region", "auth_type"})
"""Keys of JSON credentials whose values say how to log in, with nothing of the secret."""


def without_secrets(name: str, value: str) -> str:
    """The value of a variable as a program is given it: itself, where there is no secret in it."""
    if is_secret(name, value):
        return _whole(name, value)
    return with_known_replaced(value, lambda prefix, rest: _stand_in(name, prefix, rest))


def _whole(name: str, value: str) -> str:
    if prefix := known_prefix(value):
        return prefix + _stand_in(name, prefix, value[len(prefix) :])
    if value.lstrip().startswith("-----BEGIN "):
        return with_known_replaced(value, lambda prefix, rest: _stand_in(name, prefix, rest))
    if value.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(_in_json(name, json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            return _alike(name, value)
    if (match := _ADDRESS.fullmatch(value)) and _ADDRESS_NAME.search(name):
        scheme, user, host, rest = match.groups()
        kept = f"{':'.join(_alike(name, part) for part in user.split(':', 1))}@" if user else ""
        return f"{scheme}{kept}{host}{_alike(name, rest, structured=True)}"
    return _alike(name, value)


def _in_json(name: str, value: object, key: str = "") -> object:
    if isinstance(value, dict):
        return {inner: _in_json(f"{name} {inner}", one, str(inner)) for inner, one in value.items()}
    if isinstance(value, list):
        return [_in_json(f"{name} {index}", one, key) for index, one in enumerate(value)]
    if isinstance(value, str) and key not in _NO_SECRETS:
        return _whole(name, value)
    return value


def _stand_in(name: str, prefix: str, rest: str) -> str:
    if prefix.startswith("eyJ"):
        payload, dot, signature = rest.partition(".")
        return f"{_claims(name, len(payload))}{dot}{_alike(name, signature, structured=True)}"
    return _alike(name, rest, structured=True)


def _claims(name: str, length: int) -> str:
    """The middle part of a JSON Web Token of that length, which decodes to an object."""
    spare = length * 3 // 4 - len(b'{"sub":""}')
    if spare < 0 or length % 4 == 1:
        return _make_placeholder(name, "a" * length, string.ascii_letters)
    claims = b'{"sub":"' + _make_placeholder(name, "a" * spare, string.ascii_lowercase).encode() + b'"}'
    return base64.urlsafe_b64encode(claims).decode().rstrip("=")


def _alike(name: str, text: str, structured: bool = False) -> str:
    """Other text of the same length, of the kinds of letters and digits that it has; in ``structured``, punctuation
    stays."""
    letters = "".join(character for character in text if character.isalnum())
    if letters.isdigit():
        alphabet = string.digits
    elif len(letters) >= 16 and _HEXADECIMAL.fullmatch(letters):
        alphabet = "0123456789abcdef" if letters == letters.lower() else "0123456789ABCDEF"
    else:
        alphabet = "".join(kind for kind in _CLASSES if not set(kind).isdisjoint(letters))
    kept = _STRUCTURE if structured or looks_random(text) else frozenset[str]()
    made = _make_placeholder(name, text, alphabet or string.ascii_lowercase, kept)
    return made if made != text or not letters else _make_placeholder(f"{name} again", text, alphabet or "xyz", kept)


def _make_placeholder(name: str, text: str, alphabet: str, kept: frozenset[str] = frozenset()) -> str:
    numbers = islice(_numbers(name), len(text))
    return "".join(
        character if character in kept or character.isspace() else alphabet[number % len(alphabet)]
        for character, number in zip(text, numbers, strict=True)
    )


def _numbers(name: str) -> Iterator[int]:
    """The same numbers for the same name, without end."""
    block = hashlib.sha256(f"gonogo placeholder {name}".encode("utf-8", "surrogateescape")).digest()
    while True:
        yield from block
        block = hashlib.sha256(block).digest()

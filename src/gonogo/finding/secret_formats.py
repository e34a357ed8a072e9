"""Finds secrets in text: tokens in known formats, private keys, passwords in URLs, values beside telling names.

Texts may be long and untrusted. Each format begins with a literal, which is searched for first, since that is fast; a
pattern is only tried from there, and text that it has matched isn't searched again: the time is linear in the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Literal

MASK = "***"

SecretReplacer = Callable[[str, str], str]
"""Returns the replacement of a secret, given its prefix that only tells its kind (``hf_``), and the rest."""

_SECRET_WORDS = frozenset({
    "PASSWORD", "PASSWORDS", "PASSWD", "PASSPHRASE", "PASSCODE", "PWD", "SECRET", "SECRETS", "CREDENTIAL",
    "CREDENTIALS", "CREDS", "APIKEY", "APISECRET", "ACCESSKEY", "SECRETKEY", "PRIVATEKEY", "WEBHOOK", "WEBHOOKS",
    "DSN", "COOKIE", "COOKIES", "JWT", "BEARER", "SAS", "OTP", "TOTP", "MNEMONIC", "SSHPASS",
})  # fmt: skip
_LIKELY_SECRET_WORDS = frozenset({
    "TOKEN", "KEY", "AUTH", "AUTHORIZATION", "PASS", "PAT", "SIGNATURE", "SIG",
})  # fmt: skip
"""Words in names of secrets, but also of settings: the value decides."""
_PLURAL = frozenset({
    "TOKENS", "KEYS", "SIGNATURES",
})  # fmt: skip
_SECRET_SUFFIXES = (
    "PASSWORD",
    "PASSWD",
    "SECRET",
    "TOKEN",
    "APIKEY",
    "ACCESSKEY",
    "SECRETKEY",
    "PRIVATEKEY",
    "CREDENTIALS",
)
_LOCATION_WORDS = frozenset({
    "PATH", "FILE", "FILES", "DIR", "FOLDER", "HOME", "SOCK",
})  # fmt: skip
_SETTING_WORDS = frozenset({
    "NAME", "TYPE", "COUNT", "SIZE", "LEN", "LENGTH", "LIMIT", "TIMEOUT", "TTL", "MODE", "METHOD", "HOST", "PORT",
    "ENABLED", "DISABLED", "INDEX", "NUM", "MAX", "MIN",
})  # fmt: skip
_IDENTIFIER_WORD_PATTERN = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLAIN_SETTING_PATTERN = re.compile(
    r"\d{1,6}|[+-]?\d+\.\d*|true|false|yes|no|on|off|none|null|auto|basic|bearer|default|disabled|enabled"
    r"|<[^<>\s]{0,40}>|\[[A-Za-z_]{0,20}\]",
    re.IGNORECASE,
)
_FILE_PATH_PATTERN = re.compile(
    r"(?:/|~/|\.{1,2}/)[^\s:;,=]{0,1000}\.(?:json|pem|key|crt|cert|txt|ya?ml|toml|ini|cfg|p12|pfx|sock)"
)
_UUID_PATTERN = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_ALPHANUMERIC_PATTERN = re.compile(r"[A-Za-z0-9]{16,}")

_TOKEN_PREFIXES = (
    "hf_", "api_org_", "sk-", "sk_live_", "sk_test_", "rk_live_", "rk_test_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_",
    "github_pat_", "glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-", "glagent-", "AKIA", "ASIA",
    "AROA", "AIDA", "AGPA", "LTAI", "AKID", "AIza", "ya29.", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-",
    "xoxs-", "xapp-", "npm_", "pypi-AgE", "dckr_pat_", "nvapi-", "gsk_", "xai-", "pplx-", "r8_", "wandb_v1_", "ms-",
    "hvs.", "dapi", "glsa_", "dop_v1_", "tskey-", "ATATT3x",
)  # fmt: skip
_ALPHANUMERIC_TOKEN_PREFIXES = frozenset({"hf_", "api_org_", "AKIA", "ASIA", "AROA", "AIDA", "AGPA"})
"""Formats whose tokens may consist of letters only."""
_SK_SUBPREFIX_PATTERN = r"(?:proj-|svcacct-|admin-|or-v1-|ant-(?:[a-z]{1,8}\d\d-)?)?"
_WEBHOOK_PATHS = ("hooks.slack.com/services/", "hooks.slack.com/workflows/", "/api/webhooks/", "open-apis/bot/v2/hook/")
_LINE_BREAK_PATTERN = r"(?:\\{1,2}[rn]|[\r\n\t ])"
_PRIVATE_KEY_PATTERN = re.compile(
    r"(?P<kept>-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)"
    rf"(?P<secret>(?:{_LINE_BREAK_PATTERN}{{1,8}}(?:[A-Za-z0-9+/=]{{20,}}|(?:Proc-Type|DEK-Info):[^\n\\]{{1,80}}))*"
    rf"(?:{_LINE_BREAK_PATTERN}{{1,8}}[A-Za-z0-9+/=]{{1,200}})?)"
)
_URL_CREDENTIALS_PATTERN = re.compile(
    r"(?P<kept>://)(?:(?P<user>[^/\s@:\"'<>]{0,256}):(?P<secret>[^/\s\"'<>]{1,512})|(?P<only>[^/\s@:\"'<>$]{12,256}))(?=@)"
)
_JWT_PATTERN = re.compile(r"(?<![\w.-])(?P<kept>eyJ[\w-]{8,}\.)(?P<secret>[\w-]{8,}(?:\.[\w-]*)?)")
_SENDGRID_PATTERN = re.compile(r"(?<![\w.-])(?P<kept>SG\.)(?P<secret>[\w-]{16,}\.[\w-]{16,})")
_HEADER_PATTERN = re.compile(r"(?<![A-Za-z0-9])(?P<kept>(?i:bearer|basic) )(?P<secret>[A-Za-z0-9+/._~-]{16,}={0,2})")

_SECRET_NAME_PARTS = (
    "token", "key", "auth", "passw", "passphrase", "secret", "credential", "signature", "cookie", "pwd", "webhook",
    "jwt", "sig=", "sas=", "dsn=",
)  # fmt: skip
"""Substrings of the names of secrets, in lower case."""
_ASSIGNED_VALUE_PATTERN = re.compile(
    r"[\"'\]]{0,2}(?:[ \t]{0,3}(?P<sign>[=:]>?)[ \t]{0,3}|[ \t]{1,3})"
    r"(?:\"(?P<double>[^\"\n]{4,512})\"|'(?P<single>[^'\n]{4,512})'"
    r"|(?P<bare>[^\s\"'<>,;&(){}\[\]=:$*-][^\s\"'<>,;&(){}\[\]=]{3,95}={0,2}))"
)
_BARE_VALUE_REST_PATTERN = re.compile(r"[^\s\"'<>,;&(){}\[\]]*")
_NAME_REST_PATTERN = re.compile(r"[\w-]*")
_MAX_NAME_LENGTH = 60
_MIN_RANDOM_LENGTH = 16
_NAME_CHARACTERS = string.ascii_letters + string.digits + "_-"


# -- by names


SecretLikelihood = Literal["always", "mostly", "when random", "never"]
"""How likely a variable's value is a secret, judged by the variable's name."""


@lru_cache(maxsize=4096)
def _secret_likelihood(name: str) -> tuple[SecretLikelihood, bool]:
    """The likelihood that a name belongs to a secret, and whether it contains a word that only secrets have."""
    words = [word.upper() for word in _IDENTIFIER_WORD_PATTERN.findall(name)]
    always = not _SECRET_WORDS.isdisjoint(words) or any(
        word.endswith(_SECRET_SUFFIXES) and word != "TOKEN" for word in words
    )
    if not words or words[-1] in _LOCATION_WORDS:
        return "never", False
    if words[-1] in _SETTING_WORDS or not _PLURAL.isdisjoint(words):
        stated = always or not (_LIKELY_SECRET_WORDS | _PLURAL).isdisjoint(words)
        return ("when random" if stated else "never"), always
    if always:
        return "always", True
    return ("never" if _LIKELY_SECRET_WORDS.isdisjoint(words) else "mostly"), False


def is_secret(name: str, value: str) -> bool:
    """Whether a variable with that name and value holds a secret, as far as the name shows."""
    speaks, _ = _secret_likelihood(name)
    if speaks == "never" or not value:
        return False
    if value[0] in "/~." and (name.upper().endswith("PWD") or _FILE_PATH_PATTERN.fullmatch(value)):
        return False
    if speaks == "mostly":
        return _PLAIN_SETTING_PATTERN.fullmatch(value) is None
    return speaks == "always" or looks_random(value)


def looks_random(value: str) -> bool:
    """Whether a value looks machine-generated: a long run of letters and digits, or a UUID."""
    for run in _ALPHANUMERIC_PATTERN.finditer(value):
        start = run[0][:256]
        digits = sum(map(start.count, "0123456789"))
        if digits >= 2 and len(start) - digits >= 2:
            return True
    return "-" in value and _UUID_PATTERN.search(value) is not None


# -- by formats


def known_prefix(value: str) -> str:
    """The prefix of a token in a known format that tells its kind; empty for any other value."""
    for literal in _SECRET_PREFIXES:
        if value.startswith(literal) and (pattern := _pattern_for_prefix(literal)) not in (
            _PRIVATE_KEY_PATTERN,
            _URL_CREDENTIALS_PATTERN,
        ):
            match = pattern.fullmatch(value)
            if match is not None and _is_secret_match(match, literal):
                return match["kept"]
    return ""


def replace_secrets(text: str, hide: SecretReplacer) -> str:
    """The text with secrets, by their format or the name beside them, replaced by the result of ``hide``."""
    for literal in _SECRET_PREFIXES:
        if literal in text:
            text = _replace_matches(text, literal, _pattern_for_prefix(literal), hide)
    return _replace_named_secrets(text, hide)


_PATTERNS_BY_PREFIX = {
    "-----BEGIN ": _PRIVATE_KEY_PATTERN,
    "://": _URL_CREDENTIALS_PATTERN,
    "eyJ": _JWT_PATTERN,
    "SG.": _SENDGRID_PATTERN,
    **dict.fromkeys(("Bearer ", "bearer ", "BEARER ", "Basic ", "basic "), _HEADER_PATTERN),
}
_SECRET_PREFIXES = (
    *("-----BEGIN ", "://", "eyJ", "SG."),
    *_TOKEN_PREFIXES,
    *_WEBHOOK_PATHS,
    *("Bearer ", "bearer ", "BEARER ", "Basic ", "basic "),
)
"""The literals with which the formats begin."""


@cache
def _pattern_for_prefix(literal: str) -> re.Pattern[str]:
    """The pattern of a format, starting at its literal; only compiled if a text contains the literal."""
    if literal in _PATTERNS_BY_PREFIX:
        return _PATTERNS_BY_PREFIX[literal]
    if literal in _WEBHOOK_PATHS:
        return re.compile(rf"(?P<kept>{re.escape(literal)})(?P<secret>[\w/-]{{8,}})")
    more = _SK_SUBPREFIX_PATTERN if literal == "sk-" else ""
    return re.compile(rf"(?<![A-Za-z0-9])(?P<kept>{re.escape(literal)}{more})(?P<secret>[A-Za-z0-9_-]{{12,}})")


def _replace_matches(text: str, literal: str, pattern: re.Pattern[str], hide: SecretReplacer) -> str:
    parts: list[str] = []
    done = 0
    at = text.find(literal)
    while at >= 0:
        match = pattern.match(text, at)
        if match is None:
            at = text.find(literal, at + len(literal))
            continue
        if _is_secret_match(match, literal):
            parts += (text[done : match.start()], _masked_match(match, hide))
            done = match.end()
        at = text.find(literal, match.end())
    return "".join([*parts, text[done:]]) if parts else text


def _is_secret_match(match: re.Match[str], literal: str) -> bool:
    """Whether a match is a secret, rather than a word of that form (``sk-learn-contrib-packages``)."""
    if match.re is _URL_CREDENTIALS_PATTERN:
        return match["only"] is None or looks_random(match["only"])
    rest = match["secret"]
    if match.re is _PRIVATE_KEY_PATTERN:
        return bool(rest)
    if literal in _ALPHANUMERIC_TOKEN_PREFIXES:
        longest = max(map(len, re.split(r"[_-]", rest)))
        plain = rest.islower() or (rest.isupper() and not literal.isupper())
        return longest >= (30 if plain and not any(map(str.isdigit, rest)) else 16)
    return (
        match.re in (_JWT_PATTERN, _SENDGRID_PATTERN)
        or literal in _WEBHOOK_PATHS
        or looks_random(rest)
        or looks_random(match[0])
    )


def _masked_match(match: re.Match[str], hide: SecretReplacer) -> str:
    if match.re is _URL_CREDENTIALS_PATTERN:
        if match["only"] is not None:
            return f"{match['kept']}{hide('', match['only'])}"
        user = match["user"] and hide("", match["user"])
        return f"{match['kept']}{user}:{hide('', match['secret'])}"
    return match["kept"] + hide(match["kept"], match["secret"])


# -- beside names


def _replace_named_secrets(text: str, hide: SecretReplacer) -> str:
    lowered = _ascii_lower(text)
    for word in _SECRET_NAME_PARTS:
        parts: list[str] = []
        done = 0
        at = lowered.find(word)
        while at >= 0:
            name = _NAME_REST_PATTERN.match(text, at)
            assert name is not None
            match = _ASSIGNED_VALUE_PATTERN.match(text, name.end()) if name.end() - at <= _MAX_NAME_LENGTH else None
            if match is None:
                at = lowered.find(word, max(name.end(), at + len(word)))
                continue
            kind = match.lastgroup or ""
            if _is_secret_assignment(text, at, match, kind):
                end = match.end(kind)
                if kind == "bare" and (rest := _BARE_VALUE_REST_PATTERN.match(text, end)) is not None:
                    end = rest.end()
                parts += (text[done : match.start(kind)], hide("", text[match.start(kind) : end]))
                done = at = end
            else:
                at = match.start(kind)  # the value may itself be a name: `token password=...`
            at = lowered.find(word, at)
        if parts:
            text = "".join([*parts, text[done:]])
            lowered = _ascii_lower(text)
    return text


def _is_secret_assignment(text: str, offset: int, match: re.Match[str], kind: str) -> bool:
    """Whether the name at ``offset`` is a secret's, and what follows is its value rather than running text."""
    sign = match["sign"]
    before = text[max(0, offset - _MAX_NAME_LENGTH) : offset]
    if sign is None and "--" not in before:
        return False
    value = match[kind]
    if kind == "bare" and text.startswith(("(", "["), match.end(kind)):  # code: a call or a subscript
        return False
    own = before.rstrip(_NAME_CHARACTERS)
    name = before[len(own) :] + text[offset : match.start()]
    is_option = name.startswith("--")
    in_query = sign == "=" and own.endswith(("?", "&"))
    random = len(value) >= _MIN_RANDOM_LENGTH and looks_random(value)
    _, always = _secret_likelihood(name.strip("-"))
    if not (sign or is_option) or not (random or always or in_query):
        return False
    if value.startswith((MASK, "$", "<", "{", "%")) or not is_secret(name.strip("-"), value):
        return False
    if in_query:
        return random or (len(value) >= 6 and name.lower() not in ("key", "sig", "signature"))
    is_variable = sign == "=" and name == name.upper()
    return random or is_option or is_variable or kind != "bare" or _has_mixed_characters(value)


def _has_mixed_characters(value: str) -> bool:
    return (
        not value.islower()
        and not value.isupper()
        and any(map(str.isdigit, value))
        and len(value) >= _MIN_RANDOM_LENGTH
    )


def _ascii_lower(text: str) -> str:
    """The text in lower case, with all offsets unchanged."""
    lowered = text.lower()
    if len(lowered) != len(text):  # some non-Latin letters become two characters
        lowered = "".join(one.lower() if one.isascii() else one for one in text)
    return lowered

"""Ask a language model on an OpenAI-compatible server; any problem becomes one sentence."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from gonogo.diagnose.reader.model_answer import INSTRUCTIONS, SCHEMA
from gonogo.finding import Text, UserError, translated
from gonogo.finding.install import install_hint
from gonogo.finding.redaction import redact

_MAX_BYTES = 1 << 20
_MAX_ANSWER_TOKENS = 4000
_NEEDS_CLIENT = translated("--reader needs the openai client: {install}")
_NO_URL = translated("--reader-url {url}: must be an address such as http://127.0.0.1:8000/v1")
_NO_KEY = translated("--reader {model}: set OPENAI_API_KEY, or name a server of your own with --reader-url")
_LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


class NoAnswerError(Exception):
    """The model gave no answer; ``why`` is the message."""

    def __init__(self, reason: Text) -> None:
        super().__init__(reason.en)
        self.why = reason


@dataclass(frozen=True)
class ModelServer:
    """An OpenAI-compatible server. If ``url`` is None, OPENAI_BASE_URL or the client's default is used."""

    model: str
    url: str | None = None
    timeout: float = 120.0

    @property
    def address(self) -> str:
        """The server's address."""
        return self.url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"

    @property
    def host(self) -> str:
        """The server's host name, as shown in reports."""
        return urlsplit(self.address).hostname or "?"

    def require_usable(self) -> None:
        """Raise UserError if the server can't be asked: no client installed, an invalid address, or no key."""
        parts = _split_url(self.address)
        if parts is None or parts[0] not in ("http", "https") or not parts[1]:
            raise UserError(_NO_URL.format(url=repr(redact(self.address))))
        try:
            import openai  # noqa: F401
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "openai":
                raise
            raise UserError(_NEEDS_CLIENT.format(install=install_hint("reader"))) from None
        if self.url is None and not os.environ.get("OPENAI_API_KEY"):
            raise UserError(_NO_KEY.format(model=self.model))

    def _api_key(self) -> str:
        """OPENAI_API_KEY, but never sent unencrypted over a network."""
        parts = urlsplit(self.address)
        safe = parts.scheme == "https" or (parts.hostname or "") in _LOCAL_HOSTS
        return (os.environ.get("OPENAI_API_KEY") if safe else None) or "none"

    def ask(self, evidence: str) -> str:
        """The model's answer to the evidence. Raises NoAnswerError."""
        messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": evidence}]
        strict = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
        whole = {"response_format": strict, "max_tokens": _MAX_ANSWER_TOKENS, "temperature": 0}
        ends = time.monotonic() + self.timeout
        try:
            return self._request_completion(messages, whole, ends)
        except _SettingsRejectedError:  # the server or the model doesn't support these settings
            return self._request_completion(messages, {}, ends)

    def _request_completion(self, messages: list[dict[str, str]], settings: dict[str, Any], deadline: float) -> str:
        import openai

        left = max(deadline - time.monotonic(), 0.1)
        client = openai.OpenAI(api_key=self._api_key(), base_url=self.address, timeout=left, max_retries=0)
        try:
            with client.chat.completions.with_streaming_response.create(
                model=self.model, messages=messages, stream=False, **settings
            ) as response:  # fmt: skip
                data = bytearray()
                for part in response.iter_bytes():
                    data += part
                    if len(data) > _MAX_BYTES:
                        raise NoAnswerError(translated("the server's answer is longer than 1 MiB"))
                    if time.monotonic() > deadline:
                        raise NoAnswerError(_timeout_message(self.timeout))
        except openai.APITimeoutError:
            raise NoAnswerError(_timeout_message(self.timeout)) from None
        except openai.APIStatusError as error:
            if error.status_code in (400, 422) and settings:
                raise _SettingsRejectedError from None
            raise NoAnswerError(_refusal_message(error.status_code, self.model, _error_message(error))) from None
        except (openai.APIError, OSError, ValueError) as error:
            raise NoAnswerError(
                translated("{host} can't be reached: {why}").format(host=self.host, why=_root_cause_message(error))
            ) from None
        except Exception as error:  # the client's HTTP library may raise errors of its own while reading
            if isinstance(error, NoAnswerError):
                raise
            why = _timeout_message(self.timeout) if "timeout" in type(error).__name__.lower() else None
            raise NoAnswerError(
                why or translated("the connection broke: {why}").format(why=_root_cause_message(error))
            ) from None
        return _completion_text(bytes(data))


class _SettingsRejectedError(Exception):
    """The server rejects the settings of a request (response format, temperature)."""


def _split_url(url: str) -> tuple[str, str | None] | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts.scheme, parts.hostname


def _timeout_message(seconds: float) -> Text:
    return translated("the server gave no answer within {seconds:.0f} s (--reader-timeout)").format(seconds=seconds)


def _refusal_message(status: int, model: str, server_message: str) -> Text:
    if status in (401, 403):
        return translated("the server refuses the key (OPENAI_API_KEY): {said}").format(said=server_message)
    if status == 404:
        return translated("the server has no model {model}: {said}").format(model=model, said=server_message)
    return translated("the server answered with status {status}: {said}").format(status=status, said=server_message)


def _error_message(error: Any) -> str:
    body = getattr(error, "body", None)
    message = body.get("message") if isinstance(body, dict) else None
    return redact(" ".join(str(message or getattr(error, "message", "") or error).split()))[:200]


def _root_cause_message(error: BaseException) -> str:
    inner: BaseException = error
    while inner.__cause__ is not None:
        inner = inner.__cause__
    return redact(" ".join(str(inner).split()))[:200] or type(inner).__name__


_NO_COMPLETION = translated("the server's response does not follow OpenAI's chat protocol")


def _completion_text(data: bytes) -> str:
    """The text of a completion. Raises NoAnswerError for a refusal or an invalid completion."""
    try:
        choice = json.loads(data)["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise NoAnswerError(_NO_COMPLETION) from None
    if isinstance(refusal, str) and refusal.strip():
        reason = " ".join(refusal.split())[:200]
        raise NoAnswerError(translated("the model refuses: {said}").format(said=reason))
    if choice.get("finish_reason") == "content_filter":
        raise NoAnswerError(translated("the server's filter stopped the answer"))
    if not isinstance(content, str) or not content.strip():
        raise NoAnswerError(translated("the answer is empty"))
    return content

"""The command ``gonogo doctor``: which parts of gonogo work on this machine, and how to get the others."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import sys
from typing import NamedTuple

from gonogo.cli.exit_status import exit_statuses
from gonogo.cli.options import Lang
from gonogo.finding import Text, Verdict, translated
from gonogo.finding.install import install_hint
from gonogo.finding.language import choose_language

_BROWSER_COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "firefox",
    "xdg-open",
    "open",
)
_DEFAULT_INDEX_HOST = "pypi.org"
_CONNECT_TIMEOUT_SECONDS = 3.0
_YES, _NO = translated("yes"), translated("no")
_NOT_INSTALLED = translated("not installed: {how}")
_NEEDS_TORCH = translated("rehearse, cure, plan")
_NEEDS_DEEPSPEED = translated("rehearsals of DeepSpeed launches")
_NEEDS_UV = translated("--environment: the packages that a project pins")
_NEEDS_BROWSER = translated("--open, gonogo ui, pages of reports")
_NEEDS_NETWORK = translated("installing packages for --environment, --with, bisect")
_NO_BROWSER = translated("none found; --format html --output report.html writes a page that any browser opens")
_NO_NETWORK = translated(
    "{host} does not answer; point pip and uv to a mirror that does (PIP_INDEX_URL, UV_INDEX_URL), or work "
    "without the network"
)
_HOST_REACHABLE = translated("{host} answers")


class RequirementStatus(NamedTuple):
    """A requirement of parts of gonogo: whether it is met, the version or the way to get it, and what needs it."""

    name: Text
    here: bool
    what: Text
    needed_for: Text


def requirement_statuses() -> list[RequirementStatus]:
    """The status of each requirement, in the order in which a user needs them."""
    return [
        _package_status("torch", _NEEDS_TORCH),
        _package_status("deepspeed", _NEEDS_DEEPSPEED, display_name="DeepSpeed"),
        _uv_status(),
        _browser_status(),
        _network_status(),
    ]


def doctor(lang: Lang = None) -> None:
    """Say what of gonogo works on this machine, and how to get the rest: torch, DeepSpeed, uv, a browser, network.

    For instance: gonogo doctor

    check, diagnose, explain and hazards need none of them.

    说明 gonogo 的哪些功能在本机可用，其余的如何获得：torch、DeepSpeed、uv、浏览器、网络。
    """
    language = choose_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report.page import Page, StyledText, should_use_colour

        found = requirement_statuses()
        page = Page(sys.stdout, colour=should_use_colour(sys.stdout))
        for line in found:
            text = (_YES if line.here else _NO).in_language(language)
            mark = StyledText.assemble(
                (f"{line.name.in_language(language):<9} ", "bold"), (text, "green" if line.here else "red")
            )
            mark.append(f"  {line.what.in_language(language)}")
            page.line(mark.append(f"  ({line.needed_for.in_language(language)})", "dim"), wrap=False)
        needed = all(line.here for line in found[:2])
        raise SystemExit((Verdict.GO if needed else Verdict.CANNOT_TELL).exit_status)


def _package_status(name: str, purpose: Text, display_name: str = "") -> RequirementStatus:
    from importlib import metadata

    try:
        version = metadata.version(name)
        here = importlib.util.find_spec(name) is not None
    except (metadata.PackageNotFoundError, ValueError):
        here, version = False, ""
    label = Text(display_name or name, display_name or name)
    if here:
        return RequirementStatus(label, True, Text(version, version), purpose)
    return RequirementStatus(label, False, _NOT_INSTALLED.format(how=install_hint("rehearse")), purpose)


def _uv_status() -> RequirementStatus:
    label = translated("uv")
    path = shutil.which("uv")
    if path is None and importlib.util.find_spec("uv") is None:
        return RequirementStatus(label, False, _NOT_INSTALLED.format(how=install_hint("rehearse")), _NEEDS_UV)
    where = path or "python -m uv"
    return RequirementStatus(label, True, Text(where, where), _NEEDS_UV)


def _browser_status() -> RequirementStatus:
    label = translated("browser")
    found = os.environ.get("BROWSER") or next((name for name in _BROWSER_COMMANDS if shutil.which(name)), None)
    if found is None:
        return RequirementStatus(label, False, _NO_BROWSER, _NEEDS_BROWSER)
    return RequirementStatus(label, True, Text(found, found), _NEEDS_BROWSER)


def _network_status() -> RequirementStatus:
    """Whether a connection to pip's configured or default index, or to the proxy, succeeds."""
    from urllib.parse import urlsplit

    label = translated("network")
    index = os.environ.get("UV_INDEX_URL") or os.environ.get("PIP_INDEX_URL") or f"https://{_DEFAULT_INDEX_HOST}/simple"
    requested = urlsplit(os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or index)
    host = requested.hostname or _DEFAULT_INDEX_HOST
    try:
        with socket.create_connection(
            (host, requested.port or (80 if requested.scheme == "http" else 443)), _CONNECT_TIMEOUT_SECONDS
        ):
            return RequirementStatus(label, True, _HOST_REACHABLE.format(host=host), _NEEDS_NETWORK)
    except (OSError, ValueError):
        return RequirementStatus(label, False, _NO_NETWORK.format(host=host), _NEEDS_NETWORK)

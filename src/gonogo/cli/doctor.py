"""The command ``gonogo doctor``: what of gonogo works on this machine, and how to get the rest."""

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
from gonogo.finding.language import chosen_language

_CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "firefox", "xdg-open", "open")
_INDEX = "pypi.org"
_SECONDS = 3.0
_YES, _NO = translated("yes"), translated("no")
_MISSING = translated("not installed: {how}")
_TORCH = translated("rehearse, cure, plan")
_DEEPSPEED = translated("rehearsals of DeepSpeed launches")
_UV = translated("--environment: the packages that a project pins")
_BROWSER = translated("--open, gonogo ui, pages of reports")
_NETWORK = translated("installing packages for --environment, --with, bisect")
_NO_BROWSER = translated("none found; --format html --output report.html writes a page that any browser opens")
_NO_NETWORK = translated(
    "{host} does not answer; point pip and uv to a mirror that does (PIP_INDEX_URL, UV_INDEX_URL), or go without"
)
_ANSWERS = translated("{host} answers")


class Need(NamedTuple):
    """One thing that parts of gonogo need: whether it is here, what of it, and for what."""

    name: Text
    here: bool
    what: Text
    needed_for: Text


def lines_of() -> list[Need]:
    """What there is, in the order in which one needs it."""
    return [
        _package("torch", _TORCH),
        _package("deepspeed", _DEEPSPEED, shown="DeepSpeed"),
        _uv(),
        _browser(),
        _network(),
    ]


def doctor(lang: Lang = None) -> None:
    """Say what of gonogo works on this machine, and how to get the rest: torch, DeepSpeed, uv, a browser, network.

    For instance: gonogo doctor

    check, diagnose, explain and hazards need none of them.

    说明 gonogo 的哪些功能在本机可用，其余的如何获得：torch、DeepSpeed、uv、浏览器、网络。
    """
    language = chosen_language(lang, os.environ)
    with exit_statuses(language):
        from gonogo.report.page import Page, Styled, colour_wanted

        found = lines_of()
        page = Page(sys.stdout, colour=colour_wanted(sys.stdout))
        for line in found:
            said = (_YES if line.here else _NO).in_language(language)
            mark = Styled.assemble(
                (f"{line.name.in_language(language):<9} ", "bold"), (said, "green" if line.here else "red")
            )
            mark.append(f"  {line.what.in_language(language)}")
            page.line(mark.append(f"  ({line.needed_for.in_language(language)})", "dim"), wrap=False)
        needed = all(line.here for line in found[:2])
        raise SystemExit((Verdict.GO if needed else Verdict.CANNOT_TELL).exit_status)


def _package(name: str, needed_for: Text, shown: str = "") -> Need:
    from importlib import metadata

    try:
        version = metadata.version(name)
        here = importlib.util.find_spec(name) is not None
    except (metadata.PackageNotFoundError, ValueError):
        here, version = False, ""
    label = Text(shown or name, shown or name)
    if here:
        return Need(label, True, Text(version, version), needed_for)
    return Need(label, False, _MISSING.format(how=install_hint("rehearse")), needed_for)


def _uv() -> Need:
    label = translated("uv")
    path = shutil.which("uv")
    if path is None and importlib.util.find_spec("uv") is None:
        return Need(label, False, _MISSING.format(how=install_hint("rehearse")), _UV)
    where = path or "python -m uv"
    return Need(label, True, Text(where, where), _UV)


def _browser() -> Need:
    label = translated("browser")
    found = os.environ.get("BROWSER") or next((name for name in _CHROMIUM if shutil.which(name)), None)
    if found is None:
        return Need(label, False, _NO_BROWSER, _BROWSER)
    return Need(label, True, Text(found, found), _BROWSER)


def _network() -> Need:
    """Whether the host answers from which pip installs: the one that it is set to, or the usual one."""
    from urllib.parse import urlsplit

    label = translated("network")
    index = os.environ.get("UV_INDEX_URL") or os.environ.get("PIP_INDEX_URL") or f"https://{_INDEX}/simple"
    asked = urlsplit(os.environ.get("https_proxy") or os.environ.get("HTTPS_PROXY") or index)
    host = asked.hostname or _INDEX
    try:
        with socket.create_connection((host, asked.port or (80 if asked.scheme == "http" else 443)), _SECONDS):
            return Need(label, True, _ANSWERS.format(host=host), _NETWORK)
    except (OSError, ValueError):
        return Need(label, False, _NO_NETWORK.format(host=host), _NETWORK)

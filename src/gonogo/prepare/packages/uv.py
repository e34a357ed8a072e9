"""Runs uv, which resolves and installs whole environments, and parses its errors."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

from gonogo.finding import Text, UserError, translated
from gonogo.prepare.packages.installers import installer_environment, pip_settings
from gonogo.prepare.packages.places import ReportProgress

_REPORT_AFTER_SECONDS = 2.0
_TIMEOUT = 1200.0
# Options of pip that uv doesn't read, with the variables that uv has for them.
_UV_VARIABLE_OF_PIP_OPTION = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
# uv's messages about a package that it can neither find nor build; the first group is its name.
_UNAVAILABLE = tuple(
    re.compile(pattern)
    for pattern in (
        r"[Ff]ailed to (?:build|download and build|download|fetch|prepare|read metadata for|extract)[^`\n]{0,40}`"
        r"([A-Za-z0-9][\w.-]*?)(?:==[^`]*|@[^`]*| @ [^`]*)?`",
        r"[Bb]ecause ([A-Za-z0-9][\w.-]*?) was not found in the",
        r"there is no version of ([A-Za-z0-9][\w.-]*?)(?:\{[^}]*\})?(?:[=<>!~]|\[|,| )",
        r"([A-Za-z0-9][\w.-]*?)(?:[=<>!~]\S*)? (?:has|have) no (?:usable )?wheels",
        r"Distribution `([A-Za-z0-9][\w.-]*?)(?:==[^`]*|@[^`]*)` can't be installed",
    )
)

# uv's message about a package that has only sources; the groups are its name and versions.
_NO_WHEELS_PATTERN = re.compile(
    r"(?:[Bb]ecause|and|that) (?:only )?(?:all versions of )?([A-Za-z0-9][\w.-]*?)(?:\[[^\]]*\])?"
    r"((?:[<>=!~]=?[^\s,]+,?)*) ha(?:s|ve) no usable wheels"
)
_NO_VERSIONS_PATTERN = re.compile(r"[Bb]ecause there are no versions of ([A-Za-z0-9][\w.-]*)")
_AFTER_DATE_PATTERN = re.compile(r"`([A-Za-z0-9][\w.-]*)` was filtered by `exclude-newer`")
_WHEELS_REQUIRED_PATTERN = re.compile(r"Wheels are required for `([A-Za-z0-9][\w.-]*)`")
WHEELS_ONLY_OPTIONS = ("--only-binary", ":all:")


_MAX_LISTED_LINES = 3


class UvFailed(Exception):
    """uv ended with an error; ``text`` is what it printed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    @property
    def reason(self) -> str:
        """The most informative line of the output."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        messages = [
            re.sub(r"^(error|cause): *|^[×╰├─▶ ]+|,? and only the following versions of .*$", "", line)
            for line in lines
        ]
        errors = [
            number
            for number, line in enumerate(messages)
            if re.search(r"(?i)because|failed|error|no solution|not found", line)
        ]
        if not messages:
            return "uv said nothing"
        first = errors[-1 if len(errors) < 2 else 1] if errors else len(messages) - 1
        last = (
            first + 1 if not messages[first].endswith(":") else first + 1 + _MAX_LISTED_LINES
        )  # the lines that it announces
        return " ".join(messages[first:last])[:300]

    @property
    def unavailable_packages(self) -> tuple[str, ...]:
        """Canonical names of the packages that aren't available; empty if the error is of another kind."""
        return tuple(dict.fromkeys(canonicalize_name(m[1]) for p in _UNAVAILABLE for m in p.finditer(self.text)))

    @property
    def packages_with_only_pre_releases(self) -> tuple[str, ...]:
        """Canonical names of the packages of which the index has only pre-releases."""
        found = _NO_VERSIONS_PATTERN.findall(self.text)
        return tuple(
            canonicalize_name(name) for name in found if f"Pre-releases are available for `{name}`" in self.text
        )

    @property
    def packages_after_date(self) -> tuple[str, ...]:
        """Canonical names of the packages of which every fitting release is newer than the date."""
        return tuple(dict.fromkeys(map(canonicalize_name, _AFTER_DATE_PATTERN.findall(self.text))))

    def mentions(self, package: str) -> bool:
        """Whether the output mentions a package."""
        text = self.text.lower().replace("_", "-")
        return re.search(rf"(?<![\w.-]){re.escape(canonicalize_name(package))}(?![\w-])", text) is not None

    @property
    def packages_without_wheels(self) -> dict[str, str]:
        """Packages that are available only as sources, by canonical name, and the versions that uv would use."""
        text = re.sub(r"\s+", " ", self.text)
        found: dict[str, str] = {canonicalize_name(match[1]): "" for match in _WHEELS_REQUIRED_PATTERN.finditer(text)}
        found |= {canonicalize_name(match[1]): match[2].rstrip(",") for match in _NO_WHEELS_PATTERN.finditer(text)}
        return found


def run_uv(
    arguments: Sequence[str],
    *,
    cwd: Path,
    what: Text,
    report_progress: ReportProgress,
    environment: Mapping[str, str] | None = None,
    find_links: Path | None = None,
) -> str:
    """Run uv in ``cwd``, which must have no project settings, and return its output.

    ``report_progress`` gets ``what`` as the activity. ``find_links`` is an additional folder of wheels. Raises UvFailed
    if uv fails, and UserError if it isn't installed.
    """
    command = [_find_uv(), *arguments]
    if pip_settings().get("no-index") in ("1", "true", "True") and arguments[0] == "pip":
        command += [] if "--no-index" in arguments else ["--no-index"]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env={**_uv_environment(find_links), **(environment or {})},
        )
        try:
            _wait_for_uv(process, output.fileno(), what, report_progress)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    if process.returncode != 0:
        raise UvFailed(text)
    return text


def _find_uv() -> str:
    try:
        from uv import find_uv_bin
    except ImportError:
        raise UserError(translated("--environment needs uv to create the environment: pip install uv")) from None
    return find_uv_bin()


def _uv_environment(find_links: Path | None) -> dict[str, str]:
    """The environment variables for uv, including pip's package sources."""
    environment = installer_environment()
    for setting, name in _UV_VARIABLE_OF_PIP_OPTION.items():
        if value := pip_settings().get(setting):
            environment.setdefault(name, ",".join(value.split()) if name == "UV_FIND_LINKS" else value)
    if find_links is not None:
        environment["UV_FIND_LINKS"] = ",".join(filter(None, (environment.get("UV_FIND_LINKS"), str(find_links))))
    # As pip does: use the best version from all configured indexes.
    environment.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return {**environment, "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def _wait_for_uv(
    process: subprocess.Popen[bytes], descriptor: int, what: Text, report_progress: ReportProgress
) -> None:
    started = time.monotonic()
    while process.poll() is None:
        seconds = time.monotonic() - started
        if seconds > _TIMEOUT:
            raise UvFailed(f"error: uv had not ended after {_TIMEOUT:.0f} s")
        if seconds > _REPORT_AFTER_SECONDS:
            doing = _last_line(descriptor)
            report_progress(
                translated("{what}: {doing} ({seconds:.0f} s)").format(what=what, doing=doing, seconds=seconds)
            )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)


def _last_line(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    lines = os.pread(descriptor, 4000, max(0, size - 4000)).decode(errors="replace").split("\n")
    doing = (line.strip() for line in reversed(lines) if line.strip() and not line.startswith("warning"))
    return next(doing, "uv")[:60]


def uv_target_options(folder: Path) -> tuple[str, ...]:
    """The options with which uv installs into a virtual environment by means of this Python.

    uv must never run the environment's own Python, which executes installed code such as a ``.pth`` file.
    """
    return ("--python", sys.executable, "--prefix", str(folder))


def venv_python(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / "bin" / "python"

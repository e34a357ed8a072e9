"""How pip and uv are called: working directory, environment variables, and the user's configuration."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache

FOLDER = "/"
"""The working directory of pip: ``python -m pip`` imports from there, so it must not be an untrusted folder."""

# The variables that installers need: programs, home folder, network, certificates, their own settings.
# No others are passed on, because a project's files may name the servers that they talk to.
_PASSED_VARIABLES_PATTERN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|LANG|LANGUAGE|LC_\w+|TMPDIR|TMP|TEMP|LD_LIBRARY_PATH|XDG_\w+"
    r"|(?:https?|all|no|ftp)_proxy|(?:HTTPS?|ALL|NO|FTP)_PROXY"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|DBUS_SESSION_BUS_ADDRESS"
    r"|PIP_\w+|UV_\w+"
)
# Settings that would make pip or uv install elsewhere, build or publish.
_UNSAFE_SETTINGS_PATTERN = re.compile(
    r"PIP_(?:USER|TARGET|PREFIX|ROOT|NO_BINARY|ONLY_BINARY|REQUIREMENT|EDITABLE|SRC|DRY_RUN|NO_DEPS|REPORT|PYTHON"
    r"|NO_BUILD_ISOLATION|REQUIRE_VIRTUALENV|IGNORE_INSTALLED|UPGRADE)"
    r"|UV_(?:PUBLISH_\w+|PROJECT\w*|WORKING_DIR\w*|PYTHON|SYSTEM_PYTHON|TARGET|PREFIX|NO_BINARY\w*|NO_BUILD\w*"
    r"|OVERRIDE|EXCLUDE|TORCH_BACKEND|REQUIRE_HASHES|DRY_RUN|ENV_FILE|VENV\w*|GITHUB_TOKEN)"
)
_FIND_LINKS_VARIABLES = ("PIP_FIND_LINKS", "UV_FIND_LINKS")


def installer_environment() -> dict[str, str]:
    """The environment variables for installers: no secrets except in pip's and uv's own settings."""
    found = {
        name: value
        for name, value in os.environ.items()
        if _PASSED_VARIABLES_PATTERN.fullmatch(name) and not _UNSAFE_SETTINGS_PATTERN.fullmatch(name)
    }
    for name in _FIND_LINKS_VARIABLES:  # they may be relative to the folder in which gonogo was started
        if name in found:
            separator = "," if name.startswith("UV") else " "
            places = [_make_absolute(place) for place in found[name].split(separator)]
            found[name] = separator.join(places)
    return found


def _make_absolute(place: str) -> str:
    return os.path.abspath(place) if place and "://" not in place and os.path.exists(place) else place


def pip_command(*words: str) -> list[str]:
    """The command that runs this Python's pip; run it in :data:`FOLDER`."""
    return [sys.executable, "-m", "pip", *words]


def pip_settings() -> Mapping[str, str]:
    """pip's configuration from files and variables: a mirror, a certificate, a folder of wheels."""
    return _read_pip_settings(tuple(sorted(installer_environment().items())))


@lru_cache(maxsize=4)
def _read_pip_settings(environment: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    done = subprocess.run(
        pip_command("config", "list"),
        capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=FOLDER, env=dict(environment), check=False,
    )  # fmt: skip
    found: dict[str, str] = {}
    for line in sorted(done.stdout.splitlines(), key=lambda line: line.startswith(":env:")):  # variables win
        key, _, value = line.partition("=")
        found[key.rpartition(".")[2]] = value.strip("'\"").replace("\\n", " ")
    return found

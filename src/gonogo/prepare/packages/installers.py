"""pip and uv as they are called: where, with which variables, and what they are set to by the user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache

FOLDER = "/"
"""Where pip is started: ``python -m pip`` imports from the folder that it is started in, which may be a stranger's."""

# What installers need of the user's variables: programs, home folder, network, certificates, their own settings.
# Nothing else is handed on: they talk to servers that a project's files may name.
_PASSED_VARIABLES_PATTERN = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|LANG|LANGUAGE|LC_\w+|TMPDIR|TMP|TEMP|LD_LIBRARY_PATH|XDG_\w+"
    r"|(?:https?|all|no|ftp)_proxy|(?:HTTPS?|ALL|NO|FTP)_PROXY"
    r"|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|NETRC|DBUS_SESSION_BUS_ADDRESS"
    r"|PIP_\w+|UV_\w+"
)
# Settings of pip and uv that would have them install elsewhere, build, or publish.
_UNSAFE_SETTINGS_PATTERN = re.compile(
    r"PIP_(?:USER|TARGET|PREFIX|ROOT|NO_BINARY|ONLY_BINARY|REQUIREMENT|EDITABLE|SRC|DRY_RUN|NO_DEPS|REPORT|PYTHON"
    r"|NO_BUILD_ISOLATION|REQUIRE_VIRTUALENV|IGNORE_INSTALLED|UPGRADE)"
    r"|UV_(?:PUBLISH_\w+|PROJECT\w*|WORKING_DIR\w*|PYTHON|SYSTEM_PYTHON|TARGET|PREFIX|NO_BINARY\w*|NO_BUILD\w*"
    r"|OVERRIDE|EXCLUDE|TORCH_BACKEND|REQUIRE_HASHES|DRY_RUN|ENV_FILE|VENV\w*|GITHUB_TOKEN)"
)
_FIND_LINKS_VARIABLES = ("PIP_FIND_LINKS", "UV_FIND_LINKS")


def surroundings() -> dict[str, str]:
    """The variables that installers get: no tokens but those that are settings of pip and uv themselves."""
    found = {
        name: value
        for name, value in os.environ.items()
        if _PASSED_VARIABLES_PATTERN.fullmatch(name) and not _UNSAFE_SETTINGS_PATTERN.fullmatch(name)
    }
    for name in _FIND_LINKS_VARIABLES:  # they may be told from the folder in which gonogo was started
        if name in found:
            separator = "," if name.startswith("UV") else " "
            places = [_absolute(place) for place in found[name].split(separator)]
            found[name] = separator.join(places)
    return found


def _absolute(place: str) -> str:
    return os.path.abspath(place) if place and "://" not in place and os.path.exists(place) else place


def pip_command(*words: str) -> list[str]:
    """A call of this Python's pip, to be started in :data:`FOLDER`."""
    return [sys.executable, "-m", "pip", *words]


def settings_of_pip() -> Mapping[str, str]:
    """What pip is set to, by its files and variables: a mirror, a certificate, a folder of wheels."""
    return _settings_of_pip(tuple(sorted(surroundings().items())))


@lru_cache(maxsize=4)
def _settings_of_pip(environment: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    done = subprocess.run(
        pip_command("config", "list"),
        capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=FOLDER, env=dict(environment), check=False,
    )  # fmt: skip
    found: dict[str, str] = {}
    for line in sorted(done.stdout.splitlines(), key=lambda line: line.startswith(":env:")):  # variables win
        key, _, value = line.partition("=")
        found[key.rpartition(".")[2]] = value.strip("'\"").replace("\\n", " ")
    return found

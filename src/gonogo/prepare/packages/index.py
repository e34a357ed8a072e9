"""The releases of a package that the user's package index has for this Python, as the user's own pip lists them."""

from __future__ import annotations

import contextlib
import re
import subprocess

from packaging.version import InvalidVersion, Version

from gonogo.finding import UserError, translated
from gonogo.prepare.packages.installers import FOLDER, installer_environment, pip_command

_LISTING_TIMEOUT = 180.0


def available_releases(name: str) -> list[Version]:
    """The releases of a package (canonical name), oldest first, without pre-releases and yanked ones.

    Uses the index, proxy and certificates that pip is configured with. Raises UserError if pip finds none or doesn't
    respond in time.
    """
    command = pip_command("index", "versions", "--disable-pip-version-check", "--no-input", name)
    try:
        listed = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=FOLDER,
            env=installer_environment(),
            timeout=_LISTING_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _listing_error(name, f"no answer within {_LISTING_TIMEOUT:.0f} s") from None
    found = parse_releases(listed.stdout)
    if not found:
        errors = [line.removeprefix("ERROR: ") for line in listed.stderr.splitlines() if line.startswith("ERROR: ")]
        raise _listing_error(name, errors[-1][:300] if errors else f"exit status {listed.returncode}")
    return found


def parse_releases(listing: str) -> list[Version]:
    """The releases in the output of ``pip index versions``, oldest first.

    Local versions (``+cpu``) are not distinguished.
    """
    match = re.search(r"^Available versions: (.*)$", listing, re.MULTILINE)
    found = set()
    for text in match[1].split(",") if match else []:
        with contextlib.suppress(InvalidVersion):
            version = Version(Version(text).public)
            if not version.is_prerelease:
                found.add(version)
    return sorted(found)


def _listing_error(name: str, reason: str) -> UserError:
    return UserError(
        translated("pip finds no releases of {name} for this Python ({why}): check the name and pip's settings").format(
            name=name, why=reason
        )
    )

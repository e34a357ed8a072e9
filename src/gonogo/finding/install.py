"""How to install one of gonogo's extras: one command, for every message that mentions one.

gonogo isn't on a package index yet, so ``pip install 'gonogo[ui]'`` would fail, or install an unrelated package. The
command names the origin from which pip installed gonogo: a clone, a git URL, an archive.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from gonogo.finding.text import Text, translated

_IN_CLONE = translated("pip install -e '.[{extra}]' in a clone of gonogo")


def clone_of_gonogo() -> Path | None:
    """The root of the checkout from which this gonogo runs; None if it is installed."""
    clone = Path(__file__).parents[3]
    return clone if (clone / "pyproject.toml").is_file() and (clone / "src" / "gonogo").is_dir() else None


def install_hint(extra: str) -> Text:
    """The command that installs gonogo with ``extra``, a name of ``[project.optional-dependencies]``."""
    clone = clone_of_gonogo()
    if clone is not None:
        return _install_command(f"-e {shlex.quote(f'{clone}[{extra}]')}")
    origin = _origin()
    if origin is None:
        return _IN_CLONE.format(extra=extra)
    address, folder = origin
    return _install_command(shlex.quote(f"{folder}[{extra}]" if folder else f"gonogo[{extra}] @ {address}"))


def _install_command(requirement_text: str) -> Text:
    command = f"pip install {requirement_text}"
    return Text(command, f"请执行 {command}")


def _origin() -> tuple[str, str] | None:
    """The origin from which pip installed gonogo, according to ``direct_url.json`` (PEP 610): URL, and local folder.

    None if there is no such record, or the folder or file is gone.
    """
    import json
    from importlib import metadata  # takes 20 ms, and only messages need it
    from urllib.parse import unquote, urlsplit

    try:
        record = json.loads(metadata.distribution("gonogo").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    address = record.get("url", "")
    if not address:
        return None
    if urlsplit(address).scheme == "file":
        path = unquote(urlsplit(address).path)
        if not Path(path).exists():
            return None
        return address, path if "dir_info" in record else ""
    version_control = record.get("vcs_info")
    if version_control:
        commit = version_control.get("commit_id")
        address = f"{version_control.get('vcs', 'git')}+{address}" + (f"@{commit}" if commit else "")
    return address, ""

"""Fetches sources of packages without running their code: a release of the index, an archive, a repository."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import netrc
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gonogo.finding import Text, translated
from gonogo.prepare.packages.installers import installer_environment, pip_settings
from gonogo.prepare.packages.places import ReportProgress
from gonogo.prepare.packages.uv import UvFailed, run_uv

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ANSWER_TIMEOUT = 60.0
_DOWNLOAD_TIMEOUT = 900.0
_CLONE_TIMEOUT = 600.0
_MAX_BYTES = 4 << 30
_CHUNK_BYTES = 1 << 20
# The protocols that are allowed for repositories: git knows others, some of which run commands.
_ALLOWED_GIT_PROTOCOLS = ("https", "http", "ssh", "git")
_GIT_URL_PATTERN = re.compile(r"git\+((?:https?|ssh|git)://[^\s'\"\\]+)")
_COMPILED_SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".cu", ".pyx", ".f", ".f90", ".rs")
_REVISION_PATTERN = re.compile(r"(?!-)[\w][\w./+-]{0,200}")
_INDEX_VARIABLE_PATTERN = re.compile(r"(?:PIP|UV)_\w*INDEX\w*")


class SourceUnavailable(Exception):
    """The sources can't be fetched; the message says why."""


@dataclass(frozen=True)
class PackageSource:
    """Sources on this machine: an archive or a folder. ``identity`` is unique for their content."""

    path: Path
    identity: str
    subfolder: str = ""


def url_without_credentials(address: str) -> str:
    """A URL without credentials, for output."""
    return re.sub(r"(?<=://)[^/@\s]*@", "", address)


def fetch_release_sources(
    name: str, specifier: str, cutoff_date: str | None, folder: Path, activity: Text, report_progress: ReportProgress
) -> PackageSource:
    """The sources of the newest release that matches a specifier, in a new folder ``folder``.

    uv finds the release. It is told that the package has no dependencies, because it would build the package to find
    out. Raises SourceUnavailable.
    """
    folder.mkdir()
    try:
        lock = _lock_of_one(name, specifier, cutoff_date, folder, activity, report_progress, "--no-binary", name)
        sdist = lock["packages"][0]["sdist"]
        url, digest = sdist.get("url") or "", sdist["hashes"]["sha256"]
        if not url:
            url = (folder / sdist["path"]).absolute().as_uri()
    except UvFailed as error:
        raise SourceUnavailable(error.reason) from None
    except (KeyError, IndexError, TypeError, ValueError):
        raise SourceUnavailable(f"there are no sources of {name}{specifier}") from None
    file = folder / _file_name(url)
    download(url, file, is_index_url=True)
    found = hashlib.sha256(file.read_bytes()).hexdigest()
    if found != digest:
        raise SourceUnavailable(
            f"what {url_without_credentials(url)} holds is not what the index says (sha256 {found})"
        )
    return PackageSource(file, found)


def is_compiled(archive: Path) -> bool:
    """Whether an archive of sources has code of another language, which its build compiles."""
    try:
        with tarfile.open(archive) as opened:
            return any(name.endswith(_COMPILED_SUFFIXES) for name in opened.getnames())
    except (tarfile.TarError, OSError):
        return False


def newest_release(
    name: str, specifier: str, cutoff_date: str, folder: Path, activity: Text, report_progress: ReportProgress
) -> str | None:
    """The newest release on a date that matches a specifier, as wheel or as sources; None if there is none."""
    folder.mkdir(exist_ok=True)
    try:
        lock = _lock_of_one(name, specifier, cutoff_date, folder, activity, report_progress)
        return str(lock["packages"][0]["version"])
    except (UvFailed, SourceUnavailable, KeyError, IndexError, TypeError, ValueError):
        return None


def _lock_of_one(
    name: str,
    specifier: str,
    cutoff_date: str | None,
    folder: Path,
    activity: Text,
    report_progress: ReportProgress,
    *words: str,
) -> dict[str, Any]:
    """The lock of one package as uv resolves it, without its dependencies; nothing is built."""
    told = f'\n[[dependency-metadata]]\nname = "{name}"\nrequires-dist = []\n'
    environment = _uv_settings(folder, told)
    (folder / "source.in").write_text(f"{name}{specifier}\n", encoding="utf-8")
    command = ["pip", "compile", "source.in", "--no-deps", *words, "--format", "pylock.toml", "--quiet"]
    command += ["--python", sys.executable, *(["--exclude-newer", cutoff_date] if cutoff_date else [])]
    lock: dict[str, Any] = tomllib.loads(
        run_uv(command, cwd=folder, what=activity, report_progress=report_progress, environment=environment)
    )
    return lock


def _uv_settings(folder: Path, settings_text: str) -> dict[str, str]:
    """Environment variables with which uv reads ``settings_text`` in addition to the user's own settings."""
    own = os.environ.get("UV_CONFIG_FILE")
    if own is None and os.environ.get("UV_NO_CONFIG") is None:
        (folder / "uv.toml").write_text(settings_text, encoding="utf-8")
        return {}
    try:
        before = Path(own).read_text(encoding="utf-8") if own is not None else ""
    except (OSError, UnicodeDecodeError) as error:
        raise SourceUnavailable(f"UV_CONFIG_FILE={own}: {error}") from None
    file = folder / "settings.toml"
    file.write_text(f"{before}\n{settings_text}", encoding="utf-8")
    return {"UV_CONFIG_FILE": str(file), "UV_NO_CONFIG": "0"}


def _file_name(url: str) -> str:
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path).rpartition("/")[2]
    return re.sub(r"[^\w.+!-]", "_", name)[-200:].lstrip(".") or "archive"


def download_archive(address: str, folder: Path) -> PackageSource:
    """Download a ``.tar.gz`` or ``.zip`` into a new folder. Raises SourceUnavailable."""
    folder.mkdir()
    url, _, fragment = address.partition("#")
    file = folder / _file_name(url)
    download(url, file, is_index_url=False)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    stated = re.search(r"(?:^|&)sha256=([0-9a-f]{64})\b", fragment)
    if stated is not None and stated[1] != digest:
        raise SourceUnavailable(
            f"what {url_without_credentials(url)} holds is not what its address says (sha256 {digest})"
        )
    return PackageSource(file, digest, _subfolder_in_fragment(fragment))


def _subfolder_in_fragment(fragment: str) -> str:
    found = re.search(r"(?:^|&)subdirectory=([^&]*)", fragment)
    parts = urllib.parse.unquote(found[1]).strip("/").split("/") if found is not None else []
    if any(part in ("", ".", "..") for part in parts) and parts != [""]:
        raise SourceUnavailable(f"its folder {'/'.join(parts)!r} does not lie in it")
    return "/".join(parts)


# -- over the network


def download(url: str, file: Path, *, is_index_url: bool, most: int = _MAX_BYTES, accept: str = "*/*") -> None:
    """Download a URL to a file. With ``is_index_url`` it belongs to the user's index and may get its credentials.

    ``most`` is the maximum size in bytes, ``accept`` the Accept header. Raises SourceUnavailable.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "file" and is_index_url:
        try:
            shutil.copyfile(urllib.request.url2pathname(parts.path), file)
        except OSError as error:
            raise SourceUnavailable(f"{url}: {error.strerror or error}") from None
        return
    if parts.scheme not in ("http", "https"):
        raise SourceUnavailable(f"{url_without_credentials(url)}: only http and https are fetched")
    host = parts.hostname or ""
    bare = urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = urllib.request.Request(
        bare, headers={"User-Agent": "gonogo", "Accept": accept, "Accept-Encoding": "identity"}
    )
    if credentials := _credentials_in_url(url) or (_find_credentials(host) if is_index_url else None):
        word = base64.b64encode(":".join(credentials).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {word}")
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_ssl_context(host)))
    started = time.monotonic()
    try:
        with opener.open(request, timeout=_ANSWER_TIMEOUT) as answer, open(file, "wb") as target:
            written = 0
            while block := answer.read(_CHUNK_BYTES):
                written += len(block)
                target.write(block)
                if written > most or time.monotonic() - started > _DOWNLOAD_TIMEOUT:
                    raise SourceUnavailable(
                        f"{url_without_credentials(url)}: too large, or too slow ({written >> 20} MiB so far)"
                    )
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise SourceUnavailable(f"{url_without_credentials(url)}: {getattr(error, 'reason', None) or error}") from None


def _credentials_in_url(url: str) -> tuple[str, str] | None:
    parts = urllib.parse.urlsplit(url)
    if not parts.username:
        return None
    return urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")


def _find_credentials(host: str) -> tuple[str, str] | None:
    """The user's credentials for a host: those in the URL of an index on that host, else those in netrc."""
    values = [value for name, value in os.environ.items() if _INDEX_VARIABLE_PATTERN.fullmatch(name)]
    values += [pip_settings().get(name, "") for name in ("index-url", "extra-index-url")]
    for address in re.findall(r"https?://\S+", " ".join(values)):
        with contextlib.suppress(ValueError):
            if urllib.parse.urlsplit(address).hostname == host and (found := _credentials_in_url(address)):
                return found
    try:
        known = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return (known[0], known[2] or "") if known is not None else None


def _ssl_context(host: str) -> ssl.SSLContext:
    """An SSL context with the certificates that pip and uv are configured with."""
    context = ssl.create_default_context()
    settings = pip_settings()
    for file in (os.environ.get("SSL_CERT_FILE"), os.environ.get("REQUESTS_CA_BUNDLE"), settings.get("cert")):
        if file and os.path.isfile(file):
            context.load_verify_locations(file)
    trusted = re.split(r"[\s,]+", f"{settings.get('trusted-host', '')} {os.environ.get('UV_INSECURE_HOST', '')}")
    if host in (one.partition(":")[0] for one in trusted if one):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# -- repositories


def clone_repository(address: str, folder: Path, report_progress: ReportProgress) -> PackageSource:
    """Clone a git repository into a new folder, at the revision in its URL.

    git runs without hooks and submodules, and never asks for a password. Raises SourceUnavailable.
    """
    url, revision, fragment = parse_git_url(address)
    subfolder = _subfolder_in_fragment(fragment)
    what = translated("fetching {url}").format(url=url_without_credentials(url))
    _run_git(["clone", "--quiet", "--no-checkout", "--", url, str(folder)], folder.parent, report_progress, what)
    wanted = "HEAD"
    if revision:
        for one in (f"refs/remotes/origin/{revision}", f"refs/tags/{revision}", revision):
            try:
                wanted = _run_git(
                    ["rev-parse", "--verify", "--quiet", f"{one}^{{commit}}"], folder, report_progress, what
                ).strip()
                break
            except SourceUnavailable:
                continue
        else:  # a commit that is on no branch
            _run_git(["fetch", "--quiet", "origin", revision], folder, report_progress, what)
            wanted = "FETCH_HEAD"
    commit = _run_git(["rev-parse", "--verify", f"{wanted}^{{commit}}"], folder, report_progress, what).strip()
    _run_git(["checkout", "--quiet", "--detach", commit], folder, report_progress, what)
    return PackageSource(folder, f"{url_without_credentials(url)}@{commit}", subfolder)


def is_reachable(address: str) -> bool:
    """Whether a URL responds within ten seconds."""
    report_progress: ReportProgress = lambda _text: None  # noqa: E731
    try:
        if address.startswith("git+"):
            url, _, _ = parse_git_url(address)
            _run_git(
                ["ls-remote", "--quiet", "--", url, "HEAD"],
                Path("/"),
                report_progress,
                Text("", ""),
                timeout_seconds=10,
            )
            return True
        parts = urllib.parse.urlsplit(address)
        request = urllib.request.Request(url_without_credentials(address.partition("#")[0]), method="HEAD")
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_ssl_context(parts.hostname or "")))
        with opener.open(request, timeout=10):
            return True
    except (SourceUnavailable, OSError, ValueError):
        return False


def parse_git_url(address: str) -> tuple[str, str, str]:
    """URL, revision and fragment of ``git+https://…@revision#…``. Raises SourceUnavailable for any other address."""
    before, _, fragment = address.partition("#")
    match = _GIT_URL_PATTERN.fullmatch(before)
    if match is None:
        raise SourceUnavailable(
            f"{url_without_credentials(before)}: only git+https, git+http, git+ssh and git+git are fetched"
        )
    scheme, _, rest = match[1].partition("://")
    host, slash, path = rest.partition("/")
    path, at, revision = path.partition("@")
    if (at and not _REVISION_PATTERN.fullmatch(revision)) or host.startswith("-"):
        raise SourceUnavailable(f"{url_without_credentials(before)}: no revision")
    return f"{scheme}://{host}{slash}{path}", revision, fragment


def _run_git(
    words: list[str],
    cwd: Path,
    report_progress: ReportProgress,
    activity: Text,
    timeout_seconds: float = _CLONE_TIMEOUT,
) -> str:
    allowed = [f"protocol.{name}.allow=always" for name in _ALLOWED_GIT_PROTOCOLS]
    settings = ["protocol.allow=never", *allowed, "core.hooksPath=/dev/null", "core.fsmonitor=false",
                "submodule.recurse=false", "clone.defaultRemoteName=origin",
                "fetch.recurseSubmodules=false"]  # fmt: skip
    options = [word for setting in settings for word in ("-c", setting)]
    environment = {
        **installer_environment(),
        **{name: os.environ[name] for name in ("SSH_AUTH_SOCK", "GIT_SSL_CAINFO") if name in os.environ},
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes",
        "GIT_LFS_SKIP_SMUDGE": "1",
        "LC_ALL": "C",
    }
    try:
        process = subprocess.Popen(
            ["git", *options, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            cwd=cwd, env=environment,
        )  # fmt: skip
    except OSError as error:
        raise SourceUnavailable(f"git: {error.strerror or error}") from None
    started = time.monotonic()
    while True:
        try:
            out, err = process.communicate(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            seconds = time.monotonic() - started
            if seconds > timeout_seconds:
                process.kill()
                process.communicate()
                raise SourceUnavailable(f"git had not ended after {timeout_seconds:.0f} s") from None
            if seconds > 2:
                report_progress(translated("{what} ({seconds:.0f} s)").format(what=activity, seconds=seconds))
    if process.returncode != 0:
        lines = [line.strip() for line in err.splitlines() if line.strip()]
        errors = [line.removeprefix("fatal: ") for line in lines if line.startswith(("fatal:", "error:"))]
        raise SourceUnavailable(
            url_without_credentials((errors or lines or [f"git ended with {process.returncode}"])[0])[:300]
        )
    return out

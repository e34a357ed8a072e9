"""Make a log's text shareable: mask secrets, and replace users, hosts, addresses and folders consistently.

The names to replace are collected from the whole log first (``/home/alice``, ``node-3:812:990 [0] NCCL``), then
replaced wherever they occur, so that a reader still sees which lines are about the same host.
"""

from __future__ import annotations

import getpass
import keyword
import os
import re
import socket
from collections.abc import Iterable

from gonogo.evidence.log.code_owner import code_owner_of_path
from gonogo.finding.redaction import redact

_PATH_PATTERN = re.compile(
    r"(?<![\w./<>~-])(?:~[\w.-]*|file:/)?(?:/[\w.@+~%=-]+){2,}/?|(?<!\w)[A-Za-z]:(?:\\[\w.@+~%-]+)+\\?"
)
_SITE_PACKAGES_PATTERN = re.compile(r"(?:site|dist)-packages[/\\](.*)")
_STDLIB_PATTERN = re.compile(r"[/\\]lib[/\\](python3\.\d{1,2}[/\\].*)")
_SYSTEM_PATH_PATTERN = re.compile(r"/(?:usr|proc|dev|sys|lib|lib64|bin|sbin|run|etc)/")
_KNOWN_PACKAGES = frozenset({
    "verl", "swift", "llamafactory", "trl", "transformers", "accelerate", "deepspeed", "peft", "megatron", "openrlhf",
    "torch", "vllm", "sglang", "axolotl", "nemo", "nemo_rl", "nemo_automodel", "areal", "slime", "torchtitan",
    "diffusers", "lerobot", "datasets", "flash_attn", "mbridge", "transformer_engine", "apex", "unsloth", "lightning",
})  # fmt: skip
"""Third-party packages: from such a folder on, a path doesn't reveal anything about its owner."""
_HOME_PATTERN = re.compile(
    r"/(?:home|Users|export/home|mnt/home|lustre/home|scratch/users|gpfs/users|nfs/home)/([\w.-]{2,40})"
)
_USER_VARIABLE_PATTERN = re.compile(
    r"(?:\b(?:USER|LOGNAME|USERNAME|SLURM_JOB_USER)['\"]?\s{0,2}[=:]\s{0,2}['\"]?|[Ll]ogged in as:? )"
    r"([A-Za-z][\w.-]{1,40})"
)
_EMAIL_PATTERN = re.compile(r"(?<![\w.+-])[\w.+-]{1,60}@[\w-]{1,60}(?:\.[\w-]{1,60}){1,6}")
_USER_AT_HOST_PATTERN = re.compile(r"(?<![\w.@/+-])([A-Za-z_][\w-]{0,30})@([A-Za-z][\w.-]{1,60})(?=[:\s,'\"]|$)")
_HOST_PATTERNS = (
    re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{2,80}):\d{1,8}:\d{1,8} \[\d{1,3}\] NCCL"),
    re.compile(r"^\s*host\s*:\s*(\S{2,80})"),
    re.compile(r"\b(?i:MASTER_ADDR|HOSTNAME|SLURMD_NODENAME|NODE_NAME|HEAD_NODE|hostname)['\"]?\s{0,2}[=:]\s{0,2}['\"]?([A-Za-z][\w.-]{1,80})"),
    re.compile(r"(?<![\w.-])([\w-]{1,60}(?:\.[\w-]{1,60}){0,6}\.(?:local|internal|lan|corp|intra|svc|localdomain))(?![\w-])"),
    re.compile(r"(?<![\w-])(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})(?![\w-])"),
)  # fmt: skip
_IPV4_PATTERN = re.compile(r"(?<![\w.=-])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]\d|\w)")
_VERSION_PREFIX_PATTERN = re.compile(r"(?i:version|==|cudnn|driver|release)\W{0,3}$")
_IPV6_PATTERN = re.compile(
    r"(?<![\w:.])(?:(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{1,4}"
    r"|(?:[0-9a-fA-F]{1,4}:){1,6}:(?:[0-9a-fA-F]{1,4}:){1,5}[0-9a-fA-F]{1,4})(?![\w:])"
)
_URL_PATTERN = re.compile(r"\b(?:https?|wss?|tcp|ftp|s3|gs|oss|hdfs|ssh|git)://[^\s\"'<>)\]]{1,500}")
_HOST_OF_URL_PATTERN = re.compile(r"^[a-z0-9]+://(?:[^/@]*@)?([\w.-]+)")
_PUBLIC_HOSTS = (
    "github.com", "githubusercontent.com", "pytorch.org", "huggingface.co", "readthedocs.io", "python.org", "pypi.org",
    "nvidia.com", "deepspeed.ai", "vllm.ai", "arxiv.org", "hf.co", "modelscope.cn", "127.0.0.1", "localhost", "0.0.0.0",
)  # fmt: skip
"""Public hosts, whose addresses are kept."""
_GENERIC_NAMES = frozenset({
    "root", "user", "users", "ubuntu", "admin", "runner", "work", "data", "test", "train", "model", "models", "public",
    "shared", "local", "host", "localhost", "main", "none", "null", "true", "false", "self", "rank", "node", "worker",
    "master", "python", "torch", "conda", "docker", "home", "workspace", "default", "group", "error", "cuda", "nccl",
})  # fmt: skip
"""Generic names, which identify nobody and also occur in logs with other meanings."""
_MAX_NAMES = 400


class NameRedactor:
    """Replaces private names (paths, hosts, users, addresses) in the texts of one log."""

    def __init__(self, lines: Iterable[str], nodes: Iterable[str] = (), project: str = "") -> None:
        self._project = project.rstrip("/")
        self._given: dict[tuple[str, str], str] = {}
        self._count: dict[str, int] = {}
        users: dict[str, None] = {}
        hosts: dict[str, None] = dict.fromkeys(nodes)
        for line in lines:
            if "/" in line:
                users.update(dict.fromkeys(_HOME_PATTERN.findall(line)))
            if "USER" in line or "LOGNAME" in line or "ogged in" in line:
                users.update(dict.fromkeys(_USER_VARIABLE_PATTERN.findall(line)))
            if "@" in line:
                for user, host in _USER_AT_HOST_PATTERN.findall(line):
                    users[user] = hosts[host] = None
            for pattern in _HOST_PATTERNS:
                hosts.update(dict.fromkeys(pattern.findall(line)))
        own_host = socket.gethostname()
        names = [(name, "user") for name in (*users, _current_user())] + [(name, "host") for name in (*hosts, own_host)]
        kinds: dict[str, str] = {}
        for name, kind in names[:_MAX_NAMES]:
            if _is_identifying(name):
                kinds.setdefault(name, kind)
        listed = "|".join(re.escape(name) for name in sorted(kinds, key=len, reverse=True))
        self._kinds = kinds
        self._names = re.compile(rf"(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])") if kinds else None

    def redact_text(self, text: str) -> str:
        """The text with all private data replaced."""
        text = redact(text)
        text = _URL_PATTERN.sub(lambda match: self._replace_private_url(match[0]), text)
        text = _EMAIL_PATTERN.sub(lambda match: self._placeholder("email", match[0]), text)
        text = _PATH_PATTERN.sub(lambda match: self.redact_path(match[0]), text)
        if self._names is not None:
            text = self._names.sub(lambda match: self._placeholder(self._kinds[match[0]], match[0]), text)
        text = _IPV4_PATTERN.sub(self._replace_ip_address, text)
        return _IPV6_PATTERN.sub(lambda match: self._placeholder("ip", match[0]), text)

    def redact_path(self, path: str) -> str:
        """A path without private folders: starting at a package, Python or the project, else only its last part."""
        if (found := _SITE_PACKAGES_PATTERN.search(path)) is not None:
            return f"site-packages/{found[1]}"
        if (found := _STDLIB_PATTERN.search(path)) is not None:
            return found[1]
        if _SYSTEM_PATH_PATTERN.match(path):
            return path
        if self._project and path.startswith(f"{self._project}/"):
            return path[len(self._project) + 1 :]
        parts = re.split(r"[/\\]", path.rstrip("/\\"))
        last = _package_start_index(path, parts)
        folder = "/".join(parts[:last])
        tail = "/" if path.endswith("/") else ""
        return f"{self._placeholder('dir', folder)}/{'/'.join(parts[last:])}{tail}" if folder else path

    def _placeholder(self, kind: str, value: str) -> str:
        name = self._given.get((kind, value))
        if name is None:
            self._count[kind] = number = self._count.get(kind, 0) + 1
            name = self._given[kind, value] = f"<{kind}{number}>"
        return name

    def _replace_private_url(self, url: str) -> str:
        host = _HOST_OF_URL_PATTERN.match(url)
        name = host[1].lower() if host is not None else ""
        public = any(name == one or name.endswith(f".{one}") for one in _PUBLIC_HOSTS)
        return url if public else self._placeholder("url", url)

    def _replace_ip_address(self, match: re.Match[str]) -> str:
        address = match[0]
        numbers = [int(part) for part in address.split(".")]
        if (
            max(numbers) > 255
            or numbers[0] in (0, 127, 255)
            or _VERSION_PREFIX_PATTERN.search(match.string[: match.start()])
        ):
            return address
        return self._placeholder("ip", address)


def _package_start_index(path: str, parts: list[str]) -> int:
    """The index at which a package begins in a path, by its modules first: ``megatron/bridge/peft`` is not PEFT's."""
    owner = code_owner_of_path(path)
    if owner.owner == "clone" and owner.module:
        first, length = owner.module.partition(".")[0], owner.module.count(".") + 1
        for start in (len(parts) - length, len(parts) - length - 1):
            if start > 0 and parts[start] == first:
                return start
    return max((number for number, part in enumerate(parts[:-1]) if part in _KNOWN_PACKAGES), default=len(parts) - 1)


def _is_identifying(name: str) -> bool:
    """Whether a name identifies somebody and is not a common word in logs."""
    lowered = name.lower()
    plain = len(name) < 3 or name.startswith("<") or name.replace(".", "").isdecimal()
    return not (plain or lowered in _GENERIC_NAMES or lowered in _KNOWN_PACKAGES or keyword.iskeyword(name))


def _current_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return os.environ.get("USER", "")

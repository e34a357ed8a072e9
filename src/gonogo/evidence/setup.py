"""A run's setup: versions, DeepSpeed config, launch command, script; from files or from its log.

Everything may be unknown, that is, None; a hazard that needs an unknown fact lowers its certainty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.version_range import parse_version
from gonogo.evidence.paths import open_for_reading
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import UserError, translated

if TYPE_CHECKING:
    from packaging.version import Version

MAX_FILE_BYTES = 8 << 20
"""Limit for a file given beside the log; anything larger is no config, script or launch command."""


class Setup(msgspec.Struct, frozen=True):
    """What is known of a failed run's setup: versions, DeepSpeed config, script, launch commands."""

    version_texts: Mapping[str, str] = {}
    """Package (canonical name) to version as stated: "0.14.2", "0.14.*", "2.1.0+cu118"."""
    deepspeed_config: Mapping[str, Any] | None = None
    deepspeed_config_text: str = ""
    launch: str = ""
    script: str = ""

    def version(self, package: str) -> Version | None:
        """The version of a package, or None if it isn't stated or isn't exact."""
        return parse_version(self.version_texts.get(canonical_package_name(package), ""))

    def release_numbers(self, package: str) -> tuple[int, ...] | None:
        """A package's version as numbers, as far as stated: (0, 14) for "0.14.*"; None if not stated."""
        found = re.match(r"v?(\d{1,6}(?:\.\d{1,6}){0,4})", self.version_texts.get(canonical_package_name(package), ""))
        return tuple(int(part) for part in found.group(1).split(".")) if found else None

    def config(self, *keys: str) -> Any:
        """A value of the DeepSpeed config, or None: ``config("zero_optimization", "stage")``."""
        value: Any = self.deepspeed_config
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    @property
    def zero_stage(self) -> int | None:
        """The ZeRO stage according to the config, or to the launch command; None if neither states it."""
        stage = self.config("zero_optimization", "stage")
        if isinstance(stage, int) and not isinstance(stage, bool):
            return stage
        text = f"{self.deepspeed_config_text}\n{self.launch}"
        found = re.search(r"""["']?(?:zero_stage|stage)["']?\s*[:=]\s*["']?([0-3])\b""", text) or re.search(
            r"(?i)(?:zero|ds_z|z|stage)[-_]?([0-3])(?![0-9])[\w-]*(?:\.json|\b)", self.launch
        )
        return int(found.group(1)) if found else None

    def offloads(self, states: str) -> bool | None:
        """True if the config offloads ``"optimizer"`` or ``"param"`` to CPU or NVMe; None if unknown."""
        if self.deepspeed_config is None:
            return True if f"offload_{states}" in self.deepspeed_config_text else None
        device = self.config("zero_optimization", f"offload_{states}", "device")
        legacy = self.config("zero_optimization", "cpu_offload" if states == "optimizer" else "cpu_offload_params")
        return device in ("cpu", "nvme") or legacy is True

    @property
    def launcher(self) -> str | None:
        """``"deepspeed"``, ``"torchrun"``, ``"accelerate"``, ``"swift"``, ``"llamafactory"`` …, or None."""
        for name, pattern in _LAUNCHER_PATTERNS:
            if pattern.search(self.launch):
                return name
        return None

    @property
    def processes_per_node(self) -> int | None:
        """Processes per node according to the launch command, if it states a number."""
        found = re.search(
            r"(?:--nproc[-_]per[-_]node|--num[-_]gpus|--num[-_]processes|NPROC_PER_NODE|--nproc)[= ]+(\d{1,5})\b",
            self.launch,
        )
        return int(found.group(1)) if found else None

    def mentions(self, pattern: str) -> bool:
        """True if the launch command, the script or the config matches ``pattern``, in :class:`Pattern`'s syntax."""
        return any(_compile_pattern(pattern).search(text) for text in self.texts)

    @property
    def texts(self) -> tuple[str, ...]:
        """Launch command, script and config, as far as known."""
        return tuple(filter(None, (self.launch, self.script, self.deepspeed_config_text)))


@cache
def _compile_pattern(pattern: str) -> Pattern:
    return Pattern(pattern)


_LAUNCHER_PATTERNS = tuple(
    (name, lazy_compile(pattern, re.MULTILINE))
    for name, pattern in (
        ("torchrun", r"\btorchrun\b|torch\.distributed\.(?:run|launch)|\bFORCE_TORCHRUN\b"),
        ("accelerate", r"\baccelerate(?:-launch| launch)|accelerate\.commands\.launch"),
        ("deepspeed", r"(?:^|[\s;&|/])deepspeed(?:\s|$)(?!=)|deepspeed\.launcher"),
        ("swift", r"\bswift (?:sft|pt|rlhf|dpo|infer|export)\b|swift/cli/"),
        ("llamafactory", r"\bllamafactory-cli\b"),
        ("slurm", r"\bsrun\b"),
        ("python", r"(?:^|[\s;&|/])python[\d.]*\s+(?:-[um]\s+)*\S+"),
    )
)


def read_setup(
    deepspeed_config: Path | None = None,
    launch: Path | None = None,
    script: Path | None = None,
    environment: Path | None = None,
) -> Setup:
    """The setup that files describe. Raises UserError if one can't be read, isn't text, or is broken JSON."""
    config_text = _read_option_file(deepspeed_config, "--deepspeed-config")
    return Setup(
        version_texts=dict(_read_versions(environment, _read_option_file(environment, "--environment")))
        if environment
        else {},
        deepspeed_config=parse_deepspeed_config(config_text),
        deepspeed_config_text=config_text,
        launch=_read_option_file(launch, "--launch"),
        script=_read_option_file(script, "--script"),
    )


def _read_option_file(path: Path | None, option: str) -> str:
    if path is None:
        return ""
    try:
        with open_for_reading(path) as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise OSError(0, "more than 8 MiB")
        return data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(
            translated("can't read {option} {path}: {why}").format(option=option, path=path, why=why)
        ) from None


def parse_deepspeed_config(text: str) -> Mapping[str, Any] | None:
    """A DeepSpeed config's JSON, or None if it isn't JSON (an excerpt, YAML): its text is then searched instead."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _read_versions(path: Path, text: str) -> Iterator[tuple[str, str]]:
    from gonogo.evidence.environment.reading import read_environment

    source = SourceFile(str(path), text.encode())
    environment = read_environment(source)
    if source.gap is not None:
        raise UserError(translated("can't read {path}: {why}").format(path=path, why=source.gap))
    if not environment.packages and environment.unread:
        raise UserError(environment.unread[0].reason)
    for name, package in environment.packages.items():
        found = re.fullmatch(r"={2,3}([^,]+)", package.specifier)
        if found is not None:
            yield name, found[1]

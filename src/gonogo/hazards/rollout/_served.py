"""The rollout servers that a script starts beside its training, and the GPUs that each is given."""

from __future__ import annotations

from collections.abc import Iterator

from gonogo.evidence.patterns import compiled_when_used
from gonogo.hazards.facts.shell_lines import ShellLine, is_shell_script, lines_from
from gonogo.hazards.rule import Launch

_SERVES = compiled_when_used(r"\b(?:trl vllm-serve|swift rollout|trl\.scripts\.vllm_serve)\b")
_DEVICES = compiled_when_used(r"CUDA_VISIBLE_DEVICES=[\"']?(\d{1,3}(?:,\d{1,3})*)[\"']?\s")
_OTHER_HOST = compiled_when_used(r"^\s*(?:srun|ssh|docker|kubectl)\b")


def server_lines(launch: Launch) -> Iterator[ShellLine]:
    """The lines of the launch's script that start a rollout server on this machine."""
    if (is_shell_script(launch.source) and b"rollout" in launch.source.data) or b"vllm-serve" in launch.source.data:
        for line in lines_from(launch.source, 1):
            if _SERVES.search(line.code) and not _OTHER_HOST.search(line.code):
                yield line


def served_gpus(launch: Launch) -> Iterator[tuple[ShellLine, list[str] | None]]:
    """Each server's line and its GPUs; None where the line sets none, and so nothing hides any from it."""
    lines = list(server_lines(launch))
    exported = lines and b"export CUDA_VISIBLE_DEVICES" in launch.source.data
    for line in lines:
        if devices := _DEVICES.search(line.code):
            yield line, devices.group(1).split(",")
        elif not exported and "CUDA_VISIBLE_DEVICES" not in line.code and not line.text.startswith(" "):
            yield line, None

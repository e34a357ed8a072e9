from collections.abc import Iterator

from gonogo.evidence.patterns import lazy_compile
from gonogo.hazards.facts.launch_facts import visible_gpus
from gonogo.hazards.facts.shell_lines import ShellLine, is_shell_script, lines_from
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated

_STARTS_ROLLOUT_SERVER_PATTERN = lazy_compile(r"\b(?:trl vllm-serve|swift rollout|trl\.scripts\.vllm_serve)\b")
_VISIBLE_DEVICES_PATTERN = lazy_compile(r"CUDA_VISIBLE_DEVICES=[\"']?(\d{1,3}(?:,\d{1,3})*)[\"']?\s")
_OTHER_HOST_PATTERN = lazy_compile(r"^\s*(?:srun|ssh|docker|kubectl)\b")


class RolloutServerOnTrainerGpu(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A server, started by the same script, on a GPU that is also visible to the trainer."""
        trainers = visible_gpus(launch)
        for line, server in rollout_server_gpus(launch):
            both = sorted(set(server) & set(trainers), key=server.index) if server and trainers else []
            if not both and (server is not None or trainers is not None):
                continue
            yield self.finding(
                self.texts["cause"].format(both=", ".join(both) if both else "0"),
                certainty=Certainty.CERTAIN if both else Certainty.LIKELY,
                spans=(
                    line.place().span(),
                    launch.place.span(translated("the trainer")),
                    launch.visible_devices.span(),
                ),
                confirm=self.confirm,
            )


def rollout_server_lines(launch: Launch) -> Iterator[ShellLine]:
    """The lines of the launch's script that start a rollout server on this machine."""
    if (is_shell_script(launch.source) and b"rollout" in launch.source.data) or b"vllm-serve" in launch.source.data:
        for line in lines_from(launch.source, 1):
            if _STARTS_ROLLOUT_SERVER_PATTERN.search(line.code) and not _OTHER_HOST_PATTERN.search(line.code):
                yield line


def rollout_server_gpus(launch: Launch) -> Iterator[tuple[ShellLine, list[str] | None]]:
    """The line that starts each server, with its GPUs; None if nothing restricts ``CUDA_VISIBLE_DEVICES`` for it."""
    lines = list(rollout_server_lines(launch))
    exported = lines and b"export CUDA_VISIBLE_DEVICES" in launch.source.data
    for line in lines:
        if devices := _VISIBLE_DEVICES_PATTERN.search(line.code):
            yield line, devices.group(1).split(",")
        elif not exported and "CUDA_VISIBLE_DEVICES" not in line.code and not line.text.startswith(" "):
            yield line, None

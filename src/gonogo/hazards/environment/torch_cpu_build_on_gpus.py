from gonogo.evidence.environment.compatibility import pypi_torch_cuda
from gonogo.evidence.log.context import is_outside_training
from gonogo.hazards.facts.installed import are_declared_in_files, describe_package, package_version_span
from gonogo.hazards.facts.on_npu import NPU_PATTERN
from gonogo.hazards.log_rule import log_mentions
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Field, Findings, Hazard, Pattern, Run, translated


class TorchCpuBuildOnGpus(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A CPU build of torch in a requirements file, with a launch that uses GPUs."""
        version = environment.version("torch")
        if version is None or version.local != "cpu" or not are_declared_in_files(environment, "torch"):
            return
        if any(environment.has(name) for name in _PLUGINS):
            return
        requested = _find_gpu_request(environment, run)
        if requested is None:
            return
        cuda = pypi_torch_cuda(version.public) or "12.4"
        yield self.finding(
            translated("{torch} was built without CUDA, but the run is supposed to use GPUs.").format(
                torch=describe_package(environment, "torch")
            ),
            cure=self.texts["cure"].format(version=version.public, cuda=cuda.replace(".", "")),
            spans=(package_version_span(environment, "torch"), requested.span()),
        )

    def in_log(self, log: FailureLog) -> Findings:
        """Errors of such a build when a tensor or a process group is to use a GPU."""
        for error in log.errors_of(says=_NOT_COMPILED_PATTERN):
            if log_mentions(log, NPU_PATTERN):
                return  # with torch_npu this build is right, and the code that asks for CUDA is wrong
            # Windows never has NCCL; a local script may not be meant for a GPU.
            nccl = "NCCL" in error.message
            if nccl and log_mentions(log, self.patterns["windows"]):
                continue
            # Only the version is certain evidence: plugins for any accelerator use such a build.
            certainty = Certainty.CERTAIN if log_mentions(log, _CPU_BUILD_PATTERN) and not nccl else Certainty.LIKELY
            if nccl and not error.frames and not log_mentions(log, _CPU_BUILD_PATTERN):
                certainty = Certainty.POSSIBLE
            yield self.log_finding(error, certainty=Certainty.POSSIBLE if is_outside_training(log) else certainty)
            return


_CPU_BUILD_PATTERN = Pattern(r"(?i)torch\S{0,3}\s?[=: ]{0,3}\s?\d[\d.]{2,7}\+cpu\b")
_NOT_COMPILED_PATTERN = Pattern(r"^Torch not compiled with CUDA enabled|Distributed package doesn't have NCCL built.in")
_PLUGINS = ("torch-npu", "habana-torch-plugin", "intel-extension-for-pytorch", "torch-xla", "torch-mlu", "torch-musa")


def _find_gpu_request(environment: Environment, run: Run) -> Field | None:
    """The evidence that the run uses NVIDIA GPUs; None if there is none."""
    launch = run.launch
    if launch is None or run.arguments.get("use_cpu").truth or run.arguments.get("no_cuda").truth:
        return None
    if launch.launcher == "deepspeed" and launch.launcher_options.get("num_gpus").number:
        return launch.launcher_options.get("num_gpus")
    visible = launch.visible_devices
    if visible.known and str(visible.value).strip() not in ("", "-1"):
        return visible
    for name in ("gpus-per-node", "gres", "gpus", "gpus-per-task"):
        requested = launch.slurm.get(name)
        if requested is not None and requested.known:
            return requested
    return Field.of(environment.gpus[0].name, launch.place) if environment.gpus else None

from gonogo.evidence.log.context import is_outside_training, is_under_zero3
from gonogo.evidence.log.failure_log import FailureLog, LineMatch, LoggedError
from gonogo.hazards.rule import Certainty, DeepSpeedConfig, Findings, Hazard, Pattern, Run, translated

_NOT_CUDA_PATTERN = Pattern(r"[Tt]ensors must be CUDA and dense")
_ZERO_FRAMES = (
    "deepspeed/runtime/zero",
    "deepspeed/runtime/engine.py",
    "deepspeed/runtime/utils.py",
    "strategies/deepspeed",
)
_UNRELATED_FRAMES = ("GatheredParameters", "partition_parameters.py", "ppo", "nn/parallel/distributed.py")


class Zero3OffloadCollectiveCpuTensorRegression(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """ZeRO-3 with offload under DeepSpeed 0.5.5."""
        if config.zero_stage != 3 or run.environment.within("deepspeed", "==0.5.5") is not True:
            return
        offload = next(
            (
                field
                for what in ("optimizer", "param")
                if (field := config.offload_target(what)).get() in ("cpu", "nvme")
            ),
            None,
        )
        if offload is None:
            return
        version = run.environment.field("deepspeed")
        edit = run.environment.replacing_version("deepspeed", "==0.5.6")
        yield self.finding(
            self.texts["cause_in_config"],
            spans=(
                version.span() or offload.span(),
                offload.span(translated("offloaded here")) if version.span() else None,
            ),
            fixes=self.fix(translated("Pin deepspeed 0.5.6"), edit, safe=False) if edit else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """NCCL's error about a CPU tensor; version, frames and setup tell how certain it is."""
        if is_outside_training(log):
            return
        evidence: LoggedError | LineMatch | None = next(log.errors_of(says=_NOT_CUDA_PATTERN), None) or log.find(
            _NOT_CUDA_PATTERN
        )
        certainty = _judge_certainty(evidence, log) if evidence is not None else None
        if evidence is None or certainty is None:
            return
        version = log.setup.version_texts.get("deepspeed")
        yield self.log_finding(
            evidence, self.texts["cause_in_log"].format(version=f" {version}" if version else ""), certainty=certainty
        )


def _judge_certainty(evidence: LoggedError | LineMatch, log: FailureLog) -> Certainty | None:
    release = log.setup.release_numbers("deepspeed")
    frames = evidence.frames if isinstance(evidence, LoggedError) else ()
    passes = isinstance(evidence, LoggedError) and evidence.passes(*_ZERO_FRAMES)
    elsewhere = isinstance(evidence, LoggedError) and evidence.passes(*_UNRELATED_FRAMES)
    zero3 = is_under_zero3(log)
    if zero3 is False:
        return None
    if frames and not passes:
        # NCCL's error is raised in torch.distributed: if the frames end before it, the traceback was shortened.
        return Certainty.POSSIBLE if _IN_A_TRAINER_PATTERN.search(frames[-1].path) else None
    if release is not None:
        if release[:3] in ((0, 5, 5), (0, 5)) and not elsewhere:
            return Certainty.CERTAIN
        return Certainty.LIKELY if release[:3] == (0, 5, 6) and not elsewhere else Certainty.POSSIBLE
    if elsewhere:
        return Certainty.POSSIBLE
    offloads = log.setup.offloads("optimizer") or log.setup.offloads("param") or log.find(_OFFLOAD_PATTERN) is not None
    return Certainty.LIKELY if passes or (zero3 and offloads) else Certainty.POSSIBLE


_IN_A_TRAINER_PATTERN = Pattern(
    r"pytorch_lightning/|lightning/pytorch/|transformers/trainer\.py|accelerate/accelerator\.py"
)
_OFFLOAD_PATTERN = Pattern(r"(?i)offload")

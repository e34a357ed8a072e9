from gonogo.hazards.rule import Certainty, Environment, Findings, LoggedHazard, Pattern, Run, Severity, Sign

_HIP_PATTERN = Pattern(
    r"invalid kernel file|hipErrorInvalidKernelFile|HIP error: invalid device function|hipErrorNoBinaryForGpu"
)
_INTEGRATED_GPU_PATTERN = Pattern(
    r"Radeon\(TM\) (?:\d+M )?Graphics|gfx103[5-7]|gfx90c|gfx1103|gfx1150|(?i:\bigpu\b|integrated gpu|核显)"
)


class VisibleGpuWithoutKernelsInBuild(LoggedHazard):
    signs = (
        Sign(says=_HIP_PATTERN, beside=_INTEGRATED_GPU_PATTERN),
        Sign(says=Pattern(r"no kernel image is available"), beside=_INTEGRATED_GPU_PATTERN),
        Sign(says=_HIP_PATTERN, certainty=Certainty.POSSIBLE),
    )

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """An integrated GPU among several GPUs, and nothing that hides it."""
        integrated = [gpu.name for gpu in environment.gpus if _INTEGRATED_GPU_PATTERN.search(gpu.name)]
        if not integrated or len(environment.gpus) < 2 or run.launch is None:
            return
        for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
            if not run.launch.variable(name).absent or environment.variable(name).known:
                return
        yield self.finding(
            self.texts["cause"].format(gpu=integrated[0]),
            certainty=Certainty.POSSIBLE,
            severity=Severity.WARNING,
            spans=run.launch.place.span(),
        )

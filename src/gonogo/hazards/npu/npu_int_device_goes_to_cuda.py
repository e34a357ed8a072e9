from gonogo.hazards.facts.installed import (
    are_declared_in_files,
    come_from_one_source,
    describe_package,
    package_version_span,
)
from gonogo.hazards.facts.on_npu import CUDA_NOT_COMPILED_PATTERN, NPU_PATTERN
from gonogo.hazards.log_rule import LoggedHazard, Sign, log_mentions
from gonogo.hazards.rule import Certainty, Environment, FailureLog, Findings, Pattern, Run

_FSDP2_PATTERN = Pattern(r"(?i)fsdp_?2|fully_shard|fsdp_version")


class NpuIntDeviceGoesToCuda(LoggedHazard):
    signs = (
        Sign(
            says=CUDA_NOT_COMPILED_PATTERN,
            beside=Pattern(r"torch(?:-npu)?==(?:1\.|2\.[0-4]\b|2\.5\.0)"),
            unless=_FSDP2_PATTERN,
        ),
        Sign(says=CUDA_NOT_COMPILED_PATTERN, beside=NPU_PATTERN, unless=_FSDP2_PATTERN, certainty=Certainty.LIKELY),
    )

    def in_log(self, log: FailureLog) -> Findings:
        """The error, if the log is of a machine with NPUs."""
        if log_mentions(log, NPU_PATTERN):
            yield from super().in_log(log)

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """torch_npu before 2.5.1 with a transformers that passes device numbers."""
        if not come_from_one_source(environment, "torch-npu", "transformers") or not are_declared_in_files(
            environment, "transformers"
        ):
            return
        if not environment.within("torch-npu", "<2.5.1") or not environment.within("transformers", ">4.49.0"):
            return
        yield self.finding(
            self.texts["cause"].format(
                transformers=describe_package(environment, "transformers"),
                npu=describe_package(environment, "torch-npu"),
            ),
            certainty=Certainty.LIKELY,
            cure=self.cures[:2],
            confirm=(),
            spans=(package_version_span(environment, "torch-npu"), package_version_span(environment, "transformers")),
        )

from gonogo.hazards.facts.installed import (
    certainty_of_package_versions,
    come_from_one_source,
    describe_package,
    package_version_span,
    pip_install,
    version_fixes,
)
from gonogo.hazards.facts.zero_usage import stage_span
from gonogo.hazards.rule import Certainty, Environment, Findings, LoggedHazard, Run, translated

_FAULTY_COMBINATIONS = (
    (
        ">=0.18.3,<0.18.7",
        ">=2.3,<2.5",
        ("deepspeed", ">=0.18.7"),
        translated(
            "it requests a gradient's graph node while gradients are disabled, and PyTorch up to 2.4 "
            "provides none in that case"
        ),
    ),
    (
        ">=0.18.3",
        "<2.3",
        ("deepspeed", "<0.18.3"),
        translated("it asserts on internals that only PyTorch 2.3 and newer have"),
    ),
)


class DeepspeedBackwardNeedsNewerTorch(LoggedHazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A DeepSpeed and an older torch that can't run a backward together, in a run with ZeRO."""
        stage = run.zero_stage
        if not stage or not come_from_one_source(environment, "deepspeed", "torch"):
            return
        for deepspeed, torch, install, why in _FAULTY_COMBINATIONS:
            if not environment.within("deepspeed", deepspeed) or not environment.within("torch", torch):
                continue
            sure = certainty_of_package_versions(environment, run, "deepspeed", "torch")
            yield self.finding(
                translated("{deepspeed} can't run a ZeRO-{stage} backward with {torch}: {why}.").format(
                    deepspeed=describe_package(environment, "deepspeed"),
                    torch=describe_package(environment, "torch"),
                    stage=stage,
                    why=why,
                ),
                certainty=sure if stage > 1 else Certainty.LIKELY,  # ZeRO-1 has these hooks only with overlap_comm
                cure=(pip_install(*install), self.cures[1]),
                spans=(
                    package_version_span(environment, "deepspeed"),
                    package_version_span(environment, "torch"),
                    stage_span(run),
                ),
                fixes=version_fixes(environment, *install),
                confirm=() if sure is Certainty.CERTAIN and stage > 1 else self.confirm,
            )
            return

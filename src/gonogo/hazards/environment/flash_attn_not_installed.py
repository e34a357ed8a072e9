from gonogo.hazards.environment._machine import flash_attention_request, weakest_gpu
from gonogo.hazards.rule import Environment, Field, Findings, Run
from gonogo.hazards.version_rule import PackageNotInstalled


class FlashAttnNotInstalled(PackageNotInstalled):
    def requested_by(self, run: Run) -> tuple[str, Field] | None:
        """The attention setting that needs flash-attn; not for LLaMA-Factory, which warns and continues without."""
        use = flash_attention_request(run) if run.framework != "llamafactory" else None
        return (str(use.value), use) if use is not None else None

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """flash-attn requested but not installed, on GPUs that support it: older ones are another hazard."""
        card = weakest_gpu(environment)
        if card is None or card[1] >= (8, 0):
            yield from super().in_environment(environment, run)

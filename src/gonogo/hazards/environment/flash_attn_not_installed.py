from gonogo.hazards.environment._machine import flash_attention_request, weakest_gpu
from gonogo.hazards.rule import Environment, Field, Findings, Run
from gonogo.hazards.version_rule import NotInstalled


class FlashAttnNotInstalled(NotInstalled):
    def asked(self, run: Run) -> tuple[str, Field] | None:
        """An attention that needs it; LLaMA-Factory warns, and goes on without."""
        use = flash_attention_request(run) if run.framework != "llamafactory" else None
        return (str(use.value), use) if use is not None else None

    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """It is asked for and not there, on cards that it would run on: older ones are another hazard."""
        card = weakest_gpu(environment)
        if card is None or card[1] >= (8, 0):
            yield from super().in_environment(environment, run)

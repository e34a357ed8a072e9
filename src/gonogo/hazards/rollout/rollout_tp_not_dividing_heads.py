from gonogo.evidence.config.model import read_model_config
from gonogo.hazards.facts.divisors import smallest_divisors_text
from gonogo.hazards.rollout._settings import find_verl_launch
from gonogo.hazards.rule import Findings, Launch, LoggedHazard, Run, translated, whole_number


class RolloutTpNotDividingHeads(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """A tensor-parallel size of the engine that doesn't divide the attention heads in the model's config.json."""
        command = find_verl_launch(launch, run)
        if command is not None:
            field = command.field("actor_rollout_ref.rollout.tensor_model_parallel_size")
            name = command.field("actor_rollout_ref.model.path").string
            model = read_model_config(name, launch.cwd) if name else None
        else:
            field, model = run.arguments.get("vllm_tensor_parallel_size"), run.model
        size = whole_number(field)
        heads = model.first_value("num_attention_heads", "n_head") if model is not None else None
        if size is None or size < 2 or not isinstance(heads, int) or heads % size == 0:
            return
        yield self.finding(
            self.texts["cause"].format(heads=heads, size=size),
            cure=translated("Use a divisor of {heads}: {divisors}").format(
                heads=heads, divisors=smallest_divisors_text(heads)
            ),
            spans=(field.span(), launch.place.span()),
        )

from gonogo.hazards.facts.divisors import smallest_divisors_text
from gonogo.hazards.rollout._settings import colocation_option, find_verl_launch
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated, whole_number


class RolloutTpNotDividingWorld(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """An engine's tensor-parallel size that doesn't divide verl's GPUs, or a colocated trainer's processes."""
        command = find_verl_launch(launch, run)
        if command is not None:
            size, gpus = command.number("actor_rollout_ref.rollout.tensor_model_parallel_size"), command.gpus
            if size is None or gpus is None or not (size.is_overridden or gpus.is_overridden):
                return
            tp, world, given = size.value, gpus.value, (size.span, gpus.span)
            sure = command.field("actor_rollout_ref.rollout.name").get("vllm") in ("vllm", "sglang")
        elif (mode := colocation_option(run)) is not None:
            field = run.arguments.get("vllm_tensor_parallel_size")
            size_given, processes = whole_number(field), run.world_size
            if size_given is None or processes is None:
                return
            tp, world, given, sure = size_given, processes, (field.span(), mode.span()), True
        else:
            return
        if tp < 1 or world % tp == 0:
            return
        yield self.finding(
            translated("The engine's tensor-parallel size {tp} does not divide {world} GPUs.").format(
                tp=tp, world=world
            ),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=translated("Use a divisor of {world}: {divisors}").format(
                world=world, divisors=smallest_divisors_text(world)
            ),
            spans=(*given, launch.place.span()),
        )

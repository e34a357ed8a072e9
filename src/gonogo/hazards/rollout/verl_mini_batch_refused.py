from gonogo.hazards.rollout._settings import find_verl_launch
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run

_MINI_BATCH_SIZE_KEY = "actor_rollout_ref.actor.ppo_mini_batch_size"


class VerlMiniBatchRefused(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's mini-batch against its batch size and GPUs, if the command sets them."""
        command = find_verl_launch(launch, run)
        if command is None or command.on_megatron:
            return
        batch, mini = command.number("data.train_batch_size"), command.number(_MINI_BATCH_SIZE_KEY)
        generations, gpus = command.number("actor_rollout_ref.rollout.n"), command.gpus
        if batch is None or mini is None or not (batch.is_overridden or mini.is_overridden):
            return
        dynamic = command.field("actor_rollout_ref.actor.use_dynamic_bsz")  # with it verl does not compare the two
        has_fixed_size = dynamic.absent or dynamic.truth is False
        sure = (
            Certainty.CERTAIN if batch.is_overridden and mini.is_overridden and has_fixed_size else Certainty.POSSIBLE
        )
        if mini.value > batch.value and dynamic.truth is not True:
            cause = self.texts["mini_batch_too_large_cause"].format(mini=mini.value, batch=batch.value)
        elif generations and gpus and gpus.is_overridden and mini.value * generations.value < gpus.value:
            cause = self.texts["no_sample_per_gpu_cause"].format(mini=mini.value, n=generations.value, gpus=gpus.value)
            sure = Certainty.LIKELY
        else:
            return
        yield self.finding(
            cause,
            certainty=sure,
            spans=(mini.span or batch.span, batch.span if mini.span else None, launch.place.span()),
        )

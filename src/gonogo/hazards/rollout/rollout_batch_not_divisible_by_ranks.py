from gonogo.hazards.rollout._settings import VerlLaunch, find_verl_launch
from gonogo.hazards.rule import Certainty, Findings, Launch, LoggedHazard, Run, translated


class RolloutBatchNotDivisibleByRanks(LoggedHazard):
    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """verl's ``train_batch_size`` × ``rollout.n``, if the GPUs of all nodes don't divide it."""
        command = find_verl_launch(launch, run)
        if command is None or command.on_megatron:
            return
        gpus = command.gpus
        batch, generations = command.number("data.train_batch_size"), command.number("actor_rollout_ref.rollout.n")
        if gpus is None or batch is None or generations is None or not (batch.is_overridden or gpus.is_overridden):
            return
        real = batch.value * generations.value
        if real % gpus.value == 0:
            return
        filled = _is_batch_padded(command, run)
        if filled is True:
            return
        sure = batch.is_overridden and gpus.is_overridden and filled is False
        yield self.finding(
            self.texts["cause"].format(batch=batch.value, n=generations.value, real=real, gpus=gpus.value),
            certainty=Certainty.CERTAIN if sure else Certainty.LIKELY,
            cure=translated("Set data.train_batch_size to {less} or {more}").format(
                less=max(batch.value // gpus.value, 1) * gpus.value, more=(batch.value // gpus.value + 1) * gpus.value
            ),
            spans=(batch.span or gpus.span, generations.span, gpus.span, launch.place.span()),
            confirm=(self.texts["check_verl_version"],) if filled is None else self.confirm,
        )


def _is_batch_padded(command: VerlLaunch, run: Run) -> bool | None:
    """Whether verl pads the batch to a multiple with samples that don't count; None if unknown.

    Its new trainer does so from 0.9 on, but checks divisibility first if the batch size is fixed.
    """
    dynamic = command.field("actor_rollout_ref.actor.use_dynamic_bsz")
    trainer = command.field("trainer.use_v1")
    new = run.environment.within("verl", ">=0.9")
    if dynamic.absent or dynamic.truth is False or trainer.truth is False or new is False:
        return False
    return True if new and dynamic.truth and (trainer.absent or trainer.truth) else None

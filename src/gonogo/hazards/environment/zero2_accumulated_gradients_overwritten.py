from gonogo.hazards.version_rule import Around, UnfitVersions
from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, Run, Text


class Zero2AccumulatedGradientsOverwritten(UnfitVersions):
    """DeepSpeed 0.17.6 to 0.18.2: under ZeRO-2 only the last accumulated micro-batch counts.
    ## What happens
    Nothing is raised. grad_norm is a fraction of what an older DeepSpeed shows, the loss falls slower, and results
    are worse than under ZeRO-1 or ZeRO-3 with all else the same.
    ## Why
    In `independent_gradient_partition_epilogue` (stage_1_and_2.py) 0.17.6 gathers gradients in `all_grad_tensors`,
    but asks `averaged_gradients` whether it holds some already. That one is filled at the last micro-batch only, so
    each micro-batch takes the place of those before it. 0.18.3 asks the right one.
    ## Example
    ```text
    deepspeed==0.18.2    # wrong, with ZeRO-2 and gradient accumulation
    deepspeed==0.18.3    # right
    ```
    ## Cure
    Install DeepSpeed 0.18.3 or newer, or 0.17.5. Repeat runs that were made so.
    ## When it is safe
    Without gradient accumulation, with the optimizer offloaded to the CPU, under ZeRO-1 or ZeRO-3.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/7718: losses and gradient norms of releases side by side
    - https://github.com/huggingface/trl/issues/4540: stage 1 against stage 2; 0.18.3 settles it
    - https://github.com/huggingface/accelerate/issues/3877: worse with gradient accumulation under ZeRO-2
    - https://github.com/deepspeedai/DeepSpeed/blob/v0.18.2/deepspeed/runtime/zero/stage_1_and_2.py: the condition, in
      independent_gradient_partition_epilogue
    """

    name = "zero2-accumulated-gradients-overwritten"
    title = Text(
        "This DeepSpeed drops accumulated gradients under ZeRO-2", "此版本 DeepSpeed 在 ZeRO-2 下丢弃累积的梯度"
    )
    versions = (("deepspeed", ">=0.17.6,<0.18.3"),)
    install = ("deepspeed", ">=0.18.3")
    cause = Text(
        "Under ZeRO-2 {deepspeed} keeps the gradients of the last accumulated micro-batch only: {lost}. Nothing is "
        "raised.",
        "{deepspeed} 在 ZeRO-2 下只保留最后一个累积的 micro-batch 的梯度：{lost}。没有任何报错。",
    )
    cure = (Text("Or ZeRO-1 or ZeRO-3", "或使用 ZeRO-1 或 ZeRO-3"),)
    confirm = (Text("gradient_accumulation_steps is above 1", "梯度累积步数大于 1"),)

    def around(self, run: Run) -> Around | None:
        """Stage 2, more than one accumulated micro-batch, and the optimizer on the device."""
        config = run.config
        if config is None or config.zero_stage != 2:
            return None
        if config.offload("optimizer").get("none") not in (None, "none"):
            return None
        given = config.get("gradient_accumulation_steps")
        steps = given.number
        if steps == 1 or given.absent:
            return None
        lost = Text("the others are lost", "其余全部丢失")
        if steps is not None:
            lost = Text("{rest} of {steps} are lost in each step", "每步的 {steps} 个中丢失 {rest} 个")
            lost = lost.format(rest=int(steps) - 1, steps=int(steps))
        place = given.place or config.raw("gradient_accumulation_steps").place
        label = Text("gradients are accumulated", "在此累积梯度")
        return Around(
            {"lost": lost},
            (place.span(label) if place is not None else None, stage_span(run)),
            Certainty.POSSIBLE if steps is None else Certainty.CERTAIN,
        )

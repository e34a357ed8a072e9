import re

from gonogo.evidence.log.failure_log import is_library
from gonogo.evidence.patterns import compiled_when_used
from gonogo.hazards.device._made_in_forward import made_in_forward
from gonogo.hazards.facts.mismatch_in_log import LoggedMismatch, Owner, is_models, mismatches_in
from gonogo.hazards.rule import Certainty, FailureLog, Findings, Hazard, Run, Script, Text

_NAME = compiled_when_used(
    r"\b(input_ids|\w*labels?|targets?|\w*mask\w*|position_ids|token_type_ids|pixel_values|\w*grid_thw|input_values"
    r"|input_features|timesteps?|batch|inputs|images?)\b",
    re.IGNORECASE,
)
_ARGUMENTS = {"index": "input_ids", "indices": "input_ids", "target": "labels", "mat2": "position_ids"}


class DeviceMismatchInputNotMoved(Hazard):
    """An input, a label or a mask is on the CPU while the model is on the GPU.

    ## What happens
    "Expected all tensors to be on the same device" where ids meet an embedding ("argument index in method
    wrapper_CUDA__index_select"), labels meet logits ("argument target ... nll_loss_forward"), or a mask is added to
    scores. torch 2.8 and later name it: "got index is on cpu, different from other tensors on cuda:0".

    ## Why
    Trainer and accelerate move what the collator returns as tensors in a dict, and nothing else: not tensors in nested
    objects, not what `compute_loss`, a custom `forward` or a callback makes (`torch.zeros(n)`), not a batch of a
    DataLoader that was never given to `accelerator.prepare`. DeepSpeed's engine moves nothing at all.

    ## Example
    ```python
    outputs = engine(**batch)                                                        # wrong: the batch is on the CPU
    outputs = engine(**{k: v.to(engine.device) for k, v in batch.items()})           # right
    ```

    ## Cure
    `batch = {k: v.to(model.device) for k, v in batch.items()}` in your own loop; make tensors where they are used
    (`torch.arange(n, device=x.device)`); give DataLoaders to `accelerator.prepare`. Under ZeRO-3 take the device from
    `engine.device`, since `next(model.parameters()).device` may be the CPU.

    ## When it is safe
    A CPU tensor without dimensions (a number) may meet GPU tensors.

    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/issues/6840: index on the CPU in a custom trainer
    - https://github.com/ethz-spylab/rlhf_trojan_competition/issues/5: the attention mask was not moved
    - https://github.com/huggingface/transformers/pull/43369: position ids on the CPU in the rotary embedding
    """

    name = "device-mismatch-input-not-moved"
    title = Text(
        en="An input, a label or a mask was not moved to the model's device", zh="输入、标签或掩码没有移到模型所在设备"
    )
    log_words = ("Expected all tensors to be on the same device", "but expected it to be on GPU")
    yields_to = ("dataparallel-plain-python-multi-gpu",)

    def in_script(self, script: Script, run: Run) -> Findings:
        """A tensor made in a forward without a device, and met there by the inputs or given to a layer."""
        for made in made_in_forward(script, run):
            device = f"{made.beside}.device" if made.beside else "x.device"
            edit = script.setting_keyword(made.call, "device", device) if made.beside else None
            yield self.finding(
                Text(
                    en="{factory} in {owner}.forward makes its tensor on the CPU, and {use} meets it with what is on "
                    "the GPU.",
                    zh="{owner}.forward 中的 {factory} 在 CPU 上创建张量，而 {use} 让它与 GPU 上的内容一起参与计算。",
                ).format(factory=script.qualified(made.call.func), owner=made.owner, use=made.used_by),
                certainty=Certainty.LIKELY,
                cure=(
                    Text(
                        "Make it where the input is: {factory}(..., device={device})",
                        "在输入所在设备上创建：{factory}(..., device={device})",
                    ).format(factory=script.qualified(made.call.func), device=device),
                ),
                spans=(
                    script.place(made.call).span(),
                    script.place(made.use).span(Text("used here", "在此处使用")) if made.use is not made.call else None,
                ),
                fixes=(self.fix(Text("Make it on the input's device", "在输入所在设备上创建"), edit, safe=False),)
                if edit is not None
                else (),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """A mismatch whose operand on the CPU is no weight: by the operator's argument, or the line that calls it."""
        for mismatch in mismatches_in(log):
            certainty = _certainty(mismatch)
            if certainty is None:
                continue
            name = _name(mismatch)
            yield self.log_finding(
                mismatch.evidence,
                Text(
                    en="{told}. What is on the CPU is no weight of the model, but {name}.",
                    zh="{told}。位于 CPU 的不是模型的权重，而是{name}。",
                ).format(
                    told=mismatch.told,
                    name=Text(f"an input or a tensor made on the way ({name})", f"输入或途中创建的张量（{name}）")
                    if name
                    else Text("an input or a tensor made on the way", "输入或途中创建的张量"),
                )
                if certainty is not Certainty.POSSIBLE
                else Text(
                    en="{told}. Most often that is an input, a label or a mask that nobody moved to the GPU.",
                    zh="{told}。最常见的是没有移到 GPU 的输入、标签或掩码。",
                ).format(told=mismatch.told),
                cure=(
                    Text(
                        en="Move the batch to the model before the forward: batch = {batch}",
                        zh="前向之前把 batch 移到模型所在设备：batch = {batch}",
                    ).format(batch="{k: v.to(model.device) for k, v in batch.items()}"),
                    Text(
                        en="Make tensors where they are used: torch.zeros(n, device=x.device), mask.to(x.device)",
                        zh="在使用处创建张量：torch.zeros(n, device=x.device)、mask.to(x.device)",
                    ),
                ),
                certainty=certainty,
                module=mismatch.module,
                confirm=(
                    Text(
                        en="Print the device of every tensor on the line that fails: the one on cpu is to be moved",
                        zh="打印出错行上每个张量的 device：位于 cpu 的就是要移动的",
                    ),
                ),
            )


def _certainty(mismatch: LoggedMismatch) -> Certainty | None:
    if not mismatch.with_host:
        return None
    if mismatch.owner is Owner.INPUT:
        caller = mismatch.caller
        if mismatch.on_host == "ids" or caller is None or not is_library(caller.path):
            return Certainty.LIKELY
        return Certainty.LIKELY if mismatch.on_host else Certainty.POSSIBLE
    # A bare line, and a line that uses an attribute of the user's own, leave it open.
    unclear = mismatch.owner is Owner.UNKNOWN and (mismatch.bare or not mismatch.of_engine)
    own = mismatch.owner is Owner.BUFFER and mismatch.caller is not None and not is_models(mismatch.caller)
    return Certainty.POSSIBLE if mismatch.devices and (unclear or own) else None


def _name(mismatch: LoggedMismatch) -> str | None:
    if mismatch.caller is not None and (found := _NAME.search(mismatch.caller.code)):
        return found.group(1)
    return _ARGUMENTS.get(mismatch.argument or "") if mismatch.on_host == "ids" else None

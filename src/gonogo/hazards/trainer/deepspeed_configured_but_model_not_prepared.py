import ast

from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class DeepspeedConfiguredButModelNotPrepared(LoggedHazard):
    """accelerator.backward finds no DeepSpeed engine.
    ## What happens
    `AttributeError: 'NoneType' object has no attribute 'backward'` at
    `self.deepspeed_engine_wrapped.backward(loss)`, or `'Accelerator' object has no attribute
    'deepspeed_engine_wrapped'`, at the first backward.
    ## Why
    The engine is made in `accelerator.prepare(model, optimizer, ...)`. A program that prepares models one by one
    with its own DeepSpeed plugins, only the data loader, or another Accelerator, leaves this one without; so does a
    config left by `accelerate config` that says DEEPSPEED for a program that was not written for it.
    ## Example
    ```python
    loader = accelerator.prepare(loader)                                             # wrong
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)         # right
    accelerator.backward(loss)
    ```
    ## Cure
    Call accelerator.prepare(model, optimizer, dataloader) before the loop, on the Accelerator that calls backward.
    Or start it as its authors do: their own accelerate config, or remove distributed_type: DEEPSPEED from the
    default one.
    ## When it is safe
    Where model and optimizer go through one prepare call of the Accelerator whose backward is called.
    ## Sources
    - https://github.com/bytedance/UNO/issues/45: several models with plugins of their own, and a default config
    - https://github.com/huggingface/accelerate/issues/2159: prepare was missing
    - https://github.com/zhenye234/LLaSA_training/issues/35: a LoRA fine-tune
    """

    name = "deepspeed-configured-but-model-not-prepared"
    title = Text(
        "accelerate is to train with DeepSpeed, and the model was never prepared",
        "accelerate 配置为使用 DeepSpeed，而模型从未 prepare",
    )
    log_words = ("object has no attribute 'backward'", "deepspeed_engine_wrapped")
    ends_at = (("accelerate/accelerator.py", "self.deepspeed_engine_wrapped.backward("),)
    signs = (
        Sign(
            says=Pattern(r"'NoneType' object has no attribute 'backward'"),
            types=("AttributeError",),
            innermost=("deepspeed_engine_wrapped", "accelerate/"),
            frames=(("deepspeed_engine_wrapped",),),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=Pattern(r"'Accelerator' object has no attribute 'deepspeed_engine_wrapped'")),
        Sign(
            says=Pattern(r"'NoneType' object has no attribute 'backward'"),
            types=("AttributeError",),
            beside=Pattern(r"(?i)deepspeed"),
        ),
    )
    cause = Text(
        "accelerate's state says DeepSpeed, and no engine was made: accelerator.prepare was not called with the model.",
        "accelerate 的状态为 DeepSpeed，但没有创建引擎：没有用模型调用 accelerator.prepare。",
    )
    cures = (
        Text(
            "Call accelerator.prepare(model, optimizer, dataloader) before the loop, on the Accelerator that "
            "calls backward",
            "在循环之前、由调用 backward 的 Accelerator 执行 accelerator.prepare(model, optimizer, dataloader)",
        ),
        Text(
            "Or start it as its authors do: their own accelerate config, or remove distributed_type: "
            "DEEPSPEED from the default one",
            "或按作者的方式启动：使用其 accelerate 配置，或从默认配置中去掉 distributed_type: DEEPSPEED",
        ),
    )
    confirm = Text(
        "accelerator.deepspeed_engine_wrapped is None before the first backward",
        "首次反向之前 accelerator.deepspeed_engine_wrapped 为空",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """accelerator.backward under DeepSpeed in a program that prepares nothing."""
        if run.deepspeed_on is not True or b"prepare" in script.source.data or len(run.scripts) > 1:
            return
        if next(script.calls("accelerate.Accelerator"), None) is None:
            return
        for call in script.calls("*.backward"):
            func = call.node.func
            if isinstance(func, ast.Attribute) and "accelerate.Accelerator" in script.kinds_of(func.value):
                yield self.finding(self.cause, certainty=Certainty.LIKELY, cure=self.cures, spans=call.place.span())
                return

import ast

from gonogo.hazards.fsdp._mixed import GENERATES, MIXED, RECOMPUTES
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_LOADERS = ("weight_loader", "load_weights", "load_dtensor_weights")
"""Functions that copy weights into an engine: no method of the model runs."""


class Fsdp2MethodOutsideForward(LoggedHazard):
    """FSDP2 gathers parameters in forward only: generate() and other methods meet DTensors.
    ## What happens
    `got mixed torch.Tensor and DTensor` (often `aten.embedding.default`) below `model.generate(...)`, in
    evaluation, GRPO or another online method.
    ## Why
    The hooks that gather the root's parameters (embedding, head) hang on the root's `forward`. A method beside it
    runs parts of the model without them. `register_fsdp_forward_method` names further methods; transformers did not
    call it for `generate` before pull 42436.
    ## Example
    ```python
    # wrong
    fully_shard(model)
    model.generate(**inputs)
    # right
    fully_shard(model)
    register_fsdp_forward_method(model, "generate")
    model.generate(**inputs)
    ```
    ## Cure
    Register the method after fully_shard: torch.distributed.fsdp.register_fsdp_forward_method(model, "generate").
    Or upgrade transformers (with pull 42436) and trl; or model.unshard() before, model.reshard() after. In GRPO:
    generate with vLLM (use_vllm) instead of the trained model.
    ## When it is safe
    Where only `model(...)` is called, or the method was registered.
    ## Sources
    - https://github.com/huggingface/trl/issues/4550: generate() in GRPO with FSDP2 and LoRA
    - https://github.com/huggingface/transformers/pull/42436: registers generate
    - https://github.com/pytorch/pytorch/issues/153354: what the message means in FSDP2
    """

    name = "fsdp2-method-outside-forward"
    title = Text(
        "A method other than forward is called on an FSDP2 model, and meets sharded parameters",
        "在 FSDP2 模型上调用了 forward 以外的方法，遇到被切分的参数",
    )
    log_words = ("mixed torch.Tensor and DTensor",)
    ends_at = (("tensor/_dispatch.py", "_try_replicate_spec_for_scalar_tensor"),)
    yields_to = ("fsdp2-lora-mixed-dtensor",)
    signs = (
        Sign(says=MIXED, frames=(GENERATES,), outside=_LOADERS),
        Sign(
            says=Pattern(r"aten\.embedding[.\w]*:? got mixed torch\.Tensor"),
            outside=RECOMPUTES,
            certainty=Certainty.POSSIBLE,
        ),
        Sign(
            says=MIXED,
            outside=(*RECOMPUTES, *_LOADERS, "clip_grad", "torch/optim/", "foreach_reduce", "peft/"),
            unless=Pattern(r"(?:_foreach_\w+|chunk_cat|aten\.copy_|npu\.\w+)[.\w]*:? got mixed"),
            certainty=Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "A method of the model other than forward ran: FSDP2 had its parameters sharded (DTensors), and the "
        "inputs are plain tensors.",
        "运行了模型的 forward 以外的方法：FSDP2 的参数此时是切分状态（DTensor），而输入是普通张量。",
    )
    cures = (
        Text(
            "Register the method after fully_shard: "
            'torch.distributed.fsdp.register_fsdp_forward_method(model, "generate")',
            '在 fully_shard 之后登记该方法：torch.distributed.fsdp.register_fsdp_forward_method(model, "generate")',
        ),
        Text(
            "Or upgrade transformers (with pull 42436) and trl; or model.unshard() before, model.reshard() after",
            "或升级 transformers（含 pull 42436）与 trl；或之前调用 model.unshard()、之后调用 model.reshard()",
        ),
        Text(
            "In GRPO: generate with vLLM (use_vllm) instead of the trained model",
            "GRPO 中：用 vLLM 生成（use_vllm），而不是被训练的模型",
        ),
    )
    confirm = Text(
        "The traceback passes generate() or another method that calls parts of the model",
        "traceback 经过 generate() 或其他调用模型局部的方法",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """generate() on what fully_shard was given, which nobody registered."""
        if b"fully_shard" not in script.source.data or b"register_fsdp_forward_method" in script.source.data:
            return
        sharded = {
            script.place(call.node.args[0]).text
            for call in script.calls(
                "torch.distributed.fsdp.fully_shard", "torch.distributed._composable.fsdp.fully_shard"
            )
            if call.node.args
        }
        for call in script.calls("*.generate"):
            model = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            if model is None or script.place(model).text not in sharded or b".unshard()" in script.source.data:
                continue
            yield self.finding(
                self.cause_in_script.format(name=script.place(model).text),
                certainty=Certainty.LIKELY,
                cure=self.cures[:2],
                spans=call.place.span(),
            )

    cause_in_script = Text(
        "{name} is sharded by fully_shard, whose hooks run with forward alone: generate() meets sharded parameters.",
        "{name} 由 fully_shard 切分，其钩子只随 forward 运行：generate() 会遇到被切分的参数。",
    )

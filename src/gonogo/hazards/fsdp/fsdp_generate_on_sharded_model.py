import ast

from gonogo.hazards.fsdp._flat import FLAT, UNDER_FSDP, UNDER_ZERO
from gonogo.hazards.rule import Certainty, Findings, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class FsdpGenerateOnShardedModel(LoggedHazard):
    """FSDP gathers a module's parameters in its forward; generate() of the model inside goes past the root's.
    ## What happens
    `RuntimeError: 'weight' must be 2-D` (embedding), `mat2 must be a matrix, got 1-D tensor`, or `size mismatch,
    got input ..., vec (0)` below `generate`, in evaluation or sampling under FSDP.
    ## Why
    `model.generate` of an `FullyShardedDataParallel` is the wrapped model's own method: the root's hooks, which
    gather embedding and head, do not run. They hold a flat shard.
    ## Example
    ```python
    # wrong
    model.generate(**inputs)
    # right: on all ranks
    with FSDP.summon_full_params(model, writeback=False, recurse=False):
        model.generate(**inputs, synced_gpus=True)
    ```
    ## Cure
    Generate inside FSDP.summon_full_params(model, writeback=False, recurse=False), on all ranks and with
    synced_gpus=True. Call the model once forward before the first generate(), so that FSDP has set itself up. Or
    evaluate in a program of its own, from the saved model.
    ## When it is safe
    After `summon_full_params` on all ranks, or on a model that is not wrapped.
    ## Sources
    - https://github.com/pytorch/pytorch/issues/124019: 'weight' must be 2-D, under FSDP
    - https://github.com/huggingface/accelerate/issues/2301: a weight that lost its dimensions under FSDP
    - https://github.com/huggingface/trl/issues/4550: the same under FSDP2
    """

    name = "fsdp-generate-on-sharded-model"
    title = Text(
        "generate() runs on an FSDP model whose parameters are sharded", "在参数被切分的 FSDP 模型上运行 generate()"
    )
    log_words = ("must be 2-D", "must be a matrix", "size mismatch, got", "not allocated yet")
    ends_at = (("torch/nn/functional.py", "torch.embedding("),)
    signs = (
        Sign(
            says=FLAT,
            frames=(("generation/utils.py", "generate"),),
            outside=("deepspeed/",),
            beside=UNDER_FSDP,
            unless=UNDER_ZERO,
        ),
    )
    cause = Text(
        "generate() reached a weight that FSDP holds as a flat shard: the root's forward, which gathers it, "
        "was not called.",
        "generate() 用到 FSDP 以展平分片保存的权重：负责聚合它的根模块 forward 没有被调用。",
    )
    cures = (
        Text(
            "Generate inside FSDP.summon_full_params(model, writeback=False, recurse=False), on all ranks "
            "and with synced_gpus=True",
            "在所有 rank 上、于 FSDP.summon_full_params(model, writeback=False, recurse=False) 之内生成，并设"
            " synced_gpus=True",
        ),
        Text(
            "Call the model once forward before the first generate(), so that FSDP has set itself up",
            "首次 generate() 之前先调用一次 forward，使 FSDP 完成初始化",
        ),
        Text("Or evaluate in a program of its own, from the saved model", "或用单独的程序从保存的模型评估"),
    )
    confirm = Text(
        "The traceback passes generation/utils.py below an FSDP model",
        "traceback 在 FSDP 模型之下经过 generation/utils.py",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """generate() on what FSDP wrapped, outside of summon_full_params."""
        if b"FullyShardedDataParallel" not in script.source.data or b"summon_full_params" in script.source.data:
            return
        wrapped = {
            target.id
            for call in script.calls("*.FullyShardedDataParallel", "torch.distributed.fsdp.FSDP")
            if isinstance(made := script.statement(call.node), ast.Assign)
            for target in made.targets
            if isinstance(target, ast.Name)
        }
        for call in script.calls("*.generate"):
            model = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
            if isinstance(model, ast.Name) and model.id in wrapped:
                yield self.finding(
                    self.cause_in_script.format(name=model.id),
                    certainty=Certainty.LIKELY,
                    cure=self.cures,
                    spans=call.place.span(),
                )

    cause_in_script = Text(
        "{name} is wrapped by FSDP, and generate() is the wrapped model's own: the root's parameters are not gathered "
        "for it.",
        "{name} 由 FSDP 包装，而 generate() 是被包装模型自己的方法：根模块的参数不会为它聚合。",
    )

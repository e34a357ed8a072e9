import ast

from gonogo.evidence.patterns import Match
from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_WRAPPER = Pattern(
    r"'(?P<wrapper>DistributedDataParallel|DataParallel|DeepSpeedEngine|FullyShardedDataParallel|OptimizedModule|DDP)' "
    r"object has no attribute '(?P<attribute>[a-zA-Z]\w*)'"
)
_OWN = ("generate", "save_pretrained", "config", "resize_token_embeddings", "gradient_checkpointing_enable", "dtype")
_WRAPPERS = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel", "torch.nn.parallel.DataParallel")


class AttributeOfWrappedModel(LoggedHazard):
    """DistributedDataParallel forwards nothing but the call.
    ## What happens
    `AttributeError: 'DistributedDataParallel' object has no attribute 'config'` (`generate`, `save_pretrained`,
    `dtype`, a head's name), with several processes; with one it works.
    ## Why
    The wrapper is a module of its own, with the model as `.module`. DataParallel does the same; DeepSpeed's engine
    forwards most attributes, FSDP some.
    ## Example
    ```python
    model = DistributedDataParallel(model)
    model.generate(**inputs)             # wrong
    model.module.generate(**inputs)      # right; or accelerator.unwrap_model(model)
    ```
    ## Cure
    Ask the model inside: model.module.…, or accelerator.unwrap_model(model).…. For what has to run through the
    wrapper (its forward, in training): put it into the model's forward.
    ## When it is safe
    Where the model is unwrapped before it is asked.
    ## Sources
    - https://github.com/huggingface/diffusers/issues/2044: dtype
    - https://github.com/thuanz123/realfill/issues/8: base_model in a hook of save_state
    - https://github.com/VinAIResearch/XPhoneBERT/issues/7: net.module instead of net
    - https://github.com/kohya-ss/sd-scripts/issues/1272: text_model
    """

    name = "attribute-of-wrapped-model"
    title = Text(
        "Code asks the DDP wrapper for an attribute or method of the model inside",
        "代码向 DDP 包装索取内部模型的属性或方法",
    )
    log_words = ("object has no attribute",)
    ends_at = (("torch/nn/modules/module.py", "has no attribute"),)
    yields_to = ("accelerate-unwrap-partially-compiled-model", "zero3-hooks-on-unwrapped-model")
    signs = (
        Sign(says=_WRAPPER, types=("AttributeError",), outside=("extract_model_from_parallel",)),
        Sign(says=_WRAPPER),
    )
    cause = Text(
        "The wrapper {wrapper} has no {attribute}: it belongs to the model inside, and a wrapper hands on "
        "only the call itself.",
        "包装 {wrapper} 没有 {attribute}：它属于内部的模型，而包装只转发调用本身。",
    )
    cures = (
        Text(
            "Ask the model inside: model.module.…, or accelerator.unwrap_model(model).…",
            "取用内部的模型：model.module.…，或 accelerator.unwrap_model(model).…",
        ),
        Text(
            "For what has to run through the wrapper (its forward, in training): put it into the model's forward",
            "必须经过包装运行的内容（训练中的前向）：写进模型的 forward",
        ),
    )
    confirm = Text("hasattr(model.module, …) is true", "hasattr(model.module, …) 为真")

    def cause_told(self, match: Match | None) -> Text:
        """The cause, with the wrapper and the attribute."""
        words = match.groupdict() if match is not None else {}
        return self.cause.format(wrapper=words.get("wrapper") or "?", attribute=words.get("attribute") or "?")

    def in_script(self, script: Script, run: Run) -> Findings:
        """What only a Hugging Face model has, asked of a name that was bound to the wrapper alone."""
        if b"DataParallel(" not in script.source.data and b"DDP(" not in script.source.data:
            return
        made = {}
        for call in script.calls(*_WRAPPERS):
            statement = script.statement(call.node)
            if isinstance(statement, ast.Assign) and statement.value is call.node:
                made.update({target.id: call for target in statement.targets if isinstance(target, ast.Name)})
        for call in script.calls(*(f"*.{name}" for name in _OWN)):
            func = call.node.func
            if not isinstance(func, ast.Attribute) or not isinstance(func.value, ast.Name) or func.value.id not in made:
                continue
            wrapper = made[func.value.id]
            same = script.enclosing_function(call.node) is script.enclosing_function(wrapper.node)
            guarded = any(True for _ in script.guarded_by(wrapper.node))
            if not same or guarded or call.node.lineno < wrapper.node.lineno:
                continue
            yield self.finding(
                self.cause.format(wrapper="DistributedDataParallel", attribute=func.attr),
                certainty=Certainty.LIKELY,
                cure=self.cures[:1],
                spans=(call.place.span(), wrapper.place.span(Text("wrapped here", "在此处包装"))),
            )

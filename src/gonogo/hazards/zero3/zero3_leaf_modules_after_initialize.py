from gonogo.hazards.facts.zero_files import stage_span
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text


class Zero3LeafModulesAfterInitialize(Hazard):
    """`set_z3_leaf_modules` stands after `deepspeed.initialize`.
    ## What happens
    A mixture-of-experts model hangs under ZeRO-3 although its blocks were made leaf modules.
    ## Why
    DeepSpeed hooks into every submodule while it builds the engine, and stops at those that are leaves by then. A
    module that becomes one later has the hooks of its experts already.
    ## Example
    ```python
    engine, *_ = deepspeed.initialize(model=model, config="ds_config.json")
    set_z3_leaf_modules(engine.module, [SparseBlock])    # wrong: the experts have their hooks by then

    set_z3_leaf_modules(model, [SparseBlock])            # right
    engine, *_ = deepspeed.initialize(model=model, config="ds_config.json")
    ```
    ## Cure
    Call it after the model is made and before `deepspeed.initialize`, `accelerator.prepare` or the Trainer's
    `train`.
    ## When it is safe
    ZeRO-2 and lower, where leaf modules mean nothing.
    ## Sources
    - https://github.com/deepspeedai/DeepSpeed/pull/4966: set_z3_leaf_modules: hooks stop at a leaf while they are set
    - https://github.com/deepspeedai/DeepSpeed/pull/7604: the ways to set leaf modules, and their documentation
    """

    name = "zero3-leaf-modules-after-initialize"
    title = Text(
        "Leaf modules are set after the engine was built, and count for nothing",
        "在引擎建立之后才设置 leaf module，不起作用",
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """A call of it below the one that builds the engine, in the same function."""
        if run.zero_stage != 3 or b"set_z3_leaf_module" not in script.source.data:
            return
        built = list(script.calls("deepspeed.initialize", "accelerate.Accelerator.prepare"))
        for call in script.calls("*.set_z3_leaf_modules", "*.set_z3_leaf_module"):
            function = script.enclosing_function(call.node)
            here = [one for one in built if script.enclosing_function(one.node) is function]
            if not here or any(one.line > call.line for one in here):
                continue
            yield self.finding(
                Text(
                    "{name} stands after the engine is built (line {line}): the experts inside have their own hooks "
                    "already, and are still gathered one by one.",
                    "{name} 在引擎建立（第 {line} 行）之后才调用：内部的专家已各自挂上钩子，仍会逐个聚合。",
                ).format(name=call.method, line=here[-1].line),
                certainty=Certainty.LIKELY,
                severity=Severity.ERROR,
                cure=Text("Call it before the engine is built", "在建立引擎之前调用"),
                spans=(
                    call.place.span(),
                    here[-1].place.span(Text("the engine is built here", "在此建立引擎")),
                    stage_span(run),
                ),
                confirm=Text("The model has no other engine", "该模型没有其他引擎"),
            )

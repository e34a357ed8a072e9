from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_KEY = Pattern(r"^['\"]_orig_mod['\"]|has no attribute '_orig_mod'")


class AccelerateUnwrapPartiallyCompiledModel(LoggedHazard):
    """torch.compile on a submodule, and accelerate looks for the compiled model at the top.
    ## What happens
    `KeyError: '_orig_mod'` in `extract_model_from_parallel` (`accelerate/utils/other.py`), or
    `'DistributedDataParallel' object has no attribute '_orig_mod'`, when a Trainer is made, a state is loaded or a
    model is saved.
    ## Why
    `has_compiled_regions` is true where any submodule is compiled; accelerate 1.7 to 1.12 then takes `_orig_mod`
    off the whole model, which has none.
    ## Example
    ```python
    model.vision_tower = torch.compile(model.vision_tower)    # wrong with accelerate 1.7 to 1.12
    model.vision_tower.compile()                              # right: in place, no wrapper
    ```
    ## Cure
    pip install "accelerate>=1.13" (with pull 3881). Or compile in place: submodule.compile(), which leaves no
    wrapper; or compile after accelerator.prepare.
    ## When it is safe
    With accelerate 1.13 and newer, or torch_compile: true of the Trainer.
    ## Sources
    - https://github.com/huggingface/accelerate/issues/3879: the KeyError in Trainer
    - https://github.com/huggingface/accelerate/issues/3683: its cause
    - https://github.com/huggingface/accelerate/pull/3881: the fix
    - https://github.com/huggingface/accelerate/pull/3598: the attribute error after load_state
    """

    name = "accelerate-unwrap-partially-compiled-model"
    title = Text("accelerate cannot unwrap a model of which a part is compiled", "accelerate 无法解包部分被编译的模型")
    log_words = ("_orig_mod", "extract_model_from_parallel")
    signs = (
        Sign(
            says=_KEY,
            types=("KeyError", "AttributeError"),
            frames=(("extract_model_from_parallel", "accelerate/utils/other.py"),),
            certainty=Certainty.CERTAIN,
        ),
        Sign(says=_KEY, types=("KeyError",)),
        Sign(
            says=Pattern(
                r"'(?:DistributedDataParallel|DeepSpeedEngine|FullyShardedDataParallel)' object has no attribute "
                r"'_orig_mod'"
            )
        ),
        Sign(cut=(("accelerate/utils/other.py", "_orig_mod"),), within=1),
    )
    cause = Text(
        "accelerate takes the model for compiled as a whole, and only a part of it is.",
        "accelerate 以为整个模型都被编译，而只有一部分是。",
    )
    cures = (
        Text('pip install "accelerate>=1.13" (with pull 3881)', '执行 pip install "accelerate>=1.13"（含 pull 3881）'),
        Text(
            "Or compile in place: submodule.compile(), which leaves no wrapper; or compile after accelerator.prepare",
            "或就地编译：submodule.compile()，不产生包装；或在 accelerator.prepare 之后编译",
        ),
    )
    confirm = Text("The traceback passes extract_model_from_parallel", "traceback 经过 extract_model_from_parallel")

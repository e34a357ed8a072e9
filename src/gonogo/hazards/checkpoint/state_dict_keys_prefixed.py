from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class StateDictKeysPrefixed(LoggedHazard):
    """A state dict was saved of a wrapped or compiled model and is loaded into the bare one, or the other way round.
    ## What happens
    "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: \"0.weight\", ...
    Unexpected key(s) in state_dict: \"_orig_mod.0.weight\", ..." (or \"module.0.weight\").
    ## Why
    `torch.compile(model)` puts `_orig_mod.` before the names of its parameters, DistributedDataParallel and
    DataParallel put `module.`, checkpoint wrappers `_checkpoint_wrapped_module.`. Saved and loaded on different
    sides of the wrapping, the names differ by that prefix. With `strict=False` nothing is loaded at all,
    silently.
    ## Example
    ```python
    torch.save(compiled.state_dict(), path)                 # wrong, where the bare model loads it
    torch.save(compiled._orig_mod.state_dict(), path)       # right; of DDP: ddp.module.state_dict()
    ```
    ## Cure
    Load before the model is wrapped or compiled and save from what is inside (`ddp.module`,
    `compiled._orig_mod`; or `model.compile()`, which changes no names). For a file that is there:
    `{name.removeprefix("_orig_mod.").removeprefix("module."): value for name, value in state.items()}`.
    ## When it is safe
    Where the same wrapping is around when it is saved and loaded.
    ## Sources
    - https://github.com/huggingface/pytorch-image-models/pull/2003: resuming a compiled model
    - https://github.com/rasbt/LLMs-from-scratch/issues/580: the prefix of torch.compile
    - https://github.com/mlfoundations/open_clip/pull/639: saved of the model inside
    """

    name = "state-dict-keys-prefixed"
    title = Text("The state dict's names have a wrapper's prefix", "状态字典的名称带有包装器的前缀")
    log_words = ("key(s) in state_dict",)
    signs = (
        Sign(
            Pattern(
                r"Unexpected key\(s\) in state_dict: \"(?P<prefix>(?:_orig_mod\.|module\.|_checkpoint_wrapped_mod"
                r"ule\.)+)"
            ),
            Certainty.CERTAIN,
            beside=Pattern(r"Missing key\(s\) in state_dict"),
        ),
        Sign(
            Pattern(
                r"Missing key\(s\) in state_dict: \"(?P<prefix>(?:_orig_mod\.|module\.|_checkpoint_wrapped_module"
                r"\.)+)"
            ),
            Certainty.CERTAIN,
            beside=Pattern(r"Unexpected key\(s\) in state_dict"),
        ),
    )
    cause = Text(
        "The names in the checkpoint and in the model differ by {prefix}, which a wrapper (torch.compile, "
        "DDP) puts before them.",
        "检查点与模型中的名称相差前缀 {prefix}，由包装器（torch.compile、DDP）加上。",
    )
    cures = (
        Text(
            "Load before the model is wrapped or compiled, and save from what is inside: ddp.module, "
            "compiled._orig_mod",
            "在包装或编译之前加载，并从内部模型保存：ddp.module、compiled._orig_mod",
        ),
        Text(
            "Of the file that is there: {{name.removeprefix('{prefix}'): value for name, value in state.items()}}",
            "对已有的文件：{{name.removeprefix('{prefix}'): value for name, value in state.items()}}",
        ),
    )

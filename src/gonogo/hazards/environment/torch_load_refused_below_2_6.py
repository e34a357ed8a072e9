from gonogo.hazards.version_rule import Around, UnfitVersions
from gonogo.hazards.facts.how_it_trains import with_trainer
from gonogo.hazards.rule import Certainty, Pattern, Refusal, Run, Text


class TorchLoadRefusedBelow26(UnfitVersions):
    """transformers 4.52 and newer refuse to resume with PyTorch below 2.6.
    ## What happens
    With resume_from_checkpoint: "ValueError: Due to a serious vulnerability issue in `torch.load`, even with
    `weights_only=True`, we now require users to upgrade torch to at least v2.6 in order to use the function." The
    first part of the run worked.
    ## Why
    CVE-2025-32434: torch.load below 2.6 can run code even with weights_only. transformers checks the version before
    it loads optimizer.pt and scheduler.pt, which have no safetensors form. Weights in safetensors are not affected.
    ## Example
    ```text
    transformers==4.52.4
    torch==2.5.1    # wrong, where the run resumes
    torch==2.6.0    # right
    ```
    ## Cure
    PyTorch 2.6 or newer; or transformers 4.51, with checkpoints of your own making only.
    ## When it is safe
    Where nothing is resumed, or where no checkpoint is there yet.
    ## Sources
    - https://github.com/huggingface/transformers/pull/37785: the check, in every place of the Trainer that loads
    - https://github.com/autogluon/autogluon/pull/5270: the ValueError in a project that trains
    """

    name = "torch-load-refused-below-2-6"
    title = Text("transformers refuses to resume with this PyTorch", "transformers 在该 PyTorch 下拒绝续训")
    ends_at = (("transformers/", "check_torch_load_is_safe"), ("transformers/modeling_utils.py", "load_state_dict"))
    refusal = Refusal(Pattern(r"vulnerability issue in `torch\.load`"), Certainty.LIKELY)
    versions = (("torch", "<2.6"), ("transformers", ">=4.52"))
    install = ("torch", ">=2.6")
    certainty = Certainty.LIKELY
    cause = Text(
        "{transformers} refuses to load a checkpoint's optimizer and scheduler with {torch}: it asks for 2.6.",
        "{transformers} 在 {torch} 下拒绝加载检查点的优化器与调度器：要求 2.6。",
    )
    cure = (Text("Or transformers 4.51, for checkpoints of your own", "或对自己的检查点使用 transformers 4.51"),)
    confirm = (Text("There is a checkpoint to resume from", "存在可续训的检查点"),)

    def around(self, run: Run) -> Around | None:
        """A Trainer that is to resume."""
        resumed = run.arguments.get("resume_from_checkpoint")
        if not resumed.known or resumed.truth is False or str(resumed.value).lower() in ("none", "", "null"):
            return None
        return Around(spans=(resumed.span(),)) if with_trainer(run) else None

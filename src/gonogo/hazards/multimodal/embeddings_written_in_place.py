from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class EmbeddingsWrittenInPlace(LoggedHazard):
    """Image features are written in place into embeddings that require a gradient by themselves.
    ## What happens
    "RuntimeError: a leaf Variable that requires grad is being used in an in-place operation." or "a view of a leaf
    Variable that requires grad is being used in an in-place operation.", where a vision-language model merges its
    images: `inputs_embeds[mask] = image_embeds`, `index_copy_`, `scatter_`, `+=`.
    ## Why
    With LoRA the embedding is frozen, and gradient checkpointing has `enable_input_require_grads` set: the
    embedding's output then is made to require a gradient by a hook. It comes of no other tensor, so it is a leaf, and
    autograd refuses to write into it. Without LoRA or without checkpointing the same line works.
    ## Example
    ```python
    inputs_embeds[mask] = image_embeds                                     # wrong with LoRA and checkpointing
    inputs_embeds = inputs_embeds.masked_scatter(mask, image_embeds)       # right
    ```
    ## Cure
    Write into a new tensor: `masked_scatter`, `index_copy`, `torch.where` without the underscore, `x = x + y` for `x
    += y`; or `inputs_embeds = inputs_embeds.clone()` before. Of a model with remote code: take its newer revision, or
    its class in transformers.
    ## When it is safe
    Where the embedding is trained, or `inputs_embeds` is the result of another operation.
    ## Sources
    - https://github.com/2U1/Qwen-VL-Series-Finetune/pull/178: index_copy_ with QLoRA and checkpointing
    - https://github.com/OpenGVLab/InternVL/issues/586: InternVL: input_embeds[selected] = …
    - https://github.com/OpenBMB/MiniCPM-V/issues/730: MiniCPM-o with LoRA: scatter_
    - https://github.com/modelscope/ms-swift/issues/6753: ms-swift: cured by clone()
    """

    name = "embeddings-written-in-place"
    title = Text("Image features are written into embeddings that are a leaf", "图像特征被就地写入作为叶子的嵌入")
    log_words = ("leaf Variable",)
    signs = (
        Sign(
            Pattern(r"a (?:view of a )?leaf Variable that requires grad is being used in an in-place operation"),
            frames=(
                (
                    "embed",
                    "vision",
                    "image",
                    "visual",
                    "vlm",
                    "_vl",
                    "internvl",
                    "minicpm",
                    "llava",
                    "scatter_",
                    "index_copy_",
                    "modeling_",
                    "template",
                ),
            ),
        ),
        Sign(
            Pattern(r"a (?:view of a )?leaf Variable that requires grad is being used in an in-place operation"),
            Certainty.POSSIBLE,
        ),
    )
    cause = Text(
        "A tensor that requires a gradient by itself is written in place: mostly the embeddings of a model with LoRA "
        "and gradient checkpointing, into which image features go.",
        "自身需要梯度的张量被就地写入：多为使用 LoRA 和梯度检查点的模型的嵌入，图像特征被写入其中。",
    )
    cures = (
        Text(
            "At that line write into a new tensor: masked_scatter, index_copy, torch.where, x = x + y; or clone() "
            "before it",
            "在该行改为写入新张量：masked_scatter、index_copy、torch.where、x = x + y；或先 clone()",
        ),
        Text(
            "Of a model with remote code: its newer revision, or its class in transformers",
            "使用远程代码的模型：换用较新的版本，或 transformers 中的类",
        ),
    )
    confirm = Text(
        "It runs without gradient checkpointing, or with the embedding trained",
        "关闭梯度检查点，或训练嵌入层时可以运行",
    )

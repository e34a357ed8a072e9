from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class MultimodalProcessorNotLoaded(LoggedHazard):
    """The data hold images, audio or video, and no processor could be loaded for the model.
    ## What happens
    "ValueError: Processor was not found, please check and update your model file", at LLaMA-Factory's
    `mm_plugin.py`, `_validate_input`, while the data are tokenized; before that check was there, "AttributeError:
    'NoneType' object has no attribute 'image_processor'".
    ## Why
    `AutoProcessor.from_pretrained` failed, or gave a plain tokenizer, and LLaMA-Factory went on without it:
    transformers is older than the model's processor, the checkpoint is not in transformers' form (InternVL without
    `-hf`), or a folder of a fine-tuned model lacks `preprocessor_config.json`.
    ## Example
    ```text
    transformers==4.55.0    # wrong with Qwen3-VL, whose processor came with 4.57
    transformers==4.57.1    # right
    ```
    ## Cure
    Load the processor alone to see why it fails: `AutoProcessor.from_pretrained(path)`. Upgrade transformers to a
    release that has the model; take the `-hf` checkpoint; copy the processor's files from the base model beside the
    weights.
    ## When it is safe
    Where `AutoProcessor.from_pretrained(path)` returns a processor with an `image_processor`.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/9458: Qwen3-VL with transformers 4.55; 4.57.1 cures it
    - https://github.com/hiyouga/LlamaFactory/issues/7802: InternVL's own checkpoint in place of the -hf one
    - https://github.com/hiyouga/LlamaFactory/issues/6941: the AttributeError; another transformers cures it
    - https://github.com/hiyouga/LlamaFactory/issues/9244: the frames, with Qwen3-VL-30B
    """

    name = "multimodal-processor-not-loaded"
    title = Text("No processor was loaded for a multimodal model", "多模态模型的 processor 没有加载成功")
    log_words = ("rocessor was not found", "no attribute 'image_processor")
    signs = (
        Sign(Pattern(r"(?:^|: )Processor was not found, please check and update your"), Certainty.CERTAIN),
        Sign(
            Pattern(r"'NoneType' object has no attribute '(?:image|video|audio|feature)_(?:processor|extractor)'"),
            types=("AttributeError",),
        ),
        Sign(
            Pattern(r"'\w*Tokenizer\w*' object has no attribute '(?:image|video|audio)_processor'"),
            types=("AttributeError",),
        ),
        Sign(cut=(("mm_plugin.py", "_validate_input"),), within=1, certainty=Certainty.POSSIBLE),
    )
    cause = Text(
        "The data hold images, audio or video, and the model's processor could not be loaded.",
        "数据中有图像、音频或视频，而模型的 processor 没有加载成功。",
    )
    cures = (
        Text(
            "Load it alone to see why it fails: AutoProcessor.from_pretrained(path); most often transformers is "
            "older than the model",
            "单独加载以查看失败原因：AutoProcessor.from_pretrained(path)；最常见的是 transformers 早于该模型",
        ),
        Text(
            "Take the -hf checkpoint, or copy preprocessor_config.json and the processor's other files from the base "
            "model",
            "使用 -hf 版本的检查点，或从基座模型复制 preprocessor_config.json 等 processor 文件",
        ),
    )
    confirm = (
        Text(
            "AutoProcessor.from_pretrained(path) raises, or returns a tokenizer",
            "AutoProcessor.from_pretrained(path) 抛出异常，或只返回 tokenizer",
        ),
    )

from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.evidence.patterns import Match
from gonogo.hazards.multimodal._counts import FEW, MISMATCH, counts_of
from gonogo.hazards.rule import Certainty, Pattern, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign


class ImagePlaceholdersMalformed(LoggedHazard):
    """A sample's text has more, fewer or other image placeholders than it has images.
    ## What happens
    "Image features and image tokens do not match: tokens: 9888, features 9887" (one or a few more tokens than features,
    or no features at all), "The number of images does not match the number of <image> tokens", "IndexError: index 1 is
    out of bounds for dimension 0 with size 1" in `get_rope_index`, vLLM's "Expected there to be 1 prompt updates
    corresponding to 1 image items". Where nothing counts them before, the kernel does: "masked_scatter_size_check: …
    Assertion `totalElements <= srcSize` failed".
    ## Why
    Text that itself contains `<image>`, `<|image_pad|>` or `<|vision_start|>`, a missing placeholder, images of another
    turn, or a completion in which the model writes the token itself (GRPO): each placeholder becomes tokens, each image
    features.
    ## Example
    ```json
    {"messages": [{"role": "user", "content": "What is this?"}], "images": ["a.png"]}           // wrong: no <image>
    {"messages": [{"role": "user", "content": "<image>What is this?"}], "images": ["a.png"]}    // right
    ```
    ## Cure
    Check each sample: as many placeholders as images, in the framework's own form; strip special tokens out of the
    text; ban the image token in generation (`bad_words`, `suppress_tokens`).
    ## When it is safe
    Where each sample has as many placeholders as images, and no other such token.
    ## Sources
    - https://github.com/2U1/Qwen-VL-Series-Finetune/issues/128: one token too many from text of the wrong form
    - https://github.com/hiyouga/LlamaFactory/issues/9166: videos and placeholders of a data set of one's own
    - https://github.com/hiyouga/LlamaFactory/blob/main/src/llamafactory/data/mm_plugin.py: LLaMA-Factory's check of
      the numbers
    - https://github.com/huggingface/transformers/pull/33608: the kernel's assertion, before transformers counted
    """

    name = "image-placeholders-malformed"
    title = Text("The placeholders in the data do not fit the images given", "数据中的占位符与所给图像不符")

    ends_at = (
        ("transformers/models/", "get_placeholder_mask"),
        ("_vl.py", "raise ValueError("),
        ("mm_plugin.py", "_validate_messages"),
        ("mm_plugin.py", "process_messages"),
    )
    log_words = (
        "tokens do not match",
        "does not match the number of",
        "prompt updates corresponding",
        "get_rope_index",
        "multimodal tokens to",
        "totalElements <= srcSize",
    )
    yields_to = ("image-tokens-truncated",)
    anywhere = True
    signs = (
        Sign(
            Pattern(
                r"[Nn]umber of (?:images?|videos?|audios?)(?: \(?\d+\)?)? (?:does"
                r"|do) not match (?:the )?number of (?:<\w+>|\w+) (?:tokens|placeholders)"
                r"|[Nn]umber of (?:image|video) (?:tokens|placeholders).{0,60}(?:does not match|not equal|!="
                r"|but).{0,40}(?:images|videos)"
                r"|(?:len\(images\)|images) .{0,30}is less than the number of <image> tokens"
                r"|[Ii]mage tags?.{0,40}(?:does not|not) match"
            )
        ),
        Sign(types=("IndexError", "StopIteration"), frames=(("get_rope_index",),)),
        # vLLM itself names a second cause: a processor whose files are not the model's.
        Sign(
            Pattern(
                r"Expected there to be \d+ prompt (?:updates|placeholders|replacements) corresponding to \d+ (?:image"
                r"|video|audio)"
            ),
            Certainty.POSSIBLE,
        ),
        Sign(types=("",), frames=(("get_rope_index",), ("grid_thw[",)), certainty=Certainty.POSSIBLE),
        Sign(Pattern(r"Assertion `totalElements <= srcSize` failed"), Certainty.POSSIBLE),
        Sign(MISMATCH),
    )
    cause = Text(
        "A sample's text and its images do not go together: a placeholder too many, too few or of another form.",
        "某个样本的文本与图像不对应：占位符多了、少了或形式不对。",
    )
    cures = (
        Text(
            "Give each sample as many placeholders as images, in the framework's form, and strip special "
            "tokens from its text",
            "让每个样本的占位符数与图像数相同，使用框架的形式，并去掉文本中的特殊 token",
        ),
        Text(
            "Find the sample: run the processor alone over the data and compare input_ids' image tokens with "
            "image_grid_thw",
            "找出该样本：只用处理器遍历数据，比较 input_ids 中的图像 token 与 image_grid_thw",
        ),
    )
    confirm = (
        Text(
            "A batch of one sample at a time fails at one sample, whatever the length limit",
            "逐个样本运行时只有某个样本失败，与长度上限无关",
        ),
    )

    def sureness(self, log: FailureLog, sign: Sign, evidence: Found | LoggedError) -> Certainty | None:
        """A few tokens too many are stray placeholders; fewer tokens than features were more likely cut off."""
        if sign.says is not MISMATCH:
            return sign.certainty
        counts = counts_of(evidence)
        if counts is None:
            return Certainty.POSSIBLE
        tokens, features = counts
        if _before_merging(tokens, features):
            return Certainty.LIKELY
        return Certainty.LIKELY if 0 < tokens - features <= FEW or not features else Certainty.POSSIBLE

    def cause_told(self, match: Match | None) -> Text:
        """Placeholders for each patch, where patches are merged, are told as that."""
        groups = match.groupdict() if match is not None else {}
        tokens, features = (int(groups.get(name) or 0) for name in ("tokens", "features"))
        if not _before_merging(tokens, features):
            return self.cause
        return Text(
            "The text has {tokens} placeholders for {features} features, {times} for each: they were counted by the "
            "patches of image_grid_thw, which the model merges {times} to one (merge_size ** 2).",
            "文本中有 {tokens} 个占位符，而特征为 {features} 个，即每个特征 {times} 个：占位符是按 image_grid_thw 的 "
            "patch 数计算的，而模型会把 {times} 个合并为一个（merge_size ** 2）。",
        ).format(tokens=tokens, features=features, times=tokens // features)


def _before_merging(tokens: int, features: int) -> bool:
    """Whether each feature has as many placeholders as patches that a vision tower merges: 2 x 2, 3 x 3, 4 x 4."""
    return features > 0 and tokens in (4 * features, 9 * features, 16 * features)

from gonogo.evidence.field import whole_number
from gonogo.evidence.log.failure_log import FailureLog, Found, LoggedError
from gonogo.hazards.multimodal._counts import (
    FEW,
    LIMIT,
    MISMATCH,
    PIXELS_A_TOKEN,
    POSITIONS,
    ROUND,
    counts_of,
    first_known,
)
from gonogo.hazards.rule import Certainty, Findings, Launch, Pattern, Run, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign, match_of, told


class ImageTokensTruncated(LoggedHazard):
    """A length limit cuts a sequence through its image placeholders, while all image features stay.
    ## What happens
    "Image features and image tokens do not match: tokens: 8142, features 11392" (Video, Audio alike): fewer tokens than
    features. Before transformers 4.48: "The number of image tokens is 1014 while the number of image given to the model
    is 2"; LLaVA's first release: "The number of image start tokens and image end tokens should be the same".
    transformers' processors say "Mismatch in `image` token count between text and `input_ids`. … Likely due
    to `truncation='max_length'`". Qwen-VL's positions: "shape mismatch: value tensor of shape [3, 5391] cannot be
    broadcast to indexing result of shape [3, 2048]": 2048 is the limit.
    ## Why
    Each image stands for hundreds to thousands of tokens (Qwen-VL: pixels / 784). `cutoff_len` (LLaMA-Factory),
    `max_length` (TRL, 1024 by default, ms-swift), `max_prompt_length` (GRPO) cut the ids, and the vision tower still
    encodes the whole image.
    ## Example
    ```yaml
    {cutoff_len: 1024, image_max_pixels: 2359296}   # wrong: an image has up to 3009 tokens
    {cutoff_len: 4096, image_max_pixels: 2359296}   # right
    ```
    ## Cure
    Raise the limit above text plus all image tokens, bound the pixels (`image_max_pixels`, `max_pixels`, `MAX_PIXELS`),
    or leave overlong samples out (TRL: `max_length=None`; ms-swift: `--truncation_strategy delete`).
    ## When it is safe
    Where the longest sample with its images is shorter than the limit.
    ## Sources
    - https://github.com/hiyouga/LlamaFactory/issues/5964: cutoff_len 1024 with Qwen2-VL
    - https://github.com/EvolvingLMMs-Lab/open-r1-multimodal/issues/28: GRPO: max_prompt_length 8192
    - https://github.com/huggingface/trl/pull/5881: DPO: max_length cuts ids and keeps pixel_values
    - https://github.com/hiyouga/LlamaFactory/issues/7363: videos: raise the cutoff
    - https://github.com/zjysteven/lmms-finetune/issues/63: MODEL_MAX_LEN 512 with LLaVA
    - https://github.com/hiyouga/LlamaFactory/issues/7590: positions of a video cut at 2048
    - https://github.com/haotian-liu/LLaVA/issues/201: model_max_length 256 with LLaVA's first release
    """

    name = "image-tokens-truncated"
    title = Text("Truncation removed image or video tokens", "截断去掉了图像或视频 token")

    ends_at = (
        ("transformers/models/", "get_placeholder_mask"),
        ("_vl.py", "raise ValueError("),
        ("modeling_qwen2_vl.py", "forward"),
        ("modeling_qwen2_5_vl.py", "forward"),
    )
    log_words = (
        "given to the model is",
        "image end tokens",
        "tokens do not match",
        "token count between text",
        "multimodal tokens to",
        "indexing result of shape",
    )
    anywhere = True
    signs = (
        Sign(
            Pattern(r"Likely due to `?truncation=|Mismatch in `\w+` token count between text and `input_ids`"),
            Certainty.CERTAIN,
        ),
        Sign(MISMATCH),
        Sign(
            Pattern(
                r"number of (?:image|video) tokens is \d+ while the number of (?:image|video)s? given to the model is"
            ),
            Certainty.POSSIBLE,
        ),
        Sign(Pattern(r"number of image start tokens and image end tokens should be the same")),
        Sign(POSITIONS),
    )
    cause = Text(
        "A length limit (cutoff_len, max_length, max_prompt_length) cut image or video tokens off, and "
        "their features are all there.",
        "长度上限（cutoff_len、max_length、max_prompt_length）截掉了图像或视频 token，而特征全部保留。",
    )
    cures = (
        Text(
            "Raise the limit above text plus image tokens (Qwen-VL: pixels / 784 each), or bound the pixels: "
            "image_max_pixels, max_pixels, MAX_PIXELS",
            "把上限提高到大于文本加图像 token（Qwen-VL：每张为像素数 / 784），或限制像素："
            "image_max_pixels、max_pixels、MAX_PIXELS",
        ),
        Text(
            "Leave out samples that are longer: ms-swift --truncation_strategy delete; in TRL do not "
            "truncate (max_length)",
            "去掉更长的样本：ms-swift --truncation_strategy delete；TRL 中不要截断（max_length）",
        ),
    )
    confirm = (Text("With a limit twice as long the error goes", "上限加倍后错误消失"),)

    def sureness(self, log: FailureLog, sign: Sign, evidence: Found | LoggedError) -> Certainty | None:
        """Fewer tokens than features were cut; more of them only where a limit is known to be small."""
        if sign.says is POSITIONS:
            match = match_of(POSITIONS, evidence)
            needed, kept = (int(match.group(name)) for name in ("needed", "kept")) if match is not None else (0, 0)
            if needed <= kept:
                return None
            return Certainty.LIKELY if kept % ROUND == 0 or told(log, LIMIT) else Certainty.POSSIBLE
        if sign.says is not MISMATCH:
            return sign.certainty
        counts = counts_of(evidence)
        if counts is None:
            return Certainty.POSSIBLE
        tokens, features = counts
        if tokens < features:
            return Certainty.LIKELY
        limited = told(log, LIMIT)
        if limited and tokens - features > FEW:
            return Certainty.LIKELY
        return None if features and tokens % features == 0 else Certainty.POSSIBLE  # each twice

    def in_launch(self, launch: Launch, run: Run) -> Findings:
        """One image of the largest size that is let through against the length limit."""
        limit = first_known(run, "cutoff_len", "max_prompt_length", "data.max_prompt_length", "max_seq_length")
        pixels = first_known(run, "image_max_pixels", "max_pixels", "data.max_pixels")
        if limit is None or pixels is None:
            return
        length, most = whole_number(limit[1]), whole_number(pixels[1])
        if length is None or most is None or most // PIXELS_A_TOKEN <= length:
            return
        yield self.finding(
            Text(
                "{pixels} lets an image have {tokens} tokens or more, and {limit} cuts at {length}: such a "
                "sample loses image tokens, and the model refuses it.",
                "{pixels} 允许一张图像有 {tokens} 个以上 token，而 {limit} 在 {length} 处截断：这样的样本会丢"
                "失图像 token，模型会拒绝。",
            ).format(pixels=pixels[0], tokens=most // PIXELS_A_TOKEN, limit=limit[0], length=length),
            certainty=Certainty.POSSIBLE,
            cure=self.cures,
            spans=(limit[1].span(), pixels[1].span(), launch.place.span()),
            confirm=Text("The data has images of that size", "数据中有这样大小的图像"),
        )

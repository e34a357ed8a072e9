from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Severity, Text

_SAID = Pattern(r"tokenization mismatch: (?P<counted>\d{1,6}) vs\.? (?P<there>\d{1,6})")

_NO_LOSS = Pattern(r"'loss': (?:0\.0,|nan)")


class LlavaTokenizationMismatch(Hazard):
    """The labels of a sample are all masked, since its turns were counted by another template or tokenizer.
    ## What happens
    "WARNING: tokenization mismatch: 55 vs. 54. (ignored)", line after line, in LLaVA, FastChat and what is made of
    them; the loss is 0.0 or not a number, or the model learns little.
    ## Why
    `preprocess` splits the conversation at the template's separators, counts each part's tokens, and masks what is no
    answer. Where the sum is not the length of the whole, it masks the whole sample. That is so with another `--version`
    than the model's (v1 for Vicuna and LLaMA-2, mpt for Qwen and Yi, llama_3), with a tokenizer that sets no BOS or
    joins a separator with what follows (tokenizers 0.14 and newer, `legacy` True or False), and without `<image>` where
    the template has one.
    ## Example
    ```sh
    deepspeed llava/train/train_mem.py --model_name_or_path llava-v1.6-34b --version v1      # wrong
    deepspeed llava/train/train_mem.py --model_name_or_path llava-v1.6-34b --version mpt     # right
    ```
    ## Cure
    The `--version` that belongs to the model, and the releases of transformers and tokenizers that the project names.
    For a model it does not know: a template and a preprocess function of its own. Look at one sample: decode the input
    ids whose labels are not -100.
    ## When it is safe
    For a few samples, cut at model_max_length.
    ## Sources
    - https://github.com/Victorwz/LLaVA-Llama-3/issues/1: the wrong preprocess function, by --version
    - https://github.com/haotian-liu/LLaVA/issues/1706: Yi-34B takes mpt; the loss stays 0
    - https://github.com/haotian-liu/LLaVA/issues/661: the tokenizers' release
    - https://github.com/aimagelab/LLaVA-MORE/issues/2: llama_3 instead of llama_3_1, and the loss is normal
    """

    name = "llava-tokenization-mismatch"
    title = Text(
        "Samples are masked as a whole: their tokens were counted otherwise", "样本被整体屏蔽：其 token 数对不上"
    )
    log_words = ("tokenization mismatch",)

    def in_log(self, log: FailureLog) -> Findings:
        """The warning, and how often it stands there."""
        lines = tuple(log.find_all(_SAID))
        if not lines:
            return
        match = _SAID.search(lines[0].text)
        yield self.log_finding(
            lines[0],
            Text(
                "A conversation was counted as {counted} tokens where it has {there}: all of its labels are masked, "
                "and "
                "it adds nothing to the loss.",
                "一段对话按 {counted} 个 token 计算，实际有 {there} 个：其标签全部被屏蔽，对 loss 没有贡献。",
            ).format(counted=str(match.group("counted")), there=str(match.group("there")))
            if match is not None
            else self.title,
            certainty=Certainty.LIKELY if log.says(_NO_LOSS) else Certainty.POSSIBLE,
            severity=Severity.WARNING,
            cure=(
                Text(
                    "Give --version the template of this model (v1: Vicuna, LLaMA-2; mpt: Qwen, Yi; llama_3), and "
                    "install the "
                    "transformers and tokenizers that the project names",
                    "--version 使用该模型的模板（v1：Vicuna、LLaMA-2；mpt：Qwen、Yi；llama_3），并安装项目指定的 "
                    "transformers 与 "
                    "tokenizers",
                ),
                Text(
                    "Decode one sample's input ids whose labels are not -100: they have to be the answers",
                    "解码一个样本中标签不为 -100 的 input ids：应当正是回答",
                ),
            ),
            confirm=Text(
                "The warning stands there for most samples, and the loss is 0", "大多数样本都有该警告，且 loss 为 0"
            ),
        )

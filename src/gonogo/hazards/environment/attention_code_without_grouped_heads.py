from math import prod

from gonogo.evidence.log.failure_log import FailureLog, LoggedError
from gonogo.evidence.log.match import one_line
from gonogo.hazards.rule import Certainty, Findings, Hazard, Pattern, Text

_SHAPE = Pattern(r"shape '\[(?P<shape>[\d, ]{7,60})\]' is invalid for input of size (?P<size>\d{1,12})")
_HEADS = ("num_heads", "n_heads", "num_attention_heads")


class AttentionCodeWithoutGroupedHeads(Hazard):
    """Attention code that gives keys as many heads as queries meets a model with grouped-query attention.
    ## What happens
    "RuntimeError: shape '[4, 897, 64, 128]' is invalid for input of size 3674112", in a line like
    `self.k_proj(hidden_states).view(bsz, q_len, self.num_heads, self.head_dim)`: the shape holds 8 times the size.
    ## Why
    Llama-2-70B, CodeLlama-34B, Llama-3, Mistral and Qwen2 have fewer heads for keys and values than for queries. A
    monkey patch for FlashAttention (FastChat's, alpaca's), or a transformers from before 4.31, was written when they
    were as many.
    ## Example
    ```python
    key_states.view(bsz, q_len, self.num_heads, self.head_dim)                  # wrong with grouped queries
    key_states.view(bsz, q_len, self.num_key_value_heads, self.head_dim)        # right
    ```
    ## Cure
    Leave the patch out and ask transformers for it: `attn_implementation="flash_attention_2"` (4.36 and newer). Or the
    project's newer patch; or transformers 4.31 and newer, where its own file raised.
    ## When it is safe
    With models that have a head of keys for each of queries: LLaMA and Llama-2 of 7B and 13B.
    ## Sources
    - https://github.com/lm-sys/FastChat/issues/2307: FastChat's patch and CodeLlama-34B
    - https://github.com/philschmid/deep-learning-pytorch-huggingface/issues/32: a patch for 7B and 13B, with 70B
    - https://github.com/huggingface/transformers/pull/24891: Llama-2's grouped queries in transformers
    """

    name = "attention-code-without-grouped-heads"
    title = Text("The attention code knows no grouped-query attention", "注意力代码不支持分组查询注意力（GQA）")
    log_words = ("is invalid for input of size",)

    def in_log(self, log: FailureLog) -> Findings:
        """A view by the number of heads of what has a whole fraction of them."""
        for error in log.errors_of("RuntimeError", says=_SHAPE):
            match = _SHAPE.search(one_line(error.message))
            if match is None:
                continue
            shape = [int(part) for part in str(match.group("shape")).split(",") if part.strip()]
            size = int(str(match.group("size")))
            if len(shape) != 4 or not size or prod(shape) % size or prod(shape) // size not in (2, 4, 6, 7, 8, 16):
                continue
            by_heads = _views_by_heads(error)
            if by_heads is False:
                continue
            times = prod(shape) // size
            yield self.log_finding(
                error,
                Text(
                    "Keys or values are viewed as {heads} heads, and hold one part in {times} of that: the model's "
                    "queries "
                    "are grouped, and this code does not know it.",
                    "key 或 value 按 {heads} 个头处理，而实际只有其 1/{times}：模型使用分组查询，而这段代码不支持。",
                ).format(heads=shape[2], times=times),
                certainty=Certainty.LIKELY if by_heads else Certainty.POSSIBLE,
                cure=(
                    Text(
                        'Leave the patch out: attn_implementation="flash_attention_2" (transformers 4.36 and newer), '
                        "or take "
                        "the project's patch for grouped queries",
                        '去掉补丁：attn_implementation="flash_attention_2"（transformers 4.36 '
                        "及更新），或使用项目中支持分组查询的"
                        "补丁",
                    ),
                    Text(
                        "If transformers' own file raised: pip install -U 'transformers>=4.31'",
                        "若由 transformers 自己的文件抛出：pip install -U 'transformers>=4.31'",
                    ),
                ),
                confirm=Text(
                    "The model's config.json has num_key_value_heads below num_attention_heads",
                    "模型 config.json 的 num_key_value_heads 小于 num_attention_heads",
                ),
            )
            return


def _views_by_heads(error: LoggedError) -> bool | None:
    """Whether a line on the way takes the number of heads for the shape; None where the log doesn't show that line."""
    if any(word in frame.code for frame in error.frames for word in _HEADS):
        return True
    last = error.innermost
    return False if last is not None and ("view(" in last.code or "reshape(" in last.code) else None

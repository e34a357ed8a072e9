from gonogo.hazards.facts.as_run import stepped_runs
from gonogo.hazards.rule import Certainty, Findings, Hazard, RehearsalRecord, Severity, Text

_SLOWER = {"sdpa", "eager"}
_NEEDED = {"flash_attention_2": "flash", "flash_attention_3": "flash", "sdpa": "sdpa"}


class AttentionImplementationNotUsed(Hazard):
    """FlashAttention, or SDPA, is asked for, and another attention runs.
    ## What happens
    Eager attention keeps scores of samples × heads × length × length for backward: memory grows with the square of the
    length, and training is slower than it was planned. Packed samples that only FlashAttention keeps apart attend to
    each other.
    ## Why
    A model's own code (`trust_remote_code`) that never looks at the setting, a part of a multimodal model with an
    implementation of its own, `output_attentions=True`, which only eager attention can serve, or a patch of a library
    that put another attention in place.
    ## Example
    ```python
    model = AutoModel.from_pretrained(path, attn_implementation="flash_attention_2")
    model(**batch, output_attentions=True)    # wrong: transformers goes back to eager attention
    model(**batch)                            # right
    ```
    ## Cure
    Leave `output_attentions` out; use the model class of transformers in place of the folder's own code where there is
    one; or plan memory for the attention that runs.
    ## When it is safe
    Where memory suffices, and samples are not packed.
    ## Sources
    - https://huggingface.co/docs/transformers/attention_interface: the implementations, and how one is chosen
    - https://github.com/huggingface/transformers/pull/39547: what makes transformers fall back to eager attention
    """

    name = "attention-implementation-not-used"
    explains_failure = False
    title = Text("Another attention runs than the one asked for", "实际运行的注意力实现与设置的不同")

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """By the operators that attention ended in, on every rank that stepped; silent where none was recognised."""
        runs = stepped_runs(record)
        if not runs:
            return
        needed = _NEEDED.get(runs[0][1].asked.attention)
        for _, run in runs:
            slower = set(run.attention) <= _SLOWER and bool(run.attention)
            if needed is None or not slower or any(name.startswith(needed) for name in run.attention):
                return
        run = runs[0][1]
        yield self.finding(
            Text(
                "{model} is set to {asked}, and its attention ran as {seen}.",
                "{model} 设置为 {asked}，而其注意力以 {seen} 运行。",
            ).format(model=run.model, asked=run.asked.attention, seen=", ".join(run.attention)),
            certainty=Certainty.LIKELY,
            severity=Severity.WARNING,
            cure=(
                Text(
                    "Do not ask for attention weights (output_attentions): only eager attention has them",
                    "不要请求注意力权重（output_attentions）：只有 eager 注意力能给出",
                ),
                Text(
                    "Use transformers' own class of the model where the folder's code ignores the setting",
                    "若模型目录自带的代码忽略该设置，改用 transformers 自己的模型类",
                ),
            ),
            ranks=tuple(rank.rank for rank, _ in runs),
        )

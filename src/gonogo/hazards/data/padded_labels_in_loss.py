"""data-padded-labels-in-loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gonogo.finding import Certainty, Finding, Severity, Text
from gonogo.hazards.facts.training_script import first_argument, mentions
from gonogo.hazards.hazard import Hazard

if TYPE_CHECKING:
    from gonogo.evidence.run import Run
    from gonogo.evidence.script.script import Script

_LEFT_OUT = (b"-100", b"IGNORE", b"ignore_index", b"ignore_id", b"loss_mask")


class DataPaddedLabelsInLoss(Hazard):
    """A collator pads labels with the tokenizer's pad token instead of -100.

    ## What happens
    Nothing fails. The loss falls fast, for it is low on padding; the model learns to continue with padding, and
    batches of uneven length weigh wrongly.

    ## Why
    The loss of transformers' models (`CrossEntropyLoss`) leaves out -100 and nothing else. `attention_mask` does not
    reach it.

    ## Cure
    `padding_value=-100` for the labels; or after padding: `labels[labels == tokenizer.pad_token_id] = -100` (where the
    pad token is not the end-of-text token that is to be learnt). `DataCollatorForSeq2Seq` pads with -100.

    ## When it is safe
    Where the loss is given `ignore_index=tokenizer.pad_token_id`.

    ## Sources
    - https://github.com/wangshy31/OneRec-Think/issues/8: a collator whose padding is counted
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html: ignore_index is -100
    """

    page_zh = """collator 用 tokenizer 的 pad token 而不是 -100 来补齐标签。

    ## 现象
    不会报错。损失下降很快，因为补齐处的损失很低；模型学会继续输出 padding，长短不一的 batch 权重也不对。

    ## 原因
    transformers 模型的损失（`CrossEntropyLoss`）只忽略 -100。`attention_mask` 不影响损失。

    ## 解决办法
    标签使用 `padding_value=-100`；或补齐后 `labels[labels == tokenizer.pad_token_id] = -100`（前提是 pad token 不是需要
    学习的结束符）。`DataCollatorForSeq2Seq` 会用 -100 补齐。

    ## 何时安全
    损失函数设置了 `ignore_index=tokenizer.pad_token_id` 时。

    ## 来源
    - https://github.com/wangshy31/OneRec-Think/issues/8：padding 被计入损失的 collator
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html：ignore_index 默认为 -100
    """

    name = "data-padded-labels-in-loss"
    title = Text(
        en="Labels are padded with the pad token, which the loss counts",
        zh="标签用 pad token 补齐，会计入损失",
    )
    sources = (
        "https://github.com/wangshy31/OneRec-Think/issues/8",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
    )

    def in_script(self, script: Script, run: Run) -> Iterator[Finding]:
        """pad_sequence of labels with the pad token, in a script that nowhere says -100."""
        if b"pad_sequence" not in script.source.data or mentions(run, script, *_LEFT_OUT):
            return
        for call in script.calls("torch.nn.utils.rnn.pad_sequence"):
            labels, value = first_argument(call, "sequences"), call.keyword_node("padding_value")
            if labels is None or value is None or "label" not in script.place(labels).text:
                continue
            text = script.place(value).text
            if not text.endswith(("pad_token_id", "pad_id", "pad_token_type_id")):
                continue
            edit = script.replacing(value, "-100")
            yield self.finding(
                Text(
                    en="Labels are padded with {value}; the loss leaves out -100 only, so that padding is learnt.",
                    zh="标签用 {value} 补齐；损失只忽略 -100，因此 padding 也会被学习。",
                ).format(value=text),
                certainty=Certainty.LIKELY,
                severity=Severity.WARNING,
                cure=(Text("Pad labels with -100", "用 -100 补齐标签"),),
                spans=(script.place(value).span(), call.place.span()),
                fixes=(self.fix(Text("Pad labels with -100", "用 -100 补齐标签"), edit, safe=False),)
                if edit is not None
                else (),
            )

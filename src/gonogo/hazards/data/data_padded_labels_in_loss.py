from gonogo.evidence.script.identifiers import last_name, says, uses_name
from gonogo.hazards.facts.training_script import first_argument, mentions
from gonogo.hazards.rule import Certainty, Findings, Hazard, Run, Script, Severity, Text

_LEFT_OUT = (b"-100", b"IGNORE", b"ignore_index", b"ignore_id", b"loss_mask")


class DataPaddedLabelsInLoss(Hazard):
    """A collator pads labels with the tokenizer's pad token instead of -100.
    ## What happens
    Nothing fails. The loss falls fast, for it is low on padding; the model learns to continue with padding, and
    batches of uneven length weigh wrongly.
    ## Why
    The loss of transformers' models (`CrossEntropyLoss`) leaves out -100 and nothing else. `attention_mask` does not
    reach it.
    ## Example
    ```python
    labels = pad_sequence(labels, batch_first=True, padding_value=tokenizer.pad_token_id)  # wrong
    labels = pad_sequence(labels, batch_first=True, padding_value=-100)                    # right
    ```
    ## Cure
    `padding_value=-100` for the labels; or after padding: `labels[labels == tokenizer.pad_token_id] = -100` (where the
    pad token is not the end-of-text token that is to be learnt). `DataCollatorForSeq2Seq` pads with -100.
    ## When it is safe
    Where the loss is given `ignore_index=tokenizer.pad_token_id`.
    ## Sources
    - https://github.com/wangshy31/OneRec-Think/issues/8: a collator whose padding is counted
    - https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html: ignore_index is -100
    """

    name = "data-padded-labels-in-loss"
    title = Text("Labels are padded with the pad token, which the loss counts", "标签用 pad token 补齐，会计入损失")

    def in_script(self, script: Script, run: Run) -> Findings:
        """pad_sequence of labels with the pad token, in a script that nowhere says -100."""
        if b"pad_sequence" not in script.source.data or mentions(run, script, *_LEFT_OUT):
            return
        for call in script.calls("torch.nn.utils.rnn.pad_sequence"):
            labels, value = first_argument(call, "sequences"), call.keyword_node("padding_value")
            if labels is None or value is None or not uses_name(labels, "label", "labels"):
                continue
            if not says(last_name(value), "pad_token_id", "pad_id", "pad_token_type_id"):
                continue
            edit = script.replacing(value, "-100")
            yield self.finding(
                Text(
                    "Labels are padded with {value}; the loss leaves out -100 only, so that padding is learnt.",
                    "标签用 {value} 补齐；损失只忽略 -100，因此 padding 也会被学习。",
                ).format(value=script.place(value).text),
                certainty=Certainty.LIKELY,
                severity=Severity.WARNING,
                cure=Text("Pad labels with -100", "用 -100 补齐标签"),
                spans=(script.place(value).span(), call.place.span()),
                fixes=self.fix(Text("Pad labels with -100", "用 -100 补齐标签"), edit, safe=False)
                if edit is not None
                else None,
            )

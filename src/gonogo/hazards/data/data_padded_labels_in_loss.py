from gonogo.evidence.script.identifiers import contains_words, last_name, uses_name
from gonogo.hazards.facts.training_script import first_argument, run_mentions
from gonogo.hazards.rule import Findings, Hazard, Run, Script, translated

_LABEL_MASK_WORDS = (b"-100", b"IGNORE", b"ignore_index", b"ignore_id", b"loss_mask")


class DataPaddedLabelsInLoss(Hazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """pad_sequence of labels with the pad token, in a script that never uses -100."""
        if b"pad_sequence" not in script.source.data or run_mentions(run, script, *_LABEL_MASK_WORDS):
            return
        for call in script.calls("torch.nn.utils.rnn.pad_sequence"):
            labels, value = first_argument(call, "sequences"), call.keyword_node("padding_value")
            if labels is None or value is None or not uses_name(labels, "label", "labels"):
                continue
            if not contains_words(last_name(value), "pad_token_id", "pad_id", "pad_token_type_id"):
                continue
            edit = script.replacing(value, "-100")
            yield self.finding(
                self.texts["cause"].format(value=script.place(value).text),
                spans=(script.place(value).span(), call.place.span()),
                fixes=self.fix(translated("Pad labels with -100"), edit, safe=False) if edit is not None else None,
            )

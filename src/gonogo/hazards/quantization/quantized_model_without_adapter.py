from gonogo.hazards.rule import Certainty, Findings, LoggedHazard, Run, Script, translated

_TRAINER_CLASSES = (
    "transformers.Trainer",
    "transformers.Seq2SeqTrainer",
    "trl.SFTTrainer",
    "trl.DPOTrainer",
    "trl.GRPOTrainer",
)
_ADAPTS = (b"peft", b"lora", b"LoRA", b"Lora", b"adapter", b"unsloth")


class QuantizedModelWithoutAdapter(LoggedHazard):
    def in_script(self, script: Script, run: Run) -> Findings:
        """A 4-bit or 8-bit model, one of transformers' trainers, and no adapter anywhere in the run's files."""
        if not any(word in script.source.data for word in (b"load_in_4bit", b"load_in_8bit")):
            return
        files = (*run.scripts, script, *script.imported)
        if any(word in one.source.data for one in files for word in _ADAPTS) or run.arguments.get("use_peft").truth:
            return
        trainer = next((call for call in script.calls(*_TRAINER_CLASSES) if not call.has_unknown_kwargs), None)
        for call in script.calls("transformers.BitsAndBytesConfig", "*.from_pretrained"):
            requested = [call.keyword(name) for name in ("load_in_4bit", "load_in_8bit")]
            if trainer is None or script.guarded_by(call.node) or not any(field.truth is True for field in requested):
                continue
            yield self.finding(
                translated("The model is loaded quantized, but no adapter is attached: the Trainer refuses it."),
                certainty=Certainty.LIKELY,
                spans=(call.place.span(), trainer.place.span(translated("trained here"))),
                confirm=translated("The model that reaches the Trainer is not a PeftModel"),
            )
            return

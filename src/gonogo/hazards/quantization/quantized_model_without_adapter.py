from gonogo.hazards.rule import Certainty, Findings, Pattern, Run, Script, Text
from gonogo.hazards.log_rule import LoggedHazard, Sign

_TRAINERS = (
    "transformers.Trainer",
    "transformers.Seq2SeqTrainer",
    "trl.SFTTrainer",
    "trl.DPOTrainer",
    "trl.GRPOTrainer",
)
_ADAPTS = (b"peft", b"lora", b"LoRA", b"Lora", b"adapter", b"unsloth")


class QuantizedModelWithoutAdapter(LoggedHazard):
    """The Trainer is given a quantized model that has no trainable adapter.
    ## What happens
    "ValueError: You cannot perform fine-tuning on purely quantized models. Please attach trainable adapters on top of
    the quantized model to correctly perform fine-tuning", where the Trainer is made.
    ## Why
    Weights of 4 or 8 bits are integers and have no gradient; what is trained is an adapter beside them. None was
    attached: get_peft_model or peft_config is missing, the name of the model is that of a quantized checkpoint
    (`-bnb-4bit`, GPTQ, AWQ), or a wrapper around the model hides the adapter from the Trainer's look.
    ## Example
    ```python
    model = AutoModelForCausalLM.from_pretrained(name, quantization_config=four_bits)
    SFTTrainer(model=model, train_dataset=data)    # wrong
    SFTTrainer(model=model, train_dataset=data, peft_config=LoraConfig())    # right
    ```
    ## Cure
    Attach an adapter (peft_config=LoraConfig(...), get_peft_model), or load the weights in 16 bits to train all of
    them.
    ## When it is safe
    Where the model is a PeftModel, or its quantization trains (`hf_quantizer.is_trainable`).
    ## Sources
    - https://github.com/unslothai/unsloth/issues/241: get_peft_model was left out
    - https://github.com/gensyn-ai/rl-swarm/issues/300: a quantized checkpoint by its name, in GRPO
    - https://github.com/huggingface/trl/issues/1719: with FSDP, at the end of training
    """

    name = "quantized-model-without-adapter"
    title = Text("A quantized model is trained without an adapter", "训练量化模型而没有适配器")
    log_words = ("purely quantized models",)
    anywhere = True
    signs = (Sign(Pattern(r"cannot perform fine-tuning on purely quantized models"), Certainty.CERTAIN),)
    cause = Text(
        "The model's weights are quantized and it has no trainable adapter, as far as the Trainer sees.",
        "模型权重已量化，而 Trainer 没有看到可训练的适配器。",
    )
    cures = (
        Text(
            "Attach an adapter: peft_config=LoraConfig(...) for trl's trainers, get_peft_model(model, LoraConfig(...)) "
            "for transformers'",
            "挂上适配器：trl 的训练器用 peft_config=LoraConfig(...)，transformers 的用 "
            "get_peft_model(model, LoraConfig(...))",
        ),
        Text("Or load the weights in 16 bits, and train all of them", "或以 16 位加载权重，训练全部参数"),
    )

    def in_script(self, script: Script, run: Run) -> Findings:
        """4 or 8 bits, one of transformers' trainers, and nothing in the run's files that speaks of an adapter."""
        if not any(word in script.source.data for word in (b"load_in_4bit", b"load_in_8bit")):
            return
        files = (*run.scripts, script, *script.imported)
        if any(word in one.source.data for one in files for word in _ADAPTS) or run.arguments.get("use_peft").truth:
            return
        trainer = next((call for call in script.calls(*_TRAINERS) if not call.has_star), None)
        for call in script.calls("transformers.BitsAndBytesConfig", "*.from_pretrained"):
            asked = [call.keyword(name) for name in ("load_in_4bit", "load_in_8bit")]
            if trainer is None or script.guarded_by(call.node) or not any(field.truth is True for field in asked):
                continue
            yield self.finding(
                Text(
                    "The model is loaded quantized, and no adapter is attached: the Trainer refuses it.",
                    "模型以量化方式加载，而没有挂适配器：Trainer 会拒绝。",
                ),
                certainty=Certainty.LIKELY,
                cure=self.cures,
                spans=(call.place.span(), trainer.place.span(Text("trained here", "在此训练"))),
                confirm=Text("The model that reaches the Trainer is no PeftModel", "交给 Trainer 的模型不是 PeftModel"),
            )
            return

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.facts.fsdp import is_fsdp_requested
from gonogo.hazards.rule import Certainty, Environment, Field, Findings, Hazard, Pattern, Run, Text, translated

_LAYER_CLASS_MESSAGES = ("Could not find the transformer layer class", "Could not find the transformer layer cls")
_AUTO_WRAP_FRAMES = (
    ("accelerate/utils/dataclasses.py", "set_auto_wrap_policy"),
    ("accelerate/accelerator.py", "set_auto_wrap_policy"),
    ("peft/utils/other.py", "fsdp_auto_wrap_policy"),
)
_CLASS_PATTERN = Pattern(r"Could not find the transformer layer (?:class|cls) ['\"]?(\w{1,100})['\"]? in the model")
_WRAP_CLASS_SETTING_PATTERN = Pattern(r"transformer_layer_cls_to_wrap['\"]?\s*[=: ]\s*['\"\[]*([A-Za-z]\w{1,100})")

# The layers of transformers' architectures (their _no_split_modules), by the part of the class's name before "For".
_LAYER_CLASSES_BY_FAMILY = {
    **{
        family: (f"{family}DecoderLayer",)
        for family in (
            *("Llama", "Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Moe", "Mistral", "Mixtral", "Gemma", "Gemma2", "Gemma3"),
            *("Phi", "Phi3", "Falcon", "OPT", "DeepseekV2", "DeepseekV3", "Olmo", "Olmo2", "Glm", "Glm4"),
            *("Starcoder2", "StableLm", "Cohere", "Granite", "XGLM"),
        )
    },
    **{family: (f"{family}Block",) for family in ("Bloom", "GPT2", "GPTJ", "GPTNeo", "T5", "Mpt", "CodeGen")},
    **{family: (f"{family}Layer",) for family in ("GPTNeoX", "Bert", "Roberta")},
}


class FsdpWrapClassNotFound(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """A class of another architecture than that in the model's config.json."""
        model, name = run.model, "fsdp_transformer_layer_cls_to_wrap"
        if model is None or model.config is None or "auto_map" in model.config or not model.architectures:
            return
        given = run.accelerate.get("fsdp_config", name) if run.accelerate is not None else Field.missing()
        if not given.known:
            given = run.arguments.get(name)
        if given.string is None and run.launch is not None:
            given = run.launch.launcher_options.get(name)
        owns = _layer_classes(model.architectures[0])
        if given.string is None or owns is None or given.place is None:
            return
        wrong = [one.strip() for one in given.string.split(",") if one.strip() and one.strip() not in owns]
        # A class that is in no table may be one of the model's smaller modules.
        if not wrong or not all(_is_layer_of_known_architecture(one) for one in wrong):
            return
        writable = given.place.source.writable and given.place.text.strip("'\"") == given.string
        edit = given.place.edit(owns[0]) if writable else None
        yield self.finding(
            translated("{wrong} is not a class of {architecture}, whose layers are {owns}.").format(
                wrong=", ".join(wrong), architecture=model.architectures[0], owns=", ".join(owns)
            ),
            cure=translated("Set fsdp_transformer_layer_cls_to_wrap to {own}").format(own=owns[0]),
            spans=given.span(),
            fixes=self.fix(translated("Use the model's own layer class"), edit) if edit is not None else None,
        )

    def in_log(self, log: FailureLog) -> Findings:
        """accelerate's or transformers' error; whether FSDP was requested tells it from a stale default config."""
        evidence = first_match(log, *_LAYER_CLASS_MESSAGES) or (
            None if log.errors else find_truncated_error(log, *_AUTO_WRAP_FRAMES, max_frames=2)
        )
        if evidence is None:
            return
        named = _CLASS_PATTERN.search(matched_text(log, evidence)) or _WRAP_CLASS_SETTING_PATTERN.search(
            f"{log.setup.launch}\n{log.setup.script}"
        )
        # A truncated traceback lacks its last line; these functions raise no other error.
        requested = is_fsdp_requested(log) if first_match(log, *_LAYER_CLASS_MESSAGES) else None
        yield self.log_finding(
            evidence,
            translated("FSDP looks for {layer} among the classes of the model's modules and finds none.").format(
                layer=Text(named.group(1), f" {named.group(1)}") if named else translated("the class to wrap")
            ),
            certainty={True: Certainty.CERTAIN, None: Certainty.LIKELY, False: Certainty.POSSIBLE}[requested],
        )


def _layer_classes(architecture: str) -> tuple[str, ...] | None:
    """The layer classes of an architecture; None if it is unknown."""
    for ending in (
        "ForCausalLM",
        "ForSequenceClassification",
        "ForConditionalGeneration",
        "LMHeadModel",
        "ForMaskedLM",
    ):
        if architecture.endswith(ending):
            return _LAYER_CLASSES_BY_FAMILY.get(architecture.removesuffix(ending))
    return None


def _is_layer_of_known_architecture(name: str) -> bool:
    """Whether a class is a known architecture's layer, possibly miscapitalized: LLaMADecoderLayer."""
    return any(name.lower() == layer.lower() for layers in _LAYER_CLASSES_BY_FAMILY.values() for layer in layers)

from collections.abc import Iterator

from msgspec.structs import replace

from gonogo.evidence.config.model import ModelConfig
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.hazards.facts.training_framework import uses_trainer
from gonogo.hazards.facts.training_script import is_certainly_ddp, run_mentions
from gonogo.hazards.memory import _gpu_shortage as gpu
from gonogo.hazards.memory._logged_shortage import STATES, certainty_for_kind, find_logged_shortage
from gonogo.hazards.memory._megatron_remedies import shortage_findings
from gonogo.hazards.rule import (
    Certainty,
    Environment,
    Findings,
    Hazard,
    Pattern,
    RehearsalRecord,
    Run,
    Text,
    translated,
)

# Code that trains less than the whole model, stores it in fewer bytes, or shards it.
_MEMORY_SAVING_WORDS = (
    *(b"peft", b"lora", b"LoRA", b"requires_grad", b"device_map", b"load_in_", b"quantization", b"freeze", b"galore"),
    *(b"fsdp", b"FSDP", b"deepspeed", b"offload", b"Adafactor", b"8bit", b"tensor_parallel", b"tp_plan"),
)
_DENSE_MODEL_TYPES = ("llama", "qwen2", "qwen3", "mistral")


class GpuOomModelStates(Hazard):
    def in_environment(self, environment: Environment, run: Run) -> Findings:
        """All parameters trained with Adam on one GPU each, where even 16-bit states exceed the GPU's memory."""
        sizes = [one.memory for one in environment.gpus if one.memory]
        if not sizes or run.launch is None or run.model is None or not uses_trainer(run) or not run.scripts:
            return
        alone = run.launch.launcher == "python" and run.world_size == 1 and run.uses_deepspeed is False
        if not (is_certainly_ddp(run) or alone) or run_mentions(run, run.scripts[0], *_MEMORY_SAVING_WORDS):
            return
        optimizer = run.arguments.get("optim")
        if not optimizer.absent and not str(optimizer.value).startswith("adamw_torch"):
            return
        parameters = _count_parameters(run.model)
        if parameters is None or str(optimizer.value).endswith(("bit", "4bit", "8bit")):
            return
        need, have = 8 * parameters, max(sizes)
        if need <= have:
            return
        yield self.finding(
            self.texts["cause_in_environment"].format(
                name=run.model.name, billions=parameters / 1e9, need=need / 2**30, have=have / 2**30
            ),
            spans=run.launch.place.span(),
        )

    def in_rehearsal(self, record: RehearsalRecord) -> Findings:
        """A shortage in which model states outweigh activations, or exceed the device alone."""
        yield from shortage_findings(self, record, gpu.state_remedies, of_model_states=True)

    def in_log(self, log: FailureLog) -> Findings:
        """An out-of-memory error while loading, in an engine's setup or in an optimizer step."""
        short = find_logged_shortage(log)
        certainty = certainty_for_kind(short, STATES)
        if short is None or certainty is None:
            return
        finding = self.log_finding(
            short.evidence,
            self.texts["sizes_cause"].format(sizes=short.sizes, where=short.where, phase=short.phase)
            if certainty is not Certainty.POSSIBLE
            else self.texts["possible_cause"].format(sizes=short.sizes),
            certainty=certainty,
            cure=(
                *short.sharing_and_fragmentation_cures,
                *(short.activity_cures if short.kind == STATES else ()),
                *self._choose_cures(log),
            ),
            confirm=self.texts["confirm"],
        )
        yield finding if short.kind == STATES else replace(finding, spans=())  # the place is about the other kind

    def _choose_cures(self, log: FailureLog) -> Iterator[Text]:
        stage = log.setup.zero_stage
        if stage != 3:
            yield self.texts["partition_cure"]
        if not log.setup.offloads("optimizer"):
            yield self.texts["offload_cure"]
        if stage == 3 and not log.setup.offloads("param"):
            yield translated("Offload the parameters too (zero_optimization.offload_param.device: cpu)")
        if _trains_adapters(log):
            yield self.texts["quantize_cure"]
            yield translated("Use more GPUs, or GPUs with more memory")
            return
        yield self.texts["adapters_cure"]
        yield translated("Use more GPUs, or GPUs with more memory")


_ADAPTERS_PATTERN = Pattern(r"trainable params: [\d,]+ \|\||(?i:\bq?lora\b)|PeftModel|peft/tuners")
_FULL_FINE_TUNING_PATTERN = r"(?i)finetuning_type[:= ]+full|train_type[ =:]+full|tuner_type[ =:]+full"


def _trains_adapters(log: FailureLog) -> bool:
    """True if the log or the setup mentions adapters but not training all weights."""
    spoken = log.find(_ADAPTERS_PATTERN) is not None or log.setup.mentions(r"(?i)\bq?lora|peft|--use_peft|adapter")
    return spoken and not log.setup.mentions(_FULL_FINE_TUNING_PATTERN)


def _count_parameters(model: ModelConfig) -> int | None:
    """The parameter count of a dense decoder, from its config.json; None for other architectures."""
    if model.model_type not in _DENSE_MODEL_TYPES:
        return None
    names = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size", "num_attention_heads")
    hidden, layers, inner, words, heads = (model.first_value(name) for name in names)
    if not all(isinstance(one, int) and one > 0 for one in (hidden, layers, inner, words, heads)):
        return None
    width = model.first_value("head_dim") or hidden // heads
    kept = model.first_value("num_key_value_heads") or heads
    layer = 2 * hidden * heads * width + 2 * hidden * kept * width + 3 * hidden * inner
    return int(layers * layer + words * hidden * (1 if model.first_value("tie_word_embeddings") else 2))

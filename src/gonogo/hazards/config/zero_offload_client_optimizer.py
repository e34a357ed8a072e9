import ast

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.log.match import first_match, matched_text
from gonogo.evidence.log.truncated_traceback import find_truncated_error
from gonogo.hazards.config._optimizers import optimizer_or_scheduler_kind
from gonogo.hazards.facts.training_framework import fix_with_edits, uses_trainer
from gonogo.hazards.rule import (
    Certainty,
    DeepSpeedConfig,
    Edit,
    Findings,
    Fix,
    Hazard,
    Pattern,
    Run,
    Script,
    Text,
    translated,
)

_OFFLOAD_OPTIMIZER_MESSAGES = (
    "ZeRO Offload can only work with DeepSpeed optimizers",  # transformers before 4.9
    "ZeRO-Offload with a client provided optimizer",
    "either use deepspeed.ops.adam.DeepSpeedCPUAdam or set an optimizer in your ds-config",
)
_CLASS_PATTERN = Pattern(r"<class '([\w.]{1,200})'")

_CPU_OPTIMIZERS = ("DeepSpeedCPUAdam", "DeepSpeedCPULion", "DeepSpeedCPUAdagrad")


_ADAMW_BLOCK = {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}}


class ZeroOffloadClientOptimizer(Hazard):
    def in_config(self, config: DeepSpeedConfig, run: Run) -> Findings:
        """Offload without an optimizer section, under a Trainer that passes its own optimizer."""
        if not _requires_deepspeed_cpu_optimizer(config) or not config.raw("optimizer").absent or not uses_trainer(run):
            return
        versions = run.environment
        if versions.within("transformers", "<4.30") is not True or versions.within("deepspeed", ">=0.9") is not True:
            return
        transformers = versions.field("transformers")
        offload = config.offload_target("optimizer")
        yield self.finding(
            self.texts["cause_in_config"].format(device=offload.value, version=transformers.get("<4.30")),
            certainty=Certainty.LIKELY,
            spans=(offload.span(), transformers.span()),
            fixes=fix_with_edits(
                translated('Add an "optimizer" block'),
                lambda: config.inserting("optimizer", value=_ADAMW_BLOCK),
                safe=False,
            ),
            confirm=translated("The Trainer is not given its own optimizers="),
        )

    def in_script(self, script: Script, run: Run) -> Findings:
        """``deepspeed.initialize(optimizer=...)`` with an optimizer of torch's, under offload."""
        config = run.config
        if config is None or not _requires_deepspeed_cpu_optimizer(config):
            return
        for call in script.calls("deepspeed.initialize"):
            node = call.keyword_node("optimizer")
            kinds = script.kinds_of(node) if node is not None else ()
            if node is None or not kinds or any(name.endswith(_CPU_OPTIMIZERS) for name in kinds):
                continue
            if optimizer_or_scheduler_kind(script, node) != "optimizer":
                continue
            offload = config.offload_target("optimizer")
            yield self.finding(
                self.texts["cause_in_script"].format(device=offload.value, kind=kinds[0]),
                cure=(self.texts["cure_in_script"], self.texts["slower_cure"]),
                spans=(script.place(node).span(), offload.span(self.texts["offload_label"])),
                fixes=(
                    *_deepspeed_adam_fixes(script, node),
                    *fix_with_edits(self.texts["disable_force_fix"], lambda: _disable_force_edit(config), safe=False),
                ),
            )

    def in_log(self, log: FailureLog) -> Findings:
        """DeepSpeed's error, with the optimizer's class if it is shown."""
        evidence = first_match(log, *_OFFLOAD_OPTIMIZER_MESSAGES)
        certainty = Certainty.CERTAIN if evidence else Certainty.LIKELY
        if evidence is None:
            evidence = find_truncated_error(log, ("runtime/engine", "raise ZeRORuntimeException(msg)"), max_frames=1)
        if evidence:
            named = _CLASS_PATTERN.search(matched_text(log, evidence))
            yield self.log_finding(
                evidence,
                self.texts["cause_in_log"].format(
                    optimizer=Text(named.group(1), f" {named.group(1)}") if named else self.texts["script_optimizer"]
                ),
                certainty=certainty,
                cure=(self.texts["cure_in_log"], self.texts["slower_cure"]),
            )


_ADAM_KEYWORDS = frozenset({"lr", "betas", "eps", "weight_decay"})
_TORCH_WEIGHT_DECAY = {"torch.optim.AdamW": "0.01", "torch.optim.Adam": "0.0"}
_DEEPSPEED_ADAM_FIX = translated("Replace it with DeepSpeedCPUAdam with the same settings")


def _deepspeed_adam_fixes(script: Script, node: ast.expr) -> tuple[Fix, ...]:
    """Replace torch's Adam by DeepSpeed's CPU Adam: the same arguments, except for the default weight decay."""
    made = script.bound_to(node)
    name = script.qualified(made.func) if isinstance(made, ast.Call) else None
    if not isinstance(made, ast.Call) or name not in _TORCH_WEIGHT_DECAY or not script.imports("deepspeed"):
        return ()
    if len(made.args) > 1 or any(keyword.arg not in _ADAM_KEYWORDS for keyword in made.keywords):
        return ()
    arguments = [script.place(one).text for one in (*made.args, *made.keywords)]
    if not any(keyword.arg == "weight_decay" for keyword in made.keywords):
        arguments.append(f"weight_decay={_TORCH_WEIGHT_DECAY[name]}")
    if name == "torch.optim.Adam":
        arguments.append("adamw_mode=False")
    edits = [script.replacing(made, f"DeepSpeedCPUAdam({', '.join(arguments)})")]
    edits.append(script.inserting_import("from deepspeed.ops.adam import DeepSpeedCPUAdam"))
    return (Hazard.fix(_DEEPSPEED_ADAM_FIX, *edits, safe=False),)


def _disable_force_edit(config: DeepSpeedConfig) -> Edit:
    return config.inserting("zero_force_ds_cpu_optimizer", value=False)


def _requires_deepspeed_cpu_optimizer(config: DeepSpeedConfig) -> bool:
    """Whether the optimizer is offloaded and DeepSpeed accepts only its own CPU optimizer."""
    forced = config.raw("zero_force_ds_cpu_optimizer")
    return config.offload_target("optimizer").get() in ("cpu", "nvme") and (forced.absent or forced.truth is True)

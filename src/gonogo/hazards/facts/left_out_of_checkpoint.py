"""Settings that leave state out of a checkpoint or of its resume, and the edits that take them back."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from gonogo.evidence.launch.configs import read_launch_yaml
from gonogo.evidence.training_arguments import ARGUMENT_CLASSES, TRAINER_CLASSES
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.rule import Call, Edit, Field, Fix, Run, Text, translated

OPTIMIZER, SCHEDULER, WEIGHTS = "optimizer", "scheduler", "weights"
_ALL_BUT_WEIGHTS = (OPTIMIZER, SCHEDULER)
_EXCLUDING_ARGUMENTS = {
    "save_only_model": _ALL_BUT_WEIGHTS,  # transformers
    "resume_only_model": _ALL_BUT_WEIGHTS,  # ms-swift
    "no_save_optim": _ALL_BUT_WEIGHTS,  # Megatron-LM
    "no_load_optim": _ALL_BUT_WEIGHTS,
    "finetune": _ALL_BUT_WEIGHTS,
}
"""Arguments which, where they are true, leave these states out."""
_EXCLUDING_LOAD_KEYWORDS = {
    "load_module_only": (True, _ALL_BUT_WEIGHTS),
    "load_optimizer_states": (False, (OPTIMIZER,)),
    "load_lr_scheduler_states": (False, (SCHEDULER,)),
}
"""Keywords of DeepSpeed's ``load_checkpoint``: the value with which they leave these states out."""
_RESTARTING_ARGUMENTS = ("overwrite_output_dir",)
"""Arguments with which a script does not look for the last checkpoint."""
_RESUME_MODES = ("trainer.resume_mode", "resume_mode")
"""verl's, whose default is ``auto``."""
_LEAVE_OUT = translated("Remove {name}: with it, a resumed run has no {state}")
_STATES = {
    OPTIMIZER: translated("optimizer state"),
    SCHEDULER: translated("scheduler state"),
    WEIGHTS: translated("checkpoint to read"),
}
_PASS_CHECKPOINT = translated("Pass on the checkpoint to resume from: {name}={value}")
_GATHER_WEIGHTS = translated("Gather the weights for the save: stage3_gather_16bit_weights_on_model_save=true")
_KEEP_MODULES = translated("Have the adapter save these modules: modules_to_save={names}")


def fixes_for_state_left_out(hazard: Hazard, state: str, run: Run) -> Iterator[Fix]:
    """Fixes that remove the settings by which this kind of state is left out of checkpoints."""
    for name, states in _EXCLUDING_ARGUMENTS.items():
        if state in states and run.arguments.get(name).truth is True:
            yield from _argument_removal_fixes(hazard, name, state, run)
    for call in (call for script in run.scripts for call in script.calls("*.load_checkpoint")):
        for name, (value, left_out) in _EXCLUDING_LOAD_KEYWORDS.items():
            if state in left_out and call.has(name) and call.keyword(name).truth is value:
                title = _LEAVE_OUT.format(name=f"{name}={value}", state=_STATES[state])
                yield hazard.fix(title, call.script.removing_keyword(call, name), safe=False)


def fixes_for_unread_checkpoint(hazard: Hazard, run: Run) -> Iterator[Fix]:
    """Fixes for what keeps a program from reading the checkpoint that its arguments name."""
    for name in _RESTARTING_ARGUMENTS:
        if run.arguments.get(name).truth is True:
            yield from _argument_removal_fixes(hazard, name, WEIGHTS, run)
    for name in _RESUME_MODES:
        mode = run.arguments.get(name)
        if mode.string == "disable" and mode.place is not None and run.arguments.source_of(name) == "option":
            changed = mode.place.edit(mode.place.text.replace("disable", "auto"))
            yield hazard.fix(_PASS_CHECKPOINT.format(name=name, value="auto"), changed, safe=False)
    for script in run.scripts:
        trainers: dict[ast.expr, Call] = {call.node: call for call in script.calls(*TRAINER_CLASSES)}
        for call in script.calls("*.train"):
            made = trainers.get(script.bound_to(call.receiver)) if call.receiver is not None else None
            arguments = made.keyword_node("args") if made is not None else None
            if arguments is None or call.has("resume_from_checkpoint") or call.node.args:
                continue
            value = f"{script.place(arguments).text}.resume_from_checkpoint"
            edit = script.setting_keyword(call, "resume_from_checkpoint", value)
            yield hazard.fix(_PASS_CHECKPOINT.format(name="resume_from_checkpoint", value=value), edit, safe=False)


def gather_on_save_fixes(hazard: Hazard, run: Run) -> Iterator[Fix]:
    """A fix that makes ZeRO-3 gather the weights when it saves a checkpoint in transformers' format."""
    key = ("zero_optimization", "stage3_gather_16bit_weights_on_model_save")
    config = run.config
    if config is not None and config.zero_stage == 3 and config.get(*key).get() is not True:
        yield from _fix_if_editable(hazard, _GATHER_WEIGHTS, lambda: config.inserting(*key, value=True))


def modules_to_save_fixes(hazard: Hazard, lost: list[str], run: Run) -> Iterator[Fix]:
    """A fix that makes an adapter save the modules that are trained beside it."""
    modules = dict.fromkeys(name.split(".")[-2] for name in lost if name.count(".") and "lora_" not in name)
    for call in (call for script in run.scripts for call in script.calls("peft.LoraConfig", "peft.*Config")):
        named = call.keyword("modules_to_save") if call.has("modules_to_save") else Field.missing()
        kept = named.get() or ()
        if not modules or (named.known and not isinstance(kept, list | tuple)) or not (named.known or named.absent):
            continue
        names = repr([*dict.fromkeys([*kept, *modules])])
        edit = call.script.setting_keyword(call, "modules_to_save", names)
        yield hazard.fix(_KEEP_MODULES.format(names=names), edit, safe=False)


def _argument_removal_fixes(hazard: Hazard, name: str, state: str, run: Run) -> Iterator[Fix]:
    title = _LEAVE_OUT.format(name=name, state=_STATES[state])
    source, launch = run.arguments.source_of(name), run.launch
    if source == "option" and launch is not None:
        options = launch.options
        yield from _fix_if_editable(hazard, title, lambda: options.removing(name))
    elif source == "file" and launch is not None:
        config = read_launch_yaml(launch, launch.framework_config.string or "")
        if config is not None:
            yield from _fix_if_editable(hazard, title, lambda: config.removing(name))
    else:
        for call in (call for script in run.scripts for call in script.calls(*ARGUMENT_CLASSES)):
            if call.has(name):
                yield hazard.fix(title, call.script.removing_keyword(call, name), safe=False)


def _fix_if_editable(hazard: Hazard, title: Text, make: Callable[[], Edit | None]) -> Iterator[Fix]:
    try:
        yield hazard.fix(title, make(), safe=False)
    except KeyError:  # it has no place of its own
        return

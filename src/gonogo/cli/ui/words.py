"""The texts of the page in both languages, by the names used in its script and markup."""

from __future__ import annotations

from gonogo.finding import translated
from gonogo.finding.words import PHASE_NAMES
from gonogo.rehearse.display import SECOND_PASS, STATES

WORDS = {
    "title": translated("Will it run?"),
    "before": translated("Before a run"),
    "after": translated("A run that died"),
    "reports": translated("Reports"),
    "no reports": translated("None yet."),
    "folder": translated("Folder"),
    "up": translated("up"),
    "empty": translated("Nothing here."),
    "left out": translated(
        "not shown: {count} (links that point outside the folder, names that are not valid text, or too many files)"
    ),
    "kind folder": translated("folder"),
    "kind launch": translated("launch"),
    "kind log": translated("log"),
    "kind records": translated("guarded run"),
    "command": translated("Launch command"),
    "command hint": translated(
        "Choose a script above, or enter a command. Without either, check reads the whole folder."
    ),
    "gpus": translated("GPUs per node, or instance type"),
    "nodes": translated("Nodes"),
    "host memory": translated("Host memory"),
    "as command": translated("from the command"),
    "more": translated("More"),
    "ranks": translated("Ranks to rehearse"),
    "steps": translated("Steps"),
    "model": translated("Model to plan for"),
    "model hint": translated("a folder, or a hub name"),
    "seq len": translated("Tokens per sample"),
    "tune": translated("Fine-tuning"),
    "task": translated("Task"),
    "teacher": translated("Teacher (gkd)"),
    "other settings": translated("Rehearse with other settings"),
    "settings hint": translated(
        "The changes are made in a copy: your files stay as they are. A field left empty keeps its current value."
    ),
    "micro-batch": translated("samples per micro-batch"),
    "seq-len": translated("max tokens per sample"),
    "accumulation": translated("gradient accumulation"),
    "stage": translated("ZeRO stage"),
    "offload-optimizer": translated("optimizer states on"),
    "offload-parameters": translated("parameters on"),
    "on gpu": translated("GPU"),
    "beside": translated("Side by side with the unchanged run, in one table"),
    "training changes": translated("Cure may change training results"),
    "check": translated("Check"),
    "rehearse": translated("Rehearse"),
    "plan": translated("Plan"),
    "cure": translated("Cure"),
    "diagnose": translated("Diagnose"),
    "run": translated("Run"),
    "compare": translated("Compare"),
    "compare with": translated("Compare with"),
    "choose another": translated("another rehearsal …"),
    "not here": translated("{name} is not in this folder: choose its folder above, or start gonogo ui in its project"),
    "drop": translated("Drop a log anywhere on this page to diagnose it, or a script from this folder to launch it."),
    "check hint": translated("Reads the files. Seconds."),
    "rehearse hint": translated("Runs the program on virtual GPUs. Minutes."),
    "plan hint": translated("Strategies that fit, fastest first."),
    "cure hint": translated("The smallest change that makes it GO."),
    "log": translated("The log"),
    "log hint": translated("Paste it here, or choose files in the folder above. It stays on this machine."),
    "chosen": translated("Chosen"),
    "with files": translated("Also read the files in this folder"),
    "cancel": translated("Cancel"),
    "cancelled": translated("cancelled"),
    "failed": translated("failed"),
    "running": translated("running"),
    "starting": translated("starting"),
    "own tab": translated("Open in a new tab"),
    "whole folder": translated("the whole folder"),
    "pasted": translated("a pasted log"),
    "welcome": translated("Choose what to launch, then an action."),
    "welcome check": translated("**Check** reads scripts and configs for known failures."),
    "welcome rehearse": translated(
        "**Rehearse** runs the real program at full size on virtual GPUs and finds errors, memory peaks and "
        "diverging ranks."
    ),
    "welcome plan": translated("**Plan** compares the strategies that fit your model."),
    "welcome cure": translated("**Cure** searches for the smallest change that makes it run, and verifies it."),
    "gone": translated("gonogo ui has stopped or can't be reached. Restart it in the terminal where you started it."),
    "report": translated("Report"),
    "rank": translated("rank"),
    "gpu memory": translated("GPU memory"),
    "host memory of rank": translated("host memory"),
    "memory so far": translated("GPU memory so far, by rank"),
    "second pass": SECOND_PASS,
    "step of": translated("step {step} of {steps}"),
    **{f"phase {name}": text for name, text in PHASE_NAMES.items()},
    **{f"state {name}": text for name, text in STATES.items()},
}
"""``**…**`` marks bold text."""

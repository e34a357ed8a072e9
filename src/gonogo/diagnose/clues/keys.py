"""Keys of a state dict that differ by a wrapper's prefix, and weight names in a KeyError."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts, RaisedException
from gonogo.finding.log_answer import Clue, CluePlace

_WRAPPER_PREFIXES = {
    "module.": translated("the DataParallel or DDP wrapper adds this prefix"),
    "_orig_mod.": translated("the torch.compile wrapper adds this prefix"),
    "base_model.model.": translated("the PEFT wrapper adds this prefix"),
    "_fsdp_wrapped_module.": translated("the FSDP1 wrapper adds this prefix"),
    "_checkpoint_wrapped_module.": translated("the activation checkpointing wrapper adds this prefix"),
    "model.": translated("a model class with a head adds this prefix"),
    "language_model.": translated("a multimodal class keeps its language model under this prefix"),
}
_WEIGHT_NAME_PATTERN = lazy_compile(r"^\w+(?:\.\w+){2,}$")


def state_dict_key_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """How the keys of a checkpoint and a model differ: a prefix that one side lacks, or a missing weight."""
    for raised in facts.chain:
        yield from _fused_expert_clues(log, raised)
        if raised.message.form == "state_dict":
            yield from _inserted_component_clues(raised)
            yield from _prefix_clues(raised)
        else:
            yield from _paired_name_clues(raised)
        if raised.message.form == "missing_key" and _WEIGHT_NAME_PATTERN.match(raised.message.names[0]):
            yield Clue(
                translated(
                    "'{key}' is the name of a weight: the code that loads or converts the checkpoint has no "
                    "entry for it, so the names on the two sides differ, or that code doesn't support this "
                    "kind of layer"
                ).format(key=raised.message.names[0]),
                (_clue_place(raised),),
            )


_FUSED_PATTERN = lazy_compile(r"(?i)missing[^\n]{0,400}?['\"]([\w.]{0,200}experts\.(?:gate_up_proj|down_proj))['\"]")


def _fused_expert_clues(log: FailureLog, raised: RaisedException) -> Iterator[Clue]:
    """Experts' weights that are fused into one tensor on one side and separate on the other."""
    found = _FUSED_PATTERN.search(raised.message.text[:6000])
    if found is None:
        return
    version = log.setup.version_texts.get("transformers", "")
    package = next((frame.package for frame in reversed(raised.frames) if frame.package), "")
    yield Clue(
        translated(
            "{key} holds all experts of a layer in one tensor, the layout of transformers 5{there}; the "
            "checkpoint, or the code that fills it, has one weight per expert (experts.0.gate_proj.weight "
            "…). Use transformers 4 for it, or a release of {package} that supports the fused layout"
        ).format(
            key=found.group(1),
            there=Text(f" (installed: {version})", f"（已安装：{version}）") if version else "",
            package=package or translated("the framework"),
        ),
        (_clue_place(raised),),
    )


def _prefix_clues(exception: RaisedException) -> Iterator[Clue]:
    """A prefix that all keys of one side have and the other side's lack."""
    missing, unexpected = set(exception.message.names), set(exception.message.unexpected)
    if not missing or not unexpected:
        return
    counts: Counter[tuple[str, str]] = Counter()
    by_end: dict[str, list[str]] = {}
    for key in unexpected:
        by_end.setdefault(_key_suffix(key), []).append(key)
    for key in missing:
        for other in by_end.get(_key_suffix(key), ()):
            counts[_differing_prefixes(key, other)] += 1
    if not counts:
        return
    (ours, theirs), count = counts.most_common(1)[0]
    if ours == theirs or count < max(1, min(len(missing), len(unexpected)) // 3):
        return
    wrapper = _WRAPPER_PREFIXES.get(ours) or _WRAPPER_PREFIXES.get(theirs)
    yield Clue(
        translated(
            "The keys differ only in their prefix: the model has '{ours}' where the checkpoint has '{theirs}' "
            "({count} of {of} keys shown){wrapper}. Rename the keys when loading (strip or add the prefix), or "
            "load into the module that was saved"
        ).format(
            ours=ours or "",
            theirs=theirs or "",
            count=count,
            of=len(missing),
            wrapper=translated(": {how}").format(how=wrapper) if wrapper is not None else "",
        ),
        (_clue_place(exception),),
    )


def _inserted_component_clues(exception: RaisedException) -> Iterator[Clue]:
    """A component in the middle of each key that one side has and the other lacks."""
    missing, unexpected = set(exception.message.names), set(exception.message.unexpected)
    counts: Counter[tuple[str, bool]] = Counter()
    for ours, theirs in ((missing, True), (unexpected, False)):
        others = unexpected if theirs else missing
        for key in ours:
            parts = key.split(".")
            for index in range(1, len(parts) - 1):
                if ".".join((*parts[:index], *parts[index + 1 :])) in others:
                    counts[parts[index], theirs] += 1
    if not counts:
        return
    (part, in_model), count = counts.most_common(1)[0]
    if count < max(1, min(len(missing), len(unexpected)) // 3):
        return
    peft = part == "default" and any("lora_" in key or "adapter" in key for key in (*missing, *unexpected))
    yield Clue(
        translated(
            "The keys differ only in '.{part}' in their middle: {side} ({count} of {of} keys shown){why}. Rename the "
            "keys when loading, or load them with the library that saved them"
        ).format(
            part=part,
            side=translated("the model has it, the checkpoint lacks it")
            if in_model
            else translated("the checkpoint has it, the model lacks it"),
            count=count,
            of=max(len(missing), 1),
            why=translated(
                ": it is the name of a PEFT adapter, which save_pretrained leaves out. An adapter is loaded by PEFT "
                "(set_peft_model_state_dict, PeftModel.from_pretrained), not as a whole model's state: newer releases "
                "of transformers do so when they resume"
            )
            if peft
            else Text("", ""),
        ),
        (_clue_place(exception),),
    )


_NAMED_KEY_PATTERN = lazy_compile(r"\b(\w{2,40}) ?[=:] ?[\"'`]?(\w+(?:\.\w+){2,})[\"'`]?")


def _paired_name_clues(exception: RaisedException) -> Iterator[Clue]:
    """Two names of one weight in a message that differ in a single component."""
    named = _NAMED_KEY_PATTERN.findall(exception.message.text[:2000])
    for (one, first), (other, second) in pairwise(named):
        shorter, longer = sorted((first.split("."), second.split(".")), key=len)
        if one == other or len(longer) != len(shorter) + 1:
            continue
        at = next((index for index, part in enumerate(shorter) if part != longer[index]), len(shorter))
        if longer[:at] + longer[at + 1 :] != shorter:
            continue
        has = one if len(first.split(".")) > len(second.split(".")) else other
        yield Clue(
            translated(
                "{one} and {other} name the same weight and differ only in '{part}.', which {has} has: the mapping of "
                "names was written for another release of the model's code, which nests (or no longer nests) its parts "
                "so. Use releases that go together: a later one of the converter, or an older transformers"
            ).format(one=one, other=other, part=longer[at], has=has),
            (_clue_place(exception),),
        )
        return


_ENGINE_NAME_PATTERN = lazy_compile(
    r"There is no module or parameter named ['\"]([\w.]{1,120})['\"] in (\w{1,100})(?:[^{]{0,200}\{([^}]{1,4000}))?"
)
_QUOTED_NAME_PATTERN = lazy_compile(r"['\"]([\w.]{3,200})['\"]")


def engine_name_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A weight's name that the rollout engine's class keeps under another prefix."""
    raised = facts.chain[-1] if facts.chain else None
    found = _ENGINE_NAME_PATTERN.search(raised.message.text[:8000]) if raised is not None else None
    if raised is None or found is None:
        return
    sent, class_, listed = found.groups()
    first = sent.split(".")[0]
    there = [name for name in _QUOTED_NAME_PATTERN.findall(listed or "") if first in name.split(".")[1:]]
    package = next((frame.package for frame in reversed(raised.frames) if frame.package), "")
    engine = translated("the rollout engine") if not package else Text(package, package)
    if not there and not (first == "model" and class_.endswith("ForConditionalGeneration")):
        return
    parts = there[0].split(".") if there else ["language_model", first]
    before = ".".join(parts[: parts.index(first, 1)])
    yield Clue(
        translated(
            "The names that are sent begin with '{first}.', and {class_} has them under '{before}.{first}.': the "
            "trainer's model and the one that {engine} built are of two classes{kind}. Use a release of {engine} that "
            "has the trainer's class, a checkpoint of the class that {engine} builds, or a trainer that adds the "
            "prefix '{before}.'"
        ).format(
            first=first,
            class_=class_,
            before=before,
            engine=engine,
            kind=translated(" (text only there, multimodal here)") if "language" in before else Text("", ""),
        ),
        (_clue_place(raised),),
    )


def _key_suffix(key: str) -> str:
    """The last three components of a key, which match the same weight on both sides."""
    return ".".join(key.split(".")[-3:]) if key.count(".") > 2 else key.rpartition(".")[2]


def _differing_prefixes(missing_key: str, unexpected_key: str) -> tuple[str, str]:
    """The prefixes of two keys before their common end."""
    left, right = missing_key.split("."), unexpected_key.split(".")
    while left and right and left[-1] == right[-1]:
        left.pop()
        right.pop()
    # If both also begin alike, the common beginning is included.
    return (".".join(left) + "." if left else "", ".".join(right) + "." if right else "")


def _clue_place(exception: RaisedException) -> CluePlace:
    return CluePlace(exception.log, exception.line)

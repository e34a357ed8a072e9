"""Settings of the run that a message or the failing line mentions, by the same identifier or an alias."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gonogo.evidence.failure.settings import NAMES, RunSetting, setting_meaning, settings_of
from gonogo.evidence.log.failure_log import FailureLog
from gonogo.evidence.patterns import Pattern, lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import FailureFacts, RaisedException
from gonogo.finding.log_answer import Clue, CluePlace

_IDENTIFIER_PATTERN = lazy_compile(r"[A-Za-z_]\w*")
_SETTINGS_BY_PHRASE = {
    "sequence parallel": ("sequence_parallel",),
    "remove padding": ("use_remove_padding",),
    "flash attention": ("attn_implementation", "attn_impl", "attention_backend", "flash_attn"),
    "flash_attention": ("attn_implementation", "attn_impl", "attention_backend", "flash_attn"),
    "gradient checkpointing": ("gradient_checkpointing",),
    "tensor parallel": NAMES["tp"],
    "pipeline parallel": NAMES["pp"],
    "virtual pipeline": NAMES["vpp"],
    "context parallel": NAMES["cp"],
    "expert parallel": NAMES["ep"],
    "packing": ("packing", "neat_packing", "sample_packing", "padding_free"),
    "packed": (
        "packing",
        "neat_packing",
        "sample_packing",
        "padding_free",
        "use_remove_padding",
        "use_packed_sequence",
    ),
    "save_for_backward": ("recompute_granularity", "gradient_checkpointing", "activation_checkpointing"),
    "padding_free": ("padding_free", "packing"),
    "lora": ("finetuning_type", "train_type", "tuner_type", "use_lora", "enable_lora", "lora_rank"),
    "inhomogeneous": ("use_dynamic_bsz", "use_dynamic_batching", "dynamic_batch_size"),
    "quantiz": ("quantization_bit", "load_in_4bit", "load_in_8bit", "quantization"),
}
"""Words in messages, and the names of the related setting in various frameworks."""
_COMMON_IDENTIFIERS = frozenset(
    ("self", "config", "args", "kwargs", "model", "data", "batch", "name", "type", "size", "output", "input", "step",
     "rank", "loss", "dtype", "device", "path", "train", "eval", "key", "value", "index", "true", "false", "none",
     "dataset", "tokenizer", "optimizer", "trainer", "template", "max_steps", "seed", "report_to", "state_dict")
)  # fmt: skip
"""Identifiers too common to indicate a setting."""
_UNBOUND_LOCAL_PATTERN = lazy_compile(r"local variable '(\w{1,80})' (?:referenced before|where it is not)")
_SELECTOR_KEYS = ("name", "type", "mode", "backend", "strategy", "engine")
_MAX_CLUES = 4
_PARALLELISMS = ("tp", "pp", "cp", "ep", "etp", "vpp")


def named_setting_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """Each setting that the message or the failing line mentions, with its value."""
    settings = settings_of(log)
    if not settings or not facts.chain:
        return
    raised = facts.chain[-1]
    seen: set[str] = set()
    for setting in _mentioned_settings(raised, settings):
        if setting.last_name in seen:
            continue
        seen.add(setting.last_name)
        if len(seen) > _MAX_CLUES:
            return
        yield Clue(
            translated("{name} is {value} in {source}").format(
                name=setting.name, value=setting.value[:80], source=setting.source
            ),
            (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
        )


_ASKED_SETTING_PATTERN = lazy_compile(
    r"(?i)(?:pass|set|use|with|specify|option|argument)[^\n.]{0,40}?[`'\" ]([a-z]\w*_\w+) ?= ?(True|False|\d{1,6})\b"
)


def ignored_setting_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A setting that the message asks for, and that the run already has."""
    raised = facts.chain[-1] if facts.chain else None
    requested = _ASKED_SETTING_PATTERN.search(raised.message.text[:4000]) if raised is not None else None
    if raised is None or requested is None:
        return
    name, value = requested.groups()
    for setting in settings_of(log):
        if setting.last_name == name.lower() and setting.value.strip().lower() == value.lower():
            caller = next((frame for frame in reversed(raised.frames) if frame.package not in _NAMED_BY_CALLERS), None)
            where = f"{caller.function} of {caller.package}" if caller is not None and caller.package else ""
            yield Clue(
                translated(
                    "The message asks for {name}={value}, which {setting} in {source} already says: it does not reach "
                    "this call{where}. A later release of the calling library may pass it on; or do without this "
                    "step{step}"
                ).format(
                    name=name,
                    value=value,
                    setting=setting.name,
                    source=setting.source,
                    where=Text(f" ({where} makes it without it)", f"（{where} 调用时没有传入它）") if where else "",
                    step=Text(f" ({caller.function})", f"（{caller.function}）") if caller is not None else "",
                ),
                (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
            )
            return


_NAMED_BY_CALLERS = ("transformers", "torch", "huggingface-hub", "")

_ON_CPU_PATTERN = lazy_compile(r"(?:two devices|same device|other tensors on|is on)\b.{0,80}\bcpu\b")
_OFFLOAD_PATTERN = lazy_compile(
    r"(?:^|_)off_?load(?:ing|_params|_parameters|_policy|_model|_param|_to_cpu)?$|^cpu_offload"
)


def offload_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A tensor that is still on the CPU, in a run whose settings keep the model there between its phases."""
    if not facts.chain or not _ON_CPU_PATTERN.search(" ".join(facts.chain[-1].message.text[:2000].split())):
        return
    raised = facts.chain[-1]
    for setting in settings_of(log):
        if _OFFLOAD_PATTERN.search(setting.last_name) and setting.value.strip().lower() not in _OFF_VALUES:
            phase = next((frame.function for frame in raised.frames if _PHASE_PATTERN.search(frame.function)), "")
            yield Clue(
                translated(
                    "{name} is {value} in {source}: what it keeps on the CPU has to be brought back before each phase "
                    "that uses it, and a part was not{before}. To tell: run once with it off, or without that phase"
                ).format(
                    name=setting.name,
                    value=setting.value[:80],
                    source=setting.source,
                    before=translated(" before {function}").format(function=phase) if phase else Text("", ""),
                ),
                (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
                against=("device-mismatch-input-not-moved", "device-mismatch"),
                decides=True,
            )
            return


_PHASE_PATTERN = lazy_compile(r"(?i)valid|eval|generat|logprob|log_prob|reference|refit|update|save|sync")
"""Names of functions that stand for a phase of a run."""


def _mentioned_settings(exception: RaisedException, settings: tuple[RunSetting, ...]) -> Iterator[RunSetting]:
    message = exception.message
    lines = [frame.code for frame in exception.frames[-2:]]
    words = {
        name.lower()
        for text in (message.text[:4000], *lines)
        for name in _IDENTIFIER_PATTERN.findall(text)
        if len(name) > 3 and "_" in name.strip("_")
    }
    words |= {name.lower() for name in (*message.names, *message.settings, *message.keywords)}
    words = {name for name in words if name not in _COMMON_IDENTIFIERS}
    chosen = {name for line in lines[-1:] for name in _IDENTIFIER_PATTERN.findall(line) if len(name) > 3}
    for setting in settings:
        if setting.last_name in words:
            yield setting
        elif setting.value in chosen and _IDENTIFIER_PATTERN.fullmatch(setting.last_name) and "_" in setting.last_name:
            yield setting  # The line is what this value chooses: lr_scaling_method: sqrt, and torch.sqrt(…).
    # The same setting under another framework's name.
    meanings = {meaning for name in words if (meaning := setting_meaning(name))}
    # ``cp_comm_type`` belongs to context parallelism.
    meanings |= {word for name in message.names for word in name.lower().split("_") if word in _PARALLELISMS}
    text = re.sub(r"\s+", " ", message.text[:4000]).lower()
    if unset := _UNBOUND_LOCAL_PATTERN.search(message.text):
        # The setting that selects the branch defining it: ``rollout.name`` for a variable ``rollout``.
        for setting in settings:
            parts = setting.name.lower().split(".")
            if unset.group(1).lower() in parts[:-1] and parts[-1] in _SELECTOR_KEYS:
                yield setting
    by_phrase = {name for phrase, names in _SETTINGS_BY_PHRASE.items() if phrase in text for name in names}
    for setting in settings:
        if setting_meaning(setting.name) in meanings or setting.last_name in by_phrase:
            yield setting


_ASSIGNED_VARIABLE_PATTERN = lazy_compile(r"(?<![\w$])([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)=([\w:.-]{1,60})")


def forced_variable_clues(log: FailureLog, cures: tuple[Text, ...]) -> Iterator[Clue]:
    """An environment variable that a cure sets, but the run sets to another value."""
    wanted = {
        name: value.rstrip(".,:") for text in cures[:2] for name, value in _ASSIGNED_VARIABLE_PATTERN.findall(text.en)
    }
    for setting in settings_of(log) if wanted else ():
        value = wanted.get(setting.name)
        if value is not None and value != setting.value:
            yield Clue(
                translated(
                    "{name}={there} is set in {source}, which requests exactly what is rejected here: remove "
                    "it to let the library decide, or set it to {value}"
                ).format(name=setting.name, there=setting.value[:60], source=setting.source, value=value),
                (setting.place,) if setting.place is not None else (),
            )


_NOT_SET_UP_PATTERN = lazy_compile(r"(?i)(?:is|are|was|has|have) not (?:been )?(?:initialized|set up|started|built)")
_PARTIAL_PATTERN = lazy_compile(r"(?:^|_)(?:only|skip|no_init|without)(?:_|$)|^debug_")
_OFF_VALUES = ("false", "0", "none", "no", "null", "off", "")


def skipped_part_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A setting that leaves out a part of the program, if something was never set up."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None or not _NOT_SET_UP_PATTERN.search(raised.message.text[:1000]):
        return
    for setting in settings_of(log):
        if _PARTIAL_PATTERN.search(setting.last_name) and setting.value.strip().lower() not in _OFF_VALUES:
            yield Clue(
                translated(
                    "{name} in {source} leaves a part of the program out: that part may be what sets it up. Run "
                    "without it, or use a later release that does not need it then"
                ).format(name=setting.name, source=setting.source),
                (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
            )
            return


_CLASS_WORD_PATTERN = lazy_compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CLASS_NAME_PATTERN = lazy_compile(r"(?<![\w.])((?:[A-Z][a-z0-9]+){2,}\w*)")


def named_class_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A setting with the words of a class in the message: ``super_offload`` for ``SuperOffloadOptimizer_Stage3``."""
    raised = facts.chain[-1] if facts.chain else None
    if raised is None:
        return
    for name in dict.fromkeys(_CLASS_NAME_PATTERN.findall(raised.message.text[:1000])[:4]):
        words = [word.lower() for word in _CLASS_WORD_PATTERN.findall(name)]
        for setting in settings_of(log):
            wanted = [word for word in setting.last_name.split("_") if word not in ("use", "enable", "with")]
            if len(wanted) < 2 or setting.value.strip().lower() in _OFF_VALUES:
                continue
            if any(words[start : start + len(wanted)] == wanted for start in range(len(words))):
                yield Clue(
                    translated(
                        "{name} in {source} has the words of {class_}: it probably selects that code, and without it "
                        "other code runs"
                    ).format(name=setting.name, source=setting.source, class_=name),
                    (CluePlace(raised.log, raised.line), *((setting.place,) if setting.place is not None else ())),
                )
                return


_WARNING_LINE_PATTERN = Pattern(r"(?i)\bwarn(?:ing)?\b")
_NOT_FOUND_PATTERN = lazy_compile(
    r"(?i)\b(?:no|not|cannot|can't|couldn't|missing|unknown|unsupported|skipp\w+|fail\w+|ignor\w+)\b"
)
_MAX_WARNINGS = 2000


def warned_before_clues(log: FailureLog, facts: FailureFacts) -> Iterator[Clue]:
    """A warning that the failing module itself wrote before it failed."""
    raised = facts.chain[-1] if facts.chain else None
    at = raised.frames[-1] if raised is not None and raised.frames else None
    if raised is None or at is None or at.owner not in ("package", "clone") or at.module.count(".") < 2:
        return
    last = None
    for found in islice(log.find_all(_WARNING_LINE_PATTERN), _MAX_WARNINGS):
        before = found.line.path == raised.log and found.line.number < raised.line
        _, _, text = found.text.partition(at.module)
        text = text.lstrip(":] -").removeprefix("WARNING:").strip()
        if before and text and _NOT_FOUND_PATTERN.search(text):
            last = (text, found)
    if last is not None:
        text, found = last
        yield Clue(
            translated(
                "{module}, which fails, warned before: {said}. What it did not find may be what is missing"
            ).format(module=at.module.rpartition(".")[2], said=text[:300].rstrip(".")),
            (CluePlace(found.line.path, found.line.number, found.text.strip()[:200]),),
        )

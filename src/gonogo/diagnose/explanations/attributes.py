"""Explain a missing attribute by the kind of object: a plain dict, a package's own class, a wrapper, a config."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gonogo.diagnose.explanations.explanation import Explanation, first_explanation
from gonogo.evidence.failure.api_mismatch import PLAIN_TYPES, ApiMismatch
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, RaisedException

_WRAPPERS: tuple[tuple[re.Pattern[str], Text, Text, Text], ...] = (
    (
        lazy_compile(r"^(?:_fsdp_wrapped_module|_flat_param|_all_handles|_fsdp_use_orig_params)$"),
        translated("a module wrapped by FSDP1 (FullyShardedDataParallel)"),
        translated(
            "FSDP2 (fully_shard) wraps nothing and keeps no such attribute; it only renames the module's class (FSDP…)"
        ),
        translated(
            "set the strategy to FSDP1 for this part (verl: strategy=fsdp; accelerate: fsdp_version: 1), or use a "
            "release of {asks} that handles FSDP2 here"
        ),
    ),
    (
        lazy_compile(
            r"^(?:unshard|reshard|set_requires_gradient_sync|set_reshard_after_\w+|set_modules_to_\w+_prefetch)$"
        ),
        translated("a module that FSDP2 (fully_shard) sharded"),
        translated("fully_shard was not called on this module, or FSDP1 wraps it"),
        translated("call fully_shard on the module first, or use the FSDP version that {asks} expects"),
    ),
)
"""Attributes that only one kind of sharding adds: on which object, why it is missing, what to do."""
_FRAMEWORKS = ("verl", "ms-swift", "openrlhf", "slime", "nemo-rl", "llamafactory", "areal", "axolotl", "trl")
_MODELS = ("transformers", "vllm", "sglang", "diffusers", "trl")
"""Packages that read the configs of transformers models."""
_CONFIG_CLASS_PATTERN = lazy_compile(r"^[A-Z]\w{2,80}Config$")
_TEXT_CONFIG_NAME_PATTERN = lazy_compile(
    r"^(?:hidden_|num_(?:hidden|attention|key_value)_|vocab_size|intermediate_size|head_dim|max_position|rms_norm|rope_"
    r"|tie_word|(?:pad|bos|eos)_token|layer_types|sliding_window|use_cache|initializer_|attention_)"
)
"""Attributes that the text part of any model's config has."""
_MODEL_CLASS_PATTERN = lazy_compile(r"For[A-Z]\w+$|Model$|^Auto|^Pre[Tt]rained|Config$|^Dynamic")
"""Model and config classes, from which code often reads attributes that only some of them have."""
_LIBRARY_CONFIG_PATTERN = lazy_compile(
    r"^(?:Lora|Peft|Generation|BitsAndBytes|DeepSpeed|HfDeepSpeed|HfTrainerDeepSpeed|Vllm|\w*Parallel|\w*Quant)\w*Config$"
    r"|^(?:Model|Cache|Scheduler|Device|Load|Speculative|Compilation|LoRA|Decoding|Observability|Engine|Server|Trainer"
    r"|Training|KV\w*|Optimizer|Data\w*|MultiModal)Config$"
)
"""Config classes of libraries, not of models."""


_MODEL_LAYER_PATTERN = lazy_compile(r"(?:Attention|MLP|Experts|Router|Layer|Embedding|Norm)\w*$")


def explain_by_attribute(
    raised: RaisedException, misfit: ApiMismatch | None, versions: Mapping[str, str]
) -> Explanation:
    """Why an attribute is missing and what to change; (None, None) if the exception is of no such kind."""
    if raised.message.form != "no_attribute" or misfit is None:
        return None, None
    return first_explanation(_RULES, raised, misfit, versions)


def is_unset_own_attribute(misfit: ApiMismatch | None) -> bool:
    """Whether a package's own code reads an attribute from its own object that nothing has set."""
    if (
        misfit is None
        or misfit.form != "no_attribute"
        or misfit.at is None
        or not misfit.at.package
        or not misfit.names
    ):
        return False
    if misfit.subject in PLAIN_TYPES or "." in misfit.subject:
        return False
    if misfit.lacks and misfit.lacks != misfit.at.package and _MODEL_LAYER_PATTERN.search(misfit.subject):
        return False  # A patched method of another package's layer.
    read = re.search(rf"\bself\.{re.escape(misfit.names[0])}\b(\()?", misfit.at.code[:2000])
    if read is not None and read.group(1) and misfit.lacks and misfit.lacks != misfit.at.package:
        return False  # A method that a parent class of another package (trl's trainer) no longer has.
    if read is not None:
        return True
    return misfit.lacks == misfit.at.package and not _MODEL_CLASS_PATTERN.search(misfit.subject)


def is_wrapper_attribute(misfit: ApiMismatch | None) -> bool:
    """Whether the missing attribute is one that only a kind of sharding adds to a module."""
    return misfit is not None and bool(misfit.names) and any(row[0].search(misfit.names[0]) for row in _WRAPPERS)


def implementing_framework(misfit: ApiMismatch, versions: Mapping[str, str]) -> str:
    """The framework of the run that implements what another package calls; empty if there is not exactly one."""
    named = [name for name in _FRAMEWORKS if name in versions and name != misfit.asks]
    return named[0] if len(named) == 1 and misfit.asks not in _FRAMEWORKS else ""


def _explain_plain_object(raised: RaisedException, misfit: ApiMismatch, versions: Mapping[str, str]) -> Explanation:
    """An attribute read from a plain object, as in ``model.config._attn_implementation`` with a dict as config."""
    type_, name = misfit.subject, misfit.names[0]
    if type_ not in PLAIN_TYPES:
        return None, None
    code = misfit.at.code[:2000] if misfit.at is not None else ""
    found = re.search(rf"([A-Za-z_][\w.]*(?:\[[^\]]{{1,40}}\])?)\.{re.escape(name)}\b", code)
    holder = found.group(1) if found is not None else ""
    what = Text(f"`{holder}`", f"`{holder}`") if holder else translated("the object that this line reads")
    called = re.search(
        rf"(?<![\w.])([A-Za-z_][\w.]*)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\.{re.escape(name)}\b", code
    )
    if not holder and called is not None:
        return (
            translated("{function}() returns a plain {type}, but this line reads {name} from what it returns").format(
                function=called.group(1), type=type_, name=name
            ),
            translated(
                "another call was meant{hint}, or {function} returns another type in another release: correct the "
                "line, or use another release of the code that it belongs to"
            ).format(
                function=called.group(1),
                hint=translated(" (get_world_size for the size of a process group)")
                if called.group(1).endswith("get_rank")
                else Text("", ""),
            ),
        )
    because = translated("{what} is a plain {type} there, but this code expects an object with {name}").format(
        what=what, type=type_, name=name
    )
    if type_ == "dict" and holder.endswith("model.config"):
        return because, translated(
            "read the config of the model itself: a wrapper has a different one under that name "
            "(model.config of DeepSpeed's engine is the DeepSpeed config). Unwrap it first (model.module, "
            "accelerator.unwrap_model(model)); if the code belongs to a framework, the feature that it is "
            "part of does not support this wrapper in this release"
        )
    return because, translated(
        "find what puts a {type} there: a settings object that was never built from its {type}, a return "
        "value in a different form, a function in place of a module or class of the same name (a different "
        "release of the package that it is imported from)"
    ).format(type=type_)


def _explain_wrapper_attribute(
    raised: RaisedException, misfit: ApiMismatch, versions: Mapping[str, str]
) -> Explanation:
    """An attribute that only a module sharded by FSDP1, or by FSDP2, has."""
    for names, kind, why, change in _WRAPPERS:
        if names.search(misfit.names[0]):
            requires = f"{misfit.asks} {misfit.asks_version}".strip()
            return (
                translated("{name} exists only on {kind}, but this is a {subject}: {why}").format(
                    name=misfit.names[0], kind=kind, subject=misfit.subject, why=why
                ),
                change.format(asks=requires or translated("the framework")),
            )
    return None, None


def _explain_parameter_attribute(
    raised: RaisedException, misfit: ApiMismatch, versions: Mapping[str, str]
) -> Explanation:
    """An attribute of a parameter that torch doesn't define, and that other code has to set first."""
    if misfit.subject.rpartition(".")[2] != "Parameter" or misfit.names[0].startswith("_"):
        return None, None
    name = misfit.names[0]
    who = misfit.asks or translated("the optimizer or framework that reads it")
    return (
        translated(
            "torch's Parameter has no {name} of its own: it is an attribute that has to be set on each "
            "parameter beforehand, but nothing set it on this one (or the parameter was replaced afterwards, "
            "for example by a wrapper or a cast)"
        ).format(name=name),
        translated(
            "set it on every parameter before this call, as the documentation of {who} does (param.{name} = …), or "
            "use a later release that sets it itself"
        ).format(name=name, who=who),
    )


def _explain_handed_object(raised: RaisedException, misfit: ApiMismatch, versions: Mapping[str, str]) -> Explanation:
    """An object of a kind that torch doesn't expect, which another package's code hands to it."""
    at = misfit.at
    caller = next((frame for frame in reversed(raised.frames) if frame.package not in ("", "torch")), None)
    if at is None or at.package != "torch" or misfit.lacks or caller is None or misfit.subject in PLAIN_TYPES:
        return None, None
    read = re.search(rf"([A-Za-z_]\w*)\.{re.escape(misfit.names[0])}\b", at.code[:2000])
    if read is None or read.group(1) == "self":
        return None, None
    release = f"{caller.package} {caller.release}".strip()
    return (
        translated(
            "{function} of torch reads {name} of {what}, and what it was given as {what} is of another kind (a class "
            "{subject} without it): {release} passes it ({caller}, line {line})"
        ).format(
            function=at.function,
            name=misfit.names[0],
            what=read.group(1),
            subject=misfit.subject,
            release=release,
            caller=caller.function,
            line=caller.line,
        ),
        translated(
            "use a later release of {package}, or the one before this: it has to pass a {what} of torch's own kind on "
            "this device"
        ).format(package=caller.package, what=read.group(1)),
    )


def _explain_unset_attribute(raised: RaisedException, misfit: ApiMismatch, versions: Mapping[str, str]) -> Explanation:
    """An object that reads its own attribute before it is set, or although it is never set."""
    at = misfit.at
    if at is None or not is_unset_own_attribute(misfit):
        return None, None
    release, name = f"{at.package} {at.release}".strip(), misfit.names[0]
    return (
        translated(
            "{function} in {release} reads {name} of its own {subject}, which nothing has set by then: it is "
            "set in another method, or under a condition that this run doesn't meet, or this line was left "
            "behind when the code that sets it was moved"
        ).format(function=at.function, release=release, name=name, subject=misfit.subject),
        translated(
            "this is a bug in {package} rather than an incompatibility of two packages, unless a subclass "
            "skips the parent's __init__ or a parent class from another package used to set it: use a later "
            "release of {package}, or the previous one; search its source for `self.{name} =` to see when it "
            "is set"
        ).format(package=at.package, name=name),
    )


def _explain_config_key(raised: RaisedException, misfit: ApiMismatch, versions: Mapping[str, str]) -> Explanation:
    """A config key that the model has only in another release of transformers, or in another part of the config."""
    subject, name = misfit.subject, misfit.names[0]
    if (
        not _CONFIG_CLASS_PATTERN.search(subject)
        or _LIBRARY_CONFIG_PATTERN.search(subject)
        or misfit.lacks not in ("", "transformers")
    ):
        return None, None
    if misfit.asks not in _MODELS and not (misfit.at is None and "transformers" in versions):
        return None, None
    version = versions.get("transformers", "")
    release = f"transformers {version}".strip()
    if misfit.asks == "transformers":
        caller = _outer_package(raised.frames)
        if not _TEXT_CONFIG_NAME_PATTERN.search(name):
            return (
                translated(
                    "the {subject} that this model is built from has no {name}: {caller} takes it for another kind of "
                    "model (a class for a mixture of experts, built from a dense model's config), or for that of "
                    "another release"
                ).format(subject=subject, name=name, caller=caller or translated("the caller")),
                translated(
                    "let {caller} use transformers' own class of this model if it has an option for that; otherwise "
                    "use another release of {caller} (a later one first), or the {release} that it needs"
                ).format(caller=caller or translated("the caller"), release=release),
            )
        return (
            translated(
                "the {subject} that this model is built from has no {name} itself: a composite config keeps "
                "it in a sub-config (text_config, encoder, decoder, vision_config), and {caller} passes the "
                "whole config"
            ).format(subject=subject, name=name, caller=caller or translated("the caller")),
            translated(
                "use matching releases of {caller} and transformers (this is {release}; transformers 5 made "
                "several configs composite), or pass the sub-config (config.get_text_config(), "
                "config.encoder)"
            ).format(caller=caller or translated("the caller"), release=release),
        )
    requires = f"{misfit.asks} {misfit.asks_version}".strip() or translated("the code that reads it")
    return (
        translated("{asks} reads {name} of {subject}, which the config does not have in {release}{why}").format(
            asks=requires,
            name=name,
            subject=subject,
            release=(version and release) or translated("the release of transformers that is installed"),
            why=translated(
                ": transformers 5 removed defaults that every config used to have (pad_token_id, "
                "tie_word_embeddings, add_cross_attention, generation settings), and renamed others"
            )
            if not version or version.split(".")[0] >= "5"
            else "",
        ),
        translated(
            "install the release of transformers that {asks} was made for (its requirements), or a later release of "
            "{asks}"
        ).format(asks=misfit.asks or translated("that code")),
    )


def _outer_package(frames: tuple[CodePlace, ...]) -> str:
    """The package that called into the package of the innermost frames."""
    inner = frames[-1].package if frames else ""
    return next((frame.package for frame in reversed(frames) if frame.package and frame.package != inner), "")


_RULES: tuple[Callable[[RaisedException, ApiMismatch, Mapping[str, str]], Explanation], ...] = (
    _explain_plain_object,
    _explain_wrapper_attribute,
    _explain_parameter_attribute,
    _explain_handed_object,
    _explain_unset_attribute,
    _explain_config_key,
)

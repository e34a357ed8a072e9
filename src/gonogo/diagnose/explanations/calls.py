"""Explain exceptions by the call or the line that raised them.

For example an argument that is passed twice, an empty tensor that is reduced, None in a collective, a key that the
caller expects, a shape that the number of elements does not allow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from gonogo.diagnose.explanations.explanation import (
    Explanation,
    code_line,
    first_explanation,
    package_with_version,
    raising_frame,
)
from gonogo.evidence.failure.message import parse_shape_sizes
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException

_NAME = r"(?<![\w.])[A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?"
_STATE_LOOKUP_PATTERN = lazy_compile(r"(?i)(?<![\w.])((?:\w+\.)*\w*(?:state_dict|checkpoint|ckpt)\w*)\[[\"'f]")
_LOADING_PATTERN = lazy_compile(r"(?i)load(?!er)|resume|restore|convert")
_WRONG_TYPE_PATTERN = lazy_compile(
    r"^[`'\"]?([A-Za-z_][\w.]{0,80})[`'\"]? (?:must|should|has to) be (?:of type |an? )?"
    r"(tuple|list|dict|str|string|int|integer|bool|float|torch\.Tensor|tensor)\b"
    r"(?:[^\n]{0,40}?(?:got|not|but is|found) (?:an? )?<?(?:class |type )?'?([\w.]{2,40}))?"
)
_PASSED_TWICE_PATTERN = lazy_compile(r"([\w.]{1,160})\(\) got multiple values for (keyword )?argument '(\w{1,80})'")
_EMPTY_REDUCTION_PATTERN = lazy_compile(
    r"(?:\b(min|max|argmin|argmax|aminmax)\(\): )?[Ee]xpected reduction dim .{0,60}input\.numel\(\) == 0"
)
_NOT_A_TENSOR_PATTERN = lazy_compile(
    r"Expected parameter `(\w{1,60})` of type torch\.Tensor(?:\s+but got <class '([\w.]{1,60})'>)?"
)
_RESHAPE_PATTERN = lazy_compile(r"shape '\[([-\d, ]{1,200})\]' is invalid for input of size (\d{1,15})")
_MEMBER_PATTERN = lazy_compile(
    rf"^assert ({_NAME}|[\"'][^\"']{{1,80}}[\"']) (not )?in ({_NAME})(?:\.keys\(\))?\s*(?:,|$)"
)
_LITERAL_LIST_PATTERN = lazy_compile(r"\[\s*((?:[\"'][\w./-]{1,80}[\"']\s*(?:,\s*)?){1,20})\]")
_LITERAL_PATTERN = lazy_compile(r"[\"']([\w./-]{1,80})[\"']")
_CALLS_A_COLLECTIVE_PATTERN = lazy_compile(
    rf"\b(all_reduce|all_gather_into_tensor|reduce_scatter_tensor|broadcast|reduce|send|recv|isend|irecv|all_gather"
    rf"|reduce_scatter|all_to_all_single)\(\s*(?:tensor=)?({_NAME})"
)
_CHECKPOINT_FILE_PATTERN = lazy_compile(r"checkpoint[^/]*\.py$")


def explain_by_call(exception: RaisedException) -> Explanation:
    """Why a call failed and what to change; (None, None) if the exception is of no such kind."""
    return first_explanation(_RULES, exception)


def _explain_generated_forward(exception: RaisedException) -> Explanation:
    """An attribute that a generated function (a patched forward) expects, and that another patch would have set."""
    message = exception.message
    if message.form != "no_attribute" or not message.names:
        return None, None
    frames = [frame for frame in exception.frames if frame.function != "__getattr__"]
    if not frames or frames[-1].path not in ("<string>", "<stdin>"):
        return None, None
    function = frames[-1].function
    package = next(
        (frame.package for frame in exception.frames if frame.package and function.startswith(frame.package)), ""
    )
    return (
        translated(
            "{function} was generated and put in place of a method{by}; it reads {name} of {subject}, which nothing "
            "has set there: one part of the patch was applied, and the part that sets it was skipped"
        ).format(
            function=function,
            by=Text(f" by {package}", f"（由 {package} 生成）") if package else "",
            name=message.names[0],
            subject=message.subject,
        ),
        translated(
            "turn off the setting of {package} that patches this method (its own kernels or fused layers), or use "
            "another release of {package}"
        ).format(package=package or translated("the package that patches it")),
    )


def _explain_missing_checkpoint_entry(exception: RaisedException) -> Explanation:
    """An entry that the loaded checkpoint does not have."""
    at = raising_frame(exception)
    if exception.message.form != "missing_key" or not exception.message.names or at is None:
        return None, None
    key, holder = exception.message.names[0], _STATE_LOOKUP_PATTERN.search(at.code[:2000])
    if holder is None or not _LOADING_PATTERN.search(f"{at.function} {at.path}"):
        return None, None
    return (
        translated(
            "the checkpoint that {function} loads has no entry '{key}' ({holder}): it was saved without it (weights "
            "alone, a setting of the run that saved it), or by another release"
        ).format(function=at.function, key=key, holder=holder.group(1)),
        translated(
            "load without it (the setting that asks for it: load_{key}, no-load-{key}, finetune), or load a checkpoint "
            "that was saved with it"
        ).format(key=_checkpoint_option_name(key)),
    )


def _checkpoint_option_name(key: str) -> str:
    """The word for a checkpoint's entry in options such as ``--no-load-optim``."""
    return {"optimizer": "optim", "optimizers": "optim", "rng_state": "rng"}.get(key, key)


def _explain_wrong_type(exception: RaisedException) -> Explanation:
    """An argument whose type the called package refuses, given by another package."""
    found = _WRONG_TYPE_PATTERN.search(exception.message.text[:400].strip())
    if found is None or len(exception.frames) < 2:
        return None, None
    name, wanted, given = found.groups()
    inner = exception.frames[-1].package
    caller = next((frame for frame in reversed(exception.frames) if frame.package != inner), None)
    if not inner or caller is None or caller.owner == "python":
        return None, None
    because = translated(
        "{caller} passes {callee} something other than a {wanted} for {name}{given}: in {function}, `{code}`"
    ).format(
        caller=package_with_version(caller) or translated("your code"),
        callee=package_with_version(exception.frames[-1]),
        wanted=wanted,
        name=name,
        given=Text(f" ({given})", f"（{given}）") if given else "",
        function=caller.function,
        code=" ".join(caller.code[:160].split()),
    )
    if not caller.package:
        return because, translated("convert the value there: {wanted}(…)").format(wanted=wanted)
    return because, translated(
        "this is a defect of {caller}, or {caller} was made for another release of {callee}: convert the "
        "value there ({wanted}(…)), or use a later release of {caller}"
    ).format(caller=caller.package, callee=inner, wanted=wanted)


def _raising_and_calling_package(exception: RaisedException) -> tuple[str, str]:
    """The package that raised, and the package or the user's code that called it; empty if unknown."""
    inner = exception.frames[-1].package if exception.frames else ""
    outer = next(
        (frame.package for frame in reversed(exception.frames) if frame.owner != "python" and frame.package != inner),
        "",
    )
    return inner, outer


def _explain_passed_twice(exception: RaisedException) -> Explanation:
    """An argument that a call passes twice: by position or by name, and in the keyword arguments that it forwards."""
    found = _PASSED_TWICE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    function, by_keyword, name = found.groups()
    inner, outer = _raising_and_calling_package(exception)
    because = (
        translated(
            "{function} is passed {name} twice: the call names it, and the keyword arguments (kwargs) that it "
            "forwards contain it as well"
        )
        if by_keyword
        else translated(
            "{function} is passed {name} twice: by position, and by name or in the keyword arguments (kwargs) that "
            "are forwarded"
        )
    ).format(function=function, name=name)
    if not inner:
        return because, translated("pass {name} once: remove it from the kwargs that are forwarded").format(name=name)
    if not outer:
        return because, translated(
            "do not pass {name} yourself if {inner} already passes it; otherwise it is a defect of this release of "
            "{inner}: use another release"
        ).format(name=name, inner=inner)
    return because, translated(
        "remove {name} from the kwargs that {outer} forwards to {inner}, which already passes it: where no setting of "
        "yours puts it there, it is a defect of {outer} or it was made for another release of {inner}; use another "
        "release of {outer}"
    ).format(name=name, outer=outer, inner=inner)


def _explain_empty_reduction(exception: RaisedException) -> Explanation:
    """``x.max()`` of a tensor without elements."""
    found = _EMPTY_REDUCTION_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    code = code_line(raising_frame(exception))
    operations = found.group(1) or "min|max|argmin|argmax|aminmax"
    method = re.search(rf"({_NAME})(?:\(\))?(?:\.(?:float|detach|abs|long|cpu)\(\))*\.(?:{operations})\(", code)
    function = re.search(rf"(?:torch\.)(?:{operations})\(({_NAME})\)", code)
    reduced = function or method
    held = re.sub(r"\.(?:float|detach|abs|long|cpu)$", "", reduced.group(1)) if reduced is not None else ""
    what = Text(f"`{held}`", f"`{held}`") if held and held != "torch" else translated("the tensor in that line")
    if "completion" in held or "response" in held:
        return (
            translated(
                "{what} is empty: this step has no completions at all. The generation (the rollout) returned nothing, "
                "or all of them were filtered out"
            ).format(what=what),
            translated(
                "look at the generation, not at this line: the log of the engine or thread that generates (did it "
                "fail, or stop?), and what filters the samples"
            ),
        )
    return (
        translated(
            "{what} has no elements: nothing of this batch is left at that line (a filter dropped every sample or "
            "group, as with equal rewards, or a mask is 0 everywhere), or the step before returned nothing"
        ).format(what=what),
        translated(
            "skip a batch or micro-batch that is empty (test numel() first), or turn off the setting that drops its "
            "samples or groups"
        ),
    )


def _explain_none_in_collective(exception: RaisedException) -> Explanation:
    """None where a collective needs a tensor, named by the line that called it."""
    found = _NOT_A_TENSOR_PATTERN.search(exception.message.text[:1000])
    if found is None or found.group(2) not in (None, "NoneType"):
        return None, None
    unsure = Text("", "") if found.group(2) else translated(" or not a tensor")
    caller = next((frame for frame in reversed(exception.frames) if frame.package != "torch"), None)
    call = _CALLS_A_COLLECTIVE_PATTERN.search(code_line(caller))
    if caller is None or call is None:
        return (
            translated("a collective is given a {name} that is None{unsure}").format(
                name=found.group(1), unsure=unsure
            ),
            None,
        )
    collective, what = call.groups()
    if "grad" in what:
        return (
            translated(
                "{what} is None{unsure} in {function}, which passes it to {collective}: this parameter has no gradient "
                "there (it took no part in the loss, its gradient was not written yet, or a wrapper such as FSDP "
                "keeps it elsewhere and calls the hook without it)"
            ).format(what=what, function=caller.function, collective=collective, unsure=unsure),
            translated(
                "skip the {collective} on all ranks of the group where there is no gradient, and read the gradient "
                "where this wrapper keeps it; a hook made for DDP does not fit a wrapper that shards gradients"
            ).format(collective=collective),
        )
    return (
        translated("{what} is None{unsure} in {function}, which passes it to {collective}").format(
            what=what, function=caller.function, collective=collective, unsure=unsure
        ),
        translated(
            "find what leaves {what} as None on this rank, and fill it, or skip the {collective} on all ranks of the "
            "group"
        ).format(what=what, collective=collective),
    )


def _explain_reshape(exception: RaisedException) -> Explanation:
    """A view whose sizes the number of elements does not allow."""
    found = _RESHAPE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    shape = parse_shape_sizes(found.group(1))
    count = int(found.group(2))
    at = raising_frame(exception)
    code = code_line(at)
    if at is not None and "image_processing" in at.path and len(shape) >= 6 and shape[-5:-3] == shape[-2:]:
        merge, patch = shape[-2:]
        return (
            translated(
                "the image's height and width are not multiples of {unit} (patch_size {patch} × merge_size "
                "{merge}), so it can't be cut into whole patches: it was resized for a model with another patch size"
            ).format(unit=merge * patch, patch=patch, merge=merge),
            translated(
                "resize images to multiples of {unit}: let this model's own processor do it, and give min_pixels, "
                "max_pixels and the resizing (qwen_vl_utils: image_patch_size) in units of its patch_size"
            ).format(unit=merge * patch),
        )
    if shape.count(-1) != 1:
        return None, None
    known = math.prod(size for size in shape if size != -1)
    called = re.search(rf"({_NAME})\.(?:view|reshape)\(-1, ?({_NAME})\)", code)
    if not known or not count % known or called is None:
        return None, None
    what, name = called.groups()
    if "vocab" in name:
        return (
            translated(
                "{what} has {count} elements, which is not a multiple of {name} ({known}): the model's output has "
                "another number of columns than config.vocab_size says, since its embeddings were resized (added "
                "tokens, padding to a multiple) or only a shard of the vocabulary is there (tensor parallelism)"
            ).format(what=what, count=count, name=name, known=known),
            translated(
                "after resize_token_embeddings set config.vocab_size (of a multimodal model also that of its text "
                "config) to the number of rows; compare it with lm_head.weight.shape[0]"
            ),
        )
    return (
        translated(
            "{what} has {count} elements, which is not a multiple of {name} ({known}): its last dimension is not {name}"
        ).format(what=what, count=count, name=name, known=known),
        translated("print {what}.shape before that line, and compare it with {name}").format(what=what, name=name),
    )


def _explain_missing_batch_key(exception: RaisedException) -> Explanation:
    """``assert key in batch`` without a message, with the keys that the caller passes."""
    at = raising_frame(exception)
    check = _MEMBER_PATTERN.match(code_line(at))
    if at is None or check is None or check.group(2) or exception.type != "AssertionError" or exception.message.text:
        return None, None
    key, holder = check.group(1), check.group(3)
    caller = exception.frames[-2] if len(exception.frames) > 1 else None
    listed = _LITERAL_LIST_PATTERN.search(code_line(caller)) if caller is not None else None
    names = _LITERAL_PATTERN.findall(listed.group(1)) if listed is not None else []
    if caller is None or not names:
        return translated("{key} is not in {holder}").format(key=key, holder=holder), None
    shown = ", ".join(names)
    because = translated(
        "{caller} asks for {names}, and at least one of them is not in {holder}: what fills {holder} no longer "
        "provides it, or never did"
    ).format(caller=caller.function, names=shown, holder=holder)
    if caller.package:
        return because, translated(
            "print the keys of {holder} there; if the data set or the settings are not the cause, this part of "
            "{package} does not fit the part that fills {holder}: use another release of {package}"
        ).format(holder=holder, package=caller.package)
    return because, translated(
        "print the keys of {holder} there, and ask for those that the code which fills it gives in this release"
    ).format(holder=holder)


def _explain_own_checkpointing(exception: RaisedException) -> Explanation:
    """A package's own gradient checkpointing that goes through a freed graph a second time."""
    if "Trying to backward through the graph a second time" not in exception.message.text[:400]:
        return None, None
    for frame in exception.frames:
        if (
            frame.function == "backward"
            and frame.package not in ("", "torch", "accelerate", "deepspeed")
            and _CHECKPOINT_FILE_PATTERN.search(frame.path.replace("\\", "/"))
        ):
            return (
                translated(
                    "the gradient checkpointing of {package} goes through a part of the graph that has been freed: it "
                    "does not fit this model's forward, or the release of transformers"
                ).format(package=frame.package),
                translated(
                    "use a later or another release of {package} (and the transformers that it was made for), or "
                    "torch's gradient checkpointing in place of its own"
                ).format(package=frame.package),
            )
    return None, None


_RULES: tuple[Callable[[RaisedException], Explanation], ...] = (
    _explain_generated_forward,
    _explain_missing_checkpoint_entry,
    _explain_wrong_type,
    _explain_passed_twice,
    _explain_empty_reduction,
    _explain_none_in_collective,
    _explain_reshape,
    _explain_missing_batch_key,
    _explain_own_checkpointing,
)

"""Explain exceptions by what the raising line was called with.

For example an argument that is passed twice, an empty tensor that is reduced, None in a collective, a name that
nothing defines, a key that the caller expects, a shape that the number of elements does not allow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from gonogo.diagnose.kinds_of_messages import Explanation, first_explanation
from gonogo.evidence.failure.message import sizes_in
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, RaisedException

_NAME = r"(?<![\w.])[A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?"
_PASSED_TWICE_PATTERN = lazy_compile(r"([\w.]{1,160})\(\) got multiple values for (keyword )?argument '(\w{1,80})'")
_EMPTY_REDUCTION_PATTERN = lazy_compile(
    r"(?:\b(min|max|argmin|argmax|aminmax)\(\): )?[Ee]xpected reduction dim .{0,60}input\.numel\(\) == 0"
)
_NOT_A_TENSOR_PATTERN = lazy_compile(
    r"Expected parameter `(\w{1,60})` of type torch\.Tensor(?:\s+but got <class '([\w.]{1,60})'>)?"
)
_UNDEFINED_NAME_PATTERN = lazy_compile(r"^name '(\w{1,100})' is not defined")
_UNKNOWN_TO_RELEASE_PATTERN = lazy_compile(r"^([A-Z][a-z]+ type) '(\w{1,60})' not found\. Available \w{1,20} types?\b")
_RESHAPE_PATTERN = lazy_compile(r"shape '\[([-\d, ]{1,200})\]' is invalid for input of size (\d{1,15})")
_MEMBER_PATTERN = lazy_compile(
    rf"^assert ({_NAME}|[\"'][^\"']{{1,80}}[\"']) (not )?in ({_NAME})(?:\.keys\(\))?\s*(?:,|$)"
)
_LITERAL_LIST_PATTERN = lazy_compile(r"\[\s*((?:[\"'][\w./-]{1,80}[\"']\s*(?:,\s*)?){1,20})\]")
_LITERAL_PATTERN = lazy_compile(r"[\"']([\w./-]{1,80})[\"']")
_MESH_DIMENSIONS_PATTERN = lazy_compile(
    r"Invalid mesh_dim_names? \(?([^()\n]{1,120}?)\)? specified\. Valid mesh_dim_names are \[([^\]\n]{0,200})\]"
)
_BUNDLE_PATTERN = lazy_compile(
    r"placement group bundle index (\d{1,6}) is invalid\. Valid placement group indexes: 0-(\d{1,6})"
)
_CALLS_A_COLLECTIVE_PATTERN = lazy_compile(
    rf"\b(all_reduce|all_gather_into_tensor|reduce_scatter_tensor|broadcast|reduce|send|recv|isend|irecv|all_gather"
    rf"|reduce_scatter|all_to_all_single)\(\s*(?:tensor=)?({_NAME})"
)


def explain_by_call(exception: RaisedException) -> Explanation:
    """The reason and what to change; (None, None) if the exception is of no such kind."""
    return first_explanation(_RULES, exception)


def _code_of(place: CodePlace | None) -> str:
    return place.code[:2000] if place is not None else ""


def _innermost(exception: RaisedException) -> CodePlace | None:
    return exception.frames[-1] if exception.frames else None


def _packages(exception: RaisedException) -> tuple[str, str]:
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
    inner, outer = _packages(exception)
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
    code = _code_of(_innermost(exception))
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
    call = _CALLS_A_COLLECTIVE_PATTERN.search(_code_of(caller))
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


def _explain_undefined_name(exception: RaisedException) -> Explanation:
    """A NameError in a line of a package: its own code uses a name that it does not define."""
    found = _UNDEFINED_NAME_PATTERN.search(exception.message.text[:300])
    at = _innermost(exception)
    if found is None or exception.type != "NameError" or at is None or not at.package:
        return None, None
    name, release = found.group(1), f"{at.package} {at.release}".strip()
    return (
        translated(
            "{function} of {release} uses {name}, which its module neither defines nor imports: a defect of that "
            "release, or an import that it does only if an optional package is installed"
        ).format(function=at.function, release=release, name=name),
        translated(
            "use another release of {package} (a later one, or the previous); search its source for {name} to see "
            "which package it would come from"
        ).format(package=at.package, name=name),
    )


def _explain_unknown_to_release(exception: RaisedException) -> Explanation:
    """A type that a stored file names, and that the installed release does not have among the listed ones."""
    found = _UNKNOWN_TO_RELEASE_PATTERN.search(exception.message.text[:1000])
    package = exception.frames[-1].package if exception.frames else ""
    if found is None or not package:
        return None, None
    release = f"{package} {exception.frames[-1].release}".strip()
    return (
        translated(
            "{release} has no {kind} {name}: what it reads (a data set, its cache, a saved config) was written by a "
            "newer release of {package}"
        ).format(release=release, kind=found.group(1).lower(), name=found.group(2), package=package),
        translated(
            "upgrade {package} to the release that wrote it, or delete the cache and let this release write it again"
        ).format(package=package),
    )


def _explain_reshape(exception: RaisedException) -> Explanation:
    """A view whose sizes the number of elements does not allow."""
    found = _RESHAPE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    shape = sizes_in(found.group(1))
    count = int(found.group(2))
    at = _innermost(exception)
    code = _code_of(at)
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


def _explain_absent_member(exception: RaisedException) -> Explanation:
    """``assert key in batch`` without a message, with the keys that the caller passes."""
    at = _innermost(exception)
    check = _MEMBER_PATTERN.match(_code_of(at))
    if at is None or check is None or check.group(2) or exception.type != "AssertionError" or exception.message.text:
        return None, None
    key, holder = check.group(1), check.group(3)
    caller = exception.frames[-2] if len(exception.frames) > 1 else None
    listed = _LITERAL_LIST_PATTERN.search(_code_of(caller)) if caller is not None else None
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


_CHECKPOINT_FILE_PATTERN = lazy_compile(r"checkpoint[^/]*\.py$")


def _explain_own_checkpointing(exception: RaisedException) -> Explanation:
    """A graph that a package's own gradient checkpointing goes through twice."""
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


def _explain_mesh_dimension(exception: RaisedException) -> Explanation:
    """A dimension that a device mesh does not have, since its size is 1."""
    found = _MESH_DIMENSIONS_PATTERN.search(exception.message.text[:1000].replace("\\", ""))
    if found is None:
        return None, None
    asked, there = (", ".join(_LITERAL_PATTERN.findall(names)) for names in found.groups())
    if not asked or not there:
        return None, None
    return (
        translated(
            "the device mesh has only the dimensions {there}, and {asked} is asked for: this parallelism has size 1 "
            "(the other sizes take all ranks), or the mesh was made without it"
        ).format(asked=asked, there=there),
        translated(
            "give it a size above 1 (smaller sizes of {there}, or more ranks), or turn off what runs over {asked} "
            "(FSDP, if it is for sharding or replication)"
        ).format(asked=asked, there=there),
    )


def _explain_bundle(exception: RaisedException) -> Explanation:
    """More workers than a Ray placement group has bundles for."""
    found = _BUNDLE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    index, last = (int(number) for number in found.groups())
    return (
        translated(
            "Ray's placement group has {count} bundles (0 to {last}), and bundle {index} is asked for: the workers or "
            "engines placed in it need more GPUs than were reserved"
        ).format(count=last + 1, last=last, index=index),
        translated(
            "make the number of engines × their tensor-parallel size at most {count} (colocated: nodes × GPUs per node "
            "of the trainer), or reserve more GPUs"
        ).format(count=last + 1),
    )


_RULES: tuple[Callable[[RaisedException], Explanation], ...] = (
    _explain_passed_twice,
    _explain_empty_reduction,
    _explain_none_in_collective,
    _explain_undefined_name,
    _explain_unknown_to_release,
    _explain_reshape,
    _explain_absent_member,
    _explain_own_checkpointing,
    _explain_mesh_dimension,
    _explain_bundle,
)

"""Explain Python's own exceptions, whose messages name nothing, by the line that raised them.

``tuple index out of range`` says no more than that; ``param.shape[1]`` beside it says which tensor has too few
dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gonogo.diagnose.explanations.explanation import Explanation, code_line, first_explanation, raising_frame
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import RaisedException

_NAME = r"[A-Za-z_][\w.]*"
_POP_PATTERN = lazy_compile(rf"({_NAME})\.(?:pop|popleft)\(")
_POPPED_EMPTY_PATTERN = lazy_compile(r"^pop from (?:an )?empty")
_RECOMPUTING_FUNCTIONS = ("recompute_fn", "unpack_hook", "_recompute")
_UNPACKED_PATTERN = lazy_compile(r"^(too many|not enough) values to unpack \(expected (\d{1,2})(?:, got (\d{1,2}))?\)")
_SHAPE_OF_PATTERN = lazy_compile(rf"= ?({_NAME})\.(?:shape|size\(\))\s*$")
_SHAPE_INDEX_PATTERN = lazy_compile(rf"({_NAME})\.(?:shape|size\(\))\[(\d)\]")
_STRING_INDEX_PATTERN = lazy_compile(rf"({_NAME})\[[\"']([\w./-]{{1,80}})[\"']\]")
_FIRST_ENTRY_PATTERN = lazy_compile(rf"({_NAME})\[(?:0|-1)\]")
_INDEXED_PATTERN = lazy_compile(rf"(?<![\w.])({_NAME})\[([A-Za-z_]\w*)\]")
_UNPACKED_CALL_PATTERN = lazy_compile(rf"^[\w., *()\[\]]+?= ?(({_NAME})\([^()]*\))\s*$")
_RAGGED_PATTERN = lazy_compile(r"^expected sequence of length (\d{1,9}) at dim (\d{1,2}) \(got (\d{1,9})\)")
_CONVERTED_PATTERN = lazy_compile(rf"(?:torch\.(?:\w*Tensor|tensor|as_tensor)|np\.(?:as)?array)\(({_NAME})")
_COLLECTIONS = ("batch", "features", "samples", "data", "values", "value", "x")
"""Names that say nothing of what is converted to a tensor."""
_NOT_JSON_PATTERN = lazy_compile(r"^Object of type (\w{1,60}) is not JSON serializable")
_NUMPY_TYPE_PATTERN = lazy_compile(r"^(?:u?int(?:8|16|32|64)|float(?:16|32|64)|bool_?|ndarray)$")
_FORBIDDEN_FIELD_PATTERN = lazy_compile(r"(?m)([A-Za-z_][\w.\[\]-]{1,160})\s+Extra inputs are not permitted")
_REFUSED_MODEL_PATTERN = lazy_compile(r"validation errors? for ([\w.]{1,100})")
_MAX_MESSAGE = 4000


def explain_by_python_error(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """The reason and what to change; (None, None) if the exception is none of Python's, or its line doesn't say."""
    return first_explanation(_RULES, exception, versions)


def _innermost_code(exception: RaisedException) -> str:
    return code_line(raising_frame(exception))


def _explain_consumed_input(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A list from which a checkpointed forward takes its input: the recomputation finds it empty."""
    popped = _POP_PATTERN.search(_innermost_code(exception))
    if popped is None or not _POPPED_EMPTY_PATTERN.search(exception.message.text):
        return None, None
    name = popped.group(1)
    again = any(
        frame.function in _RECOMPUTING_FUNCTIONS and frame.path.replace("\\", "/").endswith("utils/checkpoint.py")
        for frame in exception.frames
    )
    if not again:
        return (translated("{name} is empty when this line pops an item from it").format(name=name), None)
    return (
        translated(
            "gradient checkpointing runs this forward a second time in backward (the recomputation), and the first "
            "run has already taken the entry out of {name}"
        ).format(name=name),
        translated(
            "do not change what is passed to a checkpointed part (read {name}[0] rather than pop it), or turn "
            "checkpointing off"
        ).format(name=name),
    )


def _explain_unpacked_shape(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A shape of another number of dimensions than the names it is unpacked into."""
    found = _UNPACKED_PATTERN.search(exception.message.text)
    tensor = _SHAPE_OF_PATTERN.search(_innermost_code(exception).partition("#")[0].strip())
    if found is None or tensor is None:
        return None, None
    kind, expected, got = found.groups()
    name = tensor.group(1)
    if kind == "not enough":
        return (
            translated("{name} has {got} dimensions where {expected} are expected").format(
                name=name, got=got or translated("fewer"), expected=expected
            ),
            translated(
                "print the tensor's shape in the caller: a batch dimension is missing, or was taken off (squeeze)"
            ),
        )
    return (
        translated("{name} has more than the {expected} dimensions that are expected").format(
            name=name, expected=expected
        ),
        translated(
            "print the tensor's shape in the caller: a batch dimension is often added twice (a processor "
            "adds one to a single sample, the collator another)"
        ),
    )


def _explain_missing_dimension(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """An index into a shape that has fewer dimensions."""
    read = [(name, int(index)) for name, index in _SHAPE_INDEX_PATTERN.findall(_innermost_code(exception))]
    if exception.message.text.strip() != "tuple index out of range" or not read:
        return None, None
    name, index = max(read, key=lambda one: one[1])
    return (
        translated("{name} has at most {count} dimensions, but the line reads {name}.shape[{index}]").format(
            name=name, count=index, index=index
        ),
        translated(
            "print {name}.shape there: a parameter that is partitioned (ZeRO-3), flattened (FSDP1) or quantized does "
            "not have the shape of its layer"
        ).format(name=name),
    )


def _explain_list_for_dict(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A list where the line expects a dictionary."""
    found = _STRING_INDEX_PATTERN.search(_innermost_code(exception))
    if found is None or not exception.message.text.startswith("list indices must be integers"):
        return None, None
    name, key = found.groups()
    at = raising_frame(exception)
    package = at.package if at is not None else ""
    others = [f"{other} {version}" for other, version in versions.items() if other not in (package, "torch")][:2]
    return (
        translated("{name} is a list here, and the line expects a dict with '{key}'").format(name=name, key=key),
        translated(
            "whatever passes {name} hands the samples on as a list: its release (or its collator) does not fit this "
            "code{packages}; upgrade the older of the two"
        ).format(
            name=name,
            packages=Text(
                f", {' and '.join([f'{package} {at.release}'.strip(), *others])}",
                f"（{'、'.join([f'{package} {at.release}'.strip(), *others])}）",
            )
            if at is not None and package and others
            else "",
        )
        if package
        else translated("return a dict from the collator, or index the list by position"),
    )


def _explain_empty_list(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """The first or last entry of an empty list."""
    found = _FIRST_ENTRY_PATTERN.findall(_innermost_code(exception))
    if exception.message.text.strip() != "list index out of range" or len(set(found)) != 1:
        return None, None
    return (
        translated("{name} is empty").format(name=found[0]),
        translated(
            "find why nothing was put into {name}: data, rollouts or files that were all filtered out, failed or were "
            "not found; the log before it (of the process that produces them) says so"
        ).format(name=found[0]),
    )


def _explain_short_list(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A list with fewer entries than an index that is counted elsewhere."""
    found = list(dict.fromkeys(_INDEXED_PATTERN.findall(_innermost_code(exception))))
    if exception.message.text.strip() != "list index out of range" or not found:
        return None, None
    name, index = found[-1] if len(found) == 1 else next((one for one in found if one[0] != one[1]), found[0])
    at = raising_frame(exception)
    package = at.package if at is not None else ""
    return (
        translated("{name} has fewer entries than {index} counts: {name}[{index}] is past its end").format(
            name=name, index=index
        ),
        translated(
            "print {index} and len({name}) there: {index} counts something else than the entries of {name} (messages "
            "instead of their images or videos, samples before a filter), or an entry was never put in{later}"
        ).format(
            name=name,
            index=index,
            later=translated("; the line is {package}'s, whose later releases may count otherwise").format(
                package=f"{package} {at.release}".strip()
            )
            if at is not None and package
            else Text("", ""),
        ),
    )


def _explain_unpacked_call(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A call that returns another number of values than the names on its left."""
    found = _UNPACKED_PATTERN.search(exception.message.text)
    call = _UNPACKED_CALL_PATTERN.search(_innermost_code(exception).partition("#")[0].strip())
    if found is None or call is None:
        return None, None
    because = translated("{call} gives {many} than the {expected} values that this line takes").format(
        call=call.group(1),
        many=translated("more") if found.group(1) == "too many" else translated("fewer"),
        expected=found.group(2),
    )
    if call.group(2).rpartition(".")[2] in ("unbind", "split", "chunk", "tensor_split"):
        tensor = call.group(2).rpartition(".")[0]
        return because, translated(
            "print {tensor}.shape there: the dimension that is taken apart is not where this code expects it. If "
            "another package makes {tensor} (a KV cache, a fused weight), its layout differs between releases: use the "
            "release of it that this code was written for, or a later release of this code"
        ).format(tensor=tensor)
    return because, translated(
        "{function} returns another number of values in the installed release: use the release of its package that "
        "this code was written for, or a later release of this code"
    ).format(function=call.group(2))


def _explain_ragged_rows(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """Rows of different lengths that are to become one tensor."""
    found = _RAGGED_PATTERN.search(exception.message.text)
    converted = _CONVERTED_PATTERN.search(_innermost_code(exception))
    if found is None or converted is None or converted.group(1) in _COLLECTIONS:
        return None, None
    at = raising_frame(exception)
    own = at is None or not at.package
    name = converted.group(1)
    return (
        translated("the rows of {name} differ in length ({one} and {other}), and a tensor needs equal ones").format(
            name=name, one=found.group(1), other=found.group(3)
        ),
        translated("pad the rows of {name} to one length before they become a tensor").format(name=name)
        if own
        else translated(
            "{package} makes {name} itself, one row for each sample or pack of a batch: use a later release of it "
            "(which has to pad them), or one row at a time (a micro batch of 1, a global batch of the data-parallel "
            "size)"
        ).format(package=f"{at.package} {at.release}".strip() if at is not None else "", name=name),
    )


def _explain_not_json(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A value of numpy or torch that is handed to json, which knows Python's own types only."""
    found = _NOT_JSON_PATTERN.search(exception.message.text)
    if found is None:
        return None, None
    type_ = found.group(1)
    numpy = _NUMPY_TYPE_PATTERN.search(type_) is not None
    writer = next((frame for frame in reversed(exception.frames) if frame.owner != "python"), None)
    where = writer.function if writer is not None else ""
    return (
        translated("json writes Python's own types only, and a value here is {type}").format(
            type=translated("numpy's {type}").format(type=type_)
            if numpy
            else translated("torch's Tensor")
            if type_ == "Tensor"
            else Text(f"a {type_}", f" {type_}")
        ),
        translated(
            "find the value among what is written{where} (a metric, a reward's extra information), and convert it "
            "where it is made: .item() for a number, .tolist() for an array{later}"
        ).format(
            where=Text(f" in {where}", f"（{where}）") if where and not where.startswith("<") else Text("", ""),
            later=translated(
                "; if {package} makes it, use a later release of it, or log elsewhere than to this file"
            ).format(package=f"{writer.package} {writer.release}".strip())
            if writer is not None and writer.package
            else Text("", ""),
        ),
    )


def _explain_forbidden_fields(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """Settings that a pydantic model does not define."""
    text = exception.message.text[:_MAX_MESSAGE]
    fields = list(dict.fromkeys(_FORBIDDEN_FIELD_PATTERN.findall(text)))
    model = _REFUSED_MODEL_PATTERN.search(text)
    if not fields or model is None:
        return None, None
    named = ", ".join(fields[:6])
    section = fields[0].rpartition(".")[0]
    return (
        translated("{model} of this release has no setting {fields}").format(model=model.group(1), fields=named),
        translated("leave {fields} out, or move them to where this release has them{section}").format(
            fields=named, section=Text(f" (not under {section})", f"（不在 {section} 下）") if section else Text("", "")
        ),
    )


_RULES: tuple[Callable[[RaisedException, Mapping[str, str]], Explanation], ...] = (
    _explain_consumed_input,
    _explain_unpacked_shape,
    _explain_missing_dimension,
    _explain_list_for_dict,
    _explain_empty_list,
    _explain_short_list,
    _explain_unpacked_call,
    _explain_ragged_rows,
    _explain_not_json,
    _explain_forbidden_fields,
)

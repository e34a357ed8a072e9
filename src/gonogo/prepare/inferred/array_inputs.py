"""Files of numbers that a program reads itself: shards of token ids, latents, embeddings, labels.

No file of a launch states their shape. The code that reads them tells their suffix, whether they hold token ids, and
which splits are in their names; the first worker tells the rest. It starts with an array of one dimension whose size
no model has (a prime of ``FREE_SIZES``), and the error that it ends with says what the program asks instead: more
dimensions, another size, whole numbers. The answer is never proof of the user's own shape: a rehearsal that has read
such a file gives no certain NO-GO of what it did afterwards, and names the shape among what was not covered.
"""

from __future__ import annotations

import ast
import glob
import math
import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from gonogo.evidence.rehearsal.record import Failure, Operand, RankRecord
from gonogo.evidence.run import Run
from gonogo.evidence.script.identifiers import split_identifier, uses_name
from gonogo.finding import translated
from gonogo.prepare.columns import rows_for_two_steps
from gonogo.prepare.generated.array_files import ARRAY_SUFFIXES, FREE_SIZES, ArrayLayout
from gonogo.prepare.inferred.read_scope import ReadScope, scopes_at_failure
from gonogo.prepare.required_inputs import RequiredInput

ARRAY_FORMAT = "array"
_READERS = {"numpy.load": ".npy", "torch.load": ".pt"}
_LISTING_CALLS = ("os.listdir", "os.scandir", "*.iterdir", "glob.glob", "*.glob", "os.walk")
_SPLIT_NAMES = ("train", "val", "valid", "validation", "test", "dev", "eval")
_LABEL_WORDS = frozenset({"label", "labels", "target", "targets", "class", "classes", "cls", "y", "ids", "index"})
_TOKEN_COUNT = 1 << 22
"""Tokens in a shard at first: two steps of most launches, in 8 MB."""
_MAX_TOKEN_COUNT = 1 << 26
_SHARD_COUNT = 2
_MIN_SAMPLES = 64
_MAX_SAMPLES = 4096
_MAX_DIMENSIONS = 6
_ARRAYS_GENERATED = translated("generated arrays, with the dtype and shape that the code reads")
_TOKENS_GENERATED = translated("generated files of token ids")


def infer_array_input(
    path: str, failure: Failure, runs: Sequence[Run], known: Sequence[RequiredInput]
) -> RequiredInput | None:
    """A missing path as files of arrays, if the code that tried to open it reads such files; else None.

    ``path`` is an absolute path: of a folder, of one file, or a pattern.
    """
    suffix = os.path.splitext(path)[1].lower()
    scope = next(scopes_at_failure(failure), None)
    if scope is None or (suffix and suffix not in ARRAY_SUFFIXES):
        return None
    whole = ReadScope(scope.script, scope.script.tree) if scope.script.tree is not None else scope
    folder = not suffix or glob.has_magic(path)
    if folder and not any(scope.calls(*_LISTING_CALLS)):
        return None
    reads = next((found for one in (scope, whole) if (found := _array_reader(one))), None)
    if reads is None or (suffix and not folder and suffix != _READERS[reads]):
        return None
    wanted = RequiredInput("data", path, "", path, "can-be-made", why=_ARRAYS_GENERATED, format=ARRAY_FORMAT)
    wanted.suffix = suffix or _READERS[reads]
    if _reads_tokens(whole, reads):
        wanted.why = _TOKENS_GENERATED
        wanted.layout = ArrayLayout("uint16" if wanted.suffix == ".npy" else "int64", (_TOKEN_COUNT,))
        wanted.rows = _SHARD_COUNT
    else:
        wanted.layout = (
            ArrayLayout("int64", ()) if _has_label_name(path) else ArrayLayout("float32", (_unused_size(known),))
        )
        wanted.rows = min(max(rows_for_two_steps(runs[0]), _MIN_SAMPLES), _MAX_SAMPLES)
    chosen = any(isinstance(one.ops[0], ast.In) for one in scope.script.nodes(ast.Compare) if scope.contains(one))
    chosen = chosen or any(scope.calls("*.startswith", "*.endswith"))
    if folder and chosen and not glob.has_magic(path):
        strings = (scope.strings(), whole.strings())  # a parameter's values are where the class is used
        wanted.splits = next(filter(None, (tuple(name for name in _SPLIT_NAMES if name in one) for one in strings)), ())
    return wanted


def replace_rows_by_arrays(record: RankRecord, runs: Sequence[Run], required_inputs: list[RequiredInput]) -> bool:
    """Turn generated folders of rows into folders of arrays where the failing code reads arrays; whether any was."""
    if record.failure is None:
        return False
    listed = {os.path.abspath(one.name) for one in record.absent if one.kind == "made"}
    changed = False
    for at, one in enumerate(required_inputs):
        if one.kind != "data" or one.state != "made" or one.layout is not None or one.path not in listed:
            continue
        arrays = infer_array_input(one.path, record.failure, runs, required_inputs)
        if arrays is not None and not os.path.splitext(one.path)[1]:
            required_inputs[at], changed = arrays, True
    return changed


def _array_reader(scope: ReadScope) -> str | None:
    """The function with which the scope reads arrays, such as ``numpy.load``; loading a checkpoint doesn't count."""
    for name in _READERS:
        for call in scope.calls(name):
            above = scope.script.parent(call.node)
            if not isinstance(above, ast.Subscript) and not call.has("map_location"):
                return name
    return None


def _reads_tokens(scope: ReadScope, reader: str) -> bool:
    """Whether the code that reads the arrays mentions tokens."""
    for call in scope.calls(reader):
        around = scope.script.enclosing_function(call.node)
        if uses_name(around if around is not None else call.node, "token", "tokens"):
            return True
    return False


def _has_label_name(path: str) -> bool:
    return bool(_LABEL_WORDS & set(split_identifier(os.path.basename(path.rstrip("/")))))


def _unused_size(known: Sequence[RequiredInput], *more: int) -> int:
    """A dimension size that no generated array has yet, so that an error that states it points to one dimension."""
    taken = {size for one in known if one.layout is not None for size in one.layout.shape} | set(more)
    return next((size for size in FREE_SIZES if size not in taken), FREE_SIZES[-1])


def array_file_names(wanted: RequiredInput, rows: int) -> Iterator[str]:
    """The names of the files in a folder, or of those that match a pattern; sorted names are in order."""
    pattern = os.path.basename(wanted.path or "")
    for split in wanted.splits or ("",):
        for number in range(rows if split in ("", "train") else min(rows, 64)):
            stem = f"{split}_{number:06}" if split else f"{number:06}"
            yield pattern.replace("*", stem) if glob.has_magic(pattern) else f"{stem}{wanted.suffix}"


def refine_arrays(
    failure: Failure | None, required_inputs: Sequence[RequiredInput], seen: set[tuple[str, ...]]
) -> bool:
    """Change the shape of a generated array as the program's error asks; False if the error asks for nothing.

    ``seen`` are the shapes that were tried, all arrays together: none is tried twice.
    """
    arrays = [one for one in required_inputs if one.layout is not None and one.state == "made" and not one.stated]
    if failure is None or not arrays:
        return False
    seen.add(_paths_and_layouts(arrays))
    before = [one.layout for one in arrays]
    for demand in (_fix_dtype, _fix_token_count, _fix_ndim, _fix_size):
        changed = demand(failure, arrays)
        if changed is None:
            continue
        one, layout = changed
        one.layout = layout
        if _paths_and_layouts(arrays) not in seen and len(layout.shape) <= _MAX_DIMENSIONS:
            return True
        for array, earlier in zip(arrays, before, strict=True):
            array.layout = earlier
    return False


def _paths_and_layouts(arrays: Sequence[RequiredInput]) -> tuple[str, ...]:
    return tuple(f"{one.path}={one.layout}" for one in arrays)


_Change = tuple[RequiredInput, ArrayLayout]

_WHOLE_NUMBERS_ASKED_PATTERN = re.compile(
    r"one of the following scalar types: Long|scalar type Long\b.*but (?:found|got)|expected .*Long.*but got|"
    r"tensors used as ind[ei][xc]es must be long|index\w* must be (?:an )?integers?|expects? (?:an )?int64",
    re.IGNORECASE,
)
_FLOATS_ASKED_PATTERN = re.compile(
    r"scalar type (?:Float|Half|BFloat16|Double)\b.*but (?:found|got)|must have the same dtype|should be the same|"
    r"[Ff]loating.point|not implemented for '(?:Long|Int|Short)'|can only calculate the mean"
)


def _fix_dtype(failure: Failure, arrays: Sequence[RequiredInput]) -> _Change | None:
    """The array whose dtype the error message rejects, with the dtype that it expects."""
    for pattern, wanted in ((_WHOLE_NUMBERS_ASKED_PATTERN, "int64"), (_FLOATS_ASKED_PATTERN, "float32")):
        if pattern.search(failure.message):
            others = [one for one in arrays if _layout_or_fail(one).dtype.startswith("int") != (wanted == "int64")]
            if (one := _find_array_by_operand(failure, others)) is not None:
                return one, msgspec.structs.replace(_layout_or_fail(one), dtype=wanted)
    return None


_TOO_FEW_NUMBERS_PATTERN = re.compile(
    r"is invalid for input of size \d+|index \d+ is out of bounds|low >= high|out of range"
)


def _fix_token_count(failure: Failure, arrays: Sequence[RequiredInput]) -> _Change | None:
    """An array of tokens with more of them, where the program read beyond its end."""
    if _TOO_FEW_NUMBERS_PATTERN.search(failure.message) is None:
        return None
    for one in arrays:
        count = math.prod(_layout_or_fail(one).shape)
        if _TOKEN_COUNT <= count < _MAX_TOKEN_COUNT:
            return one, msgspec.structs.replace(_layout_or_fail(one), shape=(count * 4,))
    return None


def _find_array_by_ndim(failure: Failure, arrays: Sequence[RequiredInput]) -> RequiredInput | None:
    """The array whose batch, or single sample, has the number of dimensions that the message states."""
    match = _RANGE_PATTERN.search(failure.message)
    for more in (1, 0) if match else ():
        found = [one for one in arrays if match is not None and len(_layout_or_fail(one).shape) + more == int(match[1])]
        if found:
            return found[0]
    return None


_CHANNELS_PATTERN = re.compile(r"to have \d+ channels, but got (\d+)")
_RANGE_PATTERN = re.compile(r"Dimension out of range \(expected to be in range of \[-(\d+),")
_UNPACKED_PATTERN = re.compile(r"(not enough|too many) values to unpack \(expected (\d+)(?:, got (\d+))?\)")
_INPUT_DIMENSIONS_PATTERN = re.compile(
    r"Expected ((?:\d+D[^,]*? or )*\d+D)[^\d]*.*but got (?:input of size: )?\[([\d, ]*)\]"
)
_MISSING_DIMENSION_PATTERN = re.compile(
    r"Dimension out of range|too many indices|tuple index out of range|Dimension specified as|"
    r"must have at least (?:\d|one|two|three) dim|iteration over a 0-d|zero-dimensional|expects? .{0,30}at least \d dim"
)


def _fix_ndim(failure: Failure, arrays: Sequence[RequiredInput]) -> _Change | None:
    """The array with the number of dimensions that the error message expects."""
    named = _find_array_by_ndim(failure, arrays)
    floats = (one for one in arrays if _layout_or_fail(one).dtype == "float32")
    one = named or _find_array_by_operand(failure, arrays) or next(floats, arrays[0])
    shape = _layout_or_fail(one).shape
    change = 0
    if match := _UNPACKED_PATTERN.search(failure.message):
        change = int(match[2]) - int(match[3]) if match[3] else 1 if match[1] == "not enough" else -1
    elif match := _INPUT_DIMENSIONS_PATTERN.search(failure.message):
        requested = [int(number) for number in re.findall(r"(\d+)D", match[1])]
        change = max(requested) - len([part for part in match[2].split(",") if part.strip()])
    elif _MISSING_DIMENSION_PATTERN.search(failure.message):
        change = 1
    elif match := _CHANNELS_PATTERN.search(failure.message):  # the batch was taken for the channels of one sample
        change = 1 if int(match[1]) not in shape else 0
    if change == 0 or len(shape) + change < 0:
        return None
    if change < 0:
        return one, msgspec.structs.replace(_layout_or_fail(one), shape=shape[:change])
    added: list[int] = []
    for _ in range(change):
        added.append(_unused_size(arrays, *added) if _layout_or_fail(one).dtype == "float32" else 1)
    return one, msgspec.structs.replace(_layout_or_fail(one), shape=(*shape, *added))


_PICTURE_SIZE_PATTERN = re.compile(r"height|width|image|input size|spatial|resolution", re.IGNORECASE)
_PRODUCT_PATTERN = re.compile(r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)")
_SIZE_PATTERNS = (
    (_PRODUCT_PATTERN, (1, 2)),
    (re.compile(r"to have (\d+) channels, but got (\d+)"), (2, 1)),
    (re.compile(r"[Ss]ize of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"), (1, 2)),
    (re.compile(r"[Ss]ize of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"), (2, 1)),
    (re.compile(r"input\.size\(-1\) must be equal to input_size\. Expected (\d+), got (\d+)"), (2, 1)),
    (re.compile(r"expected input with shape \[\*, (\d+)\], but got input of size\[[\d, ]*?(\d+)\]"), (2, 1)),
    (re.compile(r"embed_dim: (?:was )?expect(?:ing|ed) .*?(\d+),? but got (\d+)"), (2, 1)),
)


def _fix_size(failure: Failure, arrays: Sequence[RequiredInput]) -> _Change | None:
    """The array with another size for the dimension whose current size the message states."""
    pairs = [
        (int(match[had]), int(match[wanted]))
        for pattern, (had, wanted) in _SIZE_PATTERNS
        if (match := pattern.search(failure.message))
    ]
    if not pairs:  # the program's own words: the present size is in them, and one other number
        numbers = list(dict.fromkeys(map(int, re.findall(r"(?<![\w.])\d+(?![\w.]*\d)", failure.message))))
        for had in numbers:
            others = [number for number in numbers if number != had and number not in FREE_SIZES]
            if had in FREE_SIZES and len(others) == 1:
                pairs.append((had, others[0]))
    for had, wanted in pairs:
        for one in arrays:
            shape = _layout_or_fail(one).shape
            if had in shape and had in FREE_SIZES and 0 < wanted < 1 << 20:
                sides = set(shape[-2:]) if _PICTURE_SIZE_PATTERN.search(failure.message) else set()
                changed = {had} | (sides & set(FREE_SIZES) if had in sides else set())  # pictures are square
                sizes = tuple(wanted if size in changed else size for size in shape)
                return one, msgspec.structs.replace(_layout_or_fail(one), shape=sizes)
    return _fix_flattened_size(failure, arrays)


def _fix_flattened_size(failure: Failure, arrays: Sequence[RequiredInput]) -> _Change | None:
    """The array with another size for one of the dimensions that were flattened into the size in the message."""
    match = _PRODUCT_PATTERN.search(failure.message)
    if match is None:
        return None
    had, wanted = int(match[1]), int(match[2])
    for one in arrays:
        for at in _layout_or_fail(one).undetermined_dimensions:
            size = _layout_or_fail(one).shape[at]
            if had % size == 0 and wanted * size % had == 0:
                shape = list(_layout_or_fail(one).shape)
                shape[at] = wanted * size // had
                return one, msgspec.structs.replace(_layout_or_fail(one), shape=tuple(shape))
    return None


def _find_array_by_operand(failure: Failure, arrays: Sequence[RequiredInput]) -> RequiredInput | None:
    """The array whose batch is an operand of the operator that failed, or the only array."""
    for operand in failure.operands:
        for one in arrays:
            if _is_batch_of(operand, _layout_or_fail(one)):
                return one
    return arrays[0] if len(arrays) == 1 else None


def _is_batch_of(operand: Operand, layout: ArrayLayout) -> bool:
    if operand.dtype.removeprefix("torch.") != layout.dtype or operand.parameter is not None:
        return False
    return operand.shape[1:] == layout.shape or operand.shape == layout.shape


def _layout_or_fail(one: RequiredInput) -> ArrayLayout:
    assert one.layout is not None
    return one.layout

"""Explain exceptions by what surrounds the code that raised them.

For example a file that another process of the run writes or deletes, a server that does not answer in time, an option
that no parser has defined, a name of another package's release, operands or positions that do not agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gonogo.diagnose.explanations.explanation import Explanation, first_explanation
from gonogo.evidence.failure.api_mismatch import package_of_class
from gonogo.evidence.patterns import lazy_compile
from gonogo.finding import Text, translated
from gonogo.finding.failure import CodePlace, RaisedException

_OF_A_STEP_PATTERN = lazy_compile(
    r"(?i)(?:^|/)((?:global_?step|iter|step|checkpoint|ckpt|epoch|broadcast|version)s?[-_/]?\d[\w-]*)(?:/|$)"
)
_SAVED_PATTERN = lazy_compile(r"(?i)(?:^|/)(?:checkpoint|ckpt|global_?step|iter)s?[-_/]?\d[^/]*/[^/]+$")
_PASSED_ON_PATTERN = lazy_compile(r"(?i)broadcast|rollout|sync|weights?/")
_REQUEST_PATTERN = lazy_compile(
    r"\.(post|get|put|request)\(\s*(?:f?[\"'](?:POST|GET)[\"'],\s*)?f?[\"']([^\"']{1,120})[\"']"
)
_TIMEOUT_TYPES = (
    *("ReadTimeout", "ConnectTimeout", "PoolTimeout", "WriteTimeout", "TimeoutException", "ReadTimeoutError"),
    *("ServerTimeoutError", "SocketTimeoutError", "ConnectionTimeoutError"),
)
"""Timeouts of httpx, requests, urllib3 and aiohttp; the client gave up, the server may still be at work."""
_WEIGHTS_PATTERN = lazy_compile(r"(?i)weight|lora|param|broadcast|communicator|refit")
_OPERANDS_PATTERN = lazy_compile(
    r"The size of tensor a \((\d{1,15})\) must match the size of tensor b \((\d{1,15})\) at non-singleton "
    r"dimension (\d)"
)
_NAME = r"[A-Za-z_][\w.]*(?:\[[^\]]{1,40}\])?"
_BINARY_PATTERN = lazy_compile(rf"(?:^|=|\(|return )\s*({_NAME}) [-+*/&|] ({_NAME})(?![\w.(\[])")
_COPY_PATTERN = lazy_compile(rf"(?:^|\s)({_NAME})\.(?:copy_|add_|mul_|sub_)\(({_NAME})[,)]")
_POSITIONS_PATTERN = lazy_compile(
    r"value tensor of shape \[3, (\d{1,9})\].{1,60} indexing result of shape \[3, (\d{1,9})\]"
)
_GRADIENT_DTYPE_PATTERN = lazy_compile(
    r"assign a gradient with dtype '?(?:c10::)?(\w+)'? to a tensor with dtype '?(?:c10::)?(\w+)"
)
_UNDEFINED_NAME_PATTERN = lazy_compile(r"^name '([A-Z]\w{1,100})' is not defined")


def explain_by_surroundings(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """The reason by the frames around the failure, and what to change; (None, None) if no rule applies."""
    return first_explanation(_RULES, exception, versions)


def _package_and_release(place: CodePlace) -> str:
    return f"{place.package} {place.release}".strip()


def _explain_unparsed_option(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """An argument read from argparse's Namespace that the parser of this run does not define."""
    message = exception.message
    if message.form != "no_attribute" or message.subject.rpartition(".")[2] != "Namespace" or not message.names:
        return None, None
    name, at = message.names[0], exception.frames[-1] if exception.frames else None
    package = at.package if at is not None else ""
    return (
        translated(
            "no parser of this run defines the option --{option}, which this code reads (args.{name}): the code that "
            "parses the options and this file are of two releases{package}, or one of them is a copy or a patch made "
            "for another release"
        ).format(
            option=name.replace("_", "-"),
            name=name,
            package=Text(f" of {package}", f"（{package}）") if package else Text("", ""),
        ),
        translated(
            "use files of one release or commit{package}: search it for {option} (a later one may have removed or "
            "renamed the option), and adapt what patches or copies its code"
        ).format(package=Text(f" of {package}", f"（{package}）") if package else Text("", ""), option=name),
    )


def _explain_name_from_other_release(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A class of a well-known package that a module uses without having it: another release spells or places it."""
    found = _UNDEFINED_NAME_PATTERN.search(exception.message.text[:400])
    at = exception.frames[-1] if exception.frames else None
    if found is None or at is None or not at.package:
        return None, None
    name, package = found.group(1), package_of_class(found.group(1))
    if not package or package == at.package:
        return None, None
    there = f"{package} {versions.get(package, '')}".strip()
    return (
        translated(
            "{asks} uses {name} without having it: it is a name of {package}, and {asks} does not fit {there} (it "
            "imports or generates the name for another release, or only if an optional package is installed)"
        ).format(asks=_package_and_release(at), name=name, package=package, there=there),
        translated(
            "use a later release of {asks}, or the release of {package} that it was made for (its requirements)"
        ).format(asks=at.package, package=package),
    )


def _explain_missing_file(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A file of a step or a checkpoint, which another process of the run writes and may delete."""
    if exception.message.form != "no_file":
        return None, None
    path = exception.message.subject.replace("\\", "/")
    found = _OF_A_STEP_PATTERN.search(path)
    if found is None:
        return None, None
    if _SAVED_PATTERN.search(path) and not _PASSED_ON_PATTERN.search(path):
        return (
            translated(
                "{step} has no {file}: it was saved in another form (an adapter alone, one file in place of shards, "
                "the shards of FSDP, DeepSpeed or Megatron), is incomplete (the run ended while it was saved), or lies "
                "on a disk that this machine does not share"
            ).format(step=found.group(1), file=path.rpartition("/")[2]),
            translated(
                "list the folder, and load it with the library that saved it (or convert it first); if it is "
                "incomplete, take the one before it"
            ),
        )
    return (
        translated(
            "{file} of {step} is not there when this process reads it: another process of the run writes such folders, "
            "and has not finished it yet, has already deleted it (a clean-up of old ones), or wrote it to a disk that "
            "this machine does not share"
        ).format(file=path.rpartition("/")[2], step=found.group(1)),
        translated(
            "check whether the folder exists now: if it is gone, keep more such folders (a longer interval, "
            "no limit) so that none is deleted before it is read; if it is incomplete, read it only once it "
            "is complete; on several machines put it on a shared disk"
        ),
    )


def _explain_dataset_of_datasets(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A DataLoader that was given a dict of datasets and asks it for sample 0."""
    at = exception.frames[-1] if exception.frames else None
    names = exception.message.names
    if exception.message.form != "missing_key" or at is None or not names or not names[0].isdigit():
        return None, None
    if not at.path.replace("\\", "/").endswith("torch/utils/data/_utils/fetch.py"):
        return None, None
    return (
        translated(
            "the DataLoader asks its dataset for sample {number}, and that dataset is a dict (a DatasetDict, or "
            "several datasets by name), not a sequence of samples"
        ).format(number=names[0]),
        translated(
            "pass one of them (dataset['train'], or each evaluation set by itself); if a framework passes it, use one "
            "evaluation set, or a later release of the framework"
        ),
    )


def _explain_request_timeout(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A request that the server did not answer within the client's timeout."""
    if exception.type.rpartition(".")[2] not in _TIMEOUT_TYPES:
        return None, None
    sent = next(
        (match for frame in reversed(exception.frames) if (match := _REQUEST_PATTERN.search(frame.code[:2000]))), None
    )
    what = Text(f"the request {sent.group(2)}", f"请求 {sent.group(2)}") if sent else translated("a request")
    because = translated(
        "the server did not answer {what} before the client's timeout: it is busy, stopped, or itself waits for "
        "another process"
    ).format(what=what)
    if sent is not None and _WEIGHTS_PATTERN.search(sent.group(2)):
        return because, translated(
            "look at the server's log of that time: for an update of weights it waits until the trainer sends them (a "
            "broadcast), so a trainer that has died, has not reached that point (as after a resume), or waits for "
            "this process itself is a deadlock; hand weights over by files (a filesystem transport) if the framework "
            "can, use a later release of it, or raise the timeout if the server is only slow"
        )
    return because, translated(
        "look at the server's log of that time (out of memory, an engine that died, a queue that is full); raise the "
        "client's timeout, or send fewer requests at once, if it is only slow"
    )


def _explain_operand_sizes(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """The two operands whose sizes differ, if the line names them."""
    found = _OPERANDS_PATTERN.search(exception.message.text[:1000])
    at = exception.frames[-1] if exception.frames else None
    code = at.code[:2000] if at is not None else ""
    named = _COPY_PATTERN.search(code) or _BINARY_PATTERN.search(code)
    if found is None or at is None or named is None:
        return None, None
    first, second, dimension = (int(number) for number in found.groups())
    one, other = named.groups()
    caller = next(
        (frame for frame in reversed(exception.frames) if frame.package and frame.package != at.package), None
    )
    because = translated("{one} has {first} entries in dimension {dimension}, and {other} has {second}").format(
        one=one, other=other, first=first, second=second, dimension=dimension
    )
    if caller is None:
        return because, None
    return because, translated(
        "compare what {asks} passes in {function} with what {there} expects: inputs that belong together (tokens, "
        "masks, images and their sizes) were cut, padded or indexed in different ways; if your own code doesn't change "
        "them, use a later release of {package}"
    ).format(
        asks=_package_and_release(caller),
        function=caller.function,
        there=_package_and_release(at) or at.function,
        package=caller.package,
    )


def _explain_multimodal_positions(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """Multimodal positions, which count a sample's tokens in another way than its attention mask does."""
    found = _POSITIONS_PATTERN.search(" ".join(exception.message.text[:1000].split()))
    at = exception.frames[-1] if exception.frames else None
    if found is None or at is None or "rope_index" not in at.function:
        return None, None
    caller = next(
        (frame for frame in reversed(exception.frames) if frame.package and frame.package != at.package), None
    )
    counted, kept = found.groups()
    because = translated(
        "the image and video markers of a sample stand for {counted} positions, and its attention mask keeps {kept} "
        "tokens: markers were cut off (a length limit), or token ids, mask and mm_token_type_ids were padded or "
        "truncated on different sides"
    ).format(counted=counted, kept=kept)
    if caller is None:
        return because, translated("print the sample's length and its mask there, and pad all of them on one side")
    return because, translated(
        "raise the length limit, if the smaller number is the limit; if not, {asks} aligns these inputs wrongly: use a "
        "later release of {package}, or samples that need no padding (a batch of one)"
    ).format(asks=_package_and_release(caller), package=caller.package)


def _explain_gradient_dtype(exception: RaisedException, versions: Mapping[str, str]) -> Explanation:
    """A gradient that a wrapper reduced in another dtype than its parameter has."""
    found = _GRADIENT_DTYPE_PATTERN.search(exception.message.text[:1000])
    if found is None:
        return None, None
    gradient, parameter = ({"Float": "float", "Half": "half"}.get(name, name).lower() for name in found.groups())
    if not any("fsdp" in frame.path.lower() or "fully_shard" in frame.path for frame in exception.frames[-4:]):
        return None, None
    return (
        translated(
            "FSDP2 reduced the gradient in {gradient}, and the sharded parameter is {parameter}: its "
            "MixedPrecisionPolicy has no reduce_dtype for this group, or the group settled its dtypes while its "
            "parameters were frozen (requires_grad=False at the first forward) and they were unfrozen later"
        ).format(gradient=gradient, parameter=parameter),
        translated(
            "let the parameters require gradients at the first forward and freeze them after it (or unfreeze before "
            "fully_shard and the first forward); set reduce_dtype in the policy; a later torch may settle it anew"
        ),
    )


_RULES: tuple[Callable[[RaisedException, Mapping[str, str]], Explanation], ...] = (
    _explain_unparsed_option,
    _explain_name_from_other_release,
    _explain_missing_file,
    _explain_dataset_of_datasets,
    _explain_request_timeout,
    _explain_multimodal_positions,
    _explain_operand_sizes,
    _explain_gradient_dtype,
)

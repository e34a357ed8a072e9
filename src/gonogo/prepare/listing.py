"""Lists what a launch will open: what its files name, compared with what is here and what is published."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gonogo.evidence.config.model import config_paths
from gonogo.evidence.paths import exists, is_file, is_folder
from gonogo.evidence.published.datasets import published_dataset
from gonogo.evidence.published.models import PublishedModel, published_model, similar_model_names
from gonogo.evidence.run import Run
from gonogo.finding import Text, translated
from gonogo.prepare import axolotl
from gonogo.prepare.columns import (
    add_column_kinds,
    columns_in_options,
    columns_read_in,
    csv_separator,
    rows_for_two_steps,
    selected_row_count,
    tokenized_columns,
)
from gonogo.prepare.generated.rows import format_from_columns
from gonogo.prepare.inferred.producers import name_producer
from gonogo.prepare.named_inputs import (
    SHELL_VARIABLE_OPTION,
    TOKENIZER_ONLY,
    TOKENIZER_OPTIONS,
    find_named_inputs,
    is_hub_name,
    to_absolute_path,
)
from gonogo.prepare.required_inputs import (
    INDEXED_TOKENS,
    VOCABULARIES,
    NamedInput,
    PrepareOptions,
    RequiredInput,
    State,
    kind_of_option,
    vocabulary_file,
)
from gonogo.prepare.walked_folders import infer_image_folder, reads_only_image_folders

_LENGTHS = (
    *("max_seq_length", "cutoff_len", "model_max_length", "max_length", "max_seq_len", "max_len", "block_size"),
    *("max_source_length", "seq_length", "sequence_len"),
)
_DEFAULT_SEQUENCE_LENGTH = 512
_MAX_TOKENS = 65_536
_MAX_UNSTATED_TOKENS = 2048
_HUB_OPTIONS = frozenset({"dataset_name", "dataset_id", "dataset", "model_name", "model_id", "eval_dataset"})
_SWIFT_DATA_PATTERN = re.compile(r"^(?:HF::|MS::)?(?P<name>[^:#]+)(?::(?P<subset>[^#]*))?(?:#\d+)?$")

_GENERATED_FROM_PUBLISHED = translated(
    "{name} from its published config, without weights; its tokenizer has the published size and special "
    "tokens but is untrained"
)
_WITHOUT_TOKENIZER = translated("{name} from its published config, without weights")
_NOT_PUBLISHED = translated(
    "not in gonogo's table of published models{close}: choose a similar one (--model "
    "{name}=PUBLISHED-NAME), or download its config and tokenizer (hf download {name} "
    "--exclude '*.safetensors' --exclude '*.bin')"
)
_FILES_NOT_PUBLISHED = translated(
    "not in gonogo's table of published models{close}: choose a similar one (--model "
    "{name}=PUBLISHED-NAME), or download what the program asked for (hf download {name} {files})"
)
_MODEL_UNKNOWN_FROM_PATH = translated(
    "can't determine from the name which model this is{close}: choose it with --model {name}=PUBLISHED-NAME"
)
_GENERATED_ROWS = translated("generated rows ({format})")
_GENERATED_ROWS_WITH_PUBLISHED_COLUMNS = translated("generated rows with the published columns: {columns}")
_NO_FORMAT = translated("can't determine from the files which columns the program reads")
_GENERATED_VOCABULARY = translated("{model}'s vocabulary, of the published size but untrained")
_GENERATED_INDEXED_TOKENS = translated("generated token ids (PREFIX.bin) and their index (PREFIX.idx)")
_INDEXED_OPTIONS = frozenset({"data_path", "train_data_path", "valid_data_path", "test_data_path"})
_INDEXED_WORDS = (b"MMIDIDX", b"megatron.core.datasets")
"""What begins an index, and the package that reads it where Megatron-Core is installed."""
_VARIABLE_NOT_SET = translated("the program reads it with os.environ[…], but no file of the launch sets it: export it")
_UNSET_IN_SHELL = translated("the launch script uses it without setting it: export it (otherwise it is empty)")
_GENERATED_MEDIA = translated("a folder with generated images")
_SUFFIXES_WITHOUT_ROWS = frozenset({
    ".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".safetensors", ".gguf", ".onnx", ".npy", ".npz", ".h5", ".hdf5",
    ".arrow", ".mdb", ".tar", ".zip", ".gz", ".zst", ".model", ".vocab", ".so",
})  # fmt: skip
_ROWS_NOT_GENERATED = translated("files of this kind are not generated: put the output of the preceding step there")
_CONFIG_OPTION_PATTERN = re.compile(r"(?:^|_)(?:config|cfg|args|arguments|settings)(?:_|$)")
_SETTINGS_NOT_GENERATED = translated("settings files can't be generated: check that the path is right")
_UNTOLD = translated("can't be determined from the files, but by running the program up to its first batch")


def list_required_inputs(runs: Sequence[Run], folder: Path, options: PrepareOptions) -> list[RequiredInput]:
    """What these runs open, each input once, models first. ``folder`` is the working directory of the launch."""
    found: dict[tuple[str, str], RequiredInput] = {}
    for run in runs:
        where = run.launch.cwd if run.launch is not None else folder
        columns = columns_read_in(run.scripts)
        for named in find_named_inputs(run):
            for wanted in _required_input(run, named, where, columns, options):
                one = found.setdefault(wanted.key, wanted)
                if one.state == "here" and wanted.state != "here":  # here for the tokenizer, but not for the model
                    one = found[wanted.key] = wanted
                one.splits = tuple(dict.fromkeys((*one.splits, *wanted.splits)))
                one.rows = max(one.rows, wanted.rows)
    order = {"model": 0, "data": 1, "media": 2, "variable": 3}
    kinds = {wanted.kind for wanted in found.values() if wanted.state != "unknown"}
    kept = [one for one in found.values() if one.state != "unknown" or one.kind not in kinds or one.name[:2] == "--"]
    return sorted(kept, key=lambda one: order[one.kind])


def row_length_in_tokens(runs: Iterable[Run], options: PrepareOptions) -> int:
    """The length of a generated row in tokens: the user's choice, else the longest that the launch accepts, else 512.

    A limit that appears only in a script is its author's upper bound, and counts up to 2048.
    """
    if options.tokens is not None:
        return options.tokens
    for run in runs:
        for name in _LENGTHS:
            number = run.arguments.get(name).number
            if number and number > 0:
                stated = run.arguments.source_of(name) != "script"
                return min(int(number), _MAX_TOKENS if stated else _MAX_UNSTATED_TOKENS)
    return _DEFAULT_SEQUENCE_LENGTH


def _required_input(
    run: Run, named: NamedInput, folder: Path, columns: tuple[str, ...], options: PrepareOptions
) -> Iterator[RequiredInput]:
    if named.value is None:
        name = f"--{named.option}" if named.option else f"? ({named.kind})"
        yield RequiredInput(named.kind, name, named.place, state="unknown", why=_UNTOLD)
    elif named.kind == "model":
        tokenizer = named.option.rpartition(".")[2] in (TOKENIZER_ONLY, *TOKENIZER_OPTIONS)
        yield list_model(named.value, named.place, folder, options, tokenizer_only=tokenizer)
    elif named.kind == "variable":
        here = named.value in os.environ
        why = None if here else _UNSET_IN_SHELL if named.option == SHELL_VARIABLE_OPTION else _VARIABLE_NOT_SET
        state: State = "here" if here else "missing"
        yield RequiredInput("variable", named.value, named.place, state=state, why=why, format=named.option or None)
    elif named.kind == "media":
        yield _required_media_folder(named, folder)
    elif run.framework == "llamafactory" and named.option in ("dataset", "eval_dataset"):
        yield from _llamafactory_data_sets(run, named, folder, options)
    else:
        yield list_data_set(run, named, folder, columns, options)


def list_model(
    name: str, place: str, folder: Path, options: PrepareOptions, *, asked: bool = False, files: Sequence[str] = (),
    tokenizer_only: bool = False,
) -> RequiredInput:  # fmt: skip
    """A model by its Hub name or path: which parts are here, and whether it can be generated.

    With ``asked``, a rehearsal has asked for these files under that name; otherwise a single word that is no model's
    name may be a label (``scratch``). With ``tokenizer_only``, nothing else is read from it.
    """
    there = to_absolute_path(name, folder)
    hub = is_hub_name(name) and not exists(Path(there))
    hub = hub or (published_model(name) is not None and "/" not in name and not exists(Path(there)))
    wanted = RequiredInput("model", name, place, None if hub else there, parts={})
    config = next((path for path in config_paths(name, folder) if is_file(path)), None)
    if config is not None:
        wanted.parts = _model_parts_in(config.parent)
        wanted.found = str(config.parent)
        if wanted.parts["tokenizer"] or not wanted.parts["language"]:
            wanted.state = "here"
        wanted.parts.pop("language")
    elif is_file(Path(there)):
        wanted.state, wanted.found = "here", there
    elif is_folder(Path(there)):
        wanted.found = there
        parts = _model_parts_in(Path(there))
        if tokenizer_only and parts["tokenizer"]:
            wanted.state, wanted.parts = "here", {"tokenizer": True}
    if wanted.state == "here":
        return wanted
    model = find_published_model(name, options)
    if model is not None:
        text = _GENERATED_FROM_PUBLISHED if model.tokenizer else _WITHOUT_TOKENIZER
        wanted.state, wanted.why, wanted.format = "can-be-made", text.format(name=model.name), model.name
    elif not asked and "/" not in name:
        wanted.state, wanted.why = "unknown", _UNTOLD
    else:
        wanted.state = "missing"
        text = _MODEL_UNKNOWN_FROM_PATH if not hub else _FILES_NOT_PUBLISHED if files else _NOT_PUBLISHED
        wanted.why = text.format(name=name, close=similar_names_text(name), files=" ".join(files))
    return wanted


def similar_names_text(name: str) -> Text:
    """Published names similar to an unknown one, in parentheses; empty if there are none."""
    close = similar_model_names(name)
    return translated(" (similar: {names})").format(names=", ".join(close)) if close else Text("", "")


def find_published_model(name: str, options: PrepareOptions) -> PublishedModel | None:
    """The published model to use for a name or path: the one that the user chose, or the one of that name."""
    chosen = options.models.get(name)
    if chosen is None and (known := published_model(name)) is not None:
        return known
    chosen = chosen or options.models.get("*")
    return published_model(chosen) if chosen else None


_TOKENIZER_FILES = frozenset(
    {"tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tokenizer_config.json"}
)


def _model_parts_in(folder: Path) -> dict[str, bool]:
    """Which parts of a model are in a folder; ``language`` tells whether it needs a tokenizer."""
    names = set(os.listdir(folder)) if is_folder(folder) else set()
    parts = {"configuration": "config.json" in names, "tokenizer": bool(_TOKENIZER_FILES & names)}
    if found := {name for name in names if name.startswith(("preprocessor_config", "processor_config"))}:
        parts["processor"] = bool(found)
    config: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    has_words = isinstance(config, dict) and any(
        key in part for part in (config, config.get("text_config") or {}) for key in ("vocab_size", "n_vocab")
    )
    return {**parts, "language": has_words}


def _required_media_folder(named: NamedInput, folder: Path) -> RequiredInput:
    path = to_absolute_path(named.value or "", folder)
    if exists(Path(path)):
        return RequiredInput("media", named.value or "", named.place, path, "here", path)
    return RequiredInput("media", named.value or "", named.place, path, "can-be-made", why=_GENERATED_MEDIA)


def list_data_set(
    run: Run, named: NamedInput, folder: Path, columns: tuple[str, ...], options: PrepareOptions
) -> RequiredInput:
    """A dataset by its path or Hub name, and the format that the program reads."""
    name, subset = named.value or "", named.subset
    if run.framework == "ms-swift" and (match := _SWIFT_DATA_PATTERN.match(name)) and not name.startswith(("/", ".")):
        name, subset = match["name"], match["subset"] or subset
    path = to_absolute_path(name, folder)
    if exists(Path(path)) and not named.is_hub:
        return RequiredInput("data", name, named.place, path, "here", path)
    if file := vocabulary_file(named.option, path):
        model = VOCABULARIES[file]
        why = _GENERATED_VOCABULARY.format(model=model)
        return RequiredInput("data", name, named.place, path, "can-be-made", why=why, format=file)
    if _is_indexed_tokens(run, named, path):
        return list_indexed_tokens(name, named.place, path)
    if _CONFIG_OPTION_PATTERN.search(named.option):
        return RequiredInput("data", name, named.place, path, "missing", why=_SETTINGS_NOT_GENERATED)
    if not named.is_hub and os.path.splitext(path)[1].lower() in _SUFFIXES_WITHOUT_ROWS:
        return RequiredInput(
            "data", name, named.place, path, "missing", why=name_producer(_ROWS_NOT_GENERATED, path, folder)
        )
    if (
        not named.is_hub
        and not is_hub_name(name)
        and reads_only_image_folders(run)
        and (made := infer_image_folder(run, path, named.place))
    ):
        return made
    hub = named.is_hub or is_hub_name(name) or ("/" not in name and "." not in name and named.option in _HUB_OPTIONS)
    if hub and is_folder(folder / name.partition("/")[0]) and "/" in name and not published_dataset(name):
        hub = named.is_hub
    wanted = RequiredInput("data", name, named.place, None if hub else path, "can-be-made", subset=subset)
    wanted.splits, wanted.rows = _parse_split(named.split or "")
    if run.framework is None:  # a framework's trainer makes steps from whatever rows there are
        tokens = row_length_in_tokens([run], options)
        wanted.rows = max(wanted.rows, rows_for_two_steps(run, tokens))
        if taken := selected_row_count(run, name, tokens):
            wanted.rows = taken + max(wanted.rows, options.rows)
    if path.endswith((".csv", ".tsv")):
        wanted.separator = csv_separator(run)
    known = published_dataset(name) if hub else None
    if known is not None:
        wanted.columns = tuple(known.columns_in(subset))
        wanted.why = _GENERATED_ROWS_WITH_PUBLISHED_COLUMNS.format(columns=", ".join(wanted.columns))
        return wanted
    if run.framework == "axolotl" and named.entry is not None:
        wanted.columns = axolotl.columns_of_entry(named.entry, run.arguments.get("rl").string)
    elif run.framework is None:
        wanted.columns = columns_in_options(run.arguments)
    if wanted.columns:
        wanted.why = _GENERATED_ROWS.format(format=", ".join(wanted.columns))
        return wanted
    seen = options.columns.get(name) or options.columns.get("*") or ()
    wanted.format = format_from_columns((*seen, *columns)) if seen else _detect_format(run, columns, hub)
    if not hub and not seen:
        wanted.format = {".bin": "token-numbers", ".txt": "text"}.get(os.path.splitext(path)[1], wanted.format)
    wanted.columns = (*add_column_kinds(seen, run.scripts), *_media_columns(run, columns))
    if wanted.format is None and not wanted.columns:
        wanted.columns = tuple(f"{name}:text" for name in tokenized_columns(run.scripts))
    if wanted.format is None and not wanted.columns:
        wanted.state, wanted.why = "unknown", _NO_FORMAT
    else:
        shown = wanted.format or ", ".join(wanted.columns)
        wanted.why = _GENERATED_ROWS.format(format=shown)
    return wanted


def list_indexed_tokens(name: str, place: str, path: str) -> RequiredInput:
    """Token ids in two files, ``PREFIX.bin`` and ``PREFIX.idx``, by their prefix."""
    if all(exists(Path(path + suffix)) for suffix in (".idx", ".bin")):
        return RequiredInput("data", name, place, path, "here", path)
    return RequiredInput("data", name, place, path, "can-be-made", why=_GENERATED_INDEXED_TOKENS, format=INDEXED_TOKENS)


def _is_indexed_tokens(run: Run, named: NamedInput, path: str) -> bool:
    """Whether a path is the prefix of two files with token ids, as Megatron's programs read them."""
    return (
        named.option.replace("-", "_") in _INDEXED_OPTIONS
        and os.path.splitext(path)[1] not in (".jsonl", ".json", ".txt", ".csv", ".parquet", ".arrow")
        and run.any_script_contains(*_INDEXED_WORDS)
    )


_SPLIT_PART_PATTERN = re.compile(r"(\w+)(?:\[(\d*)(%?):(\d*)(%?)\])?")
_ROWS_PER_PART = 16
"""The minimum number of rows in a slice that is given in per cent."""


def _parse_split(split: str) -> tuple[tuple[str, ...], int]:
    """The splits in an expression such as ``train[:10%]+test``, and the rows that a split needs for its slices."""
    found = list(_SPLIT_PART_PATTERN.finditer(split))
    if not found or "".join(one[0] for one in found) != split.replace("+", "").replace(" ", ""):
        return (), 0
    rows = 0
    for part in found:
        first, last = int(part[2] or 0), int(part[4] or 0)
        if part[3] or part[5]:
            rows = max(rows, math.ceil(100 * _ROWS_PER_PART / max(1, (last or 100) - first)))
        else:
            rows = max(rows, last, first + _ROWS_PER_PART if first else 0)
    return tuple(dict.fromkeys(one[1] for one in found)), rows


_FORMAT_BY_METHOD = (
    ("dpo", "preference-chat"), ("orpo", "preference-chat"), ("simpo", "preference-chat"), ("cpo", "preference-chat"),
    ("reward", "preference"), ("_rm", "preference"), ("grpo", "prompts"), ("rloo", "prompts"), ("ppo", "prompts"),
    ("sft", "messages"), ("pt", "text"), ("pretrain", "text"), ("clm", "text"),
)  # fmt: skip

_FORMAT_BY_RLHF_TYPE = {
    **dict.fromkeys(("dpo", "cpo", "orpo", "simpo", "rm"), "swift-preference"),
    "kto": "swift-labelled",
    **dict.fromkeys(("grpo", "ppo"), "swift-prompts"),
}
"""ms-swift's own row format for each algorithm."""


def _detect_format(run: Run, columns: tuple[str, ...], hub: bool) -> str | None:
    """The format by the framework's method; for the user's own script, by the columns that it names."""
    launch = run.launch
    program = (launch.program.string or "").rpartition("/")[2].lower() if launch is not None else ""
    if run.framework == "ms-swift":
        return _FORMAT_BY_RLHF_TYPE.get(run.arguments.get("rlhf_type").string or "", "messages")
    format_of_columns = format_from_columns(columns)
    by_trl = run.framework == "trl" or (hub and any(b"trl" in script.source.data for script in run.scripts))
    return (
        next((name for word, name in _FORMAT_BY_METHOD if word in program), format_of_columns)
        if by_trl
        else format_of_columns
    )


def _media_columns(run: Run, columns: tuple[str, ...]) -> tuple[str, ...]:
    """The image column that a program reads, if its launch names a folder of images."""
    has_folder = any(kind_of_option(name) == "media" for name in run.arguments.names())
    return tuple(name for name in columns if name in ("image", "images"))[:1] if has_folder else ()


def _llamafactory_data_sets(
    run: Run, named: NamedInput, folder: Path, options: PrepareOptions
) -> Iterator[RequiredInput]:
    """A dataset of LLaMA-Factory, according to its entry in ``dataset_info.json``."""
    directory = folder / (run.arguments.get("dataset_dir").string or "data")
    try:
        table = json.loads((directory / "dataset_info.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        table = {}
    for name in [part.strip() for part in (named.value or "").split(",") if part.strip()]:
        entry = table.get(name) if isinstance(table, dict) else None
        if not isinstance(entry, dict):
            yield RequiredInput(
                "data", name, named.place, None, "missing", why=_NO_ENTRY.format(name=name, folder=directory)
            )
            continue
        file = entry.get("file_name")
        hub = entry.get("hf_hub_url")
        spec = _columns_of_entry(entry)
        if isinstance(file, str) and not hub:
            path = os.path.normpath(directory / file)
            here = exists(Path(path))
            why = None if here else _GENERATED_ROWS.format(format=", ".join(spec))
            yield RequiredInput("data", str(directory / file), named.place, path, "here" if here else "can-be-made",
                         path if here else None, why, columns=spec)  # fmt: skip
        elif isinstance(hub, str):
            known = published_dataset(hub)
            columns = tuple(known.columns) if known is not None else spec
            why = (_GENERATED_ROWS_WITH_PUBLISHED_COLUMNS if known is not None else _GENERATED_ROWS).format(
                columns=", ".join(columns), format=", ".join(spec)
            )
            yield RequiredInput("data", hub, named.place, None, "can-be-made", why=why, columns=columns)


_NO_ENTRY = translated("{folder}/dataset_info.json has no entry {name}")


def _columns_of_entry(entry: dict[str, Any]) -> tuple[str, ...]:
    """The columns of an entry, each as ``name:kind``."""
    given = entry.get("columns") or {}
    tags = entry.get("tags") or {}
    if entry.get("formatting") == "sharegpt":
        kind = "chat" if tags.get("content_tag") == "content" else "turns"
        found = [f"{given.get('messages', 'conversations')}:{kind}"]
    else:
        found = [f"{given.get(role, usual)}:text" for role, usual in
                 (("prompt", "instruction"), ("query", "input"), ("response", "output"))
                 if not given or role in given]  # fmt: skip
    if entry.get("ranking"):
        found = [one for one in found if not one.startswith("output:")]
        found += [f"{given.get(side, side)}:{'turn' if entry.get('formatting') == 'sharegpt' else 'text'}"
                  for side in ("chosen", "rejected")]  # fmt: skip
    for role, kind in (("images", "images"), ("videos", "videos"), ("audios", "audios"), ("kto_tag", "flag"),
                       ("system", "text"), ("tools", "text")):  # fmt: skip
        if role in given:
            found.append(f"{given[role]}:{kind}")
    return tuple(found)

"""Names on the hub, offline: served from what ``gonogo prepare`` has generated; all others are recorded as missing.

The libraries' own loading code runs: it asks the hub client for a file, and receives the prepared one. Each name
served this way is an assumption of the rehearsal, since the real one may differ in what is not published here.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from gonogo.evidence.prepared import BUILDERS, PreparedStandIns, read_prepared
from gonogo.evidence.rehearsal.record import MissingInput
from gonogo.finding import translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.sandbox import questions
from gonogo.virtual.values.assumptions import Assume

_MODEL = translated(
    "the model {name} is a stand-in from gonogo prepare: the published configuration, and an untrained tokenizer of "
    "the same size"
)
_GENERATED_ROWS = translated(
    "the rows of the data set {name} are generated (gonogo prepare): their number, length and text are not "
    "those of the real one"
)

_WEIGHTS_FILE = "model.safetensors"
_MODEL_LIBRARIES = frozenset({"transformers", "diffusers", "peft", "sentence_transformers", "adapters", "tokenizers"})


def has_rows(folder: str) -> bool:
    """True if the folder (``""``: none) contains generated data."""
    table = read_prepared(Path(folder)) if folder else None
    return table is not None and bool(table.datasets or table.paths)


def has_inferred_shapes(folder: str) -> bool:
    """True if the folder (``""``: none) contains arrays or tables whose shape only the program's steps can confirm."""
    table = read_prepared(Path(folder)) if folder else None
    return table is not None and bool(table.shapes)


def install(
    folder: str, assume: Assume, missed: Callable[[MissingInput], None], weights: Callable[[str, str, str], str]
) -> Callable[[], None]:
    """Serve the names that the folder (``""``: none) contains; ``missed`` is called with all others.

    ``weights`` generates a model's weight file, given the model's name, its folder and the file's name; it returns
    the folder in which to look for the file.
    """
    table = read_prepared(Path(folder)) if folder else None
    names = PreparedNames(folder, table or PreparedStandIns(), assume, missed, weights)
    patches = Patches()
    for module, follow in (
        ("huggingface_hub.file_download", names.patch_file_downloads),
        ("huggingface_hub._snapshot_download", names.patch_snapshot_downloads),
        ("huggingface_hub.hf_api", functools.partial(questions.patch_hub_queries, names)),
        ("datasets.load", names.patch_datasets),
        ("modelscope.hub.snapshot_download", names.patch_snapshot_downloads),
        ("modelscope.msdatasets.ms_dataset", names.patch_modelscope),
    ):
        patches.on_undo(after_import(module, functools.partial(follow, patches)))
    return patches.undo


_PARQUET_OPTIONS = frozenset({"on_bad_files", "fragment_scan_options"})
"""Options of the Parquet reader, which don't apply to generated rows in JSON."""


class PreparedNames:
    """The hub names that are served from the prepared folder."""

    def __init__(
        self,
        folder: str,
        table: PreparedStandIns,
        assume: Assume,
        on_missing: Callable[[MissingInput], None],
        weights: Callable[[str, str, str], str],
    ) -> None:
        self.folder = folder
        self.table = table
        self.assume = assume
        self.missed = on_missing
        self.weights = weights
        self._heard: set[MissingInput] = set()
        self._assumed: set[tuple[str, str | None]] = set()

    def local_folder(self, name: Any, kind: str | None) -> str | None:
        """The folder that replaces a name on the hub, or None."""
        known = self.table.datasets if kind == "dataset" else self.table.models
        found = known.get(str(name).lower())
        if found is None:
            return None
        if (found, kind) not in self._assumed:
            self._assumed.add((found, kind))
            if kind == "dataset":
                guessed = str(name).lower() in {one.lower() for one in self.table.guessed}
                self.assume(_GENERATED_ROWS.format(name=str(name)), "guessed" if guessed else "generated")
            else:
                self.assume(_MODEL.format(name=str(name)))
        return os.path.join(self.folder, found)

    def note_missing(
        self, kind: str | None, name: Any, subset: Any = None, split: Any = None, files: Any = None
    ) -> None:
        """Record a missing name if it looks like one; for a local dataset folder, record the files expected in it."""
        text, within = str(name), tuple(_requested_files(files))
        is_name = text.count("/") < 2 and not text.startswith(("/", ".", "~"))
        if is_name or (within and kind == "dataset"):
            whole = text if is_name else os.path.abspath(text)
            one = MissingInput(
                "data" if kind == "dataset" else "model", whole, _string_or_none(subset), _string_or_none(split), within
            )
            if one not in self._heard:
                self._heard.add(one)
                self.missed(one)

    def patch_file_downloads(self, patches: Patches, module: ModuleType) -> None:
        """Patch ``hf_hub_download`` and ``try_to_load_from_cache`` for single files."""
        download: Any = vars(module)["hf_hub_download"]
        look: Any = vars(module).get("try_to_load_from_cache")
        nowhere = getattr(module, "_CACHED_NO_EXIST", None)

        @functools.wraps(download)
        def hf_hub_download(repo_id: Any = None, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
            kind = kwargs.get("repo_type")
            folder = self.local_folder(repo_id, kind)
            if folder is None:
                try:
                    return download(repo_id, filename, *args, **kwargs)
                except Exception as error:
                    single = not _is_called_by_model_library(sys._getframe(1))
                    self.note_missing(kind, repo_id, files=filename if single else None)
                    questions.attach_hub_request(error, str(repo_id), str(filename) if single else "")
                    raise
            path = self.local_file(repo_id, folder, kwargs.get("subfolder"), filename)
            if not os.path.exists(path):
                raise _entry_not_found_error(f"{filename} is not among what gonogo prepare made for {repo_id}")
            return _copy_into(path, kwargs.get("local_dir"), os.path.join(kwargs.get("subfolder") or "", filename))

        @functools.wraps(look)
        def try_to_load_from_cache(repo_id: Any = None, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
            folder = self.local_folder(repo_id, kwargs.get("repo_type"))
            if folder is None:
                return look(repo_id, filename, *args, **kwargs)
            path = self.local_file(repo_id, folder, None, filename)
            return path if os.path.exists(path) else nowhere

        patches.set(module, "hf_hub_download", hf_hub_download)
        if look is not None:  # huggingface_hub has it since 0.8
            patches.set(module, "try_to_load_from_cache", try_to_load_from_cache)

    def local_file(self, name: Any, folder: str, subfolder: Any, filename: Any) -> str:
        """The local path of a repository's file; a model's weights are generated first."""
        place = os.path.join(folder, subfolder or "")
        path = os.path.join(place, filename)
        if not os.path.exists(path):
            path = os.path.join(self.weights(str(name), place, str(filename)), filename)
        return path

    def patch_snapshot_downloads(self, patches: Patches, module: ModuleType) -> None:
        """Patch downloads of whole repositories: ``snapshot_download`` of the hub and of ModelScope, also for
        datasets."""
        for name, usual in (("snapshot_download", None), ("dataset_snapshot_download", "dataset")):
            original = vars(module).get(name)
            if original is not None:
                patches.set(module, name, self._wrap_snapshot_download(original, usual))

    def _wrap_snapshot_download(
        self, original: Callable[..., Any], default_repo_type: str | None
    ) -> Callable[..., Any]:
        @functools.wraps(original)
        def snapshot_download(*args: Any, **kwargs: Any) -> Any:
            named = (kwargs.get(key) for key in ("repo_id", "model_id", "dataset_id"))
            name = args[0] if args else next((one for one in named if one is not None), None)
            kind = default_repo_type or kwargs.get("repo_type")
            folder = self.local_folder(name, kind)
            if folder is not None:
                if kind != "dataset" and _matches_snapshot_patterns(_WEIGHTS_FILE, kwargs):
                    folder = self.weights(str(name), folder, _WEIGHTS_FILE)
                return _copy_into(folder, kwargs.get("local_dir"), "")
            try:
                return original(*args, **kwargs)
            except Exception as error:
                self.note_missing(kind, name)
                if kind is None or kind == "model":
                    questions.attach_hub_request(error, str(name), "")
                raise

        return snapshot_download

    def patch_datasets(self, patches: Patches, module: ModuleType) -> None:
        """Patch ``load_dataset`` and the other functions of the library that load a dataset by name."""
        factory, load = vars(module)["dataset_module_factory"], vars(module)["load_dataset"]

        @functools.wraps(factory)
        def dataset_module_factory(path: Any, *args: Any, **kwargs: Any) -> Any:
            made = path not in BUILDERS and not os.path.exists(str(path))
            folder = self.local_folder(path, "dataset") if made else None
            if folder is None:
                return factory(path, *args, **kwargs)
            for given in ("data_dir", "data_files"):
                if not _has_files(folder, kwargs.get(given)):
                    kwargs[given] = None
            return factory(folder, *args, **(kwargs | {"revision": None}))

        @functools.wraps(load)
        def load_dataset(path: Any, name: Any = None, *args: Any, **kwargs: Any) -> Any:
            generated = (
                path not in BUILDERS
                and not os.path.exists(str(path))
                and self.local_folder(path, "dataset") is not None
            )
            if generated:
                kwargs = {key: value for key, value in kwargs.items() if key not in _PARQUET_OPTIONS}
            try:
                return load(path, name, *args, **kwargs)
            except Exception:
                whole = _without_row_numbers(kwargs.get("split")) if generated else None
                if whole is not None:  # the real data set has as many rows as the slice asks for
                    return load(path, name, *args, **(kwargs | {"split": whole}))
                if not os.path.exists(str(path)) and path not in BUILDERS:
                    self.note_missing("dataset", path, name, kwargs.get("split"), kwargs.get("data_files"))
                raise

        patches.set(module, "dataset_module_factory", dataset_module_factory)
        patches.set(module, "load_dataset", load_dataset)

    def patch_modelscope(self, patches: Patches, module: ModuleType) -> None:
        """Patch ModelScope's loading of datasets."""
        owner = module.MsDataset
        original = owner.load

        @functools.wraps(original)
        def load(dataset_name: Any, *args: Any, **kwargs: Any) -> Any:
            folder = self.local_folder(dataset_name, "dataset") if isinstance(dataset_name, str) else None
            if folder is not None:
                library: Any = importlib.import_module("datasets")
                return library.load_dataset(folder, kwargs.get("subset_name"), split=kwargs.get("split"))
            try:
                return original(dataset_name, *args, **kwargs)
            except Exception:
                self.note_missing("dataset", dataset_name, kwargs.get("subset_name"), kwargs.get("split"))
                raise

        patches.set(owner, "load", staticmethod(load))


def _is_called_by_model_library(frame: FrameType | None) -> bool:
    """True if the request comes from a library that loads whole models, and so will request their other files as
    well."""
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "huggingface_hub":
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return name.partition(".")[0] in _MODEL_LIBRARIES


def _matches_snapshot_patterns(file: str, kwargs: dict[str, Any]) -> bool:
    """True if a snapshot with these patterns includes the file."""
    allowed, ignored = kwargs.get("allow_patterns"), kwargs.get("ignore_patterns")
    return (allowed is None or any(fnmatch.fnmatch(file, one) for one in _requested_files(allowed))) and not any(
        fnmatch.fnmatch(file, one) for one in _requested_files(ignored)
    )


_ROW_NUMBERS_PATTERN = re.compile(r"\[(?:-?[\d_]+:(?:-?[\d_]+)?|:-?[\d_]+)\]")


def _without_row_numbers(split: Any) -> Any:
    """The splits without slices by numbers of rows, such as ``train[:-100000]``; None if there is none."""
    if isinstance(split, list):
        found = [_without_row_numbers(one) for one in split]
        return None if not any(found) else [new or old for new, old in zip(found, split, strict=True)]
    whole = _ROW_NUMBERS_PATTERN.sub("", split) if isinstance(split, str) else split
    return None if whole == split else whole


def _string_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _requested_files(files: Any) -> Iterator[str]:
    """The file names that a program passes, flattened from a string, list or dict."""
    if isinstance(files, str):
        yield files
    elif isinstance(files, (dict, list, tuple)):
        for one in files.values() if isinstance(files, dict) else files:
            yield from _requested_files(one)


def _has_files(folder: str, files: Any) -> bool:
    """True if all files that a program names are in the folder."""
    named = list(_requested_files(files))
    return bool(named) and all(os.path.exists(os.path.join(folder, one)) for one in named)


def _copy_into(source: str, local_dir: Any, subfolder: str) -> str:
    """The path itself, or its copy at ``subfolder`` in ``local_dir`` if that is given."""
    if local_dir is None:
        return source
    target = os.path.join(os.fspath(local_dir), subfolder)
    if os.path.isdir(source):
        shutil.copytree(source, target, dirs_exist_ok=True)
        return os.path.normpath(target)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    return str(shutil.copyfile(source, target))


def _entry_not_found_error(message: str) -> Exception:
    """The hub's own error for a file that a repository doesn't have."""
    library: Any = importlib.import_module("huggingface_hub.utils")
    error: Exception = library.EntryNotFoundError(message)
    return error

"""Writers and readers that bypass Python's ``open``: the path that they are given is mapped on the way in.

To add one: a line in :data:`_ENTRIES`. A package is touched only when the program imports it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, NamedTuple

from gonogo.virtual.hooks.after_import import after_import
from gonogo.virtual.hooks.patching import Patches
from gonogo.virtual.sandbox.overlay import Overlay


class _Entry(NamedTuple):
    module: str
    name: str
    """Function, or Class.method."""
    position: int
    """Of the path among the arguments, ``self`` counted."""
    keyword: str
    use: Literal["read", "write", "mode"] = "read"
    """``mode``: the following argument (or ``mode=``) says which, as ``open`` does."""


_ENTRIES = (
    _Entry("tokenizers", "Tokenizer.save", 1, "path", "write"),
    _Entry("tokenizers", "Tokenizer.from_file", 0, "path"),
    *(_Entry("tokenizers.models", f"{kind}.save", 1, "folder", "write") for kind in (
        "Model", "BPE", "Unigram", "WordLevel", "WordPiece")),
    *(_Entry("tokenizers.models", f"{kind}.{name}", 0, "vocab") for kind in ("BPE", "WordLevel", "WordPiece")
      for name in ("from_file", "read_file")),
    *(_Entry("tokenizers.models", f"BPE.{name}", 1, "merges") for name in ("from_file", "read_file")),
    _Entry("sentencepiece", "SentencePieceProcessor.LoadFromFile", 1, "arg"),
    _Entry("pyarrow", "OSFile", 0, "path", "mode"),
    _Entry("pyarrow", "memory_map", 0, "path", "mode"),
    _Entry("pyarrow", "create_memory_map", 0, "path", "write"),
    _Entry("pyarrow", "input_stream", 0, "source"),
    _Entry("pyarrow", "output_stream", 0, "source", "write"),
    _Entry("pyarrow.parquet", "ParquetWriter.__init__", 1, "where", "write"),
    _Entry("pyarrow.parquet", "ParquetFile.__init__", 1, "source"),
    _Entry("pyarrow.parquet", "write_table", 1, "where", "write"),
    _Entry("pyarrow.parquet", "read_table", 0, "source"),
    _Entry("pyarrow.csv", "write_csv", 1, "output_file", "write"),
    _Entry("pyarrow.csv", "read_csv", 0, "input_file"),
    _Entry("pyarrow.json", "read_json", 0, "input_file"),
    _Entry("pyarrow.feather", "write_feather", 1, "dest", "write"),
    _Entry("pyarrow.feather", "read_table", 0, "source"),
    _Entry("torch.jit", "save", 1, "f", "write"),
    _Entry("torch.jit", "load", 0, "f"),
    _Entry("torch", "from_file", 0, "filename"),
    _Entry("torch", "UntypedStorage.from_file", 0, "filename"),
    _Entry("torch", "_C.PyTorchFileReader", 0, "name"),
    _Entry("torch", "_C.PyTorchFileWriter", 0, "name", "write"),
    _Entry("torch.autograd.profiler", "profile.export_chrome_trace", 1, "path", "write"),
    _Entry("sqlite3", "connect", 0, "database", "write"),
    _Entry("sqlite3.dbapi2", "connect", 0, "database", "write"),
    _Entry("h5py", "File.__init__", 1, "name", "mode"),
    _Entry("lmdb", "open", 0, "path", "write"),
    _Entry("cv2", "imwrite", 0, "filename", "write"),
    _Entry("cv2", "imread", 0, "filename"),
    _Entry("cv2", "VideoWriter", 0, "filename", "write"),
    _Entry("soundfile", "SoundFile.__init__", 1, "file", "mode"),
    _Entry("faiss", "write_index", 1, "fname", "write"),
    _Entry("faiss", "read_index", 0, "fname"),
)  # fmt: skip


def map_native_writers(patches: Patches, overlay: Overlay) -> None:
    """Map the paths of the known native readers and writers, each when its package is imported."""
    by_module: dict[str, list[_Entry]] = {}
    for entry in _ENTRIES:
        by_module.setdefault(entry.module, []).append(entry)
    for module, entries in by_module.items():
        patches.on_undo(after_import(module, functools.partial(_map_module, patches, overlay, entries)))


def _map_module(patches: Patches, overlay: Overlay, entries: list[_Entry], module: ModuleType) -> None:
    for entry in entries:
        owner: Any = module
        *path, name = entry.name.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        function = getattr(owner, name, None)
        if function is None:
            continue
        mapped = _mapped(function, entry, overlay)
        is_static = isinstance(owner, type) and not _takes_self(owner, name)
        patches.set(owner, name, staticmethod(mapped) if is_static else mapped)


def _takes_self(owner: type, name: str) -> bool:
    """Whether a class's attribute is a method: static and class methods look like functions when asked of the class."""
    raw = next(vars(base)[name] for base in owner.__mro__ if name in vars(base))
    return not isinstance(raw, staticmethod | classmethod) and type(raw).__name__ != "classmethod_descriptor"


def _mapped(function: Callable[..., Any], entry: _Entry, overlay: Overlay) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > entry.position:
            changed = list(args)
            changed[entry.position] = _map_path(overlay, entry, args[entry.position], args, kwargs)
            return function(*changed, **kwargs)
        if entry.keyword in kwargs:
            kwargs[entry.keyword] = _map_path(overlay, entry, kwargs[entry.keyword], args, kwargs)
        return function(*args, **kwargs)

    if isinstance(function, type):
        return _ClassMeta(function.__name__, (), {"_made": function, "_call": staticmethod(call)})
    try:
        return functools.wraps(function)(call)
    except (AttributeError, TypeError):
        return call


class _ClassMeta(type):
    """Stands for a class that can't be changed: makes its instances with a mapped path, and tells them by type."""

    _made: type
    _call: Callable[..., Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._call(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls._made)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls._made)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._made, name)


def _map_path(overlay: Overlay, entry: _Entry, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not isinstance(path, str | os.PathLike) or str(path) in ("", ":memory:") or str(path).startswith("file:"):
        return path
    use = entry.use
    if use == "mode":
        following = args[entry.position + 1] if len(args) > entry.position + 1 else kwargs.get("mode", "r")
        use = "write" if any(letter in str(following) for letter in "wax+") else "read"
    return overlay.real(path, write=use == "write")

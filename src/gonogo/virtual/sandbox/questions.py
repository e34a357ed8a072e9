"""Queries about a repository on the hub: whether it exists, its files, its metadata.

For a prepared name they are answered from its folder. Some releases query each name that they load (transformers
4.57.3 checks whether a tokenizer is that of a Mistral model), so a rehearsal with only the files would fail there.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Protocol

from gonogo.finding import translated
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

_LOCAL_FOLDER_ASSUMPTION = translated("the hub has no repository {name}: that is a folder on this machine")
_WEIGHTS_FILE = "model.safetensors"
_PLACEHOLDER_COMMIT = "0" * 40
"""The commit hash of generated repositories."""


class _ServedNames(Protocol):
    """The names that are served (``prepared.PreparedNames``)."""

    assume: Assume

    def local_folder(self, name: Any, kind: str | None) -> str | None: ...

    def local_file(self, name: Any, folder: str, subfolder: Any, filename: Any) -> str: ...

    def note_missing(self, kind: str | None, name: Any) -> None: ...


def patch_hub_queries(names: _ServedNames, patches: Patches, module: ModuleType) -> None:
    """Answer queries about prepared names; all others go to the hub client, and are recorded if they fail."""
    answers: dict[str, Callable[..., Any]] = {
        "file_exists": lambda folder, name, kind, filename, **_: os.path.exists(
            names.local_file(name, folder, None, filename)
        ),
        "repo_exists": lambda *_, **__: True,
        "revision_exists": lambda *_, **__: True,
        "auth_check": lambda *_, **__: None,
        "list_repo_files": lambda folder, name, kind, *_, **__: list(list_repository_files(folder, kind)),
        "list_repo_tree": functools.partial(_list_repo_tree, module),
        "get_paths_info": functools.partial(_paths_info, module),
        "model_info": functools.partial(_repository_info, module),
        "dataset_info": functools.partial(_repository_info, module),
        "repo_info": functools.partial(_repository_info, module),
    }
    for name, answer in answers.items():
        original = getattr(module.HfApi, name, None)
        if original is not None:
            method = _wrap_method(names, original, answer)
            patches.set(module.HfApi, name, method)
            if hasattr(module, name):  # the bound method of the module's own HfApi, created at import
                patches.set(module, name, method.__get__(module.api))


def _wrap_method(names: _ServedNames, original: Any, answer: Callable[..., Any]) -> Any:
    usual = "dataset" if original.__name__ == "dataset_info" else None

    @functools.wraps(original)
    def answer_or_ask_hub(api: Any, repo_id: Any, *args: Any, **kwargs: Any) -> Any:
        kind = usual or kwargs.pop("repo_type", None)
        folder = names.local_folder(repo_id, kind)
        if folder is not None:
            return answer(folder, str(repo_id), kind, *args, **kwargs)
        if kind is not None and not usual:
            kwargs["repo_type"] = kind
        if original.__name__ == "file_exists" and os.path.isdir(str(repo_id)):
            names.assume(_LOCAL_FOLDER_ASSUMPTION.format(name=str(repo_id)))
            return False
        try:
            return original(api, repo_id, *args, **kwargs)
        except Exception as error:
            names.note_missing(kind, repo_id)
            if kind is None or kind == "model":
                attach_hub_request(error, str(repo_id), "")
            raise

    return answer_or_ask_hub


def attach_hub_request(error: BaseException, name: str, file: str) -> None:
    """Attach to an exception the repository and file that were missing; ``""`` means all its files."""
    error.gonogo_asked = (name, file)  # type: ignore[attr-defined]


def attached_hub_request(error: BaseException) -> tuple[str, str] | None:
    """The repository and file that were missing, or None if unknown."""
    found: tuple[str, str] | None = getattr(error, "gonogo_asked", None)
    return found


def list_repository_files(folder: str, kind: str | None) -> Iterator[str]:
    """The paths of a repository's files, including a model's weights, which are generated when they are read."""
    found = set() if kind == "dataset" else {_WEIGHTS_FILE}
    for parent, _, names in os.walk(folder):
        found.update(os.path.relpath(os.path.join(parent, name), folder) for name in names)
    yield from sorted(found)


def _repository_info(module: Any, folder: str, name: str, kind: str | None, *args: Any, **kwargs: Any) -> Any:
    """A repository's metadata. Tags that describe its origin are unknown and left out."""
    of_data = kind == "dataset"
    make = module.DatasetInfo if of_data else module.ModelInfo
    return make(
        id=name,
        modelId=name,
        author=name.partition("/")[0],
        sha=_PLACEHOLDER_COMMIT,
        private=False,
        gated=False,
        disabled=False,
        downloads=0,
        likes=0,
        tags=[] if of_data else ["transformers", "safetensors"],
        siblings=[{"rfilename": file} for file in list_repository_files(folder, kind)],
    )


def _list_repo_tree(
    module: Any, folder: str, name: str, kind: str | None, path_in_repo: Any = None, **kwargs: Any
) -> Any:
    """Files and folders below a path; only its direct children unless ``recursive``."""
    below = f"{str(path_in_repo).strip('/')}/" if path_in_repo else ""
    folders: set[str] = set()
    for file in list_repository_files(folder, kind):
        if not file.startswith(below):
            continue
        parts = file.removeprefix(below).split("/")
        for depth in range(1, len(parts)):
            within = below + "/".join(parts[:depth])
            if within not in folders and (depth == 1 or kwargs.get("recursive")):
                folders.add(within)
                yield module.RepoFolder(path=within, oid=_PLACEHOLDER_COMMIT, tree_id=_PLACEHOLDER_COMMIT)
        if len(parts) == 1 or kwargs.get("recursive"):
            yield _repo_file(module, folder, file)


def _paths_info(module: Any, folder: str, name: str, kind: str | None, paths: Any, **kwargs: Any) -> list[Any]:
    wanted = [paths] if isinstance(paths, str) else list(paths)
    return [one for one in _list_repo_tree(module, folder, name, kind, recursive=True) if one.path in wanted]


def _repo_file(module: Any, folder: str, file: str) -> Any:
    path = os.path.join(folder, file)
    return module.RepoFile(
        path=file, size=os.path.getsize(path) if os.path.exists(path) else 0, oid=_PLACEHOLDER_COMMIT
    )

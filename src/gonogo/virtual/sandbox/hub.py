"""Uploads to the Hugging Face hub: they appear to succeed, and nothing is sent.

A training machine may well have a network and a token; a rehearsal has neither, and must not push.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import Any

from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches

HUB_UPLOAD_ASSUMPTION = "the hub was sent to: in the rehearsal nothing is, and it succeeds"
_ENDPOINT = "https://huggingface.co"
_COMMIT_METHODS = ("upload_file", "upload_folder", "create_commit")
_NO_RESULT_METHODS = (
    "upload_large_folder", "create_branch", "create_tag", "delete_branch", "delete_file", "delete_folder", "delete_tag",
    "update_repo_settings", "update_repo_visibility", "add_space_secret", "super_squash_history", "merge_pull_request",
)  # fmt: skip
_REPO_TYPE_PREFIXES = {"dataset": "datasets/", "space": "spaces/"}


def install(note: Callable[[str], None]) -> Callable[[], None]:
    """Make uploads succeed without sending anything, and report them to ``note``. Returns the undo."""
    patches = Patches()
    patches.on_undo(after_import("huggingface_hub.hf_api", lambda module: _patch_hub_functions(patches, module, note)))
    return patches.undo


def _patch_hub_functions(patches: Patches, module: ModuleType, note: Callable[[str], None]) -> None:
    answers: dict[str, Callable[..., Any]] = {
        "create_repo": functools.partial(_repo_url, module),
        "whoami": lambda *args, **kwargs: {"type": "user", "name": "user", "orgs": [], "auth": {}},
        **dict.fromkeys(_COMMIT_METHODS, functools.partial(_commit_info, module)),
        **dict.fromkeys(_NO_RESULT_METHODS, lambda *args, **kwargs: None),
    }
    for name, answer in answers.items():
        original = getattr(module.HfApi, name, None)
        if original is not None:
            method = _wrap_method(original, answer, note)
            patches.set(module.HfApi, name, method)
            if hasattr(module, name):  # the bound method of the module's own HfApi, created at import
                patches.set(module, name, method.__get__(module.api))


def _wrap_method(original: Any, answer: Callable[..., Any], note: Callable[[str], None]) -> Any:
    @functools.wraps(original)
    def answer_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        if original.__name__ != "whoami":
            note(HUB_UPLOAD_ASSUMPTION)
        result = answer(*args, **kwargs)
        if not kwargs.get("run_as_future"):
            return result
        future: Future[Any] = Future()
        future.set_result(result)
        return future

    return answer_request


def _repo_url(module: Any, repo_id: str, *args: Any, repo_type: str | None = None, **kwargs: Any) -> Any:
    owned = repo_id if "/" in repo_id else f"user/{repo_id}"
    return module.RepoUrl(f"{_ENDPOINT}/{_REPO_TYPE_PREFIXES.get(repo_type or '', '')}{owned}")


def _commit_info(module: Any, *args: Any, repo_id: str = "user/model", **kwargs: Any) -> Any:
    message = kwargs.get("commit_message") or "Upload"
    url = f"{_ENDPOINT}/{repo_id}/commit/{'0' * 40}"
    return module.CommitInfo(commit_url=url, commit_message=message, commit_description="", oid="0" * 40)

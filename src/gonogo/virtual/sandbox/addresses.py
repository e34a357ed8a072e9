"""Data files at web addresses, offline: what ``gonogo prepare`` has generated is what the program reads there.

Covers the ways in which programs fetch a file: fsspec, urllib, requests. Only data files are handled, recognized by
their suffix, not responses of a service, nor weights.
"""

from __future__ import annotations

import functools
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gonogo.evidence.prepared import PreparedStandIns, is_data_file_url, read_prepared
from gonogo.evidence.rehearsal.record import MissingInput
from gonogo.finding import translated
from gonogo.virtual.patching.after_import import after_import
from gonogo.virtual.patching.patches import Patches
from gonogo.virtual.values.assumptions import Assume

_GENERATED_DOWNLOAD_ASSUMPTION = translated(
    "the content of {address} is generated (gonogo prepare): its length and format are not those of the real file"
)


def install(folder: str, assume: Assume, missed: Callable[[MissingInput], None]) -> Callable[[], None]:
    """Serve the addresses for which the folder (``""``: none) has a file; ``missed`` is called with all others."""
    files = _AddressFiles(
        folder, (read_prepared(Path(folder)) if folder else None) or PreparedStandIns(), assume, missed
    )
    patches = Patches()
    for module, follow in (
        ("fsspec.core", files.patch_fsspec),
        ("urllib.request", files.patch_urllib),
        ("requests.sessions", files.patch_requests),
    ):
        patches.on_undo(after_import(module, functools.partial(follow, patches)))
    return patches.undo


class _AddressFiles:
    """The addresses that are served, and those that are missing."""

    def __init__(
        self, folder: str, table: PreparedStandIns, assume: Assume, missed: Callable[[MissingInput], None]
    ) -> None:
        self.folder = folder
        self.table = table
        self.assume = assume
        self.missed = missed
        self._heard: set[str] = set()

    def local_path(self, address: Any) -> str | None:
        """The file that replaces an address, or None."""
        if not isinstance(address, str) or not is_data_file_url(address):
            return None
        found = self.table.addresses.get(address)
        if address not in self._heard:
            self._heard.add(address)
            if found is None:
                self.missed(MissingInput("data", address))
            else:
                self.assume(_GENERATED_DOWNLOAD_ASSUMPTION.format(address=address), "generated")
        return None if found is None else os.path.join(self.folder, found)

    def patch_fsspec(self, patches: Patches, module: ModuleType) -> None:
        """Make ``fsspec.open`` and the other functions that resolve an address use the local file."""
        for name in ("open_files", "url_to_fs", "get_fs_token_paths"):
            original = vars(module).get(name)
            if original is not None:
                patches.replace_everywhere([(original, self._with_local_files(original))])

    def _with_local_files(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call_with_local_files(*args: Any, **kwargs: Any) -> Any:
            args = (*(self._replace_addresses(one) for one in args[:1]), *args[1:])
            kwargs |= {key: self._replace_addresses(one) for key, one in kwargs.items() if key in ("urlpath", "url")}
            return original(*args, **kwargs)

        return call_with_local_files

    def _replace_addresses(self, address: Any) -> Any:
        """Replace one or several addresses by their local files, if there are any."""
        if isinstance(address, (list, tuple)):
            return type(address)(self._replace_addresses(one) for one in address)
        return self.local_path(address) or address

    def patch_urllib(self, patches: Patches, module: ModuleType) -> None:
        """Patch ``urlopen`` and ``urlretrieve``, with an address or a ``Request``."""
        opens, retrieves = module.urlopen, module.urlretrieve

        @functools.wraps(opens)
        def urlopen(url: Any, *args: Any, **kwargs: Any) -> Any:
            path = self.local_path(getattr(url, "full_url", url))
            return opens(url if path is None else Path(path).as_uri(), *args, **kwargs)

        @functools.wraps(retrieves)
        def urlretrieve(url: Any, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
            path = self.local_path(url)
            if path is None:
                return retrieves(url, filename, *args, **kwargs)
            if filename is None:
                return retrieves(Path(path).as_uri(), None, *args, **kwargs)
            shutil.copyfile(path, filename)
            return filename, {}

        patches.replace_everywhere([(opens, urlopen), (retrieves, urlretrieve)])

    def patch_requests(self, patches: Patches, module: ModuleType) -> None:
        """Patch ``requests.get`` to return a ``Response`` whose body is the file."""
        original_request = module.Session.request

        @functools.wraps(original_request)
        def request(session: Any, method: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            path = self.local_path(url) if str(method).upper() == "GET" and not kwargs.get("params") else None
            if path is None:
                return original_request(session, method, url, *args, **kwargs)
            answer = module.Response()
            content = Path(path).read_bytes()
            answer.status_code, answer.reason, answer.url, answer.raw = 200, "OK", url, io.BytesIO(content)
            answer.encoding = "utf-8"
            answer.headers["Content-Length"] = str(len(content))
            answer.request = module.Request("GET", url).prepare()
            return answer

        patches.set(module.Session, "request", request)

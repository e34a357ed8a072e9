"""The interpreter that runs gonogo as evidence and, with ``deep``, the machine.

Package versions are taken from the names of ``.dist-info`` folders, in a tenth of the time of ``importlib.metadata``.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from gonogo.evidence.environment.environment import Environment, Package
from gonogo.evidence.environment.package_name import canonical_package_name
from gonogo.evidence.environment.versions.listing import cuda_version_of_tag
from gonogo.evidence.field import Field
from gonogo.evidence.private import redact_private
from gonogo.finding import Text


def inspect_this_machine(deep: bool = False) -> Environment:
    """The running Python and its packages; with ``deep`` also compilers, driver, memory, variables …"""
    packages: dict[str, Package] = {}
    torch_folder = None
    for folder in sys.path:
        for name, found_version in installed_distributions(folder or "."):
            if name not in packages:
                packages[name] = Package(
                    name, f"=={found_version}" if found_version else "", source=interpreter_description()
                )
                if name == "torch":
                    torch_folder = os.path.join(folder or ".", "torch")
    torch = torch_build_info(torch_folder) if torch_folder is not None else {}
    facts: dict[str, Any] = {"python": Field(platform.python_version())}
    if torch:
        facts["cuda"] = Field(torch["cuda"]) if torch.get("cuda") else Field.missing()
    elif "torch" in packages and (version := packages["torch"].version) is not None and version.local:
        cuda = cuda_version_of_tag(version.local)
        facts["cuda"] = Field(cuda) if cuda else Field.missing()
    nccl = next((package for name, package in packages.items() if name.startswith("nvidia-nccl-cu")), None)
    if nccl is not None and nccl.version_text:
        facts["nccl"] = Field(nccl.version_text)
    if deep:
        from gonogo.evidence.environment.machine import machine_facts

        facts.update(machine_facts(packages))
    return Environment(packages=packages, sources=(interpreter_description(),), complete=True, torch=torch, **facts)


@cache
def interpreter_description() -> Text:
    """How reports name the running Python as the source of a version."""
    where = redact_private(sys.executable or "python")
    return Text(f"this Python ({where})", f"当前 Python（{where}）")


def installed_distributions(folder: str) -> Iterator[tuple[str, str]]:
    """The canonical name and the version of each distribution in a folder of ``sys.path``."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return
    for entry in entries:
        stem, _, kind = entry.rpartition(".")
        if kind == "dist-info":
            name, _, version = stem.partition("-")
            yield canonical_package_name(name), version
        elif kind == "egg-info":
            name, _, version = stem.partition("-")
            version = re.sub(r"-py\d[\d.]*(?:-.*)?$", "", version) or _version_in(os.path.join(folder, entry))
            yield canonical_package_name(name), version


def _version_in(path: str) -> str:
    for candidate in (os.path.join(path, "PKG-INFO"), path):
        try:
            with open(candidate, encoding="utf-8", errors="replace") as file:
                match = re.search(r"^Version:[ \t]*(\S+)", file.read(20_000), re.MULTILINE)
        except OSError:
            continue
        return match[1] if match else ""
    return ""


def torch_build_info(folder: str) -> dict[str, Any]:
    """torch's build by ``torch/version.py``: ``cuda``, ``hip``, ``git``, ``debug``. torch is not imported."""
    try:
        with open(os.path.join(folder, "version.py"), encoding="utf-8", errors="replace") as file:
            text = file.read(20_000)
    except OSError:
        return {}
    found: dict[str, Any] = {}
    for name, key in (("cuda", "cuda"), ("hip", "hip"), ("git_version", "git"), ("debug", "debug")):
        match = re.search(rf"^{name}\s*(?::[^=\n]+)?=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(None|True|False))", text, re.M)
        if match is not None:
            word = match[3]
            found[key] = {"None": None, "True": True, "False": False}[word] if word else (match[1] or match[2] or "")
    return found

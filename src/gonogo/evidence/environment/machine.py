"""The local machine: accelerators and drivers, compilers, memory, disks, limits. Nothing is imported or changed.

External programs (``nvidia-smi``, ``nvcc``, ``gcc``) have a timeout of a few seconds; facts from a program that hangs
or prints nothing are unknown.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

from gonogo.evidence.environment.environment import Gpu, Package
from gonogo.evidence.field import Field
from gonogo.evidence.private import recorded_variables, redact_private
from gonogo.finding import Text, translated

_PROGRAM_TIMEOUT_SECONDS = 8.0
"""Seconds until a program times out; nvidia-smi is slow on machines with eight GPUs and no persistence mode."""
_PROGRAM_TIMED_OUT = translated("{program} did not answer within {seconds:.0f} s")
_NO_VERSION_PRINTED = translated("{program} printed no version")


def machine_facts(packages: Mapping[str, Package]) -> dict[str, Any]:
    """The fields of an :class:`Environment` other than packages, by name."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        accelerators = pool.submit(_accelerators)
        toolkit = pool.submit(_toolkit_version)
        gcc = pool.submit(_version_from_output, ("gcc", "-dumpfullversion", "-dumpversion"), r"(\d+(?:\.\d+)*)")
        gxx = pool.submit(_version_from_output, ("g++", "-dumpfullversion", "-dumpversion"), r"(\d+(?:\.\d+)*)")
        gpus, known, driver = accelerators.result()
        facts: dict[str, Any] = {
            "gpus": gpus,
            "gpus_known": known,
            "driver": driver,
            "toolkit": toolkit.result(),
            "gcc": gcc.result(),
            "gxx": gxx.result(),
        }
    ninja = shutil.which("ninja")
    facts["ninja"] = Field(redact_private(ninja)) if ninja else Field.missing()
    facts["python_headers"] = _read_first_existing_path(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
    facts["libaio"] = _read_first_existing_path(
        "/usr/include/libaio.h",
        "/usr/lib/x86_64-linux-gnu/libaio.so",
        "/usr/lib64/libaio.so",
        "/usr/lib/aarch64-linux-gnu/libaio.so",
        *(f"{prefix}/include/libaio.h" for prefix in (os.environ.get("CONDA_PREFIX"),) if prefix),
    )
    facts["cpus"] = Field(len(os.sched_getaffinity(0)))
    facts["platform"] = Field(_platform_description())
    facts["cann"] = _cann_version()
    facts.update(_memory_facts())
    facts.update(_free_disk_space())
    facts.update(_resource_limits())
    facts["extension_lock"] = _stale_extension_lock()
    facts["variables"] = {name: Field(value) for name, value in recorded_variables(os.environ)}
    facts["variables_known"] = True
    return facts


def _run_program(words: Sequence[str]) -> tuple[str | None, Text | None]:
    """The output of a program; None if it doesn't exist (no reason given) or fails (with the reason)."""
    program = shutil.which(words[0])
    if program is None:
        return None, None
    try:
        done = subprocess.run(
            [program, *words[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PROGRAM_TIMEOUT_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return None, _PROGRAM_TIMED_OUT.format(program=words[0], seconds=_PROGRAM_TIMEOUT_SECONDS)
    except OSError as error:
        return None, Text(f"{words[0]}: {error.strerror}", f"{words[0]}：{error.strerror}")
    text = done.stdout.decode("utf-8", "replace")
    if done.returncode != 0:
        first = redact_private(next((line.strip() for line in text.splitlines() if line.strip()), ""))[:200]
        return None, Text(f"{words[0]} failed: {first}", f"{words[0]} 执行失败：{first}")
    return text, None


def _version_from_output(words: Sequence[str], pattern: str) -> Field:
    text, reason = _run_program(words)
    if text is None:
        return Field.not_known(reason=reason) if reason is not None else Field.missing()
    match = re.search(pattern, text)
    return Field(match[1]) if match else Field.not_known(reason=_NO_VERSION_PRINTED.format(program=words[0]))


def _toolkit_version() -> Field:
    pattern = r"release (\d+\.\d+)"
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home and os.access(os.path.join(home, "bin", "nvcc"), os.X_OK):
            return _version_from_output((os.path.join(home, "bin", "nvcc"), "--version"), pattern)
    if shutil.which("nvcc"):
        return _version_from_output(("nvcc", "--version"), pattern)
    return _version_from_output(("/usr/local/cuda/bin/nvcc", "--version"), pattern)


def _accelerators() -> tuple[tuple[Gpu, ...], bool, Field]:
    """The accelerators, whether they are complete, and the driver version."""
    text, reason = _run_program(
        ("nvidia-smi", "--query-gpu=name,memory.total,compute_cap,driver_version", "--format=csv,noheader,nounits")
    )
    if text is None and reason is not None and "compute_cap" in reason.en:  # drivers before 470 don't have it
        text, reason = _run_program(
            ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
        )
    if text is not None:
        gpus, driver = parse_nvidia_smi(text)
        return gpus, True, Field(driver) if driver else _kernel_driver_version()
    driver_field = _kernel_driver_version()
    if driver_field.known or reason is not None:
        return (), False, driver_field if driver_field.known else Field.not_known(reason=reason)
    npus, npu_reason = _run_program(("npu-smi", "info"))
    if npus is not None:
        return parse_npu_smi(npus), True, Field.missing()
    return (), npu_reason is None, Field.missing()


def parse_nvidia_smi(text: str) -> tuple[tuple[Gpu, ...], str | None]:
    """The accelerators and the driver in the output of ``nvidia-smi --query-gpu=… --format=csv,noheader,nounits``."""
    gpus, driver = [], None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 3 or not cells[0]:
            continue
        memory = int(cells[1]) << 20 if cells[1].isdecimal() else None
        capability = re.fullmatch(r"(\d+)\.(\d+)", cells[2]) if len(cells) > 3 else None
        gpus.append(Gpu(cells[0], memory, (int(capability[1]), int(capability[2])) if capability else None))
        driver = driver or (cells[-1] if re.fullmatch(r"\d+\.\d+(?:\.\d+)?", cells[-1]) else None)
    return tuple(gpus), driver


def parse_npu_smi(text: str) -> tuple[Gpu, ...]:
    """The accelerators in the table of ``npu-smi info``: one row has the name, the next one the memory in MB."""
    found = []
    rows = text.splitlines()
    for row, below in pairwise(rows):
        name = re.match(r"\|\s*\d+\s+((?:Ascend)?\s?\d{3}\w*)\s*\|", row)
        if name is None:
            continue
        largest = max((int(size) for size in re.findall(r"/\s*(\d+)", below)), default=0)
        text_name = name[1].strip()
        full = text_name if text_name.startswith("Ascend") else f"Ascend{text_name}"
        found.append(Gpu(full, largest << 20 if largest else None))
    return tuple(found)


def _kernel_driver_version() -> Field:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Field.missing()
    match = re.search(r"Kernel Module\D*?\s(\d{3}\.\d+(?:\.\d+)?)\s", text)
    return Field(match[1]) if match else Field.not_known()


def _cann_version() -> Field:
    for home in (
        os.environ.get("ASCEND_HOME_PATH"),
        os.environ.get("ASCEND_TOOLKIT_HOME"),
        "/usr/local/Ascend/ascend-toolkit/latest",
    ):
        for name in ("version.cfg", "compiler/version.info", "toolkit/version.info", "runtime/version.info"):
            try:
                text = Path(home or "/nonexistent", name).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            match = re.search(r"(?:Version|version)\D{0,40}?(\d+\.\d+[\w.]*)", text)
            if match is not None:
                return Field(match[1])
    return Field.missing()


def _read_first_existing_path(*paths: str) -> Field:
    found = next((path for path in paths if os.path.exists(path)), None)
    return Field(redact_private(found)) if found else Field.missing()


def _platform_description() -> str:
    name = ""
    try:
        fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', Path("/etc/os-release").read_text(encoding="utf-8"), re.M))
        name = fields.get("PRETTY_NAME", "")
    except (OSError, UnicodeDecodeError):
        pass
    libc = " ".join(part for part in platform.libc_ver() if part)
    return ", ".join(part for part in (name, f"Linux {platform.release()}", platform.machine(), libc) if part)


def _memory_facts() -> dict[str, Field]:
    """The machine's memory in bytes, limited by its cgroup."""
    found: dict[str, int] = {}
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace")
        found = {name: int(size) << 10 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    except OSError:
        pass
    total, available = found.get("MemTotal"), found.get("MemAvailable")
    limit, used = _cgroup_memory()
    if limit is not None and (total is None or limit < total):
        total = limit
        if used is not None:
            available = min(limit - used, limit if available is None else available)
    facts = {}
    if total is not None:
        facts["host_memory"] = Field(total)
    if available is not None:
        facts["host_memory_available"] = Field(max(available, 0))
    return facts


def _cgroup_memory() -> tuple[int | None, int | None]:
    """The memory limit and usage of the cgroup, version 1 or 2."""
    for limit, used in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        values = []
        for path in (limit, used):
            try:
                text = Path(path).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError):
                text = ""
            values.append(int(text) if text.isdecimal() and int(text) < 1 << 60 else None)
        if values[0] is not None:
            return values[0], values[1]
    return None, None


def _free_disk_space() -> dict[str, Field]:
    facts = {}
    try:
        shm = os.statvfs("/dev/shm")
        facts["dev_shm"] = Field(shm.f_blocks * shm.f_frsize)
        facts["dev_shm_free"] = Field(shm.f_bavail * shm.f_frsize)
    except OSError:
        facts["dev_shm"] = facts["dev_shm_free"] = Field.missing()
    home = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "huggingface"
    )
    for name, path in (("disk_free", "."), ("cache_disk_free", os.environ.get("HF_HUB_CACHE") or home)):
        while path and path != "/" and not os.path.exists(path):
            path = os.path.dirname(path)
        try:
            facts[name] = Field(shutil.disk_usage(path or ".").free)
        except OSError:
            facts[name] = Field.not_known()
    return facts


def _resource_limits() -> dict[str, Field]:
    import resource

    facts = {}
    for name, limit in (("memlock", resource.RLIMIT_MEMLOCK), ("open_files", resource.RLIMIT_NOFILE)):
        soft = resource.getrlimit(limit)[0]
        facts[name] = Field(-1 if soft == resource.RLIM_INFINITY else soft)
    return facts


_STALE_LOCK_SECONDS = 3600.0
"""Seconds after which a build's lock is considered stale."""


def _stale_extension_lock() -> Field:
    """A lock left by a build in torch's extensions folder: ``<root>/<python and CUDA>/<name>/lock``."""
    import time

    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    root = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.join(cache, "torch_extensions"))
    found = []
    try:
        for pattern in ("*/lock", "*/*/lock"):
            found += [path for path in root.glob(pattern) if time.time() - path.stat().st_mtime > _STALE_LOCK_SECONDS]
    except OSError:
        return Field.not_known()
    return Field(redact_private(str(min(found)))) if found else Field.missing()

"""A program that starts Ray: what it does before that is rehearsed, and its workers are not."""

from __future__ import annotations

from pathlib import Path

from virtual.forked import output_of, rehearse_all

RAY = """
def is_initialized():
    return False
def init(**options):
    raise ConnectionError("daemons of Ray")
def get(task):
    import ray
    if not ray.is_initialized():
        ray.init()
"""
PROGRAM = "import sys\nsys.path.insert(0, {site!r})\nimport ray\n"
PROGRAMS = {
    "says_so": PROGRAM + "ray.init(num_gpus=2)\n",
    "by_its_first_task": PROGRAM + "ray.get(None)\n",
    "fails_before": PROGRAM + "assert 6 % 4 == 0, 'batch of 6 for 4'\nray.init(num_gpus=2)\n",
}


def test_workers_of_ray_are_not_rehearsed_and_what_comes_before_is(tmp_path: Path) -> None:
    package = tmp_path / "site" / "ray"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(RAY)
    programs = {name: text.replace("{site!r}", repr(str(tmp_path / "site"))) for name, text in PROGRAMS.items()}
    records = rehearse_all(tmp_path, programs, stack="import torch\n")
    for name in ("says_so", "by_its_first_task"):
        assert records[name].outcome == "unsupported", output_of(tmp_path, name)
        assert [missing.what for missing in records[name].unsupported] == ["ray.init"]
    failed = records["fails_before"].failure
    assert failed is not None
    assert failed.message == "batch of 6 for 4"

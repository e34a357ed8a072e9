"""DeepSpeed configs after the pattern of published ones that train: no hazard finds an error or a warning in them.

Each is read alone, and beside each of several releases of DeepSpeed that know all that it says.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from gonogo.check.findings import check
from gonogo.finding import Severity

FOLDER = Path(__file__).parent / "healthy_configs"
CONFIGS = sorted(FOLDER.glob("*.json"))
RELEASES = ("0.14.5", "0.16.9", "0.18.4", "0.19.8")
# The first release that knows all that a config says, where that isn't an old one.
KNOWN_SINCE = {"deepspeed_zenflow": "0.17.6", "deepspeed_leaf_modules": "0.18.4", "tensor_parallel": "0.16.4"}


@pytest.mark.parametrize("release", [None, *RELEASES])
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_healthy_config_is_left_alone(
    path: Path, release: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if release is not None and Version(release) < Version(KNOWN_SINCE.get(path.stem, "0.10")):
        pytest.skip("older than what the config says")
    (tmp_path / "ds_config.json").write_bytes(path.read_bytes())
    if release is not None:
        (tmp_path / "requirements.txt").write_text(f"deepspeed=={release}\n")
    monkeypatch.chdir(tmp_path)
    report = check(["."], use_installed=False).report
    wrong = [finding for finding in report.findings if finding.severity is not Severity.NOTE]
    assert not wrong, [(finding.hazard, finding.cause.en) for finding in wrong]


def test_there_are_some() -> None:
    assert len(CONFIGS) >= 15

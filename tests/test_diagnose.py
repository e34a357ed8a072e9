"""``gonogo diagnose``, ``explain`` and ``hazards`` as a user meets them: the command itself, on logs that fail."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.hazards.index import all_hazards
from gonogo.hazards.page import HEADINGS

CLIP = """\
[rank{rank}]: Traceback (most recent call last):
[rank{rank}]:   File "/data/run/train.py", line 212, in <module>
[rank{rank}]:     trainer.train()
[rank{rank}]:   File "/venv/lib/python3.11/site-packages/deepspeed/runtime/zero/stage3.py", line 9, in unscale_and_clip_grads
[rank{rank}]:     self.fp32_partitioned_groups_flat[sub_group_id].grad.mul_(1. / combined_scale)
[rank{rank}]: RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:{rank} and cpu!
"""  # noqa: E501
PEER = "[rank{rank}]: torch.distributed.DistBackendError: [{rank}] is setting up NCCL communicator: Broken pipe\n"
REGRESSION = "zero3-offload-clip-grad-device-regression"


def gonogo(*arguments: str | Path, given: bytes = b"", **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", **variables}
    run = subprocess.run(
        [sys.executable, "-m", "gonogo", *map(str, arguments)], input=given, capture_output=True, env=environment
    )
    return subprocess.CompletedProcess(run.args, run.returncode, run.stdout.decode(), run.stderr.decode())


def answer(*arguments: str | Path, given: bytes = b"") -> dict[str, object]:
    run = gonogo("diagnose", *arguments, "--format", "json", given=given)
    assert run.returncode in (0, 1, 3), run.stderr
    loaded: dict[str, object] = json.loads(run.stdout)
    return loaded


class TestDiagnose:
    def test_the_root_comes_first_and_lists_its_ranks(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        peers = "".join(PEER.format(rank=rank) for rank in (0, 1))
        log.write_text(peers + CLIP.format(rank=2) + CLIP.format(rank=3))
        report = answer(log)
        assert report["verdict"] == "NO-GO"
        finding = report["findings"][0]  # type: ignore[index]
        assert (finding["hazard"], finding["certainty"], finding["ranks"]) == (REGRESSION, "certain", [2, 3])
        assert finding["spans"][0]["line"] == 8
        roles = {event["text"][:30]: event["role"] for event in report["log"]["events"]}  # type: ignore[index]
        assert set(roles.values()) == {"root", "cascade"}

    def test_a_folder_of_ranks(self, tmp_path: Path) -> None:
        for rank in range(4):
            text = CLIP.format(rank=3) if rank == 3 else PEER.format(rank=rank)
            (tmp_path / f"rank{rank}.log").write_text(text.replace(f"[rank{rank}]: ", ""))
        (tmp_path / "model.safetensors").write_bytes(bytes(5000))
        report = answer(tmp_path)
        assert report["findings"][0]["hazard"] == REGRESSION  # type: ignore[index]
        assert report["findings"][0]["ranks"] == [3]  # type: ignore[index]
        assert len(report["log"]["logs"]) == 4  # type: ignore[index]
        assert report["skipped"]

    def test_standard_input_and_gzip(self, tmp_path: Path) -> None:
        text = CLIP.format(rank=0).encode()
        assert answer("-", given=text)["findings"][0]["hazard"] == REGRESSION  # type: ignore[index]
        assert answer(given=text)["findings"][0]["hazard"] == REGRESSION  # type: ignore[index]
        packed = tmp_path / "run.log.gz"
        packed.write_bytes(gzip.compress(text))
        assert answer(packed)["findings"][0]["hazard"] == REGRESSION  # type: ignore[index]

    def test_what_is_given_beside_the_log_counts(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        log.write_text(CLIP.format(rank=0))
        for version, certainty in (("0.14.2", "certain"), ("0.15.4", "likely")):
            (tmp_path / "versions.json").write_text(json.dumps({"deepspeed": version, "hardware": "8 of them"}))
            findings = answer(log, "--environment", tmp_path / "versions.json")["findings"]
            assert findings[0]["certainty"] == certainty  # type: ignore[index]

    def test_the_text_fits_a_screen_in_both_languages(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        log.write_text("".join(CLIP.format(rank=rank) for rank in range(8)))
        for language, words in (("en", ("cause:", "help:", "run.log:6")), ("zh", ("原因", "解决办法", "确定"))):
            run = gonogo("diagnose", log, "--lang", language)
            assert run.returncode == 1
            assert all(word in run.stdout for word in words), run.stdout
            assert len(run.stdout.splitlines()) <= 40
            assert not run.stderr

    @pytest.mark.parametrize(
        ("content", "says"),
        [(b"", "The log is empty"), (b"epoch 1 loss 0.3\n", "No known issue"), (bytes(range(256)) * 99, "No known")],
    )
    def test_a_log_that_tells_nothing(self, content: bytes, says: str, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        log.write_bytes(content)
        run = gonogo("diagnose", log)
        assert run.returncode == 3
        assert says in run.stdout
        assert not run.stderr

    def test_unusable_input_is_one_line(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        log.write_text("x\n")
        broken = tmp_path / "versions.json"
        broken.write_text("{")
        for arguments, names in (
            ((tmp_path / "none.log",), "none.log"),
            ((log, "--environment", broken), "versions.json"),
            ((log, "--launch", tmp_path / "none.sh"), "--launch"),
            ((log, "--format", "pdf"), "pdf"),
        ):
            run = gonogo("diagnose", *arguments)
            assert run.returncode == 2
            assert names in run.stderr
            assert len(run.stderr.splitlines()) == 1
            assert not run.stdout

    def test_no_torch_is_loaded(self, tmp_path: Path) -> None:
        log = tmp_path / "run.log"
        log.write_text(CLIP.format(rank=0))
        program = (
            "import sys\nfrom gonogo.cli.app import app\n"
            f"sys.argv = ['gonogo', 'diagnose', {str(log)!r}, '--output', {str(tmp_path / 'report')!r}]\n"
            "try:\n    app()\nexcept SystemExit:\n    pass\n"
            "print(sorted({'torch', 'deepspeed', 'transformers', 'numpy', 'pydantic'} & set(sys.modules)))\n"
        )
        run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert run.stdout.strip() == "[]"
        assert REGRESSION in (tmp_path / "report").read_text()


class TestExplain:
    def test_the_page_in_both_languages(self) -> None:
        english, chinese = gonogo("explain", REGRESSION), gonogo("explain", REGRESSION, "--lang", "zh")
        assert "## Cure" in english.stdout
        assert "## 解决办法" in chinese.stdout

    def test_json(self) -> None:
        page = json.loads(gonogo("explain", REGRESSION, "--format", "json").stdout)
        assert page["name"] == REGRESSION
        assert list(page["sections"]) == [heading.en for heading in HEADINGS]
        assert "log" in page["stages"]
        assert page["sources"]

    def test_a_name_that_is_near_is_offered(self) -> None:
        run = gonogo("explain", "zero3-offload-clip")
        assert run.returncode == 2
        assert REGRESSION in run.stderr

    def test_a_name_that_is_not_near(self) -> None:
        run = gonogo("explain", "qqqqqq")
        assert run.returncode == 2
        assert "gonogo hazards" in run.stderr


class TestHazards:
    def test_all_are_listed(self) -> None:
        listed = json.loads(gonogo("hazards", "--format", "json").stdout)["hazards"]
        assert [entry["name"] for entry in listed] == [hazard.name for hazard in all_hazards()]
        text = gonogo("hazards").stdout
        assert all(hazard.name in text for hazard in all_hazards())

    def test_by_theme_and_stage(self) -> None:
        listed = json.loads(gonogo("hazards", "--theme", "zero3", "--stage", "rehearsal", "--format", "json").stdout)
        assert {entry["theme"] for entry in listed["hazards"]} == {"zero3"}
        assert all("rehearsal" in entry["stages"] for entry in listed["hazards"])
        assert gonogo("hazards", "--theme", "none").returncode == 2
        assert gonogo("hazards", "--stage", "none").returncode == 2

"""``gonogo check`` as it is typed: what it follows, how it is silenced, what it answers, what it changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gonogo.check.findings import check
from gonogo.check.settings import CheckSettings
from gonogo.cli.exit_status import exit_statuses
from gonogo.hazards.index import all_hazards

EXAMPLES = Path(__file__).parent.parent / "examples"

TWO_DTYPES = '{\n  "train_batch_size": 8,\n  "fp16": {"enabled": true},\n  "bf16": {"enabled": true}\n}\n'
HEALTHY = '{\n  "train_micro_batch_size_per_gpu": 1,\n  "zero_optimization": {"stage": 2}\n}\n'


def gonogo(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gonogo", "check", *words],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "LC_ALL": "C.UTF-8", **variables},
    )


@pytest.fixture(autouse=True)
def faults_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DEBUG", "1")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def copy_of(example: str, here: Path) -> None:
    shutil.copytree(EXAMPLES / example, here, dirs_exist_ok=True)


class TestScenarios:
    """The examples are the failures that gonogo was made for; see their README files."""

    @pytest.mark.parametrize(
        ("example", "hazard", "span", "fixed"),
        [
            (
                "qwen_72b_zero3_offload",
                "zero3-offload-clip-grad-device-regression",
                "requirements.txt:4",
                {"requirements.txt": "requirements_fixed.txt"},
            ),
            (
                "minicpmv_zero3_offload",
                "zero3-offload-clip-grad-device-regression",
                "requirements.txt:4",
                {"requirements.txt": "requirements_fixed.txt"},
            ),
            (
                "slam_omni_dummy_loss",
                "zero3-direct-param-use-invalid-gradient",
                "train.py:53",
                {"train.py": "train_fixed.py"},
            ),
            (
                "qwen_7b_device_map",
                "device-map-auto-distributed",
                "finetune.py:69",
                {"finetune.py": "finetune_fixed.py"},
            ),
            ("qwen_omni_audio_zero3", "device-mismatch-multimodal-submodule", "launch.sh:16", {}),
        ],
    )
    def test_each_is_found_before_it_is_launched_and_fixed(
        self, example: str, hazard: str, span: str, fixed: dict[str, str], here: Path
    ) -> None:
        copy_of(example, here)
        before = gonogo("--format", "json", "--", "bash", "launch.sh")
        report = json.loads(before.stdout)
        finding = report["findings"][0]
        assert finding["hazard"] == hazard
        assert f"{finding['spans'][0]['path']}:{finding['spans'][0]['line']}" == span
        assert finding["certainty"] in ("certain", "likely")
        assert before.returncode == (1 if finding["certainty"] == "certain" else 0)
        gonogo("--fix", "--unsafe-fixes", "--", "bash", "launch.sh")
        for name, like in fixed.items():
            assert Path(name).read_text() == Path(like).read_text()
        after = json.loads(gonogo("--format", "json", "--", "bash", "launch.sh").stdout)
        assert hazard not in [one["hazard"] for one in after["findings"]]
        assert after["verdict"] == "GO"
        changed = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
        gonogo("--fix", "--unsafe-fixes", "--", "bash", "launch.sh")
        assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == changed

    def test_a_folder_and_a_command_come_to_the_same(self, here: Path) -> None:
        copy_of("slam_omni_dummy_loss", here)
        by_folder = json.loads(gonogo("--format", "json", ".").stdout)
        assert "zero3-direct-param-use-invalid-gradient" in [one["hazard"] for one in by_folder["findings"]]


class TestWhatIsRead:
    def test_a_command_is_followed_to_all_that_it_names(self, here: Path) -> None:
        copy_of("qwen_7b_device_map", here)
        report = json.loads(gonogo("--format", "json", "--", "bash", "launch.sh").stdout)
        covered = " ".join(report["covered"])
        for name in ("launch.sh:37 (accelerate)", "ds_config.json", "finetune.py"):
            assert name in covered

    def test_nothing_to_check_is_no_pass(self, here: Path) -> None:
        Path("README.md").write_text("# hello\n")
        assert gonogo().returncode == 3
        assert gonogo("README.md").returncode == 3
        assert gonogo("--allow-no-files", "README.md").returncode == 0

    def test_a_file_that_is_not_ours_beside_one_that_is(self, here: Path) -> None:
        Path("ds.json").write_text(HEALTHY)
        Path("other.yaml").write_text("a: 1\n")
        assert gonogo("ds.json", "other.yaml").returncode == 3
        assert gonogo("--allow-no-files", "ds.json", "other.yaml").returncode == 0

    @pytest.mark.parametrize(
        "command", [["--", "torchrun", "nowhere.py"], ["--", "bash", "launch.sh"], ["launch.sh"], ["."]]
    )
    def test_a_program_that_is_not_here_is_no_pass(self, command: list[str], here: Path) -> None:
        Path("launch.sh").write_text("torchrun --nproc_per_node 8 nowhere.py\n")
        report = json.loads(gonogo("--format", "json", *command).stdout)
        assert report["verdict"] == "CANNOT-TELL"
        assert [one["what"] for one in report["skipped"]] == ["nowhere.py"]
        assert gonogo("--", "python").returncode == 3
        Path("nowhere.py").write_text("import torch\n")
        assert json.loads(gonogo("--format", "json", *command).stdout)["verdict"] == "GO"

    @pytest.mark.parametrize("program", ["tools/train.py", "-m tools.train", "-m tools"])
    def test_a_script_in_a_folder_is_started_where_its_program_is_found(self, program: str, here: Path) -> None:
        for name in ("tools/train.py", "tools/__main__.py"):
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text("import torch\n")
        Path("pyproject.toml").write_text("")
        Path("scripts").mkdir()
        Path("scripts/run.sh").write_text(f"torchrun --nproc_per_node 8 {program}\n")
        report = json.loads(gonogo("--format", "json", "scripts/run.sh").stdout)
        assert report["verdict"] == "GO"
        assert any(covered.startswith("scripts: tools/") for covered in report["covered"])

    def test_a_launch_behind_many_commands_is_found(self, here: Path) -> None:
        Path("train.py").write_text("import torch\n")
        Path("launch.sh").write_text("some_tool b\n" * 900 + "torchrun --nproc_per_node 8 train.py\n")
        report = json.loads(gonogo("--format", "json", "launch.sh").stdout)
        assert report["verdict"] == "GO"
        assert "launch.sh:901 (torchrun)" in " ".join(report["covered"])

    @pytest.mark.parametrize(
        ("script", "said"),
        [
            (
                "some_tool b\n" * 2500 + "torchrun train.py\n",
                "the script was read only up to launch.sh:2001, since it runs more than 2000 commands",
            ),
            (
                ":\n" * 11_000 + "torchrun train.py\n",
                "the script was read only up to launch.sh:10001, since it runs more than 10000 commands",
            ),
            (
                "".join(f"torchrun train.py --seed {n}\n" for n in range(210)),
                "the file was read only up to line 201: it has more than 200 launches",
            ),
        ],
    )
    def test_a_script_that_is_too_long_is_no_pass(self, script: str, said: str, here: Path) -> None:
        Path("train.py").write_text("import torch\n")
        Path("launch.sh").write_text(script)
        report = json.loads(gonogo("--format", "json", "launch.sh").stdout)
        assert report["verdict"] == "CANNOT-TELL"
        assert said in [one["why"] for one in report["skipped"]]

    def test_a_broken_file_that_is_no_config_is_said_to_be_broken(self, here: Path) -> None:
        Path("notes.json").write_text('{\n "a": 1,\n "b" 2}\n')
        done = gonogo("notes.json")
        assert done.returncode == 3
        assert "not valid JSON: line 3" in " ".join(done.stdout.split())

    @pytest.mark.parametrize(
        "text",
        [
            "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {\n",
            "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n  spec: [\n",
        ],
        ids=["accelerate", "job"],
    )
    def test_a_broken_yaml_is_no_pass(self, text: str, here: Path) -> None:
        Path("broken.yaml").write_text(text)
        done = gonogo("broken.yaml")
        assert done.returncode == 3
        assert "the file is not valid YAML" in " ".join(done.stdout.split())

    def test_a_config_whose_name_cannot_be_told_is_no_pass(self, here: Path) -> None:
        Path("run.sh").write_text("torchrun --nproc_per_node 8 train.py --deepspeed $(pick_config)\n")
        Path("train.py").write_text("import transformers\n")
        report = json.loads(gonogo("--format", "json", "run.sh").stdout)
        assert report["verdict"] == "CANNOT-TELL"
        assert report["skipped"][0]["what"] == "run.sh:1"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["missing.json"], "missing.json: no such file or folder"),
            (["--", "bash", "missing.sh"], "missing.sh: no such file"),
            (["--", "missing.yaml"], "missing.yaml: no such file"),
            (["--", "missing.ipynb"], "missing.ipynb: no such file"),
            (
                ["--", "bash", "needs_argument.sh"],
                "needs_argument.sh: starts no program that gonogo recognizes when it is "
                "given no argument, but it reads $1 on line 2:",
            ),
            (
                ["--", "bash", "needs_argument.sh", "large"],
                "needs_argument.sh large: starts no program that gonogo recognizes: give the command",
            ),
            (["--", "ls", "-l"], "ls -l: starts no program that gonogo recognizes"),
            (["--select", "nothing-like-it"], "no hazard with this name"),
            (["--fail-on", "never"], "--fail-on 'never'"),
            (["--fix", "--diff"], "use one of them"),
            (["--environment", "missing.txt", "."], "missing.txt"),
            (["--format", "xml"], "--format 'xml'"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(self, words: list[str], said: str, here: Path) -> None:
        Path("needs_argument.sh").write_text(
            "# $2 is the size\ncase $1 in\nbase) python train.py ;;\n*) exit 1 ;;\nesac\n"
        )
        done = gonogo(*words)
        assert done.returncode == 2
        assert done.stdout == ""
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1

    def test_torch_is_never_imported(self, here: Path) -> None:
        copy_of("slam_omni_dummy_loss", here)
        program = (
            "import sys\nfrom gonogo.check.findings import check\ncheck(['.'])\n"
            "print(sorted({'torch', 'deepspeed', 'transformers', 'numpy'} & set(sys.modules)))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    def test_a_pipe_is_written_to_and_never_replaced_by_a_file(self, here: Path) -> None:
        Path("ds.json").write_text(HEALTHY)
        os.mkfifo("pipe")
        command = [sys.executable, "-m", "gonogo", "check", "ds.json", "--format", "json", "--output", "pipe"]
        with subprocess.Popen(command) as process:
            assert json.loads(Path("pipe").read_text())["command"] == "check"
        assert process.returncode == 0
        assert Path("pipe").is_fifo()

    def test_a_link_stays_a_link_to_the_report(self, here: Path) -> None:
        Path("ds.json").write_text(HEALTHY)
        Path("real.txt").write_text("old")
        Path("link.txt").symlink_to("real.txt")
        assert gonogo("ds.json", "--output", "link.txt").returncode == 0
        assert Path("link.txt").is_symlink()
        assert "gonogo check" in Path("real.txt").read_text()


class TestSilencing:
    @pytest.fixture(autouse=True)
    def two_dtypes(self, here: Path) -> None:
        Path("run.sh").write_text(
            "export CUDA_VISIBLE_DEVICES=0,1\ntorchrun --nproc_per_node 4 train.py --bf16 --output_dir out\n"
        )
        Path("train.py").write_text(
            "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
            "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
            "Trainer(None, args).train()\n"
        )

    def hazards(self, **options: object) -> set[str]:
        found = check(["."], settings=CheckSettings(**options), use_installed=False)  # type: ignore[arg-type]
        return {finding.hazard for finding in found.report.findings}

    def test_it_is_found(self) -> None:
        assert "more-ranks-than-visible-gpus" in self.hazards()

    def test_select_and_ignore_are_globs(self) -> None:
        assert self.hazards(select=("more-*",)) == {"more-ranks-than-visible-gpus"}
        assert "more-ranks-than-visible-gpus" not in self.hazards(ignore=("more-*",))

    def test_a_comment_in_place_allows_it(self) -> None:
        text = Path("run.sh").read_text().split("\n")
        Path("run.sh").write_text("\n".join([text[0], "# gonogo: allow more-ranks-than-visible-gpus", *text[1:]]))
        assert "more-ranks-than-visible-gpus" not in self.hazards()

    def test_the_name_of_an_earlier_release_silences_it_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A hazard that was renamed stays silenced in projects that silenced it."""
        (hazard,) = (hazard for hazard in all_hazards() if hazard.name == "more-ranks-than-visible-gpus")
        monkeypatch.setattr(hazard, "formerly", ("too-many-ranks",))
        assert self.hazards(select=("too-many-*",)) == {hazard.name}
        assert hazard.name not in self.hazards(ignore=("too-many-*",))
        text = Path("run.sh").read_text().split("\n")
        Path("run.sh").write_text("\n".join([text[0], "# gonogo: allow too-many-ranks", *text[1:]]))
        assert hazard.name not in self.hazards()

    def test_a_comment_elsewhere_does_not(self) -> None:
        Path("run.sh").write_text("# gonogo: allow more-ranks-than-visible-gpus\necho\n" + Path("run.sh").read_text())
        assert "more-ranks-than-visible-gpus" in self.hazards()

    def test_settings_of_the_project(self) -> None:
        for name, head in (("gonogo.toml", ""), ("pyproject.toml", "[tool.gonogo]\n")):
            for text in (
                'ignore = ["more-*"]',
                'per-file-ignores = {"*.sh" = ["more-ranks-*"]}',
                'exclude = ["run.sh"]',
            ):
                Path(name).write_text(head + text + "\n")
                report = json.loads(gonogo("--format", "json").stdout)
                assert "more-ranks-than-visible-gpus" not in [one["hazard"] for one in report["findings"]], text
            Path(name).unlink()

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("ignores = []", "did you mean ignore?"),
            ("ignore = 3", "ignore = 3: must be a list of strings"),
            ('fail-on = "never"', "certain, likely or possible"),
            ("ignore = [", "not valid TOML"),
        ],
    )
    def test_settings_that_mean_nothing_are_one_line(self, text: str, said: str) -> None:
        Path("gonogo.toml").write_text(text)
        done = gonogo()
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_script_takes_the_shells_variables_for_which_it_has_a_default(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torchtitan's run_train.sh and its CONFIG_FILE; a name that the script doesn't ask for so stays unknown."""
    (here / "train.py").write_text("import torch\n")
    (here / "launch.sh").write_text("deepspeed train.py --deepspeed ${CONFIG:-good.json} --out $PLACE\n")
    (here / "good.json").write_text(HEALTHY)
    (here / "bad.json").write_text(TWO_DTYPES)
    assert "bad.json" not in str(check(command=["bash", "launch.sh"]).report.findings)
    monkeypatch.setenv("CONFIG", "bad.json")
    assert "bad.json" in str(check(command=["bash", "launch.sh"]).report.findings)


def test_a_hazards_own_fault_is_told_and_costs_its_answer_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GONOGO_DEBUG")
    copy_of("slam_omni_dummy_loss", here)
    hazards = {type(hazard).__name__: type(hazard) for hazard in all_hazards()}

    def broken(*_values: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(hazards["DeviceMapAutoDistributed"], "in_script", broken)
    report = check(["."], use_installed=False).report
    assert [skipped.what.en for skipped in report.skipped] == ["device-map-auto-distributed"]
    assert "ZeroDivisionError: a fault" in report.skipped[0].why.en
    assert "zero3-direct-param-use-invalid-gradient" in [finding.hazard for finding in report.findings]


class TestWhatIsChanged:
    def test_diff_changes_nothing_and_says_what_fix_changes(self, here: Path) -> None:
        copy_of("slam_omni_dummy_loss", here)
        before = Path("train.py").read_bytes()
        done = gonogo("--diff", "--unsafe-fixes", "--", "bash", "launch.sh")
        assert Path("train.py").read_bytes() == before
        assert "--- a/train.py\n+++ b/train.py\n" in done.stdout
        subprocess.run(["git", "apply", "-"], input=done.stdout, text=True, check=True, cwd=here)
        assert Path("train.py").read_text() == Path("train_fixed.py").read_text()

    def test_diff_says_what_it_leaves_out(self, here: Path) -> None:
        copy_of("slam_omni_dummy_loss", here)
        done = gonogo("--diff", "--", "bash", "launch.sh")
        assert "+++ b/train.py" not in done.stdout
        assert "1 fixes not shown because they change the run's behaviour (--unsafe-fixes shows them)" in done.stderr

    def test_fix_tells_what_it_did_and_reports_what_is_left(self, here: Path) -> None:
        copy_of("slam_omni_dummy_loss", here)
        done = gonogo("--fix", "--unsafe-fixes", "--", "bash", "launch.sh")
        assert "train.py: fixed zero3-direct-param-use-invalid-gradient" in done.stderr
        assert "train.py: fixed" not in done.stdout

    def test_statistics(self, here: Path) -> None:
        copy_of("slam_omni_dummy_loss", here)
        assert "zero3-direct-param-use-invalid-gradient" in gonogo("--statistics").stdout
        table = json.loads(gonogo("--statistics", "--format", "json").stdout)
        assert {"hazard", "count", "fixable", "title"} == set(table["statistics"][0])


KINDS = ("ds_config.json", "run.sh", "train.py", "accelerate.yaml", "requirements.txt", "Dockerfile", "uv.lock")
PIECES = st.one_of(
    st.binary(max_size=300),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [
            TWO_DTYPES.encode(),
            b'{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}',
            b"#!/bin/bash\ntorchrun --nproc_per_node ${N:-8} train.py --deepspeed ds_config.json\n",
            b'deepspeed --include localhost:0,1 train.py --deepspeed ds_config.json $(cat x) "${A[@]}"\n',
            b"from transformers import Trainer, TrainingArguments as A\nTrainer(args=A(deepspeed={'a': 1}))\n",
            b"distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 3\n",
            b"deepspeed==0.14.2\ntorch>=2\n-r other.txt\n",
            b"[" * 5000,
            b'{"a":' * 3000,
            b"(" * 3000,
            b"$(" * 500,
            b"\xff\xfe\x00\x00",
            b"a: &a [*a, *a]\n",
            b"\x00",
        ]
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(KINDS), st.lists(PIECES, max_size=3).map(b"".join), min_size=1))
@example({"ds_config.json": b'{"zero_optimization": 3, "fp16": [], "optimizer": "Adam", "train_batch_size": {}}'})
@example({"run.sh": b"torchrun train.py --deepspeed ds_config.json", "ds_config.json": b"", "train.py": b"\x00"})
def test_arbitrary_bytes_get_an_answer(here: Path, files: dict[str, bytes]) -> None:
    for path in here.iterdir():
        path.unlink()
    for name, data in files.items():
        Path(name).write_bytes(data)
    with exit_statuses("en"):
        report = check(["."], use_installed=False).report
    assert report.verdict is not None
    for finding in report.findings:
        for span in finding.spans:
            assert span.line >= 1


@pytest.mark.parametrize(
    "words", [["check", "--", "bash", "launch.sh"], ["rehearse", "--", "bash", "launch.sh"], ["doctor"]]
)
def test_a_folder_that_was_deleted_is_said_in_one_line(words: list[str], tmp_path: Path) -> None:
    script = f"cd {tmp_path}/gone && rmdir {tmp_path}/gone && exec {sys.executable} -m gonogo {' '.join(words)}"
    (tmp_path / "gone").mkdir()
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in run.stderr
    assert "internal error" not in run.stderr
    if words != ["doctor"]:
        assert run.returncode == 2
        assert run.stderr.startswith("gonogo: the current folder was deleted")

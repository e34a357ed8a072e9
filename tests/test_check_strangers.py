"""Check on projects that were not written for it: what it can't know of them makes nothing certain."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gonogo.check.findings import check
from gonogo.evidence.launch.launch import Launch
from gonogo.evidence.launch.reading import read_launches
from gonogo.evidence.script.project import Project
from gonogo.evidence.script.reachability import ReachableCode
from gonogo.evidence.source_file import SourceFile
from gonogo.finding import Certainty, Finding

_OLD_TRAINER = "from transformers import Trainer\nTrainer(model=None, tokenizer=None).train()\n"
_BROKEN = '{"train_micro_batch_size_per_gpu": BATCH_SIZE, "zero_optimization": {"stage": STAGE_OF_ZERO}}'


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository to fill, which is the working folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def launches(text: str) -> tuple[Launch, ...]:
    write({"launch.sh": text})
    return read_launches(SourceFile.read("launch.sh"))


def certain(*paths: str) -> list[Finding]:
    findings = check(paths or ["."]).report.findings
    return [finding for finding in findings if finding.certainty is Certainty.CERTAIN]


def test_this_pythons_versions_make_nothing_certain_of_a_folder() -> None:
    write({"train.py": _OLD_TRAINER, "launch.sh": "torchrun --nproc_per_node 2 train.py\n"})
    found = check(["."]).report.findings
    assert found, "it is told all the same"
    assert not [finding for finding in found if finding.certainty is Certainty.CERTAIN]
    typed = check((), ["torchrun", "--nproc_per_node", "2", "train.py"]).report.findings
    assert any(finding.certainty is Certainty.CERTAIN for finding in typed), "the Python that it is typed for is this"


def test_the_file_at_the_repositorys_root_tells_the_versions() -> None:
    write({"src/a/train.py": _OLD_TRAINER, "src/a/launch.sh": "torchrun train.py\n"})
    write({"requirements.txt": "transformers==4.40.0\n"})
    assert not [finding for finding in check(["src"]).report.findings if "version" in finding.hazard]
    write({"requirements.txt": "transformers==5.0.0\n"})
    assert any(finding.hazard == "training-argument-not-in-version" for finding in certain("src"))


def test_a_file_that_names_no_such_package_leaves_the_word_to_the_one_above() -> None:
    write({"src/train.py": _OLD_TRAINER, "src/launch.sh": "torchrun train.py\n", "src/requirements.txt": "tqdm\n"})
    write({"requirements.txt": "transformers==5.0.0\n"})
    assert any(finding.hazard == "training-argument-not-in-version" for finding in certain("src"))


def test_a_folder_of_another_machine_is_unknown() -> None:
    write({"zero.json": "{}", "train.py": "import deepspeed\n"})
    (launch,) = launches("cd /no/such/author/project\ndeepspeed train.py --deepspeed ./configs/zero2.json\n")
    assert not launch.cwd_known
    assert launch.path_of(launch.deepspeed_config) is None
    assert not certain("launch.sh")


def test_quoted_parts_of_a_pattern_stand_for_themselves() -> None:
    test = 'if [[ $CUDA_VISIBLE_DEVICES != *","* ]]; then\n  A=one\nelse\n  A=many\nfi\ntorchrun train.py --which $A\n'
    for devices, wanted in (("0", "one"), ("0,1", "many")):
        (launch,) = launches(f"export CUDA_VISIBLE_DEVICES={devices}\n{test}")
        assert launch.words[-1].value == wanted


@pytest.mark.parametrize(
    "writing",
    [
        "sed s/2/3/ zero.json > made.json",
        "jq . zero.json | tee made.json",
        "(cat zero.json) > made.json",
        "python -c 'print(1)' >made.json",
    ],
)
def test_a_file_that_the_script_writes_is_there_and_its_text_unknown(writing: str) -> None:
    (launch,) = launches(f'cd "$(dirname "$0")"\n{writing}\ndeepspeed train.py --deepspeed made.json\n')
    assert [file.text for file in launch.written_files.values()] == [None]
    assert not [finding for finding in certain("launch.sh") if "not-found" in finding.hazard]


def test_a_template_is_no_config() -> None:
    write({"ds_config_TEMPLATE.json": _BROKEN})
    checked = check(["."])
    assert not checked.report.findings
    assert any("template" in note.en for note in checked.report.notes)


def test_case_true_is_read() -> None:
    write(
        {"train.py": "import torch\nmatch torch.ok:\n    case True:\n        pass\n    case None | 1:\n        pass\n"}
    )
    assert check(["train.py"]).report.findings == ()


def test_a_class_that_has_its_bases_name_ends_no_check() -> None:
    write(
        {
            "own.py": "import transformers\nclass Arguments(lib.Arguments):\n    x: int = 1\n",
            "train.py": "from transformers import HfArgumentParser\nfrom own import Arguments\n"
            "HfArgumentParser((Arguments,)).parse_args_into_dataclasses()\n",
            "launch.sh": "torchrun train.py --nonsense 1\n",
        }
    )
    assert not [one for one in check(["."]).report.skipped if "fault" in one.why.en]


def test_a_launch_that_gonogo_fails_over_costs_that_launch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from gonogo.check.run_of_launch import RunBuilder

    real = RunBuilder.run_of

    def fails(self: RunBuilder, launch: Launch, environment: object) -> object:
        if launch.program.string == "b.py":
            raise RecursionError("too deep")
        return real(self, launch, environment)  # type: ignore[arg-type]

    monkeypatch.setattr(RunBuilder, "run_of", fails)
    write({"a.py": "import torch\n", "b.py": "import torch\n", "launch.sh": "torchrun a.py\ntorchrun b.py\n"})
    checked = check(["."])
    assert any("launch.sh:2" in one.what.en and "too deep" in one.why.en for one in checked.report.skipped)
    assert any("a.py" in text.en for text in checked.report.covered)


def test_code_that_no_name_leads_to_is_not_reached() -> None:
    write(
        {
            "lib.py": "import torch\n"
            "class Used(torch.nn.Module):\n    def forward(self):\n        helper()\n"
            "class Never:\n    def step(self):\n        pass\n"
            "def helper():\n    pass\n"
            "@register\ndef kept():\n    pass\n"
            'if __name__ == "__main__":\n    Never()\n',
            "train.py": "from lib import Used, Never\ndef main():\n    Used()\nmain()\n",
        }
    )
    scripts = Project(Path("."), SourceFile.read("train.py")).all_scripts()
    reached = ReachableCode(scripts)
    path = scripts[1].source.path
    assert reached.is_reachable("train.py", 3)
    assert all(reached.is_reachable(path, line) for line in (4, 9, 12))
    assert not reached.is_reachable(path, 7)


def test_a_lone_carriage_return_at_an_argument_is_not_certain() -> None:
    write({"train.py": "import deepspeed\n"})
    Path("launch.sh").write_bytes(b"deepspeed train.py --tensorboard_path './runs'\r\n")
    assert not [finding for finding in certain("launch.sh") if "crlf" in finding.hazard]


def test_launches_of_one_project_share_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    import gonogo.evidence.script.project as module

    read: list[str] = []
    real = module.Project._new_script
    monkeypatch.setattr(
        module.Project, "_new_script", lambda self, source, path, m="": read.append(path) or real(self, source, path, m)
    )
    write({"lib.py": "import torch\n", "train.py": "import lib\n"})
    write({f"run{number}.sh": "torchrun train.py\n" for number in range(5)})
    write({"zero.json": json.dumps({"train_batch_size": 1})})
    check(["."])
    assert len([path for path in read if path.endswith("lib.py")]) == 1


_PARSES = """import argparse
from library import answer
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--video_dir")
    answer(parser.parse_args(), model)
"""
_LIBRARY = """from transformers import HfArgumentParser, Trainer, TrainingArguments
def answer(args, model):
    model.train()
def train():
    arguments, = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
"""


def test_the_parser_of_another_program_says_nothing_of_this_ones_options() -> None:
    write({"library.py": _LIBRARY, "requirements.txt": "transformers==4.51.3\n"})
    write({"answer.py": _PARSES, "train.py": "from library import train\ntrain()\n"})
    write({"a.sh": "python answer.py --video_dir a\n", "t.sh": "torchrun --nproc_per_node 2 train.py --video_dir a\n"})
    assert [found.spans[0].path for found in certain() if found.hazard == "training-argument-unknown"] == ["t.sh"]


def test_a_method_of_an_object_is_no_function_of_a_module() -> None:
    write({"library.py": _LIBRARY, "entry.py": "from library import answer\nanswer(1, 2)\n"})
    reached = ReachableCode(Project.around(SourceFile.read("entry.py")).all_scripts())
    assert reached.is_reachable("library.py", 3)
    assert not reached.is_reachable("library.py", 5)


_ALONE = """import deepspeed
def build(model, args):
    {test}
        deepspeed.initialize(model=model, args=args, config="ds.json")
build(object(), object())
"""


@pytest.mark.parametrize(
    ("test", "sure"),
    [
        ("if args.save_checkpoint:", Certainty.LIKELY),
        ("if step % 100 == 0:", Certainty.CERTAIN),
        ("if True:", Certainty.CERTAIN),
        ("if args.deepspeed_on and rank == 0:", Certainty.CERTAIN),
    ],
)
def test_what_stands_under_an_open_condition_is_likely(test: str, sure: Certainty) -> None:
    write({"train.py": _ALONE.format(test=test), "ds.json": '{"zero_optimization": {"stage": 2}}'})
    write({"launch.sh": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n"})
    found = [each for each in check(["."]).report.findings if each.hazard == "ds-eval-model-needs-no-optimizer"]
    assert [each.certainty for each in found] == [sure]


def test_a_config_that_is_made_to_fit_is_none_of_the_runs() -> None:
    own = "import deepspeed\nc = {'zero_optimization': {'stage': 2}}\nc['zero_optimization']['stage'] = 0\n"
    write(
        {
            "train.py": f"{own}deepspeed.initialize(model=m, config=c)\n",
            "ds.json": '{"zero_optimization": {"stage": 2}}',
        }
    )
    write({"launch.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json\n"})
    assert not certain()


def test_a_config_that_the_program_opens_itself_has_another_reader() -> None:
    parses = "from transformers import HfArgumentParser, Trainer\nargs = HfArgumentParser(kinds()).parse()\n"
    write({"requirements.txt": "transformers==4.51.3\n", "ds.json": '{"train_micro_batch_size_per_gpu": 1}'})
    write({"launch.sh": "deepspeed --num_gpus 2 train.py --deepspeed ds.json\n"})
    for more, sure in (("", True), ("config = json.load(open(args.deepspeed))\n", False)):
        write({"train.py": f"{parses}{more}Trainer()\n"})
        assert any(one.hazard == "ds-config-without-zero-section" for one in certain()) is sure


def test_the_values_that_an_autotuner_is_to_try_are_no_value() -> None:
    config = '{"zero_optimization": {"stage": [0, 1, 2]}, "train_micro_batch_size_per_gpu": 1%s}'
    write({"ds.json": config % ""})
    assert any(one.hazard == "ds-zero-stage-invalid" for one in certain())
    write({"ds.json": config % ', "autotuning": {"enabled": true}'})
    assert not any(one.hazard == "ds-zero-stage-invalid" for one in certain())


def test_a_line_with_a_place_to_fill_in_starts_nothing() -> None:
    text = "A=1\nPATHS=<path (e.g. /data)>\nVOCAB=<path (e.g. /v.json)>\ntorchrun $A train.py\n"
    assert not launches(text)


def test_a_tool_of_one_process_makes_the_parts_of_many() -> None:
    write({"tools/merge.py": "import megatron\n"})
    options = "python tools/merge.py --tensor-model-parallel-size 2 --num-layers 4 --micro-batch-size 1\n"
    write({"merge.sh": f"WORLD_SIZE=2 {options}"})
    assert not certain("merge.sh")


def test_what_only_tests_hold_is_nobodys_run() -> None:
    write({"requirements.txt": "transformers==5.0.0\n", "test_trainer.py": _OLD_TRAINER})
    assert not certain()
    write({"train.py": _OLD_TRAINER})
    assert [one.spans[0].path for one in certain()] == ["train.py"]


def test_launches_to_be_filled_in_are_told_in_one_line() -> None:
    write({"a.sh": "torchrun --nproc_per_node 8 train.py --model <model>\n"})
    write({"b.sh": "deepspeed train.py --deepspeed /path/to/ds.json\n", "train.py": "import deepspeed\n"})
    (note,) = (one.en for one in check(["."], use_installed=False).report.notes)
    assert "`<model>`, `/path/to/ds.json`" in note
    assert "a.sh:1, b.sh:1" in note
    write({"a.sh": "torchrun --nproc_per_node 8 train.py <input.txt >out.txt\n", "b.sh": "deepspeed train.py\n"})
    assert not check(["."], use_installed=False).report.notes


def test_a_script_that_launches_nothing_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gonogo.evidence.launch import reading

    read: list[str] = []
    follow = reading.read_shell
    monkeypatch.setattr(
        reading, "read_shell", lambda source, *a, **k: read.append(source.path) or follow(source, *a, **k)
    )
    write({"clean.sh": "echo $1\n", "go.sh": "torchrun $1\n"})
    found = launches("bash clean.sh a\nbash clean.sh a\nbash clean.sh b\nbash go.sh train.py\nbash go.sh train.py\n")
    assert (read.count("clean.sh"), read.count("go.sh")) == (2, 2)
    assert [one.program.value for one in found] == ["train.py", "train.py"]


def test_many_findings_of_one_hazard_are_told_once_with_their_places() -> None:
    from gonogo.finding import Report, Severity, Span, Text, Verdict
    from gonogo.finding.finding_groups import group_findings
    from gonogo.report import render

    def found(number: int, hazard: str = "ds-a") -> Finding:
        span = Span(path="x.py", line=number, column=1)
        return Finding(hazard, Certainty.POSSIBLE, Severity.ERROR, Text("t", "t"), Text("c", "c"), spans=(span,))

    many = tuple(found(number) for number in range(1, 31))
    assert [len(one.others) for one in group_findings((*many, found(1, "ds-b")))] == [29, 0]
    assert [one.others for one in group_findings(many[:3])] == [()] * 3
    report = Report("check", Verdict.GO, many)
    for name in ("text", "markdown", "html"):
        shown = render(report, name, "en")
        assert all(said in shown for said in ("29 more locations", "x.py:21", "9 more:")), name
        assert "x.py:22" not in shown
    assert len(json.loads(render(report, "json", "en"))["findings"]) == 30


_ENTRY = """\
import torch


def main():
    torch.distributed.init_process_group("nccl")
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())


def other():
    torch.distributed.init_process_group("nccl", rank=0)
"""


@pytest.mark.parametrize(
    ("command", "sure"),
    [
        ("torchrun --nproc_per_node 2 $(which pkg-train) --steps 3", True),
        ("torchrun --nproc_per_node 2 $(command -v pkg-train)", True),
        ('deepspeed --num_gpus 2 "$(which pkg-train)"', True),
        ("torchrun --nproc_per_node 2 --no-python pkg-train --steps 3", True),
        ("accelerate launch --multi_gpu --num_processes 2 --no_python pkg-train", True),
        ("torchrun --nproc_per_node 2 -m pkg.train", False),
    ],
)
def test_a_console_script_calls_its_function(command: str, sure: bool) -> None:
    """Its module's body calls nothing, and what another function of the module does is none of the run's."""
    script = '[project]\nname = "pkg"\nversion = "0"\n[project.scripts]\npkg-train = "pkg.train:main"\n'
    write({"pyproject.toml": script, "pkg/__init__.py": "", "pkg/train.py": _ENTRY, "a.sh": f"{command}\n"})
    found = {one.hazard for one in check((), ["bash", "a.sh"]).report.findings if one.certainty is Certainty.CERTAIN}
    assert found == ({"nccl-duplicate-gpu-hardcoded-device"} if sure else set())


@pytest.mark.parametrize(
    "line",
    ["git+https://example.org/a/handbook@606d2e9", "own @ git+https://example.org/a/own.git", "-e git+ssh://git@example.org/a/b"],
)  # fmt: skip
def test_what_is_built_from_a_repository_is_named_as_unread(line: str) -> None:
    write({"train.py": "import torch\n", "requirements.txt": f"torch\n{line}\n"})
    notes = " ".join(note.en for note in check((), ["torchrun", "train.py"]).report.notes)
    assert "git+" in notes
    assert "(requirements.txt:2)" in notes
    write({"requirements.txt": "torch\nhandbook\n"})
    assert not any("repository" in note.en for note in check((), ["torchrun", "train.py"]).report.notes)


@pytest.mark.parametrize(
    "started", ["python $CODE/tools/train.py", "cd $CODE\nexport PYTHONPATH=.\npython tools/train.py"]
)
def test_a_program_that_the_script_copies_first_is_read(started: str) -> None:
    write({"tools/train.py": "from lib import rows\nprint(rows)\n", "lib/__init__.py": "rows = [1]\n"})
    script = f"CODE=exp/first/code\nmkdir -p $CODE\ncp -r tools lib $CODE\nexport PYTHONPATH=$CODE\n{started}\n"
    write({"train.sh": script})
    answer = check(["train.sh"])
    assert not answer.report.skipped
    assert any("lib/__init__.py" in one.en for one in answer.report.covered)


def test_a_submodule_that_is_not_checked_out_keeps_its_importer_from_go() -> None:
    modules = '[submodule "engine"]\n\tpath = third_party/our-engine\n\turl = https://example.org/engine.git\n'
    write({"train.py": "import our_engine\n\nprint(our_engine)\n", ".gitmodules": modules})
    write({"launch.sh": "torchrun --nproc_per_node 2 train.py\n"})
    Path("third_party/our-engine").mkdir(parents=True)
    (gap,) = check(["launch.sh"]).report.skipped
    assert (gap.what.en, "git submodule update --init" in gap.why.en) == ("third_party/our-engine", True)
    write({"third_party/our-engine/README.md": "here"})
    assert not check(["launch.sh"]).report.skipped

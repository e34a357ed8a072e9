"""The packages that a project asks for, and its own: what prepare reads of its files, and what a rehearsal takes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gonogo.evidence.environment.own_package import project_package
from gonogo.evidence.prepared import FOLDER, MANIFEST, PreparedStandIns, read_prepared
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, RankRecord, RehearsalRecord
from gonogo.prepare.environment_mismatch import find_project_file, project_not_installed_text
from gonogo.prepare.output import write_list as show
from gonogo.prepare.packages.requested import versions_from_file
from gonogo.prepare.prepare import EnvironmentOptions, distribution_files, prepare, read_launches, redirect_own_modules
from gonogo.prepare.project_requirements import FILE, ProjectPackages, project_packages
from gonogo.prepare.provided_files import AS_INSTALLED, PATH_VARIABLE, environment_with_project_package
from gonogo.prepare.required_inputs import PrepareOptions
from gonogo.prepare.stub_packages import unmentioned_stub_packages
from gonogo.rehearse.launch.worker_environment import with_packages
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.world import ProjectWorld
from gonogo.rehearse.request import RehearsalRequest, in_prepared_environment
from gonogo.rehearse.resolve import _find_project_command, unset_variables

SETUP = """\
import re
from setuptools import find_packages, setup

_deps = ["accelerate==1.4.0", "jieba", "trl[vllm]==0.18.0", "ruff>=0.9", "torch==2.6.0; python_version>='3'"]
deps = {b: a for a, b in (re.findall(r"^(([^!=<>~ ;]+).*)$", x)[0] for x in _deps)}
install_requires = [deps["accelerate"], deps["trl"], deps["torch"], "never>=1; python_version<'3'"]

setup(
    name="open-r1", version="0.1.0.dev0", package_dir={"": "src"}, packages=find_packages("src"),
    install_requires=install_requires, extras_require={"dev": [deps["ruff"]], "zh": [deps["jieba"]]},
    entry_points={"console_scripts": ["open-r1 = open_r1.cli:main"]},
)
"""


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write(tmp_path, {
        ".git/HEAD": "",
        "setup.py": SETUP,
        "src/open_r1/__init__.py": '__version__ = "9"\n',
        "src/open_r1/cli.py": "def main():\n    print('ran')\n",
        "src/open_r1/sft.py": "import jieba, torch\nimport open_r1\n",
        "launch.sh": "accelerate launch src/open_r1/sft.py\n",
    })  # fmt: skip
    monkeypatch.chdir(tmp_path)
    return tmp_path


def asked(folder: Path, *command: str) -> ProjectPackages:
    runs, _ = read_launches(command)
    return project_packages(runs, folder)


def test_a_program_outside_the_project_is_read_with_what_it_imports_of_it(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As it finds the project's package where that is installed in place."""
    program = tmp_path_factory.mktemp("elsewhere") / "run.py"
    write(program.parent, {".git/HEAD": "", "run.py": "from open_r1 import sft\n"})
    runs, _ = read_launches(["python", str(program)])
    read = {Path(script.source.path).name for run in runs for script in run.scripts}
    assert read == {"run.py", "__init__.py", "sft.py"}
    assert project_packages(runs, project).added == ["jieba"]


def test_a_setup_file_is_read_and_not_run(project: Path) -> None:
    own = project_package(project)
    assert own is not None
    assert (own.name, own.version, own.source) == ("open-r1", "0.1.0.dev0", project / "src")
    assert own.scripts == {"open-r1": "open_r1.cli:main"}
    found = asked(project, "bash", "launch.sh")
    assert found.files == ["setup.py"]
    # Of the extras only what the launch imports: jieba, not ruff.
    assert sorted(found.lines.values()) == ["accelerate==1.4.0", "jieba", "torch==2.6.0", "trl[vllm]==0.18.0"]
    assert found.added == ["jieba"]


def test_the_nearest_list_goes_first(project: Path) -> None:
    write(project, {"requirements.txt": "trl==0.7\nopen_r1\n", "src/open_r1/requirements.txt": "datasets>=3\n"})
    found = asked(project, "bash", "launch.sh")
    assert found.files == ["src/open_r1/requirements.txt", "setup.py"]
    assert found.lines["trl"] == "trl[vllm]==0.18.0"
    assert found.lines["datasets"] == "datasets>=3"
    (project / "src/open_r1/requirements.txt").unlink()
    found = asked(project, "bash", "launch.sh")
    assert found.files == ["requirements.txt", "setup.py"]
    assert found.lines["trl"] == "trl==0.7"
    assert "open-r1" not in found.lines


def test_what_another_list_says_of_a_package_keeps_its_extras(project: Path) -> None:
    write(project, {"requirements.txt": "torch\n", "requirements-train.txt": "jieba[fast,paddle]>=0.42\n"})
    assert asked(project, "bash", "launch.sh").lines["jieba"] == "jieba[fast,paddle]>=0.42"


def test_a_list_that_leaves_a_version_open_takes_it_from_the_next(project: Path) -> None:
    write(project, {"requirements.txt": "accelerate\ntrl<2\n"})
    lines = asked(project, "bash", "launch.sh").lines
    assert (lines["accelerate"], lines["trl"]) == ("accelerate==1.4.0", "trl<2")


@pytest.mark.parametrize(
    ("told", "added"),
    [("swanlab tensorboard", ["swanlab", "tensorboard"]), ("wandb", ["wandb"]), ("none", []), ("own_tracker", [])],
)
def test_what_the_launch_reports_to_is_added(project: Path, told: str, added: list[str]) -> None:
    write(project, {"launch.sh": f"accelerate launch src/open_r1/sft.py --report_to {told}\n"})
    assert asked(project, "bash", "launch.sh").added == ["jieba", *added]  # which the script imports


def test_what_conda_alone_has_is_no_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {
        "environment.yml": "dependencies:\n  - _libgcc_mutex=0.1=main\n  - numpy=1.26.4\n  - pip:\n    - trl==0.9.6\n",
        "launch.sh": "python train.py\n",
        "train.py": "import trl\n",
    })  # fmt: skip
    found = asked(tmp_path, "bash", "launch.sh")
    assert {"numpy", "trl"} <= found.lines.keys()
    assert all(name[0].isalnum() for name in found.lines)
    assert found.differs_from_installed


def test_requirements_that_a_setup_file_reads(tmp_path: Path) -> None:
    write(tmp_path, {
        "setup.py": "def read(path='requirements.txt'):\n    return open(path).read().split()\n\n"
                    "requires, links = read()\nsetup(name='one', version='1', install_requires=requires)\n",
        "requirements.txt": "einops==0.8.0\n",
        "one/__init__.py": "",
    })  # fmt: skip
    own = project_package(tmp_path)
    assert own is not None
    assert own.files == (tmp_path / "requirements.txt",)
    assert own.source == tmp_path


def test_an_engine_that_is_stood_in_for_is_absent_where_nothing_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMFlow guards its import of vLLM, which its extras alone have: without these no run comes to what it hides."""
    write(tmp_path, {
        ".git/HEAD": "",
        "requirements.txt": "datasets\n",
        "setup.py": "from setuptools import setup\nsetup(name='flow', install_requires=['datasets'],"
        " extras_require={'vllm': ['vllm>=0.4.3']})\n",
        "guarded.py": "try:\n    import vllm\nexcept ImportError:\n    vllm = None\n",
        "train.py": "import guarded\n",
        "grpo.py": "from trl import GRPOConfig\nGRPOConfig(use_vllm=True)\n",
        "config.yaml": "use_vllm: true\n",
        "train.sh": "torchrun train.py --config config.yaml\n",
    })  # fmt: skip
    monkeypatch.chdir(tmp_path)

    def without(*command: str) -> tuple[str, ...]:
        runs, _ = read_launches(command)
        return unmentioned_stub_packages(project_packages(runs, Path.cwd()), command, runs)

    assert without("torchrun", "train.py") == ("vllm", "xformers")
    assert without("torchrun", "train.py", "--use_vllm") == ("xformers",)
    assert without("torchrun", "train.py", "--enable_xformers_memory_efficient_attention") == ("vllm",)
    assert without("torchrun", "grpo.py") == ("xformers",)
    assert without("bash", "train.sh") == ("xformers",)
    (tmp_path / "requirements.txt").write_text("trl[vllm]\nxformers==0.0.30\n")
    assert without("torchrun", "train.py") == ()
    assert unmentioned_stub_packages(ProjectPackages(), ["torchrun", "train.py"], []) == ()


def test_a_worker_that_needs_the_engine_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {".git/HEAD": "", "requirements.txt": "torch==2.1.0\n", "train.py": "import rollout\n"})
    monkeypatch.chdir(tmp_path)
    lacks = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
    lacks.failure = Failure("ImportError", "vLLM is not available, please install vllm.", (), "load", 0)
    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    asked: list[tuple[str, ...]] = []

    def look() -> RankRecord:
        table = read_prepared(tmp_path / FOLDER)
        asked.append(table.absent if table is not None else ())
        return lacks if len(asked) == 1 else done

    prepare(["torchrun", "train.py"], PrepareOptions(8, 64, {}), EnvironmentOptions(), write=True, probe=look)
    assert asked == [("vllm", "xformers"), ("xformers",)]


@pytest.mark.parametrize(
    ("torch", "written"),
    [
        ("torch==2.10", "triton==3.6.*"),
        ("torch==2.6.0+cu124", "triton==3.2.*"),
        ("torch==2.7.*", "triton==3.3.*"),
        ("torch>=2.4", "triton"),
        ("torch==9.9", "triton"),
    ],
)
def test_a_package_that_no_file_lists_goes_with_the_torch_that_one_pins(torch: str, written: str) -> None:
    found = ProjectPackages(lines={"torch": torch})
    assert found.add("triton")
    assert found.requirements_file().decode().splitlines()[-1] == written


def test_only_a_name_that_something_vouches_for_is_added() -> None:
    found = ProjectPackages(lines={"torch": "torch"}, asked={"decord": "decord>=0.6"})
    assert found.add("decord")
    assert found.add("wandb")
    assert not found.add("wandb")
    assert found.add("torchvision")  # which PyTorch's page has pip install together with torch
    assert not found.add("internal-utils")
    assert "# What the launch needs beside:\ndecord>=0.6\ntorchvision\nwandb\n" in found.requirements_file().decode()


def test_prepared_packages_are_taken_unless_others_are_named(project: Path) -> None:
    done = prepare(["bash", "launch.sh"], PrepareOptions(), EnvironmentOptions(), write=True, probe=None)
    assert done.folder == FOLDER
    assert (project / FOLDER / FILE).read_text().splitlines()[1:] == [
        "accelerate==1.4.0", "torch==2.6.0", "trl[vllm]==0.18.0", "# What the launch needs beside:", "jieba",
    ]  # fmt: skip
    request = RehearsalRequest(["bash", "launch.sh"])
    taken = in_prepared_environment(request, project)
    assert taken.environment == Path(FOLDER, FILE)
    assert in_prepared_environment(taken, project) == taken
    installed = in_prepared_environment(replace(request, environment=AS_INSTALLED), project)
    assert installed.environment is None
    assert in_prepared_environment(installed, project) == installed
    named = replace(request, environment=Path("other.txt"))
    assert in_prepared_environment(named, project) == named


def test_the_projects_own_package_is_found_with_its_commands(project: Path) -> None:
    prepare(["bash", "launch.sh"], PrepareOptions(), EnvironmentOptions(as_installed=True), write=True, probe=None)
    assert not (project / FOLDER / FILE).exists()
    environment = with_packages(environment_with_project_package(os.environ, project), ())
    code = "import open_r1, importlib.metadata as m; print(open_r1.__version__, m.version('open-r1'))"
    shown = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True)
    assert shown.stdout == "9 0.1.0.dev0\n", shown.stderr
    ran = subprocess.run(["open-r1"], env=environment, cwd="/", capture_output=True, text=True)
    assert ran.stdout == "ran\n", ran.stderr
    # What a launch script makes of PYTHONPATH does not lose it.
    assert with_packages({"PYTHONPATH": "x", PATH_VARIABLE: "y"}, [Path("z")])["PYTHONPATH"] == "z:x:y"


@pytest.mark.parametrize(
    ("imported", "second", "found"), [("util.misc", False, True), ("torch", False, False), ("util.misc", True, False)]
)
def test_a_package_of_a_subfolder_supplies_what_the_program_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, imported: str, second: bool, found: bool
) -> None:
    write(tmp_path, {
        ".git/HEAD": "",
        "train.py": f"import {imported}\n",
        "detr/setup.py": "from setuptools import find_packages, setup\nsetup(name='detr', packages=find_packages())\n",
        "detr/util/__init__.py": "",
        "detr/util/misc.py": "",
        **({"other/setup.py": "setup(name='other')\n", "other/util/__init__.py": ""} if second else {}),
    })  # fmt: skip
    monkeypatch.chdir(tmp_path)
    own = asked(tmp_path, "python", "train.py").own
    assert (own is not None and own.source == tmp_path / "detr") is found


def test_a_vendored_package_does_not_hide_the_installed_one(tmp_path: Path) -> None:
    write(tmp_path, {
        "pyproject.toml": '[project]\nname = "llava"\nversion = "1.7"\n',
        "llava/__init__.py": "here = __file__\n",
        "llava/train.py": "name = __name__\n",
        "trl/__init__.py": "",
    })  # fmt: skip
    own = project_package(tmp_path)
    assert own is not None
    assert redirect_own_modules(own, lambda name: False) == {}
    files = {**distribution_files(own), **redirect_own_modules(own, lambda name: name == "trl")}
    assert "project/code/trl/__init__.py" not in files
    for name, content in files.items():
        write(tmp_path / "made", {name: content.decode()})
    code = "import llava, llava.train as t; print(llava.here, t.name)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "made/project/code")}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, cwd="/", capture_output=True, text=True)
    assert shown.stdout.split() == [str(tmp_path / "llava/__init__.py"), "llava.train"], shown.stderr


def test_a_version_that_stands_in_a_file_of_its_own(tmp_path: Path) -> None:
    write(tmp_path, {
        "pyproject.toml": '[project]\nname = "trl"\ndynamic = ["version"]\n'
                          '[tool.setuptools.dynamic]\nversion = { file = "VERSION" }\n',
        "VERSION": "1.2.0.dev0\n",
        "trl/__init__.py": "",
    })  # fmt: skip
    own = project_package(tmp_path)
    assert own is not None
    assert own.version == "1.2.0.dev0"


def test_an_older_table_is_read_too(tmp_path: Path) -> None:
    write(tmp_path, {f"{FOLDER}/{MANIFEST}": '{"models":{"a/b":"models/b"}}'})
    request = RehearsalRequest(["python", "x.py"])
    assert in_prepared_environment(request, tmp_path) == request
    assert msgspec.json.decode((tmp_path / FOLDER / MANIFEST).read_bytes(), type=PreparedStandIns).source == ""


def test_variables_that_nothing_sets_are_missing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = "NAME=x\ntorchrun --nproc_per_node $GPUS_THERE src/open_r1/sft.py --run_name $NAME --seed ${SEED:-1}\n"
    write(project, {"launch.sh": script})
    done = prepare(["bash", "launch.sh"], PrepareOptions(), EnvironmentOptions(), write=False, probe=None)
    assert [(one.name, one.state) for one in done.wanted if one.kind == "variable"] == [("GPUS_THERE", "missing")]
    assert unset_variables(["bash", "launch.sh"], str(project), {}) == ["GPUS_THERE"]
    assert unset_variables(["bash", "launch.sh"], str(project), {"GPUS_THERE": "8"}) == []
    monkeypatch.setenv("GPUS_THERE", "8")
    done = prepare(["bash", "launch.sh"], PrepareOptions(), EnvironmentOptions(), write=False, probe=None)
    assert not [one for one in done.wanted if one.state == "missing"]


def test_no_model_is_made_for_a_function_that_nothing_calls(project: Path) -> None:
    code = "from transformers import AutoModel\n\ndef used():\n    AutoModel.from_pretrained('gpt2')\n\n"
    code += "def unused():\n    AutoModel.from_pretrained('facebook/opt-125m')\n\nused()\n"
    write(project, {"src/open_r1/sft.py": code})
    done = prepare(["bash", "launch.sh"], PrepareOptions(), EnvironmentOptions(), write=False, probe=None)
    assert [one.name for one in done.wanted if one.kind == "model"] == ["gpt2"]


def test_what_is_said_where_the_project_is_not_installed(project: Path) -> None:
    file = find_project_file("open_r1", project)
    assert file == project / "setup.py"
    assert "pip install -e ., or run gonogo prepare" in project_not_installed_text("open_r1", file).en


def test_what_a_projects_page_has_pip_install_is_asked_for_where_it_has_no_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import fastcore\n")
    (tmp_path / "README.md").write_text(
        '- `pip install llama-recipes fastcore "transformers!=4.38.*" --extra-index-url https://a.b/c` first\n'
        "```\npip install -U wandb  # to log\npip install git+https://a.b/c -r more.txt\n```\n"
    )
    packages = project_packages([], tmp_path)
    assert packages.files == ["README.md"]
    assert packages.lines == {
        "llama-recipes": "llama-recipes",
        "fastcore": "fastcore",
        "transformers": "transformers!=4.38.*",
        "wandb": "wandb",
    }
    (tmp_path / "requirements.txt").write_text("torch\n")
    packages = project_packages([], tmp_path)
    assert packages.files == ["requirements.txt"]
    assert list(packages.lines) == ["torch"]
    assert packages.add("fastcore")
    assert not packages.add("somebody-elses")
    (tmp_path / "setup.sh").write_text("pip install python-Levenshtein\n")
    packages = project_packages([], tmp_path)
    assert packages.add("levenshtein")
    assert packages.added == ["python-levenshtein"]


def test_what_a_projects_page_installs_with_conda_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text(
        "```\nconda create --name raft python=3.9\nconda activate raft\n"
        "conda install pytorch=1.6.0 cudatoolkit=10.1 scipy opencv \\\n  -c pytorch\n```\n"
    )
    packages = project_packages([], tmp_path)
    assert packages.files == ["README.md"]
    assert packages.lines == {"torch": "torch==1.6.0", "scipy": "scipy", "opencv-python": "opencv-python"}


@pytest.mark.parametrize(
    "line",
    ["conda env create -f env/cuda.yaml", "mamba env update --file=env/cuda.yaml", "pip install -U -r env/cuda.yaml"],
)
def test_the_list_that_a_projects_page_names_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "cuda.yaml").write_text("dependencies:\n  - pytorch=2.2\n  - pip:\n    - lightning==2.2.1\n")
    (tmp_path / "README.md").write_text(f"```bash\n{line}\npip install -r ../outside.txt\n```\n")
    packages = project_packages([], tmp_path)
    assert packages.files == ["env/cuda.yaml"]
    assert packages.lines == {"torch": "torch==2.2.*", "lightning": "lightning==2.2.1"}
    (tmp_path / "requirements.txt").write_text("torch\n")
    assert project_packages([], tmp_path).files == ["requirements.txt"], "the usual name comes first"


def test_the_projects_own_command_is_prepared_and_never_taken_for_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {
        "pyproject.toml": '[project]\nname = "tuner"\nversion = "1"\nscripts = {tune = "tuner.cli:main"}\n',
        "tuner/__init__.py": "",
        "tuner/cli.py": 'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("gpt2")\n',
        "bin/tune": f"#!{sys.executable}\nraise SystemExit(2)\n",
    })  # fmt: skip
    (tmp_path / "bin" / "tune").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    command = [sys.executable, "-m", "gonogo", "rehearse", "--no-prepare", "--", "tune", "run"]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "own package, which is not installed: run gonogo prepare -- COMMAND" in refused.stderr
    done = prepare(["tune", "run"], PrepareOptions(), EnvironmentOptions(as_installed=True), write=True, probe=None)
    assert (tmp_path / FOLDER / "project" / "bin" / "tune").exists()
    laid = environment_with_project_package(os.environ, tmp_path)["PATH"]
    assert _find_project_command("tune", "tuner.cli:main", laid) == str(tmp_path / FOLDER / "project" / "bin" / "tune")
    assert [one.name for one in done.wanted if one.kind == "model"] == ["gpt2"]


def test_a_package_that_the_program_says_is_to_be_installed_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """open_clip asserts it of tensorboard, which none of its lists has."""
    write(tmp_path, {".git/HEAD": "", "requirements.txt": "torch==2.1.0\n", "train.py": "import torch\n"})
    monkeypatch.chdir(tmp_path)

    def told(said: str) -> RankRecord:
        record = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised")
        record.failure = Failure("AssertionError", said, (), "load", 0)
        return record

    done = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="completed")
    lightning = "Requirement 'tensorboardX>=2.2' not met. HINT: Try running `pip install -U 'tensorboardX'`"
    said = ("Please install tensorboard.", lightning, "No module named 'triton'", "Please install the latest release.")
    worker = iter([*map(told, said), done, done])
    found = prepare(
        ["torchrun", "train.py"],
        PrepareOptions(8, 64, {}),
        EnvironmentOptions(),
        write=True,
        probe=lambda: next(worker),
    )
    assert found.packages.added == ["tensorboard", "tensorboardx", "triton"]  # torch's CUDA build brings Triton
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)

    def outcome(said: str, **has: str) -> str:
        rank = told(said)
        record = RehearsalRecord(["python"], str(tmp_path), 1, 1, 1, facts, 2, None, ranks=[rank], laid_over=has)
        record.whole_environment = True
        apply_limits(record, ProjectWorld.from_files(tmp_path, tmp_path))
        return rank.outcome

    assert outcome("Please install `wandb`, or leave it out") == "unsupported"
    assert outcome("Please install `wandb`, or leave it out", wandb="0.20") == "raised"
    assert outcome("Please install the latest release.") == "raised"


def test_a_package_without_an_init_file_is_the_projects_own(tmp_path: Path) -> None:
    """llama-cookbook's: below src, and imported by its examples."""
    write(tmp_path, {
        "pyproject.toml": '[project]\nname = "llama-cookbook"\ndynamic = ["dependencies"]\n',
        "src/README.md": "",
        "src/llama_cookbook/finetuning.py": "",
        "src/llama_cookbook/configs/__init__.py": "",
    })  # fmt: skip
    own = project_package(tmp_path)
    assert own is not None
    assert own.source == tmp_path / "src"
    (tmp_path / "src/llama_cookbook/finetuning.py").unlink()
    assert project_package(tmp_path) is None


def test_addresses_stay_and_index_lines_are_said(project: Path) -> None:
    write(project, {
        "requirements.txt": "--extra-index-url https://other/simple\ngit+https://host/o/coolpkg.git\n"
        "peft @ git+https://host/o/peft@main\njieba==0.42.1\n",
        "setup.py": 'from setuptools import setup\nsetup(name="x", py_modules=[],\n'
        '      install_requires=["trl @ git+https://host/trl", "coolpkg==1.0", "peft>=0.9"])\n',
        "requirements-more.txt": "extra-one @ git+https://host/extra-one\n",
    })  # fmt: skip
    runs, _ = read_launches(["python", "src/open_r1/sft.py"])
    packages = project_packages(runs, project)
    assert packages.lines["coolpkg"] == "coolpkg @ git+https://host/o/coolpkg.git"
    assert packages.lines["peft"] == "peft @ git+https://host/o/peft@main"
    assert packages.lines["trl"] == "trl @ git+https://host/trl"
    assert packages.add("extra-one")
    assert packages.lines["extra-one"] == "extra-one @ git+https://host/extra-one"
    (project / "environment.txt").write_bytes(packages.requirements_file())
    wanted = versions_from_file(project / "environment.txt")
    assert wanted.addresses.keys() == {"coolpkg", "peft", "trl", "extra-one"}
    assert "jieba" in wanted.specifiers
    done = prepare(["python", "src/open_r1/sft.py"], PrepareOptions(), EnvironmentOptions(), write=False, probe=None)
    out = io.StringIO()
    show(out, done, ["python"], "text", "en", False)
    assert "coolpkg from git+https://host/o/coolpkg.git" in out.getvalue()
    assert "ignored: requirements.txt:1: --extra-index-url https://other/simple" in out.getvalue()


def test_what_a_page_states_in_prose_is_the_runs_release_where_no_list_says_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {
        ".git/HEAD": "",
        "README.md": "Tested with PyTorch 1.10.0, timm 0.5.0 and transformers 4.8.1.\n",
        "requirements.txt": "transformers>=4.20\n",
        "train.py": "import timm\nimport torch\nimport transformers\n",
    })  # fmt: skip
    found = project_packages(read_launches(["torchrun", "train.py"])[0], tmp_path)
    assert found.lines == {"torch": "torch==1.10.0", "timm": "timm==0.5.0", "transformers": "transformers>=4.20"}
    assert found.files == ["requirements.txt", "README.md"]

"""What only the packages of this machine refuse is told as a limit; what any would refuse stays certain."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from gonogo.evidence.prepared import PreparedStandIns
from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, Frame, RankRecord, RehearsalRecord
from gonogo.finding import UserError
from gonogo.finding.remedy import Purpose
from gonogo.prepare.environment_mismatch import missing_packages
from gonogo.prepare.packages.full_environment import _cutoff_date
from gonogo.prepare.project_requirements import FILE
from gonogo.rehearse.limits.certificate import apply_limits
from gonogo.rehearse.limits.synthetic_data_failures import _explain_package_failure
from gonogo.rehearse.limits.world import ProjectWorld

LIBRARY = "/env/lib/python3.11/site-packages/transformers/trainer.py"


def record_of(folder: Path, kind: str, message: str, *, library: str = "", laid_over: bool = False) -> RehearsalRecord:
    frames = [Frame(str(folder / "train.py"), 3, "<module>", "import", "user")]
    if library:
        frames.append(Frame(library, 9, "f", "x", "library"))
    rank = RankRecord(
        rank=0,
        local_rank=0,
        device="cuda:0",
        outcome="raised",
        failure=Failure(kind, message, tuple(frames), "load", 0),
        versions={"transformers": "5.23.0", "torch": "2.13.0"},
    )
    return RehearsalRecord(
        command=["python", "train.py"],
        cwd=str(folder),
        world_size=1,
        nodes=1,
        ranks_per_node=1,
        accelerator=AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0),
        steps=2,
        host_memory_bytes=None,
        ranks=[rank],
        laid_over={"datasets": "2.9.0"} if laid_over else {},
    )


def why(record: RehearsalRecord, environment: Path | None = None) -> str | None:
    """What is said instead of an error; None where it stays the program's."""
    folder = Path(record.cwd)
    apply_limits(record, ProjectWorld.from_files(folder, folder, environment))
    (rank,) = record.ranks
    assert (rank.outcome == "unsupported") == bool(rank.unsupported)
    return rank.unsupported[0].why if rank.unsupported else None


@pytest.mark.parametrize(
    ("message", "package"),
    [
        ("No module named 'yaml.reader'", "pyyaml"),
        ("DeepSpeed is not available => install it using `pip3 install deepspeed` or build it", "deepspeed"),
        (
            "the latest version of bitsandbytes `pip install -i https://test.pypi.org/simple/ bitsandbytes`",
            "bitsandbytes",
        ),
        ("CUDA is not available", None),
        ("pip install git+https://github.com/me/mine", None),
        ("pip install -r requirements.txt", None),
    ],
)
def test_the_package_that_is_missing(message: str, package: str | None) -> None:
    failure = Failure("AssertionError", message, (), "load", 0)
    assert missing_packages(failure) == ([package] if package else [])


@pytest.mark.parametrize(
    ("line", "said", "package"),
    [
        ("import ruamel.yaml as yaml", "ruamel", "ruamel-yaml"),
        ("from google.cloud.storage import Client", "google", "google-cloud-storage"),
        ("from google.protobuf import message", "google", "protobuf"),
        ("import yaml.reader", "yaml", "pyyaml"),
        ("from ruamel import yaml", "ruamel", "ruamel"),
    ],
)
def test_a_name_that_packages_share_is_told_by_the_import(line: str, said: str, package: str) -> None:
    frames = (Frame("/x/train.py", 3, "<module>", line, "user"),)
    failure = Failure("ModuleNotFoundError", f"No module named '{said}'", frames, "load", 0)
    assert missing_packages(failure) == [package]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository whose launch stands two folders below the file that lists its packages."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "examples" / "sft").mkdir(parents=True)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "no-such-tracker>=0.3\ntorch\n"),
        ("requirements-train.txt", "no_such_tracker\n"),
        ("pyproject.toml", '[project]\nname = "x"\ndependencies = ["no-such-tracker>=0.3"]\n'),
        ("setup.py", 'setup(install_requires=["no-such-tracker >= 0.3", "torch"])\n'),
        ("environment.yml", "dependencies:\n  - python=3.10\n  - pip:\n    - no-such-tracker\n"),
    ],
)
def test_a_module_that_the_project_asks_for_is_only_missing_here(project: Path, name: str, text: str) -> None:
    (project / name).write_text(text)
    record = record_of(project / "examples" / "sft", "ModuleNotFoundError", "No module named 'no_such_tracker'")
    said = why(record)
    assert said is not None
    assert "no-such-tracker is not installed here" in said
    assert "pip install no-such-tracker" in said
    assert name in said


def test_a_file_above_the_repository_counts_for_nothing(project: Path) -> None:
    repository = project / "examples"
    (repository / ".git").mkdir()
    (project / "requirements.txt").write_text("no-such-tracker\n")
    said = why(record_of(repository / "sft", "ModuleNotFoundError", "No module named 'no_such_tracker'"))
    assert said is not None
    assert "requirements.txt" not in said


def test_a_module_is_only_missing_here_where_no_file_says_what_the_run_has(project: Path) -> None:
    message = "No module named 'no_such_tracker.api'"
    said = why(record_of(project, "ModuleNotFoundError", message))
    assert "no-such-tracker is not installed here, and no file of the project" in (said or "")
    (project / "lib").mkdir()
    (project / "lib" / "no_such_tracker.py").touch()
    assert (
        why(record_of(project, "ModuleNotFoundError", message)) is None
    )  # it is the project's own, and not where Python looks


def test_a_package_that_transformers_checks_for_is_named_in_a_sentence(project: Path) -> None:
    """``require_version`` puts its whole sentence where importlib.metadata has a name."""
    (project / "requirements.txt").write_text("no-such-plots>=3.7\n")
    message = (
        "No package metadata was found for The 'no-such-plots' distribution was not found and is required by this "
        "application. \nTo fix: run `pip install no-such-plots`."
    )
    said = why(record_of(project, "importlib.metadata.PackageNotFoundError", message))
    assert said is not None
    assert "no-such-plots is not installed here" in said


def test_a_module_that_nothing_asks_for_is_missing(project: Path) -> None:
    (project / "requirements.txt").write_text("torch\n")
    assert why(record_of(project, "ModuleNotFoundError", "No module named 'no_such_tracker'")) is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("ModuleNotFoundError", "No module named 'mychat'"),
        ("importlib.metadata.PackageNotFoundError", "No package metadata was found for my-project"),
    ],
)
def test_a_project_that_is_not_installed_itself_says_nothing_of_its_run(project: Path, kind: str, message: str) -> None:
    (project / "pyproject.toml").write_text('[project]\nname = "my_project"\ndependencies = ["mychat"]\n')
    (project / "mychat").mkdir()
    (project / "mychat" / "__init__.py").touch()
    said = why(record_of(project / "examples" / "sft", kind, message))
    assert said is not None
    assert "is this project itself" in said
    assert "pip install -e" in said


def test_a_signature_is_of_the_package_that_the_file_imports_it_from(project: Path) -> None:
    """What refuses a call by its signature leaves no frame of its own, and its message names no package."""
    (project / "requirements.txt").write_text("transformers==4.35.0\n")
    message = "Trainer.__init__() got an unexpected keyword argument 'tokenizer'"
    (project / "train.py").write_text("from transformers import Trainer\n")
    assert "transformers==4.35.0" in (why(record_of(project, "TypeError", message)) or "")
    (project / "train.py").write_text("from mine import Trainer\n")
    assert why(record_of(project, "TypeError", message)) is None


def test_the_name_of_a_setup_script_is_no_package_that_it_asks_for(project: Path) -> None:
    (project / "setup.py").write_text('from setuptools import setup\nsetup(name="mychat", version="1")\n')
    said = why(record_of(project, "ModuleNotFoundError", "No module named 'mychat'"))
    assert said is not None
    assert "is this project itself" in said


def test_the_file_that_was_named_goes_first(project: Path) -> None:
    named = project / "lock.txt"
    named.write_text("transformers==4.37.2\n")
    (project / "requirements.txt").write_text("transformers>=5\n")
    record = record_of(project, "ImportError", "cannot import name 'x' from 'transformers'")
    said = why(record, named)
    assert said is not None
    assert "requires transformers==4.37.2, but 5.23.0 is installed" in said


@pytest.mark.parametrize(
    ("kind", "message", "library"),
    [
        ("ImportError", "cannot import name 'deepspeed' from 'transformers' (/env/x.py)", ""),
        ("ModuleNotFoundError", "No module named 'transformers.deepspeed'", ""),
        ("AttributeError", "'Trainer' object has no attribute 'tokenizer'", LIBRARY),
        ("TypeError", "Trainer.__init__() got an unexpected keyword argument 'tokenizer'", LIBRARY),
    ],
)
def test_an_api_of_another_version_than_is_pinned_says_nothing(
    project: Path, kind: str, message: str, library: str
) -> None:
    (project / "requirements.txt").write_text("transformers<4.38\n")
    said = why(record_of(project / "examples", kind, message, library=library))
    assert said is not None
    assert "requires transformers<4.38, but 5.23.0 is installed" in said
    assert "--environment" in said


@pytest.mark.parametrize(
    ("pin", "kind", "message"),
    [
        ("transformers>=5", "ImportError", "cannot import name 'deepspeed' from 'transformers' (/env/x.py)"),
        ("transformers<4.38", "RuntimeError", "Expected all tensors to be on the same device"),
        ("transformers<4.38", "AttributeError", "'Model' object has no attribute 'head'"),
        ("transformers<4.38", "KeyError", "'labels'"),
    ],
)
def test_what_the_pinned_version_would_refuse_too_stays_certain(
    project: Path, pin: str, kind: str, message: str
) -> None:
    (project / "requirements.txt").write_text(f"{pin}\n")
    assert why(record_of(project, kind, message)) is None


@pytest.mark.parametrize(
    ("pin", "message", "told"),
    [
        ("transformers==4.28.1", "cannot import name 'prepare_model_for_int8_training' from 'peft' (/env/x.py)", True),
        ("transformers==4.28.1", "module 'numpy' has no attribute 'float'", True),
        ("transformers==4.28.1", "cannot import name 'Mapping' from 'collections' (/py/x.py)", False),
        ("transformers==4.28.1", "cannot import name 'Net' from 'train' (train.py)", False),
        ("transformers>=5", "cannot import name 'prepare_model_for_int8_training' from 'peft' (/env/x.py)", False),
    ],
)
def test_where_the_projects_packages_are_of_another_time_what_it_does_not_list_is_too(
    project: Path, pin: str, message: str, told: bool
) -> None:
    (project / "requirements.txt").write_text(f"{pin}\n")
    (project / "train.py").touch()
    said = why(record_of(project, "ImportError", message))
    assert (said is not None and "requires transformers==4.28.1, but 5.23.0 is installed" in said) is told


def test_an_old_package_laid_over_newer_ones_may_not_know_them(project: Path) -> None:
    message = "module 'pyarrow' has no attribute 'PyExtensionType'"
    record = record_of(project, "AttributeError", message, library="/overlay/datasets/features.py", laid_over=True)
    said = why(record)
    assert said is not None
    assert "datasets 2.9.0 was installed over this Python's other packages" in said
    assert why(record_of(project, "AttributeError", message, laid_over=True)) is None


def test_a_whole_environment_is_laid_over_nothing(project: Path) -> None:
    """What this Python has, or lacks, says nothing of it."""
    message = "module 'pyarrow' has no attribute 'PyExtensionType'"
    record = record_of(project, "AttributeError", message, library="/overlay/datasets/features.py", laid_over=True)
    record.whole_environment = True
    assert why(record) is None
    (project / "requirements.txt").write_text("pytest\n")
    lacking = record_of(project, "ModuleNotFoundError", "No module named 'pytest'", laid_over=True)
    assert why(lacking) is None
    lacking.whole_environment, lacking.ranks[0].outcome = True, "raised"
    assert "pytest is not installed" in (why(lacking) or "")


@pytest.mark.parametrize("library", ["", "/env/lib/python3.11/site-packages/torch/nn/init.py"])
def test_a_torch_that_only_the_day_excludes_leads_to_the_releases_of_today(project: Path, library: str) -> None:
    (project / "requirements.txt").write_text("torch>=2.5\n")
    for by_date, version, option in (
        (["torch"], "==2.6.0", ("--as-of", "today")),
        ([], "==2.0.1", ("--environment", "none")),  # too old for a rehearsal
        ([], "==2.6.0", ()),
    ):
        record = record_of(project, "ImportError", "cannot import name '_Old' from 'torch.x'", library=library)
        record.whole_environment, record.differing, record.differing_by_date = True, ["torch"], by_date
        record.torch_requested = version
        record.ranks[0].imported["torch"] = "2.13.0"
        why(record)
        (gap,) = record.ranks[0].unsupported
        assert gap.remedy is not None
        assert gap.remedy.options == option
        assert (gap.remedy.purpose is Purpose.AFTER_TORCH) == (option == ())


@pytest.mark.parametrize(("message", "told"), [("no algorithm", False), ("operator torchvision::nms is missing", True)])
def test_lacking_operators_matter_to_what_points_to_them(project: Path, message: str, told: bool) -> None:
    """torchvision of the right release has all its Python code; another release of it may be the reason of anything."""
    record = record_of(project, "ValueError", message)
    record.whole_environment, record.differing, record.without_operators = True, ["torchvision"], ["torchvision"]
    record.ranks[0].imported["torchvision"] = "0.28.0"
    assert (why(record) is not None) is told
    if not told:  # an exception within it, of which the program makes one of its own
        failure = record.ranks[0].failure
        assert failure is not None
        inside = '  File "/v/site-packages/torchvision/ops/boxes.py", line 41, in nms\n    op(boxes)\nRuntimeError: x\n'
        during = "\nDuring handling of the above exception, another exception occurred:\n\n"
        own = f'  File "{project}/train.py", line 3, in <module>\n    main()\nValueError: {message}\n'
        head = "Traceback (most recent call last):\n"
        record.ranks[0].failure = replace(failure, traceback=f"{head}{inside}{during}{head}{own}")
        assert why(record) is not None
        record.ranks[0].failure = failure
    record.without_operators, record.ranks[0].outcome = [], "raised"
    record.ranks[0].unsupported.clear()
    assert why(record) is not None


def test_a_module_that_its_namesake_lacks_is_not_asked_for_by_that_name_again(project: Path) -> None:
    table = PreparedStandIns(environment=FILE)
    record = record_of(project, "ModuleNotFoundError", "No module named 'ruamel_yaml'")
    failure = record.ranks[0].failure
    assert failure is not None
    for laid, option in (({}, ("--with", "ruamel-yaml")), ({"ruamel-yaml": "0.18.6"}, ())):
        record.laid_over = laid
        reason = _explain_package_failure(failure, table, record, project)
        assert reason is not None
        assert reason.remedy is not None
        assert reason.remedy.options == option


@pytest.mark.parametrize("text", ["2026-13-01", "tomorrow"])
def test_the_day_of_the_releases(tmp_path: Path, text: str) -> None:
    assert _cutoff_date("today", tmp_path / "a.txt") is None
    assert _cutoff_date("2023-11-02", tmp_path / "a.txt") == "2023-11-02"
    with pytest.raises(UserError, match=f"--as-of {text}: write a date"):
        _cutoff_date(text, tmp_path / "a.txt")


_NIGHTLY_LINE = "pip3 install --pre torch --index-url https://download.pytorch.org/whl/nightly/cu130\n"


@pytest.mark.parametrize(
    ("page", "library", "told"),
    [
        (_NIGHTLY_LINE, "/env/site-packages/torch/distributed/fsdp/_fully_shard.py", True),
        (_NIGHTLY_LINE, "", False),
        (f"{_NIGHTLY_LINE}or\n\npip install torch torchvision\n", "/env/site-packages/torch/nn/x.py", False),
        ("pip install --pre torch-geometric\n", "/env/site-packages/torch/nn/x.py", False),
    ],
)
def test_what_a_release_of_torch_refuses_is_not_certain_where_a_nightly_build_is_asked_for(
    project: Path, page: str, library: str, told: bool
) -> None:
    (project / "README.md").write_text(f"Install:\n```\n{page}```\n")
    said = why(
        record_of(project / "examples" / "sft", "ValueError", "all parameters must be DTensors", library=library)
    )
    assert (said is not None) == told
    assert said is None or "--environment none" in said


def test_a_file_that_is_not_here_is_no_matter_of_torchs_release(project: Path) -> None:
    """torchrun's @record puts a frame of torch above each failure of the program."""
    (project / "README.md").write_text(f"Install:\n```\n{_NIGHTLY_LINE}```\n")
    record = record_of(
        project, "FileNotFoundError", "Tokenizer path './assets/hf/some' does not exist",
        library="/env/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py",
    )  # fmt: skip
    assert "./assets/hf/some does not exist on this machine" in (why(record) or "")

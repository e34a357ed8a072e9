"""A certain NO-GO has a certificate: each thing that could make it false here is excluded, and shown."""

from __future__ import annotations

import traceback
from pathlib import Path

import msgspec
import pytest
from certainty_cases import CASES
from lacking_worlds import World, all_worlds, healthy, is_certain, judge, mutated, rehearsed_lacking

from gonogo.evidence.prepared import PreparedStandIns
from gonogo.evidence.rehearsal.failures import failed_ranks
from gonogo.evidence.rehearsal.record import (
    AcceleratorFacts,
    Assumption,
    AssumptionKind,
    FailedLookup,
    Failure,
    Frame,
    RankRecord,
    RehearsalRecord,
)
from gonogo.finding import Certainty, Text, Verdict
from gonogo.finding.as_run import AsRun
from gonogo.finding.divergence import CollectiveCall, Divergence, Side
from gonogo.finding.remedy import Reason
from gonogo.hazards.hazard import Hazard
from gonogo.hazards.index import all_hazards
from gonogo.judge.rehearsal_findings import fallback_findings, findings_from_traceback, findings_in_record
from gonogo.rehearse.answer import rehearsal_report
from gonogo.rehearse.limits.certificate import NAMES, apply_limits, hazard_obligations
from gonogo.rehearse.limits.world import ProjectWorld
from gonogo.virtual.lookups import failed_lookups

WORLDS = all_worlds()
HAZARDS = Path(__file__).parent.parent / "hazards"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_what_a_changed_world_brings_about_is_never_certain(tmp_path: Path, part: int) -> None:
    for number, world in enumerate(WORLDS[part * 12 : part * 12 + 12]):
        whole, lacking = tmp_path / f"whole-{number}", tmp_path / f"lacking-{number}"
        for folder in (whole, lacking):
            folder.mkdir()
            world.write(folder)
        assert healthy(world, whole) is None, world.name
        rank = mutated(world, lacking)
        assert rank is None or not is_certain(rank), (world.name, rank.failure)


@pytest.mark.parametrize("lacks", ["file", "module", "program", "library", "address", "ranks", "assumed"])
def test_it_is_told_by_what_was_taken_down(tmp_path: Path, lacks: str) -> None:
    """Without that the same failures would be certain: what they say does not tell."""
    for number, world in enumerate(one for one in WORLDS if one.lacks == lacks and one.use == "by its type"):
        (folder := tmp_path / str(number)).mkdir()
        world.write(folder)
        record = rehearsed_lacking(folder, {})
        assert record is not None
        (rank,) = record.ranks
        assert rank.failure is not None
        if rank.failure.type == "TypeError":  # None + 1
            rank.absent, rank.assumptions = [], []
            judge(record, folder)
            assert is_certain(rank)
            return
    pytest.fail("none of them goes on with None")


def own_fault(folder: Path, program: str) -> RankRecord:
    World("file", "got = 1", "at the top", "at once").write(folder)
    (folder / "train.py").write_text(program)
    record = rehearsed_lacking(folder, {"numpy": "2.0"})
    assert record is not None
    judge(record, folder)
    return record.ranks[0]


@pytest.mark.parametrize(
    "program",
    [
        'import os\nresume = "last.pt" if os.path.exists("last.pt") else None\nprint([1, 2].count(1, 2, 3))\n',
        "try:\n    import extras_of_run\nexcept ImportError:\n    extras_of_run = None\n{}['rate']\n",
        'import shutil\nfast = shutil.which("tool-of-run") is not None\nprint("x" + 1)\n',
        "value = unknown()\nprint(value)\n\n\n\n\n\n\nraise ValueError('batch of 3 for 2 ranks')\n",
        "import os\nos.makedirs('o', exist_ok=True)\nif not os.path.exists('o/l'):\n    open('o/l', 'w')\n1 / 0\n",
        "import glob\nold = glob.glob('runs/*')\nfor one in old:\n    print(one)\nnames = ['a']\nprint(names[3])\n",
        'import yaml\nyaml.safe_load(open("configs/base.yaml"))\n',
        'import os\nmore = open("own.args").read() if os.path.exists("own.args") else ""\nprint(int("x" + more))\n',
        "import importlib.metadata as m\nof = [list(one.entry_points) for one in m.distributions()]\n1 / len(of[:0])\n",
    ],
)
def test_a_fault_of_the_programs_own_stays_certain(tmp_path: Path, program: str) -> None:
    rank = own_fault(tmp_path, program)
    assert is_certain(rank), [one for one in rank.certificate if not one.met]


def test_a_failure_under_assumed_gpus_may_be_of_their_number(tmp_path: Path) -> None:
    World("file", "got = 1", "at the top", "at once").write(tmp_path)
    (tmp_path / "train.py").write_text("raise ValueError('batch of 12 for 8 ranks')\n")
    record = rehearsed_lacking(tmp_path, {})
    assert record is not None
    world = ProjectWorld(tmp_path, tmp_path, gpus_assumed=Reason(Text("assuming 8", "假定 8 个")))
    apply_limits(record, world)
    (rank,) = record.ranks
    assert not is_certain(rank)
    assert rank.unsupported[0].why == "assuming 8"


def test_a_module_that_was_never_compiled_lacks_nothing(tmp_path: Path) -> None:
    (tmp_path / "rates_of_run.py").write_text("WORD = 'no rows'\n")
    rank = own_fault(tmp_path, "import rates_of_run\n\n\nraise ValueError(rates_of_run.WORD)\n")
    assert rank.failure is not None
    assert rank.failure.message == "no rows"
    assert is_certain(rank), [one for one in rank.certificate if not one.met]


def test_an_entry_of_pythons_path_that_is_not_here_lacks_nothing(tmp_path: Path) -> None:
    """As pythonXY.zip, which whatever looks for packages looks into."""
    elsewhere = "import importlib.metadata\nimport sys\n\nsys.path.insert(0, '/opt/not-here/python.zip')\n"
    rank = own_fault(
        tmp_path, f"{elsewhere}release = importlib.metadata.version('msgspec')\nraise ValueError(release)\n"
    )
    assert rank.failure is not None
    assert rank.failure.type == "ValueError"
    assert is_certain(rank), [one for one in rank.certificate if not one.met]


def record_of(folder: Path, failure: Failure | None = None, **known: object) -> RehearsalRecord:
    rank = RankRecord(rank=0, local_rank=0, device="cuda:0", outcome="raised", versions={"python": "3.11.7"})
    rank.failure = failure or Failure(
        "ValueError", "three rows for two", (Frame(str(folder / "train.py"), 3, "main", "", "user"),), "load", 0
    )
    for name, value in known.items():
        setattr(rank, name, value)
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    return RehearsalRecord(["python", "train.py"], str(folder), 1, 1, 1, facts, 2, None, ranks=[rank])


def lacking(record: RehearsalRecord, world: ProjectWorld) -> list[str]:
    apply_limits(record, world)
    return [one.name for one in record.ranks[0].certificate if not one.met]


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("pyproject.toml", '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.12"\n', False),
        ("pyproject.toml", '[project]\nname = "x"\nversion = "0"\nrequires-python = ">=3.10,<3.13"\n', True),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.12"\n', False),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "~3.10"\n', False),
        ("pyproject.toml", '[tool.poetry.dependencies]\npython = "^3.9"\n', True),
        ("setup.cfg", "[metadata]\nname = x\n[options]\npython_requires = >=3.13\n", False),
        ("setup.py", "from setuptools import setup\nsetup(name='x', python_requires='<3.11')\n", False),
        ("setup.py", "from setuptools import setup\nsetup(name='x')\n", True),
    ],
)
def test_the_python_is_one_that_the_project_allows(tmp_path: Path, name: str, text: str, allowed: bool) -> None:
    (tmp_path / name).write_text(text)
    record = record_of(tmp_path)
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == ([] if allowed else ["python"])
    if not allowed:
        assert "but this is Python 3.11.7" in record.ranks[0].unsupported[0].why


def test_each_imported_package_is_of_the_release_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("einops==0.4.1\nnumpy>=1\ndatasets==2.0\n")
    imported = {"einops": "0.8.2", "numpy": "2.4.6"}  # datasets was not imported: it has no part in it
    record = record_of(tmp_path, imported=imported)
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == ["packages"]
    why = record.ranks[0].unsupported[0].why
    assert "requires einops==0.4.1, but einops 0.8.2 was imported before this failure: run gonogo prepare" in why
    record = record_of(tmp_path, imported=imported)
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path, is_complete=True)) == ["packages"]
    why = record.ranks[0].unsupported[0].why  # that command has been run
    assert "but einops 0.8.2 was installed here instead" in why
    assert "gonogo prepare" not in why


def test_what_was_replaced_or_left_out_counts_where_it_was_asked_for(tmp_path: Path) -> None:
    record = record_of(tmp_path, imported={"torchvision": "0.28"})
    record.differing = ["torchvision", "alignment-handbook"]
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == ["packages"]
    assert "torchvision was replaced or left out here" in record.ranks[0].unsupported[0].why
    record = record_of(tmp_path)
    record.differing = ["torchvision"]
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == []


def test_what_gonogo_made_has_no_part_in_it(tmp_path: Path) -> None:
    record = record_of(tmp_path, made_operands=["Qwen2TokenizerFast"])
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == ["made"]
    refused = Failure(
        "TypeError", "Trainer.__init__() got an unexpected keyword argument 'tokenizer'", (), "load", 0
    )  # whatever is in it
    record = record_of(tmp_path, refused, made_operands=["Qwen2TokenizerFast"])
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == []


NO_TEMPLATE = "Cannot use chat template functions because tokenizer.chat_template is not set"
ROWS_PROGRAM = """\
rows = load_dataset("owner/name")





def read(row):
    return float(row["output"])


rows.map(read)
tokenizer.apply_chat_template(rows[0]["messages"])
"""


@pytest.mark.parametrize(
    ("line", "kind", "certain"),
    [(8, "generated", False), (8, "", True), (12, "generated", True), (12, "guessed", False)],
    ids=["text of a row", "no generated row", "only the published columns", "columns that were guessed"],
)
def test_generated_rows_have_no_part_in_it(tmp_path: Path, line: int, kind: AssumptionKind, certain: bool) -> None:
    program = tmp_path / "train.py"
    program.write_text(ROWS_PROGRAM)
    message = NO_TEMPLATE if line == 12 else "could not convert string to float: 'us us to'"
    frame = Frame(str(program), line, "<module>", ROWS_PROGRAM.splitlines()[line - 1].strip(), "user")
    failure = Failure("ValueError", message, (frame,), "load", 0, traceback=f"ValueError: {message}\n")
    rows = Assumption("the rows of the data set owner/name are generated", f"{program}:1", kind=kind)
    record = record_of(tmp_path, failure, assumptions=[rows], phases=["load"])
    assert (lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == []) is (certain and line != 12)
    assert is_certain(record.ranks[0]) is certain
    found = [one for group in failed_ranks(record) for one in findings_from_traceback(record, group)]
    sure = [one.hazard for one in found or fallback_findings(record) if one.certainty is Certainty.CERTAIN]
    assert sure == (["tokenizer-without-chat-template" if line == 12 else "program-raises"] if certain else [])


READS_MADE_TEXT = {
    "in one statement": ("ids = [int(line) for line in open(PATH).readlines()]", False),
    "some statements later": ("with open(PATH) as f:\n    rows = f.read()\nkind = {'a': 1}[rows[:5]]", False),
    "in a function that is given it": (
        "def parsed(text):\n    return float(text)\nname = open(PATH).readline()\nparsed(name)", False
    ),
    "by Python's reader of tables": ("import csv\nrows = list(csv.reader(open(PATH)))\nyear = int(rows[0][0])", False),
    "beside it": ("rows = open(PATH).read()\nsteps = 10\nwidth = steps // 0", True),
    "a call that no row decides": ("rows = open(PATH).read()\nint('1', bass=2)", True),
}  # fmt: skip


@pytest.mark.parametrize("name", READS_MADE_TEXT)
def test_the_text_of_a_made_file_has_no_part_in_it(tmp_path: Path, name: str) -> None:
    text, certain = READS_MADE_TEXT[name]
    made, program = tmp_path / "ids.txt", tmp_path / "train.py"
    made.write_text("abc 123\n")
    program.write_text(f"PATH = {str(made)!r}\n{text}\n")
    lookups = failed_lookups.FailedLookups(made=[str(made)])
    undo = failed_lookups.install(lookups)
    try:
        exec(compile(program.read_text(), str(program), "exec"), {"__name__": "__main__"})
        raise SystemExit
    except Exception as error:
        kind, absent = type(error).__name__, failed_lookups.lookups_before_failure(lookups, error, [])
        lines = [
            line for frame, line in traceback.walk_tb(error.__traceback__) if "train.py" in frame.f_code.co_filename
        ]
        message = str(error)
    finally:
        undo()
    frames = tuple(Frame(str(program), line, "<module>", "", "user") for line in lines)
    record = record_of(tmp_path, Failure(kind, message, frames, "load", 0), absent=absent, phases=["load"])
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == ([] if certain else ["made"])
    if not certain:
        assert str(made) in record.ranks[0].unsupported[0].why


@pytest.mark.parametrize(
    ("name", "owner", "certain"),
    [
        ("gpt2", "library", True),
        ("Some-Owner/Model/adapter_config.json", "library", True),
        ("some-owner/other", "library", False),
        ("gpt2", "user", False),
    ],
)
def test_a_library_looks_for_a_folder_of_a_models_name_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: str, certain: bool
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    program = "import library\n\nmodel = library.load('gpt2')\nmodel.modul.save()\n"
    (tmp_path / "train.py").write_text(program)
    here = Frame(str(tmp_path / "train.py"), 4, "<module>", "model.modul.save()", "user")
    asking = Frame("/site-packages/library/hub.py" if owner == "library" else here.path, 3, "load", "", owner)
    look = FailedLookup("file", name, asking, Frame(here.path, 3, "<module>", "", "user"), 4, True, "load", 0)
    rank = RankRecord(0, 0, "cuda:0", "raised", absent=[look], confinement="namespaces")
    rank.failure = Failure("AttributeError", "no attribute 'modul'", (here,), "load", 0)
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python", "train.py"], str(tmp_path), 1, 1, 1, facts, 2, None, ranks=[rank])
    prepared = PreparedStandIns(models={"gpt2": "models/gpt2", "some-owner/model": "models/model"})
    apply_limits(record, ProjectWorld(tmp_path, tmp_path, prepared=prepared))
    assert is_certain(rank) is certain


def test_a_hazard_that_has_seen_the_mechanism_needs_no_release(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("einops==0.4.1\n")
    file = HAZARDS / "zero3-direct-param-use-invalid-gradient" / "bad.record.json"
    record = msgspec.json.decode(file.read_bytes(), type=RehearsalRecord)
    record.cwd = str(tmp_path)
    record.ranks[0].imported = {"einops": "0.8.2"}
    assert lacking(record, ProjectWorld.from_files(tmp_path, tmp_path)) == ["packages"]
    assert record.ranks[0].outcome == "raised"
    report = rehearsal_report(record, str(tmp_path))
    assert report.verdict is Verdict.NO_GO
    line = report.notes[0]
    assert "no missing inputs" in line.en
    assert "packages" not in line.en  # which is not so, and is not claimed


def test_the_report_shows_why_it_is_certain(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("einops>=0.4\n")
    record = record_of(tmp_path, imported={"einops": "0.8.2"})
    apply_limits(record, ProjectWorld.from_files(tmp_path, tmp_path))
    report = rehearsal_report(record, str(tmp_path))
    assert report.verdict is Verdict.NO_GO
    assert report.notes[0].en == (
        "certain: this Python, as no file asks for another, the declared packages, no generated data or stand-in used "
        "before it, no missing inputs, no assumed values, no missing output of other ranks, no operation denied by the "
        "sandbox"
    )
    assert report.rehearsal is not None
    certificate = report.rehearsal.ranks[0].certificate
    assert isinstance(certificate, tuple)
    assert {one.name for one in certificate} == NAMES
    assert all(one.met and one.shown_zh for one in certificate)


def test_a_hazard_needs_all_unless_it_judges_the_record_itself() -> None:
    hazards = {hazard.name: hazard for hazard in all_hazards()}
    assert hazard_obligations(hazards["program-raises"]) == NAMES
    for hazard in hazards.values():
        assert hazard_obligations(hazard) <= NAMES
        assert {"assumed", "ranks"} <= hazard_obligations(hazard)
        if type(hazard).in_rehearsal is Hazard.in_rehearsal and hazard.needs is None:
            assert hazard_obligations(hazard) == NAMES


def test_the_cases_are_of_several_kinds() -> None:
    kinds = [case.kind for case in CASES]
    assert all(kinds.count(kind) >= 3 for kind in set(kinds))


@pytest.mark.parametrize("names", ["asked for", "as the address"])
def test_a_download_is_told_by_its_file_and_its_address(tmp_path: Path, names: str) -> None:
    path = 'f"questions-{split}.jsonl"' if names == "asked for" else '"val.jsonl"'
    asked = "not os.path.exists(path)" if names == "asked for" else "True"
    rank = own_fault(
        tmp_path,
        f"""\
import os
import urllib.request


def fetch(url, path, size=1024):
    with urllib.request.urlopen(url) as answer, open(path, "wb") as file:
        file.write(answer.read(size))


def download(split):
    os.makedirs("cache", exist_ok=True)
    address = f"https://questions.invalid/data/{{split}}.jsonl"
    path = os.path.join("cache", {path})
    if {asked}:
        fetch(address, path)
    return open(path).read()


download("val")
""",
    )
    assert not is_certain(rank)
    (told,) = [one.shown for one in rank.certificate if not one.met and one.needed]
    file = "cache/questions-val.jsonl" if names == "asked for" else "cache/val.jsonl"
    assert "https://questions.invalid/data/val.jsonl" in told
    assert f"mkdir -p cache && curl -L -o {file} https://questions.invalid/data/val.jsonl" in told


@pytest.mark.parametrize(
    ("generated", "lengths", "certain"),
    [(True, ((141, 141), (139, 139)), False), (False, ((141, 141), (139, 139)), True), (True, ((64, 64),) * 2, True)],
)
def test_sizes_that_are_lengths_of_generated_rows_are_not_certain(
    tmp_path: Path, generated: bool, lengths: tuple[tuple[int, int], ...], certain: bool
) -> None:
    sides = tuple(
        Side((rank,), CollectiveCall("allgather_base", (0, 1), 0, sizes=(size,), dtype="bfloat16"))
        for rank, size in enumerate((2310144, 2277376))
    )
    ranks = [RankRecord(rank, rank, f"cuda:{rank}", "diverged") for rank in (0, 1)]
    for rank, tokens in zip(ranks, lengths, strict=True):
        rank.as_run = AsRun(tokens=tokens)
    facts = AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0)
    record = RehearsalRecord(["python", "train.py"], str(tmp_path), 2, 1, 2, facts, 2, None, ranks=ranks)
    record.divergence = Divergence("other-size", sides)
    table = PreparedStandIns(paths={str(tmp_path / "data.jsonl"): "data/rows"} if generated else {})
    apply_limits(record, ProjectWorld(tmp_path, tmp_path, prepared=table))
    (finding,) = findings_in_record(record)[0]
    assert finding.hazard == "collective-sizes-differ"
    assert (finding.certainty is Certainty.CERTAIN) is certain
    assert all(one.met for one in ranks[0].certificate) is certain
    if not certain:
        assert "data.jsonl" in next(one.shown for one in ranks[0].certificate if not one.met)

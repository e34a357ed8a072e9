"""What gonogo is worth to a coding agent: twenty launches, judged by agents with gonogo and by agents without it.

    python benchmarks/agent_trial.py draw                       # which launches the seed draws, from which folders
    python benchmarks/agent_trial.py lay DIR                    # DIR/01 … DIR/20, each a project with a file LAUNCH
    python benchmarks/agent_trial.py instructions without       # what an agent is told; or: with
    python benchmarks/agent_trial.py score ANSWERS.json …       # one line for each launch, and the sums
    python benchmarks/agent_trial.py keep ARM ANSWERS.json …    # adds them to agent_trial.jsonl, to be judged
    python benchmarks/agent_trial.py table                      # the table of docs/measured.md, from agent_trial.jsonl

Sixteen launches are broken, four are healthy. Their causes are those that the tests establish; what is true of each,
why, and what counts as its cause and its cure was written down before any agent saw them: ``agent_trial_truth.json``,
which also keeps what was drawn, as pools grow with the tests.
``lay`` takes out what would tell: comments, docstrings, README files, what a test expects, and files of the cured
project. Line numbers stay as they are.

Scoring. The verdict is right or wrong, by comparison alone; CANNOT-TELL is neither. A place is right if it is within
two lines of one of the true places. Whether the cause and the cure are right is judged by a person who reads the
answer beside the truth, by the rubric in ``agent_trial_truth.json``, without knowing the arm: ``"cause_right"`` and
``"cure_right"`` of the line in ``agent_trial.jsonl``.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import io
import json
import random
import re
import shutil
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TRUTH = Path(__file__).with_name("agent_trial_truth.json")
RESULTS = Path(__file__).with_name("agent_trial.jsonl")
SEED = 34
NEAR = 2
"""Lines by which a place may differ from a true one: a call may be named by its first line or by an argument's."""
LEFT_OUT = re.compile(r"README.*|expected\.json|cure\.json|environment\.json|.*_fixed\..*|__pycache__")
"""Files that are no part of the launch and tell what is expected of it."""
VERDICTS = ("GO", "NO-GO", "CANNOT-TELL")


# ---- the draw


def _stated(folder: Path) -> dict[str, Any]:
    path = folder / "expected.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _scripts(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def resolves(folder: Path) -> bool:
    """Whether every module that is imported is in the folder or installed: snippets import what they do not have."""
    for path in _scripts(folder):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            for name in (name.partition(".")[0] for name in names):
                own = [*folder.rglob(f"{name}.py"), *folder.rglob(f"{name}/__init__.py")]
                if not own and importlib.util.find_spec(name) is None:
                    return False
    return True


def whole(folder: Path) -> bool:
    """Whether it is a launch that could be run: one launch script, and a program that trains on data that it has."""
    scripts = _scripts(folder)
    code = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    if len(list(folder.glob("*.sh"))) != 1 or not scripts or (folder / "environment.json").exists():
        return False
    if "=[]" in code or re.search(r"\bTrainer\(\)", code) or not re.search(r"\.(train|backward)\(", code):
        return False
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "-q", "--select", "F821,E9"]
    return subprocess.run([*ruff, *map(str, scripts)], capture_output=True, check=False).returncode == 0 and resolves(
        folder
    )


def certain(folder: Path) -> bool:
    """Whether the hazard's own test expects an error that is certain."""
    told = (folder.parent / "expected.txt").read_text(encoding="utf-8")
    case = re.search(rf"^=== {re.escape(folder.name)}\n(.*?)(?=^=== |\Z)", told, re.MULTILINE | re.DOTALL)
    return case is not None and re.match(r"error\[\S+\] certain", case[1]) is not None


def _folders(path: str) -> list[Path]:
    return sorted(folder for folder in (ROOT / path).iterdir() if folder.is_dir())


def _worlds(kind: str) -> list[Path]:
    return [folder for folder in _folders(f"tests/worlds/{kind}") if "vllm" not in _stated(folder).get("needs", ())]


def _hazards() -> list[Path]:
    found = sorted(folder for folder in (ROOT / "tests/hazards").glob("*/bad_*") if folder.is_dir())
    found = [folder for folder in found if not re.match("bad_(possible|warning|note|likely)", folder.name)]
    return [folder for folder in found if certain(folder) and whole(folder)]


POOLS: dict[str, tuple[int, Callable[[], list[Path]]]] = {
    "ranks that part (tests/worlds/hang)": (5, lambda: _worlds("hang")),
    "programs to be cured (tests/cure/programs)": (3, lambda: _folders("tests/cure/programs")),
    "hazards in files (tests/hazards)": (6, _hazards),
    "examples": (2, lambda: [folder for folder in _folders("examples") if (folder / "launch.sh").exists()]),
    "healthy: worlds (tests/worlds/healthy)": (2, lambda: _worlds("healthy")),
    "healthy: projects (tests/healthy)": (2, lambda: [one for one in _folders("tests/healthy") if whole(one)]),
}
"""Where launches are drawn from, and how many. Each pool is drawn by itself: if one grows, the others stay."""


def drawn() -> dict[str, list[str]]:
    """All folders of each pool in the order in which they are drawn, one of each hazard."""
    orders: dict[str, list[str]] = {}
    for name, (_, pool) in POOLS.items():
        found = pool()
        shuffled = random.Random(f"{SEED} {name}").sample(found, len(found))
        order: list[str] = []
        for folder in shuffled:
            path = folder.relative_to(ROOT)
            if path.parts[1] != "hazards" or not any(Path(other).parent == path.parent for other in order):
                order.append(str(path))
        orders[name] = order
    return orders


def show_draw() -> None:
    """Print each pool: those that are drawn, and those that come next where one is set aside."""
    for name, order in drawn().items():
        count = POOLS[name][0]
        print(f"{name}: {count} of {len(order)}")
        for number, path in enumerate(order[: count + 4], 1):
            print(f"  {number if number <= count else 'next':>4} {path}")


# ---- the folders


def without_comments(code: str) -> str:
    """Python without its comments and docstrings; what remains stands where it stood."""
    lines = code.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                assert first.end_lineno is not None
                kept = lines[first.lineno - 1][: first.col_offset] + "pass\n" if len(node.body) == 1 else "\n"
                lines[first.lineno - 1 : first.end_lineno] = [kept, *["\n"] * (first.end_lineno - first.lineno)]
    return "".join(lines)


def without_hash_lines(text: str) -> str:
    """A shell script, YAML file or list of requirements without comments, except those that are read (#!, #SBATCH)."""
    kept = []
    for line in text.splitlines():
        comment = re.search(r"(^|\s+)#(?!!|SBATCH|PBS|BSUB)", line)
        told = line[: comment.start()] if comment else line
        kept.append(line if told.count("'") % 2 or told.count('"') % 2 else told)
    return "\n".join(kept) + "\n"


def copied(source: Path, target: Path) -> None:
    """The project as a stranger would find it: nothing in it says what is wrong."""
    shutil.copytree(source, target, ignore=lambda _, names: [name for name in names if LEFT_OUT.fullmatch(name)])
    for path in target.rglob("*"):
        if path.suffix == ".py":
            path.write_text(without_comments(path.read_text(encoding="utf-8")), encoding="utf-8")
        elif path.suffix in (".sh", ".sbatch", ".yaml", ".yml") or path.name == "requirements.txt":
            path.write_text(without_hash_lines(path.read_text(encoding="utf-8")), encoding="utf-8")


def truths() -> list[dict[str, Any]]:
    """What is true of each launch, in the order of their numbers."""
    told: dict[str, Any] = json.loads(TRUTH.read_text(encoding="utf-8"))
    launches: list[dict[str, Any]] = told["launches"]
    return launches


def lay(directory: Path) -> None:
    """Write the twenty projects into a directory that is new or empty."""
    if directory.exists() and any(directory.iterdir()):
        raise SystemExit(f"{directory} is not empty")
    directory.mkdir(parents=True, exist_ok=True)
    for one in truths():
        target = directory / one["launch"]
        copied(ROOT / one["source"], target)
        (target / "LAUNCH").write_text(f"command: {one['command']}\nmachine: {one['machine']}\n", encoding="utf-8")


# ---- the instructions

COMMON = """\
{directory}/01 to {directory}/20 are twenty training projects. Each has a file LAUNCH: the command that will be typed in
that folder, and the machine on which it will run. Some launches work, some do not; how many, you are not told. For each
of these: {launches}, say whether it will run.

The machine has the GPUs and the host memory that LAUNCH says, a current driver, CUDA toolkit, compiler and network.
Where the folder has a requirements.txt, its packages are installed, those without a version in the newest that the
others permit; all other packages are of the versions that `{python} -m pip list` shows (on the machine torch is its
CUDA build). Models and data that the program names and the folder lacks are there on the machine, complete and in the
form that the program expects; a folder of a model that holds a config and no weights has its weights there. The launch
has worked only if every rank trains to its end and ends well, saving included, and what it saves can be used. A
warning, a slow setting or a matter of taste is no failure.

This computer has two CPU cores and no GPU. You may read the files, write scratch files under {scratch}, and run Python
with `{python}`: read the source of the installed packages, run parts of the program. Heavy work with `nice -n 10`, one
process at a time; at most ten minutes for one launch. Do not use the network other than to install a version
that the project pins, into a venv of your own under {scratch}. Do not read anything under {repository}
other than {environment}, do not look for these projects elsewhere on the computer, and do not look at another
agent's answers. Do not change the projects.
{arm}
Write {answers}, a JSON list with one object for each launch:

    {{"launch": "07", "verdict": "NO-GO", "cause": "one or two sentences: what fails, when, and why",
      "place": "train.py:31", "cure": "one sentence, or a diff: the smallest change that makes it run and still trains
      the same", "tool_calls": 12, "seconds": 95}}

verdict is GO (it will run), NO-GO (it will fail, hang, or not train what it says) or CANNOT-TELL. place is the line
that has to change or where the fault is made, relative to the folder; for GO leave cause, place and cure empty.
tool_calls counts your calls of tools for this launch; seconds is the wall time from opening its folder to its answer
(run `date +%s` at both). Take the launches one by one in the order given, and write the answer of each before you open
the next.
Your last message: the path of the answers, and nothing of what you think of the trial.
"""
WITHOUT = """
You have no other tool for this. Do not use gonogo, which the repository above develops: neither its command nor its
code nor its documents.
"""
WITH = """
You also have gonogo, a command that rehearses launches on GPUs that do not exist: {gonogo}. What it does and when to
use which of its commands stands in its skill: run `{gonogo} skills show` first. Give it the launch after `--`, in the
project's folder, and the machine by --gpus and --host-memory as LAUNCH says. It may write into the project's folder,
and make environments of its own (`--yes` is agreed to). Its answer is one witness: the verdict is yours.
"""


def instructions(arm: str, places: dict[str, str]) -> str:
    """What an agent of an arm is told."""
    told = {"without": WITHOUT, "with": WITH}[arm].format(**places)
    return COMMON.format(arm=told, **places)


# ---- the score


def near(place: str, true: Iterable[str]) -> bool:
    """Whether a place ``file:line`` is one of the true ones, or within NEAR lines of it."""
    said = re.match(r"(?:\./)?(.+?):(\d+)", place.strip())
    if said is None:
        return False
    for one in true:
        file, _, lines = one.rpartition(":")
        first, _, last = lines.partition("-")
        if said[1] == file and int(first) - NEAR <= int(said[2]) <= int(last or first) + NEAR:
            return True
    return False


def scored(answer: dict[str, Any], truth: dict[str, Any]) -> dict[str, Any]:
    """An answer with what can be told of it by comparison; the cause and the cure are judged by a reader."""
    verdict = str(answer.get("verdict", "")).strip().upper().replace(" ", "-")
    if verdict not in VERDICTS:
        raise SystemExit(f"launch {answer.get('launch')}: verdict {answer.get('verdict')!r} is none of {VERDICTS}")
    outcome = "right" if verdict == truth["verdict"] else "open" if verdict == "CANNOT-TELL" else "wrong"
    broken = truth["verdict"] == "NO-GO"
    place = near(str(answer.get("place") or ""), truth["places"]) if broken and verdict == "NO-GO" else None
    return {**answer, "verdict": verdict, "verdict_is": outcome, "place_right": place}


def read_answers(paths: list[Path]) -> list[dict[str, Any]]:
    """The answers of several files, each beside its truth."""
    by_number = {one["launch"]: one for one in truths()}
    answers = [answer for path in paths for answer in json.loads(path.read_text(encoding="utf-8"))]
    return [scored(answer, by_number[f"{int(answer['launch']):02}"]) for answer in answers]


def score(paths: list[Path]) -> None:
    """Print the score of answers."""
    answers = read_answers(paths)
    by_number = {one["launch"]: one for one in truths()}
    for one in sorted(answers, key=lambda one: int(one["launch"])):
        truth = by_number[f"{int(one['launch']):02}"]
        place = {True: "place right", False: "place elsewhere", None: ""}[one["place_right"]]
        print(
            f"{truth['launch']}  {truth['verdict']:<6} said {one['verdict']:<12} {one['verdict_is']:<6} {place:<16} "
            f"{one.get('tool_calls', 0):>4} calls {one.get('seconds', 0):>5} s  {truth['source']}"
        )
    counts = Counter(one["verdict_is"] for one in answers)
    print(", ".join(f"{counts[name]} {name}" for name in ("right", "wrong", "open")), f"of {len(answers)}")


def keep(arm: str, paths: list[Path]) -> None:
    """Add answers to the kept ones; ``cause_right`` and ``cure_right`` are filled in by whoever judges them."""
    with RESULTS.open("a", encoding="utf-8") as lines:
        for one in read_answers(paths):
            judged = {"cause_right": None, "cure_right": None} if one["verdict_is"] == "right" and one["cause"] else {}
            lines.write(json.dumps({"arm": arm, **one, **judged}, ensure_ascii=False) + "\n")


def table() -> None:
    """Print the table of the kept answers: a row for each arm."""
    kept = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    rows = (
        ("answers", lambda one: True),
        ("verdict right", lambda one: one["verdict_is"] == "right"),
        ("wrong GO", lambda one: one["verdict_is"] == "wrong" and one["verdict"] == "GO"),
        ("wrong NO-GO", lambda one: one["verdict_is"] == "wrong" and one["verdict"] == "NO-GO"),
        ("CANNOT-TELL", lambda one: one["verdict"] == "CANNOT-TELL"),
        ("place right", lambda one: bool(one["place_right"])),
        ("cause right", lambda one: bool(one.get("cause_right"))),
        ("cure right", lambda one: bool(one.get("cure_right"))),
    )
    arms = list(dict.fromkeys(one["arm"] for one in kept))
    print("| | " + " | ".join(arms) + " |\n| --- |" + " ---: |" * len(arms))
    for name, counts in rows:
        print(
            f"| {name} | "
            + " | ".join(str(sum(counts(one) for one in kept if one["arm"] == arm)) for arm in arms)
            + " |"
        )
    for name in ("tool_calls", "seconds"):
        sums = [sum(one.get(name) or 0 for one in kept if one["arm"] == arm) for arm in arms]
        print(f"| {name.replace('_', ' ')} | " + " | ".join(f"{one:,}" for one in sums) + " |")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    parts.add_parser("draw")
    parts.add_parser("table")
    parts.add_parser("lay").add_argument("directory", type=Path)
    asked = parts.add_parser("instructions")
    asked.add_argument("arm", choices=("without", "with"))
    for name, usual in (
        ("directory", "DIR"),
        ("launches", "01 to 20"),
        ("scratch", "SCRATCH"),
        ("answers", "ANSWERS.json"),
        ("python", str(ROOT / ".venv/bin/python")),
        ("gonogo", str(ROOT / ".venv/bin/gonogo")),
        ("repository", str(ROOT)),
        ("environment", str(ROOT / ".venv")),
    ):
        asked.add_argument(f"--{name}", default=usual)
    parts.add_parser("score").add_argument("answers", type=Path, nargs="+")
    kept = parts.add_parser("keep")
    kept.add_argument("arm")
    kept.add_argument("answers", type=Path, nargs="+")
    given = parser.parse_args()
    if given.part == "draw":
        show_draw()
    elif given.part == "lay":
        lay(given.directory)
    elif given.part == "instructions":
        print(instructions(given.arm, {k: v for k, v in vars(given).items() if k not in ("part", "arm")}))
    elif given.part == "score":
        score(given.answers)
    elif given.part == "keep":
        keep(given.arm, given.answers)
    else:
        table()


if __name__ == "__main__":
    main()

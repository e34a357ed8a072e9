"""Tables of published figures: a run that is published as out of memory is judged by its verdict, not as a figure."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest


def import_module_of(name: str) -> Any:
    path = Path(__file__).parents[1] / "benchmarks" / "published" / f"{name}.py"
    spec = spec_from_file_location(f"published_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    before = [*sys.path]
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path[:] = before
    return module


recipes: Any = import_module_of("recipe_hash")
tables: Any = import_module_of("accuracy_tables")


def row(name: str, published: Any) -> dict[str, Any]:
    return {
        "framework": "litgpt", "name": name, "published": published, "means": "allocated", "gpus": "1xA10G",
        "date": "2024-04-26", "source": "https://example.org", "completeness": "A", "said": "peak",
    }  # fmt: skip


ROWS = [row("fits", 10.0), row("too large", tables.OUT_OF_MEMORY), row("passes", tables.OUT_OF_MEMORY)]
RESULTS: dict[str, dict[str, Any]] = {
    "litgpt: fits": {"row": "litgpt: fits", "verdict": "GO", "allocated": 10.1, "seconds": 9},
    "litgpt: too large": {
        "row": "litgpt: too large", "verdict": "NO-GO", "outcome": "out-of-memory", "allocated": 21.0, "seconds": 9,
    },
    "litgpt: passes": {"row": "litgpt: passes", "verdict": "GO", "allocated": 12.0, "seconds": 9},
}  # fmt: skip


def test_only_a_figure_is_compared_with_a_figure() -> None:
    assert [one.row["name"] for one in tables.compared(ROWS, RESULTS)] == ["fits"]


@pytest.mark.parametrize(("language", "ended"), [("en", "out of GPU memory"), ("zh", "GPU 显存不足")])
def test_a_run_without_memory_is_told_by_its_verdict(language: str, ended: str) -> None:
    _, _, too_large, passes = tables.verdicts(ROWS, RESULTS, language).splitlines()
    assert f"| NO-GO | {ended} |" in too_large
    assert "| GO | " in passes
    assert ended not in passes


def test_a_run_without_memory_is_listed_once_rehearsed_or_not() -> None:
    assert len(tables.not_rehearsed(ROWS, RESULTS, "en").splitlines()) == 2
    assert "too large" not in tables.not_rehearsed(ROWS, {}, "en")
    assert "too large (1xA10G) |  | not rehearsed yet |" in tables.verdicts(ROWS, {}, "en")


def test_the_runner_prints_how_it_ended() -> None:
    said = tables.line(ROWS[1], RESULTS["litgpt: too large"])
    assert said == "litgpt: too large: out of memory; NO-GO, out-of-memory"


def test_the_first_answer_stands_beside_a_later_one() -> None:
    fresh = {**RESULTS["litgpt: fits"], "recipe": recipes.recipe_of(ROWS[0])}
    later = {**fresh, "first": {"verdict": "GO", "allocated": 10.8}}
    (told,) = tables.every_row(tables.compared(ROWS[:1], {"litgpt: fits": later}), "en").splitlines()[2:]
    assert "| +1.0 % (first +8.0 %) |" in told
    alike = {**later, "first": {"verdict": "CANNOT-TELL"}}
    assert "| +1.0 % |" in tables.every_row(tables.compared(ROWS[:1], {"litgpt: fits": alike}), "en")


def pair(published: float, predicted: float, against: float, said: float) -> Any:
    rows = [row("without", against), {**row("with", published), "against": "without", "differs": "--flag"}]
    results = {
        "litgpt: without": {"verdict": "GO", "allocated": said},
        "litgpt: with": {"verdict": "GO", "allocated": predicted},
    }
    return tables.compared(rows, results)


@pytest.mark.parametrize(
    ("published", "predicted", "sign", "size"),
    [
        (12.0, 12.3, "100 %", "100 %"),
        (12.0, 11.2, "100 %", "0 %"),
        (12.0, 9.0, "0 %", "0 %"),
        (8.0, 7.6, "100 %", "100 %"),
    ],
)
def test_a_pair_is_judged_by_its_step(published: float, predicted: float, sign: str, size: str) -> None:
    found = pair(published, predicted, 10.0, 10.0)
    _, _, every, of_framework = tables.pair_summary(found, "en").splitlines()
    assert every == f"| **all** | 1 | {sign} | {size} |  |"
    assert of_framework.startswith("| framework: litgpt | 1 |")
    assert f"| litgpt: with | --flag | {published - 10:+.2f} | {predicted - 10:+.2f} |" in tables.every_pair(
        found, "en"
    )


def test_a_pair_without_a_step_has_no_sign() -> None:
    _, _, every, _ = tables.pair_summary(pair(10.05, 10.02, 10.0, 10.0), "en").splitlines()
    assert every == "| **all** | 0 |  |  | 1 of 1 predicted without a step |"
    assert len(tables.every_pair(pair(10.05, 10.02, 10.0, 10.0), "en").splitlines()) == 2


def test_a_program_prints_its_own_cases(tmp_path: Path) -> None:
    run = import_module_of("run")
    (tmp_path / "rank-0").mkdir()
    (tmp_path / "rank-0" / "output.log").write_text('noise\nfigure of a {"B": 8}: 0.5 GiB\nfigure of b: 1e-05 GiB\n')
    figures = run.printed(tmp_path)
    assert figures == {'a {"B": 8}': 0.5, "b": 1e-05}
    answer = {"verdict": "GO", "seconds": 3, "figures": figures}
    assert run.of_case({"figure": "b"}, answer) == {"verdict": "GO", "seconds": 3, "printed": 1e-05}
    assert run.of_case({"figure": "absent"}, answer)["told"] == "the program printed no figure of this case"
    assert run.of_case({"figure": "absent"}, {"verdict": "NO-GO", "seconds": 3}) == {"verdict": "NO-GO", "seconds": 3}


def test_each_pair_names_a_row_of_its_framework() -> None:
    rows = import_module_of("run").rows()
    there = {(one["framework"], one["name"]) for one in rows}
    assert len(there) == len(rows)
    named = [one for one in rows if "against" in one]
    assert named
    assert all((one["framework"], one["against"]) in there and one["differs"] for one in named)


def test_the_document_says_how_many_figures_are_of_which_day() -> None:
    kept = [("2026-11-26", "a"), ("2026-11-28", "b"), ("2026-11-28", "c"), ("2026-11-28", "c")]
    results = {
        f"litgpt: {index}": {"verdict": "GO", "allocated": 10.0, "day": day, "gonogo": commit}
        for index, (day, commit) in enumerate(kept)
    }
    found = tables.compared([row(str(index), 10.0) for index in range(len(kept))], results)
    assert tables.days(found, "en").splitlines()[2:] == ["| 2026-11-28 | 3 | 2 |", "| 2026-11-26 | 1 | 1 |"]


def test_each_kept_result_has_its_day_and_commit() -> None:
    kept = import_module_of("run").results().values()
    assert [one["row"] for one in kept if not one.get("day") or not one.get("gonogo")] == []


def test_a_result_is_older_than_a_commit_that_its_gonogo_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = import_module_of("run")
    (tmp_path / "src").mkdir()
    monkeypatch.setattr(run, "HERE", tmp_path)
    commits = []
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for text in ("one", "two"):
        (tmp_path / "src" / "file").write_text(text)
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, "commit", "-qm", text], cwd=tmp_path, check=True)
        commits.append(run.code())
    first, second = commits
    assert run.has(second, first)
    assert not run.has(first, second)
    assert not run.has("", first)
    (tmp_path / "src" / "file").write_text("three")
    assert run.code() == f"{second}+"
    assert not run.has(run.code(), first)


def test_a_changed_recipe_makes_its_result_stale() -> None:
    """Whatever is rehearsed counts: settings, versions, the program; not the published figure beside them."""
    recipe = {**ROWS[0], "command": "python {programs}/program.py", "with": ["transformers==4.40.1"]}
    programs = {"program.py": b"print(1)"}
    before = recipes.recipe_of(recipe, programs.__getitem__)
    assert recipes.recipe_of({**recipe, "published": 11.0, "source": "elsewhere"}, programs.__getitem__) == before
    changed = [
        recipes.recipe_of({**recipe, "with": ["transformers==4.43.2"]}, programs.__getitem__),
        recipes.recipe_of({**recipe, "gpus": "4xA10G"}, programs.__getitem__),
        recipes.recipe_of(recipe, {"program.py": b"print(2)"}.__getitem__),
    ]
    assert len({before, *changed}) == 4


def test_a_stale_figure_is_marked() -> None:
    result = RESULTS["litgpt: fits"]
    fresh = {**result, "recipe": recipes.recipe_of(ROWS[0])}
    assert "of an earlier recipe" in tables.every_row(tables.compared(ROWS, {"litgpt: fits": result}), "en")
    assert "of an earlier recipe" not in tables.every_row(tables.compared(ROWS, {"litgpt: fits": fresh}), "en")

"""The pre-commit hook and the GitHub Action: what their files say is run here as those would run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
BAD_CONFIG = '{"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 15099494.4}}\n'
ONLY = "--select ds-config-float-prefetch-bucket"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small project with a config that no run survives."""
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "ds.json").write_text(BAD_CONFIG)
    (folder / "launch.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds.json\n")
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "requirements.txt").write_text("deepspeed==0.16.4\n")
    return folder


def run_script(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script with bash, as GitHub's runner does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "INPUT_"))}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_hook_says_what_pre_commit_wants() -> None:
    (hook,) = HOOKS
    assert hook["id"] == "gonogo-check"
    assert hook["language"] == "python"
    assert hook["pass_filenames"] is True
    assert hook["require_serial"] is True
    assert set(hook["types_or"]) == {"json", "yaml", "shell", "python"}
    assert hook["entry"].startswith("gonogo check")
    assert len(hook["description"]) > 40


def test_the_hook_fails_on_a_config_that_no_run_survives(project: Path) -> None:
    script = f"{HOOKS[0]['entry']} " + shlex.join(["ds.json", "launch.sh", "train.py"])
    done = run_script(script, project)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "NO-GO" in done.stdout
    assert "ds.json:1" in done.stdout


def test_the_hook_lets_files_pass_that_launch_nothing(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text('{"answer": 42}\n')
    (tmp_path / "tool.py").write_text("print('hello')\n")
    done = run_script(f"{HOOKS[0]['entry']} data.json tool.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_action_is_whole() -> None:
    assert {"paths", "command", "args", "fail-on", "version", "format", "upload"} <= ACTION["inputs"].keys()
    assert all(one["description"] and isinstance(one["default"], str) for one in ACTION["inputs"].values())
    assert ACTION["outputs"].keys() == {"verdict", "sarif"}
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        if "run" in step:
            assert step["shell"] == "bash"
            assert not EXPRESSION.search(step["run"])  # an input in a script's text would be executed
    named = set(re.findall(r"inputs\.([\w-]+)", str(ACTION["runs"])))
    assert named == ACTION["inputs"].keys()
    assert "secrets." not in str(ACTION)


@pytest.mark.parametrize("name", ["docs/ci.md", "docs/ci.zh-CN.md"])
def test_the_documents_name_every_input_and_their_yaml_is_yaml(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for one, said in ACTION["inputs"].items():
        row = re.search(rf"^\| `{one}` \|.*\| (.*?) ?\|$", text, re.MULTILINE)
        assert row, one
        if re.fullmatch(r"[a-z]+", said["default"]):
            assert row[1] == f"`{said['default']}`"
    blocks = [yaml.safe_load(body) for body in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    assert blocks[0]["jobs"]["check"]["steps"][1]["with"].keys() <= ACTION["inputs"].keys()
    assert blocks[1]["steps"][1]["with"].keys() <= ACTION["inputs"].keys()
    assert blocks[-1]["repos"][0]["hooks"][0]["id"] == HOOKS[0]["id"]


def run_action(project: Path, temporary: Path, **inputs: str) -> tuple[dict[str, str], str, int]:
    """Run the action's steps but the installation and the upload; its step's outputs, what it printed, its status."""
    (temporary / "gonogo").mkdir(exist_ok=True)
    binaries = temporary / "gonogo" / "bin"
    if not binaries.exists():
        binaries.symlink_to(Path(sys.executable).parent)
    written = temporary / "output"
    written.write_text("")
    given = {name: one["default"] for name, one in ACTION["inputs"].items()}
    given.update({name.replace("_", "-"): value for name, value in inputs.items()})
    outputs: dict[str, str] = {}

    def value_of(expression: str) -> str:
        if expression.startswith("inputs."):
            return str(given[expression.removeprefix("inputs.")])
        return outputs[expression.removeprefix("steps.check.outputs.")]

    printed, status = "", 0
    for step in ACTION["runs"]["steps"]:
        if step["name"] not in ("Check", "Result") or status:
            continue
        environment: dict[str, Any] = {
            name: EXPRESSION.sub(lambda match: value_of(match[1]), value) for name, value in step["env"].items()
        }
        done = run_script(
            step["run"], project, RUNNER_TEMP=str(temporary), GITHUB_OUTPUT=str(written), LANG="C.UTF-8", **environment
        )
        outputs.update(line.split("=", 1) for line in written.read_text().splitlines())
        printed, status = printed + done.stdout + done.stderr, done.returncode
    return outputs, printed, status


def test_the_action_annotates_and_fails(project: Path, tmp_path: Path) -> None:
    outputs, printed, status = run_action(project, tmp_path, paths="ds.json\nlaunch.sh\n")
    assert status == 1, printed
    assert outputs["verdict"] == "NO-GO"
    assert re.search(r"^::error file=ds\.json,line=1", printed, re.MULTILINE)
    assert "sarif" not in outputs


def test_the_action_writes_sarif_and_tells_the_log(project: Path, tmp_path: Path) -> None:
    outputs, printed, status = run_action(project, tmp_path, format="sarif", command="bash 'launch.sh'", args=ONLY)
    assert status == 1, printed
    (result,) = json.loads(Path(outputs["sarif"]).read_text(encoding="utf-8"))["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "ds.json"
    assert "ds.json:1" in printed


def test_the_bytes_of_a_fix_in_sarif_are_those_that_fix_writes(project: Path) -> None:
    config = project / "ds.json"
    done = run_script(f"gonogo check {ONLY} --format sarif launch.sh ds.json", project)
    assert done.returncode == 1, done.stderr
    (change,) = json.loads(done.stdout)["runs"][0]["results"][0]["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "ds.json"
    expected = config.read_bytes()
    for replacement in sorted(change["replacements"], key=lambda one: -one["deletedRegion"]["byteOffset"]):
        start, length = replacement["deletedRegion"]["byteOffset"], replacement["deletedRegion"]["byteLength"]
        inserted = replacement.get("insertedContent", {"text": ""})["text"].encode()
        expected = expected[:start] + inserted + expected[start + length :]
    assert expected != config.read_bytes()
    assert run_script(f"gonogo check {ONLY} --fix launch.sh ds.json", project).returncode == 0
    assert config.read_bytes() == expected


def test_the_actions_inputs_are_never_executed(project: Path, tmp_path: Path) -> None:
    nasty = '$(touch pwned) `touch pwned` "; touch pwned; #'
    for name in ("paths", "command", "args", "fail-on", "format"):
        outputs, printed, status = run_action(project, tmp_path, **{name.replace("-", "_"): nasty})
        assert status != 0, printed
        assert outputs.get("verdict", "") in ("", "CANNOT-TELL", "NO-GO")
    assert not list(project.rglob("pwned"))


def test_cannot_tell_fails_unless_it_is_to_pass(tmp_path: Path) -> None:
    result = next(step for step in ACTION["runs"]["steps"] if step["name"] == "Result")
    for cannot_tell, status in (("fail", 3), ("pass", 0)):
        assert run_script(result["run"], tmp_path, STATUS="3", CANNOT_TELL=cannot_tell).returncode == status
    assert run_script(result["run"], tmp_path, STATUS="1", CANNOT_TELL="pass").returncode == 1


def instructions(text: str) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile with what follows them, lines joined."""
    joined = re.sub(r"\\\n\s*", "", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def test_the_dockerfile_is_as_linters_want_it() -> None:
    """What hadolint would say, where there is no docker to build it with."""
    steps = instructions((ROOT / "Dockerfile").read_text())
    words = [word for word, _ in steps]
    assert words[0] == "FROM"
    assert set(words) <= {"FROM", "RUN", "COPY", "WORKDIR", "USER", "ENTRYPOINT", "CMD"}
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", steps[0][1])  # DL3006, DL3007: a tag, and not latest
    assert words.index("USER") > max(place for place, word in enumerate(words) if word == "RUN")  # DL3002
    for word, rest in steps:
        if word == "COPY":
            for name in rest.split()[:-1]:
                assert (ROOT / name).exists(), name
        if word == "WORKDIR":
            assert rest.startswith("/")  # DL3000
        if word in ("ENTRYPOINT", "CMD"):
            assert json.loads(rest)  # DL3025
        if "apt-get install" in rest:
            assert "--no-install-recommends" in rest  # DL3015
            assert "rm -rf /var/lib/apt/lists/*" in rest  # DL3009
        if "pip install" in rest:
            assert "--no-cache-dir" in rest  # DL3042
            assert "--constraint constraints.txt" in rest  # DL3013
            extras = re.search(r"\.\[([\w,]+)\]", rest)
            assert extras
            assert set(extras[1].split(",")) <= tomllib_of("pyproject.toml")["project"]["optional-dependencies"].keys()


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_can_only_read_ends_in_time_and_calls_targets_that_exist(path: Path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow[True]  # what YAML makes of the key `on`
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 360  # the forge ends a job then
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
                continue
            assert not EXPRESSION.search(step["run"])  # a branch's name in a script's text would be executed
            checked = subprocess.run(["bash", "-n", "-c", step["run"]], capture_output=True, text=True, check=False)
            assert checked.returncode == 0, checked.stderr
            assert set(re.findall(r"\bmake ([\w-]+)", step["run"])) <= targets


def test_ci_tests_every_python_from_the_oldest_that_installs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    versions = [tuple(map(int, one.split("."))) for one in workflow["jobs"]["test"]["strategy"]["matrix"]["python"]]
    oldest = re.search(r"(\d+)\.(\d+)", tomllib_of("pyproject.toml")["project"]["requires-python"])
    assert oldest
    assert versions[0] == (int(oldest[1]), int(oldest[2]))
    assert versions == [(3, minor) for minor in range(versions[0][1], 15)]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_is_one_that_the_forge_takes(path: Path) -> None:
    """By the documented syntax: elements, their attributes, what can be required, ids that are unique."""
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert form.keys() <= {"name", "description", "title", "labels", "assignees", "projects", "type", "body"}
    assert len(form["name"]) >= 4
    assert 10 < len(form["description"]) < 200
    asked = [one for one in form["body"] if one["type"] != "markdown"]
    ids = [one["id"] for one in asked]
    assert len(set(ids)) == len(ids)
    assert {"command", "report", "really"} <= set(ids)
    for one in form["body"]:
        attributes = one["attributes"]
        assert one.keys() <= {"type", "id", "attributes", "validations"}
        if one["type"] == "markdown":
            assert attributes.keys() == {"value"}
            continue
        allowed = {
            "textarea": {"label", "description", "placeholder", "value", "render"},
            "dropdown": {"label", "description", "options", "multiple", "default"},
        }[one["type"]]
        assert {"label"} <= attributes.keys() <= allowed
        assert re.fullmatch(r"[A-Za-z0-9_-]+", one["id"])
        assert one.get("validations", {}).keys() <= {"required"}


def tomllib_of(name: str) -> dict[str, Any]:
    try:
        import tomllib
    except ModuleNotFoundError:
        import tomli as tomllib
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))

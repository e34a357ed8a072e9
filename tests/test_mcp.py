"""``gonogo mcp``, asked by the SDK's own client over both transports: answers, long work, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from mcp import StdioServerParameters
from mcp.client.client import Client
from ports import free_port

from gonogo.cli.mcp.server import MAX_ANSWER_CHARACTERS, make_server, truncate_to_limit
from gonogo.cli.mcp.short_answer import MAX_TOKENS, as_json, short_report
from gonogo.cli.schemas.report import report_schema
from gonogo.cli.serving.folders import Folders
from gonogo.cli.serving.jobs import Jobs
from gonogo.diagnose.pack.tokens import count_tokens
from gonogo.finding import Text

TOOLS = {"check", "prepare", "rehearse", "diagnose", "plan", "cure", "compare", "explain", "hazards", "job"}
BROKEN = '{"zero_optimization": {"stage": 9}}'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "ds.json").write_text(BROKEN)
    (folder / "launch.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds.json\n")
    (folder / "train.py").write_text("import torch\n")
    (tmp_path / "secret.json").write_text('{"zero_optimization": {"stage": "hunter2"}}')
    (folder / "way_out").symlink_to(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[tool.gonogo]\nignore = ['*']\n")  # above the folder: none of its
    return folder


def words(project: Path, *options: str) -> list[str]:
    return ["-m", "gonogo", "mcp", "--allow", str(project), *options]


@contextlib.asynccontextmanager
async def client_of(project: Path, transport: str, *options: str) -> AsyncIterator[Client]:
    if transport == "stdio":
        server = StdioServerParameters(
            command=sys.executable, args=words(project, *options), env=dict(os.environ), cwd="/"
        )
        async with Client(server) as client:
            yield client
        return
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, *words(project, "--http", str(port), *options)], stderr=subprocess.PIPE, cwd="/"
    )
    try:
        await listening(port)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield client
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def listening(port: int) -> None:
    for _ in range(600):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the server did not come up")


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_tools_answer_with_what_their_schemas_say(project: Path, transport: str) -> None:
    async def ask() -> None:
        async with client_of(project, transport) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == TOOLS
            for tool in tools.values():
                assert tool.description
                jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            found = await client.call_tool("check", {"command": ["bash", "launch.sh"]})
            answer: Any = found.structured_content
            assert not found.is_error
            assert (answer["state"], answer["verdict"], answer["exit_status"]) == ("done", "NO-GO", 1)
            assert "stage" in json.dumps(answer["report"]["findings"])
            whole = (await client.read_resource(answer["whole"])).contents[0]
            jsonschema.validate(json.loads(whole.text), report_schema())  # type: ignore[union-attr]
            page = await client.call_tool("explain", {"name": answer["report"]["findings"][0]["hazard"]})
            assert "## " in page.structured_content["report"]["page"]
            listed: Any = (await client.call_tool("hazards", {"stage": "config"})).structured_content
            assert "more]" in listed["report"]["hazards"][-1]
            assert count_tokens(as_json(listed)) <= MAX_TOKENS
            more: Any = (await client.call_tool("job", {"job": listed["job"], "detail": True})).structured_content
            assert more["cut"]
            assert len(json.dumps(more["report"], ensure_ascii=False)) <= MAX_ANSWER_CHARACTERS
            whole = (await client.read_resource(listed["whole"])).contents[0]
            assert len(json.loads(whole.text)["hazards"]) > len(more["report"]["hazards"])  # type: ignore[union-attr]
            assert listed["report"]["count"] == len(json.loads(whole.text)["hazards"])  # type: ignore[union-attr]
            schema = (await client.read_resource("gonogo://schemas/report")).contents[0]
            assert json.loads(schema.text) == json.loads(json.dumps(report_schema()))  # type: ignore[union-attr]
            (project / "train.log").write_text("Traceback (most recent call last):\nRuntimeError: no such thing\n")
            told: Any = await client.call_tool("diagnose", {"logs": ["train.log"], "language": "zh"})
            assert told.structured_content["verdict"] in ("NO-GO", "CANNOT-TELL")

    asyncio.run(asyncio.wait_for(ask(), 240))


@pytest.mark.slow
def test_a_pasted_log_a_typed_command_and_prepare(project: Path) -> None:
    log = f"""[rank1]: Traceback (most recent call last):
[rank1]:   File "{project}/train.py", line 1, in <module>
[rank1]:     import torch
[rank1]: KeyError: 'answer'
"""

    async def ask() -> None:
        async with client_of(project, "stdio") as client:
            told: Any = (
                await client.call_tool("diagnose", {"text": log, "command": "bash launch.sh", "detail": True})
            ).structured_content
            assert "KeyError: 'answer'" in told["pack"]
            assert "deepspeed --num_gpus 8" in told["pack"]
            assert str(project) not in told["pack"]
            assert "pack" not in told["report"]
            assert told["report"]["log"]["events"][0]["type"] == "KeyError"
            assert len(json.dumps(told, ensure_ascii=False)) < MAX_ANSWER_CHARACTERS + 8000
            for command in ("bash launch.sh", ["bash launch.sh"], "cd . && NCCL_DEBUG=INFO bash launch.sh"):
                found: Any = (await client.call_tool("check", {"command": command})).structured_content
                assert "stage" in json.dumps(found["report"]["findings"]), command
            listed: Any = await client.call_tool(
                "prepare", {"command": "python train.py", "list_only": True, "files_only": True}
            )
            assert not listed.is_error
            assert listed.structured_content["exit_status"] in (0, 3)
            assert not (project / "gonogo-prepared").exists()

    asyncio.run(asyncio.wait_for(ask(), 240))


@pytest.mark.slow
def test_what_is_hostile_is_refused_in_words(project: Path) -> None:
    outside = str(project.parent / "secret.json")
    (project / "leak.sh").write_text(f"deepspeed --num_gpus 8 train.py --deepspeed {outside}\n")
    asked: list[tuple[str, dict[str, Any], str]] = [
        ("check", {"paths": ["../secret.json"]}, "outside the allowed folders"),
        ("check", {"paths": [outside]}, "outside the allowed folders"),
        ("check", {"paths": ["way_out/secret.json"]}, "outside the allowed folders"),
        ("check", {"paths": ["~/.ssh/id_rsa"]}, "outside the allowed folders"),
        ("check", {"paths": ["a\0b"]}, "null byte"),
        ("check", {"paths": ["--fix"]}, "./--fix"),
        ("check", {"paths": [f"--output={outside}"]}, "--output="),
        ("check", {"folder": ".."}, "outside the allowed folders"),
        ("check", {"folder": "ds.json"}, "no such folder"),
        ("check", {"environment": "/etc/hostname"}, "outside the allowed folders"),
        ("check", {"command": ["deepspeed", "train.py", f"--deepspeed={outside}"]}, "outside the allowed folders"),
        ("check", {"command": ["x"] * 1000}, "the limit is 400"),
        ("check", {"paths": 3}, "paths"),
        ("check", {"language": "fr"}, "language"),
        ("diagnose", {"logs": ["-"]}, "./-"),
        ("diagnose", {"logs": []}, "either logs"),
        ("diagnose", {"logs": ["train.log"], "text": "Killed"}, "either logs"),
        ("diagnose", {"text": "x" * 5_000_000}, "text"),
        ("check", {"command": f"cd x && cat {outside}"}, "outside the allowed folders"),
        ("check", {"command": "bash 'launch.sh"}, "unclosed quote"),
        ("prepare", {"command": ""}, "no command"),
        ("plan", {"model": "--write=/tmp"}, "--write"),
        ("plan", {"model": "none/such"}, "none/such"),
        ("rehearse", {"command": []}, "no command"),
        ("rehearse", {"command": ["python", "train.py"], "gpus": "--output=x"}, "unknown GPU"),
        ("rehearse", {"command": ["python", "train.py"], "steps": 10**9}, "steps"),
        ("rehearse", {"command": ["python", "train.py"], "set": "micro_batch=2"}, "did you mean micro-batch?"),
        ("rehearse", {"command": ["python", "train.py"], "also": ["stage=9"]}, "one of 0, 1, 2, 3"),
        ("rehearse", {"command": ["python", "train.py"], "also": ["--output=x"]}, "there is no setting"),
        ("compare", {"before": "../secret.json", "after": "ds.json"}, "outside the allowed folders"),
        ("compare", {"before": "ds.json", "after": "ds.json"}, "ds.json"),
        ("explain", {"name": "--output=x"}, "name"),
        ("explain", {"name": "no-such-hazard"}, "no hazard with this name"),
        ("job", {"job": "../../x"}, "no job "),
        ("nothing", {}, "nothing"),
    ]

    async def ask() -> None:
        async with client_of(project, "stdio") as client:
            for tool, arguments, said in asked:
                is_error, text = await said_of(client, tool, arguments)
                assert is_error, (tool, arguments)
                assert said in text, (tool, arguments, text)
                assert "Traceback" not in text
            leak = await client.call_tool("check", {"command": ["bash", "leak.sh"]})
            assert "hunter2" not in json.dumps(leak.structured_content)
            with pytest.raises(mcp_error()):
                await client.read_resource("gonogo://results/none")
            alive = await client.call_tool("explain", {"name": "program-raises"})
            assert not alive.is_error

    asyncio.run(asyncio.wait_for(ask(), 240))
    assert not (project / "x").exists()
    assert (project / "ds.json").read_text() == BROKEN


async def said_of(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[bool, str]:
    try:
        answer = await client.call_tool(tool, arguments)
    except mcp_error() as error:
        return True, str(error)
    return bool(answer.is_error), answer.content[0].text  # type: ignore[union-attr]


def mcp_error() -> type[Exception]:
    from mcp.shared.exceptions import MCPError

    return MCPError


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_long_work_is_started_asked_for_and_cancelled(project: Path, transport: str) -> None:
    marker = project / "pid"
    (project / "train.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(marker)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    said: list[str | None] = []

    async def heard(_done: float, _all: float | None, message: str | None) -> None:
        said.append(message)

    async def ask() -> None:
        async with client_of(project, transport) as client:
            arguments = {"command": ["python", "train.py"], "gpus": "1xH100-80G", "wait": 4}
            began: Any = (await client.call_tool("rehearse", arguments, progress_callback=heard)).structured_content
            assert began["state"] == "running"
            assert said
            asked: Any = (await client.call_tool("job", {"job": began["job"], "wait": 0})).structured_content
            assert asked["state"] == "running"
            before = time.monotonic()
            ended: Any = (await client.call_tool("job", {"job": began["job"], "cancel": True})).structured_content
            assert ended["state"] == "cancelled"
            assert time.monotonic() - before < 30
            with pytest.raises((asyncio.TimeoutError, TimeoutError)):
                await asyncio.wait_for(client.call_tool("rehearse", {**arguments, "wait": 200}), 3)
            assert not (await client.call_tool("explain", {"name": "program-raises"})).is_error

    asyncio.run(asyncio.wait_for(ask(), 240))
    for _ in range(100):
        left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(project).encode() in _read(path)]
        if not left:
            return
        time.sleep(0.2)
    pytest.fail(f"still running: {left}")


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def test_http_is_for_this_machine_and_for_no_page_of_another(project: Path) -> None:
    port = free_port()
    process = subprocess.Popen([sys.executable, *words(project, "--http", f"localhost:{port}")], stderr=subprocess.PIPE)
    try:
        asyncio.run(listening(port))
        for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/mcp", b"{}", {"Content-Type": "application/json", **header}
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=30)
            assert 400 <= caught.value.code < 500
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--allow", "/no/such"], "--allow /no/such: no such folder"),
        (["--http", "0.0.0.0:80"], "not reachable from other machines"),
        (["--http", "99999"], "must be a local port"),
    ],
)
def test_a_start_that_makes_no_sense_is_one_line(options: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, "-m", "gonogo", "mcp", *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_the_sdk_one_line_says_what_to_install(project: Path) -> None:
    program = (
        "import sys; sys.modules['mcp'] = None; sys.argv[1:] = ['mcp', '--lang', 'en']\n"
        "from gonogo.cli.app import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=project)
    assert done.returncode == 2
    assert "pip install -e " in done.stderr
    assert "[mcp]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_programs_are_not_run_where_that_is_not_wanted(project: Path) -> None:
    async def ask() -> None:
        async with client_of(project, "stdio", "--no-run") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS - {"rehearse", "cure", "prepare"}

    asyncio.run(asyncio.wait_for(ask(), 120))


def test_every_report_is_as_its_schema_says() -> None:
    validator = jsonschema.Draft202012Validator(report_schema())
    jsonschema.Draft202012Validator.check_schema(report_schema())
    reports = sorted((Path(__file__).parent / "report/expected").glob("*.json"))
    assert len(reports) > 10
    for path in reports:
        validator.validate(json.loads(path.read_text(encoding="utf-8")))


def test_a_short_answer_has_the_verdict_and_what_to_do_in_few_tokens() -> None:
    for path in sorted((Path(__file__).parent / "report/expected").glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        short = short_report(report, "zh" if ".zh." in path.name else "en")
        assert count_tokens(as_json(short)) <= MAX_TOKENS
        assert short["reason"].rstrip("。.") in json.dumps(report, ensure_ascii=False)
        assert short["next"]
        assert len(short.get("findings", ())) == len(report["findings"])


def test_a_patch_is_answered_whole_or_not_at_all() -> None:
    cure = {"patch": "-a\n+b\n" * 40, "proven": True, "folder": ".", "pins": [], "variables": {}, "command": None}
    report = {"cure": {**cure, "steps": [], "alternatives": []}, "notes": ["long " * 3000] * 50}
    assert short_report(report)["patch"] == cure["patch"]
    report["cure"]["patch"] *= 100  # type: ignore[index]
    assert "patch" not in short_report(report)


def test_the_list_of_tools_is_short(tmp_path: Path) -> None:
    """3,000 tokens; a real tokenizer takes four characters to one (`benchmarks/agent_answers.py` counts by two)."""
    server, _ = make_server(Folders([tmp_path], Text("", "")), runs=True)
    tools = [tool.model_dump(by_alias=True, exclude_none=True) for tool in asyncio.run(server.list_tools())]
    assert {tool["name"] for tool in tools} == TOOLS
    assert len(as_json(tools)) < 3.3 * 3000


def test_other_settings_are_rehearsed_and_two_rehearsals_of_jobs_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, jobs = make_server(Folders([tmp_path], Text("", "")), runs=True)
    asked = {"command": "bash launch.sh", "set": "seq-len=8192", "also": ["stage=2", "micro-batch=4,accumulation=2"]}
    began: list[list[str]] = []
    with monkeypatch.context() as patched:
        patched.setattr(Jobs, "start", lambda _, words, *__: began.append(words))
        with contextlib.suppress(Exception):  # what stands there is no job
            asyncio.run(server.call_tool("rehearse", asked))
    at = began[0].index("--set=seq-len=8192")
    assert began[0][at + 1 : at + 3] == ["--also=stage=2", "--also=micro-batch=4,accumulation=2"]
    reports = Path(__file__).parent / "report/expected"
    for name, file in (("first", "rehearse_go.en.json"), ("second", "rehearse_memory.en.json")):
        result = (reports / file).read_text(encoding="utf-8")
        jobs._jobs[name] = SimpleNamespace(id=name, tool="rehearse", status=0, result=result, poll=lambda: True)  # type: ignore[assignment]
    monkeypatch.setattr("gonogo.cli.mcp.server._PROGRESS_INTERVAL_SECONDS", 60.0)  # no client is there to hear it
    answer: Any = asyncio.run(server.call_tool("compare", {"before": "first", "after": "second"}))
    assert answer.structured_content["report"]["judged"] == "regressed"
    assert any(change.startswith("verdict: GO -> NO-GO") for change in answer.structured_content["report"]["changes"])


def test_a_cut_answer_keeps_its_shape() -> None:
    long = {"verdict": "GO", "findings": [{"title": "x" * 5000}] * 500, "rehearsal": {"ranks": [["y" * 90] * 90] * 90}}
    small, is_cut = truncate_to_limit(long)
    assert is_cut
    assert small["verdict"] == "GO"
    assert small["findings"]
    assert len(json.dumps(small)) <= MAX_ANSWER_CHARACTERS
    assert truncate_to_limit({"verdict": "GO"}) == ({"verdict": "GO"}, False)

"""``gonogo ui``: who may come in, what of the folder it shows, what it starts, and what it keeps."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import samples
from starlette.testclient import TestClient

from gonogo.cli.serving.folders import Folders
from gonogo.cli.ui.app import make_app
from gonogo.cli.ui.page_request import UiRequest, command_words
from gonogo.cli.ui.report_store import ReportStore, StoredReport
from gonogo.cli.ui.words import WORDS
from gonogo.finding import Text
from gonogo.prepare.prompts import PROGRESS, PROGRESS_STATES, STATE
from gonogo.rehearse.display import live_display
from gonogo.rehearse.progress import RankStatus, RehearsalStatus, ended_status
from gonogo.report import render
from gonogo.virtual.protocol.plan import Progress

sys.path.insert(0, str(Path(__file__).parent / "report"))
from pages import rehearsed_report as rehearsed

TOKEN = "a-token-of-some-length"
STATIC = Path(__file__).parents[1] / "src" / "gonogo" / "cli" / "ui" / "static"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GONOGO_CACHE_SIZE", "100M")
    folder = tmp_path / "project"
    (folder / "deep").mkdir(parents=True)
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 9}}')
    (folder / "launch.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds.json\n")
    (folder / "train.py").write_text("import torch\n")
    (folder / "train.log").write_text("Traceback (most recent call last):\nRuntimeError: no such thing\n")
    (folder / "<img src=x onerror=alert(1)>.sh").write_text("true\n")
    (tmp_path / "secret.json").write_text('{"zero_optimization": {"stage": "hunter2"}}')
    (folder / "way_out").symlink_to(tmp_path)
    (folder / "leak.json").symlink_to(tmp_path / "secret.json")
    return folder


def folders_of(project: Path) -> Folders:
    return Folders([project], Text("no way", "无"))


@pytest.fixture
def client(project: Path) -> Iterator[TestClient]:
    app = make_app(folders_of(project), TOKEN, "en")
    with TestClient(app, base_url="http://127.0.0.1:8765", follow_redirects=False) as one:
        yield one


def ended(client: TestClient, job: dict[str, Any]) -> dict[str, Any]:
    deadline = time.monotonic() + 200
    while job["state"] == "running" and time.monotonic() < deadline:
        job = client.get(f"/{TOKEN}/api/jobs/{job['id']}", params={"doing": job["doing"]}).json()
    return job


def begun(client: TestClient, **asked: Any) -> Any:
    return client.post(f"/{TOKEN}/api/jobs", json=asked)


def test_the_page_is_there_for_who_knows_the_token_and_nobody_else(client: TestClient) -> None:
    page = client.get(f"/{TOKEN}/")
    assert page.status_code == 200
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["referrer-policy"] == "no-referrer"
    for path in ("/", "/api/start", "/wrong/api/start", f"/{TOKEN}x/", f"/{TOKEN[:-1]}/api/start", "/ui.js", "//"):
        assert client.get(path).status_code == 404, path
    assert client.get(f"/{TOKEN}/ui.js").headers["content-type"].startswith("text/javascript")
    assert "--paper" in client.get(f"/{TOKEN}/ui.css").text
    for path in ("../app.py", "%2e%2e/app.py", "app.py", "static/ui.js"):
        assert client.get(f"/{TOKEN}/{path}").status_code == 404, path


def test_other_hosts_and_origins_are_refused(client: TestClient) -> None:
    path = f"/{TOKEN}/api/start"
    for host in ("evil.example", "evil.example:8765", "127.0.0.1.evil.example:8765", ""):
        assert client.get(path, headers={"host": host}).status_code == 403, host
    for origin in ("http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:8766"):
        assert client.get(path, headers={"origin": origin}).status_code == 403, origin
    assert client.get(path, headers={"origin": "http://127.0.0.1:8765"}).status_code == 200
    assert client.get(path, headers={"host": "localhost:9000", "origin": "http://localhost:9000"}).status_code == 200
    as_text = client.post(f"/{TOKEN}/api/jobs", content="{}", headers={"content-type": "text/plain"})
    assert as_text.status_code == 415


def test_a_report_has_a_key_of_its_own_that_opens_nothing_else(client: TestClient) -> None:
    key = client.get(f"/{TOKEN}/api/start").json()["reports"]
    assert TOKEN not in key
    assert client.get(f"{key}api/start").status_code == 404
    assert client.get(f"{key}000000000000").status_code == 404
    for name in ("..%2f..%2fetc%2fpasswd", "0" * 11, "A" * 12):
        assert client.get(f"{key}{name}").status_code == 404


def test_the_folder_is_shown_and_nothing_around_it(client: TestClient, project: Path) -> None:
    told = client.get(f"/{TOKEN}/api/folder").json()
    kinds = {entry["name"]: entry["kind"] for entry in told["entries"]}
    assert kinds == {
        "deep": "folder", "launch.sh": "launch", "<img src=x onerror=alert(1)>.sh": "launch", "train.py": "launch",
        "train.log": "log", "ds.json": "file",
    }  # fmt: skip
    assert told["left_out"] == 2
    commands = {entry["name"]: entry["command"] for entry in told["entries"]}
    assert commands["launch.sh"] == "bash launch.sh"
    assert commands["<img src=x onerror=alert(1)>.sh"] == "bash '<img src=x onerror=alert(1)>.sh'"
    for outside in ("..", "way_out", "/etc", "~", "deep/../..", "a\0b", "x" * 50_000):
        answer = client.get(f"/{TOKEN}/api/folder", params={"path": outside})
        assert answer.status_code == 400, outside
        assert set(answer.json()["refused"]) == {"en", "zh"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"tool": "check", "folder": ".."}, "outside the allowed folders"),
        ({"tool": "check", "command": "deepspeed train.py --deepspeed ../secret.json"}, "outside the allowed"),
        ({"tool": "check", "command": "bash way_out/x.sh"}, ""),
        ({"tool": "check", "command": "bash 'launch.sh"}, "the command has an unclosed quote"),
        ({"tool": "rehearse"}, "no command"),
        ({"tool": "rehearse", "command": "bash launch.sh", "settings": {"stage": "9"}}, "one of 0, 1, 2, 3"),
        ({"tool": "rehearse", "command": "bash launch.sh", "also": [{"--output": "x"}]}, "there is no setting"),
        ({"tool": "cure", "command": "  "}, "no command"),
        ({"tool": "plan"}, "plan needs a model"),
        ({"tool": "plan", "model": "/etc"}, "outside the allowed folders"),
        ({"tool": "diagnose"}, "no log"),
        ({"tool": "diagnose", "logs": ["leak.json"]}, "outside the allowed folders"),
        ({"tool": "report", "records": "../x"}, "outside the allowed folders"),
        ({"tool": "run", "command": "bash launch.sh"}, "invalid request"),
        ({"tool": "check", "output": "/etc/passwd"}, "invalid request"),
        ({"tool": "check", "language": "xx"}, "invalid request"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(client: TestClient, asked: dict[str, Any], said: str) -> None:
    answer = begun(client, **asked)
    if said:
        assert answer.status_code == 400
        assert said in answer.json()["refused"]["en"]
    else:  # nothing lies there: the command answers, and reads nothing outside
        assert "hunter2" not in client.get(f"/{TOKEN}/api/reports").text


def test_what_is_asked_becomes_words_that_are_never_options(project: Path) -> None:
    def words(**asked: Any) -> list[str]:
        return command_words(UiRequest(**asked), folders_of(project))[0]

    assert words(tool="check") == ["check", "--format=html", "--lang=en", "."]
    given = {"command": "bash launch.sh \\\n --lr 1", "gpus": "8xH100-80G", "nodes": 2, "steps": 3, "ranks": "all"}
    assert words(tool="rehearse", language="zh", **given) == [
        "rehearse", "--format=html", "--lang=zh", "--gpus=8xH100-80G", "--nodes=2", "--ranks=all", "--steps=3", "--",
        "bash", "launch.sh", "--lr", "1",
    ]  # fmt: skip
    others = {"settings": {"seq-len": "8192", "stage": "2"}, "also": [{"micro-batch": "4"}, {"accumulation": "2"}]}
    assert words(tool="rehearse", command="bash launch.sh", **others)[3:-3] == [
        "--set=seq-len=8192,stage=2", "--also=micro-batch=4", "--also=accumulation=2",
    ]  # fmt: skip
    assert words(tool="plan", model="Qwen/Qwen2-7B", seq_len=2048)[3:] == ["--seq-len=2048", "Qwen/Qwen2-7B"]
    assert words(tool="plan", model="deep", command="bash launch.sh")[3:] == ["./deep"]
    assert words(tool="cure", command="bash launch.sh", training_changes=True)[3:5] == [
        "--output-patch=/dev/null",
        "--allow-training-changes",
    ]
    assert words(tool="diagnose", logs=["train.log"], log="x", with_files=True)[3:] == [
        "--project=.",
        "-",
        "./train.log",
    ]
    assert words(tool="diagnose", logs=["--output=x"])[3:] == ["./--output=x"]
    assert words(tool="report", records="deep")[0:4] == ["run", "--format=html", "--lang=en", "--report=./deep"]


def test_a_check_and_a_pasted_log_become_reports_that_stay(client: TestClient, project: Path) -> None:
    job = ended(client, begun(client, tool="check", command="bash launch.sh", folder=".").json())
    assert (job["state"], job["verdict"], job["tool"], job["what"]) == ("done", "NO-GO", "check", "bash launch.sh")
    key = client.get(f"/{TOKEN}/api/start").json()["reports"]
    page = client.get(f"{key}{job['id']}")
    assert "zero_optimization" in page.text
    assert page.headers["content-security-policy"].startswith("sandbox allow-scripts allow-popups ")
    log = "[rank0]: Traceback (most recent call last):\n[rank0]: RuntimeError: <script>alert(1)</script>\x1b[31m\n"
    told = ended(client, begun(client, tool="diagnose", log=log, language="zh").json())
    assert told["state"] == "done"
    assert "<script>alert" not in client.get(f"{key}{told['id']}").text
    with TestClient(make_app(folders_of(project), "another", "en"), base_url="http://127.0.0.1:1") as later:
        earlier = later.get("/another/api/reports").json()
        assert [(one["tool"], one["verdict"]) for one in earlier][-1] == ("check", "NO-GO")
        again = later.get("/another/api/start").json()["reports"]
        assert later.get(f"{again}{job['id']}").text == page.text
    with TestClient(make_app(folders_of(project / "deep"), "third", "en"), base_url="http://127.0.0.1:1") as other:
        assert other.get("/third/api/reports").json() == []
        elsewhere = other.get("/third/api/start").json()["reports"]
        assert other.get(f"{elsewhere}{job['id']}").status_code == 404


def test_work_is_cancelled_with_all_that_it_started(client: TestClient, project: Path) -> None:
    (project / "long.py").write_text("import time\ntime.sleep(600)\n")
    job = begun(client, tool="rehearse", command="python long.py").json()
    assert job["state"] == "running"
    assert client.get(f"/{TOKEN}/api/reports").json()[0]["id"] == job["id"]
    assert client.post(f"/{TOKEN}/api/jobs/{job['id']}/cancel", json={}).json()["state"] == "cancelled"
    assert client.post(f"/{TOKEN}/api/jobs/nothing/cancel", json={}).status_code == 400


def test_what_fails_says_why_as_text(client: TestClient) -> None:
    job = ended(client, begun(client, tool="rehearse", command="bash launch.sh", gpus="8x<b>none</b>").json())
    assert (job["state"], job["verdict"]) == ("failed", "")
    assert "<b>none</b>" in job["complaint"]


def test_every_word_of_the_page_is_said_in_both_languages() -> None:
    script, markup = ((STATIC / name).read_text(encoding="utf-8") for name in ("ui.js", "ui.html"))
    named = set(re.findall(r'data-say(?:-\w+)?="([^"]+)"', markup)) | set(re.findall(r'say\("([^"]+)"\)', script))
    assert named <= set(WORDS)
    for text in WORDS.values():
        assert text.en
        assert text.zh
        assert text.en.count("{") == text.zh.count("{")
    assert "innerHTML" not in script
    assert not re.search(r"https?://", script + markup)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["/no/such", "--lang", "en"], "/no/such: no such folder"),
        (["--port", "TAKEN", "--lang", "en"], "without --port a free port is chosen"),
    ],
)
def test_a_start_that_makes_no_sense_is_one_line(options: list[str], said: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = [word.replace("TAKEN", str(taken.getsockname()[1])) for word in options]
        command = [sys.executable, "-m", "gonogo", "ui", "--no-open", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_its_packages_one_line_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv[1:] = ['ui', '--no-open', '--lang', 'en']\n"
        "from gonogo.cli.app import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install -e " in done.stderr
    assert "[ui]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_any_two_rehearsals_of_the_history_are_compared(client: TestClient, project: Path) -> None:
    store = ReportStore(project)
    for number, activations in enumerate((1.0, 2.0)):
        made = StoredReport(f"{number}" * 12, "rehearse", "", "bash launch.sh", 1000.0 + number, 1.0, 0)
        store.store_report(made, render(rehearsed(activations), "html", "en"))
    store.store_report(StoredReport("2" * 12, "check", "", "bash launch.sh", 1002.0, 1.0, 0), "<p>no rehearsal</p>")
    # The older is the one before, in whichever order they are named.
    answer = client.post(f"/{TOKEN}/api/compare", json={"one": "1" * 12, "other": "0" * 12})
    assert answer.status_code == 200
    made = answer.json()
    assert (made["tool"], made["verdict"], made["state"]) == ("compare", "REGRESSED", "done")
    reports_at = client.get(f"/{TOKEN}/api/start").json()["reports"]
    page = client.get(f"{reports_at}{made['id']}").text
    assert "Before and after" in page
    assert "Memory of both rehearsals over time" in page
    listed = {one["id"]: one["verdict"] for one in client.get(f"/{TOKEN}/api/reports").json()}
    assert listed[made["id"]] == "REGRESSED"
    for other, status in (("2" * 12, 400), ("f" * 12, 400), ("../../etc", 400)):
        refused = client.post(f"/{TOKEN}/api/compare", json={"one": "0" * 12, "other": other})
        assert refused.status_code == status
        assert refused.json()["refused"]["zh"]


def test_what_ranks_do_reaches_the_page_while_they_do_it(
    client: TestClient, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The display writes lines; a job reads them as they come, whole ones only; the page is given what it lacks."""
    monkeypatch.setenv(PROGRESS, PROGRESS_STATES)
    record = samples.rank_record(1, "raised")
    record.failure = samples.failure()
    running = RankStatus(0, "running", Progress(0, "backward", 1, 9, 3 << 30, 1 << 30, "model.layers.3\x1b[31m"))
    with live_display("en") as on_progress:
        assert on_progress is not None
        for ranks in ((running,), (running,), (running, ended_status(record))):
            on_progress(RehearsalStatus(Text("rehearsing", "排练中"), 2.0, ranks, steps=2))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [PROGRESS, STATE, STATE], "nothing is told twice"

    program = project / "program.py"
    program.write_text(
        "import sys, time, pathlib\n"
        f"first, second = {lines[1]!r}, {lines[2]!r}\n"
        "sys.stderr.write(f'{first}\\n{second[:40]}'); sys.stderr.flush()\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.02)\n"
        "sys.stderr.write(f'{second[40:]}\\nwhat else it says\\n'); sys.exit(7)\n"
    )
    python = project / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {program}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    job = begun(client, tool="check").json()
    job = client.get(f"/{TOKEN}/api/jobs/{job['id']}", params={"doing": "", "seen": 0}).json()
    assert (job["state"], job["seen"]) == ("running", 1)
    assert job["states"][0]["steps"] == 2
    assert job["states"][0]["ranks"] == [
        {"rank": 0, "state": "running", "phase": "backward", "step": 1, "gpu": 3 << 30, "host": 1 << 30,
         "doing": "model.layers.3"}
    ]  # fmt: skip
    (project / "go").touch()
    job = client.get(f"/{TOKEN}/api/jobs/{job['id']}", params={"doing": "", "seen": 1}).json()
    failed = job["states"][0]["ranks"][1]
    assert failed["state"] == "raised"
    assert failed["failure"].startswith(record.failure.type)
    assert ended(client, job)["complaint"] == "what else it says"

"""No secret in what gonogo writes down."""

from __future__ import annotations

import json
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gonogo.evidence.rehearsal.record import AcceleratorFacts, Failure, Frame, RankRecord, RehearsalRecord
from gonogo.finding import Applicability, Certainty, Edit, Finding, Fix, Report, Severity, Span, Text, Verdict
from gonogo.finding.redaction import MASK, Redactor, redact, redact_strings
from gonogo.report import FORMATS, render
from gonogo.report.untrusted import print_error

HF = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"
HEXADECIMAL = "0123456789abcdef0123456789abcdef01234567"
KEY = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA1234567890abcdefghijklmnopqrstuvwxyzABCDEF\n" * 3
END = "-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (f"train.py --hf_token {HF} --lr 1", "train.py --hf_token hf_*** --lr 1"),
        (f"'{HF}'", "'hf_***'"),
        (
            "Incorrect API key provided: sk-proj-abcdEFGH1234567890abcdEFGH1234.",
            "Incorrect API key provided: sk-proj-***.",
        ),
        ("ghp_0123456789abcdefghijABCDEFGHIJ012345", "ghp_***"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789", "github_pat_***"),
        ("glpat-abcdEFGH1234ijklMNOP", "glpat-***"),
        ("AKIAIOSFODNN7EXAMPLE in us-east-1", "AKIA*** in us-east-1"),
        ("xoxb-123456789012-abcdefABCDEF123456", "xoxb-***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4", "eyJhbGciOiJIUzI1NiJ9.***"),
        (f"a\n{KEY}{END}\nb", f"a\n-----BEGIN RSA PRIVATE KEY-----***\n{END}\nb"),
        (f"{KEY}Traceback (most recent call last):", "-----BEGIN RSA PRIVATE KEY-----*** (most recent call last):"),
        ("ProxyError: http://bob:hunter2@proxy:3128/", "ProxyError: http://***:***@proxy:3128/"),
        ("postgres://u:p@ss@h/db", "postgres://***:***@h/db"),
        ("git+https://ghp_0123456789abcdefghijABCDEFGHIJ012345@github.com/a/b", "git+https://***@github.com/a/b"),
        (f"export WANDB_API_KEY={HEXADECIMAL}", f"export WANDB_API_KEY={MASK}"),
        (f"WANDB_API_KEY: {HEXADECIMAL}", f"WANDB_API_KEY: {MASK}"),
        (f'{{"api_key": "{HEXADECIMAL}"}}', f'{{"api_key": "{MASK}"}}'),
        ("Authorization: Bearer abcDEF0123456789xyz", "Authorization: Bearer ***"),
        ("https://h/x?access_token=abcdef123&y=1", "https://h/x?access_token=***&y=1"),
        ("--db_password hunter2 --db-password='a b c d'", "--db_password *** --db-password='***'"),
        ("DB_PASSWORD=hunter2 python train.py", "DB_PASSWORD=*** python train.py"),
        ('"password": "hunter2"', '"password": "***"'),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "AWS_SECRET_ACCESS_KEY=***"),
        ("https://hooks.slack.com/services/T0000/B0000/abcdEFGH", "https://hooks.slack.com/services/***"),
    ],
)
def test_secrets_are_masked(text: str, masked: str) -> None:
    redactor = Redactor({})  # pytest has the text in a variable of its own
    assert redactor.text(text) == masked
    assert redactor.text(masked) == masked  # once more changes nothing


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=4096, pad_token='[PAD]', eos_token='</s>', tokenizer=LlamaTokenizerFast",
        "KeyError: 'token'",
        "self.token2wav = Qwen2_5OmniToken2WavModel(config.token2wav_config)",
        "ValueError: input_key messages not found, label_key=label_of_the_answer",
        f"git+https://github.com/a/b@{HEXADECIMAL}",
        f"at commit {HEXADECIMAL}, sha256:{HEXADECIMAL}",
        "pip install sk-learn-contrib-packages-of-ours hf_transfer hf_xet npm_and_more",
        "the password is required: password=config.password, secret = None, auth_token=None",
        "http://localhost:8080/x@y and file:///a/b and ssh://git@github.com/a/b",
        "model.layers.0.self_attn.k_proj.key_states: torch.Size([1, 32, 4096, 128])",
        "attention keys: Qwen2ForCausalLM.model.layers, key: model.embed_tokens.weight",
        "token 151643 is outside of the vocabulary of 151936 tokens",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBa\n-----END CERTIFICATE-----",
        "export HF_TOKEN=$HF_TOKEN; export WANDB_API_KEY=<your key>; --hub_token ${TOKEN}",
        "密码不能为空；token 数量：4096",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor({}).text(text) == text


def test_the_values_of_this_process_are_masked_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPANY_PASSWORD", 'tr0ub4dor&3 "x"')
    monkeypatch.setenv("COMPANY_TOKEN", "correcthorse")
    monkeypatch.setenv("SHORT_TOKEN", "abc")
    monkeypatch.setenv("MY_PROXY", "http://bob:swordfish99@proxy:3128")
    monkeypatch.setenv("DATA_DIR", "/data/of/mine")
    text = 'a tr0ub4dor&3 "x" b; tr0ub4dor%263%20%22x%22; "tr0ub4dor&3 \\"x\\""; correcthorse incorrecthorses; abc'
    assert redact(text) == f'a {MASK} b; {MASK}; "{MASK}"; {MASK} incorrecthorses; abc'
    assert redact("xswordfish99x /data/of/mine") == f"x{MASK}x /data/of/mine"
    monkeypatch.delenv("COMPANY_TOKEN")
    assert redact("correcthorse") == "correcthorse"


@settings(max_examples=300, deadline=None)
@given(
    secret=st.text(alphabet=string.printable, min_size=8, max_size=40).filter(
        lambda one: one.strip() == one and "=" not in one
    ),
    before=st.text(max_size=30),
    after=st.text(max_size=30),
)
def test_no_value_of_a_variable_is_left(secret: str, before: str, after: str) -> None:
    redactor = Redactor({"MY_PASSWORD": secret})
    shown = redactor.text(f"{before} {secret} {after}")
    assert secret not in shown.replace(f"{before} ", "", 1) or secret in MASK or secret in before or secret in after


def record() -> RehearsalRecord:
    failure = Failure(
        "ValueError",
        f"bad token {HF}",
        (Frame("/p/train.py", 3, "main", f'login("{HF}")', "user"),),
        "load",
        0,
        traceback=f"Traceback (most recent call last):\nValueError: bad token {HF}",
    )
    rank = RankRecord(
        rank=0, local_rank=0, device="cuda:0", outcome="raised", failure=failure, events=[f"printed {HF}"],
        deepspeed_config={"hub": {"token": HF, "stages": [1, HF]}, "n": 1},
    )  # fmt: skip
    return RehearsalRecord(
        command=["python", "train.py", "--hf_token", HF],
        cwd="/p",
        world_size=1,
        nodes=1,
        ranks_per_node=1,
        accelerator=AcceleratorFacts("H100-80G", "cuda", 80 << 30, 0),
        steps=2,
        host_memory_bytes=None,
        ranks=[rank],
        notes=[(f"note {HF}", f"说明 {HF}")],
        skipped=[("a", f"b {HF}")],
    )


def test_a_record_has_none() -> None:
    whole = record()
    shown = redact_strings(whole)
    assert HF in repr(whole)
    assert HF not in repr(shown)
    assert shown.command == ["python", "train.py", "--hf_token", "hf_***"]
    assert shown.ranks[0].deepspeed_config == {"hub": {"token": "hf_***", "stages": [1, "hf_***"]}, "n": 1}
    assert shown.accelerator is whole.accelerator  # what has none is not made anew
    assert shown.ranks[0].failure is not None
    assert shown.ranks[0].failure.frames[0].line == 3


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("format_name", FORMATS)
def test_a_report_has_none_in_any_format(format_name: str, language: str, tmp_path: Path) -> None:
    line = f'export HF_TOKEN="{HF}"'
    edit = Edit(str(tmp_path / "run.sh"), 0, len(line), line.encode(), line.encode() + b" # x")
    harmless = Edit(str(tmp_path / "run.sh"), 0, 3, b"abc", b"def")
    fixes = (
        Fix(Text("a", "甲"), Applicability.SAFE, f"-{line}\n+{line} # x\n", (edit,)),
        Fix(Text("c", "乙"), Applicability.SAFE, "-abc\n+def\n", (harmless,)),
    )
    finding = Finding(
        "some-hazard", Certainty.CERTAIN, Severity.ERROR, Text(f"t {HF}", f"标题 {HF}"), Text(f"c {HF}", f"原因 {HF}"),
        cure=(Text(f"do {HF}", f"做 {HF}"),), spans=(Span("run.sh", 1, 1, line, end_line=1, end_column=len(line)),),
        fixes=fixes,
    )  # fmt: skip
    report = Report("check", Verdict.NO_GO, (finding,), notes=(Text(f"n {HF}", f"注 {HF}"),))
    shown = render(report, format_name, language)
    assert HF not in shown
    assert "hf_***" in shown
    if format_name == "json":
        first, second = json.loads(shown)["findings"][0]["fixes"]
        assert first["applicability"] == "manual"  # an edit is written byte for byte, or not at all
        assert first["edits"] == []
        assert second["edits"][0]["after"] == "def"


def test_a_message_has_none(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(Text(f"can't rehearse --hf_token {HF}", f"无法排练 --hf_token {HF}"), "zh")
    assert capsys.readouterr().err == "gonogo: 无法排练 --hf_token hf_***\n"


def test_a_fault_of_our_own_leaves_none_in_its_file(tmp_path: Path) -> None:
    program = (
        "import gonogo.rehearse.run, sys\n"
        "def rehearse(request, display): raise RuntimeError(' '.join(request.command))\n"
        "gonogo.rehearse.run.rehearse = rehearse\n"
        "from gonogo.cli.app import main\n"
        f"sys.argv = ['gonogo', 'rehearse', '--env', 'DB_PASSWORD=hunter2', '--', 'python', 'train.py', {HF!r}]\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 70, ended.stderr
    (file,) = tmp_path.glob("gonogo-fault-*.txt")
    written = file.read_text()
    for text in (ended.stderr, written):
        assert HF not in text
        assert "hunter2" not in text
    assert "RuntimeError: python train.py hf_***" in written


SIZE = 5 << 20
PIECES = {
    "a log": '[rank0]: File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1532, in forward\n',
    "one letter": "a", "dashes": "-", "blanks": " ", "lines": "\n", "starts of tokens": "hf_", "of others": "sk-",
    "of JWTs": "eyJ", "of JWTs in one word": "eyJ-", "of keys": "-----BEGIN PRIVATE KEY-----", "of addresses": "://",
    "addresses": "://a:b", "names": "token", "names with signs": "token:", "open quotes": 'token="',
    "signs": "password=",
    "quoted": 'password:"aaaa" ', "numbers": "key: 0123456789abcdef-", "secrets": f"--hf_token {HF} ",
    "letters of two": "İ",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_five_megabytes_take_seconds(name: str) -> None:
    """And twice as much takes about twice as long: anyone may have written a log."""
    piece = PIECES[name]
    text = piece * (SIZE // len(piece))
    redactor = Redactor({"A_TOKEN": "abcdefgh12345", "B_PASSWORD": "hunter2hunter2", "C_SECRET": "letmeinplease"})
    begun = time.process_time()
    redactor.text(text[: SIZE // 4])
    quarter = time.process_time() - begun
    begun = time.process_time()
    redactor.text(text)
    whole = time.process_time() - begun
    assert whole < 30
    assert whole < 12 * quarter + 2

"""``gonogo server``, spoken to by a real client over stdio: what is found while one types, hover, completion, fixes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from gonogo.cli.lsp.config_at import completions_at, cursor_at, is_deepspeed

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 100},
}


class Client:
    """A client with the diagnostics that it was sent, by file name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = LanguageClient("test", "1")
        self.diagnostics: dict[str, list[lsp.Diagnostic]] = {}
        self.told = asyncio.Event()
        self._version = 0

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: lsp.PublishDiagnosticsParams) -> None:
            self.diagnostics[params.uri.rsplit("/", 1)[-1]] = list(params.diagnostics)
            self.told.set()

    def document(self, name: str) -> lsp.TextDocumentIdentifier:
        return lsp.TextDocumentIdentifier((self.folder / name).as_uri())

    def open(self, name: str, text: str) -> None:
        item = lsp.TextDocumentItem(self.document(name).uri, "json", 0, text)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, name: str, text: str) -> None:
        self._version += 1
        document = lsp.VersionedTextDocumentIdentifier(self._version, self.document(name).uri)
        whole = lsp.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [whole]))

    async def until(self, name: str, *hazards: str, gone: str = "") -> float:
        """Seconds until these hazards are shown in the file, and ``gone`` no more; without any, nothing is."""
        begun = time.monotonic()
        while time.monotonic() - begun < 60:
            found = {diagnostic.code for diagnostic in self.diagnostics.get(name, [])}
            if found >= set(hazards) and (hazards or not found) and gone not in found:
                return time.monotonic() - begun
            self.told.clear()
            try:
                await asyncio.wait_for(self.told.wait(), 5)
            except (asyncio.TimeoutError, TimeoutError):
                continue
        raise AssertionError((name, hazards, self.diagnostics))


@asynccontextmanager
async def client_in(folder: Path, *options: str, locale: str = "en") -> AsyncIterator[Client]:
    client = Client(folder)
    await client.client.start_io(sys.executable, "-m", "gonogo", "server", *options)
    answer = await client.client.initialize_async(
        lsp.InitializeParams(lsp.ClientCapabilities(), root_uri=folder.as_uri(), locale=locale)
    )
    assert answer.server_info
    assert answer.server_info.name == "gonogo"
    client.client.initialized(lsp.InitializedParams())
    try:
        yield client
    finally:
        await client.client.shutdown_async(None)
        client.client.exit(None)
        await client.client.stop()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ds_config.json").write_text(json.dumps(CONFIG, indent=2))
    (tmp_path / "train.py").write_text("import deepspeed\n")
    (tmp_path / "launch.sh").write_text("deepspeed --num_gpus 8 train.py --deepspeed ds_config.json\n")
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.9\n")
    return tmp_path


def run(work: Any) -> None:
    asyncio.run(asyncio.wait_for(work, 200))


def test_what_is_typed_is_judged_before_it_is_saved_and_fast(project: Path) -> None:
    good = json.dumps(CONFIG, indent=2)
    bad = good.replace('"stage": 3', '"stage": 9')

    async def work() -> None:
        async with client_in(project) as client:
            client.open("ds_config.json", bad)
            await client.until("ds_config.json", "ds-zero-stage-invalid")
            (diagnostic,) = [one for one in client.diagnostics["ds_config.json"] if one.code == "ds-zero-stage-invalid"]
            line = bad.splitlines()[diagnostic.range.start.line]
            assert '"stage": 9' in line
            assert diagnostic.severity == lsp.DiagnosticSeverity.Error
            assert diagnostic.source == "gonogo"
            seconds = []
            for _ in range(5):
                client.change("ds_config.json", good)
                await client.until("ds_config.json")
                client.change("ds_config.json", bad)
                seconds.append(await client.until("ds_config.json", "ds-zero-stage-invalid"))
            print("seconds after a key stroke:", sorted(seconds))
            assert min(seconds) < 0.2, seconds  # the best: a machine may be busy
            client.client.text_document_did_close(lsp.DidCloseTextDocumentParams(client.document("ds_config.json")))
            await client.until("ds_config.json")
            assert (project / "ds_config.json").read_text() == good

    run(work())


@pytest.mark.parametrize(
    ("options", "locale", "said"),
    [((), "en", "Default: 0."), (("--lang", "zh"), "en", "默认值：0。"), ((), "zh-cn", "默认值：0。")],
)
def test_hover_tells_of_the_key_and_of_the_hazard(
    project: Path, options: tuple[str, ...], locale: str, said: str
) -> None:
    text = json.dumps({**CONFIG, "zero_optimization": {"stage": 9}}, indent=2)

    async def work() -> None:
        async with client_in(project, *options, locale=locale) as client:
            client.open("ds_config.json", text)
            await client.until("ds_config.json", "ds-zero-stage-invalid")
            line = next(number for number, one in enumerate(text.splitlines()) if '"stage"' in one)
            params = lsp.HoverParams(client.document("ds_config.json"), lsp.Position(line, 7))
            hover = await client.client.text_document_hover_async(params)
            assert hover
            value = hover.contents.value  # type: ignore[union-attr]
            assert value.startswith("`zero_optimization.stage` (DeepSpeed 0.16.9)")
            assert said in value
            params = lsp.HoverParams(
                client.document("ds_config.json"), lsp.Position(line, text.splitlines()[line].index("9"))
            )
            hover = await client.client.text_document_hover_async(params)
            assert hover
            assert "`ds-zero-stage-invalid`" in hover.contents.value  # type: ignore[union-attr]
            nothing = lsp.HoverParams(client.document("ds_config.json"), lsp.Position(0, 0))
            assert await client.client.text_document_hover_async(nothing) is None

    run(work())


def test_completion_and_fixes(project: Path) -> None:
    text = '{\n  "zero_optimization": {\n    "stage": 2,\n    "\n  }\n}\n'
    misspelt = '{\n  "train_micro_batch_size_per_gpu": 1,\n  "zero_optimization": {"stage": 2, "overlap_com": true}\n}'

    async def work() -> None:
        async with client_in(project) as client:
            client.open("ds_config.json", text)
            await client.until("ds_config.json", "ds-config-not-json")
            params = lsp.CompletionParams(client.document("ds_config.json"), lsp.Position(3, 5))
            found = await client.client.text_document_completion_async(params)
            items = {item.label: item for item in found.items}  # type: ignore[union-attr]
            assert {"overlap_comm", "offload_optimizer", "zero_hpz_partition_size"} <= items.keys()
            assert "compute_grad_norm" not in items  # of a later release than the project has
            edit = items["overlap_comm"].text_edit
            assert edit
            assert edit.new_text.startswith('"overlap_comm": ')  # type: ignore[union-attr]
            assert edit.range == lsp.Range(lsp.Position(3, 4), lsp.Position(3, 5))  # type: ignore[union-attr]
            client.change("ds_config.json", misspelt)
            await client.until("ds_config.json", "ds-config-unknown-key", gone="ds-config-not-json")
            (wrong,) = [one for one in client.diagnostics["ds_config.json"] if one.code == "ds-config-unknown-key"]
            actions: Any = await client.client.text_document_code_action_async(
                lsp.CodeActionParams(client.document("ds_config.json"), wrong.range, lsp.CodeActionContext([wrong]))
            )
            (change,) = actions[0].edit.changes[client.document("ds_config.json").uri]
            lines = misspelt.splitlines()
            line = lines[change.range.start.line]
            start, end = change.range.start.character, change.range.end.character
            assert "overlap_comm" in line[:start] + change.new_text + line[end:]

    run(work())


def test_what_is_no_run_and_what_is_broken_is_left_in_peace(project: Path) -> None:
    async def work() -> None:
        async with client_in(project) as client:
            for name, text in (
                ("notes.md", "# x"),
                ("train.py", "def ("),
                ("a.json", "[" * 5000),
                ("b.yaml", "\ud83d: ["),
            ):
                client.open(name, text)
            client.open("ds_config.json", '{"zero_optimization": {"stage": 9')
            params = lsp.CompletionParams(client.document("ds_config.json"), lsp.Position(50, 50))
            await client.client.text_document_completion_async(params)
            client.change("ds_config.json", '{"train_batch_size": 8, "zero_optimization": {"stage": 9}}')
            await client.until("ds_config.json", "ds-zero-stage-invalid")

    run(work())


@pytest.mark.parametrize(
    ("text", "path", "is_key"),
    [
        ("{|", (), True),
        ('{"a|', (), True),
        ('{"zero_optimization": {"|"}}', ("zero_optimization",), True),
        ('{"zero_optimization": {"stage": |', ("zero_optimization", "stage"), False),
        ('{"zero_optimization": {"stage": 2|', ("zero_optimization", "stage"), False),
        ('{"zero_optimization": {"stage": 2, |', ("zero_optimization",), True),
        ('{"a": {"b": 1}, "c": "|"}', ("c",), False),
        ('{"a": [1, |', None, True),
        ('{// "|\n', None, True),
        ('{"a": "}{", "|', (), True),
        ("|", None, True),
    ],
)
def test_where_the_cursor_stands(text: str, path: tuple[str, ...] | None, is_key: bool) -> None:
    cursor = cursor_at(text.replace("|", "", 1), text.index("|"))
    if path is None:
        assert cursor is None
    else:
        assert cursor is not None
        assert (cursor.path, cursor.is_key) == (path, is_key)


def test_values_are_offered_by_release() -> None:
    def values(text: str, release: str) -> list[str]:
        cursor = cursor_at(text, len(text))
        assert cursor is not None
        return [offer.label for offer in completions_at(cursor, release, "en")]

    assert values('{"zero_optimization": {"stage": ', "0.19.8") == ["0", "1", "2", "3"]
    assert '"AdamW"' in values('{"optimizer": {"type": ', "0.19.8")
    assert values('{"bf16": {"enabled": ', "0.19.8") == ["true", "false", '"auto"']
    assert is_deepspeed("/x/ds_z3.json", "{}")
    assert not is_deepspeed("/x/package.json", "{}")


def test_without_pygls_one_line_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pygls'] = None; sys.argv[1:] = ['server', '--lang', 'en']\n"
        "from gonogo.cli.app import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=os.environ)
    assert done.returncode == 2
    assert "pip install -e " in done.stderr
    assert "[lsp]" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_extension_of_vs_code_starts_it() -> None:
    """The extension's own tests, by node; ``make setup`` does not bring node, and CI machines have it."""
    folder = Path(__file__).parents[1] / "editors/vscode"
    manifest = json.loads((folder / "package.json").read_text())
    assert (folder / manifest["main"]).is_file()
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    done = subprocess.run(["node", "--test", "test/"], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout

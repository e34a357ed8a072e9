"""The language server: runs ``gonogo check`` on the files of a folder, including unsaved text in the editor."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lsprotocol import types as lsp
from pygls import uris
from pygls.lsp.server import LanguageServer

from gonogo._version import __version__
from gonogo.check.findings import check
from gonogo.check.settings import read_settings
from gonogo.cli.explain import find_hazard, hazard_markdown
from gonogo.cli.lsp.config_at import completions_at, cursor_at, is_deepspeed, key_documentation, word_at
from gonogo.cli.lsp.diagnostics import PlacedFinding, position_at, to_code_action, to_diagnostic
from gonogo.evidence.config.deepspeed_keys import sampled_releases
from gonogo.evidence.config.deepspeed_schema import validate_deepspeed_version
from gonogo.evidence.files import kind_of
from gonogo.evidence.paths import EDITOR_BUFFERS, resolve_path
from gonogo.finding import UserError
from gonogo.hazards.index import all_hazards

_DEBOUNCE_SECONDS = 0.04
"""Seconds without a keystroke before files are checked."""
_MAX_FOLDER_FILES = 60
"""Maximum number of a folder's files that are checked together; in a larger folder, only open files are."""


class Server(LanguageServer):
    """The language server's state: open documents, the findings shown for each, and the language of messages."""

    def __init__(self, language: str | None) -> None:
        super().__init__("gonogo", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Incremental)
        self.asked = language
        self.language = language or "en"
        self.root = Path.cwd()
        self.release = sampled_releases()[-1]
        self.shown: dict[str, list[PlacedFinding]] = {}
        self._open: dict[str, str] = {}
        self._worker = ThreadPoolExecutor(1)  # one check at a time, since checks share cached files
        self._waiting: asyncio.Task[None] | None = None

    def on_initialize(self, params: lsp.InitializeParams) -> None:
        """Take the workspace root and the language from the editor."""
        if self.asked is None and (params.locale or "").lower().startswith("zh"):
            self.language = "zh"
        folders = params.workspace_folders or []
        uri = folders[0].uri if folders else params.root_uri
        path = uris.to_fs_path(uri) if uri else None
        if path and os.path.isdir(path):
            self.root = resolve_path(path)
            os.chdir(self.root)
        self._worker.submit(all_hazards)

    def document_changed(self, uri: str) -> None:
        """Handle an opened, changed or saved document: its folder is checked after a pause."""
        path = uris.to_fs_path(uri)
        if not path:
            return
        whole = str(resolve_path(path))
        self._open[whole] = uri
        EDITOR_BUFFERS[whole] = self.workspace.get_text_document(uri).source.encode("utf-8", "surrogatepass")
        self._schedule_check(whole)

    def document_closed(self, uri: str) -> None:
        """Handle a closed document: the file on disk is used again."""
        whole = str(resolve_path(uris.to_fs_path(uri) or ""))
        self._open.pop(whole, None)
        EDITOR_BUFFERS.pop(whole, None)
        self._publish_diagnostics(whole, [])

    def _schedule_check(self, path: str) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting = asyncio.get_running_loop().create_task(self._look(path))

    async def _look(self, path: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(_DEBOUNCE_SECONDS)
            self._waiting = None  # a check that has started is not cancelled
            found = await asyncio.get_running_loop().run_in_executor(
                self._worker, self._check_files, self._files_checked_together(path)
            )
            for one in {*found, *self.shown}:
                self._publish_diagnostics(one, found.get(one, []))

    def _files_checked_together(self, path: str) -> list[str]:
        """The files to check together with a file."""
        if kind_of(Path(path)) is None:
            return []
        folder = os.path.dirname(path)
        with contextlib.suppress(OSError):
            names = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
            files = [name for name in names if kind_of(Path(name)) is not None and os.path.isfile(name)]
            if len(files) <= _MAX_FOLDER_FILES:
                return sorted({*files, *self._open_checkable_files()})
        return self._open_checkable_files()

    def _open_checkable_files(self) -> list[str]:
        return [one for one in self._open if kind_of(Path(one)) is not None and os.path.isfile(one)]

    def _check_files(self, paths: list[str]) -> dict[str, list[PlacedFinding]]:
        """The findings in the files, by path. Runs in a worker thread."""
        if not paths:
            return {}
        try:
            checked = check(paths, settings=read_settings(Path(paths[0]).parent), allow_no_files=True)
        except UserError:
            return {}
        for run in checked.gathered.runs:
            with contextlib.suppress(UserError):
                version = run.environment.version("deepspeed")
                self.release = validate_deepspeed_version(None if version is None else str(version))
                break
        found: dict[str, list[PlacedFinding]] = {}
        for finding in checked.report.findings:
            if finding.spans:
                path = str(resolve_path(finding.spans[0].path))
                found.setdefault(path, []).append(PlacedFinding(finding, finding.spans[0]))
        return found

    def _publish_diagnostics(self, path: str, placed_findings: list[PlacedFinding]) -> None:
        if not placed_findings and not self.shown.get(path):
            return
        self.shown[path] = placed_findings
        uri = self._open.get(path) or uris.from_fs_path(path) or ""
        document = self.workspace.get_text_document(uri)
        diagnostics = [to_diagnostic(one, document, self.language) for one in placed_findings]
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics))

    def findings_at(self, uri: str, place: lsp.Range) -> list[PlacedFinding]:
        """The findings that overlap a range of a document."""
        document = self.workspace.get_text_document(uri)
        shown = self.shown.get(str(resolve_path(uris.to_fs_path(uri) or "")), [])
        ranges = [(one, to_diagnostic(one, document, self.language).range) for one in shown]
        return [one for one, where in ranges if where.start <= place.end and place.start <= where.end]


def make_server(language: str | None) -> Server:
    """Create the server and register its features."""
    server = Server(language)

    @server.feature(lsp.INITIALIZE)
    def initialize(params: lsp.InitializeParams) -> None:
        server.on_initialize(params)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def did_open(params: lsp.DidOpenTextDocumentParams) -> None:
        server.document_changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    def did_change(params: lsp.DidChangeTextDocumentParams) -> None:
        server.document_changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_SAVE)
    def did_save(params: lsp.DidSaveTextDocumentParams) -> None:
        server.document_changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def did_close(params: lsp.DidCloseTextDocumentParams) -> None:
        server.document_closed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        uri, place = params.text_document.uri, lsp.Range(params.position, params.position)
        parts = []
        document = server.workspace.get_text_document(uri)
        text = document.source
        if is_deepspeed(uri, text):
            cursor = cursor_at(text, document.offset_at_position(params.position) + 1)
            if cursor is not None and cursor.quoted:
                path = (*cursor.path, word_at(text, cursor)) if cursor.is_key else cursor.path
                parts.append(key_documentation(path, server.release, server.language))
        names = dict.fromkeys(one.finding.hazard for one in server.findings_at(uri, place))
        parts += [hazard_markdown(find_hazard(name), server.language) for name in names]
        sentence = "\n\n---\n\n".join(part for part in parts if part)
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, sentence)) if sentence else None

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=['"', ":"]))
    def completion(params: lsp.CompletionParams) -> lsp.CompletionList | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        text = document.source
        if not is_deepspeed(params.text_document.uri, text):
            return None
        cursor = cursor_at(text, document.offset_at_position(params.position))
        if cursor is None:
            return None
        place = lsp.Range(position_at(document, cursor.start), position_at(document, cursor.end))
        kind = lsp.CompletionItemKind.Property if cursor.is_key else lsp.CompletionItemKind.Value
        items = []
        for offer in completions_at(cursor, server.release, server.language):
            has_value = cursor.is_key and text[cursor.end :].lstrip().startswith(":")
            insert = f'"{offer.label}"' if has_value else offer.insert
            items.append(
                lsp.CompletionItem(
                    label=offer.label,
                    kind=kind,
                    documentation=lsp.MarkupContent(lsp.MarkupKind.Markdown, offer.said) if offer.said else None,
                    filter_text=f'"{offer.label}"' if cursor.quoted and cursor.is_key else offer.label,
                    text_edit=lsp.TextEdit(place, insert),
                    tags=[lsp.CompletionItemTag.Deprecated] if offer.deprecated else None,
                )
            )
        return lsp.CompletionList(is_incomplete=False, items=items)

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    )
    def code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        actions = []
        for shown in server.findings_at(params.text_document.uri, params.range):
            for fix in shown.finding.fixes:
                action = to_code_action(shown, fix, server.workspace, server.language)
                if action is not None:
                    actions.append(action)
        return actions

    return server


def serve(language: str | None) -> None:
    """Serve over stdin and stdout until the editor closes the connection."""
    gc.freeze()
    make_server(language).start_io()

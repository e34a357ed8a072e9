"""The web server of ``gonogo ui``: serves the page, and runs each command as a process of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from gonogo._version import __version__
from gonogo.cli.serving.folders import Folders, RequestRefused
from gonogo.cli.serving.jobs import Job, Jobs
from gonogo.cli.ui.access import AccessControl, report_key
from gonogo.cli.ui.listing import listing
from gonogo.cli.ui.page_request import MAX_BYTES, UiComparison, UiRequest, command_words
from gonogo.cli.ui.report_store import ReportStore, StoredReport, has_report
from gonogo.cli.ui.words import WORDS
from gonogo.evidence.environment.hardware import all_accelerators
from gonogo.evidence.environment.instances import all_instance_types
from gonogo.finding import Text, UserError, translated
from gonogo.finding.redaction import redact
from gonogo.rehearse.baseline import compare_reports, read_report
from gonogo.report import render
from gonogo.report.answer.headline import badge
from gonogo.report.html import report_style
from gonogo.report.untrusted import clean, clean_line
from gonogo.trials.what_if.setting_changes import format_settings

_STATIC_FOLDER = Path(__file__).parent / "static"
_MEDIA_TYPES = {"ui.css": "text/css", "ui.js": "text/javascript"}
_STATE_WAIT_SECONDS = 10.0
"""Seconds that a request for a job's state waits for news."""
_MAX_TITLE_LENGTH = 4000

_MAX_PEAK_GROWTH_PERCENT = 2.0
"""Percent; the default of ``gonogo compare``."""

Body = TypeVar("Body", UiRequest, UiComparison)
Answer = Callable[[Request], Awaitable[Response]]


def make_app(folders: Folders, token: str, language: str) -> Starlette:
    """The application; its jobs are ended when it shuts down."""
    jobs = Jobs(folders)
    page = _UiHandlers(folders, jobs, token, language)

    @contextlib.asynccontextmanager
    async def ending_all(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            jobs.end_all()

    routes = [
        Route("/", page.document),
        Route("/{name:str}", page.static),
        Route("/api/start", page.start),
        Route("/api/folder", _catch_refusals(page.folder)),
        Route("/api/reports", page.reports),
        Route("/api/jobs", _catch_refusals(page.begin), methods=["POST"]),
        Route("/api/compare", _catch_refusals(page.compare), methods=["POST"]),
        Route("/api/jobs/{job}", _catch_refusals(page.job)),
        Route("/api/jobs/{job}/cancel", _catch_refusals(page.cancel), methods=["POST"]),
    ]
    app = Starlette(
        routes=[
            Mount(f"/{token}", routes=routes),
            Mount(f"/{report_key(token)}", routes=[Route("/{job}", page.report)]),
        ],
        lifespan=ending_all,
    )
    app.add_middleware(AccessControl, token=token)
    return app


def _catch_refusals(answer: Answer) -> Answer:
    async def refused(request: Request) -> Response:
        try:
            return await answer(request)
        except RequestRefused as error:
            return _json_response({"refused": _text_json(error.text)}, 400)

    return refused


class _UiHandlers:
    def __init__(self, folders: Folders, jobs: Jobs, token: str, language: str) -> None:
        self.folders, self.jobs = folders, jobs
        self.language = language
        self.kept = ReportStore(folders.roots[0])
        self.reports_at = f"/{report_key(token)}/"
        self.asked: dict[str, str] = {}
        """A one-line description of each job, by its id."""
        self.settled: set[str] = set()
        self.comparisons: dict[str, str] = {}
        """Pages of comparisons, which run in the server itself, by id."""

    async def document(self, request: Request) -> Response:
        whole = (_STATIC_FOLDER / "ui.html").read_text(encoding="utf-8").replace("{language}", self.language)
        return Response(whole, media_type="text/html")

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _MEDIA_TYPES:
            return PlainTextResponse("not found", 404)
        content = (_STATIC_FOLDER / name).read_text(encoding="utf-8")
        return Response(report_style() + content if name == "ui.css" else content, media_type=_MEDIA_TYPES[name])

    async def start(self, request: Request) -> Response:
        """The data that the page needs at start."""
        return _json_response(
            {
                "language": self.language,
                "version": __version__,
                "root": clean_line(str(self.folders.roots[0])),
                "reports": self.reports_at,
                "words": {name: _text_json(text) for name, text in WORDS.items()},
                "gpus": [f"8x{one.name}" for one in all_accelerators()] + [one.name for one in all_instance_types()],
            }
        )

    async def folder(self, request: Request) -> Response:
        name = request.query_params.get("path", "")
        return _json_response(await anyio.to_thread.run_sync(listing, name, self.folders))

    async def reports(self, request: Request) -> Response:
        """Running jobs and stored reports, the newest first."""
        known = {made.id: made for made in await anyio.to_thread.run_sync(self.kept.all)}
        for job in self.jobs.all():
            self._store_finished(job)
        listed = [self._job_to_json(job) for job in self.jobs.all()]
        listed += [
            _stored_to_json(made) for name, made in known.items() if not any(one["id"] == name for one in listed)
        ]
        return _json_response(sorted(listed, key=lambda one: -one["begun"]))

    async def begin(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("application/json is what is taken", 415)
        requested = await _decode_body(request, UiRequest)
        words, folder, given = command_words(requested, self.folders)
        job = self.jobs.start(words, folder, given)
        self.asked[job.id] = redact(clean_line(_job_title(requested)))[:_MAX_TITLE_LENGTH]
        return _json_response(self._job_to_json(job))

    async def compare(self, request: Request) -> Response:
        """Compare two rehearsals, the older one first."""
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return PlainTextResponse("application/json is what is taken", 415)
        requested = await _decode_body(request, UiComparison)
        begun = {made.id: made for made in (*self.kept.all(), *map(self._to_stored_report, self.jobs.all()))}
        sides = [
            begun[name]
            for name in (requested.one, requested.other)
            if name in begun and self._report_page(name) is not None
        ]
        if len(sides) < 2:
            raise RequestRefused(translated("one of the two reports is no longer kept"))
        old, new = sorted(sides, key=lambda made: made.begun)
        made, page = await anyio.to_thread.run_sync(self._compare_stored, old, new, requested.language)
        self.comparisons[made.id] = page
        self.kept.store_report(made, page)
        return _json_response(_stored_to_json(made))

    def _compare_stored(self, old: StoredReport, new: StoredReport, language: str) -> tuple[StoredReport, str]:
        names = [
            f"{made.what} ({time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(made.begun))})" for made in (old, new)
        ]
        try:
            was, now = (
                read_report((self._report_page(made.id) or "").encode("utf-8", "replace"), name)
                for made, name in zip((old, new), names, strict=True)
            )
        except UserError as error:
            raise RequestRefused(error.text) from None
        report = compare_reports(was, now, _MAX_PEAK_GROWTH_PERCENT)
        text = badge(report, "en")
        what = f"{names[0]} → {names[1]}"
        made = StoredReport(uuid4().hex[:12], "compare", new.folder, what, time.time(), 0.0, report.exit_status, text)
        return made, render(report, "html", language)

    async def job(self, request: Request) -> Response:
        """A job's state, as soon as it has ended or has news: another ``doing``, or states not yet ``seen``."""
        job = self.jobs.find(request.path_params["job"])
        known = request.query_params.get("doing")
        seen = request.query_params.get("seen", "0")
        shown = min(int(seen), len(job.states)) if seen.isascii() and seen.isdecimal() and len(seen) < 9 else 0
        with anyio.move_on_after(_STATE_WAIT_SECONDS):
            while not await job.wait(0.5) and job.doing == known and len(job.states) <= shown:
                pass
        self._store_finished(job)
        return _json_response({**self._job_to_json(job), "states": job.states[shown:], "seen": len(job.states)})

    async def cancel(self, request: Request) -> Response:
        job = self.jobs.find(request.path_params["job"])
        await job.end()
        return _json_response(self._job_to_json(job))

    async def report(self, request: Request) -> Response:
        page = self._report_page(request.path_params["job"])
        if page is None:
            return PlainTextResponse("no such report", 404)
        return Response(page, media_type="text/html")

    def _report_page(self, name: str) -> str | None:
        job = next((one for one in self.jobs.all() if one.id == name), None)
        if job is not None and job.poll() and not job.cancelled and has_report(job.status):
            return job.result
        return self.comparisons.get(name) or self.kept.page(name)

    def _job_to_json(self, job: Job) -> dict[str, Any]:
        ended = job.poll()
        state = (
            "running" if not ended else "cancelled" if job.cancelled else "done" if has_report(job.status) else "failed"
        )
        made = self._to_stored_report(job)
        return {
            **_stored_to_json(made),
            "state": state,
            "verdict": made.verdict if state == "done" else "",
            "doing": clean_line(job.doing),
            "complaint": clean(job.complaint) if state == "failed" else "",
        }

    def _to_stored_report(self, job: Job) -> StoredReport:
        root = self.folders.roots[0]
        where = "" if job.folder == root else str(job.folder.relative_to(root))
        requested = self.asked.get(job.id, "")
        return StoredReport(job.id, job.tool, where, requested, job.begun, round(job.seconds, 1), job.status or 0)

    def _store_finished(self, job: Job) -> None:
        """Store the report of a job that has just ended."""
        if job.poll() and job.id not in self.settled:
            self.settled.add(job.id)
            if not job.cancelled and has_report(job.status):
                self.kept.store_report(self._to_stored_report(job), job.result)


def _stored_to_json(made: StoredReport) -> dict[str, Any]:
    shown = {"tool": made.tool, "folder": clean_line(made.folder), "what": clean_line(made.what)}
    return {
        "id": made.id, "state": "done", "verdict": made.verdict, "begun": made.begun, "seconds": made.seconds,
        "doing": "", "complaint": "", **shown,
    }  # fmt: skip


def _job_title(request: UiRequest) -> str:
    """One line that describes a job."""
    if request.tool == "diagnose":
        first = next((line.strip() for line in reversed(request.log.splitlines()) if line.strip()), "")
        return " ".join(request.logs) or first[:200]
    if request.tool == "plan" and request.model:
        return request.model
    if request.tool == "rehearse" and (request.settings or request.also):
        others = [f"--set {format_settings(request.settings)}"] if request.settings else []
        return f"{request.command} ({' '.join([*others, *(f'--also {format_settings(one)}' for one in request.also)])})"
    return request.records if request.tool == "report" else request.command


async def _decode_body(request: Request, kind: type[Body]) -> Body:
    """Parse a request's body. Raises RequestRefused if it is too long or invalid."""
    read = bytearray()
    with contextlib.suppress(ClientDisconnect):
        async for part in request.stream():
            read += part
            if len(read) > MAX_BYTES:
                raise RequestRefused(
                    translated("more than {most} MiB: save the log as a file and choose that").format(
                        most=MAX_BYTES >> 20
                    )
                )
    try:
        return msgspec.json.decode(bytes(read), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestRefused(translated("invalid request: {why}").format(why=error)) from None


def _json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def _text_json(text: Text) -> dict[str, str]:
    return {"en": clean(text.en), "zh": clean(text.zh)}

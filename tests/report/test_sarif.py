"""SARIF: valid against the schema of OASIS, with places, fixes and fingerprints that other tools can use."""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest
import samples
from msgspec.structs import replace

from gonogo.finding import Applicability, Certainty, Edit, Finding, Fix, Report, Severity, Span, Text, Verdict
from gonogo.report import render


@cache
def validator() -> jsonschema.Draft4Validator:
    schema = json.loads((Path(__file__).parent / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    return jsonschema.Draft4Validator(schema, format_checker=jsonschema.FormatChecker())


def run_of(*findings: Finding, language: str = "en") -> dict[str, Any]:
    report = Report(command="check", verdict=Verdict.NO_GO, findings=findings)
    log = json.loads(render(report, "sarif", language))
    validator().validate(log)
    run: dict[str, Any] = log["runs"][0]
    return run


def at(*spans: Span) -> Finding:
    return replace(samples.finding(), spans=spans)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_whole_report_is_valid(language: str) -> None:
    log = json.loads(render(samples.report(), "sarif", language))
    validator().validate(log)
    run = log["runs"][0]
    assert run["language"] == {"en": "en-US", "zh": "zh-CN"}[language]
    rule = run["tool"]["driver"]["rules"][0]
    found = samples.finding()
    assert rule["id"] == found.hazard
    assert rule["helpUri"] == found.sources[0]
    assert rule["shortDescription"]["text"] == found.title.in_language(language)
    assert [result["ruleIndex"] for result in run["results"]] == [0, 0]
    first = run["results"][0]
    assert found.cause.in_language(language) in first["message"]["text"]
    assert first["relatedLocations"][0]["message"]["text"] == found.spans[1].label.in_language(language)  # type: ignore[union-attr]
    assert first["properties"]["certainty"] == "certain"
    assert run["invocations"][0]["executionSuccessful"]
    assert run["invocations"][0]["exitCode"] == 1
    said = [one["message"]["text"] for one in run["invocations"][0]["toolExecutionNotifications"]]
    assert any(samples.report().skipped[0].why.in_language(language) in text for text in said)
    assert run["properties"]["verdict"] == "NO-GO"


@pytest.mark.parametrize(
    ("severity", "certainty", "level"),
    [
        (Severity.ERROR, Certainty.CERTAIN, "error"),
        (Severity.ERROR, Certainty.LIKELY, "warning"),
        (Severity.ERROR, Certainty.POSSIBLE, "note"),
        (Severity.WARNING, Certainty.CERTAIN, "warning"),
        (Severity.WARNING, Certainty.POSSIBLE, "note"),
        (Severity.NOTE, Certainty.CERTAIN, "note"),
    ],
)
def test_only_a_certain_error_is_an_error(severity: Severity, certainty: Certainty, level: str) -> None:
    run = run_of(replace(samples.finding(), severity=severity, certainty=certainty))
    assert run["results"][0]["level"] == level


@pytest.mark.parametrize(
    ("span", "region"),
    [
        (Span("a.py", 3), {"startLine": 3}),
        (Span("a.py", 3, 5), {"startLine": 3, "startColumn": 5}),
        (
            Span("a.py", 3, 5, end_line=3, end_column=9),
            {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 9},
        ),
        (
            Span("a.py", 3, 5, end_line=4, end_column=2),
            {"startLine": 3, "startColumn": 5, "endLine": 4, "endColumn": 2},
        ),
        (Span("a.py", 3, 1, end_column=4), {"startLine": 3, "startColumn": 1, "endLine": 3, "endColumn": 4}),
        (Span("a.py", 3, 9, end_line=2, end_column=4), {"startLine": 3, "startColumn": 9}),
        (Span("a.py", 0), None),
    ],
)
def test_a_region_holds_what_is_known_of_the_place(span: Span, region: dict[str, int] | None) -> None:
    physical = run_of(at(span))["results"][0]["locations"][0]["physicalLocation"]
    assert physical.get("region") == region


def test_the_line_is_the_context_of_a_part_of_it() -> None:
    span = Span("a.py", 3, 5, "    x = 1  # 中", end_line=3, end_column=6)
    physical = run_of(at(span))["results"][0]["locations"][0]["physicalLocation"]
    assert physical["contextRegion"] == {"startLine": 3, "snippet": {"text": "    x = 1  # 中"}}


@pytest.mark.parametrize(
    "path", ["a b/训练.py", "a:b.py", "100%.json", "x#y?.sh", "new\nline.py", "\x1b[31m.py", "\udcff.py", "-.py"]
)
def test_a_path_is_a_uri_that_gives_the_same_file(path: str) -> None:
    artifact = run_of(at(Span(path, 1)))["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uriBaseId"] == "%SRCROOT%"
    assert unquote_to_bytes(artifact["uri"]) == path.encode("utf-8", "surrogateescape")
    assert ":" not in artifact["uri"]


def test_a_path_is_taken_from_the_repositorys_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)

    def uri(path: str) -> str:
        place = run_of(at(Span(path, 1)))["results"][0]["locations"][0]
        return str(place["physicalLocation"]["artifactLocation"]["uri"])

    assert uri(str(inner / "a.py")) == uri("./a.py") == uri("a.py") == "a.py"
    assert uri("/elsewhere/a b.py") == "file:///elsewhere/a%20b.py"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert uri("a.py") == "inner/a.py"
    assert uri("../a.py") == "a.py"
    monkeypatch.setenv("GITHUB_WORKSPACE", "/elsewhere")
    assert uri("a.py") == "a.py"


def test_what_is_in_no_file_has_the_repository_as_its_place() -> None:
    place = run_of(at())["results"][0]["locations"][0]
    assert place["physicalLocation"]["artifactLocation"] == {"uri": ".", "uriBaseId": "%SRCROOT%"}
    assert place["logicalLocations"][0]["fullyQualifiedName"] == "model.adapter.weight"


def test_a_fix_is_the_bytes_it_changes() -> None:
    said = Text("t", "t")
    edits = (
        Edit("a.json", 4, 9, b"false", "真".encode()),
        Edit("b.sh", 0, 3, b"abc", b""),
        Edit("a.json", 20, 20, b"", b"\xff\x00"),
    )
    fixes = (Fix(said, Applicability.SAFE, "", edits), Fix(said, Applicability.MANUAL, "", ()))
    result = run_of(replace(samples.finding(), fixes=fixes))["results"][0]
    assert len(result["fixes"]) == 1
    assert result["fixes"][0]["properties"]["applicability"] == "safe"
    changes = {
        change["artifactLocation"]["uri"]: change["replacements"] for change in result["fixes"][0]["artifactChanges"]
    }
    assert changes == {
        "a.json": [
            {"deletedRegion": {"byteOffset": 4, "byteLength": 5}, "insertedContent": {"text": "真"}},
            {
                "deletedRegion": {"byteOffset": 20, "byteLength": 0},
                "insertedContent": {"binary": base64.b64encode(b"\xff\x00").decode()},
            },
        ],
        "b.sh": [{"deletedRegion": {"byteOffset": 0, "byteLength": 3}}],
    }


def test_fingerprints_stay_when_lines_move_and_differ_when_findings_do() -> None:
    def prints(*findings: Finding) -> list[str]:
        return [result["partialFingerprints"]["gonogoFinding/v1"] for result in run_of(*findings)["results"]]

    here = at(Span("a.py", 3, 5, "    loss = a"))
    moved = at(Span("a.py", 30, 9, "        loss = a"))
    assert prints(here) == prints(moved)
    others = (
        replace(here, hazard="another"),
        at(Span("b.py", 3, 5, "    loss = a")),
        at(Span("a.py", 3, 5, "    loss = b")),
        replace(here, parameter="other"),
    )
    found = prints(here, here, *others)
    assert len(set(found)) == len(found)
    assert prints(here)[0] == found[0]


@pytest.mark.parametrize("source", ["javascript:alert(1)", "see the manual", "http://", "\x1b]8;;http://x\x07", ""])
def test_a_source_that_is_no_url_is_no_uri(source: str) -> None:
    assert "helpUri" not in run_of(replace(samples.finding(), sources=(source,)))["tool"]["driver"]["rules"][0]


def test_a_messages_brackets_are_no_link() -> None:
    found = replace(samples.finding(), cause=Text("[click](https://evil.example)", "[点](https://evil.example)"))
    assert "](" not in run_of(found)["results"][0]["message"]["text"]

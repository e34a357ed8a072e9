"""JUnit XML: well formed whatever is in it, and counted as CI systems count."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import samples
from msgspec.structs import replace

from gonogo.finding import Finding, Report, Severity, Span, Text, Verdict
from gonogo.report import render


def suite_of(report: Report, language: str = "en") -> ElementTree.Element:
    root = ElementTree.fromstring(render(report, "junit", language).encode())
    suites = root.findall("testsuite")
    assert len(suites) == 1
    return suites[0]


def of(*findings: Finding) -> ElementTree.Element:
    return suite_of(Report(command="check", verdict=Verdict.NO_GO, findings=findings))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_findings_covered_and_skipped_are_tests(language: str) -> None:
    report, found = samples.report(), samples.finding()
    suite = suite_of(report, language)
    assert suite.get("name") == "gonogo rehearse"
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "4",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "21.400",
    }
    failed, warned, covered, skipped = suite.findall("testcase")
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == found.title.in_language(language)
    assert failure.get("type") == found.hazard
    assert found.cause.in_language(language) in (failure.text or "")
    assert found.cure[1].in_language(language) in (failure.text or "")
    assert (failed.get("file"), failed.get("line")) == ("train.py", "41")
    output = warned.find("system-out")
    assert output is not None
    assert found.cause.in_language(language) in (output.text or "")
    assert warned.find("failure") is None
    assert covered.get("name") == report.covered[0].in_language(language)
    assert len(covered) == 0
    reason = skipped.find("skipped")
    assert reason is not None
    assert reason.get("message") == report.skipped[0].why.in_language(language)
    assert all(case.get("classname") == "gonogo.rehearse" for case in suite.findall("testcase"))


def test_tests_of_one_name_are_told_apart() -> None:
    names = [case.get("name") for case in of(samples.finding(), samples.finding()).findall("testcase")]
    assert len(set(names)) == 2


@pytest.mark.parametrize("nasty", ["]]>", "<!--", "&amp;", "\x00\x0b\ufffe\uffff\ud800", "\x1b[31mred", "\"\n\t'<"])
def test_whatever_text_is_in_it_the_xml_is_well_formed(nasty: str) -> None:
    said = Text(nasty, nasty)
    found = replace(
        samples.finding(),
        hazard=nasty,
        title=said,
        cause=said,
        cure=(said,),
        sources=(nasty,),
        spans=(Span(nasty, 1, 1, nasty, said),),
    )
    suite = of(found, replace(found, severity=Severity.WARNING))
    assert len(suite.findall("testcase")) == 2
    assert "\x1b" not in "".join(suite.itertext())


def test_markup_in_text_comes_back_as_it_was() -> None:
    failure = of(replace(samples.finding(), cause=Text("a ]]> <b> & 'c'", "x"))).find("testcase/failure")
    assert failure is not None
    assert "a ]]> <b> & 'c'" in (failure.text or "")


def test_cannot_tell_without_a_reason_is_no_green_suite() -> None:
    assert suite_of(Report("diagnose", Verdict.CANNOT_TELL)).get("skipped") == "1"


def test_notes_are_the_suites_output() -> None:
    output = suite_of(samples.report()).find("system-out")
    assert output is not None
    assert samples.report().notes[0].en in (output.text or "")

"""The report as JUnit XML, which GitLab, Jenkins and most other CI systems show as tests."""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

from gonogo.finding import Finding, Report, Severity, Verdict
from gonogo.report.annotation import annotation_severity, annotation_text, is_stream, path_from_repository_root
from gonogo.report.answer.headline import badge, make_headline, verdict_line
from gonogo.report.similar import thread_line
from gonogo.report.trials.model_reading import reader_lines
from gonogo.report.untrusted import clean, clean_line
from gonogo.report.words import colon, word

_INVALID_XML_PATTERN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_junit(report: Report, language: str) -> str:
    """One suite: a passed test for what was covered, one test per finding, a skipped one per gap.

    Only a certain error fails; anything less passes, and its output says so.
    """
    suite = ElementTree.Element("testsuite", {"name": f"gonogo {_xml_line(report.command)}"})
    names: Counter[str] = Counter()
    for finding in report.findings:
        _add_finding(suite, names, report.command, finding, language)
    for text in report.covered:
        _add_test_case(suite, names, report.command, text.in_language(language))
    for skipped in report.skipped:
        case = _add_test_case(suite, names, report.command, skipped.what.in_language(language))
        ElementTree.SubElement(case, "skipped", {"message": _xml_line(skipped.why.in_language(language))})
    if report.verdict is Verdict.CANNOT_TELL and not report.skipped:
        case = _add_test_case(suite, names, report.command, word("verdict", language))
        ElementTree.SubElement(case, "skipped", {"message": report.verdict.value})
    if report.regressed:
        case = _add_test_case(suite, names, report.command, badge(report, language))
        for why in report.regressed:
            ElementTree.SubElement(case, "failure", {"message": _xml_line(why.in_language(language))})
    answer = make_headline(report)
    todo = f"{word('next', language)}{colon(language)}{answer.next.to_text(language)}"
    lines = [verdict_line(report, language), answer.reason.in_language(language), todo]
    lines += [text.in_language(language) for text in answer.shown.notes]
    lines += reader_lines(report, language)
    if report.similar:
        lines += [word("similar", language), *(thread_line(thread, language) for thread in report.similar)]
    ElementTree.SubElement(suite, "system-out").text = "\n".join(map(_xml_text, lines))
    seconds = report.rehearsal.seconds if report.rehearsal is not None else 0.0
    counts = {
        "tests": str(len(suite.findall("testcase"))),
        "failures": str(len(suite.findall("testcase/failure"))),
        "errors": "0",
        "skipped": str(len(suite.findall("testcase/skipped"))),
        "time": f"{seconds:.3f}",
    }
    suite.attrib.update(counts)
    root = ElementTree.Element("testsuites", {"name": "gonogo", **counts})
    root.append(suite)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _xml_text(text: str) -> str:
    return _INVALID_XML_PATTERN.sub("", clean(text))


def _xml_line(text: str) -> str:
    return _INVALID_XML_PATTERN.sub("", clean_line(text))


def _add_test_case(suite: ElementTree.Element, names: Counter[str], command: str, name: str) -> ElementTree.Element:
    """Add a test case. CI systems merge tests of the same name, so repeated names get a number."""
    shown = _xml_line(name)
    names[shown] += 1
    unique = shown if names[shown] == 1 else f"{shown} ({names[shown]})"
    attributes = {"classname": f"gonogo.{_xml_line(command)}", "name": unique, "time": "0"}
    return ElementTree.SubElement(suite, "testcase", attributes)


def _add_finding(
    suite: ElementTree.Element, names: Counter[str], command: str, finding: Finding, language: str
) -> None:
    span = finding.spans[0] if finding.spans else None
    path = path_from_repository_root(span.path) if span else ""
    place = f" {path}:{span.line}" if span else ""
    case = _add_test_case(suite, names, command, f"{finding.hazard}{place}")
    if span and not is_stream(span.path):
        case.set("file", _xml_line(path))
        case.set("line", str(span.line))
    title = _xml_line(finding.title.in_language(language))
    where = [f"{_xml_line(path)}:{span.line}:{span.column}", _xml_text(span.text).rstrip()] if span else []
    lines = [title, *where, _xml_text(annotation_text(finding, language)), *map(_xml_line, finding.sources)]
    body = "\n".join(line for line in lines if line)
    if annotation_severity(finding) is Severity.ERROR:
        failure = ElementTree.SubElement(case, "failure", {"message": title, "type": _xml_line(finding.hazard)})
        failure.text = body
    else:
        ElementTree.SubElement(case, "system-out").text = f"{word(finding.level.value, language)}\n{body}"

"""The gate for people and for pipelines: a table, the verdict in a sentence, and JUnit XML."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from coalmine.evidence.tables import plain_table
from coalmine.reports.gate.checking import GateResult
from coalmine.storage.files import write_bytes
from coalmine.visible import visible

if TYPE_CHECKING:
    from rich.table import Table


def gate_table(result: GateResult) -> Table:
    """One row per rule."""
    table = plain_table()
    # Names are never cut: they are what is looked up in the policy.
    table.add_column("rule", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("asked, and found")
    for one in result.rules:
        table.add_row(visible(one.rule), one.words, visible(f"{one.asks}: {one.evidence}"))
    return table


def gate_in_words(result: GateResult) -> list[str]:
    """Warnings, and the verdict in a sentence."""
    lines = [
        f"Warning ({visible(one.rule)}): {visible(text)}." for one in result.rules for text in one.warnings
    ]
    lines += [
        f"What would settle {visible(one.rule)}: {visible(one.settle)}."
        for one in result.rules
        if one.outcome == "not_shown" and one.settle
    ]
    holds, broken, open_ones = (result.counted(kind) for kind in ("holds", "broken", "not_shown"))
    verdict = {
        "holds": f"The policy holds: {holds} of {len(result.rules)} rules.",
        "broken": f"The policy is BROKEN: {broken} of {len(result.rules)} rules.",
        "not_shown": f"The policy is NOT SHOWN to hold, and not shown to be broken: {open_ones} of {len(result.rules)} rules.",
    }[result.outcome]
    if broken and open_ones:
        verdict += f" Besides, {open_ones} {'is' if open_ones == 1 else 'are'} not shown either way."
    return [*lines, verdict]


def write_junit(result: GateResult, path: str | os.PathLike[str]) -> None:
    """JUnit XML: a broken rule is a failure, and one that is not shown either way is an error."""
    suite = ET.Element(
        "testsuite",
        name="coalmine check",
        tests=str(len(result.rules)),
        failures=str(result.counted("broken")),
        errors=str(result.counted("not_shown")),
        skipped="0",
    )
    for one in result.rules:
        case = ET.SubElement(
            suite, "testcase", classname=f"coalmine.{_printable(result.run)}", name=_printable(one.rule)
        )
        settle = [f"what would settle it: {one.settle}"] if one.settle else []
        text = _printable("\n".join([f"asks: {one.asks}", one.evidence, *settle, *one.details]))
        if one.outcome == "broken":
            ET.SubElement(case, "failure", message=_printable(one.evidence)).text = text
        elif one.outcome == "not_shown":
            ET.SubElement(case, "error", message=_printable(one.evidence)).text = text
        else:
            ET.SubElement(case, "system-out").text = text
    suites = ET.Element("testsuites")
    suites.append(suite)
    write_bytes(path, ET.tostring(suites, encoding="utf-8", xml_declaration=True) + b"\n")


def _printable(text: str) -> str:
    """Text as XML can hold it: a name of a model may have any character in it."""
    return "\n".join(visible(line) for line in text.split("\n"))

"""The tables of docs/reliability.md are those of its record, which has no loss and no failure."""

from __future__ import annotations

import json
import re

from tests.reliability.__main__ import DOCUMENT, RESULT, markdown, with_tables
from tests.reliability.faults import FAULTS
from tests.reliability.measurement import DAMAGE, readers_table, writers_table
from tests.reliability.readers import READERS
from tests.reliability.writers import WRITERS

RECORD = json.loads(RESULT.read_text(encoding="utf-8"))


def test_the_tables_are_those_of_the_record():
    tables = {
        "writers": markdown(writers_table(RECORD["writers"])),
        "readers": markdown(readers_table(RECORD["readers"])),
    }
    text = DOCUMENT.read_text(encoding="utf-8")
    assert with_tables(text, tables) == text
    assert all(table in text for table in tables.values())


def test_every_writer_was_tried_with_every_fault_and_nothing_was_lost():
    tried = {(row["writer"], row["fault"]): row for row in RECORD["writers"]}
    for writer in WRITERS:
        for fault in (*FAULTS, *((DAMAGE,) if writer.checked else ())):
            assert tried[writer.name, fault]["trials"] >= 50
            assert tried[writer.name, fault]["losses"] == 0


def test_every_reader_was_tried_and_nothing_failed():
    rows = {row["reader"]: row for row in RECORD["readers"]}
    assert set(rows) == {*READERS, "the command line"}
    for name, row in rows.items():
        assert row["inputs"] >= 200
        assert row["failures"] == 0
        assert row["executions"] > 0 or name not in READERS or not READERS[name].modules


def test_the_tests_that_the_document_names_exist():
    text = DOCUMENT.read_text(encoding="utf-8")
    tests = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENT.parents[1].glob("tests/**/test_*.py"))
    for name in set(re.findall(r"`(test_\w+)", text)):
        assert f"def {name}(" in tests, name

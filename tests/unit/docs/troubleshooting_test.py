"""What docs/how-to/troubleshooting.md quotes is in the source, and its reasons are reasons of conditions."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[3]
from cases import expect

PAGE = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text()
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
BETWEEN_PARTS = re.compile(r'"\s*\n\s*"')  # one text in two literals


def texts():
    """All string literals of the programs, one a line."""
    sources = [path for folder in ("operator", "runtime") for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".cc", ".h")]
    return "\n".join(text for path in sources for text in LITERAL.findall(BETWEEN_PARTS.sub("", path.read_text())))


def fragments(quote):
    return [part.strip(" ,") for part in quote.split("…") if len(part.strip(" ,")) > 3]


def missing(page, source):
    quotes = re.findall(r"^> (.*)$", page, re.MULTILINE)
    return [(quote, part) for quote in quotes for part in fragments(quote) if part not in source]


def test_each_quoted_message_is_in_the_source():
    quotes = re.findall(r"^> (.*)$", PAGE, re.MULTILINE)
    expect(len(quotes) > 20, f"only {len(quotes)} messages are quoted")
    expect(all(fragments(quote) for quote in quotes), "a quote without words")
    lost = missing(PAGE, texts())
    expect(not lost, "".join(f'\n  "{part}" of "{quote}"' for quote, part in lost))


def test_a_message_that_nobody_prints_is_found():
    expect(missing("> nobody prints … this line\n", texts()), "a message that is not in the source was let in")


def test_reasons_are_those_of_conditions():
    known = set(re.findall(r'= "(\w+)"', (ROOT / "runtime" / "common" / "api" / "conditions.h").read_text()))
    events = set(re.findall(r'\{true, "(\w+)"', (ROOT / "operator" / "reconcile" / "notes.cc").read_text()))
    named = set(re.findall(r"(?:reason|event) `(\w+)`", PAGE))
    named |= {word for row in re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE) for word in re.findall(r"\w+", row)}
    expect(len(named) > 10, f"only {named}")
    expect(named <= known | events, f"no reasons: {sorted(named - known - events)}")

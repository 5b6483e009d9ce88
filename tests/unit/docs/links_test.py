"""Links of the documents outside docs/ lead to files and headings that exist. .ci/build-docs checks those of the pages in docs/."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
from cases import expect


def documents():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", ":!docs"], cwd=ROOT, check=True, capture_output=True,
                            text=True).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).exists()]


def without_code(text):
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text):
    """The headings' anchors, as GitHub and MkDocs make them."""
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", re.sub(r"\{.*\}$", "", heading)).strip().lower()
        yield re.sub(r"\s+", "-", words)
    yield from re.findall(r"(?:\{ *#| id=\")([\w-]+)", text)


def dead_links(document, text):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path) if path else document
        if not file.exists():
            yield f"{document.relative_to(ROOT)}: {target}: there is no {path}"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text()):
            yield f"{document.relative_to(ROOT)}: {target}: no heading of {file.relative_to(ROOT)} has the anchor {anchor}"


def test_each_link_leads_somewhere():
    found = [dead for document in documents() for dead in dead_links(document, document.read_text())]
    expect(not found, "\n" + "\n".join(found))


def test_a_dead_link_is_found():
    page = "[a](missing.md) [b](README.md#no-such-heading) [c](https://example.com/x) `[d](missing.md)`"
    expect(len(list(dead_links(ROOT / "README.md", page))) == 2, list(dead_links(ROOT / "README.md", page)))

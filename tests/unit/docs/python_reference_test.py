"""docs/reference/python.md names what the package exports, and each docstring that it shows has an example."""
import ast
import pathlib
import re

from cases import expect

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "runtime" / "python" / "lockstep"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def shown():
    """name -> the members that the page shows of it, None for all that are public."""
    page = (ROOT / "docs" / "reference" / "python.md").read_text()
    found = {}
    for name, options in re.findall(r"^::: (\S+)\n((?: +.*\n)*)", page, flags=re.MULTILINE):
        members = re.search(r"members: \[(.*)\]", options)
        found[name] = None if members is None else [each for each in members[1].split(", ") if each]
    return found


def definitions():
    """name -> node, of all classes and functions of the package's modules."""
    return {node.name: node for path in PACKAGE.rglob("*.py") for node in ast.parse(path.read_text()).body if isinstance(node, (ast.ClassDef, *FUNCTIONS))}


def is_property(node):
    return any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)


def methods(node, members):
    """Those that the page shows, without properties."""
    if not isinstance(node, ast.ClassDef):
        return []
    return [each for each in node.body if isinstance(each, FUNCTIONS) and not is_property(each)
            and (each.name in members if members is not None else not each.name.startswith("_"))]


def exported():
    init = ast.parse((PACKAGE / "__init__.py").read_text())
    names, = (node.value for node in init.body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    return {f"lockstep.{name}" for name in ast.literal_eval(names)}


def test_what_the_package_exports_is_on_the_page():
    expect(len(exported()) > 5, f"{exported()}")
    expect(exported() <= set(shown()), f"the page lacks {sorted(exported() - set(shown()))}")


def test_each_docstring_has_an_example():
    known, lacking, seen = definitions(), [], 0
    for name, members in shown().items():
        node = known[name.rsplit(".", 1)[1]]
        for each in [node, *methods(node, members)]:
            text, needs_example = ast.get_docstring(each) or "", isinstance(each, FUNCTIONS)
            seen += needs_example
            if not text or (needs_example and "Examples:\n    >>> " not in text):
                lacking.append(f"{name}: {each.name}")
    expect(seen > 20, f"only {seen} functions were found")
    expect(not lacking, f"no docstring, or none with an example (Examples:, then >>>): {lacking}")

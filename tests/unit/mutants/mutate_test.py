"""What tests/mutants/mutate.py changes in a C++ file, and what it leaves alone."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TESTS / "mutants"))
import mutate  # noqa: E402
import run  # noqa: E402
from cases import expect  # noqa: E402


def changed(body, kind=None):
    """The bodies of all mutants of a function, or of those of one kind."""
    source = f"void Run(int a, int b) {{\n{body}\n}}\n"
    found = [mutant.of(source).split("\n", 1)[1][:-len("\n}\n")] for mutant in mutate.mutants(source) if kind in {None, mutant.kind}]
    return sorted(found)


def expect_changes(body, kind, *others):
    expect(changed(body, kind) == sorted(others), f"{body!r} became {changed(body, kind)}")


def test_comparisons_become_their_neighbours():
    expect_changes("Call(a < b);", "comparison", "Call(a <= b);", "Call(a >= b);")
    expect_changes("Call(a == b);", "comparison", "Call(a != b);")
    expect_changes("Call(a && !b);", "comparison", "Call(a || !b);", "Call(a && b);")


def test_brackets_of_templates_and_references_are_no_comparisons():
    for body in ("std::vector<int> all;", "auto&& all = Call();", "const int* all = nullptr;", "template <typename T> void F();"):
        expect(changed(body) == [], f"{body!r} became {changed(body)}")


def test_constants_change_by_one():
    expect_changes("total = 7;", "constant", "total = 8;")
    expect_changes("total = 1U;", "constant", "total = 0U;")
    expect_changes("total = 0.5 + 10s;", "constant", "total = 1.5 + 10s;", "total = 0.5 + 11s;")
    expect_changes("total = true;", "constant", "total = false;")
    expect_changes("total = std::min(a, b);", "constant", "total = std::max(a, b);")


def test_named_constants_change_places_with_others_of_their_scope():
    expect_changes("Call(Color::kRed, Size::kBig, Color::kBlue);", "constant", "Call(Color::kBlue, Size::kBig, Color::kBlue);",
                   "Call(Color::kRed, Size::kBig, Color::kRed);")


def test_arithmetic_turns_round():
    expect_changes("total += a * b;", "arithmetic", "total -= a * b;", "total += a / b;")
    expect_changes("++total;", "arithmetic", "--total;")


def test_statements_are_deleted_but_not_declarations_or_results():
    expect_changes("if (a) Call(b);", "deletion", "if (a) ;")
    expect_changes("for (int i : all) {\n  if (i) continue;\n}", "deletion", "for (int i : all) {\n  if (i) ;\n}")
    expect_changes("total_ = a;\nobject->Call().part += b;", "deletion", ";\nobject->Call().part += b;", "total_ = a;\n;")
    expect_changes("const int c = a;\nMap<int> map(c);\nauto& all = map;\nMember& member = all;\nreturn a;", "deletion")


def test_what_a_loop_does_between_its_turns_is_no_statement():
    expect_changes("for (int i = 0; Next(i); ++i) {\n  Call(i);\n}\nreturn a;", "deletion", "for (int i = 0; ; ++i) {\n  Call(i);\n}\nreturn a;",
                   "for (int i = 0; Next(i); ++i) {\n  ;\n}\nreturn a;")


def test_statements_of_a_lambda_and_of_a_case_are_deleted():
    expect_changes("Each([&](int i) { Call(i); });", "deletion", ";", "Each([&](int i) { ; });")
    expect_changes("switch (a) {\n  case Color::kRed: Call(a); break;\n}", "deletion", "switch (a) {\n  case Color::kRed: ; break;\n}",
                   "switch (a) {\n  case Color::kRed: Call(a); ;\n}")


def test_arguments_are_swapped_in_pairs():
    expect_changes("Call(a, Other(b, 2), c);", "swap", "Call(Other(b, 2), a, c);", "Call(a, c, Other(b, 2));", "Call(a, Other(2, b), c);")
    for body in ("std::min(a, b);", "std::sort(all.begin(), all.end());", "Call(a, a);", "if (a, b) return;"):
        expect_changes(body, "swap")


def test_parameters_are_no_arguments():
    expect(mutate.mutants("int F(int a, int b);\nvoid G(int a, int b) {}\n") == [], "a declaration was changed")


def test_comments_texts_and_directives_stay():
    for body in ("// a < b, 7", "/* Call(a, b); */", "const char c = '1';", "#if A < 7", 'const char* name = "a < b, 7";',
                 'const char* name = R"x(Call(a, 1);)x";'):
        expect(changed(body) == [], f"{body!r} became {changed(body)}")


def test_logs_and_checks_stay():
    for body in ('LOCKSTEP_CHECK(a < b, "no");', 'log::Info("text", {{"a", a + 1}});', "static_assert(sizeof(int) == 4);"):
        expect(changed(body) == [], f"{body!r} became {changed(body)}")
    expect_changes("log = a + 1;", "arithmetic", "log = a - 1;")


def test_a_diff_names_the_file_and_shows_the_line():
    source = "int F(int a) {\n  return a + 1;\n}\n"
    diffs = [mutant.diff(source, "a/f.cc") for mutant in mutate.mutants(source)]
    expect(any("--- a/f.cc" in diff and "-  return a + 1;\n+  return a - 1;" in diff for diff in diffs), f"{diffs}")


def test_the_table_names_files_that_are_there_and_finds_mutants_in_each():
    for path, tests in run.BELONGING.items():
        missing = [name for name in (path, *tests) if not (run.ROOT / name).exists()]
        expect(not missing, f"tests/mutants/run.py names what is not there: {missing}")
        kinds = {mutant.kind for mutant in mutate.mutants((run.ROOT / path).read_text())}
        expect({"comparison", "constant", "deletion"} <= kinds, f"{path}: {kinds}")

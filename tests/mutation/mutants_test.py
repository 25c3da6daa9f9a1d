# SPDX-License-Identifier: Apache-2.0
"""Tests of the mutants."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import mutants
from mutants import Mutant


def changes(line):
    """The mutants of a line inside a function."""
    return [mutant.new for mutant in mutants.of("void f() {\n  " + line + "\n}\n") if mutant.line == 2]


class Of(unittest.TestCase):
    def test_operators_numbers_and_results_change(self):
        self.assertEqual(changes("const int n = a < 10 && b;"), ["const int n = a <= 10 && b;", "const int n = a < 10 || b;",
                                                                 "const int n = a < 11 && b;"])
        self.assertEqual(changes("return true;"), ["return false;"])
        self.assertEqual(changes("x = std::min(a, b);"), ["x = std::max(a, b);", ""])

    def test_a_condition_is_negated_as_a_whole(self):
        self.assertEqual(changes("if (f(a) and b) return;"), ["if (!(f(a) and b)) return;"])

    def test_whole_statements_are_left_out_but_no_part_of_one(self):
        self.assertEqual(changes("file.sync(mode);"), [""])
        self.assertEqual(changes("count++;"), [""])
        self.assertEqual(mutants.of("void f() {\n  call(a,\n       g(b));\n}\n"), [])

    def test_strings_comments_templates_and_declarations_stay(self):
        for line in ('log("1 < 2");', "std::vector<int> x{};  // 3 < 4", "static_assert(a == 2);"):
            self.assertNotIn("<=", "".join(changes(line)), line)
            self.assertNotIn("3", "".join(changes(line)).replace("// 3", ""), line)
        self.assertEqual(changes("char c = '\\'';  // 1"), [])
        self.assertEqual(mutants.of("int value;\n"), [])


class Apply(unittest.TestCase):
    def test_only_the_line_changes(self):
        text = "void f() {\n  g();\n  g();\n}\n"
        self.assertEqual(mutants.apply(text, Mutant(3, "g();", "")), "void f() {\n  g();\n  ;\n}\n")


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""Tests of ./run-tests itself: on texts of bats and ctest, on real bats files, and on whole runs in a small checkout."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import types
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cases
import reruns
import summary
from cases import FAILED, PASSED, SKIPPED, Case
from processes import Processes
from steps import Bats, Command

BATS = """\
1..5
suite /src/tests/ranks/a.bats
begin 1 it works (a) in 5
ok 1 it works (a) in 5 in 107ms
begin 2 it does not
noise
not ok 2 it does not in 4ms
# (in test file tests/ranks/a.bats, line 4)
# out
begin 3 needs a GPU
ok 3 needs a GPU in 5ms # skip no GPU # here
suite /src/tests/ranks/b.bats
begin 4 hangs
not ok 4 hangs in 1008ms # timeout after 1s
# last words
begin 5 last
ok 5 last in 9ms
"""


class OfBats(unittest.TestCase):
    def read(self, text):
        return cases.of_bats(text, "tests/ranks/a.bats", "/src")

    def test_every_case_has_its_file_result_time_and_text(self):
        found = self.read(BATS)
        self.assertEqual([(c.where, c.name, c.result) for c in found], [
            ("tests/ranks/a.bats", "it works (a) in 5", PASSED), ("tests/ranks/a.bats", "it does not", FAILED),
            ("tests/ranks/a.bats", "needs a GPU", SKIPPED), ("tests/ranks/b.bats", "hangs", FAILED),
            ("tests/ranks/b.bats", "last", PASSED)])
        self.assertEqual(found[0].seconds, 0.107)
        self.assertIn("line 4)\nout\n", found[1].text)
        self.assertEqual(found[2].text, "no GPU # here")
        self.assertIn("timeout: after 1s\nlast words", found[3].text)

    def test_a_stream_that_ends_early_fails(self):
        for lines in (2, 4, 8, 13):
            found = self.read("\n".join(BATS.splitlines()[:lines]))
            self.assertEqual(found[-1].result, FAILED, lines)
            self.assertIn("of 5 cases have no result", found[-1].text)

    def test_a_stream_that_does_not_begin_fails_with_the_message(self):
        found = self.read("/usr/bin/bats: line 3: parallel: not found\n")
        self.assertEqual([c.result for c in found], [FAILED])
        self.assertIn("parallel: not found", found[0].text)

    def test_it_names_the_case_that_did_not_end(self):
        found = self.read("1..2\nsuite /src/a.bats\nbegin 1 kills bats\nTerminated\nbegin 2 b\nok 2 b in 3ms\n")
        self.assertEqual(found[-1].text, "1 of 2 cases have no result; began: kills bats\nTerminated\n")

    def test_a_skipped_case_whose_teardown_fails(self):
        found = self.read("1..1\nsuite /src/a.bats\nbegin 1 a\nnot ok 1 a in 4ms # skip no GPU\n# why\n")
        self.assertEqual([(c.name, c.result, c.text) for c in found], [("a", FAILED, "skip: no GPU\nwhy\n")])

    def test_a_setup_file_that_fails_is_one_failure(self):
        for number in (1, 2):  # of two cases, bats also says that they did not run
            found = self.read(f"1..{number}\nsuite /src/a.bats\nnot ok 1 setup_file failed\n# why\n")
            self.assertEqual([(c.name, c.result) for c in found], [("setup_file failed", FAILED)])

    def test_the_output_of_a_case_is_not_split_at_carriage_returns(self):
        found = self.read("1..1\nsuite /src/a.bats\nbegin 1 a\nnot ok 1 a in 4ms\n# 10%\r20%\rok 7 b in 1ms\rthe reason\n")
        self.assertEqual([(c.name, c.result) for c in found], [("a", FAILED)])
        self.assertIn("the reason", found[0].text)

    def test_no_case_is_no_failure(self):
        self.assertEqual(self.read("1..0\n"), [])


class OfCtest(unittest.TestCase):
    def test_results_and_the_cases_of_a_program(self):
        found = cases.of_ctest("""<testsuite>
          <testcase name="ok" time="0.5" status="run"><system-out>/src/a.cpp:7: Skipped
no GPU here
[  PASSED  ] 11 tests.</system-out></testcase>
          <testcase name="bad" status="fail"><failure message=""/><system-out>why</system-out></testcase>
          <testcase name="left out" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
            <system-out>no python</system-out></testcase>
          <testcase name="missing" status="notrun"><skipped message="Unable to find executable"/></testcase>
        </testsuite>""")
        self.assertEqual([(c.title, c.result) for c in found],
                         [("ok", PASSED), ("bad", FAILED), ("left out", SKIPPED), ("missing", FAILED)])
        self.assertEqual((found[0].passed_inside, found[0].skipped_inside), (11, ["/src/a.cpp:7: no GPU here"]))
        self.assertEqual((found[1].text, found[2].text), ("why", "no python"))
        self.assertEqual(summary.totals(found), "11 passed, 2 failed, 2 skipped")


class Reruns(unittest.TestCase):
    """With real bats."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.root = pathlib.Path(self.directory.name)
        self.processes = Processes(self.root)
        self.run_ = types.SimpleNamespace(root=self.root, full=False, processes=self.processes, jobs=1, environment={})

    def tearDown(self):
        self.processes.clean()
        self.directory.cleanup()

    def tier(self, text, limit=100):
        (self.root / "x.bats").write_text(textwrap.dedent(text), encoding="utf-8")
        with open(self.root / "log", "w+b") as log:
            found, flaky = reruns.run_tier([Bats(["x.bats"], limit=limit)], self.run_, log)
        self.found = found
        return [(c.name, c.result) for c in found], [f.title for f in flaky], flaky

    def test_a_case_that_passes_when_it_runs_again_is_flaky(self):
        found, titles, flaky = self.tier(f"""
            @test "good" {{ true; }}
            @test "every $x third (time)" {{
              echo x >> {self.root}/count
              echo "run $(wc -l < {self.root}/count)"
              [ "$(wc -l < {self.root}/count)" -eq 3 ]
            }}
            """)
        self.assertEqual(found, [("good", PASSED), ("every  third (time)", PASSED)])
        self.assertEqual(titles, ["x.bats: every  third (time)"])
        self.assertEqual([output.splitlines()[-1] for output in flaky[0].outputs], ["run 1", "run 2"])

    def test_a_command_runs_again_only_if_it_has_tests(self):
        for tests, flaky in ((False, []), (True, ["once"])):
            count = self.root / f"count-{tests}"
            step = Command("once", ["bash", "-c", f"echo x >> {count}; [ $(wc -l < {count}) -eq 2 ]"], tests=tests)
            with open(self.root / "log", "w+b") as log:
                found, named = reruns.run_tier([step], self.run_, log)
            self.assertEqual([c.result for c in found], [PASSED if tests else FAILED])
            self.assertEqual([f.title for f in named], flaky)

    def test_a_case_that_always_fails_is_not(self):
        found, titles, _ = self.tier("""
            @test "bad" { false; }
            @test "other" { true; }
            """)
        self.assertEqual((found, titles), ([("bad", FAILED), ("other", PASSED)], []))

    def test_a_case_that_is_skipped_when_it_runs_alone_has_not_passed(self):
        found, titles, _ = self.tier("""
            @test "first" { touch /dev/null; echo made > $BATS_FILE_TMPDIR/made; }
            @test "needs the first" {
              [ -e $BATS_FILE_TMPDIR/made ] || skip "the case above did not run"
              false
            }
            """)
        self.assertEqual((found[1], titles), (("needs the first", FAILED), []))

    def test_a_file_whose_setup_failed_once_runs_again(self):
        found, titles, _ = self.tier(f"""
            setup_file() {{ mkdir {self.root}/first && return 1; true; }}
            @test "a" {{ true; }}
            @test "b" {{ skip "no GPU"; }}
            """)
        self.assertEqual(found, [("a", PASSED), ("b", SKIPPED)])
        self.assertEqual(titles, ["x.bats: setup_file failed"])

    def test_a_file_that_runs_again_has_each_case_once(self):
        for trouble, names in (("teardown_file() { ! mkdir once; }", "ab"),
                               ('@test "c" { ! mkdir once || kill -9 $PPID; }', "abc")):
            found, titles, _ = self.tier(f"""
                @test "a" {{ true; }}
                {trouble}
                @test "b" {{ true; }}
                """)
            self.assertEqual(sorted(found), [(name, PASSED) for name in names], trouble)
            self.assertEqual(len(titles), 1, trouble)
            (self.root / "once").rmdir()

    def test_the_tag_full_is_left_out_of_the_gate(self):
        text = """
            @test "always" { true; }
            # bats test_tags=full
            @test "sometimes" { true; }
            """
        self.assertEqual(self.tier(text)[0], [("always", PASSED)])
        self.run_.full = True
        self.assertEqual(self.tier(text)[0], [("always", PASSED), ("sometimes", PASSED)])

    def test_a_file_without_a_case_fails(self):
        results = self.tier('@test "a"\n{ true; }')[0]
        self.assertEqual([result for _, result in results], [FAILED])
        self.assertRegex(self.found[0].text, "it has no case|@test: command not found")  # bats 1.8, 1.13
        self.assertEqual(self.tier('# bats test_tags=full\n@test "a" { true; }')[0], [])

    def test_many_failures_do_not_run_again(self):
        text = "\n".join(f'@test "{i}" {{ echo {i} >> {self.root}/ran; false; }}' for i in range(11))
        self.tier(text)
        self.assertEqual(len((self.root / "ran").read_text().split()), 11)

    def test_a_case_that_hangs_is_ended_and_named_with_its_output(self):
        for hang in ("sleep 1000", "while :; do sleep 0.1; done", "run sleep 1000"):
            found, _, _ = self.tier(f"""
                @test "before" {{ true; }}
                @test "hangs" {{ echo last words; {hang}; }}
                @test "after" {{ true; }}
                """, limit=2)  # in which bats starts
            self.assertEqual(found, [("before", PASSED), ("hangs", FAILED), ("after", PASSED)], hang)
            self.assertIn("last words", self.found[1].text)

    def test_a_command_that_hangs_says_what_ran(self):
        with open(self.root / "log", "w+b") as log:
            self.processes.run(["bash", "-c", "sleep 1000; true"], log, {}, 1)
        self.assertIn("bash was ended: it printed nothing for 1 seconds; it ran:\n", (self.root / "log").read_text())
        self.assertIn("  sleep 1000 \n", (self.root / "log").read_text())

    def test_what_a_case_leaves_is_ended(self):
        self.tier(f"""
            @test "leaves a daemon" {{ setsid sleep 4{os.getpid()} 3>&- & }}
            """)
        self.processes.clean()
        self.assertEqual(subprocess.run(["pgrep", "-f", f"^sleep 4{os.getpid()}$"], check=False).returncode, 1)


class Summary(unittest.TestCase):
    def test_compiled_takes_the_last_line_of_each_object(self):
        log = "# ninja log v5\n0\t900\t1\ta.cpp.o\tx\n5\t10\t1\tlib.a\tx\n100\t350\t2\ta.cpp.o\tx\n"
        self.assertEqual(summary.compiled(log), {"a.cpp.o": 0.25})

    def test_skipped_counts_equal_reasons(self):
        found = [Case("a", "", PASSED, skipped_inside=["/x/tests/a.cpp:1: no GPU", "/y/tests/a.cpp:1: no GPU"]),
                 Case("b.bats", "c", SKIPPED, text="no Python")]
        self.assertEqual(summary.skipped(found), ["  b.bats: c: no Python", "  2 x tests/a.cpp:1: no GPU"])

    def test_the_output_of_a_failure_is_cut_at_its_begin(self):
        text = summary.failure(Case("a", "", FAILED, text="\n".join(map(str, range(100)))))
        self.assertTrue(text.startswith("FAILED  a\n    ... (60 more lines in the log)\n    60\n"))


class WholeRuns(unittest.TestCase):
    """The runner in a small checkout, whose tier `browser` has one file of cases."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory(dir="/var/tmp")
        self.root = pathlib.Path(self.directory.name)
        (self.root / "tests/browser").mkdir(parents=True)
        (self.root / "tests/runner").symlink_to(HERE)
        (self.root / "build").mkdir()
        (self.root / "build/CMakeCache.txt").write_text("SLURM_DDP_TESTS:STRING=ON\n")
        # A copy, since the runner finds its root from its own path.
        (self.root / "tests/runner").unlink()
        (self.root / "tests/runner").mkdir()
        for file in HERE.glob("*.py"):
            (self.root / "tests/runner" / file.name).write_bytes(file.read_bytes())

    def tearDown(self):
        self.directory.cleanup()

    def start(self, text, *arguments):
        (self.root / "tests/browser/x.bats").write_text(textwrap.dedent(text), encoding="utf-8")
        return subprocess.Popen([sys.executable, "tests/runner/run.py", *(arguments or ("gate", "browser"))],
                                cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def wait_for_start(self, process):
        while not (self.root / "started").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.05)

    def test_the_filter_of_a_developer_does_not_count(self):
        with unittest.mock.patch.dict(os.environ, GTEST_FILTER="Mine.*"):
            process = self.start('@test "a" { [ "$GTEST_FILTER" = "*" ]; }')
        self.assertEqual(process.communicate(timeout=100)[0].splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_red_names_the_case_with_its_output(self):
        process = self.start('@test "bad" { echo because; false; }\n@test "good" { true; }')
        output = process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("FAILED  tests/browser/x.bats: bad", output)
        self.assertIn("    because", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 1 failed, 0 skipped")

    def test_flaky_is_green_and_named(self):
        process = self.start(f'@test "odd" {{ echo told; mkdir {self.root}/once && false; true; }}')
        output = process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, 0, output)
        self.assertRegex(output, r"browser +\d+  ok, flaky: 1")
        self.assertEqual(output.splitlines()[-1], "1 passed, 0 failed, 0 skipped")
        self.assertIn("told", (self.root / "build/test-logs/flaky.txt").read_text())

    def test_a_second_run_is_refused_and_a_stopped_one_leaves_nothing(self):
        first = self.start(f'@test "long" {{ touch {self.root}/started; setsid sleep 5{os.getpid()} & sleep 5{os.getpid()}; }}')
        self.wait_for_start(first)
        second = subprocess.run([sys.executable, "tests/runner/run.py", "gate", "browser"], cwd=self.root, text=True,
                                capture_output=True, check=False, timeout=60)
        self.assertEqual(second.returncode, 1)
        self.assertIn(f"another run uses this checkout: process {first.pid}, ", second.stderr)
        first.send_signal(signal.SIGINT)
        output = first.communicate(timeout=100)[0]
        self.assertEqual(first.returncode, 130, output)
        self.assertIn("stopped by SIGINT", output)
        self.assertIn("begin 1 long\n", (self.root / "build/test-logs/browser.log").read_text())
        self.assertEqual(subprocess.run(["pgrep", "-f", f"^sleep 5{os.getpid()}$"], check=False).returncode, 1)

    def test_what_a_killed_run_left_is_ended_by_the_next(self):
        first = self.start(f'@test "long" {{ touch {self.root}/started; exec sleep 7{os.getpid()}; }}')
        self.wait_for_start(first)
        first.kill()
        first.wait()
        second = self.start(f'@test "alone" {{ [ -z "$(pgrep -f "^sleep 7{os.getpid()}$")" ]; }}')
        self.assertEqual(second.communicate(timeout=100)[0].splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_a_signal_does_not_stop_the_removal_of_what_a_run_left(self):
        process = self.start(f"""
            @test "leaves a process" {{
              bash -c 'trap "touch {self.root}/started" TERM; while :; do sleep 0.1; done' 3>&- &
            }}
            """)
        self.wait_for_start(process)  # of the removal
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=100)[0]
        self.assertEqual((process.returncode, output.splitlines()[-1]), (0, "1 passed, 0 failed, 0 skipped"), output)
        self.assertEqual(subprocess.run(["pgrep", "-f", f"touch {self.root}"], check=False).returncode, 1)

    def test_a_run_whose_terminal_is_gone_is_stopped(self):
        lint = self.root / "tests/lint"
        lint.write_text(f"#!/bin/bash\necho $1 >> {self.root}/started\nexec sleep 1000\n")
        lint.chmod(0o755)
        process = self.start('@test "a" { true; }', "gate", "lint")
        self.wait_for_start(process)
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        process.wait(timeout=100)
        self.assertEqual((self.root / "started").read_text(), "format\n")

    def test_nohup_keeps_a_run(self):
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        process = self.start(f'@test "a" {{ touch {self.root}/started; until [ -e {self.root}/go ]; do sleep 0.1; done; }}')
        signal.signal(signal.SIGHUP, before)
        self.wait_for_start(process)
        process.send_signal(signal.SIGHUP)
        (self.root / "go").touch()
        self.assertEqual(process.communicate(timeout=100)[0].splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_a_missing_build_is_refused(self):
        (self.root / "build/CMakeCache.txt").unlink()
        process = self.start('@test "a" { true; }')
        self.assertIn("run ./run-tests gate build browser", process.communicate(timeout=60)[0])
        self.assertEqual(process.returncode, 1)

    def test_a_tier_that_breaks_has_failed_and_the_next_one_runs(self):
        (self.root / "build/test-logs/lint.log").mkdir(parents=True)  # not a file
        process = self.start('@test "a" { true; }', "gate", "lint", "browser")
        output = process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("FAILED  the tier lint\n", output)
        self.assertEqual(output.splitlines()[-1], "1 passed, 1 failed, 0 skipped")

    def test_a_program_that_crashes_shows_the_end_of_its_output_and_how_it_ended(self):
        (self.root / "build/CTestTestfile.cmake").write_text("""
            add_test(crashes bash -c "seq 300000; echo last words; kill -SEGV $$")
            set_tests_properties(crashes PROPERTIES LABELS unit)
            """, encoding="utf-8")
        process = self.start("", "gate", "unit")
        output = process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("    last words\n    SEGFAULT\n", output)

    def test_a_build_that_fails_names_the_tiers_that_did_not_run(self):
        process = self.start('@test "a" { true; }', "gate", "browser", "build", "lint")  # there are no presets
        output = process.communicate(timeout=100)[0]
        self.assertEqual(process.returncode, 1, output)
        self.assertIn("\nnot run, because the build failed: browser lint\n", output)

    def test_a_folder_that_it_cannot_write_is_named(self):
        logs = self.root / "build/test-logs"
        logs.touch()
        process = self.start('@test "a" { true; }')
        self.assertIn(f"run-tests: cannot write {logs}: ", process.communicate(timeout=60)[0])
        self.assertEqual(process.returncode, 1)

    def test_a_tier_in_quotes_with_another_is_refused(self):
        result = subprocess.run([HERE.parents[1] / "run-tests", "gate", "unit ranks"], capture_output=True, text=True,
                                check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("there is no tier 'unit ranks'", result.stderr)

    @unittest.skipIf(os.getuid() != 0, "a small file system needs root")
    def test_a_full_disk_is_named(self):
        logs = self.root / "build/test-logs"
        logs.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", logs], check=True)
        try:
            process = self.start('@test "long" { head -c 100000 /dev/zero | tr "\\0" x; false; }')
            output = process.communicate(timeout=100)[0]
        finally:
            subprocess.run(["umount", logs], check=True)
        self.assertEqual(process.returncode, 1, output)
        self.assertIn(f"the disk of {logs} is full", output)


if __name__ == "__main__":
    os.environ.pop("SLURM_DDP_TEST_RUN", None)
    unittest.main(verbosity=2)

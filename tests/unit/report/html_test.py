# SPDX-License-Identifier: Apache-2.0
"""The files of ddp-report: well-formed, self-contained XML, charts that a screen reader can read
aloud, and tables with the same content as the JSON.

usage: html_test.py PATH-OF-DDP-REPORT
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

DDP_REPORT = sys.argv.pop(1)
PHASES = ["data", "forward", "backward", "exposed_comm", "optimizer", "checkpoint", "other"]


def run(world_size, batch, parts, **changes):
    seconds = dict(zip(PHASES, parts), mean=sum(parts), p50=sum(parts), p95=1.2 * sum(parts))
    record = {
        "schema": "slurm-ddp/run/1", "program": "ddp-train 0.1.0", "command": "ddp-train",
        "started_unix": 1.7e9, "world_size": world_size, "nodes": 1, "backend": "mpi",
        "device": "cpu", "model": "mlp", "data": "digits", "parameters": 12345,
        "global_batch": batch, "steps": 500, "samples_per_second": batch / sum(parts),
        "final": {"train_loss": 0.01, "eval_loss": None, "eval_accuracy": None},
        "parameters_crc32c": "0x1234abcd", "step_seconds": seconds,
        "comm": {"bytes_per_step": 4096, "busbw_GBps": 1.5,
                 "overlap_ratio": None if world_size == 1 else 0.7},
        "ranks": [{"rank": r, "node": "n1", "step_seconds": seconds} for r in range(world_size)],
        "environment": {"SLURM_JOB_ID": "1"},
    }
    record.update(changes)
    return record


def strong(world_size):
    return run(world_size, 512, [0.004, 0.3 / world_size, 0.6 / world_size,
                                 0 if world_size == 1 else 0.02, 0.004, 0.001, 0.001])


HOSTILE = "</svg><script>'\"&\x01|\n\u202e数"
CASES = {
    "one run": [strong(2)],
    "two points": [strong(1), strong(2)],
    "many points": [strong(2 ** k) for k in range(8) for _ in range(3)],
    "odd sizes": [strong(n) for n in (1, 3, 5, 6, 7, 48)],
    "weak": [run(n, 64 * n, [0, 0.1, 0.2, 0.01 * n, 0.01, 0, 0]) for n in (1, 2, 4)],
    "faster than ideal": [strong(1), run(4, 512, [0, 0.01, 0.02, 0, 0, 0, 0])],
    "nulls": [strong(1), run(2, None or 64, [0.1] * 7, samples_per_second=None, global_batch=None,
                             step_seconds=dict.fromkeys(PHASES + ["mean", "p50", "p95"]))],
    "hostile": [run(n, 64, [0.1] * 7, model=HOSTILE, data=HOSTILE, program=HOSTILE, backend=HOSTILE,
                    parameters_crc32c=HOSTILE, environment={HOSTILE: HOSTILE}) for n in (1, 2)],
}


class Reports(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.directory.name)
        self.addCleanup(self.directory.cleanup)

    def report(self, command, runs, *options):
        directories = []
        for i, record in enumerate(runs):
            directory = self.path / f"run{i}"
            directory.mkdir(exist_ok=True)
            (directory / "run.json").write_text(json.dumps(record))
            directories.append(str(directory))
        files = [str(self.path / name) for name in ("r.html", "r.json", "r.md")]
        done = subprocess.run(
            [DDP_REPORT, command, *directories, "--html", files[0], "--json", files[1],
             "--markdown", files[2], *options], capture_output=True, text=True, timeout=60)
        self.status, self.errors = done.returncode, done.stderr
        if not (self.path / "r.html").exists():
            return None, None, None
        html = (self.path / "r.html").read_text()
        return html, json.loads((self.path / "r.json").read_text()), (self.path / "r.md").read_text()

    def check(self, html, figures):
        page = ElementTree.fromstring(html)
        outside = re.sub(r"<(td|th|dd|dt|p|li|h1|title|text)[ >].*?</\1>", "", html, flags=re.S)
        for external in ("http", "src=", "@import", "url("):
            self.assertNotIn(external, outside)
        self.assertEqual(len(page.findall(".//h1")), 1)
        self.assertEqual(page.get("lang"), "en")
        identifiers = [e.get("id") for e in page.iter() if e.get("id")]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for svg in page.iter("svg"):
            self.assertTrue(svg.findtext("title"))
            self.assertTrue(svg.findtext("desc"))
            self.assertEqual(svg.get("role"), "img")
            for identifier in svg.get("aria-labelledby").split():
                self.assertIn(identifier, identifiers)
        for head in page.findall(".//thead//th"):
            self.assertEqual(head.get("scope"), "col")
        for section in figures["sections"]:
            self.check_table(page, section)
        self.assertLess(len(html), 300_000)

    def check_table(self, page, section):
        """The page's table has the JSON's rows, in the JSON's order, with the JSON's figures."""
        table = section["table"]
        shown = page.find(f".//table[@id='{section['id']}-table']")
        if not table["rows"]:
            self.assertIsNone(shown)
            return
        headings = [head.text for head in shown.findall("./thead/tr/th")]
        self.assertEqual(headings, [column["heading"] for column in table["columns"]])
        rows = shown.findall("./tbody/tr")
        self.assertEqual(len(rows), len(table["rows"]))
        for row, values in zip(rows, table["rows"]):
            for cell, column in zip(row, table["columns"]):
                self.check_cell(cell.text, values[column["key"]], column)

    def check_cell(self, text, value, column):
        if value is None or value == "":
            self.assertEqual(text, "–")
        elif isinstance(value, str):
            self.assertEqual(text, value.replace("\x01", "\ufffd"))
        else:
            factor = {"fraction": 100, "seconds": 1000}.get(column["unit"], 1)
            shown = float(text.replace(" %", "")) / factor
            tolerance = 0.0006 if column["unit"] == "fraction" else abs(value) * 0.006
            self.assertAlmostEqual(shown, value, delta=tolerance, msg=column)

    def test_sweeps(self):
        for name, runs in CASES.items():
            with self.subTest(name):
                html, figures, markdown = self.report("sweep", runs)
                self.assertEqual(self.status, 0, self.errors)
                self.check(html, figures)
                self.assertEqual(markdown.count("\n## "), len(figures["sections"]))

    def test_single_runs(self):
        for name, runs in CASES.items():
            with self.subTest(name):
                html, figures, _ = self.report("run", runs[:1])
                self.assertEqual(self.status, 0, self.errors)
                self.check(html, figures)

    def test_comparison(self):
        for name in ("two points", "nulls", "hostile"):
            with self.subTest(name):
                html, figures, _ = self.report("compare", CASES[name])
                self.assertEqual(self.status, 0, self.errors)
                self.check(html, figures)

    def test_losses_add_up(self):
        _, figures, _ = self.report("sweep", CASES["many points"])
        loss = next(s for s in figures["sections"] if s["id"] == "loss")["table"]["rows"]
        self.assertEqual(len(loss), 7)
        for row in loss:
            parts = [value for key, value in row.items() if key not in ("world_size", "kept", "sum")]
            self.assertAlmostEqual(row["kept"] + sum(parts), 1, places=9)
            self.assertAlmostEqual(row["sum"], 1, places=9)

    def test_gate(self):
        runs = [run(1, 64, [0, 0.1, 0.2, 0, 0.1, 0, 0]), run(2, 64, [0, 0.05, 0.1, 0.05, 0.05, 0, 0])]
        self.report("sweep", runs, "--min-efficiency", "0.7")
        self.assertEqual(self.status, 0, self.errors)
        self.report("sweep", runs, "--min-efficiency", "0.9")
        self.assertEqual(self.status, 1)
        self.assertEqual(self.errors, "ddp-report: efficiency below 0.9: 0.800 with 2 ranks\n")
        self.report("sweep", runs[:1], "--min-efficiency", "0.1")
        self.assertEqual(self.status, 3)
        self.assertEqual(self.errors, "ddp-report: efficiency below 0.1: all runs have the same number of ranks\n")

    def compare(self, before, after, *options):
        """Groups of runs with these step times."""
        runs = [run(2, 64, [0, seconds, 0, 0, 0, 0, 0]) for seconds in before + after]
        second = [str(self.path / f"run{i}") for i in range(len(before), len(runs))]
        for i, record in enumerate(runs):
            (self.path / f"run{i}").mkdir(exist_ok=True)
            (self.path / f"run{i}" / "run.json").write_text(json.dumps(record))
        return self.report("compare", runs[:len(before)], "--with", *second, *options)

    def test_regression_gate(self):
        before = [0.100, 0.101, 0.099, 0.100, 0.100]
        slower = [0.106, 0.107, 0.105, 0.106, 0.106]
        html, figures, _ = self.compare(before, slower)
        self.assertEqual(self.status, 0, self.errors)
        self.check(html, figures)
        self.assertIn("B is 6.0 % (4.7 % to 7.3 %) slower than A, by 5 and 5 runs.", figures["verdict"])
        self.assertEqual([s["id"] for s in figures["sections"]], ["noise", "contributions", "differences", "step"])
        self.assertEqual(figures["summary"]["judged"]["runs_b"], 5)
        for limit, status, words in (
                ("5%", 1, "ddp-report: regression: B is 6.0 % (4.7 % to 7.3 %) slower than A, by 5 and 5 runs; "
                          "--max-regression is 5 %\n"),
                ("0.1", 0, ""),
                ("6.5%", 3, "ddp-report: cannot tell: B is 6.0 % (4.7 % to 7.3 %) slower than A, by 5 and 5 runs; "
                            "--max-regression is 6.5 %, and more runs would narrow the range\n")):
            self.compare(before, slower, "--max-regression", limit)
            self.assertEqual((self.status, self.errors), (status, words))
        self.compare(slower, before, "--max-regression", "0%")
        self.assertEqual(self.status, 0, self.errors)
        # One run each does not show the noise.
        self.compare(before[:1], slower[:1], "--max-regression", "1%")
        self.assertEqual(self.status, 3)
        self.assertIn("1 run and 1 run with a time per sample do not show how much", self.errors)
        # One new run beside many old ones.
        self.compare(before, [0.120], "--metric", "p95", "--max-regression", "5%")
        self.assertEqual(self.status, 1)
        self.assertIn("regression: 95th percentile of the step time: B is 20.0 %", self.errors)

    def test_groups_of_different_work(self):
        runs = [strong(2), dict(strong(2), model="cnn"), strong(4), strong(2)]
        for i, record in enumerate(runs):
            (self.path / f"run{i}").mkdir()
            (self.path / f"run{i}" / "run.json").write_text(json.dumps(record))
        one = [str(self.path / f"run{i}") for i in range(4)]
        for arguments, words in (
                ([one[0], one[1], "--with", one[3]], "the runs of group A differ in model"),
                ([one[0], "--with", one[3], one[2]], "the runs of group B differ in number of ranks"),
                ([one[0], "--with", one[2], "--max-regression", "5%"], "with the same model, data and number of ranks"),
                ([one[0], one[3], "--with", one[0]], "is given twice"),
                ([one[0], one[1], one[2]], "compare takes two runs")):
            done = subprocess.run([DDP_REPORT, "compare", *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)

    def test_different_workloads(self):
        runs = [strong(1), dict(strong(2), model="cnn")]
        self.report("sweep", runs)
        self.assertEqual(self.status, 2)
        self.assertIn("the runs differ in model", self.errors)
        self.report("sweep", runs, "--mixed", "--min-efficiency", "0.0001")
        self.assertEqual(self.status, 2)
        html, figures, _ = self.report("sweep", runs, "--mixed")
        self.assertEqual(self.status, 0, self.errors)
        self.check(html, figures)
        self.assertNotIn("efficiency", figures["verdict"])
        self.assertEqual([s["id"] for s in figures["sections"]], ["step", "runs"])

    def test_the_same_run_twice(self):
        (self.path / "run0").mkdir()
        (self.path / "run0" / "run.json").write_text(json.dumps(strong(2)))
        (self.path / "link").symlink_to(self.path / "run0")
        for again in ("run0", "run0/", "link"):
            done = subprocess.run([DDP_REPORT, "sweep", str(self.path / "run0"), f"{self.path}/{again}"],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn("is given twice", done.stderr)

    def test_no_control_characters_reach_the_terminal(self):
        hostile = "\x1b[31mred\u202e\x00\x9b1m"
        html, _, _ = self.report("run", [dict(strong(2), model=hostile)])
        for arguments in (["--html", str(self.path / "x.html")], []):
            done = subprocess.run([DDP_REPORT, "run", str(self.path / "run0"), *arguments],
                                  capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertFalse(set(done.stdout) & set("\x1b\u202e\x00\x9b"), repr(done.stdout[:200]))

    def test_usage_errors(self):
        for arguments, status, words in (
                (["sweep"], 2, "DIR is required"),
                (["sweep", str(self.path), "--min-efficiency", "80"], 2, "give a fraction, such as 0.8"),
                (["draw", "x"], 2, "ddp-report --help"),
                (["run", str(self.path)], 3, "has no run.json"),
                (["run", str(self.path / "x")], 3, "does not exist"),
                (["compare", str(self.path)], 2, "compare takes two runs, or a group of runs and --with another group"),
                (["compare", "a", "b", "--max-regression", "few"], 2, "give a percentage, such as 5%"),
                (["compare", "a", "b", "--metric", "speed"], 2, "give time, p50, p95 or memory"),
                (["--version"], 0, "")):
            done = subprocess.run([DDP_REPORT, *arguments], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, status, arguments)
            self.assertIn(words, done.stderr)
            self.assertLessEqual(done.stderr.count("\n"), 1)

    def test_a_file_that_cannot_be_written(self):
        (self.path / "run0").mkdir()
        (self.path / "run0" / "run.json").write_text(json.dumps(strong(2)))
        done = subprocess.run([DDP_REPORT, "run", str(self.path / "run0"), "--json", "/dev/full"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 3)
        self.assertIn("cannot write /dev/full: writing failed: No space left on device", done.stderr)

    def test_config_file_with_options_for_all_commands(self):
        (self.path / "run0").mkdir()
        (self.path / "run0" / "run.json").write_text(json.dumps(strong(2)))
        (self.path / "site.toml").write_text(f'[sweep]\njson="{self.path}/of_sweep"\n'
                                             f'[run]\nmarkdown="{self.path}/of_run"\n')
        done = subprocess.run([DDP_REPORT, "--config", str(self.path / "site.toml"), "run", str(self.path / "run0")],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.path / "of_run").exists())
        self.assertFalse((self.path / "of_sweep").exists())


if __name__ == "__main__":
    unittest.main()

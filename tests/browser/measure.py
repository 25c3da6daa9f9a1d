#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens a report in headless Chromium and lists problems with its appearance.

usage: measure.py REPORT.html [--dark] [--width PIXELS] [--screenshot FILE.png]

Prints one problem per line and fails if there are any. Without --screenshot no image is kept. The
report itself has no script; the measuring script is added to a copy of it.
"""
import argparse
import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def browser(page, arguments, directory, *more):
    name = next(filter(None, map(shutil.which, BROWSERS)), None)
    if name is None:
        sys.exit("measure.py: no Chromium is installed")
    scheme = 0 if arguments.dark else 1
    done = subprocess.run(
        [name, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
         f"--user-data-dir={directory}/profile", f"--window-size={arguments.width},3600",
         f"--blink-settings=preferredColorScheme={scheme}", *more, page.as_uri()],
        capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(directory)})
    if done.returncode != 0:
        sys.exit(f"measure.py: {name} failed: {done.stderr[-2000:]}")
    return done.stdout


def measured(report, arguments, directory):
    script = (pathlib.Path(__file__).parent / "measure.js").read_text()
    page = directory / "page.html"
    page.write_text(report.read_text().replace("</body>", f"<script>{script}</script></body>"))
    found = re.search(r'<pre id="measured">(.*?)</pre>', browser(page, arguments, directory, "--dump-dom"), re.S)
    if not found:
        sys.exit("measure.py: the script did not finish")
    return json.loads(html.unescape(found.group(1)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1100)
    parser.add_argument("--screenshot", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        result = measured(arguments.report, arguments, directory)
        if arguments.screenshot:
            browser(arguments.report.resolve(), arguments, directory,
                    f"--screenshot={arguments.screenshot.resolve()}")
    if result["dark"] != arguments.dark:
        sys.exit("measure.py: the browser did not use the requested color scheme")
    for problem in result["problems"]:
        print(problem)
    print(f"{result['charts']} charts, {result['texts']} texts, {len(result['problems'])} problems")
    sys.exit(1 if result["problems"] or result["texts"] == 0 else 0)


if __name__ == "__main__":
    main()

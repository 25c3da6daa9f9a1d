# SPDX-License-Identifier: Apache-2.0
"""Lets `--ddp=watch` see where a Python process stands.

The watch puts the directory of this file first into PYTHONPATH, so Python runs it at its start. On a signal that no
program uses, the process then writes the stacks of its threads into a file without a name, which ddp-guard finds among
its open files. faulthandler does that without the interpreter's lock, so also while C code holds it.

Nothing else changes: the site's own sitecustomize, which this one hides, runs as before. It must run with every Python.
"""
import os
import sys


def _write_stacks_on_a_signal():
    import faulthandler
    import signal

    number = signal.SIGRTMIN + 3
    if signal.getsignal(number) != signal.SIG_DFL:
        return
    for directory in ("/dev/shm", "/tmp"):
        # The name tells the signal. Random, because every user may write there.
        path = "%s/slurm-ddp-stacks-%d-%s" % (directory, number, os.urandom(8).hex())
        try:
            stacks = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            continue
        os.unlink(path)
        faulthandler.register(number, file=stacks, all_threads=True, chain=False)
        return


def _run_the_hidden_one():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


try:
    _write_stacks_on_a_signal()
except Exception:  # an old Python, or a full /dev/shm: the program must not suffer
    pass
_run_the_hidden_one()

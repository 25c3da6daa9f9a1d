# SPDX-License-Identifier: Apache-2.0
"""Lets `--ddp=watch` see where a Python process stands.

The watch puts the directory of this file first into PYTHONPATH, so Python runs it at its start. On a signal that no
program uses, the process then writes the stack of its main thread into a file without a name, which ddp-guard finds
among its open files. faulthandler does that without the interpreter's lock, so also while C code holds it.

Nothing else changes: the site's own sitecustomize, which this one hides, runs as before. It must run with every Python,
and imports only what is built in: a script's own signal.py must still be the one that the script gets.
"""
import os
import sys


def _open_above_standard(path):
    stacks = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    low = []  # a program that was started without standard output must not write here
    while stacks <= 2:
        low.append(stacks)
        stacks = os.dup(stacks)
    for file in low:
        os.close(file)
    return stacks


def _write_stack_on_a_signal():
    import _signal
    import faulthandler

    number = _signal.SIGRTMAX - 3
    if _signal.getsignal(number) != _signal.SIG_DFL or hasattr(sys, "_slurm_ddp_stacks"):
        return
    for directory in ("/dev/shm", "/tmp"):
        path = "%s/slurm-ddp-stacks-%s" % (directory, os.urandom(8).hex())
        try:
            stacks = _open_above_standard(path)
        except OSError:
            continue
        # The name tells the signal and the file's number: another file may get the number later.
        named = "%s-%d-%d" % (path, number, stacks)
        os.rename(path, named)
        os.unlink(named)
        # Of this thread only: those that run change their stacks while they are read.
        faulthandler.register(number, file=stacks, all_threads=False, chain=False)
        sys._slurm_ddp_stacks = stacks
        return


def _run_the_hidden_one():
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    this = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this


try:
    _write_stack_on_a_signal()
except Exception:  # an old Python, or a full /dev/shm: the program must not suffer
    pass
_run_the_hidden_one()

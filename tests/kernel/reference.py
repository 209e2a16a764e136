"""Runs cells by IPython's own run_cell(): reads a JSON list of them on stdin, writes what they gave.

Run by the interpreter that has IPython. Each cell's entry has the fields of `observe` in
test_agreement.py, which reads the same things off our kernel.
"""

import json
import os
import re
import sys
import tempfile

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config


class Hook(DisplayHook):
    shown = None

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        Hook.shown = format_dict

    def log_output(self, format_dict):
        pass


class Publisher(DisplayPublisher):
    published = []

    def publish(self, data, metadata=None, **kwargs):
        self.published.append(data)


class Shell(InteractiveShell):
    displayhook_class = Hook
    display_pub_class = Publisher

    def showtraceback(self, exc_tuple=None, *args, **kwargs):
        self._get_exc_info(exc_tuple)  # which notes it as the last

    def showsyntaxerror(self, *args, **kwargs):
        self._get_exc_info()

    showindentationerror = showsyntaxerror

    def init_virtualenv(self):
        pass

    system = InteractiveShell.system_raw


def main():
    cells = json.load(sys.stdin)
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.xmode = "Plain"
    os.environ["IPYTHONDIR"] = tempfile.mkdtemp()
    shell = Shell.instance(config=config)
    os.environ["MPLBACKEND"] = "agg"
    sys.stdin = open(os.devnull)
    sys.path.insert(0, "")
    report = os.fdopen(os.dup(1), "w")
    streams = [tempfile.TemporaryFile(), tempfile.TemporaryFile()]
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
    results = []
    for cell in cells:
        for stream in streams:
            stream.seek(0)
            stream.truncate()
        Hook.shown = None
        Publisher.published.clear()
        outcome = shell.run_cell(cell, store_history=True)
        sys.stdout.flush()
        sys.stderr.flush()
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", "replace"))
        error = outcome.error_before_exec or outcome.error_in_exec
        shown = Hook.shown
        results.append(
            {
                "error": error and type(error).__name__,
                "value": error and re.sub(r"\s*\([^()]*, line \d+\)$", "", str(error)),
                "result": shown and shown.get("text/plain"),
                "forms": sorted(shown) if shown else [],
                "displayed": [sorted(data) for data in Publisher.published],
                "stdout": texts[0],
                "stderr": texts[1],
            }
        )
    json.dump(results, report)


main()

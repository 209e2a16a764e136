"""The attack programs: one file each under programs/, whose first lines say what they are.

threat    T1 … T5 of the threat model
tries     what it does
outcome   what execute_code may say (default: ok, error or killed)
exit      the exit status that must be told
end       "no": it need not come to its last line, which prints END
timeout   seconds, of the call
within    seconds after which the answer must be there
needs     a layer that must be in force: limits for bombs
trips     outside a sandbox this canary notices it (see test_canaries.py)
after     what to look at afterwards in the same session (AFTER, below)
paths     what to ask of the file tools afterwards
arch      only there
"""

import pathlib
import platform
import re
import time

import pytest
import sandboxes
from belljar import PATIENCE
from sandboxes import ToolError

HERE = pathlib.Path(__file__).parent
LANGUAGES = {".sh": "bash", ".py": "python", ".js": "node"}


class Attack:
    def __init__(self, path):
        self.name = path.name
        self.language = LANGUAGES[path.suffix]
        self.source = path.read_text()
        self.header = dict(re.findall(r"^(?:#|//) (\w+): (.*)$", self.source, re.MULTILINE))
        self.threat, self.tries = self.header["threat"], self.header["tries"]
        self.outcomes = self.header.get("outcome", "ok error killed").split()
        self.exit = int(self.header["exit"]) if "exit" in self.header else None
        self.must_end = self.header.get("end") != "no"
        self.timeout = float(self.header.get("timeout", 15))
        self.within = float(self.header["within"]) if "within" in self.header else None
        self.needs = self.header.get("needs", "").split()
        self.trips = self.header.get("trips")
        self.after = self.header.get("after")
        self.paths = self.header.get("paths", "").split()
        self.arch = self.header.get("arch")

    def skip_unless_possible(self, jar):
        if self.arch and self.arch != platform.machine():
            pytest.skip(f"written for {self.arch}")
        if missing := [layer for layer in self.needs if layer not in jar.enforced()]:
            pytest.skip(f"this host does not enforce {', '.join(missing)} for this user")

    def check(self, run):
        """What the run itself must be like."""
        output = run.stdout + run.stderr
        confessed = re.findall(r"^BREACH.*", output, re.MULTILINE)
        assert not confessed, confessed[:20]
        assert run.outcome in self.outcomes, run
        if self.exit is not None:
            assert run.exit_code == self.exit, run
        if self.must_end:
            assert "END" in run.stdout, f"the attack did not come to its end: {run}"
        assert run.took < (self.within or self.timeout + 3) * PATIENCE, run.took

    def fill(self, text, words):
        """Text with its placeholders replaced."""
        for word, value in words.items():
            text = text.replace(f"@{word}@", value)
        for i, path in enumerate(words["FILES"].split()):
            text = text.replace(f"@FILE{i}@", path).replace(
                f"@DIR{i}@", str(pathlib.Path(path).parent)
            )
        assert not re.search(r"@[A-Z_0-9]+@", text), f"{self.name}: an unknown placeholder"
        return text

    def code(self, words):
        """What is run: bash or node code. Python goes through bash."""
        source = self.fill(self.source, words)
        if self.language == "python":
            return "bash", sandboxes.python_script((HERE / "prelude.py").read_text() + source)
        return self.language, source


ATTACKS = [
    Attack(path) for path in sorted((HERE / "programs").iterdir()) if path.suffix in LANGUAGES
]


# --- what is looked at afterwards, in the same session ------------------------------------------------


def late(jar, session):
    """Nothing of the last run writes into this one."""
    run = jar.execute("sleep 0.6; echo only this; ls /workspace", session=session)
    assert "LATE" not in run.stdout + run.stderr, run
    assert "late" not in run.stdout, run


def code(jar, session):
    run = jar.execute("echo true code", session=session)
    assert run.stdout == "true code\n", run


def ruined(jar, session):
    """It may have spoiled its own session, not more; the answer is clear and quick."""
    run = jar.execute("echo still here", session=session, timeout=5)
    assert run.stdout == "still here\n" or run.error, run


def list_files(jar, session):
    began = time.monotonic()
    for recursive in (False, True):
        try:
            jar.tool("sandbox_list_files", session_id=session, recursive=recursive, timeout=6)
        except ToolError as error:
            assert str(error), "an error without words"
    assert time.monotonic() - began < 5 * PATIENCE


AFTER = {"late": late, "code": code, "ruined": ruined, "list": list_files}

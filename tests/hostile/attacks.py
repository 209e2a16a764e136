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
after     what to look at afterwards in the same session (see test_programs.py)
paths     what to ask of the file tools afterwards
arch      only there
"""

import pathlib
import re

import sandboxes

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

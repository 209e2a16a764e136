"""`belljar config`, help and version: the real binary, its files, environment and flags."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from belljar import BIN, ROOT, need

OK, FAILED, USAGE = 0, 1, 2
TOKEN = "0123456789abcdef"


class Cli:
    """Runs the program in an environment of its own, with an empty home."""

    def __init__(self, home):
        self.home = home
        self.env = {"HOME": str(home), "PATH": os.environ["PATH"]}
        self.env |= {k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")}

    def __call__(self, *args, status=OK, binary=BIN, **env):
        done = subprocess.run(
            [need(str(binary)), *args],
            env=self.env | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == status, done.stderr
        if status == OK:
            assert done.stderr == ""
            return done.stdout
        assert done.stdout == ""
        return done.stderr

    def values(self, *args, **env):
        return json.loads(self("config", "--json", *args, **env))

    def write(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)


@pytest.fixture
def cli(tmp_path):
    return Cli(tmp_path)


def option(value, source, where=None):
    return {"value": value, "source": source} | ({"where": where} if where else {})


# --- sources -------------------------------------------------------------------------------------


def test_without_settings_all_values_are_defaults(cli):
    assert {row["source"] for row in cli.values().values()} == {"default"}


def test_the_file_in_the_home_is_read(cli):
    path = cli.write(".config/belljar/config.yaml", "# mine\npage_size: 7\n")
    assert cli.values()["page_size"] == option(7, "file", f"{path}:2")


def test_xdg_config_home_stands_in_for_dot_config(cli):
    cli.write(".config/belljar/config.yaml", "page_size: 7\n")
    path = cli.write("xdg/belljar/config.yaml", "page_size: 8\n")
    values = cli.values(XDG_CONFIG_HOME=str(cli.home / "xdg"))
    assert values["page_size"] == option(8, "file", f"{path}:1")


def test_a_relative_xdg_config_home_is_ignored(cli):
    cli.write(".config/belljar/config.yaml", "page_size: 7\n")
    assert cli.values(XDG_CONFIG_HOME="xdg")["page_size"]["value"] == 7


@pytest.mark.parametrize("how", ["flag", "joined flag", "variable"])
def test_a_named_file_is_read_instead(cli, how):
    cli.write(".config/belljar/config.yaml", "page_size: 7\nmax_batch: 7\n")
    path = cli.write("own.yaml", "page_size: 9\n")
    values = {
        "flag": lambda: cli.values("--config", path),
        "joined flag": lambda: cli.values(f"--config={path}"),
        "variable": lambda: cli.values(BELLJAR_CONFIG=path),
    }[how]()
    assert values["page_size"] == option(9, "file", f"{path}:1")
    assert values["max_batch"]["source"] == "default"


def test_flags_beat_variables_beat_files(cli):
    cli.write(".config/belljar/config.yaml", "page_size: 1\nmax_batch: 1\nmax_subscriptions: 1\n")
    values = cli.values("--page-size=3", BELLJAR_PAGE_SIZE="2", BELLJAR_MAX_BATCH="2")
    assert values["page_size"] == option(3, "flag", "--page-size")
    assert values["max_batch"] == option(2, "environment", "BELLJAR_MAX_BATCH")
    assert values["max_subscriptions"]["value"] == 1


def test_the_program_name_chooses_the_profile(cli, tmp_path):
    link = tmp_path / "belljar-mcp-pyexec"
    link.symlink_to(pathlib.Path(BIN).resolve())
    values = json.loads(cli("config", "--json", binary=link))
    assert values["profile"] == option("mcp-pyexec", "program", '"belljar-mcp-pyexec"')
    values = json.loads(cli("config", "--json", "--profile=default", binary=link))
    assert values["profile"]["value"] == "default"


def test_what_is_printed_can_be_read_again(cli):
    printed = cli("config", "--allowed-hosts=a,b", "--keepalive=250ms", "--http", "[::1]:0")
    path = cli.write("again.yaml", printed)
    again = cli.values("--config", path)
    assert again["allowed_hosts"]["value"] == ["a", "b"]
    assert again["keepalive"]["value"] == 0.25
    assert again["http"]["value"] == "[::1]:0"


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", [["config"], ["config", "--json"]])
def test_a_token_is_never_printed(cli, args):
    path = cli.write("token", TOKEN + "\n")
    for given, env in [
        (["--token", TOKEN], {}),
        ([], {"BELLJAR_TOKEN": TOKEN}),
        (["--token-file", path], {}),
    ]:
        out = cli(*args, *given, **env)
        assert "(set)" in out
        assert TOKEN not in out


def test_a_bad_token_is_not_repeated_in_the_error(cli):
    assert "hunter2" not in cli("config", BELLJAR_TOKEN="hunter2", status=USAGE)
    path = cli.write("token", "hunter2")
    message = cli("config", "--token-file", path, status=USAGE)
    assert message.startswith(f"belljar: {path}: token: the value (7 bytes, not shown) is not")


def test_a_token_file_must_exist(cli):
    message = cli("config", "--token-file=/nonexistent/t", status=USAGE)
    assert message == (
        "belljar: flag --token-file: token_file: must be a file that can be read: "
        "open /nonexistent/t: No such file or directory\n"
    )


# --- mistakes: one sentence, status 2 ------------------------------------------------------------


@pytest.mark.parametrize(
    "args, message",
    [
        (["sevre"], 'there is no command "sevre"; did you mean "serve"?'),
        (["nonsense"], 'there is no command "nonsense"; see belljar --help'),
        (["help", "confg"], 'there is no command "confg"; did you mean "config"?'),
        (["config", "x"], 'the command config takes no argument "x"'),
        (["version", "--json"], 'the command version has no flag "--json"'),
        (["--page-sise", "1"], 'there is no flag "--page-sise"; did you mean --page-size?'),
        (["config", "--colour"], 'there is no flag "--colour"'),
        (["config", "-v"], '"-v" is not a flag'),
        (
            ["config", "--page-size"],
            "flag --page-size: page_size: needs a value; expected an integer from 1 to 10000",
        ),
        (
            ["config", "--busy-poll-us", "1001"],
            'flag --busy-poll-us: busy_poll_us: "1001" is not allowed; '
            "expected an integer from 0 to 1000",
        ),
        (["config", "--config"], "flag --config: needs the name of a file"),
        (["config", "--config="], "flag --config: needs the name of a file"),
        (["config", "--config", "--json"], "flag --config: needs the name of a file"),
        (["config", "--config", "/nonexistent"], "open /nonexistent: No such file or directory"),
        (["config", "--config", "/"], "read /: Is a directory"),
        (["config", "--json", "--markdown"], "--json, --markdown and --man exclude each other"),
        (
            ["config", "--log-level=\x1b[31mloud"],
            r'flag --log-level: log_level: "\u001b[31mloud" is not allowed; '
            "expected one of error, warning, info, debug",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(cli, args, message):
    assert cli(*args, status=USAGE) == f"belljar: {message}\n"


def test_a_mistake_in_a_file_names_its_line(cli):
    path = cli.write("bad.yaml", "stdio: true\n\nhttp_max_body: lots\n")
    assert cli("config", "--config", path, status=USAGE) == (
        f'belljar: {path}:3: http_max_body: "lots" is not allowed; expected a size from 1k to 1g\n'
    )


def test_a_mistake_in_a_variable_names_it(cli):
    assert cli("config", BELLJAR_STDIO="perhaps", status=USAGE) == (
        'belljar: environment variable BELLJAR_STDIO: stdio: "perhaps" is not allowed; '
        "expected true or false\n"
    )


def test_a_file_over_one_mebibyte_is_refused(cli):
    path = cli.write("big.yaml", "#" * (1 << 20))
    cli.values("--config", path)
    cli.write("big.yaml", "#" * ((1 << 20) + 1))
    message = cli("config", "--config", path, status=USAGE)
    assert message == f"belljar: {path}: more than 1048576 bytes\n"


def test_an_unreadable_user_file_is_not_passed_over(cli):
    (cli.home / ".config/belljar/config.yaml").mkdir(parents=True)
    assert "Is a directory" in cli("config", status=USAGE)


def test_a_full_disk_is_a_failure_not_a_mistake(cli):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [need(BIN), "config"], env=cli.env, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == FAILED
    assert "write to standard output: No space left on device" in done.stderr


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [["--help"], ["-h"], ["help"], ["serve", "--help"], ["config", "-h"]]
)
def test_help_lists_every_option(cli, args):
    text = cli(*args)
    for key in cli.values():
        assert f"\n  --{key.replace('_', '-').replace('.', '-')}" in text
    assert max(map(len, text.splitlines())) <= 90


def test_help_works_with_a_broken_configuration(cli):
    assert "Usage:" in cli("serve", "--help", BELLJAR_LOG_LEVEL="loud")


def test_help_lists_the_commands(cli):
    for name in ["serve", "config", "help", "version"]:
        assert f"\n  {name} " in cli("--help")
        assert cli("help", name) == cli(name, "--help")


def test_version(cli):
    text = cli("--version")
    assert text == cli("version")
    assert text.startswith("belljar ")


@pytest.mark.parametrize("flag, file", [("--markdown", "configuration.md"), ("--man", "belljar.1")])
def test_the_manual_in_docs_is_up_to_date(cli, flag, file):
    assert cli("config", flag) == (ROOT / "docs" / file).read_text()


def test_the_manual_page_names_every_command_and_option(cli):
    page = cli("config", "--man").replace("\\-", "-")
    for name in ["serve", "run", "doctor", "image", "sessions", "config", "help", "version"]:
        assert f"\n.B belljar {name}" in page
    for key in cli.values():
        assert f"\\fB--{key.replace('_', '-').replace('.', '-')}\\fR" in page


def test_the_manual_page_has_no_mistakes(cli, tmp_path):
    checker = shutil.which("mandoc") or shutil.which("groff")
    if not checker:
        pytest.skip("neither mandoc nor groff is here to read it")
    page = tmp_path / "belljar.1"
    page.write_text(cli("config", "--man"))
    lint = (
        ["-Tlint", "-Wwarning"] if checker.endswith("mandoc") else ["-man", "-ww", "-Tutf8", "-z"]
    )
    done = subprocess.run([checker, *lint, page], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr


def refusals(cli, key):
    """What is said about a value that hardly any option takes, by flag, variable and file; "" where it
    is taken."""
    bad = "no such value"
    path = cli.write("one.yaml", f"# a line before it\n{key}: {bad}\n")
    flag = f"--{key.replace('_', '-').replace('.', '-')}"
    variable = f"BELLJAR_{key.upper().replace('.', '_')}"
    ways = {
        f"flag {flag}": ([f"{flag}={bad}"], {}),
        f"environment variable {variable}": ([], {variable: bad}),
        f"{path}:2": (["--config", path], {}),
    }
    for place, (args, env) in ways.items():
        done = subprocess.run(
            [need(BIN), "config", *args], env=cli.env | env, capture_output=True, text=True
        )
        yield place, done.stderr if done.returncode == USAGE else ""


@pytest.mark.large
def test_a_bad_value_of_any_option_names_place_and_remedy(cli):
    for key, row in cli.values().items():
        verdicts = dict(refusals(cli, key))
        taken = [place for place, said in verdicts.items() if not said]
        assert not taken or (isinstance(row["value"], (str, list)) and len(taken) == 3), (
            key,
            taken,
        )
        for place, said in verdicts.items():
            assert not said or said.startswith(f"belljar: {place}: {key}: "), said
            assert not said or re.search("expected|must|needs|at least|at most", said), said


def test_every_option_has_a_value_and_a_source(cli):
    printed = cli("config")
    values = cli.values()
    for key, row in values.items():
        assert set(row) <= {"value", "source", "where"} and row["source"] == "default"
        line = next(one for one in printed.splitlines() if one.lstrip("# ").startswith(f"{key}:"))
        assert line.endswith("  # default")

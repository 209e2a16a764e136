"""What guests are given and what of their output is told, in every language: environment, imports,
tidy output, shells that go on where the last one ended. As root and as an ordinary user."""

import os
import shutil
import subprocess

import belljar
import pytest
import python_jar
from belljar import need
from sandboxes import Jar, ToolError, ordinary_user

SLOW = python_jar.SLOW
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="there is no node on this host")


@pytest.fixture(scope="module", params=["root", "user"])
def user(request):
    if request.param == "user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    return ordinary_user() if request.param == "user" else None


@pytest.fixture(scope="module")
def jar(user):
    with Jar(user=user) as made:
        yield made


@pytest.fixture
def shell(jar):
    """Runs code in one session, in bash if nothing else is said."""
    session = None

    def execute(code, language="bash", **options):
        nonlocal session
        run = jar.execute(code, language, session=session, **options)
        session = run.session
        return run

    yield execute
    if session:
        jar.close_session(session)


# ---- shells -------------------------------------------------------------------------------------

SHELLS = ("bash", "sh")


@pytest.mark.parametrize("language", SHELLS)
def test_a_shell_goes_on_in_the_directory_of_the_last_one(shell, language):
    shell("mkdir -p 'a dir/b'; cd 'a dir/b'", language)
    assert shell("pwd; cd ..", language).stdout == "/workspace/a dir/b\n"
    assert shell("pwd; cd - >/dev/null; pwd", language).stdout == (
        "/workspace/a dir\n/workspace/a dir/b\n"
    )


@pytest.mark.parametrize("language", SHELLS)
@pytest.mark.parametrize(
    "value",
    ["plain", "with space", "it's", 'say "hi"', "a\nb", "$HOME `x` \\", "ü🔔", "", "-n", "a=b"],
)
def test_exported_variables_are_kept_whatever_they_hold(shell, language, value):
    quoted = "'" + value.replace("'", "'\\''") + "'"
    shell(f"export KEPT={quoted} OTHER=1; unexported=1", language)
    run = shell('printf "%s|%s|%s" "$KEPT" "$OTHER" "$unexported"', language)
    assert run.stdout == f"{value}|1|"


def test_bash_and_sh_go_on_for_each_other(shell):
    shell("cd /usr; export A='from bash'", "bash")
    assert shell('pwd; echo "$A"; export A="from sh"; cd /tmp', "sh").stdout == "/usr\nfrom bash\n"
    assert shell('pwd; echo "$A"', "bash").stdout == "/tmp\nfrom sh\n"


def test_a_changed_or_unset_variable_is_kept_as_such(shell):
    shell("export A=1 B=1")
    shell("A=2; unset B")
    assert shell("echo $A.$B.").stdout == "2..\n"


ENDS = {
    "a status": ("exit 3", 3),
    "the last command's status": ("true; (exit 9)", 9),
    "a command that is not there": ("no_such_command", 127),
    "set -e": ("set -e\nfalse\necho no", 1),
    "set -u": ("set -u\necho $nope", None),
    "a syntax error": ("echo begun\nif then", 2),
    "a syntax error in the first line": ("if then", 2),
    "exec": ("exec false", 1),
    "a trap of its own": ("trap 'echo bye' EXIT; exit 6", 6),
    "SIGTERM": ("kill -TERM $$", 143),
    "SIGKILL": ("kill -KILL $$", 137),
    "a closed output": ("exec >&- 2>&-; exit 4", 4),
    "an unreadable state": ("echo '(((' >/tmp/.belljar-shell; exit 5", 5),
}


@pytest.mark.parametrize("language", SHELLS)
@pytest.mark.parametrize("what", ENDS)
def test_an_exit_status_is_that_of_a_plain_script(shell, language, what):
    code, status = ENDS[what]
    if status is None:  # as the shells themselves have it
        status = {"bash": 1, "sh": 2}[language]
    shell("cd /usr; export A=1", language)
    run = shell(code, language)
    assert run.exit_code == status, run


@pytest.mark.parametrize("language", SHELLS)
@pytest.mark.parametrize(
    "code", ["cd /opt; exit 3", "set -eu; cd /opt; false", "cd /opt; no_such_command"]
)
def test_a_shell_that_fails_is_gone_on_from_too(shell, language, code):
    shell(code, language)
    assert shell("pwd", language).stdout == "/opt\n"


def test_an_interrupted_shell_is_gone_on_from(shell):
    assert shell("export A=1; cd /usr; sleep 100", timeout=1).outcome == "timeout"
    assert shell("pwd; echo $A").stdout == "/usr\n1\n"


@pytest.mark.parametrize("language", SHELLS)
def test_messages_name_the_line_of_the_code(shell, language):
    run = shell("true\n\nno_such_command\n", language)
    assert "/run/belljar/code:" in run.stderr and "3" in run.stderr.split("no_such")[0]
    assert shell("echo $0 $#", language).stdout == "/run/belljar/code 0\n"


def test_tracing_shows_the_code_only(shell):
    assert shell("set -x\ntrue\ncd /usr").stderr == "+ true\n+ cd /usr\n"


@pytest.mark.parametrize("language", SHELLS)
def test_a_directory_that_has_gone_is_left(shell, language):
    shell("mkdir d; cd d; rmdir ../d", language)
    assert shell("pwd; ls", language).stdout == "/workspace\n"


def test_what_keeps_a_shells_state_is_not_in_its_way(shell):
    run = shell("env | cut -d= -f1 | grep -i belljar; echo ${BELLJAR_RC-0}; ls -a /workspace")
    assert run.stdout == "0\n.\n..\n"


def test_a_guest_that_breaks_the_state_harms_itself_only(shell):
    shell("cd /usr; rm -rf /tmp/.belljar-shell*; mkdir /tmp/.belljar-shell; trap - EXIT")
    assert shell("echo fine; pwd").stdout == "fine\n/workspace\n"
    shell("rmdir /tmp/.belljar-shell; ln -s /proc/self/mem /tmp/.belljar-shell; trap - EXIT")
    assert shell("echo fine").stdout.endswith("fine\n")


def test_python_and_node_stay_in_the_workspace(shell):
    shell("cd /usr")
    assert shell("import os; print(os.getcwd())", "python", wait=SLOW).stdout == "/workspace\n"


# ---- output -------------------------------------------------------------------------------------

WRITERS = {
    "bash": "printf '%b' '{}'",
    "sh": "printf '%b' '{}'",
    "python": "import sys; x = sys.stdout.write('{}')",
}

TIDIED = {
    "colours": (r"\033[1;31mred\033[0m\n", "red\n"),
    "a title": (r"\033]0;title\007text\n", "text\n"),
    "a progress bar": (r"\r10%%\r50%%\r100%%\ndone\n", "100%%\ndone\n"),
    "backspaces": (r"abc\b\bx\n", "ax\n"),
    "CR LF": (r"a\r\nb\r\n", "a\nb\n"),
}


@pytest.mark.parametrize("language", WRITERS)
@pytest.mark.parametrize("what", TIDIED)
def test_output_is_shown_as_a_terminal_would_in_the_end(shell, language, what):
    written, shown = TIDIED[what]
    run = shell(WRITERS[language].replace("{}", written), language, wait=SLOW)
    assert run.stdout == shown


@needs_node
def test_output_of_node_is_tidied_too(shell):
    run = shell(r"process.stdout.write('\x1b[32mok\x1b[0m\r\x1b[Kdone\n')", "node")
    assert run.stdout == "done\n"


def test_raw_output_is_not_touched_if_so_configured(user):
    with Jar("--no-strip-ansi", user=user) as jar:
        raw = "\x1b[31mred\x1b[0m\r10%\r20%\b\n"
        code = r"printf '\033[31mred\033[0m\r10%%\r20%%\b\n'"
        waiting = jar.begin(code, progress=True)
        assert waiting.run(SLOW).stdout == raw
        run = jar.execute(f"print({raw!r}, end='')\n'\\x1b[1mbold'", "python", wait=SLOW)
        assert run.stdout == raw


def test_progress_messages_are_tidied(shell, jar):
    waiting = jar.begin(
        r"for i in 1 2 3 4 5 6; do printf '\r\033[1m%s of 6\033[0m' $i; sleep 0.1; done; echo",
        progress=True,
    )
    run = waiting.run(SLOW)
    assert run.stdout == "6 of 6\n"
    said = "".join(text for _, text in waiting.progress)
    assert said and "\x1b" not in said and "\r" not in said


# ---- node ---------------------------------------------------------------------------------------

NODE = {
    "a value": ("console.log(1 + 1)", "ok", 0, "2\n", ""),
    "a status": ("process.exit(4)", "error", 4, "", ""),
    "an error": (
        "function f() { throw new Error('boom') }\nf()",
        "error",
        1,
        "",
        "Error: boom\n    at f (/workspace/code.js:1:22)\n    at Object.<anonymous> (/workspace/code.js:2:1)\n",
    ),
    "a rejection": ("Promise.reject(new TypeError('late'))", "error", 1, "", "TypeError: late\n"),
    "a syntax error": ("foo(", "error", 1, "", "SyntaxError: Unexpected end of input\n"),
    "an error that is caught": (
        "process.on('uncaughtException', (e) => console.log(e.message)); throw new Error('x')",
        "ok",
        0,
        "x\n",
        "",
    ),
    "a module of its own": (
        "const fs = require('fs'); fs.writeFileSync('m.js', 'module.exports = 5');"
        "console.log(require('./m'), require.main === module, __filename)",
        "ok",
        0,
        "5 true /workspace/code.js\n",
        "",
    ),
    "an await outside of functions": (
        "#!/usr/bin/env node\nconst os = require('os');\nconsole.log(await Promise.resolve(typeof os.EOL))",
        "ok",
        0,
        "string\n",
        "",
    ),
    "an error after such an await": (
        "await 1;\nthrow new Error('boom')",
        "error",
        1,
        "",
        "Error: boom\n    at /workspace/code.js:2:7\n",
    ),
    "an import and an await": (
        "import fs from 'fs/promises';\nawait fs.writeFile('m.mjs', 'export default 7');\n"
        "const m = await import('./m.mjs');\nconsole.log(m.default, (await fs.readdir('.')).filter((f) => /code/.test(f)))",
        "ok",
        0,
        "7 []\n",
        "",
    ),
    "an error of a module": (
        "import fs from 'fs';\nexport const x = 1;\nawait 0;\nnull.x",
        "error",
        1,
        "",
        "(reading 'x')\n    at /workspace/code.js:4:6\n",
    ),
    "a module that is not there": (
        "import x from 'no-such-package';\nawait 0",
        "error",
        1,
        "",
        "Cannot find package 'no-such-package'",
    ),
    "an error of syntax in a module": (
        "import fs from 'fs';\nconst = 5", "error", 1, "", "SyntaxError: Unexpected token '='\n",
    ),
    "an error that looks like one of syntax": (
        "console.log('once'); JSON.parse('{')", "error", 1, "once\n", "SyntaxError: Expected property name",
    ),
}  # fmt: skip


@needs_node
@pytest.mark.parametrize("what", NODE)
def test_node_ends_with(shell, what):
    code, outcome, status, stdout, stderr = NODE[what]
    run = shell(code, "node")
    assert (run.outcome, run.exit_code, run.stdout) == (outcome, status, stdout)
    assert stderr in run.stderr


# ---- environment and imports --------------------------------------------------------------------

SHOW = {
    "bash": 'echo "$GIVEN|$TZ|$LISTED"',
    "sh": 'echo "$GIVEN|$TZ|$LISTED"',
    "python": "import os; print(os.environ['GIVEN'], os.environ['TZ'], os.environ['LISTED'], sep='|')",
    "node": "const e = process.env; console.log([e.GIVEN, e.TZ, e.LISTED].join('|'))",
}


@pytest.fixture(scope="module")
def configured(user, tmp_path_factory):
    """A server whose file and flags say what guests are given."""
    file = tmp_path_factory.mktemp("config") / "config.yaml"
    file.write_text('env: ["LISTED=a,b", "GIVEN=from the file"]\nblocked_modules: [socket]\n')
    place = file
    for directory in (file, *list(place.parents)[:3]):
        directory.chmod(0o755)
    secret = {"SECRET_OF_THE_SERVER": "do not tell"}
    flags = ("--config", str(file), "--allowed-modules", "os,socket,math,subprocess,secrets")
    with Jar(*flags, user=user, env=secret) as made:
        yield made


def started(jar, **arguments):
    return jar.tool("start_session", **arguments)["session_id"]


@pytest.mark.parametrize("language", SHOW)
def test_variables_of_server_and_session_reach(configured, language):
    if language == "node" and not shutil.which("node"):
        pytest.skip("there is no node on this host")
    session = started(configured, env={"TZ": "Asia/Tokyo", "GIVEN": "from the session"})
    run = configured.execute(SHOW[language], language, session=session, wait=SLOW)
    assert run.stdout == "from the session|Asia/Tokyo|a,b\n"
    configured.close_session(session)


def test_variables_of_one_session_are_not_anothers(configured):
    session = started(configured, env={"MINE": "1"})
    run = configured.execute("echo $MINE.$GIVEN")
    assert run.stdout == ".from the file\n"
    for id in (session, run.session):
        configured.close_session(id)


@pytest.mark.parametrize("language", ("bash", "python"))
def test_the_servers_own_environment_is_never_passed_on(configured, language):
    code = {"bash": "env", "python": "import os; print(dict(os.environ))"}[language]
    run = configured.execute(code, language, wait=SLOW)
    assert "SECRET" not in run.stdout and "do not tell" not in run.stdout
    configured.close_session(run.session)


@pytest.mark.parametrize(
    "env, words",
    [
        ({"A B": "1"}, '"A B" is no name'),
        ({"": "1"}, "is no name"),
        ({"9": "1"}, "is no name"),
        ({"PATH": "/x"}, '"PATH" is reserved'),
        ({"LD_PRELOAD": "/x"}, '"LD_PRELOAD" is reserved'),
        ({"A": 1}, '"A" must be a text'),
        ({"A": "x" * 70_000}, "the limit is 65536"),
        ({f"V{i}": "" for i in range(257)}, "the limit is 256"),
    ],
)
def test_a_variable_that_cannot_be_is_refused_by_name(jar, env, words):
    with pytest.raises(ToolError, match=words):
        started(jar, env=env)


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--env", "PATH=/x"], '"PATH" is reserved'),
        (["--env", "LD_X=1"], '"LD_X" is reserved'),
        (["--env", "1A=x"], "env"),
        (["--env", "NOVALUE"], "env"),
        (["--allowed-modules", "a b"], "allowed_modules"),
        (["--blocked-modules", "os..path"], "blocked_modules"),
    ],
)
def test_an_option_that_cannot_be_stops_the_start(flags, words):
    ended = subprocess.run(
        [need(belljar.BIN), "serve", "--stdio", *flags],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode != 0 and words in ended.stderr, ended


def test_values_of_variables_are_not_printed_by_config():
    for form in ([], ["--json"]):
        shown = subprocess.run(
            [need(belljar.BIN), "config", *form, "--env", "KEY=of the operator"],
            capture_output=True,
            text=True,
        )
        assert shown.returncode == 0 and "of the operator" not in shown.stdout
        assert "(set)" in shown.stdout


@pytest.mark.parametrize(
    "code, words",
    [
        ("import math, os, subprocess", None),
        ("import secrets; secrets.token_hex()", None),  # which imports others inside
        ("import socket", "'socket' is blocked for security reasons (blocked_modules of this server)"),
        ("import json", "'json' is not in the allowed list (allowed_modules of this server: os, soc"),
        ("__import__('json')", "'json' is not in the allowed list"),
        ("from urllib.request import urlopen", "'urllib.request' is not in the allowed list"),
    ],
)  # fmt: skip
def test_a_policy_for_imports_is_kept_and_told(configured, code, words):
    run = configured.execute(code, "python", wait=SLOW)
    if words:
        assert run.outcome == "error" and f"ImportError: Import {words}" in run.error
    else:
        assert run.outcome == "ok", run
    configured.close_session(run.session)


def test_a_new_kernel_has_the_same_environment_and_policy(configured):
    session = started(configured, env={"GIVEN": "still"})
    died = configured.execute("import os; os._exit(1)", "python", session=session, wait=SLOW)
    assert died.outcome == "kernel_died"
    run = configured.execute(
        "import os; print(os.environ['GIVEN']); import json", "python", session=session, wait=SLOW
    )
    assert run.stdout == "still\n" and "ImportError" in run.error
    configured.close_session(session)

"""Which files a run of a shell or of node made or changed: told as for Python."""

import shutil

import pytest
from sandboxes import Jar


@pytest.fixture(scope="module")
def jar():
    with Jar("--no-pool-enabled", "--no-packages-enabled") as made:
        yield made


def names(run):
    return [file["name"] for file in run.said["files"]]


def test_what_a_shell_made_is_told(jar):
    run = jar.execute("mkdir -p sub; echo text >sub/new.csv; printf '' >empty; ls >/dev/null")
    assert run.said["files"] == [
        {
            "uri": f"kernel://{run.session}/empty",
            "name": "empty",
            "mime_type": "application/octet-stream",
            "size": 0,
        },
        {
            "uri": f"kernel://{run.session}/sub/new.csv",
            "name": "sub/new.csv",
            "mime_type": "text/csv",
            "size": 5,
        },
    ]
    assert "[file] sub/new.csv (text/csv, 5 bytes)\n" in run.text


def test_only_what_changed_is_told(jar):
    session = jar.execute("echo 1 >one; echo 2 >two; echo 3 >three").session
    assert names(jar.execute("cat one two", session=session)) == []
    assert names(jar.execute("echo more >>two; rm three", session=session)) == ["two"]
    assert names(jar.execute("true", language="sh", session=session)) == []


def test_times_that_were_set_back_do_not_hide_a_file(jar):
    run = jar.execute("echo old >/tmp/old; touch -d 2001-01-01 /tmp/old; cp -p /tmp/old .")
    assert names(run) == ["old"]
    run = jar.execute("mv old renamed", session=run.session)
    assert names(run) == ["renamed"]


def test_what_programs_keep_for_themselves_is_not_told(jar):
    code = "mkdir -p .hidden __pycache__ node_modules/x; touch .hidden/a __pycache__/b node_modules/x/c d"
    assert names(jar.execute(code)) == ["d"]


def test_a_run_that_fails_still_tells(jar):
    run = jar.execute("touch begun; exit 3")
    assert run.exit_code == 3 and names(run) == ["begun"]
    run = jar.execute("touch begun too; sleep 60", timeout=1)
    assert run.outcome == "timeout" and names(run) == ["begun", "too"]


def test_long_output_is_no_file_of_the_run(jar):
    run = jar.execute("touch mine; seq 200000")
    assert run.said["overflow"] and names(run) == ["mine"]


def test_there_are_at_most_a_hundred(jar):
    run = jar.execute("for i in $(seq -w 150); do touch f$i; done")
    assert names(run) == [f"f{i:03}" for i in range(1, 101)]


def test_what_node_made_is_told(jar):
    if not shutil.which("node", path="/usr/local/bin:/usr/bin:/bin"):
        pytest.skip("there is no node")
    run = jar.execute("require('fs').writeFileSync('made.json', '{}')", language="node")
    assert names(run) == ["made.json"]


def test_runs_in_a_row_tell_each_their_own(jar):
    session = jar.execute("true").session
    waiting = [jar.begin(f"touch f{i}", session=session) for i in range(8)]
    assert [names(each.run()) for each in waiting] == [[f"f{i}"] for i in range(8)]

"""Sessions that choose their image, from those that the operator allows."""

import json
import os
import subprocess

import belljar
import containers
import images
import pytest
from sandboxes import ToolError, until

OTHER = "belljar-test/other:1"
MISSING = "belljar-test/missing:1"


@pytest.fixture(scope="module")
def usual(docker, make_rootfs):
    make_rootfs(runtime=False)
    return images.base(docker)


@pytest.fixture(scope="module")
def other(docker, make_rootfs):
    docker.api.import_image(make_rootfs(runtime=False, node=False), OTHER)
    return OTHER


@pytest.fixture(scope="module")
def jar(docker, usual, other):
    few = ["--pool-size", "1", "--kernel-pool-size", "0"]
    with containers.start(docker, usual, "--docker-images", f"{other},{MISSING}", *few) as made:
        yield made
    containers.wait_for_none(docker, made)


def test_a_session_runs_in_the_image_that_it_asks_for(jar, other):
    session = jar.tool("start_session", image=other)["session_id"]
    run = jar.execute("console.log(1)", "node", session=session)
    assert "node: No such file" in run.error and other in run.error, run
    assert jar.execute("print(6 * 7)", "python", session=session).stdout == "42\n"
    jar.close_session(session)


@pytest.mark.parametrize("image", [None, "", "usual"])
def test_others_run_in_the_usual_one(jar, usual, image):
    asked = {} if image is None else {"image": image and usual}
    session = jar.tool("start_session", **asked)["session_id"]
    assert jar.execute("console.log(1)", "node", session=session).stdout == "1\n"
    jar.close_session(session)


def test_an_image_that_is_not_allowed_is_refused_by_name(docker, jar, usual, other):
    until(lambda: len(containers.of(docker, jar)) == 1, "none but the one that is ready")
    before = containers.of(docker, jar)
    for image in ("debian:latest", f"{other}x", "../etc", other.upper()):
        with pytest.raises(ToolError, match=f"image: must be one of {usual}, {other}, {MISSING}"):
            jar.tool("start_session", image=image)
    assert containers.of(docker, jar) == before


def test_one_that_the_engine_lacks_is_an_error_until_it_is_there(docker, jar, make_rootfs):
    with pytest.raises(ToolError, match=f"no image {MISSING}; make it with"):
        jar.tool("start_session", image=MISSING)
    docker.api.import_image(make_rootfs(runtime=False, node=False), MISSING)
    session = jar.tool("start_session", image=MISSING)["session_id"]
    assert jar.execute("echo ok", session=session).stdout == "ok\n"
    jar.close_session(session)


def test_without_a_choice_nothing_can_be_chosen(docker, usual, other):
    with containers.start(docker, usual, "--no-pool-enabled") as jar:
        with pytest.raises(ToolError, match="image: there is nothing to choose on this server"):
            jar.tool("start_session", image=other)
        session = jar.tool("start_session", image=usual)["session_id"]
        jar.close_session(session)


def test_sessions_lists_containers_and_whose_they_are(docker, usual):
    def listed(jar, state):
        words = [belljar.need(belljar.BIN), "sessions", "--json", "--state-dir", state]
        env = {"PATH": os.environ["PATH"], **containers.environment(docker, usual)}
        done = subprocess.run(words, env=env, capture_output=True, check=True)
        return [row for row in json.loads(done.stdout) if row["instance"] == jar.instance]

    with containers.start(docker, usual, "--pool-size", "1", "--kernel-pool-size", "0") as jar:
        rows = until(lambda: listed(jar, jar.state), "a container")
        assert {row["server"] for row in rows} == {"running"} and rows[0]["image"].startswith(
            "sha256:"
        )
        assert {row["sandbox"] for row in rows} <= set(containers.of(docker, jar))
        assert {row["server"] for row in listed(jar, "/nowhere")} == {"unknown"}

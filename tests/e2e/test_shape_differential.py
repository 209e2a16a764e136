"""What a shape publishes as JSON Schema is what it accepts: two validators, one verdict."""

import pathlib
import subprocess

import belljar
from belljar import need

NODE_TESTS = belljar.ROOT / "tests/node"
TOOL = pathlib.Path(belljar.FIXTURE).parents[1] / "differential/shape_tool"


def test_shapes_and_ajv_agree_on_generated_documents():
    node = need(NODE_TESTS / "node_modules/.bin/node")
    argv = [node, NODE_TESTS / "shape_diff.mjs", need(TOOL)]
    done = subprocess.run(argv, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr

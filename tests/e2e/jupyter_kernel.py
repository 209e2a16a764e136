"""A kernel of Jupyter's, to compare with, whose interpreter and libraries are the sandboxes' own."""

import json
import pathlib

# The runtime's own libraries come first; of the test's environment only what it lacks.
LAUNCHER = """
import sys
sys.path.append({site!r})
from ipykernel import kernelapp
kernelapp.launch_new_instance()
"""


def make_kernel(place, runtime):
    """Describes it below `place`; JUPYTER_PATH names the directory that is returned."""
    import ipykernel

    site = str(pathlib.Path(ipykernel.__file__).parents[1])
    python = str(pathlib.Path(runtime) / "bin/python")
    spec = {
        "argv": [python, "-c", LAUNCHER.format(site=site), "-f", "{connection_file}"],
        "display_name": "runtime",
        "language": "python",
    }
    folder = pathlib.Path(place) / "share/jupyter/kernels/runtime"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
    return folder.parents[1]

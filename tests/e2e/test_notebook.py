"""A data analysis as an agent works it off, cell by cell in one session, against Jupyter itself:
`jupyter nbconvert --execute` runs the same cells with the same interpreter and libraries."""

import base64
import io
import os
import pathlib
import re
import subprocess
import sys

import belljar
import nbformat
import pytest
from belljar import PATIENCE, need
from jupyter_kernel import make_kernel
from PIL import Image
from sandboxes import Jar, as_user, ordinary_user

pytestmark = pytest.mark.python_only

HERE = pathlib.Path(__file__).parent
RUNTIME = pathlib.Path(os.environ.get("BELLJAR_RUNTIME", HERE.parents[1] / ".cache/runtime"))
SLOW = 120  # seconds for one cell, on a busy machine

# (pattern, what stands for it, why it may differ)
NORMALISED = (
    (r"0x[0-9a-f]{6,}", "0x…", "addresses"),
    (r"/tmp/ipykernel_\d+/\d+\.py|<cell \d+>", "<cell>", "each has its own name for a cell"),
    (r"(Date: +)\w{3}, \d\d \w{3} \d{4}", r"\1…", "today, in a summary of statsmodels"),
    (r"(Time: +)\d\d:\d\d:\d\d", r"\1…", "now, in the same place"),
    (r"(CPU times|Wall time): .*", r"\1: …", "how long %%time took"),
    (r"\r\n", "\n", "Jupyter runs !commands on a terminal, which ends lines like this"),
)

# What belljar does otherwise, by the cell's title: (field, why)
OTHERWISE = {
    "a figure as result": ("images", "Jupyter shows the same picture twice, belljar once"),
    "help": ("stdout", "Jupyter opens a pager; here nobody turns pages, so it is printed"),
}


def read_cells():
    text = (HERE / "notebooks/analysis.ipy").read_text()
    parts = re.split(r"^# %% (.*)\n", text, flags=re.MULTILINE)[1:]
    return [(title, code.strip("\n")) for title, code in zip(parts[::2], parts[1::2])]


CELLS = read_cells()


class Seen:
    """What one cell gave to whoever ran it."""

    def __init__(self, stdout, stderr, result, error, images):
        self.stdout, self.stderr = normal(stdout), normal(stderr)
        self.result, self.error = normal(result), normal(error)
        self.images = [Image.open(io.BytesIO(base64.b64decode(data))) for data in images]


def normal(text):
    for pattern, stand_in, _why in NORMALISED:
        text = re.sub(pattern, stand_in, text) if text is not None else None
    return text


# --- Jupyter ---------------------------------------------------------------------------------------


def nbconvert(place, workspace):
    """The notebook with what its cells gave."""
    jupyter_path = make_kernel(place, RUNTIME)
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code) for _title, code in CELLS],
        metadata={"kernelspec": {"name": "runtime", "display_name": "runtime"}},
    )
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "JUPYTER_PATH": str(jupyter_path),
        "JUPYTER_PLATFORM_DIRS": "1",
        "IPYTHONDIR": str(place / "ipython"),
        "MPLCONFIGDIR": str(place / "matplotlib"),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",  # sums depend on how many add them up
        "OPENBLAS_NUM_THREADS": "1",
    }
    words = ["-m", "nbconvert", "--execute", "--allow-errors", "--to", "notebook"]
    words += ["--stdin", "--stdout", f"--ExecutePreprocessor.timeout={int(SLOW * PATIENCE)}"]
    done = subprocess.run(
        [sys.executable, *words],
        input=nbformat.writes(book),
        cwd=workspace,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return nbformat.reads(done.stdout, as_version=4)


def seen_by_jupyter(cell):
    """Its outputs, with what was displayed as text among what was printed."""
    streams = {"stdout": "", "stderr": ""}
    result = error = None
    images = []
    for output in cell.outputs:
        data = output.get("data", {})
        if "image/png" in data:
            images.append(data["image/png"])
        if output.output_type == "stream":
            streams[output.name] += output.text
        elif output.output_type == "execute_result":
            result = data["text/plain"]
        elif output.output_type == "error":
            error = f"{output.ename}: {output.evalue}"
        elif "image/png" not in data:
            text = data.get("text/plain", "")
            if text.endswith(" object>"):  # what a notebook shows instead
                text = data.get("text/markdown") or data["text/html"]
            streams["stdout"] += text + "\n"
    return Seen(**streams, result=result, error=error, images=images)


@pytest.fixture(scope="module")
def jupyter(tmp_path_factory):
    """What Jupyter gives for each cell, and its files."""
    if not (RUNTIME / "stamp").exists():
        pytest.skip(f"{RUNTIME} is not there: run tools/runtime")
    version = "import sys; print(sys.version_info[:2])"
    theirs = subprocess.run(
        [RUNTIME / "bin/python", "-c", version], capture_output=True, text=True, check=True
    )
    if theirs.stdout.strip() != str(sys.version_info[:2]):
        pytest.skip("ipykernel is installed for another version of Python than the runtime's")
    workspace = tmp_path_factory.mktemp("workspace")
    book = nbconvert(tmp_path_factory.mktemp("jupyter"), workspace)
    return [seen_by_jupyter(cell) for cell in book.cells], files_below(workspace)


def files_below(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(paths)}


# --- belljar ---------------------------------------------------------------------------------------


def can_read_runtime(user):
    words = ["test", "-r", str(RUNTIME.resolve() / "stamp")]
    return subprocess.run([*as_user(user), *words]).returncode == 0


def read_files(jar, session):
    """The workspace as the file tools give it: every file's bytes."""
    listed = jar.tool("sandbox_list_files", path=".", session_id=session, recursive=True)
    assert not listed["truncated"]
    files = {}
    for entry in listed["entries"]:
        if entry["type"] == "file":
            path = entry["name"]
            read = jar.tool("sandbox_read_file", path=path, session_id=session, encoding="base64")
            assert not read["truncated"]
            files[path] = base64.b64decode(read["text"])
    return dict(sorted(files.items()))


@pytest.fixture(scope="module", params=["root", "user"])
def server(request):
    """The same from the real server: all cells in one session."""
    need(belljar.BIN)
    if request.param == "user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    user = ordinary_user() if request.param == "user" else None
    if user and not can_read_runtime(user):
        pytest.skip("the runtime lies where this user cannot look")
    flags = [] if belljar.IN_CONTAINERS else ["--runtime", str(RUNTIME.resolve())]
    with Jar(*flags, user=user) as jar:
        session, seen = None, []
        for _title, code in CELLS:
            run = jar.execute(code, "python", session=session, timeout=SLOW, wait=2 * SLOW)
            session = run.session
            images = [block["data"] for block in run.result["content"] if block["type"] == "image"]
            seen.append(Seen(run.stdout, run.stderr, run.said["result"], run.error, images))
        yield seen, read_files(jar, session)


# --- the comparison --------------------------------------------------------------------------------


def pictures(seen):
    return [(image.size, image.convert("RGBA").tobytes()) for image in seen.images]


@pytest.mark.timeout(20 * SLOW)
@pytest.mark.parametrize("number", range(len(CELLS)), ids=[title for title, _code in CELLS])
def test_a_cell_gives_what_jupyter_gives(server, jupyter, number):
    ours, theirs = server[0][number], jupyter[0][number]
    field, _why = OTHERWISE.get(CELLS[number][0], (None, None))
    for name in ("stdout", "stderr", "result", "error"):
        if name != field:
            assert getattr(ours, name) == getattr(theirs, name), name
    if field != "images":
        assert [image.size for image in ours.images] == [image.size for image in theirs.images]
        assert pictures(ours) == pictures(theirs), "the same sizes, but other pixels"


@pytest.mark.timeout(20 * SLOW)
def test_what_is_done_otherwise_is_done_as_the_table_says(server, jupyter):
    titles = [title for title, _code in CELLS]
    ours, theirs = (seen[0][titles.index("a figure as result")] for seen in (server, jupyter))
    assert pictures(theirs) == 2 * pictures(ours) and len(ours.images) == 1
    ours, theirs = (seen[0][titles.index("help")] for seen in (server, jupyter))
    assert "Signature: share(region)" in ours.stdout and theirs.stdout == ""


@pytest.mark.timeout(20 * SLOW)
def test_the_files_are_the_same_byte_for_byte(server, jupyter):
    ours, theirs = server[1], jupyter[1]
    assert list(ours) == list(theirs)
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_the_analysis_is_a_whole_one():
    assert len(CELLS) >= 30
    code = "\n".join(code for _title, code in CELLS)
    for word in ("read_csv", "groupby", "merge", "pivot", "matplotlib", "seaborn", "plotly"):
        assert word in code

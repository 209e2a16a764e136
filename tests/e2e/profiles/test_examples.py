"""The examples of the five READMEs, unchanged, through the official Python SDK: over stdio where the
original was started by its client, over HTTP where it was a server."""

import base64

import anyio
import belljar
import pytest
from lines import line
from profiles_client import runtime_flags

import mcp

PNG = b"\x89PNG\r\n\x1a\n"


def over_stdio(profile, *flags):
    args = ["serve", "--stdio", "--profile", profile, "--no-pool-enabled", *runtime_flags(), *flags]
    command = belljar.need(belljar.BIN)
    return mcp.StdioServerParameters(command=command, args=args, env=belljar.passed_on())


def converse(target, steps):
    async def talk():
        with anyio.fail_after(120 * belljar.PATIENCE):
            async with mcp.Client(target) as client:
                await steps(client)

    anyio.run(talk)


@pytest.fixture
def url(serve):
    def find(profile):
        server = serve(belljar.Http, *runtime_flags())
        return f"http://{server.host}/mcp/{profile}"

    return find


def text(result):
    assert not result.is_error, result
    return "\n".join(block.text for block in result.content if block.type == "text")


@line("S0.6", "MCP result")
def test_an_image_for_a_plot():
    async def steps(client):
        code = "import matplotlib.pyplot as plt\nplt.plot([1,2,3])\nplt.show()"
        result = await client.call_tool("execute_python", {"code": code})
        (image,) = [block for block in result.content if block.type == "image"]
        assert image.mime_type == "image/png" and base64.b64decode(image.data).startswith(PNG)
        result = await client.call_tool("execute_python", {"code": "print('hello')"})
        assert text(result) == "hello"

    converse(over_stdio("mcp-pyexec"), steps)


@line("S1.2", "execute_code")
def test_hello_world_and_numpy():
    async def steps(client):
        await client.call_tool("start_code_executer")
        result = await client.call_tool("execute_code", {"code": "print('Hello, World!')"})
        assert text(result) == "Hello, World!\n"
        code = "import numpy as np; print(np.array([1, 2, 3]))"
        assert text(await client.call_tool("execute_code", {"code": code})) == "[1 2 3]\n"
        assert text(await client.call_tool("stop_code_executer")).endswith("stopped.")

    converse(over_stdio("code-executer"), steps)


@line("S2.4", "File line in output")
@line("S2.7", "Resource template")
def test_a_sine_wave_is_read_back(url):
    async def steps(client):
        first = {
            "code": "import pandas as pd\nx = 42\nprint('Hello, World!')",
            "session_id": "",
        }
        said = (await client.call_tool("execute_code", first)).structured_content
        assert said["output"] == ["Hello, World!\n"]
        session = said["session_info"]["session_id"]
        again = {"code": "print(x * 2)  # Variable persists", "session_id": session}
        said = (await client.call_tool("execute_code", again)).structured_content
        assert said["output"] == ["84\n"]
        plot = {
            "code": """
import matplotlib.pyplot as plt
import numpy as np

x = np.linspace(0, 10, 100)
plt.plot(x, np.sin(x))
plt.title('Sine Wave')
plt.savefig('sine_wave.png')
plt.show()
""",
            "session_id": session,
        }
        said = (await client.call_tool("execute_code", plot)).structured_content
        uri = f"kernel://{session}/sine_wave.png"
        (file,) = [file for file in said["files"] if file["uri"] == uri]
        assert any(line.startswith("📊 File created: sine_wave.png (") for line in said["output"])
        contents = (await client.read_resource(uri)).contents[0]
        data = base64.b64decode(contents.blob)
        assert data.startswith(PNG) and len(data) == file["size"]

    converse(url("python-interpreter"), steps)


@line("S3.3", "execute-persistent")
def test_define_then_use():
    async def steps(client):
        code = "def add(a, b):\n    return a + b\n\nprint('Function defined')"
        said = text(await client.call_tool("execute-persistent", {"code": code}))
        session = said.removeprefix("Session ID: ").split("\n")[0]
        result = await client.call_tool(
            "execute-persistent",
            {
                "session_id": session,
                "code": "result = add(10, 20)\nprint(f'10 + 20 = {result}')",
            },
        )
        assert "10 + 20 = 30" in text(result)

    converse(over_stdio("python-docker-mcp"), steps)


@line("S4.3", "execute_code")
@line("S4.10", "Differences in source")
def test_a_file_is_written_read_and_run(url):
    async def steps(client):
        write = {"path": "hello.txt", "content": "written before"}
        said = text(await client.call_tool("sandbox_write_file", write))
        assert said == "Wrote 14 bytes to /workspace/hello.txt"
        said = text(await client.call_tool("sandbox_read_file", {"path": "hello.txt"}))
        assert said == "written before"
        for language, code in {
            "bash": "cat hello.txt",
            "node": "console.log(require('fs').readFileSync('hello.txt', 'utf8'))",
            "python": "print(open('hello.txt').read())",
        }.items():
            arguments = {"code": code, "language": language}
            said = text(await client.call_tool("execute_code", arguments))
            assert "written before" in said and said.endswith("[exit_code] 0"), said

    converse(url("mcp-codemode"), steps)

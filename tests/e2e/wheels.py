"""Wheels made on the spot, good and bad ones, and a tiny index that serves them.

make_wheel(directory, "demo", "1.0", {"demo.py": "x = 1"})
with Index(directory) as index: … f"--package-index={index.url}"
"""

import base64
import hashlib
import http.server
import io
import pathlib
import re
import stat
import threading
import zipfile


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


def wheel_bytes(name, version, files, requires=(), links=(), pad=0):
    """`files`: path to text or bytes. `links`: (path, target), as symbolic links. `pad`: a file of so
    many zero bytes, which takes hardly any room in the wheel."""
    info = f"{name}-{version}.dist-info"
    entries = {path: c.encode() if isinstance(c, str) else c for path, c in files.items()}
    entries[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {each}\n" for each in requires)
    ).encode()
    entries[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if pad:
        entries[f"{name}/padding.bin"] = bytes(pad)
    lines = [record_line(path, content) for path, content in entries.items()]
    entries[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in entries.items():
            archive.writestr(path, content)
        for path, target in links:
            link = zipfile.ZipInfo(path)
            link.create_system = 3
            link.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(link, target)
    return out.getvalue()


def make_wheel(directory, name, version, files, **more):
    path = pathlib.Path(directory) / f"{name}-{version}-py3-none-any.whl"
    path.write_bytes(wheel_bytes(name, version, files, **more))
    return path


class Index:
    """A package index. `hold`: an event; answers wait until it is set."""

    def __init__(self, directory, hold=None, host="127.0.0.1"):
        self.directory = pathlib.Path(directory)
        self.requests = []
        index = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                index.requests.append(self.path)
                if hold is not None:
                    hold.wait(60)
                body, kind = index.answer(self.path)
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                try:
                    if self.command != "HEAD":
                        self.wfile.write(body or b"")
                except OSError:  # whoever asked is gone
                    pass

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://{host}:{self.server.server_port}/simple/"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def answer(self, path):
        file = re.fullmatch(r"/files/([^/]+\.whl)", path)
        if file:
            wheel = self.directory / file[1]
            return (wheel.read_bytes() if wheel.exists() else None), "application/octet-stream"
        name = path.removeprefix("/simple/").strip("/")
        found = [
            wheel.name
            for wheel in self.directory.glob("*.whl")
            if wheel.name.split("-")[0].replace("_", "-").lower() == name
        ]
        links = "".join(f'<a href="/files/{each}">{each}</a>\n' for each in found)
        return (f"<html><body>{links}</body></html>".encode() if found else None), "text/html"

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

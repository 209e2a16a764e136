"""An engine that misbehaves: a socket before the real one, which can be slow, lie, or hang up.

with Proxy(engine) as proxy:
    proxy.delay = 2                                  # seconds before each request is passed on
    proxy.answers["/containers/create"] = b"junk"    # instead of the engine's own, by a part of the path
"""

import pathlib
import shutil
import socket
import tempfile
import threading
import time


class Proxy:
    def __init__(self, engine):
        self.engine = engine
        self.api = engine.api
        self.place = pathlib.Path(tempfile.mkdtemp(prefix="belljar-proxy-"))
        self.place.chmod(0o711)
        self.socket = self.place / "socket"
        self.host = f"unix://{self.socket}"
        self.delay = 0
        self.delayed = b""  # only requests that hold this
        self.answers = {}
        self.seen = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.socket))
        self.socket.chmod(0o666)
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        shutil.rmtree(self.place)

    def _accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _answer(self, head):
        for part, answer in self.answers.items():
            if part.encode() in head.split(b"\r\n", 1)[0]:
                return answer
        return None

    def _serve(self, client):
        """Each chunk that looks like the beginning of a request is judged; all else goes through."""
        engine = socket.socket(socket.AF_UNIX)
        try:
            engine.connect(str(self.engine.socket))
            threading.Thread(target=self._back, args=(engine, client), daemon=True).start()
            while data := client.recv(1 << 16):
                if b" HTTP/1.1\r\n" in data:
                    self.seen.append(data.split(b"\r\n", 1)[0].decode())
                    if self.delayed in data:
                        time.sleep(self.delay)
                    answer = self._answer(data)
                    if answer is not None:
                        client.sendall(answer)
                        break
                engine.sendall(data)
        except OSError:
            pass
        finally:
            for end in (client, engine):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                end.close()

    def _back(self, engine, client):
        try:
            while data := engine.recv(1 << 16):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass

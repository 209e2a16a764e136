"""A small client of the Docker Engine API over its unix socket, for tests; standard library only.

    api = Api("/run/docker.sock")
    api.version()["Version"]
    api.containers(label="belljar.instance")     # all of them, the ended ones too
    api.import_image(pathlib.Path("rootfs.tar"), "base:1")

It looks at the engine from beside the server under test, so it must not share code with it.
"""

import http.client
import json
import socket
import time
import urllib.parse


class ApiError(Exception):
    """What the engine refused: its status and its words."""

    def __init__(self, status, message):
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("docker", timeout=timeout)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Api:
    def __init__(self, path, timeout=60):
        self.path, self.timeout = path, timeout

    def request(self, method, path, query=None, body=None, content="application/json"):
        """The bytes of the answer. `body`: an object for JSON, bytes, or an open file."""
        if isinstance(body, dict | list):
            body = json.dumps(body).encode()
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        connection = UnixConnection(self.path, self.timeout)
        try:
            try:
                connection.request(method, target, body, {"Content-Type": content})
            except BrokenPipeError:
                pass  # it has refused what it had read so far, and says why
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= 400:
            raise ApiError(answer.status, words_of(data))
        return data

    def ask(self, method, path, query=None, body=None):
        """The same for answers in JSON; None for an empty one."""
        data = self.request(method, path, query, body)
        return json.loads(data) if data.strip() else None

    # --- the engine

    def ping(self):
        return self.request("GET", "/_ping") == b"OK"

    def version(self):
        return self.ask("GET", "/version")

    def info(self):
        return self.ask("GET", "/info")

    # --- what there is

    def containers(self, label=None):
        """All containers, running or not; `label` is "key" or "key=value"."""
        for attempts_left in range(9, -1, -1):
            try:
                return self.ask("GET", "/containers/json", {"all": "1", **filters(label)})
            except ApiError as refusal:
                # Podman's list fails when one of them is removed meanwhile.
                if "container not known" not in refusal.message or not attempts_left:
                    raise
                time.sleep(0.1)

    def pid(self, container):
        """Of its first process, on the engine's host; 0: it does not run, or is not there."""
        try:
            return self.ask("GET", f"/containers/{container}/json")["State"]["Pid"]
        except ApiError as error:
            if error.status == 404:
                return 0
            raise

    def volumes(self, label=None):
        return self.ask("GET", "/volumes", filters(label))["Volumes"] or []

    def images(self, label=None):
        return self.ask("GET", "/images/json", filters(label))

    def image(self, name):
        """What is known of one image; None: there is none of this name."""
        try:
            return self.ask("GET", f"/images/{name}/json")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    # --- changes

    def import_image(self, tar, name, changes=()):
        """An image of one layer from the tar of a root file system. `changes`: lines of a Dockerfile.
        The image's id."""
        query = [("fromSrc", "-"), *(("changes", change) for change in changes)]
        with open(tar, "rb") as file:
            said = self.request("POST", "/images/create", query, file, "application/x-tar")
        messages = [json.loads(line) for line in said.splitlines() if line]
        for message in messages:
            if "error" in message:
                raise ApiError(200, message["error"])
        image = messages[-1]["status"]
        repo, _, tag = name.partition(":")
        # Apart from the import: Podman's does not look at the tag.
        self.request("POST", f"/images/{image}/tag", {"repo": repo, "tag": tag or "latest"})
        return image

    def remove_image(self, name):
        self.request("DELETE", f"/images/{name}", {"force": "1"})

    def remove_container(self, name):
        self.request("DELETE", f"/containers/{name}", {"force": "1", "v": "1"})

    def remove_volume(self, name):
        self.request("DELETE", f"/volumes/{name}", {"force": "1"})

    def run(self, image, command, user=None, **host):
        """Runs a command in a container of its own: exit status and output, both streams together.
        `host`: members of HostConfig."""
        config = {"Image": image, "Cmd": command, "HostConfig": {"NetworkMode": "none", **host}}
        if user is not None:
            config["User"] = user
        container = self.ask("POST", "/containers/create", None, config)["Id"]
        try:
            self.request("POST", f"/containers/{container}/start")
            status = self.ask("POST", f"/containers/{container}/wait")["StatusCode"]
            query = {"stdout": "1", "stderr": "1"}
            said = self.request("GET", f"/containers/{container}/logs", query)
        finally:
            self.remove_container(container)
        return status, joined(said).decode(errors="replace")


def joined(said):
    """The output in pieces, each behind 8 bytes: the stream, and its length, big endian."""
    text = b""
    while said:
        end = 8 + int.from_bytes(said[4:8], "big")
        text += said[8:end]
        said = said[end:]
    return text


def filters(label):
    return {"filters": json.dumps({"label": [label]})} if label else {}


def words_of(data):
    try:
        said = json.loads(data)
        return said.get("message") or said.get("cause") or str(said)
    except (ValueError, AttributeError):
        return data[:500].decode(errors="replace")

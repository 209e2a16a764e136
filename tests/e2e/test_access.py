"""Who may speak: Host, Origin, token, bind address, TLS."""

import pathlib
import re
import socket
import ssl
import subprocess
import time
import warnings

import belljar
import pytest
from belljar import Connection, Http, envelope, initialize, notification, request, stateless

TOKEN = "correct-horse-battery-staple"
LIST = stateless("tools/list")


# --- Host and Origin -----------------------------------------------------------------------------

FOREIGN_HOSTS = [
    "evil.example.com", "evil.example.com:PORT", "localhost.evil.example.com", "127.0.0.1.evil.example.com:PORT",
    "evil-localhost:PORT", "localhost@evil.example.com", "127.0.0.2.nip.io:PORT", "0.0.0.0:PORT", "192.168.0.1:PORT",
    "[::2]:PORT", "[::1].evil.example.com", "[::ffff:127.0.0.1]:PORT", "2130706433:PORT", "0x7f000001:PORT",
    "0177.0.0.1:PORT", "127.1:PORT", "localhost.:PORT", "xn--localhost:PORT", "localhost:PORT.evil.example.com",
    "localhost:PORT:80", "localhost:x", "localhost:99999", "localhost:-1", "127.0.0.1 evil.example.com",
    "localhost%00.evil.example.com", "localhost,evil.example.com", "http://localhost", "localhost/", "[::1", "::1",
    "169.254.169.254", "metadata.google.internal", "*", "null", "localhost#", "localhost?",
]  # fmt: skip

OWN_HOSTS = [
    "127.0.0.1:PORT",
    "localhost:PORT",
    "localhost",
    "LOCALHOST:PORT",
    "127.0.0.1",
    "[::1]:PORT",
    "[::1]",
    "localhost:1",
]

FOREIGN_ORIGINS = [
    "http://evil.example.com", "https://evil.example.com", "http://evil.example.com:PORT", "null", "", "*",
    "http://localhost.evil.example.com", "http://127.0.0.1.evil.example.com", "http://evil-localhost:PORT",
    "http://localhost@evil.example.com", "http://evil.example.com#localhost", "http://evil.example.com/localhost",
    "http://localhost:PORT@evil.example.com", "http://evil.example.com\\localhost", "file://", "file:///etc/passwd",
    "chrome-extension://abcdef", "vscode-webview://abcdef", "app://localhost", "data:text/html,x", "about:blank",
    "localhost", "//localhost", "http:localhost", "http:/localhost", "http://", "https://0.0.0.0:PORT",
    "http://127.0.0.2.nip.io:PORT", "http://192.168.0.1:PORT", "http://[::2]:PORT", "http://localhost.:PORT",
    "http://localhost:PORT/path", "http://localhost:PORT http://evil.example.com",
    "http://localhost:PORT, http://evil.example.com", "http://2130706433:PORT", "http://localhost:x",
    "ftp://localhost:PORT", "javascript://localhost", "http://[::ffff:127.0.0.1]:PORT", "http://user@localhost:PORT",
]  # fmt: skip

OWN_ORIGINS = [
    "http://127.0.0.1:PORT",
    "http://localhost:PORT",
    "http://[::1]:PORT",
    "HTTP://LOCALHOST:PORT",
]


def fill(text, server):
    return text.replace("PORT", str(server.address[1]))


def no_leave_given(answer):
    for name in ("access-control-allow-origin", "access-control-allow-credentials"):
        assert name not in answer.headers, answer


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_host_is_refused(http, host):
    host = fill(host, http)
    for answer in (
        http.post(LIST, {"Host": host}),
        http.post(initialize(), {"Host": host}),
        http.request("GET", "/healthz", {"Host": host}),
    ):
        # 400 where the value cannot be a host at all: refused before anyone asks whose it is.
        assert answer.status in (403, 400, 421), host
        no_leave_given(answer)


@pytest.mark.parametrize(
    "host", ["evil.example.com", "evil.example.com:PORT", "localhost.evil.example.com"]
)
def test_a_foreign_host_is_refused_with_403(http, host):
    assert http.post(LIST, {"Host": fill(host, http)}).status == 403


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_the_names_of_this_machine_are_hosts(http, host):
    assert http.post(LIST, {"Host": fill(host, http)}).status == 200


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_a_foreign_origin_is_refused(http, origin):
    headers = {"Origin": fill(origin, http)}
    session = http.session()
    for answer in (
        http.post(LIST, headers),
        http.post(initialize(), headers),
        http.post(notification("notifications/x", {"_meta": envelope()}), headers),
        session.post(request("ping"), headers),
        session.delete(headers),
        http.request("GET", "/mcp", {**session.headers, "Accept": "text/event-stream", **headers}),
        http.request("GET", "/metrics", headers),
        http.request("OPTIONS", "/mcp", {**headers, "Access-Control-Request-Method": "POST"}),
    ):
        assert answer.status == 403, answer
        no_leave_given(answer)
    assert session.call("ping") == {}  # the refused DELETE has deleted nothing


@pytest.mark.parametrize("origin", OWN_ORIGINS)
def test_pages_of_this_machine_are_welcome(http, origin):
    assert http.post(LIST, {"Origin": fill(origin, http)}).status == 200


def test_two_origins_are_refused(http):
    body = belljar.encode(LIST)
    head = http.head(
        "POST", "/mcp", {**belljar.mirror(LIST), "Origin": f"http://{http.host}"}, len(body)
    )
    with http.connect() as conn:
        conn.send(head[:-2] + b"Origin: http://evil.example.com\r\n\r\n" + body)
        assert conn.response().status in (400, 403)


def test_a_simple_cross_site_request_does_nothing(http):
    """What a page can send without asking: no JSON type, a foreign Origin."""
    for type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = http.post(LIST, {"Content-Type": type, "Origin": "http://evil.example.com"})
        assert answer.status == 403
        assert http.post(LIST, {"Content-Type": type}).status == 415


# --- CORS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def open_to_app():
    flags = ["--allowed-origins", "https://app.example.com", "--allowed-hosts", "jar.example.com"]
    with Http(*flags) as server:
        yield server


def preflight(server, origin, headers="content-type,mcp-protocol-version,mcp-method,mcp-name"):
    return server.request(
        "OPTIONS",
        "/mcp",
        {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": headers,
        },
    )


def test_a_listed_origin_may_ask_and_read(open_to_app):
    origin = "https://app.example.com"
    answer = preflight(open_to_app, origin)
    assert answer.status in (200, 204)
    assert answer.headers["access-control-allow-origin"] == origin
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = {h.strip().lower() for h in answer.headers["access-control-allow-headers"].split(",")}
    assert allowed >= {
        "content-type", "accept", "authorization", "mcp-protocol-version", "mcp-method", "mcp-name",
        "mcp-session-id", "last-event-id",
    }  # fmt: skip
    assert "origin" in answer.headers["vary"].lower()

    answer = open_to_app.post(initialize(), {"Origin": origin})
    assert answer.status == 200
    assert answer.headers["access-control-allow-origin"] == origin
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert "mcp-session-id" in exposed and "www-authenticate" in exposed
    assert "origin" in answer.headers["vary"].lower()


def test_mirrored_arguments_may_be_asked_for(open_to_app):
    answer = preflight(open_to_app, "https://app.example.com", "content-type, mcp-param-region")
    allowed = {h.strip().lower() for h in answer.headers["access-control-allow-headers"].split(",")}
    assert "mcp-param-region" in allowed or "*" in allowed


@pytest.mark.parametrize("origin", ["https://app.example.com.evil.com", "http://app.example.com", "https://app.example.com:444",
                                    "https://APP.example.com.", "https://xapp.example.com", "https://app.example.com/"])  # fmt: skip
def test_only_the_listed_origin_counts(open_to_app, origin):
    for answer in (preflight(open_to_app, origin), open_to_app.post(LIST, {"Origin": origin})):
        assert answer.status == 403
        no_leave_given(answer)


def test_an_answer_without_origin_gives_no_leave(open_to_app):
    no_leave_given(open_to_app.post(LIST))


def test_a_listed_host_is_served(open_to_app):
    assert open_to_app.post(LIST, {"Host": "jar.example.com"}).status == 200
    assert open_to_app.post(LIST, {"Host": "JAR.example.com:443"}).status == 200
    assert open_to_app.post(LIST, {"Host": "jar.example.com.evil.com"}).status == 403


# --- tokens --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded():
    with Http("--token", TOKEN) as server:
        yield server


def bearer(token):
    return {"Authorization": token}


CHALLENGE = re.compile(r'Bearer( [a-z_]+="[^"\\]*"(, [a-z_]+="[^"\\]*")*)?')

NO_TOKEN = [None]
WRONG_TOKENS = [
    f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer x{TOKEN[1:]}", "Bearer wrong", f"Bearer {TOKEN.upper()}",
    f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN},{TOKEN}", f'Bearer "{TOKEN}"', "Bearer " + "x" * 8000,
]  # fmt: skip
NO_BEARER = [
    "",
    "Bearer",
    "Bearer ",
    TOKEN,
    f"Basic {TOKEN}",
    f"Token {TOKEN}",
    f"Bearer:{TOKEN}",
    f"Bearer{TOKEN}",
]


@pytest.mark.parametrize("value", NO_TOKEN + WRONG_TOKENS + NO_BEARER)
def test_a_wrong_token_is_challenged(guarded, value):
    headers = {"Authorization": value}
    for answer in (
        guarded.post(LIST, headers),
        guarded.post(initialize(), headers),
        guarded.request("GET", "/mcp", headers),
        guarded.request("DELETE", "/mcp", headers),
        guarded.request("GET", "/metrics", headers),
        guarded.post(b"not json", headers),
    ):
        assert answer.status == 401, answer
        challenge = answer.headers["www-authenticate"]
        assert CHALLENGE.fullmatch(challenge), challenge
        # RFC 6750, 3.1: who has not tried with a token is told of no error.
        assert ('error="invalid_token"' in challenge) == (value in WRONG_TOKENS)
        assert TOKEN.encode() not in answer.body


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_right_token_opens(guarded, scheme):
    headers = bearer(f"{scheme} {TOKEN}")
    assert guarded.post(LIST, headers).status == 200
    session = guarded.session(headers=headers)
    assert session.call("ping") == {}
    assert guarded.request("GET", "/metrics", headers).status == 200


def test_a_session_does_not_stand_in_for_the_token(guarded):
    session = guarded.session(headers=bearer(f"Bearer {TOKEN}"))
    for value in (None, "Bearer wrong-wrong-wrong-wrong"):
        assert session.post(request("ping"), {"Authorization": value}).status == 401
        assert session.delete({"Authorization": value}).status == 401
    assert session.call("ping") == {}


def test_a_token_in_the_query_does_not_count(guarded):
    for path in (f"/mcp?token={TOKEN}", f"/mcp?access_token={TOKEN}"):
        assert guarded.post(LIST, path=path).status == 401


def test_two_tokens_are_refused(guarded):
    body = belljar.encode(LIST)
    headers = {**belljar.mirror(LIST), "Authorization": "Bearer wrong-wrong-wrong-wrong"}
    head = guarded.head("POST", "/mcp", headers, len(body))
    with guarded.connect() as conn:
        conn.send(head[:-2] + f"Authorization: Bearer {TOKEN}\r\n\r\n".encode() + body)
        assert conn.response().status in (400, 401)


def test_health_needs_no_token(guarded):
    assert guarded.request("GET", "/healthz").status == 200
    assert guarded.request("GET", "/readyz").status == 200


def test_the_token_comes_from_the_environment_or_a_file(serve, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    for server in (serve(Http, env={"BELLJAR_TOKEN": TOKEN}), serve(Http, "--token-file", file)):
        assert server.post(LIST).status == 401
        assert server.post(LIST, bearer(f"Bearer {TOKEN}")).status == 200
        assert TOKEN not in server.log_text()


# --- where it listens ----------------------------------------------------------------------------


def run(*flags, timeout=5):
    """Output of a server that is expected to refuse to start."""
    try:
        done = subprocess.run(
            [belljar.BIN, "serve", *map(str, flags)],
            capture_output=True, text=True, timeout=timeout * belljar.PATIENCE, stdin=subprocess.DEVNULL,
            env={"HOME": "/nonexistent"},
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"it started: {late.stderr}") from None
    assert done.returncode not in (0, -6, -11), done
    assert done.stdout == ""
    return done.stderr


def own_address():
    """An address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(("192.0.2.1", 9))
            return sock.getsockname()[0]
        except OSError:
            return None


@pytest.mark.parametrize(
    "address",
    ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "127.example.com:0", "localhost.example.com:0"],
)
def test_it_does_not_listen_elsewhere_without_a_token_and_says_what_to_do(address):
    error = run("--http", address)
    assert "token" in error and "--allow-unauthenticated" in error, error


def test_a_short_token_is_refused(tmp_path):
    file = tmp_path / "token"
    file.write_text("short\n")
    for error in (
        run("--http", "0.0.0.0:0", "--token", "x"),
        run("--token-file", file, "--http", "0.0.0.0:0"),
    ):
        assert "16" in error, error
    assert "token" in run("--http", "0.0.0.0:0", "--token-file", tmp_path / "absent")


def test_it_listens_elsewhere_with_a_token(serve):
    server = serve(Http, "--token", TOKEN, address="0.0.0.0:0")
    assert server.post(LIST).status == 401
    assert server.post(LIST, bearer(f"Bearer {TOKEN}")).status == 200
    assert (
        server.post(LIST, {"Origin": "http://evil.example.com", **bearer(f"Bearer {TOKEN}")}).status
        == 403
    )


def test_it_listens_elsewhere_when_told_to(serve):
    server = serve(Http, "--allow-unauthenticated", address="0.0.0.0:0")
    assert server.post(LIST).status == 200


def test_by_default_only_this_machine_can_reach_it(http):
    address = own_address()
    if not address or address.startswith("127."):
        pytest.skip("this machine has no other address")
    with pytest.raises(OSError):
        socket.create_connection((address, http.address[1]), timeout=1)
    listening = (
        pathlib.Path("/proc/net/tcp").read_text() + pathlib.Path("/proc/net/tcp6").read_text()
    )
    port = f":{http.address[1]:04X} "
    hosts = {
        line.split()[1].rsplit(":")[0]
        for line in listening.splitlines()
        if port in line.split("  ")[0] + line
        and line.split()[3] == "0A"
        and line.split()[1].endswith(port.strip())
    }
    assert hosts == {"0100007F"}, hosts


def test_a_port_in_use_is_named(http):
    error = run("--http", http.host)
    assert http.host in error or str(http.address[1]) in error
    assert "in use" in error


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", ":", "[::1:80", "127.0.0.1:-1"]
)
def test_an_address_that_is_none_is_named(address):
    assert address in run("--http", address)


def test_ipv6_loopback_is_loopback(serve):
    try:
        server = serve(Http, address="[::1]:0")
    except AssertionError as error:
        if "address" in str(error).lower() and "assign" in str(error).lower():
            pytest.skip("no IPv6 here")
        raise
    assert server.post(LIST).status == 200
    assert server.post(LIST, {"Host": "evil.example.com"}).status == 403


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    """A certificate for 127.0.0.1, its key, and a key of another."""
    folder = tmp_path_factory.mktemp("pki")
    for name in ("server", "other"):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
             "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.pem"],
            check=True, capture_output=True,
        )  # fmt: skip
    return folder


@pytest.fixture
def trusting(pki):
    return ssl.create_default_context(cafile=str(pki / "server.pem"))


def test_tls_serves_like_plain_http(serve, pki, trusting):
    server = serve(
        Http, "--tls-cert", pki / "server.pem", "--tls-key", pki / "server.key", tls=trusting
    )
    assert "https://" in server.log_text()
    server.harmless()
    session = server.session()
    assert session.call("tools/list")["tools"]
    with server.connect() as conn:
        assert conn.sock.version() in ("TLSv1.2", "TLSv1.3")
        body = belljar.encode(LIST)
        one = server.head("POST", "/mcp", belljar.mirror(LIST), len(body)) + body
        for _ in range(20):
            conn.send(one)
            assert conn.response().status == 200
    big = initialize()
    big["params"]["clientInfo"]["name"] = "x" * 3_000_000  # many records
    assert server.post(big).status == 200


def test_tls_refuses_what_is_not_tls(serve, pki, trusting):
    server = serve(
        Http, "--tls-cert", pki / "server.pem", "--tls-key", pki / "server.key", tls=trusting
    )
    with Connection(server.address, 3) as plain:
        plain.send(server.head("GET", "/healthz"))
        assert b" 200 " not in plain.rest()
    old = ssl.create_default_context(cafile=str(pki / "server.pem"))
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore"):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Connection(server.address, 3, old)
    for data in (b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\0" * 100, b"\x16\x03\x01"):
        with Connection(server.address, 3) as plain:
            plain.try_send(data)
    server.harmless()


def test_tls_that_ends_in_the_middle_of_anything_is_survived(serve, pki, trusting):
    server = serve(
        Http, "--tls-cert", pki / "server.pem", "--tls-key", pki / "server.key", tls=trusting
    )
    fds = server.fds()
    for i in range(30):
        conn = server.connect()
        conn.send(server.head("POST", "/mcp", None, 1000)[: 10 + 10 * i])
        conn.reset() if i % 2 else conn.close()
    server.harmless()
    time.sleep(0.3)
    assert server.fds() <= fds + 5


def test_tls_files_that_do_not_work_are_named(pki, tmp_path):
    junk = tmp_path / "junk.pem"
    junk.write_text("hello\n")
    cert, key = pki / "server.pem", pki / "server.key"
    for flags, words in (
        (["--tls-cert", cert, "--tls-key", pki / "other.key"], ["other.key"]),
        (
            ["--tls-cert", cert, "--tls-key", tmp_path / "absent.key"],
            ["absent.key", "No such file"],
        ),
        (["--tls-cert", tmp_path / "absent.pem", "--tls-key", key], ["absent.pem", "No such file"]),
        (["--tls-cert", junk, "--tls-key", key], ["junk.pem"]),
        (["--tls-cert", cert, "--tls-key", junk], ["junk.pem"]),
        (["--tls-cert", cert], ["tls"]),
        (["--tls-key", key], ["tls"]),
    ):
        error = run("--http", "127.0.0.1:0", *flags)
        assert all(word in error for word in words), (flags, error)

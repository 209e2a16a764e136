"""An engine that is reached over TLS: both sides prove who they are, and whoever cannot is told why."""

import shutil
import socket
import subprocess

import containers
import dockerd
import images
import pytest
from sandboxes import Jar

HOST = "127.0.0.1"


def openssl(*words, place):
    subprocess.run(["openssl", *words], cwd=place, check=True, capture_output=True)


class Authority:
    """Signs certificates; all of its files are in one directory."""

    def __init__(self, place):
        self.place = place
        place.mkdir()
        words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        words += ["-keyout", "ca-key.pem", "-out", "ca.pem", "-days", "2", "-subj", "/CN=tests"]
        openssl(*words, place=place)

    def sign(self, name, extensions, ca=None):
        """A directory as docker.cert_path wants it: key.pem, cert.pem, and ca.pem of `ca`, by default
        ours."""
        made = self.place / name
        made.mkdir()
        words = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl(*words, "-keyout", "key.pem", "-out", "csr", "-subj", f"/CN={name}", place=made)
        (made / "extensions").write_text(extensions)
        words = ["x509", "-req", "-in", "csr", "-out", "cert.pem", "-days", "2", "-CAcreateserial"]
        words += ["-CA", "../ca.pem", "-CAkey", "../ca-key.pem", "-extfile", "extensions"]
        openssl(*words, place=made)
        shutil.copy((ca or self).place / "ca.pem", made)
        return made


def free_port():
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


class TlsDockerd(dockerd.Dockerd):
    """Listens on loopback, too: there for whom its authority has signed."""

    certificates = None

    def command(self):
        self.port = free_port()
        pem = self.certificates
        words = [*super().command(), "--host", f"tcp://{HOST}:{self.port}", "--tlsverify"]
        words += ["--tlscacert", pem / "ca.pem"]
        return [*words, "--tlscert", pem / "cert.pem", "--tlskey", pem / "key.pem"]


CLIENT = "extendedKeyUsage = clientAuth\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed (Debian package openssl)")
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def engine(authority, make_rootfs):
    make_rootfs(runtime=None, bare=True)
    # For one name of the loopback's, and not for the other.
    extensions = f"subjectAltName = IP:{HOST}\nextendedKeyUsage = serverAuth\n"
    TlsDockerd.certificates = authority.sign("engine", extensions)
    with dockerd.started(TlsDockerd) as engine:
        images.bare(engine)
        yield engine


def flags(engine, certificates, host=HOST, scheme="tcp"):
    words = ["--docker-image", images.BARE, "--docker-host", f"{scheme}://{host}:{engine.port}"]
    words += ["--docker-cert-path", certificates] if certificates else []
    return ["--engine", "docker", "--no-pool-enabled", *map(str, words)]


def test_containers_of_an_engine_behind_tls(engine, authority):
    """Also more than fits into one record, both ways."""
    with Jar(*flags(engine, authority.sign("client", CLIENT))) as jar:
        jar.instance = containers.instance_of(jar.state)
        run = jar.execute("echo $((6 * 7))", "sh")
        assert run.stdout == "42\n", run
        content = "0123456789abcdef" * (1 << 14)
        jar.tool("sandbox_write_file", session_id=run.session, path="much", content=content)
        again = jar.execute("wc -c much", "sh", session=run.session)
        assert again.stdout == f"{len(content)} much\n", again
        flood = jar.execute("head -c 300000 /dev/zero | tr '\\0' x", "sh", session=run.session)
        assert flood.outcome == "ok" and "xxxxxxxx" in flood.stdout, flood
        assert containers.of(engine, jar)
        jar.close_session(run.session)
        containers.wait_for_none(engine, jar)


def test_an_engine_of_another_authority_is_not_trusted(engine, authority, tmp_path):
    other = Authority(tmp_path / "other")
    said = containers.refusal(*flags(engine, authority.sign("misled", CLIENT, ca=other)))
    assert "docker.cert_path" in said and "ca.pem" in said, said


def test_an_engine_with_another_name_is_not_trusted(engine, authority):
    said = containers.refusal(*flags(engine, authority.sign("elsewhere", CLIENT), host="localhost"))
    assert "docker.cert_path" in said and "localhost" in said, said


def test_who_has_no_certificate_of_the_engines_authority_is_told(engine, authority, tmp_path):
    other = Authority(tmp_path / "other")
    said = containers.refusal(*flags(engine, other.sign("stranger", CLIENT, ca=authority)))
    assert "docker.cert_path" in said and "cert.pem" in said, said


def test_certificates_that_are_not_there_are_named(engine, tmp_path):
    said = containers.refusal(*flags(engine, tmp_path))
    assert f"{tmp_path}/ca.pem" in said, said


def test_an_engine_behind_tls_is_not_spoken_to_without(engine):
    assert "docker.cert_path" in containers.refusal(*flags(engine, None))

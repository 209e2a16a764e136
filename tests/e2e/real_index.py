"""The real package index, where this machine reaches one."""

import functools
import os
import urllib.request

# How this machine reaches an index: the server passes these on to its installer.
PASSED = ("SSL_CERT_FILE", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PIP_INDEX_URL", "UV_INDEX_URL")


def environment():
    return {name: os.environ[name] for name in PASSED if name in os.environ}


@functools.cache
def index_is_there():
    """Is there a real index in reach of this machine, by what its environment says?"""
    url = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple/").rstrip("/") + "/six/"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status == 200
    except OSError:
        return False

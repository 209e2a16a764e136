"""The Python kernel: the process in a sandbox that keeps Python's state between runs.

It owns the guest's namespace, runs cells in it as a notebook does, turns results and figures into
MIME bundles and exceptions into plain tracebacks, and says which files a run made. It leaves to its
parent, the agent, what a cell prints (descriptors 1 and 2 are pipes that the parent reads), time
and memory limits, interrupts (SIGINT to this process), and the end of a process that died.

Ways in:
    main()            started as a program: kernel.py [DESCRIPTOR [WORKSPACE]]
    prepare(preload)  in a zygote: import, warm up, leave one thread and frozen garbage
    serve(fd)         in a child that the zygote forked; never returns

Messages, both ways: u32 little-endian length, then one JSON object in UTF-8. One request at a time.
    {"op": "execute", "id", "code", "options": {see OPTIONS}, or without them as in the last request,
     and if wanted "paths": [directory of packages], "state": {name: value}: variables to set first,
     "want_state": true, "forget": true: leave no trace of this cell, it is to warm up a kernel made ahead}
        → any number of {"op": "display", "id", "data": {mime: text, or base64}, "metadata": {}}
        → any number of {"op": "install", "id", "packages": [requirement]} for %pip install and its
          like; each is answered with {"op": "installed", "id", "ok", "error", "paths"}
        → one {"op": "done", "id", "status": "ok|error|interrupted|exit", "result": bundle or null,
               "shown": its text for a reader where its text/plain tells nothing (readable()),
               "error": {"name", "value"} or null, "traceback": [line], "exit_code", "count",
               "files": [{"path", "size", "mime", "change": "created|changed"}],
               "files_counted": false when the workspace holds too many to look at,
               "notes": [what was left out, in words], "cpu_ns": processor time that this process and
               the children it has waited for have used so far, and with want_state
               "state": {name: value} that JSON can carry, "state_skipped": [name of the others]}; of
               most, which were ok and gave nothing, only op, id, status, count and cpu_ns are said
    {"op": "configure", "id", any of "env": {name: text}, "cwd": path,
     "policies": [{"owner": whose it is, in words, "allowed": [module], "blocked": [module]}]}
        → {"op": "configured", "id"}; also to a kernel that has run for a while. All policies must
        agree to an import; an empty list of them lifts what was before.
    {"op": "preload", "id", "modules": [name]}: to import before there is anything to do
        → {"op": "preloaded", "id", "imported": [name], "missing": {name: why}}
    {"op": "rehearse", "id"}: to run common cells over data, of which nothing is left but in memory
        → {"op": "rehearsed", "id"}
    {"op": "ping"}
        → {"op": "pong", …}
A request that makes no sense is answered with {"op": "error", "id", "message"}. The end of the
stream ends the kernel. JSON inside a bundle (application/json, plotly) is sent as text.

An ordinary cell is run by Kernel.run_cell. Where IPython can be imported, its shell lives over the
same namespace and rewrites cells with %magics, !commands or ?help into plain Python first; the
result is then run like any other cell, so that both behave alike.

The guest shares this process and may do to it what it likes; nothing here is a boundary. Against
accidents and pranks, this file keeps private copies of what it calls: copy_of(), PRISTINE.
"""

import ast
import atexit
import binascii
import builtins
import collections
import fcntl
import gc
import importlib.machinery
import importlib.util
import io
import itertools
import json
import keyword
import linecache
import operator
import os
import random
import re
import select
import signal
import sys
import threading
import time
import traceback
import types
import warnings

# Functions look names up in the __builtins__ of their module: with a copy, a guest's
# `builtins.len = None` does not reach the code below.
__builtins__ = dict(vars(builtins))


def copy_of(module):
    copy = types.ModuleType(module.__name__)
    vars(copy).update(vars(module))
    return copy


# Nor do `os.write = None` and its like.
ast, fcntl, gc, io, json, linecache = map(copy_of, (ast, fcntl, gc, io, json, linecache))
os, select, signal, time, traceback = map(copy_of, (os, select, signal, time, traceback))
lower_signal = copy_of(sys.modules["_signal"])
count_threads = sys.modules["_thread"]._count  # beside the first
SIGINT, SIG_BLOCK, SIG_UNBLOCK = map(int, (signal.SIGINT, signal.SIG_BLOCK, signal.SIG_UNBLOCK))

encode_json = json.JSONEncoder(ensure_ascii=False).encode
scan_json = json.JSONDecoder().scan_once


def make_encoder():
    """As encode_json, for messages that are ours: nothing in them refers to itself. The encoder in C, made
    once; encode() makes one each time."""
    module = json.encoder
    if module.c_make_encoder is None:
        return encode_json
    to_text = module.encode_basestring
    encode = module.c_make_encoder(
        None, json.JSONEncoder().default, to_text, None, ": ", ", ", False, False, True
    )
    return lambda message: "".join(encode(message, 0))


encode_message = make_encoder()

PROTOCOL = 1
MAX_REQUEST = 64 << 20
READ_AHEAD = 4000  # bytes: most requests are shorter, and take one read
LAST = 1 << 31  # in the length of a message: the last of a cell
MAX_REPLY = 16 << 20
KERNEL_FILE = __file__
WORKSPACE = "/workspace"

OPTIONS = {  # of "execute"
    "max_images": 20,  # of one run; further ones are counted, not sent
    "max_image_bytes": 2 << 20,  # figures are drawn smaller to fit, others left out
    "max_displays": 500,  # messages of one run
    "max_pixels": 20_000_000,  # of a figure or a Pillow image: a larger one is made smaller before it is encoded
    "max_data_bytes": 1 << 20,  # one entry of a bundle that is neither text/plain nor an image
    "max_source": 4_000,  # characters of Markdown, LaTeX, … that stand for a text/plain that tells nothing
    "max_repr": 100_000,  # characters of text/plain; the middle is cut out
    "max_frames": 30,  # of a traceback; the middle is cut out
    "max_traceback": 30_000,  # characters
    "max_files": 100,  # reported
    "max_entries": 4_000,  # of the workspace that are looked at
    "files": True,  # report files at all
    "mapped": False,  # give files that are mapped for writing a new time
    "figure_format": "png",  # png, svg, jpeg
    "figure_dpi": None,  # as the figure says
    "figure_scale": 1,  # of that; 2 for "retina"
    "figure_size": None,  # [width, height] in inches, for figures that do not say
    "figure_tight": True,  # cut the margins, and keep what sticks out of them
    "static_timeout": 20,  # seconds for plotly's PNG
    "strip": True,  # ANSI codes from texts
    "plain": "repr",  # or "str": what the text of a result is
    "print_displays": True,  # those that are no image also as text, among what is printed
    "max_state": 1 << 20,  # bytes of variables that are told, as JSON
    "look_us": 0,  # for which the next request is waited for awake, where they come as quickly
}

ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


# ---- interrupts ---------------------------------------------------------------------------------
#
# SIGINT may come at any time: before the cell has started, while a message is half written, after
# the cell has ended. It raises KeyboardInterrupt only below a frame of call_guest(), where somebody
# waits for it, and not below Channel.flush(). Elsewhere it is noted and the next cell sees it, if
# it was meant for that. Until a handler is there it is blocked; a parent that blocks it before it
# starts us loses none.


def call_guest(function, *args):
    """Call what may run guest code: below this frame, and only there, SIGINT raises."""
    return function(*args)


class Interrupts:
    def __init__(self):
        self.pending = False  # came for a run whose code could not be reached yet
        self.raised = False  # in this run
        self.meant_for_a_run = lambda: False
        self.handler = self.handle

    def handle(self, _signum, frame):
        sending = False
        while frame is not None:
            if frame.f_code is Channel.flush.__code__:
                sending = True
            elif frame.f_code is call_guest.__code__:
                self.pending = True
                if not sending:
                    self.check()
                return
            frame = frame.f_back
        self.pending = self.meant_for_a_run()

    def check(self):
        """Raise what was noted. Called where the guest waits for KeyboardInterrupt."""
        if self.pending:
            self.pending = False
            self.raised = True
            raise KeyboardInterrupt

    def listen(self):
        """Make SIGINT ours again, whatever the last cell did to it."""
        # The module below the signal module: it makes no enumerations, and this is done in each run.
        if lower_signal.getsignal(SIGINT) is not self.handler:
            lower_signal.signal(SIGINT, self.handler)
        lower_signal.pthread_sigmask(SIG_UNBLOCK, (SIGINT,))


# ---- the channel --------------------------------------------------------------------------------


# Copies of 0, 1 and 2, and the channel's two ends: what zygote.c makes, too.
HIDDEN = [1000, 1001, 1002, 1003, 1004]


def hide_descriptors(*channel):
    """(copies of 0, 1 and 2, and of the descriptors of the channel, in whose place they are)"""
    hidden = [hide_descriptor(fd) for fd in (0, 1, 2, *channel)]
    for fd in set(channel):
        if fd > 2:
            os.close(fd)
    return hidden[:3], *hidden[3:]


def hide_descriptor(fd):
    """A close-on-exec copy far above what guest code counts through."""
    for low in (1000, 200, 20):
        try:
            return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, low)
        except OSError:  # above RLIMIT_NOFILE
            continue
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)


GIVE_BACK = None  # of a zygote's children: what they do when nobody has asked for a while, until somebody does


class Look:
    """Waits for a request awake: to wake up an idle processor takes longer than many a cell.

    Only for a moment, where the last requests came as quickly, and not beside threads of the guest's. A look
    in vain, or one that was slowed down by others who want the processor, doubles the number of quick ones
    that it takes until the next; many that were not halve it. The server does the same (base/loop.h).
    """

    NEEDS_MIN, NEEDS_MAX, FORGIVES = 2, 64, 64

    def __init__(self, fd):
        self.fd = fd
        self.poll = select.poll()
        self.poll.register(fd, select.POLLIN)
        self.longest_ns = 0  # 0: never
        self.quick, self.needs, self.hits = 0, self.NEEDS_MIN, 0
        self.spent_ns = 0
        self.has_run = False  # a cell, since it last gave anything back

    def read(self, size, now=time.monotonic_ns):
        """As os.read()."""
        if not self.longest_ns:
            return self.sleep(size)
        begin = now()
        end = begin + self.longest_ns
        looks = self.quick >= self.needs and not count_threads()
        if looks:
            poll = self.poll.poll
            while not poll(0) and now() < end:
                pass
            self.spent_ns += min(now() - begin, self.longest_ns)
        held = self.sleep(size)
        # One that was slept for takes longer by the wake-ups that a look saves.
        in_time = now() <= (end if looks else end + self.longest_ns)
        self.quick = self.quick + 1 if in_time else 0
        if looks:
            self.judge(in_time)
        return held

    def sleep(self, size, own=time.process_time_ns):
        """os.read(). If that takes long it gives memory back, which the next run copies again."""
        while True:
            try:
                return os.read(self.fd, size)
            except BlockingIOError:  # a zygote's child waits for so long, and no longer
                pass
            if self.has_run and GIVE_BACK is not None:
                begin = own()
                GIVE_BACK(self.fd)
                self.spent_ns += own() - begin
                self.has_run = False
            self.poll.poll()

    def judge(self, in_time):
        self.hits += in_time
        if not in_time:
            self.needs = min(self.needs * 2, self.NEEDS_MAX)
        elif self.hits % self.FORGIVES == 0:
            self.needs = max(self.needs // 2, self.NEEDS_MIN)


class Channel:
    """Messages to and from the parent. Only the process that opened it can send.

    A kernel that the agent has started has a socket for both directions, by two descriptors. One that the server
    speaks to itself has a pipe to answer by: a guest must not be able to send descriptors.
    """

    def __init__(self, fd, out=None):
        self.fd = fd
        self.out = fd if out is None else out
        self.owner = os.getpid()
        self.held = b""  # of requests that have begun to arrive
        self.look = Look(fd)
        self.lock = threading.RLock()
        self.outgoing = []
        self.flushing = False

    def receive(self):
        """The next request; None at the end of the stream."""
        if not self.held:
            self.held = self.look.read(READ_AHEAD)
        size = int.from_bytes(self.held[:4], "little")
        if len(self.held) != 4 + size:  # a part of it, or more than one
            if not self.hold(4):
                return None
            size = int.from_bytes(self.held[:4], "little")
            if size > MAX_REQUEST or not self.hold(4 + size):
                return None
        message, self.held = self.held, self.held[4 + size :]
        text = message[4 : 4 + size].decode()
        try:
            return scan_json(text, 0)[0]
        except StopIteration:
            return json.loads(text)  # it says what is wrong

    def hold(self, size):
        """Have so many bytes; False if the stream ends before."""
        chunks, missing = [self.held], size - len(self.held)
        while missing > 0:
            self.held = self.look.sleep(min(max(missing, READ_AHEAD), 1 << 20))
            if not self.held:
                return False
            chunks.append(self.held)
            missing -= len(self.held)
        self.held = b"".join(chunks)
        return True

    def receive_whole(self):
        """receive(), but an interrupt comes before it or after it, not in the middle."""
        if not self.held:
            select.select([self.fd], [], [])
        lower_signal.pthread_sigmask(SIG_BLOCK, (SIGINT,))
        try:
            return self.receive()
        finally:
            lower_signal.pthread_sigmask(SIG_UNBLOCK, (SIGINT,))

    def request_waits(self):
        return bool(self.held or select.select([self.fd], [], [], 0)[0])

    def send(self, message, last=0):
        """False when it is too long to send. A child that the guest forked sends nothing."""
        text = message if type(message) is str else encode_message(message)
        # Half a surrogate pair is no text elsewhere: it becomes a question mark.
        body = text.encode("utf-8", "replace")
        if len(body) > MAX_REPLY:
            return False
        with self.lock:
            self.outgoing.append((len(body) | last).to_bytes(4, "little") + body)
            self.flush()
        return True

    def flush(self):
        # Not entered twice: a guest's destructor may display something while we write.
        if self.flushing:
            return
        self.flushing = True
        try:
            while self.outgoing:
                rest = self.outgoing.pop(0)
                if len(rest) > 1 << 16:  # it may take many a write
                    rest = memoryview(rest)
                while rest and os.getpid() == self.owner:
                    rest = rest[os.write(self.out, rest) :]
        finally:
            self.flushing = False


# ---- standard streams ---------------------------------------------------------------------------


class Streams:
    """sys.stdin, stdout, stderr and the descriptors below them, as each run should find them."""

    def __init__(self):
        self.stdin = self.stdout = self.stderr = None
        self.spare = []

    def connect(self, spare):
        """Whatever the guest does to 0, 1 and 2, these know where they led."""
        self.spare = spare

    def restore_descriptors(self):
        for fd, spare in enumerate(self.spare):
            try:
                os.dup2(spare, fd)
            except OSError:  # the guest has closed it
                pass

    def restore(self):
        self.restore_descriptors()
        if not usable(self.stdout, self.stderr, self.stdin):
            self.open_again()
        sys.stdin = sys.__stdin__ = self.stdin
        sys.stdout = sys.__stdout__ = self.stdout
        sys.stderr = sys.__stderr__ = self.stderr

    def open_again(self):
        if not usable(self.stdout):
            self.stdout = self.open_text(1, "<stdout>")
        if not usable(self.stderr):
            self.stderr = self.open_text(2, "<stderr>")
        if not usable(self.stdin):
            # Empty, whatever descriptor 0 is: nobody is there to type.
            self.stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO()), encoding="utf-8")

    @staticmethod
    def open_text(fd, name):
        raw = io.FileIO(fd, "w", closefd=False)
        raw.name = name
        buffer = io.BufferedWriter(raw)
        return io.TextIOWrapper(buffer, "utf-8", "backslashreplace", line_buffering=True)

    def flush_theirs(self):
        """Flush what the guest put in place of our streams: it may keep text of its own."""
        out, err = getattr(sys, "stdout", None), getattr(sys, "stderr", None)
        if out is self.stdout and err is self.stderr:
            return
        for stream in (out, err):
            try:
                stream.flush()
            except Exception:
                pass

    def flush(self):
        for stream in (self.stdout, self.stderr):
            try:
                stream.flush()
            except ValueError:  # closed
                pass
            except OSError:  # its descriptor is closed, or leads where nothing can be written
                self.restore_descriptors()
                try:
                    stream.flush()
                except (ValueError, OSError):
                    pass


def usable(*streams):
    try:
        for stream in streams:
            # Attributes set on it, such as write, are a prank or a patch that was meant for one run.
            if stream is None or stream.closed or stream.__dict__:
                return False
        return True
    except Exception:  # detached
        return False


# ---- children -----------------------------------------------------------------------------------


class Children:
    """Takes the ends of orphans, which come to us because we are the subreaper of our descendants.

    Nobody waits for those; without this they would stay as zombies and count as processes. A child
    that the guest started itself is the guest's to wait for: so the functions that start one note its
    number. One that C code has started is known to nobody; whoever waits for it does so at once, so
    no end is taken that has not been there for a while.
    """

    GRACE = 0.1  # seconds
    UNKNOWN = 16  # runs between two looks for children that nobody has noted

    def __init__(self):
        self.some = False  # there are or may be children, ended or not
        self.used_ns = 0  # processor time
        self.runs = 0  # since the last look
        self.own = set()
        self.seen = {}  # number of an ended one: since when

    def watch(self):
        """Note from now on what the guest starts."""
        guests_os = sys.modules["os"]
        for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp"):
            if hasattr(guests_os, name):
                setattr(guests_os, name, self.noting(getattr(guests_os, name)))
        guests_os.system = disguise(lambda command: self.run_shell(command), guests_os.system)
        lower = sys.modules.get("_posixsubprocess") or importlib.import_module("_posixsubprocess")
        lower.fork_exec = self.noting(lower.fork_exec)
        if "subprocess" in sys.modules:
            self.watch_subprocess(sys.modules["subprocess"])

    def watch_subprocess(self, module):
        if hasattr(module, "_fork_exec"):  # since Python 3.11 it has a name of its own for it
            module._fork_exec = sys.modules["_posixsubprocess"].fork_exec

    def noting(self, start):
        def function(*args, **kwargs):
            self.reap()
            self.some = True
            started = start(*args, **kwargs)
            number = started[0] if type(started) is tuple else started
            if number:
                self.own.add(number)
            else:  # we are the child
                self.own, self.seen = set(), {}
            return started

        return disguise(function, start)

    def run_shell(self, command):
        """os.system(), which in C ignores SIGINT while it waits."""
        command = os.fsencode(command)
        sys.audit("os.system", command)
        self.reap()
        self.some = True
        shell = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ)
        self.own.add(shell)
        try:
            return os.waitpid(shell, 0)[1]
        except ChildProcessError:  # SIGCHLD is ignored
            return -1
        except BaseException:
            os.kill(shell, signal.SIGKILL)
            os.waitpid(shell, 0)
            raise

    def after_run(self):
        self.runs += 1
        if self.some or self.runs >= self.UNKNOWN:
            self.reap()

    def cpu_ns(self, times=os.times):
        """That those have used which have been waited for."""
        if self.some:
            now = times()
            self.used_ns = int((now[2] + now[3]) * 1e9)
        return self.used_ns

    def reap(self):
        try:
            self.some, self.runs = True, 0
            self.cpu_ns()
            if not has_ended(os.P_ALL, 0):
                return
            children = set()
            for thread in os.listdir("/proc/self/task"):
                children.update(map(int, read_text(f"/proc/self/task/{thread}/children").split()))
        except ChildProcessError:
            self.some = False
            return
        except (OSError, ValueError):  # a kernel that does not list them
            return
        now = time.monotonic()
        self.own &= children
        self.seen = {number: since for number, since in self.seen.items() if number in children}
        for number in children - self.own:
            try:
                if has_ended(os.P_PID, number):
                    if now - self.seen.setdefault(number, now) >= self.GRACE:
                        os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG)
            except OSError:  # somebody was faster
                pass


def has_ended(kind, number):
    return os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def read_bytes(path):
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b""))
    finally:
        os.close(fd)


def read_text(path):
    return read_bytes(path).decode()


def disguise(function, real):
    for name in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(function, name, getattr(real, name, None))
    return function


# ---- builtins -----------------------------------------------------------------------------------
#
# The standard library, which we call, uses the guest's builtins. So these are put back when a run
# ends, and what the guest had put there is put there again when the next one begins: a patched
# print() lives on, as it should. Not so a builtin that is gone, or replaced by something that
# cannot be called.


def no_input(prompt="", /):
    """Stands in for input(): nobody could answer."""
    raise EOFError(
        "input() is not available: this code runs without a person at a keyboard. "
        "Put the value into the code instead."
    )


def leave(code=None):
    """Stands in for exit() and quit(): ends the run. State is kept."""
    raise SystemExit(code)


def display(*objects, include=None, exclude=None, metadata=None, raw=False, **_):
    """Show objects in the richest forms they have, here and now."""
    for value in objects:
        if raw:
            KERNEL.publish(dict(value), metadata)
        else:
            KERNEL.display(value, include, exclude, metadata)


def get_ipython():
    """IPython's shell. Libraries look for this among the builtins, where IPython puts it."""
    return KERNEL.get_ipython()


no_input.__name__ = no_input.__qualname__ = "input"
builtins.input = no_input
builtins.exit = builtins.quit = leave
builtins.display = display
if importlib.util.find_spec("IPython") is not None:
    builtins.get_ipython = get_ipython

PRISTINE = {}
PRISTINE_VALUES = ()
VERSION = None  # of vars(builtins), see find_version()
PRISTINE_VERSION = 0


def remember_builtins():
    global PRISTINE, PRISTINE_VALUES
    PRISTINE = dict(vars(builtins))
    PRISTINE_VALUES = tuple(PRISTINE.values())
    remember_version()


def remember_version():
    global PRISTINE_VERSION
    if VERSION is not None:
        PRISTINE_VERSION = VERSION.value


def find_version():
    """For a zygote: where CPython counts the changes of vars(builtins), if it does.

    To compare the values is to count references to them: forked children would copy the pages of all.
    """
    global VERSION
    names = vars(builtins)
    try:
        import ctypes

        # Behind the head of an object and the number of entries: PEP 509.
        version = ctypes.c_uint64.from_address(id(names) + object.__basicsize__ + 8)
        seen = [version.value, version.value]
        for value in (1, 2):
            names["__belljar__"] = value
            seen.append(version.value)
        del names["__belljar__"]
        seen.append(version.value)
        if seen[0] == seen[1] and len(set(seen)) == 4:
            VERSION = version
            remember_version()
    except ImportError:
        pass


def take_builtins():
    """Put ours back; return what the guest had in their place."""
    if VERSION is not None and VERSION.value == PRISTINE_VERSION:
        return {}
    current = vars(builtins)
    # In C, over the values alone: this is done in each run.
    if len(current) >= len(PRISTINE_VALUES) and all(
        map(operator.is_, current.values(), PRISTINE_VALUES)
    ):
        remember_version()
        return {}
    changed = {}
    for name, value in PRISTINE.items():
        theirs = current.get(name, value)
        if theirs is not value and (callable(theirs) or not callable(value)):
            changed[name] = theirs
    # In the old order, or the quick comparison would fail ever after.
    added = {name: value for name, value in current.items() if name not in PRISTINE}
    current.clear()
    current.update(PRISTINE)
    current.update(added)
    remember_version()
    return changed


remember_builtins()


# ---- imports that need a hand -------------------------------------------------------------------


class AfterImport:
    """On sys.meta_path: calls a function once a module has been imported."""

    def __init__(self, functions):
        self.functions = functions

    def find_spec(self, name, path=None, target=None):
        if name not in self.functions:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and hasattr(spec.loader, "exec_module"):
                spec.loader.exec_module = self.wrap(spec.loader.exec_module, self.functions[name])
                return spec
        return None

    @staticmethod
    def wrap(exec_module, function):
        def load(module):
            exec_module(module)
            try:
                function(module)
            except Exception as exc:  # an unknown version: then without our help
                warnings.warn(f"{module.__name__} could not be set up: {exc!r}", stacklevel=2)

        return load


def after_matplotlib(matplotlib):
    """Lend it the list of fonts that was made with the environment: to look for them takes long."""
    place = matplotlib.get_cachedir()
    made = f"{sys.prefix}/share/belljar"
    for name in os.listdir(made) if place and os.path.isdir(made) else ():
        if name.startswith("fontlist-") and not os.path.lexists(f"{place}/{name}"):
            os.symlink(f"{made}/{name}", f"{place}/{name}")


def after_pyplot(pyplot):
    pyplot.show = lambda *args, **kwargs: KERNEL.show_figures()
    pyplot.Figure.show = lambda figure, warn=True: display(figure)
    # It would be told of each cell, to redraw what nobody sees: figures are drawn when a run ends.
    pyplot.install_repl_displayhook = lambda: None
    KERNEL.set_figure_size()


def after_pylab_helpers(helpers):
    KERNEL.figures = helpers.Gcf.figs


def after_pandas(pandas):
    # "As wide as the terminal" when pandas sees no Jupyter; there is no terminal.
    if pandas.get_option("display.max_columns") == 0:
        pandas.set_option("display.max_columns", 20)


def after_plotly(plotly_io):
    def show(figure, *args, **kwargs):
        if isinstance(figure, dict):
            figure = sys.modules["plotly.graph_objects"].Figure(figure)
        display(figure)

    plotly_io.show = show


def after_kaleido(scope):
    # Its browser forks pages from a process that gives up capabilities, a call that a sandbox refuses.
    scope.PlotlyScope._scope_chromium_args += ("--no-zygote",)


def after_pillow(pillow):
    # In these, not where they are called: formatters that the guest has registered call them, too.
    for name in ("_repr_png_", "_repr_jpeg_"):
        form = getattr(pillow.Image, name, None)
        if form is not None:
            setattr(pillow.Image, name, lambda image, form=form: form(fewer_pixels(image)))


def after_pillow_show(image_show):
    class Viewer(image_show.Viewer):
        def show(self, image, **options):
            display(image)
            return True

    image_show.register(Viewer(), order=-1)


AFTER_IMPORT = AfterImport(
    {
        "IPython": lambda ipython: KERNEL.make_shell(),
        "matplotlib": after_matplotlib,
        "matplotlib.pyplot": after_pyplot,
        "matplotlib._pylab_helpers": after_pylab_helpers,
        "pandas": after_pandas,
        "plotly.io": after_plotly,
        "kaleido.scopes.plotly": after_kaleido,
        "subprocess": lambda module: KERNEL.children.watch_subprocess(module),
        "PIL.Image": after_pillow,
        "PIL.ImageShow": after_pillow_show,
    }
)


# ---- import policy ------------------------------------------------------------------------------


def is_listed(module, names):
    return any(module == name or module.startswith(name + ".") for name in names)


class Policy:
    """Which modules the guest's own code may import. An empty list of allowed ones allows all."""

    def __init__(self, said):
        self.owner = str(said.get("owner") or "this session")
        self.allowed = [str(name) for name in said.get("allowed") or ()]
        self.blocked = [str(name) for name in said.get("blocked") or ()]

    def check(self, name, parts):
        """Raise ImportError unless `import name` or `from name import parts` may be."""
        whole = [f"{name}.{part}" for part in parts if part != "*"]
        if is_listed(name, self.blocked) or any(is_listed(each, self.blocked) for each in whole):
            raise ImportError(
                f"Import '{name}' is blocked for security reasons "
                f"(blocked_modules of {self.owner})",
                name=name,
            )
        if not self.allowed or is_listed(name, self.allowed):
            return
        if not whole or not all(is_listed(each, self.allowed) for each in whole):
            raise ImportError(
                f"Import '{name}' is not in the allowed list "
                f"(allowed_modules of {self.owner}: {cut(', '.join(self.allowed), 500)})",
                name=name,
            )


class ImportGuard:
    """Refuses what the guest's own code may not import, judged by the frame that asks.

    What a library imports for itself is not looked at. This is a policy that says no in clear words,
    not a boundary: a guest who wants to can walk around it.
    """

    def __init__(self):
        self.policies = ()
        self.real = None  # __import__, import_module, importlib.__import__

    def set(self, policies):
        self.policies = tuple(policies)
        module = sys.modules["importlib"]
        if self.real is None:
            self.real = builtins.__import__, module.import_module, module.__import__
        ours = self.replacements() if self.policies else self.real
        builtins.__import__, module.import_module, module.__import__ = ours
        remember_builtins()

    def check(self, frame, name, parts=()):
        if isinstance(name, str) and is_guest_frame(frame):
            for policy in self.policies:
                policy.check(name, tuple(map(str, parts or ())))

    def replacements(self):
        real_import, real_import_module, real_importlib_import = self.real

        def __import__(name, globals=None, locals=None, fromlist=(), level=0):
            if level == 0:
                self.check(sys._getframe(1), name, fromlist)
            return real_import(name, globals, locals, fromlist, level)

        def import_module(name, package=None):
            """Import a module."""
            if isinstance(name, str) and not name.startswith("."):
                self.check(sys._getframe(1), name)
            return real_import_module(name, package)

        def importlib_import(name, globals=None, locals=None, fromlist=(), level=0):
            if level == 0:
                self.check(sys._getframe(1), name, fromlist)
            return real_importlib_import(name, globals, locals, fromlist, level)

        importlib_import.__name__ = importlib_import.__qualname__ = "__import__"
        return __import__, import_module, importlib_import


def is_guest_frame(frame):
    """Is this code of cells, of what they execute, or of files that the guest keeps in its workspace?"""
    filename = frame.f_code.co_filename
    if is_machinery(filename):
        return False
    if frame.f_globals.get("__name__", "__main__") == "__main__":
        return True
    root = KERNEL.workspace.root.rstrip("/") + "/"
    inside = filename[len(root) :] if filename.startswith(root) else None
    # Packages that were installed there are libraries.
    return inside is not None and not inside.startswith(".") and "site-packages/" not in inside


# ---- packages -----------------------------------------------------------------------------------
#
# The sandbox has no network. What a cell asks pip or uv to install, the server installs, and makes it
# visible here; every other use of pip is left to pip.

# Make no difference to what is installed there, or are how it is installed there anyway.
IDLE_PIP_OPTIONS = frozenset(
    "-q -qq -qqq --quiet -v -vv --verbose -U --upgrade --user --system --no-cache-dir --no-cache "
    "--disable-pip-version-check --no-input --break-system-packages --prefer-binary "
    "--no-warn-script-location --root-user-action=ignore --progress-bar=off --force-reinstall "
    "--only-binary=:all: --no-color".split()
)
SHELL_OPERATORS = frozenset(("&&", "||", "|", ";", "&"))
REDIRECTION = re.compile(r"(?:\d|&)?>>?(?:&\d|(?![=]).+)?\Z")
PIP_NAME = re.compile(r"pip(?:3(?:\.\d+)?)?\Z")
PYTHON_NAME = re.compile(r"python(?:3(?:\.\d+)?)?\Z")


def pip_arguments(command):
    """What follows `pip install` in a command of one installer; None for any other command."""
    import shlex

    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return None
    if any(word in SHELL_OPERATORS or word.endswith(";") for word in words):
        return None
    program = os.path.basename(words[0]) if words else ""
    if PIP_NAME.match(program):
        rest = words[1:]
    elif PYTHON_NAME.match(program) and words[1:3] == ["-m", "pip"]:
        rest = words[3:]
    elif program == "uv" and words[1:2] == ["pip"]:
        rest = words[2:]
    else:
        return None
    return rest[1:] if rest[:1] == ["install"] else None


def read_requirements(path):
    with open(path, encoding="utf-8") as file:
        lines = [re.sub(r"(?:^|\s)#.*", "", line).strip() for line in file]
    return [line for line in lines if line]


def wanted_packages(arguments):
    """The requirements. An option that we do not know is one of them, and the server refuses it."""
    names, words = [], iter(arguments)
    for word in words:
        if word in ("-r", "--requirement"):
            names += read_requirements(next(words, ""))
        elif word.startswith("--requirement="):
            names += read_requirements(word.partition("=")[2])
        elif REDIRECTION.match(word):
            if word.endswith(">"):
                next(words, None)
        elif word not in IDLE_PIP_OPTIONS:
            names.append(word)
    return names


# ---- figures ------------------------------------------------------------------------------------

IMAGE_MIME = {"png": "image/png", "svg": "image/svg+xml", "jpeg": "image/jpeg", "jpg": "image/jpeg"}


def open_figures():
    """pyplot's figures, oldest first. Nothing is imported for this."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]


def is_figure(value):
    module = sys.modules.get("matplotlib.figure")
    return module is not None and isinstance(value, module.Figure)


def shrink(width, height):
    """What to multiply both sides by, so that an image of these pixels can be made in a sandbox's memory."""
    run = KERNEL.run
    excess = width * height / max(1, run.options["max_pixels"])
    if excess <= 1:
        return 1
    run.noted[f"an image of {width:.0f} × {height:.0f} pixels is shown with fewer (max_pixels)"] = 0
    return excess**-0.5


def fewer_pixels(image):
    """A Pillow image, or one that stands for it."""
    scale = shrink(*image.size)
    if scale == 1:
        return image
    # Single pixels of it: other ways make a copy of the whole first.
    return image.resize([max(1, int(side * scale)) for side in image.size], resample=0)


def draw_figure(figure, options, kind):
    """Its bytes, of no more pixels than a sandbox's memory can hold."""
    dpi = (options["figure_dpi"] or figure.dpi) * options["figure_scale"]
    if kind != "svg":
        dpi *= shrink(*(float(side) * dpi for side in figure.get_size_inches()))
    tight_box = figure.get_tightbbox

    def bounded_box(*args, **kwargs):
        """What sticks out of a figure may be far away: then its margins stay, and that is cut off."""
        box = tight_box(*args, **kwargs)
        if box is None or box.width * box.height * dpi**2 <= 2 * options["max_pixels"]:
            return box
        KERNEL.run.noted["what sticks out of a figure too far is not shown (max_pixels)"] = 0
        return figure.bbox_inches

    figure.get_tightbbox = bounded_box
    try:
        return draw_small(figure, options, kind, dpi)
    finally:
        del figure.get_tightbbox


def draw_small(figure, options, kind, dpi):
    """Its bytes, few enough if that can be had."""
    for _ in range(4):
        buffer = io.BytesIO()
        figure.canvas.print_figure(
            buffer,
            format=kind,
            dpi=dpi,
            facecolor=figure.get_facecolor(),
            edgecolor=figure.get_edgecolor(),
            bbox_inches="tight" if options["figure_tight"] else None,
        )
        excess = buffer.tell() / max(1, options["max_image_bytes"])
        if excess <= 1 or kind == "svg":
            break
        dpi *= 0.9 / excess**0.5  # bytes grow with the square
    return buffer.getvalue()


def render_figure(figure, options):
    """{mime: bytes} of a figure, {} for an empty one. The first form tells figures apart."""
    if not figure.axes and not figure.lines:
        return {}
    options = KERNEL.figure_options(options)
    wanted = options["figure_format"]
    # Who cannot show SVG gets a picture, too. And no two drawings of a figure as SVG are the same.
    kinds = ("png", "svg") if wanted == "svg" else (wanted if wanted in IMAGE_MIME else "png",)
    return {IMAGE_MIME[kind]: draw_figure(figure, options, kind) for kind in kinds}


def is_plotly(value):
    module = sys.modules.get("plotly.basedatatypes")
    return module is not None and isinstance(value, module.BaseFigure)


class PlotlyExporter:
    """PNG of plotly figures by kaleido, a browser in a child process, which may be missing or hang."""

    broken = False

    @classmethod
    def png(cls, figure, timeout):
        if cls.broken or importlib.util.find_spec("kaleido") is None:
            return None
        result = []

        def export():
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result.append(figure.to_image(format="png"))
            except Exception:
                cls.broken = True  # it would fail again, slowly

        worker = threading.Thread(target=export, daemon=True)
        worker.start()
        worker.join(timeout)
        cls.broken = cls.broken or worker.is_alive()
        return result[0] if result else None


def plotly_bundle(figure, options):
    data = {
        "application/vnd.plotly.v1+json": figure.to_json(),
        "text/html": figure.to_html(include_plotlyjs="cdn", full_html=False),
        "text/plain": f"{type(figure).__name__} of plotly with {len(figure.data)} trace(s)",
    }
    png = PlotlyExporter.png(figure, options["static_timeout"])
    if png is not None:
        data["image/png"] = png
    return data, {}


# ---- values as MIME bundles ---------------------------------------------------------------------

REPR_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("text/latex", "_repr_latex_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("application/json", "_repr_json_"),
    ("application/javascript", "_repr_javascript_"),
)
# Nothing to look for in these, and repr() says what IPython would.
SCALARS = frozenset((int, float, bool, str, bytes, complex, type(None)))
PLAIN_TYPES = SCALARS | {list, tuple, dict, set, frozenset, range, types.FunctionType, type}
BUNDLES_AS_JSON = ("application/json", "+json")
# Those that tell a reader most come first.
READABLE = ("text/markdown", "text/latex", "application/json", "image/svg+xml", "text/html")
# What objects that care for other forms only say of themselves.
MERE_NAME = re.compile(r"<[\w.<>]+( object)?( at 0x[0-9a-f]+)?>")
IMAGE_MAGIC = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def is_simple(value):
    """A short list, tuple or dictionary of scalars: IPython's printer would do nothing for it."""
    if len(value) > 40:
        return False
    members = itertools.chain(value, value.values()) if type(value) is dict else value
    return all(type(member) in SCALARS for member in members)


def plain_text(value):
    kind = type(value)
    if kind in SCALARS:
        return repr(value)
    if (kind is list or kind is tuple or kind is dict) and is_simple(value):
        text = repr(value)
        if len(text) < 79:
            return text
    printer = KERNEL.pretty_printer()
    return printer(value) if printer else repr(value)


def own_method(value, name):
    """A method for display that the object really has: proxies and mocks claim to have all."""
    try:
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def mime_bundle(value, options, include=None, exclude=None):
    """(data, metadata) of a value. A broken __repr__ raises; other broken forms are left out."""
    if type(value) in PLAIN_TYPES:
        return {"text/plain": plain_text(value)}, {}
    if is_plotly(value):
        return plotly_bundle(value, options)

    data, metadata = {}, {}
    if is_figure(value):
        data = render_figure(value, options)
        if data:
            KERNEL.run.shown_figures[id(value)] = next(iter(data.values()))
    elif not isinstance(value, type) and not own_method(value, "_no_object_has_this_method_"):
        method = own_method(value, "_ipython_display_")
        if method:
            method()
            return {}, {}
        method = own_method(value, "_repr_mimebundle_")
        if method:
            add_form(data, metadata, None, lambda: method(include=include, exclude=exclude))
        for mime, name in REPR_METHODS:
            if mime not in data and not (mime == "image/jpeg" and "image/png" in data):
                method = own_method(value, name)
                if method:
                    add_form(data, metadata, mime, method)
    if "text/plain" not in data:
        data["text/plain"] = plain_text(value)
    for mime in list(data):
        if (include and mime not in include) or (exclude and mime in exclude):
            del data[mime]
    return data, metadata


def add_form(data, metadata, mime, method):
    """Add what a _repr_…_() method gives: data, or data and metadata, or nothing."""
    try:
        form = method()
        more = None
        if isinstance(form, tuple) and len(form) == 2:
            form, more = form
        if form is None:
            return
        forms = dict(form) if mime is None else {mime: form}
    except Exception as exc:
        text = "".join(traceback.format_exception_only(type(exc), exc)).strip()
        print(f"{getattr(method, '__qualname__', mime)} failed: {text}", file=sys.stderr)
        return
    data.update(forms)
    if more:
        metadata.update(more if mime is None else {mime: more})


def as_text(mime, value):
    """A bundle's entry as the string that is sent."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        if mime.startswith("text/") or mime == "image/svg+xml":
            return bytes(value).decode("utf-8", "replace")
        return binascii.b2a_base64(value, newline=False).decode("ascii")
    if mime.endswith(BUNDLES_AS_JSON) and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False, default=str)
    text = str(value)
    return "".join(text.split()) if mime in IMAGE_MAGIC else text


def is_image(mime, base64):
    try:
        return binascii.a2b_base64(base64[:12]).startswith(IMAGE_MAGIC.get(mime, b""))
    except ValueError:
        return False


def readable(data, options):
    """The text of a fitting bundle for a reader; None: there is none."""
    plain = data.get("text/plain")
    if plain is not None and (len(data) == 1 or not MERE_NAME.fullmatch(plain)):
        return plain
    sources = (data[mime] for mime in READABLE if mime in data)
    return next((text.strip("\n") for text in sources if len(text) <= options["max_source"]), plain)


def clean(text, options):
    """Without escape codes, unless they are wanted, and without NUL, which is the end of a text elsewhere."""
    if options["strip"] and "\x1b" in text:
        text = ANSI.sub("", text)
    return text.replace("\0", "\ufffd")


def cut(text, limit):
    """The head and the tail, when it is too long."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    tail = limit - head
    left_out = f"\n… {len(text) - limit:,} characters left out …\n"
    return text[:head] + left_out + (text[-tail:] if tail else "")


class Run:
    """One run's options, and what it has shown so far."""

    __slots__ = ("displays", "id", "images", "noted", "options", "shown_figures")

    def __init__(self, number=0, options=OPTIONS):
        self.id = number
        self.options = options
        self.displays = 0
        self.images = 0
        self.noted = {}  # what: how many, or 0 where that is not of interest
        self.shown_figures = {}  # id of a figure: its image, as displayed by the guest

    def leave_out(self, what):
        what += ": not sent"
        self.noted[what] = self.noted.get(what, 0) + 1

    def fit(self, data):
        """A bundle as it is sent, within the limits of this run."""
        fitting = {}
        for mime, value in data.items():
            if value is None:
                continue
            mime = str(mime)
            text = as_text(mime, value)
            if mime == "text/plain":
                text = cut(clean(text, self.options), self.options["max_repr"])
            elif mime.startswith("image/") and mime != "image/svg+xml":
                if not is_image(mime, text):
                    self.leave_out(f"{mime} that is none")
                    continue
                if self.images >= self.options["max_images"]:
                    self.leave_out("images beyond max_images")
                    continue
                if len(text) > self.options["max_image_bytes"] * 4 // 3 + 4:
                    self.leave_out("images larger than max_image_bytes")
                    continue
                self.images += 1
            elif len(text) > self.options["max_data_bytes"]:
                self.leave_out(f"{mime} larger than max_data_bytes")
                continue
            fitting[mime] = text
        return fitting

    def notes(self):
        return [f"{count} × {what}" if count else what for what, count in self.noted.items()]


# ---- exceptions ---------------------------------------------------------------------------------


def safe_text(function, *args):
    try:
        return str(function(*args))
    except BaseException as exc:
        return f"<{type(exc).__name__} in the exception's own text>"


class CutStack(traceback.StackSummary):
    """A stack with its middle left out."""

    def format(self, **kwargs):
        half = len(self) // 2
        yield from traceback.StackSummary.from_list(self[:half]).format(**kwargs)
        yield f"  … {self.left_out} frames left out …\n"
        yield from traceback.StackSummary.from_list(self[half:]).format(**kwargs)


def is_machinery(filename):
    return filename == KERNEL_FILE or "/IPython/core/" in filename or "/IPython/utils/" in filename


def guest_frames(stack, max_frames):
    """What a traceback shows: from the cell on, without the frames that run cells."""
    start = 0
    for index, frame in enumerate(stack):
        if frame.filename.startswith("<cell "):
            start = index
            break
    frames = [frame for frame in stack[start:] if not is_machinery(frame.filename)]
    if len(frames) <= max_frames:
        return traceback.StackSummary.from_list(frames)
    half = max(1, max_frames // 2)
    short = CutStack(frames[:half] + frames[-half:])
    short.left_out = len(frames) - 2 * half
    return short


def guest_trace(exc):
    """The traceback from the cell on, without the frames that run it."""
    trace = BaseException.__traceback__.__get__(exc)  # an exception may lie about its own
    while trace is not None and trace.tb_frame.f_code.co_filename == KERNEL_FILE:
        trace = trace.tb_next
    cell = trace
    while cell is not None and not cell.tb_frame.f_code.co_filename.startswith("<cell "):
        cell = cell.tb_next
    return cell or trace


def summarise(exc, trace, max_frames):
    """The text of a traceback, as the interpreter prints it."""
    if issubclass(type(exc), SyntaxError) and not exc.text and exc.filename and exc.lineno:
        exc.text = linecache.getline(exc.filename, exc.lineno) or None  # compiled from a tree
    summary = traceback.TracebackException(type(exc), exc, trace)
    linked, seen = [summary], set()
    while linked:
        one = linked.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.stack = guest_frames(one.stack, max_frames)
        linked += [one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ())]
    return "".join(summary.format())


def summarise_frames(trace, max_frames):
    lines = guest_frames(traceback.extract_tb(trace), max_frames).format()
    return "".join(["Traceback (most recent call last):\n", *lines])


LAST_NAMES = ("last_type", "last_value", "last_traceback", "last_exc")


def keep_failure(exc):
    """For %tb, %debug and pdb.pm(). It refers to no frame of ours, and so not to what those hold."""
    trace = guest_trace(exc)
    BaseException.with_traceback(exc, trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(exc), exc, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = exc


def forget_failure():
    for name in LAST_NAMES:
        vars(sys).pop(name, None)


def format_traceback(exc, options):
    """The lines of a traceback, bounded."""
    trace, max_frames = guest_trace(exc), options["max_frames"]
    try:
        text = summarise(exc, trace, max_frames)
    except BaseException:  # an exception that lies about itself
        frames = safe_text(summarise_frames, trace, max_frames)
        text = f"{frames}{safe_text(lambda: type(exc).__name__)}: {safe_text(str, exc)}"
    return cut(clean(text, options), options["max_traceback"]).splitlines()


# ---- files --------------------------------------------------------------------------------------

CLOCK_REALTIME_COARSE = 5  # of linux/time.h; the time module does not name it
IGNORED_DIRECTORIES = frozenset(("__pycache__", "node_modules", "site-packages"))
MIME_OF_SUFFIX = {  # beyond what the mimetypes module knows everywhere
    "ipynb": "application/x-ipynb+json",
    "md": "text/markdown",
    "parquet": "application/vnd.apache.parquet",
    "svg": "image/svg+xml",
    "webp": "image/webp",
    "yaml": "application/yaml",
    "yml": "application/yaml",
}


def mime_of(path):
    import mimetypes

    suffix = path.rpartition(".")[2].lower()
    return MIME_OF_SUFFIX.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"


SMALL_WORKSPACE = 200  # entries
TICK = 20_000_000  # nanoseconds: more than the clock of a file system lags behind


EMPTY_SIZE = None  # of a directory with nothing in it, where its size tells that (zygote.py)


class Workspace:
    """Says which files below a directory a run created or changed.

    By a walk after the run, of so many entries at most, breadth first. A file counts when its
    change time (which no call can set back) is not before the run's start and its size, contents
    time or inode is not what it was. While the workspace is small it is walked before the run too,
    so that files which came between two runs are known. While it stays empty one look at it is enough.
    """

    def __init__(self, root):
        self.root = root
        self.known = {}  # path: what it was like
        self.entries = 0
        self.changed = None  # when something last came or went
        self.empty = None  # the same, if that says that nothing has come since
        self.size = 0  # of the directory, when it was last looked at

    def begin(self, max_entries):
        if self.entries <= SMALL_WORKSPACE and not self.is_still_empty():
            self.walk(max_entries)
        # The clock of the file system, which lags behind the precise one.
        self.start = time.clock_gettime_ns(CLOCK_REALTIME_COARSE)

    def end(self, max_entries, max_files):
        """(files, whether all were looked at, how many are not in the list)"""
        if self.is_still_empty():
            return [], True, 0
        known = self.known
        seen, complete = self.walk(max_entries)
        changed = [
            (path, status.st_size, "changed" if path in known else "created")
            for path, status in seen
            if status.st_ctime_ns >= self.start and known.get(path) != self.known[path]
        ]
        files = [
            {"path": path, "size": size, "mime": mime_of(path), "change": change}
            for path, size, change in sorted(changed)[:max_files]
        ]
        return files, complete, len(changed) - len(files)

    def walk(self, max_entries):
        changed = self.changed
        # Another change could bear the same time, for a while.
        if changed and changed >= time.clock_gettime_ns(CLOCK_REALTIME_COARSE) - TICK:
            changed = None
        if self.entries == 0 and (self.size == EMPTY_SIZE or self.is_empty()):
            self.known, self.empty = {}, changed
            return [], True
        self.entries = 0
        seen, directories = [], collections.deque([""])
        while directories:
            prefix = directories.popleft()
            try:
                with os.scandir(f"{self.root}/{prefix}") as entries:
                    for entry in entries:
                        self.entries += 1
                        if self.entries > max_entries:
                            directories.clear()
                            break
                        self.note(entry, prefix, seen, directories)
            except OSError:  # gone, or not ours to read
                continue
        self.known = {
            path: (status.st_mtime_ns, status.st_size, status.st_ino) for path, status in seen
        }
        self.empty = changed if self.entries == 0 else None
        return seen, self.entries <= max_entries

    def is_empty(self):
        try:
            entries = os.scandir(self.root)
        except OSError:
            return False
        try:
            return next(entries, None) is None
        finally:
            entries.close()

    def is_still_empty(self):
        """Has nothing come since it was seen to be? A look that comes before each walk, and in each run."""
        try:
            status = os.stat(self.root)
            self.changed, self.size = status.st_ctime_ns, status.st_size
        except OSError:
            self.changed, self.size = None, 0
        return self.changed == self.empty and self.empty is not None

    @staticmethod
    def note(entry, prefix, seen, directories):
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in IGNORED_DIRECTORIES and not entry.name.startswith("."):
                directories.append(f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            seen.append((prefix + entry.name, entry.stat(follow_symlinks=False)))


def touch_mapped(root):
    """Tell whoever looks at times that files may have changed through a mapping.

    In a file system in memory only the first write to a page changes the file's time, so numpy.memmap
    and its like can be written to unnoticed for as long as they are open.
    """
    names = set()
    for line in read_bytes("/proc/self/maps").splitlines():
        fields = line.split(None, 5)  # addresses, rwxs, offset, device, inode, name
        shared = len(fields) == 6 and fields[1][1:2] == b"w" and fields[1][3:4] == b"s"
        if shared and fields[5].startswith(root.encode() + b"/"):
            names.add(fields[5].replace(b"\\012", b"\n"))
    for name in names:
        try:
            os.utime(name)
        except OSError:  # it has lost its name
            pass


# ---- cells --------------------------------------------------------------------------------------

# What IPython may be able to read although Python cannot.
MAYBE_IPYTHON = re.compile(r"[%!?]|^\s*(?:>>>|In \[)|\A[/,; \t]", re.MULTILINE)
SURELY_IPYTHON = re.compile(r"^\s*(?:[%!?]|\w[\w, .]*=\s*[%!])|\?\s*$", re.MULTILINE)
# Commands that IPython takes without a percent sign, when nothing of that name is defined.
AUTOMAGIC = re.compile(
    r"\s*(cat|cd|cp|env|history|less|ll|ls|man|mkdir|more|mv|pip|pwd|rm|rmdir|run|time|timeit|who"
    r"|who_ls|whos)(?:\s+[^\s=(,.\[].*)?\Z"
)

# Most likely one call: then there is no need to look at its tree.
is_one_call = re.compile(r"[A-Za-z_][\w.]*\([^\n;]*\)\s*\Z").match

AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURE = 0
for _feature in __import__("__future__").all_feature_names:
    FUTURE |= getattr(__import__("__future__"), _feature).compiler_flag
CO_COROUTINE = 0x80

# What needs a loop that runs, as cells of a notebook have one; and what can only do without.
is_loopless = frozenset(("create_task", "get_running_loop")).isdisjoint
runs_none = frozenset(("run", "run_until_complete", "run_forever", "Runner")).isdisjoint


def is_plain(code):
    """Does it run without an event loop?"""
    return not code.co_flags & CO_COROUTINE and is_loopless(code.co_names)


def is_silenced(source, last):
    """Does a semicolon follow the last expression?"""
    if ";" not in source:
        return False
    line = source.splitlines()[last.end_lineno - 1].encode("utf-8", "surrogatepass")
    return line[last.end_col_offset :].lstrip().startswith(b";")


def done_message(number, count, **more):
    """Of a cell that ended well and gave nothing, but for what is said here."""
    return {
        "op": "done",
        "id": number,
        "status": "ok",
        "result": None,
        "error": None,
        "traceback": [],
        "exit_code": 0,
        "count": count,
        "files": [],
        "files_counted": True,
        "notes": [],
        **more,
    }


# Most are like this, and made in one step.
QUIET_DONE = '{"op": "done", "id": %d, "status": "ok", "count": %d, "cpu_ns": %d}'


def quote(source, name):
    """Tracebacks and warnings quote source through linecache; a cell has no file to read it from."""
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)


class Kernel:
    """The guest's namespace and all that belongs to it."""

    def __init__(self):
        self.channel = None
        self.streams = Streams()
        self.interrupts = Interrupts()
        self.children = Children()
        self.workspace = Workspace("/workspace")
        self.module = types.ModuleType("__main__")
        self.namespace = vars(self.module)
        self.inputs, self.outputs = [""], {}
        self.shell = None
        self.shell_state = "unknown"  # made, missing, unknown
        self.loop = None
        self.import_guard = ImportGuard()
        self.guest_builtins = {}
        self.modules = {}
        self.run = Run()
        self.wishes, self.options = None, OPTIONS  # the last request's, and what they come to
        self.in_order = False  # no guest code has run since put_in_order()
        self.running = False
        self.listeners = []  # lists of what IPython's extensions want to be told of cells
        self.shell_source = None  # of a cell that they could hear of,
        self.shell_result = None  # and if they did: what they were given
        self.inline, self.inline_values = None, {}  # %config InlineBackend, and what it says
        self.figure_size = None  # as last wished
        self.figures = {}  # pyplot's own, once there is a pyplot
        self.customised = False
        self.print_pretty = None
        self.reset()

    def reset(self):
        """An empty namespace, as a new kernel has it."""
        self.count = 1
        self.flags = 0
        forget_failure()
        self.unders = self.unders_set = ("", "", "")  # the last results; those in the namespace
        self.inputs[:] = [""]
        self.outputs.clear()
        self.namespace.clear()
        self.namespace.update(
            __name__="__main__",
            __doc__=None,
            __package__=None,
            __loader__=None,
            __spec__=None,
            __builtins__=builtins,
            In=self.inputs,
            _ih=self.inputs,
            Out=self.outputs,
            _oh=self.outputs,
            _dh=[os.getcwd()],
        )
        for name in ("_", "__", "___", "_i", "_ii", "_iii"):
            self.namespace[name] = ""
        if self.shell is not None:
            self.namespace["get_ipython"] = self.shell.get_ipython
        elif importlib.util.find_spec("IPython") is not None:
            self.namespace["get_ipython"] = self.get_ipython
        self.hidden = dict(self.namespace)
        if self.shell is not None:
            self.shell.user_ns_hidden.update(self.hidden)  # what %who leaves out

    # -- a run --

    def execute(self, request):
        """Handle "execute". Whatever the cell does is a reply; nothing escapes."""
        wishes = request.get("options")
        if wishes is not None and wishes != self.wishes:
            known = {name: wishes[name] for name in wishes if name in OPTIONS}
            self.wishes, self.options = wishes, {**OPTIONS, **known}
            if self.channel is not None:
                self.channel.look.longest_ns = self.options["look_us"] * 1000
        self.run = run = Run(request.get("id"), self.options)
        count = self.count
        paths, state = request.get("paths"), request.get("state")
        if paths:
            self.use_paths(paths)
        self.begin_run(run)
        refused = self.set_state(state) if state else ()
        status, error, lines, exit_code, result = "ok", None, [], 0, None
        failed = None
        try:
            result = call_guest(self.run_cell, request["code"], run)
        except BaseException as exc:
            failed = exc
        if self.is_child():
            self.leave_child(failed)
        try:
            call_guest(self.finish_run)
        except BaseException as exc:
            failed = failed or exc

        self.end_run()
        if failed is not None:
            status, exit_code = self.judge(failed)
            if status != "exit":
                value = clean(safe_text(str, failed), run.options)
                error = {
                    "name": clean(safe_text(lambda: type(failed).__name__), run.options),
                    "value": cut(value, run.options["max_traceback"]),
                }
                lines = format_traceback(failed, run.options)
            keep_failure(failed)
            failed = None
        self.running = False
        if request.get("forget"):
            linecache.clearcache()
            self.reset()

        notes = run.notes() if run.noted else []
        if refused:
            names = ", ".join(cut(repr(name), 100) for name in refused[:20])
            notes.append(f"state: no names for variables, left out: {names}")
        files, counted = [], True
        if run.options["files"]:
            files, counted, more = self.workspace.end(
                run.options["max_entries"], run.options["max_files"]
            )
            if more:
                notes.append(f"{more} more files were created or changed")
            if not counted:
                notes.append(
                    f"the workspace holds more than {run.options['max_entries']} entries: "
                    "files beyond them were not counted"
                )
        if run.options["mapped"] and "mmap" in sys.modules:
            touch_mapped(self.workspace.root)
        told = {}
        if result is not None and len(result) > 1:
            shown = readable(result, run.options)
            if shown != result.get("text/plain"):
                told["shown"] = shown
        if request.get("want_state"):
            told["state"], told["state_skipped"] = self.get_state(run.options["max_state"])
        if status == "ok" and result is None and counted and not (files or notes or told):
            if type(run.id) is int:
                return QUIET_DONE % (run.id, count, self.cpu_ns())
        return done_message(
            run.id,
            count,
            status=status,
            result=result,
            error=error,
            traceback=lines,
            exit_code=exit_code,
            files=files,
            files_counted=counted,
            notes=notes,
            **told,
        )

    def cpu_ns(self, own=time.process_time_ns):
        """Used by this process, looks for requests left out, and by the children that it has waited for."""
        looked = self.channel.look.spent_ns if self.channel is not None else 0
        return own() - looked + self.children.cpu_ns()

    def put_in_order(self):
        """Mend what the last run may have left in disorder: when it has been answered, and nobody waits."""
        self.children.after_run()
        self.streams.restore()
        self.interrupts.listen()
        self.restore_modules()
        self.namespace["__builtins__"] = builtins
        # A warning is shown once in a run, not once in a session.
        forget_warnings()
        self.namespace.pop("__warningregistry__", None)
        self.in_order = True

    def begin_run(self, run):
        if not self.in_order:
            self.put_in_order()
        self.in_order = False
        if self.children.some:
            self.children.reap()
        self.interrupts.raised = False
        options = run.options
        if options["files"]:
            self.workspace.begin(options["max_entries"])
        if options["figure_size"] and "matplotlib.pyplot" in sys.modules:
            self.set_figure_size()
        self.running = True
        if self.guest_builtins:
            vars(builtins).update(self.guest_builtins)

    def set_figure_size(self):
        """Once for each wish: what the guest says later about its own figures counts."""
        size = self.run.options["figure_size"]
        if size and size != self.figure_size:
            self.figure_size = size
            sys.modules["matplotlib"].rcParams["figure.figsize"] = [float(side) for side in size]

    def finish_run(self):
        """The last that may run guest code: figures, and streams that the guest made."""
        if self.figures:
            self.show_figures()
        source, self.shell_source = self.shell_source, None
        if source is not None and any(self.listeners):
            self.shell_result = self.shell_result or self.make_result(source)
            self.shell.events.trigger("post_execute")
            self.shell.events.trigger("post_run_cell", self.shell_result)
        self.shell_result = None
        self.streams.flush_theirs()

    def end_run(self):
        self.guest_builtins = take_builtins()
        # A tracer would trace us too; and we need some room on the stack.
        sys.settrace(None)
        sys.setprofile(None)
        if sys.getrecursionlimit() < 1000:
            sys.setrecursionlimit(1000)
        self.streams.flush()
        if len(sys.modules) != len(self.modules):
            self.keep_modules()

    def keep_modules(self):
        if "sys" in sys.modules and "builtins" in sys.modules:
            self.modules = dict(sys.modules)

    def restore_modules(self):
        """After sys.modules.clear() the session would be lost: most modules load only once."""
        modules = sys.modules
        if "sys" not in modules or "builtins" not in modules:
            for name, module in self.modules.items():
                modules.setdefault(name, module)
        modules["__main__"] = self.module

    def judge(self, exc):
        """(status, exit code) of a run that raised."""
        # By its type: what it says about itself may be a lie, or raise.
        if issubclass(type(exc), SystemExit):
            code = SystemExit.code.__get__(exc)
            if code is None or issubclass(type(code), int):
                return "exit", 0 if code is None else int.__and__(code, 0xFF)
            print(safe_text(str, code), file=self.streams.stderr, flush=True)
            return "exit", 1
        if issubclass(type(exc), KeyboardInterrupt) and self.interrupts.raised:
            return "interrupted", 130
        return "error", 1

    def is_child(self):
        """Is this a process that the guest has forked?"""
        return self.channel is not None and os.getpid() != self.channel.owner

    def leave_child(self, exc):
        """The guest forked, and this is the child at the end of the cell: it ends as a script would."""
        code = 0
        if exc is not None:
            status, code = self.judge(exc)
            if status != "exit":
                lines = format_traceback(exc, self.run.options)
                print("\n".join(lines), file=self.streams.stderr)
        self.streams.flush()
        os._exit(code)

    # -- code --

    def run_cell(self, source, run):
        """Run a cell; the bundle of its last expression, if it has one that says something."""
        if not source or source.isspace():
            return None
        if self.interrupts.pending:
            self.interrupts.check()
        name, number = "<cell %d>" % self.count, self.count  # of fewer parts than an f-string
        quote(source, name)
        code = None
        try:
            last = self.compile_call(source, name)
            if last is None:
                source, tree = self.parse(source, name)
        finally:
            self.store_input(source)
            self.count += 1
        if last is None:
            code, last = self.compile_tree(source, tree, name)
        if code is None and last is not None and is_plain(last):
            value = eval(last, self.namespace)
        else:
            value = self.run_codes([part for part in (code, last) if part is not None])
        if last is None or value is None:
            return None
        try:
            data, _ = self.bundle(value)
            if run.options["plain"] == "str":
                data = {**data, "text/plain": str(value)}
        finally:  # a broken __repr__ fails the cell, but `_` is there to look at
            self.store_output(number, value)
        return run.fit(data) or None

    def compile_call(self, source, name):
        """The code of a cell that is one call on one line; None if it is not, or IPython has a say."""
        if not is_one_call(source) or any(self.listeners):
            return None
        try:
            code = compile(source, name, "eval", self.flags | AWAIT, True)
        except SyntaxError:
            return None
        self.shell_source = source if self.listeners else None
        return code

    def compile_tree(self, source, tree, name):
        """(code, code of the last expression), either of which may be None."""
        if self.shell is not None:
            tree = self.tell_shell(source, tree)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            if not is_silenced(source, tree.body[-1]):
                last = ast.Expression(tree.body.pop().value)
        # Both are compiled before one runs: a cell with an error of syntax does nothing.
        code = compile(tree, name, "exec", self.flags | AWAIT, True) if tree.body else None
        if code is not None:
            self.flags |= code.co_flags & FUTURE
        if last is not None:
            last = compile(last, name, "eval", self.flags | AWAIT, True)
        return code, last

    def run_codes(self, codes):
        """The value of the last one. With one that awaits or makes tasks, all run in the event loop."""
        if not all(map(is_plain, codes)):
            if any(code.co_flags & CO_COROUTINE for code in codes):
                return self.run_coroutine(self.await_codes(codes))
            if self.makes_tasks({name for code in codes for name in code.co_names}):
                return self.run_coroutine(self.begin_tasks(codes))
        value = None
        for code in codes:
            value = eval(code, self.namespace)
        return value

    async def await_codes(self, codes):
        value = None
        for code in codes:
            value = eval(code, self.namespace)
            if code.co_flags & CO_COROUTINE:
                value = await value
        return value

    def makes_tasks(self, names):
        """By the names in a cell that is not plain. Not all cells: asyncio.run() would not work any more."""
        theirs = names.isdisjoint(("asyncio", "get_running_loop"))  # an API's own kind of task?
        return runs_none(names) and (not theirs or "create_task" in self.namespace)

    async def begin_tasks(self, codes):
        import asyncio

        value = await self.await_codes(codes)
        await asyncio.sleep(0)  # up to where each waits for the first time
        return value

    def run_coroutine(self, coroutine):
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        try:
            return self.loop.run_until_complete(task)
        finally:
            if not task.done():  # interrupted: it must not go on in the next cell
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except asyncio.CancelledError:
                    pass

    def parse(self, source, name):
        """(source, tree), by IPython's rules where Python's own do not fit."""
        if self.is_automagic(source):
            return self.parse_with_shell(source, name)
        try:
            return source, self.parse_python(source, name)
        except SyntaxError as exc:
            if not MAYBE_IPYTHON.search(source):
                raise
            if self.get_ipython() is not None:
                return self.parse_with_shell(source, name)
            if SURELY_IPYTHON.search(source):
                raise SyntaxError(
                    "this cell uses a %magic, !command or ?help, and IPython, which provides "
                    "them, is not installed for this Python",
                    (name, exc.lineno, exc.offset, exc.text),
                ) from None
            import textwrap

            return source, self.parse_python(textwrap.dedent(source), name)

    def parse_python(self, source, name):
        return compile(source, name, "exec", self.flags | AWAIT | ast.PyCF_ONLY_AST, True)

    def parse_with_shell(self, source, name):
        source = self.get_ipython().transform_cell(source)
        quote(source, name)
        return source, self.parse_python(source, name)

    def is_automagic(self, source):
        match = AUTOMAGIC.match(source)
        if match is None or match[1] in self.namespace or match[1] in vars(builtins):
            return False
        return self.get_ipython() is not None

    def store_input(self, source):
        namespace = self.namespace
        namespace["_iii"] = namespace.get("_ii", "")
        namespace["_ii"] = namespace.get("_i", "")
        namespace["_i"] = self.inputs[-1] if self.inputs else ""
        namespace[f"_i{self.count}"] = source
        self.inputs.append(source)

    def store_output(self, number, value):
        """Set Out, _, __, ___ and _N; leave alone what the guest calls _ itself."""
        namespace, unders = self.namespace, self.unders
        if value is self.outputs:
            return
        ours = self.unders_set
        free = (
            "_" not in vars(builtins)
            and namespace.get("_", ours[0]) is ours[0]
            and namespace.get("__", ours[1]) is ours[1]
            and namespace.get("___", ours[2]) is ours[2]
        )
        self.unders = unders = (value, unders[0], unders[1])
        if free:
            namespace["_"], namespace["__"], namespace["___"] = self.unders_set = unders
        namespace[f"_{number}"] = self.outputs[number] = value
        if len(self.outputs) > 1000:
            oldest = next(iter(self.outputs))
            del self.outputs[oldest]
            namespace.pop(f"_{oldest}", None)

    # -- display --

    def bundle(self, value, include=None, exclude=None):
        """(data, metadata), by IPython's formatters if the guest has registered some there."""
        if self.customised:
            formatter = self.shell.display_formatter
            return super(type(formatter), formatter).format(value, include, exclude)
        return mime_bundle(value, self.run.options, include, exclude)

    def display(self, value, include=None, exclude=None, metadata=None):
        data, more = self.bundle(value, include, exclude)
        if data:
            self.publish(data, {**more, **(metadata or {})})

    def publish(self, data, metadata=None):
        run = self.run
        self.streams.flush_theirs()
        self.streams.flush()  # what was printed before must be seen before
        if not self.running:  # a thread that outlived its run: as text, where its prints go
            print(cut(as_text("text/plain", data.get("text/plain", "")), run.options["max_repr"]))
            return
        run.displays += 1
        if run.displays > run.options["max_displays"]:
            run.leave_out("displays beyond max_displays")
            return
        fitting = run.fit(data)
        if fitting and self.channel is not None:
            self.print_display(fitting)
            metadata = json.loads(json.dumps(metadata or {}, default=str))
            message = {"op": "display", "id": run.id, "data": fitting, "metadata": metadata}
            if not self.channel.send(message):
                run.leave_out("displays too large to send")
        self.interrupts.check()

    def print_display(self, data):
        """Put a text where it belongs among what is printed: only here is that order known."""
        if any(mime in data for mime in IMAGE_MAGIC):
            return
        text = readable(data, self.run.options)
        if text is not None and self.run.options["print_displays"]:
            try:
                print(text, file=self.streams.stdout, flush=True)
            except Exception:  # the guest has closed or patched it
                pass

    def figure_options(self, options):
        """With what %config InlineBackend has said so far."""
        inline = self.inline_values
        if inline and (inline.get("figure_format") or inline.get("figure_formats")):
            return self.inline.apply(options)
        return options

    def show_figures(self):
        """Show and close pyplot's figures, but none whose picture has just been shown."""
        run = self.run
        try:
            for figure in open_figures():
                if run.images >= run.options["max_images"]:
                    run.leave_out("images beyond max_images")
                    continue
                data = render_figure(figure, run.options)
                if not data or run.shown_figures.get(id(figure)) == next(iter(data.values())):
                    continue
                self.publish({**data, "text/plain": repr(figure)})
        finally:
            pyplot = sys.modules.get("matplotlib.pyplot")
            if pyplot is not None:
                pyplot.close("all")

    # -- IPython --

    def get_ipython(self):
        """The shell, made when first asked for; None without IPython."""
        if self.shell_state == "unknown":
            try:
                import IPython  # noqa: F401  (AFTER_IMPORT makes the shell)

                if self.shell is None:
                    self.make_shell()
            except ImportError:
                self.shell_state = "missing"
        return self.shell

    def make_shell(self):
        if self.shell is None:
            self.shell = make_shell(self)
            self.shell_state = "made"
            self.customised = Customised(self.shell)
            self.hidden.update(self.shell.user_ns_hidden)

    def find_listeners(self, shell):
        self.listeners = [*shell.events.callbacks.values(), shell.ast_transformers]

    def pretty_printer(self):
        """IPython's printer of nested and long things; None without IPython."""
        if self.print_pretty is None and self.get_ipython() is not None:
            from IPython.lib.pretty import pretty

            self.print_pretty = pretty
        return self.print_pretty

    def tell_shell(self, source, tree):
        """What IPython's extensions (%autoreload …) wait for before a cell."""
        shell = self.shell
        self.shell_source = source
        if any(self.listeners):
            self.shell_result = self.make_result(source)
            shell.events.trigger("pre_execute")
            shell.events.trigger("pre_run_cell", self.shell_result.info)
        return shell.transform_ast(tree) if shell.ast_transformers else tree

    @staticmethod
    def make_result(source):
        from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult

        return ExecutionResult(ExecutionInfo(source, True, False, True, None))

    # -- packages --

    def use_paths(self, paths):
        """Let modules be found in these directories, the first of them first, before all others."""
        missing = [path for path in paths if path not in sys.path]
        if not missing:
            return
        front = 1 if sys.path[:1] == [""] else 0
        sys.path[front:front] = missing
        importlib.invalidate_caches()
        # For the programs that the guest starts.
        before = os.environ.get("PYTHONPATH", "").split(":")
        kept = [path for path in before if path and path not in paths]
        os.environ["PYTHONPATH"] = ":".join([*paths, *kept])
        programs = os.environ.get("PATH", "").split(":") + [f"{path}/bin" for path in missing]
        os.environ["PATH"] = ":".join(filter(None, programs))

    def install(self, arguments):
        """pip install, by the server. An exit status, as pip's own: errors are printed."""
        try:
            names = wanted_packages(arguments)
        except OSError as exc:
            print(f"ERROR: {exc}", file=sys.stderr)
            return 1
        if not names:
            print("ERROR: name at least one package to install", file=sys.stderr)
            return 1
        own = self.channel is not None and not self.is_child()
        if not (own and self.running and threading.current_thread() is threading.main_thread()):
            print("ERROR: packages are installed by the main thread of a cell", file=sys.stderr)
            return 1
        self.streams.flush_theirs()
        self.streams.flush()  # what was printed before must be seen before
        self.channel.send({"op": "install", "id": self.run.id, "packages": names})
        self.interrupts.check()  # one that came while it was sent
        while True:
            reply = self.channel.receive_whole()
            if reply is None:  # the server is gone
                os._exit(1)
            if reply.get("op") == "installed" and reply.get("id") == self.run.id:
                break
        self.use_paths(reply.get("paths", ()))
        if not reply.get("ok"):
            print(f"ERROR: {reply.get('error')}", file=sys.stderr)
            return 1
        return 0

    def forget_installed(self, _request):
        """An answer that comes after the cell was interrupted. Nobody waits for a reply."""
        return None

    # -- the other requests --

    def set_state(self, state):
        """Set variables; return the names that are none."""
        refused = []
        for name, value in state.items():
            if name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__"):
                self.namespace[name] = value
            else:
                refused.append(name)
        return refused

    def get_state(self, max_bytes):
        """(variables that JSON can carry, names of the others), within so many bytes."""
        state, skipped = {}, []
        room = Room(min(max_bytes, MAX_REPLY // 2))
        for name, value in list(self.namespace.items()):
            if not self.is_state(name, value):
                continue
            if len(name) <= MAX_NAME and room.take(name, value):
                state[name] = value
            elif len(skipped) < MAX_SKIPPED:
                skipped.append(cut(name, MAX_NAME).encode("utf-8", "replace").decode())
        return state, skipped

    def is_state(self, name, value):
        """Is it the guest's own, and not a module, function or class?"""
        if type(name) is not str or name.startswith("_") or type(value) in NOT_STATE:
            return False
        return not issubclass(type(value), type) and self.hidden.get(name, self) is not value

    def configure(self, request):
        """Handle "configure": what a kernel that was started for nobody becomes for somebody."""
        for name, value in (request.get("env") or {}).items():
            os.environ[name] = value
            if name == "PYTHONPATH":
                sys.path[1:1] = [part for part in value.split(":") if part not in sys.path]
            elif name == "TZ":
                time.tzset()
        if request.get("cwd"):
            os.chdir(request["cwd"])
            self.namespace["_dh"][:] = [os.getcwd()]
        if "policies" in request:
            self.import_guard.set(Policy(said) for said in request["policies"] or ())
        return {"op": "configured", "id": request.get("id")}

    def preload(self, request):
        """Handle "preload", of a kernel that has run no guest code. It leaves no trace but in memory."""
        caches = [os.environ.get(name, "") for name in ("XDG_CACHE_HOME", "MPLCONFIGDIR")]
        caches = [place for place in caches if place and not os.path.lexists(place)]
        self.streams.restore()
        with Silence(self.streams):
            imported, missing = import_all(request["modules"])
        for place in filter(os.path.lexists, caches):
            import shutil

            shutil.rmtree(place, ignore_errors=True)
        self.reset()  # IPython has put names there
        self.keep_modules()
        mime_of("a.csv")
        gc.collect()
        gc.freeze()
        return {
            "op": "preloaded",
            "id": request.get("id"),
            "imported": imported,
            "missing": missing,
        }

    def rehearse(self, request):
        """Handle "rehearse", of a kernel that has run no guest code: who takes it finds no page to copy."""
        channel, spare = self.channel, self.streams.spare
        wishes, options = self.wishes, self.options
        run_unseen(DATA_CELLS)
        forget_warm_up()
        self.channel = channel
        self.wishes, self.options = wishes, options
        self.streams.connect(spare)
        self.put_in_order()
        gc.collect()
        after_fork()  # as if nobody had drawn a random number
        return {"op": "rehearsed", "id": request.get("id")}

    def ping(self, request):
        return {
            "op": "pong",
            "id": request.get("id"),
            "protocol": PROTOCOL,
            "pid": os.getpid(),
            "python": sys.version.split()[0],
            "ipython": "get_ipython" in self.hidden,
        }

    def handle(self, request):
        handler = HANDLERS.get(request.get("op")) if isinstance(request, dict) else None
        if handler is None:
            return {"op": "error", "id": None, "message": "no such operation"}
        try:
            return handler(self, request)
        except Exception as exc:
            self.running = False
            text = f"{type(exc).__name__}: {safe_text(str, exc)}"
            if handler is not HANDLERS["execute"]:
                return {"op": "error", "id": request.get("id"), "message": text}
            # The guest broke what we need to make the report, or we did.
            why = f"the run could not be reported: {text}"
            return done_message(
                request.get("id"),
                self.count,
                status="error",
                error={"name": "KernelError", "value": why},
                exit_code=1,
                files_counted=False,
            )

    # -- a life --

    def stand_by(self, workspace):
        """What does not need the descriptors: a zygote does it once, for all its children."""
        self.workspace = Workspace(workspace)
        self.children.watch()
        os.register_at_fork(before=self.streams.flush, after_in_child=self.close_in_child)
        sys.modules["__main__"] = self.module
        self.keep_modules()
        try:
            os.chdir(workspace)
        except OSError:  # then where we are
            pass
        self.namespace["_dh"][:] = [os.getcwd()]

    def connect(self, spare, *channel):
        """To streams whose descriptors have copies in `spare`, and to requests on `channel`."""
        self.streams.connect(spare)
        self.channel = Channel(*channel)
        self.channel.look.longest_ns = self.options["look_us"] * 1000  # said before there was one
        self.interrupts.meant_for_a_run = self.channel.request_waits

    def close_in_child(self):
        for fd in {self.channel.fd, self.channel.out} if self.is_child() else ():
            try:
                os.close(fd)
            except OSError:
                pass

    def loop_forever(self):
        while True:
            request = self.channel.receive()
            if request is None:
                return
            self.answer(request)

    def answer(self, request):
        reply = self.handle(request)
        if reply is None:
            return
        send = self.channel.send
        ready = type(reply) is str
        last = LAST if ready or reply["op"] == "done" else 0
        if last and not ready:
            reply["cpu_ns"] = self.cpu_ns()
        if not send(reply, last):
            # Only a result can be that long: less of it.
            reply["notes"] = [*reply.get("notes", ()), "the result was too large to send"]
            text = (reply.get("result") or {}).get("text/plain", "")
            reply.update(result={"text/plain": cut(text, 10_000)}, files=[], traceback=[])
            send(reply, last)
        if last and not request.get("forget"):
            self.channel.look.has_run = True
        if last and self.count != 2:  # the first cell of many a kernel is its only one
            try:
                self.put_in_order()
            except Exception:  # the guest has broken what we need: the next run will say so
                pass


HANDLERS = {
    "execute": Kernel.execute,
    "configure": Kernel.configure,
    "installed": Kernel.forget_installed,
    "preload": Kernel.preload,
    "rehearse": Kernel.rehearse,
    "ping": Kernel.ping,
}


# ---- variables as JSON --------------------------------------------------------------------------

MAX_NAME = 200  # characters of a variable's name
MAX_SKIPPED = 1000  # names
NOT_STATE = frozenset(
    (
        types.ModuleType,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        type,
    )
)


class Room:
    """What is left for variables that are told: bytes of JSON, and values in them."""

    MAX_VALUES = 100_000  # a reader of JSON builds something for each
    MAX_STEPS = 1_000_000  # spent on values that are left out in the end
    MAX_DEPTH = 40

    def __init__(self, size):
        self.bytes = self.text = size  # the latter while one variable is looked at
        self.values = self.MAX_VALUES
        self.steps = self.MAX_STEPS

    def take(self, name, value):
        """Would it come back from JSON as the same thing, and is there room for it?

        (A tuple comes back as a list.) Only exact types, so that no code of the guest's runs here.
        """
        values = self.values
        self.text = self.bytes
        try:
            if self.fits(value, 0):
                text = encode_json({name: value})
                # A reader may write DEL as six characters.
                size = len(text.encode("utf-8")) + 5 * text.count("\x7f")
                if size <= self.bytes:
                    self.bytes -= size
                    return True
        except (ValueError, RuntimeError):  # half a surrogate pair; changed by a thread meanwhile
            pass
        self.values = values
        return False

    def fits(self, value, depth):
        kind = type(value)
        self.values -= 1
        self.steps -= 1
        if self.values < 0 or self.steps < 0 or depth > self.MAX_DEPTH:
            return False
        if kind is str:
            self.text -= len(value)
            return self.text >= 0
        if kind is bool or value is None:
            return True
        if kind is int:
            return -(2**63) <= value < 2**63
        if kind is float:
            return value - value == 0  # neither infinite nor NaN
        if kind is list or kind is tuple:
            return all(self.fits(member, depth + 1) for member in value)
        if kind is dict:
            return all(
                # NUL is no character of a key for every reader.
                type(key) is str
                and "\0" not in key
                and self.fits(key, depth + 1)
                and self.fits(member, depth + 1)
                for key, member in value.items()
            )
        return False


FILTERS_MUTATED = getattr(warnings, "_filters_mutated", None) or getattr(
    warnings, "_filters_mutated_lock_held", None
)


def forget_warnings():
    try:
        FILTERS_MUTATED()
    except Exception:  # no such thing any more: then once in a session
        pass


# ---- IPython's shell ----------------------------------------------------------------------------


class Customised:
    """Has the guest registered formatters with IPython, or changed how it shows floats?"""

    def __init__(self, shell):
        formatter = shell.display_formatter
        plain = formatter.formatters["text/plain"]
        # Asked for each result, so without the traits machinery: the dictionaries themselves.
        self.registries = [
            registry
            for each in (
                *formatter.formatters.values(),
                formatter.mimebundle_formatter,
                formatter.ipython_display_formatter,
            )
            for registry in (each.type_printers, each.deferred_printers)
        ]
        self.registered = sum(map(len, self.registries))
        self.floats = False
        plain.observe(self.floats_changed, "float_format")

    def floats_changed(self, change):
        self.floats = change["new"] != "%r"

    def __bool__(self):
        return self.floats or sum(map(len, self.registries)) != self.registered


def make_shell(kernel):
    """IPython's shell over the kernel's namespace: no history file, no thread, no terminal."""
    from IPython.core.displayhook import DisplayHook
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.formatters import DisplayFormatter
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets import Bool, Dict, Set, Unicode
    from traitlets.config import Config, SingletonConfigurable

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, **_):
            kernel.publish(data, metadata)

        def clear_output(self, wait=False):
            pass

    class Hook(DisplayHook):
        """For code that the guest gives to the shell itself: get_ipython().run_cell()."""

        def __call__(self, result=None):
            if result is not None:
                kernel.display(result)

    class Formatter(DisplayFormatter):
        def format(self, obj, include=None, exclude=None):
            return kernel.bundle(obj, include, exclude)

    class InlineBackend(SingletonConfigurable):
        """Takes `%config InlineBackend.figure_format = …`, as notebooks have it."""

        figure_format = Unicode().tag(config=True)
        figure_formats = Set().tag(config=True)
        print_figure_kwargs = Dict().tag(config=True)
        rc = Dict().tag(config=True)
        close_figures = Bool(True).tag(config=True)

        def apply(self, options):
            wanted = {self.figure_format, *self.figure_formats}
            return {
                **options,
                "figure_scale": 2 if wanted & {"retina", "png2x"} else options["figure_scale"],
                "figure_format": (wanted & {"svg", "jpeg"} or {options["figure_format"]}).pop(),
            }

    class Shell(InteractiveShell):
        displayhook_class = Hook
        display_pub_class = Publisher
        execution_count = property(lambda self: kernel.count, lambda self, value: None)

        # Not made, and hardly ever asked for.
        profile_dir = types.SimpleNamespace(location="/tmp/ipython")

        def init_ipython_dir(self, ipython_dir):
            pass

        init_profile_dir = init_ipython_dir

        def init_virtualenv(self):
            pass

        def init_display_formatter(self):
            self.display_formatter = Formatter(parent=self)
            kernel.inline = InlineBackend.instance(parent=self)
            kernel.inline_values = vars(kernel.inline)["_trait_values"]
            self.configurables += [self.display_formatter, kernel.inline]

        def init_prompts(self):
            pass

        def enable_gui(self, gui=None):
            pass

        def enable_matplotlib(self, gui=None):
            import matplotlib.pyplot  # noqa: F401  (figures are captured without more)

            return gui or "inline", "agg"

        def ask_exit(self):
            raise SystemExit

        def showtraceback(self, exc_tuple=None, *args, running_compiled_code=False, **kwargs):
            """An error in %%time, %run or a formatter fails the cell, not only prints."""
            failed = (exc_tuple or sys.exc_info())[1]
            if failed is None:  # %tb: the last one is to be shown
                super().showtraceback(tb_offset=0)
                self.InteractiveTB.tb = None  # which %debug would prefer to a later one
                return
            if not running_compiled_code:  # otherwise it is reported by run_cell() itself
                raise failed
            super().showtraceback(exc_tuple, *args, running_compiled_code=True, **kwargs)

        def system(self, command):
            """Run a command on descriptors 1 and 2, which the parent reads."""
            import subprocess

            command = self.var_expand(command, depth=1)
            arguments = pip_arguments(command)
            if arguments is not None:
                self.user_ns["_exit_code"] = kernel.install(arguments)
                return
            kernel.streams.flush()
            shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
            code = subprocess.call(command, shell=True, executable=shell, stdin=subprocess.DEVNULL)
            self.user_ns["_exit_code"] = code

    def run_magic(name, line):
        """%pip and %uv: as after an exclamation mark, with this interpreter's pip."""
        program = f"{sys.executable} -m pip" if name == "pip" else name
        shell.system(f"{program} {line}")

    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.InteractiveShell.xmode = "Plain"
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.autoindent = False
    namespace = kernel.namespace
    names = ("exit", "quit", "open", "_", "__", "___", "_i", "_ii", "_iii")
    before = {name: namespace[name] for name in names if name in namespace}
    shell = Shell.instance(config=config, user_module=kernel.module)
    atexit.unregister(shell.atexit_operations)
    # What IPython itself wants to be told of each cell is for parts that we have replaced: Publisher,
    # and begin_run() for warnings. Only others are worth the trouble.
    for callbacks in shell.events.callbacks.values():
        callbacks.clear()
    kernel.find_listeners(shell)
    shell.observe(lambda change: kernel.listeners.__setitem__(-1, change["new"]), "ast_transformers")
    shell.loop_runner = kernel.run_coroutine
    shell.set_hook("show_in_pager", page, 1)
    for name in ("pip", "uv"):
        shell.register_magic_function(lambda line, name=name: run_magic(name, line), "line", name)
    # One list of inputs and one of outputs, whoever adds to them.
    history = shell.history_manager
    history.input_hist_parsed[:] = history.input_hist_raw[:] = kernel.inputs
    history.output_hist.update(kernel.outputs)
    kernel.inputs, kernel.outputs = history.input_hist_parsed, history.output_hist
    # Python's own open() and our exit(), not IPython's.
    for name in names:
        namespace.pop(name, None)
    namespace.update(before)
    # It has put its own display() there.
    builtins.display = display
    remember_builtins()
    return shell


def page(shell, data, start=0, screen_lines=0, pager_cmd=None):
    """What `?` and some magics show: there is nobody to turn pages."""
    text = data.get("text/plain", "") if isinstance(data, dict) else data
    print(ANSI.sub("", text))


# ---- a zygote's part ----------------------------------------------------------------------------

PRELOAD = ("numpy", "pandas", "matplotlib.pyplot", "IPython")
# Each thread of a pool costs a stack and a scheduler; a sandbox has about one processor.
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
WARM_UP = (
    "x = 1 + 1",
    "x",
    "print(x)",
    "[x, 'a', {'b': None}]",
    "def f(a):\n    return a / 0\nf(x)",
    "import os, sys, json, re, math\nprint(os.getcwd())",
    "'a' +",
)
DATA_CELLS = (
    "import numpy as np\nnp.arange(12.0).reshape(3, 4) @ np.ones((4, 2))",
    "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3], 'b': list('xyz')})\ndf",
    "import pandas\ndf.describe()",
    "import pandas\ndf.groupby('b').a.sum()",
)
WARM_UP_ONCE = (
    "await __import__('asyncio').sleep(0)",
    "%timeit -n1 -r1 pass",
    *DATA_CELLS,
    "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.title('t')\nplt.show()",
    "import sympy\nsympy.Symbol('x') ** 2",
)

# What modules find out once and keep, as it is before: a child has another host's name, an environment and event loop
# of its own, and should not draw what others draw.
FOUND_OUT = {
    "asyncio.events": {"_event_loop_policy": None},
    "platform": {"_uname_cache": None, "_platform_cache": {}},
    "tempfile": {"_name_sequence": None, "tempdir": None},
    "uuid": {"_node": None, "_last_timestamp": None},
}

WARM_ROUNDS = 40

KERNEL = Kernel()
MAIN_THREAD = threading.main_thread()
NUMPY_STATE = None  # address of the state of numpy's legacy generator


def set_environment():
    for name in ONE_THREAD:
        os.environ.setdefault(name, "1")
    os.environ.setdefault("MPLBACKEND", "agg")
    # `python` and the programs of its packages are this interpreter's.
    own, path = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
    if own and own not in path.split(":"):
        os.environ["PATH"] = f"{own}:{path}"
    # The home directory is the workspace, where caches would be taken for results.
    os.environ.setdefault("XDG_CACHE_HOME", "/tmp/.cache")
    # The script's own directory gives way to the current one, as in a notebook.
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(KERNEL_FILE)):
        del sys.path[0]
    if "" not in sys.path:
        sys.path.insert(0, "")
    sys.argv = [""]
    if AFTER_IMPORT not in sys.meta_path:
        sys.meta_path.insert(0, AFTER_IMPORT)


def import_all(names):
    """([module imported], {module that could not be: why})"""
    imported, missing = [], {}
    for name in names:
        try:
            importlib.import_module(name)
            imported.append(name)
        except Exception as exc:  # an interpreter that lacks a library is fine
            missing[name] = f"{type(exc).__name__}: {exc}"
    return imported, missing


class Silence:
    """While this lasts, what is written to the standard streams goes nowhere."""

    def __init__(self, streams):
        self.streams = streams
        self.saved = []

    def __enter__(self):
        self.saved = [os.dup(fd) for fd in range(3)]
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        os.close(null)

    def __exit__(self, *_):
        self.streams.flush()
        for fd, saved in enumerate(self.saved):
            os.dup2(saved, fd)
            os.close(saved)


def prepare(preload=PRELOAD, workspace=WORKSPACE, finish=None):
    """Make this process a zygote: everything imported and tried once, one thread, no garbage.

    Returns {"imported", "missing": {module: why}, "threads", "seconds"}; the caller refuses to
    serve with more than one thread. No guest code runs here. `finish` is called instead of
    warm_up_service(), and calls it.
    """
    begin = time.monotonic()
    set_environment()
    imported, missing = import_all(preload)
    KERNEL.get_ipython()
    find_version()
    mime_of("a.csv")
    warm_up()
    locate_numpy_state()
    forget_host()
    KERNEL.stand_by(workspace)
    # OpenBLAS keeps a thread, which a raw clone would not take along: its lock would never be
    # released in the child. A fork makes it stop, in the parent too.
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    (finish or warm_up_service)()
    KERNEL.connect(HIDDEN[:3], *HIDDEN[3:])
    gc.collect()
    gc.disable()
    gc.freeze()
    return {
        "imported": imported,
        "missing": missing,
        "threads": len(os.listdir("/proc/self/task")),
        "seconds": round(time.monotonic() - begin, 3),
    }


def run_unseen(cells):
    """Run those whose modules are there. What they print and display goes nowhere."""
    KERNEL.channel = None
    with Silence(KERNEL.streams):
        KERNEL.streams.connect([hide_descriptor(fd) for fd in range(3)])
        for code in cells:
            words = re.findall(r"import (\w+(?:\.\w+)?)", code)
            if all(word in sys.modules for word in words):
                KERNEL.handle({"op": "execute", "id": 0, "code": code, "options": {"files": False}})
    for fd in KERNEL.streams.spare:
        os.close(fd)


def warm_up():
    """Run common cells, so that a child finds their code paths specialised and their caches full."""
    directory = os.getcwd()
    run_unseen((*WARM_UP * WARM_ROUNDS, *WARM_UP_ONCE))
    os.chdir(directory)
    if KERNEL.loop is not None:
        KERNEL.loop.close()  # its epoll would be shared by all children
        KERNEL.loop = None
    forget_warm_up()


def forget_host():
    for name, values in FOUND_OUT.items():
        module = sys.modules.get(name)
        for attribute, value in values.items():
            if hasattr(module, attribute):
                setattr(module, attribute, value)


def forget_warm_up():
    KERNEL.channel = None
    KERNEL.run = Run()
    linecache.clearcache()
    KERNEL.reset()


def first_request():
    """The bytes of one that is like most."""
    request = {"op": "execute", "id": 1, "code": "print(1)"}
    # Those that a server sends unless it is told otherwise.
    names = "max_images max_image_bytes max_repr max_frames strip plain max_state".split()
    request["options"] = {**{name: OPTIONS[name] for name in names}, "look_us": 50}
    body = encode_message(request).encode()
    return len(body).to_bytes(4, "little") + body


def warm_up_service(rounds=WARM_ROUNDS):
    """What a child does from its first step to its first answer, as often as an interpreter needs to settle:
    as long as it does not, it writes to the code that it runs, and each child copies those pages."""
    import socket

    request = first_request()
    with Silence(KERNEL.streams):
        spare = [hide_descriptor(fd) for fd in range(3)]
        for _ in range(rounds):
            server, ours = socket.socketpair()
            with server, ours:
                KERNEL.connect(spare, ours.fileno())
                KERNEL.workspace = Workspace(KERNEL.workspace.root)
                server.sendall(request)
                server.shutdown(socket.SHUT_WR)
                be_kernel(seeded=True)
        KERNEL.put_in_order()
        for fd in spare:
            os.close(fd)
    lower_signal.pthread_sigmask(SIG_BLOCK, (SIGINT,))  # Interrupts.listen() lets it in
    KERNEL.workspace = Workspace(KERNEL.workspace.root)  # a child has another there
    forget_warm_up()


def locate_numpy_state():
    """np.random.seed() costs a forked child 0.7 ms of page faults; writing its 2.5 kB does not."""
    global NUMPY_STATE
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is None:
        return
    try:
        import ctypes

        legacy = numpy_random.mtrand._rand
        address = legacy._bit_generator.ctypes.state_address
        legacy.seed(1)
        key, position = legacy.get_state()[1:3]
        held = ctypes.string_at(address, 2496 + 4)
        if held == key.astype("<u4").tobytes() + int(position).to_bytes(4, "little"):
            NUMPY_STATE = address
    except Exception:  # another layout: np.random.seed() does it
        NUMPY_STATE = None


def seed_generators():
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if NUMPY_STATE is not None:
        state = os.urandom(2496) + (624).to_bytes(4, "little")
        sys.modules["ctypes"].memmove(NUMPY_STATE, state, len(state))
    elif numpy_random is not None:
        numpy_random.seed()


def after_fork(seeded=False):
    """Make a zygote's child an individual: random numbers, keys, thread ids."""
    if not seeded:
        seed_generators()
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    # As its _set_native_id() does it, which is code that nobody else runs.
    MAIN_THREAD._native_id = threading.get_native_id()
    if KERNEL.channel is not None:
        KERNEL.channel.owner = os.getpid()
    gc.enable()


def be_kernel(*channel, seeded=False):
    after_fork(seeded)
    if channel:
        KERNEL.connect(*hide_descriptors(*channel))
    KERNEL.interrupts.listen()
    KERNEL.loop_forever()


LAST_WAIT = 0.05  # seconds


def serve(*channel, seeded=False):
    """Be a kernel on these descriptors (of Channel) until they are closed. Does not return.

    None: they and copies of 0, 1 and 2 have the numbers that prepare() has counted on (HIDDEN).
    `seeded`: the states of random and numpy.random have been filled with fresh bytes already.
    """
    status = 1
    try:
        be_kernel(*channel, seeded=seeded)
        # Mostly that is the end of the sandbox, which kills us: what follows would be done in vain, beside it.
        time.sleep(LAST_WAIT)
        status = 0
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    finally:
        if KERNEL.streams.stdout is not None:
            KERNEL.streams.flush()
        os._exit(status)


def main(argv):
    set_environment()
    KERNEL.stand_by(argv[2] if len(argv) > 2 else WORKSPACE)
    fd = int(argv[1]) if len(argv) > 1 else 3
    serve(fd, fd)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))  # Interrupts.listen() lets it in
    # From other globals: in Python 3.9 a function would inherit this frame's builtins, not the copy.
    exec("main(argv)", {"main": main, "argv": sys.argv})

"""The zygote: a Python that has imported everything and waits to be copied into sandboxes.

zygote.h says how it is started and what it is told. Nothing of a guest's runs here. Standard library
only; an interpreter that lacks a library of the preload list, or IPython, is fine.
"""

import os
import struct
import sys

DIRECTORY = "/run/belljar"
CONTROL = 3
UNFIT = 2  # enum zygote_event_kind
TEXT = 243
NOT_HIDDEN = 1  # what zygote_serve() leaves to do
CHANNEL = (3, 4)  # of a child whose descriptors it has left where they were


KEPT = []  # for ever


def tell_unfit(why):
    text = why.encode("utf-8", "replace")[:TEXT]
    os.write(CONTROL, struct.pack("=IIi244s", UNFIT, 0, 0, text))


def load_kernel():
    """kernel.py as a module that nobody can import: guests find it nowhere, as after an exec."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("belljar_kernel", f"{DIRECTORY}/kernel.py")
    kernel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(kernel)
    return kernel


def load_library():
    import ctypes

    library = ctypes.PyDLL(f"{DIRECTORY}/zygote.so")
    library.zygote_open.restype = ctypes.c_char_p
    library.zygote_prepare.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)
    library.zygote_prepare.restype = library.zygote_give_back.restype = None
    problem = library.zygote_open()
    if problem:
        raise RuntimeError(problem.decode())
    return library


def let_go_of_files():
    """Children get no descriptor of ours. matplotlib keeps the fonts open that it has drawn with."""
    manager = sys.modules.get("matplotlib.font_manager")
    for cached in vars(manager).values() if manager else ():
        if getattr(cached, "__module__", "") == manager.__name__ and hasattr(cached, "cache_clear"):
            cached.cache_clear()
    import gc

    gc.collect()


def size_of_empty():
    """Of a directory without entries, if it is another than with one: so it is in a file system in memory, which /tmp is
    here and a child's workspace. To list one costs a child a dozen pages. None: sizes say nothing."""
    place = "/tmp/belljar-empty"
    try:
        os.mkdir(place)
        size = os.stat(place).st_size
        os.mkdir(f"{place}/entry")
        tells = os.stat(place).st_size != size
        os.rmdir(f"{place}/entry")
        tells = tells and os.stat(place).st_size == size
        os.rmdir(place)
    except OSError:
        return None
    return size if tells else None


# ---- what children write to ---------------------------------------------------------------------
#
# A child copies each page of 4 KiB that it is the first to write to, and CPython writes to whatever it looks at: each
# object counts the references to it, and code counts how often it has run. What kernel.py runs and uses up to its first
# answer was made in the course of a second, among all that was imported meanwhile, an object on a page. So these objects
# are made once more, one after the other, where the library has closed all gaps. Whatever is not as it is known to be
# stays where it is: then children are dearer.


def watch_service(kernel):
    """(code of kernel.py that a child runs up to its first answer, functions in C that it calls)"""
    codes, called = {}, {}

    def watch(frame, event, about):
        if event == "call" and frame.f_code.co_filename == kernel.__file__:
            codes.setdefault(frame.f_code)
        elif event == "c_call":
            called.setdefault(id(about), about)

    def end_run(run=kernel.KERNEL.end_run):
        run()
        sys.setprofile(watch)  # which it has put an end to

    def be_kernel(run=kernel.be_kernel, **options):
        sys.setprofile(watch)
        try:
            run(**options)
        finally:
            sys.setprofile(None)

    kernel.KERNEL.end_run, kernel.be_kernel = end_run, be_kernel
    kernel.warm_up_service(1)
    del kernel.KERNEL.end_run
    kernel.be_kernel = be_kernel.__defaults__[0]
    for unseen in (kernel.serve, kernel.Streams.flush):
        codes.setdefault(unseen.__code__)
    return codes, called


def functions_of(kernel):
    """[(who has it, name, function)]"""
    import types

    holders = [kernel]
    for value in vars(kernel).values():
        if isinstance(value, type) and value.__module__ == kernel.__name__:
            holders.append(value)
    return [
        (holder, name, value)
        for holder in holders
        for name, value in vars(holder).items()
        if type(value) is types.FunctionType
    ]


def twin(value):
    """An equal one, where only its value counts and nobody else has it; else itself."""
    kind = type(value)
    if kind is str and 1 < len(value) < 30:
        return "".join((value[:1], value[1:]))
    if kind is int and value.bit_length() > 8:
        return int(str(value))
    if kind is float:
        return float(repr(value))
    if kind is tuple:
        return tuple([*value])  # names of arguments are compared as objects first
    return twin_of_code(value) if kind is type(twin.__code__) else value


def twin_of_code(code):
    wanted = [twin(value) for value in code.co_consts]
    given = tuple(wanted)
    made = code.replace(co_consts=given)
    # Strings that could be names have been exchanged for the ones that all share, which are all over the place.
    if made.co_consts is given:
        for at, value in enumerate(wanted):
            if given[at] is not value:
                exchange(given, at, value)
    return made


def exchange(values, at, value):
    """values[at] = value, although they are a tuple: one that nobody but us has seen."""
    import ctypes

    place = ctypes.c_size_t.from_address(id(values) + tuple.__basicsize__ + 8 * at)
    if place.value == id(values[at]):
        KEPT.append((values[at], value))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        place.value = id(value)


def twin_of_builtin(function):
    """A second object for a function in C of some module."""
    import ctypes
    import types

    if type(function) is not types.BuiltinFunctionType or type(function.__self__) is not types.ModuleType:
        return function
    definition = ctypes.c_size_t.from_address(id(function) + object.__basicsize__).value
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_size_t, ctypes.py_object, ctypes.py_object)
    try:
        made = make(definition, function.__self__, function.__module__)
    except SystemError:  # it wants to know its class, too
        return function
    return made if made == function else function


def twin_of_function(old, builtins):
    import types

    code, defaults = twin_of_code(old.__code__), old.__defaults__
    if defaults:
        defaults = tuple([builtins.get(id(value), value) for value in defaults])
    made = types.FunctionType(code, old.__globals__, old.__name__, defaults, old.__closure__)
    for name in ("__kwdefaults__", "__qualname__", "__module__", "__doc__"):
        setattr(made, name, getattr(old, name))
    return made


def make_again(kernel, library, functions, called):
    import types

    builtins = {number: twin_of_builtin(function) for number, function in called.items()}
    library.zygote_side_by_side(1)
    try:
        made = [twin_of_function(function, builtins) for _, _, function in functions]
    finally:
        library.zygote_side_by_side(0)
    for (holder, name, function), new in zip(functions, made):
        setattr(holder, name, new)
        for op, handler in kernel.HANDLERS.items():
            if handler is function:
                kernel.HANDLERS[op] = new
    for name, value in list(vars(kernel).items()):
        if type(value) is types.ModuleType and value is not sys.modules.get(value.__name__):
            vars(kernel)[name] = value = kernel.copy_of(value)
            use_twins(vars(value), builtins)
        else:
            own = twin(value) if type(value) in (int, str) else value
            vars(kernel)[name] = builtins.get(id(value), own)
    use_twins(kernel.__builtins__, builtins)


def use_twins(names, twins):
    for name, value in names.items():
        if id(value) in twins:
            names[name] = twins[id(value)]


def hold(kernel):
    """What the next run would free for others to take, among objects that stay."""
    import gc

    things = [kernel.KERNEL]
    for _ in range(3):
        things = gc.get_referents(*things)
        KEPT.append(things)


def renew(kernel):
    """What a run looks at or replaces."""
    own = kernel.KERNEL
    own.__dict__ = dict(vars(own))
    own.streams.stdin = own.streams.stdout = own.streams.stderr = None
    own.wishes, own.in_order = None, False
    own.keep_modules()
    kernel.find_version()
    if own.shell is not None:
        told = own.shell.events.callbacks
        told.update({name: list(functions) for name, functions in told.items()})
        own.find_listeners(own.shell)
        own.inline._trait_values = own.inline_values = dict(own.inline_values)
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is not None and not helpers.Gcf.figs:
        helpers.Gcf.figs = own.figures = type(helpers.Gcf.figs)()


def close_gaps(library):
    import gc

    gc.collect()  # and with it what Python keeps of freed objects, for the next of their kind
    gc.freeze()  # the next time is short
    library.zygote_fill()


def lay_out(kernel, library):
    codes, called = watch_service(kernel)
    functions = [each for each in functions_of(kernel) if each[2].__code__ in codes]
    functions.sort(key=lambda each: -sys.getsizeof(each[2].__code__))
    # To free what is replaced would make new gaps.
    KEPT.append((codes, called, functions, dict(vars(kernel)), dict(vars(kernel.KERNEL))))
    close_gaps(library)
    try:
        make_again(kernel, library, functions, called)
    except Exception:  # another Python than we know; what has been exchanged is as good as before
        pass
    kernel.warm_up_service()
    hold(kernel)
    close_gaps(library)
    renew(kernel)
    close_gaps(library)
    kernel.warm_up_service(2)


def open_files():
    """What somebody has kept open all the same; children will find it closed."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # that of the list itself
            continue
        if name.startswith("/") and name != os.devnull:
            names.append(name)
    return names


def be_ready(modules):
    """Everything that can be done once. Returns the kernel, the library, and whether it fills the states of
    generators."""
    import ctypes
    import signal

    library = load_library()
    kernel = load_kernel()
    kernel.GIVE_BACK = library.zygote_give_back
    kernel.EMPTY_SIZE = size_of_empty()
    states = files = None

    def finish():
        nonlocal states, files
        let_go_of_files()
        states, files = find_states(kernel), open_files()
        if states:
            library.zygote_seed(*map(ctypes.c_void_p, states))
        # Interrupts.listen() lets it in.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        lay_out(kernel, library)

    report = kernel.prepare(modules, finish=finish)
    if report["threads"] != 1:
        raise RuntimeError(f"{report['threads']} threads are left after the imports")
    words = ", ".join(report["imported"]) or "nothing"
    words += f" in {report['seconds']:.1f} s"
    if report["missing"]:
        words += "; not there: " + ", ".join(report["missing"])
    if files:
        words += "; files left open: " + ", ".join(files)
    told = words.encode()[:TEXT]
    request = kernel.first_request()
    # All of it: what is freed after the last gap has been closed leaves one for each child to write to.
    KEPT.append((finish, report, states, files, words, told, request))
    library.zygote_prepare(told, request, len(request))
    return kernel, library, bool(states)


def find_states(kernel):
    """Where random.random() and numpy.random.rand() keep their state, for the library to fill: 624 words
    and a position, which differ in order. 0: there is none. None: not where we think, so it is left to
    Python, which touches a hundred pages for it."""
    import ctypes
    import random

    address = id(random._inst) + object.__basicsize__
    words = random.getstate()[1]
    if ctypes.string_at(address, 2500) != struct.pack("=I624I", words[624], *words[:624]):
        return None
    if kernel.NUMPY_STATE is None:
        return None if "numpy.random" in sys.modules else (address, 0)
    return address, kernel.NUMPY_STATE


def main():
    try:
        kernel, library, seeded = be_ready(tuple(sys.argv[1:]))
    except BaseException as exc:
        tell_unfit(f"{type(exc).__name__}: {exc}")
        return
    todo = library.zygote_serve()
    # Whoever comes here is a child, and a guest.
    kernel.serve(*(CHANNEL if todo & NOT_HIDDEN else ()), seeded=seeded)


if __name__ == "__main__":
    main()

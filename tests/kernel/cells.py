"""Cells that our runner and IPython's run_cell() must agree on, run in this order in one namespace.

A row: what it shows, the cell and, where they differ, which fields differ and why ours does.
"""

# Run first, on both sides; then LOOK after each cell.
DESCRIBE = r"""
def _describe(namespace):
    import re, types
    seen = {}
    for name, value in sorted(namespace.items()):
        if name.startswith("_") or name in ("In", "Out", "exit", "quit", "open", "get_ipython"):
            continue
        if isinstance(value, types.ModuleType):
            seen[name] = "module " + value.__name__
            continue
        try:
            text = repr(value)
        except Exception as exc:
            text = "repr raises " + type(exc).__name__
        seen[name] = re.sub(r"0x[0-9a-f]+", "0x", text)[:2000]
    for name in ("_", "__", "___"):
        try:
            seen[name] = re.sub(r"0x[0-9a-f]+", "0x", repr(namespace.get(name)))[:2000]
        except Exception:
            seen[name] = "repr raises"
    seen["Out"] = sorted(namespace["Out"])
    return seen
"""

LOOK = "import json as _json; print(_json.dumps(_describe(globals())));"

INCOMPLETE = {
    "error": "IPython asks the compiler to tell incomplete input from wrong input; we do not",
    "value": "as above",
}
WARNS_LATER = {"stderr": "IPython says how to leave the shell; here exit() ends the run"}
ALL_OR_NOTHING = {
    "stdout": "IPython compiles statement by statement; we run nothing of a cell that cannot run",
    "namespace": "as above",
}
BROKEN_REPR = {
    "error": "IPython prints the traceback and calls the cell a success; ours fails it",
    "value": "as above",
    "result": "as above",
    "forms": "as above",
}

CELLS = [
    # values
    ("an integer", "1 + 1"),
    ("a float", "0.1 + 0.2"),
    ("a large integer", "2 ** 200"),
    ("a complex number", "(1 + 2j) * 3"),
    ("a bool", "3 > 2"),
    ("None shows nothing", "None"),
    ("Ellipsis", "..."),
    ("a string", "'it' + \"'s\""),
    ("a string of two lines", "'a\\nb'"),
    ("a non-ASCII string", "'grüße, 世界'"),
    ("an emoji", "'\\N{GRINNING FACE}'"),
    ("bytes", "bytes(range(5))"),
    ("a bytearray", "bytearray(b'ab')"),
    ("a range", "range(1, 10, 2)"),
    ("a slice", "slice(1, None, 2)"),
    ("negative zero", "-0.0"),
    ("infinity and NaN", "[float('inf'), float('nan')]"),
    ("a type", "int"),
    ("a builtin function", "len"),
    ("a module's function", "import math; math.sqrt"),
    ("a module", "math"),
    ("NotImplemented", "NotImplemented"),
    # containers
    ("an empty list", "[]"),
    ("a list", "[1, 'a', None, 2.5]"),
    ("a long list wraps", "list(range(60))"),
    ("a list of 1,500 is shortened", "list(range(1500))"),
    ("a tuple of one", "(1,)"),
    ("a nested list", "[[1, 2], [3, [4, 5]]]"),
    ("a long nested list", "[[i] * 8 for i in range(8)]"),
    ("a dictionary", "{'b': 1, 'a': [1, 2]}"),
    ("a long dictionary", "{str(i): 'x' * i for i in range(20)}"),
    ("a set is sorted", "{3, 1, 2}"),
    ("a frozenset", "frozenset('cab')"),
    ("an empty set", "set()"),
    ("a list that holds itself", "loop = [1]; loop.append(loop); loop"),
    ("a dictionary that holds itself", "ring = {}; ring['self'] = ring; ring"),
    ("a list of exactly 79 columns", "['x' * 73]"),
    ("a list of 80 columns", "['x' * 74, 1]"),
    ("a counter", "import collections; collections.Counter('hello')"),
    ("an ordered dictionary", "collections.OrderedDict(a=1)"),
    ("a default dictionary", "collections.defaultdict(list, a=[1])"),
    ("a deque", "collections.deque([1, 2], 3)"),
    ("a named tuple", "Point = collections.namedtuple('Point', 'x y'); Point(1, 2)"),
    ("a simple namespace", "import types; types.SimpleNamespace(a=1)"),
    ("a mapping proxy", "types.MappingProxyType({'a': 1})"),
    ("dictionary views", "{'a': 1}.keys()"),
    ("a generator", "(i for i in 'ab')"),
    ("a list of types", "[int, str]"),
    ("a regular expression", "import re; re.compile('a+')"),
    ("a match", "re.match('a', 'ab')"),
    ("a date", "import datetime; datetime.date(2024, 2, 29)"),
    ("a decimal", "import decimal; decimal.Decimal('1.10')"),
    ("a fraction", "import fractions; fractions.Fraction(1, 3)"),
    ("a path", "import pathlib; pathlib.PurePosixPath('/a') / 'b'"),
    ("an exception as a value", "ValueError('x', 1)"),
    # statements
    ("an assignment shows nothing", "a = 1"),
    ("a variable persists", "a + 1"),
    ("two statements and an expression", "b = 2\nc = 3\nb * c"),
    ("expressions before the last show nothing", "1\n2\n3"),
    ("one line, several statements", "d = 4; e = 5; d + e"),
    ("unpacking", "f, *g = range(4)\ng"),
    ("augmented assignment", "a += 10\na"),
    ("chained assignment", "h = i = []\nh is i"),
    ("the walrus", "(j := 7)"),
    ("delete", "del j"),
    ("a deleted name is gone", "j"),
    ("an if statement", "if a:\n    k = 'yes'\nelse:\n    k = 'no'\nk"),
    ("a loop's last expression shows nothing", "for n in range(3):\n    n"),
    ("a loop prints", "for n in range(3):\n    print(n)"),
    ("a while loop", "n = 0\nwhile n < 3:\n    n += 1\nn"),
    ("a with statement", "import contextlib\nwith contextlib.suppress(ValueError):\n    int('x')"),
    ("a try that saves", "try:\n    1 / 0\nexcept ZeroDivisionError as z:\n    s = str(z)\ns"),
    ("a name bound by except is gone", "z"),
    ("a comment alone", "# nothing"),
    ("an empty cell", ""),
    ("white space", "  \n\t\n"),
    ("a docstring alone is a result", "'doc'"),
    ("an annotation", "n: int = 5\nn"),
    ("a global in a function", "def set_n():\n    global n\n    n = 99\nset_n()\nn"),
    ("a comprehension does not leak", "[leak for leak in range(3)]\n'leak' in globals()"),
    ("a pass", "pass"),
    ("an assert that holds", "assert a"),
    ("a backslash continues", "1 + \\\n  2"),
    ("parentheses continue", "(1 +\n  2)"),
    ("a percent sign that continues", "(17\n% 5)"),
    ("an exclamation mark in a string", "'!ls %magic ?'"),
    ("a line that starts with % in a string", "'''\n%time\n!ls\n'''"),
    # functions and classes
    ("a function", "def square(x):\n    return x * x\nsquare(4)"),
    ("a function as a value", "square"),
    ("a lambda as a value", "lambda x, y=1: x"),
    ("a closure", "def outer():\n    v = 1\n    return lambda: v\nouter()()"),
    (
        "a decorator",
        "def twice(f):\n    return lambda *a: f(f(*a))\n@twice\ndef inc(x): return x + 1\ninc(1)",
    ),
    ("a generator function", "def gen():\n    yield from 'ab'\nlist(gen())"),
    ("a class", "class A:\n    x = 1\nA.x"),
    ("a class as a value", "A"),
    ("an object without repr", "type(A()).__name__"),
    ("an object with repr", "class R:\n    def __repr__(self): return '<R>'\nR()"),
    ("an object in a list", "[R(), R()]"),
    ("a repr of two lines", "class L:\n    def __repr__(self): return 'one\\ntwo'\n[L()]"),
    (
        "a dataclass",
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    x: int\n    y: str = 'q'\nD(1)",
    ),
    ("an enumeration", "import enum\nclass E(enum.Enum):\n    A = 1\nE.A"),
    ("a bound method", "type(R().__repr__).__name__"),
    ("inheritance and super", "class B(A):\n    def __init__(self): super().__init__()\nB().x"),
    ("a list subclass", "class MyList(list): pass\nMyList([1, 2])"),
    ("a dictionary subclass", "class MyDict(dict): pass\nMyDict(a=1)"),
    ("an integer subclass", "class MyInt(int): pass\nMyInt(3)"),
    ("a class says __main__", "A.__module__"),
    ("__name__", "__name__"),
    ("pickle finds classes", "import pickle; pickle.loads(pickle.dumps(D(5)))"),
    # history
    ("the last result", "40 + 2"),
    ("underscore", "_ + 1"),
    ("two underscores", "__"),
    ("three underscores", "___"),
    ("Out by number", "Out[1]"),
    ("underscore by number", "_1"),
    ("In holds this cell", "In[-1]"),
    ("the last input", "_i"),
    ("None does not change the underscore", "None"),
    ("so it is still there", "_"),
    ("a semicolon silences", "123;"),
    ("and leaves the underscore alone", "_"),
    ("a semicolon before a comment", "124;  # quiet"),
    ("a semicolon in a string does not", "'a;'"),
    ("a semicolon after parentheses", "(125);"),
    ("a semicolon inside does not", "x1 = 5; x1"),
    ("an own underscore is left alone", "for _ in range(3): pass"),
    ("also afterwards", "77"),
    ("the guest's underscore", "_"),
    ("after del it works again", "del _, __, ___\n88"),
    ("and holds the result", "_"),
    # printing
    ("print", "print('hello')"),
    ("print and a result", "print('p')\n'r'"),
    ("print without an end", "print('no newline', end='')"),
    ("print to stderr", "import sys; print('err', file=sys.stderr)"),
    ("sys.stdout.write shows its count", "sys.stdout.write('w\\n')"),
    ("a child process prints", "import subprocess; subprocess.run(['echo', 'child']).returncode"),
    ("os.system prints", "import os; os.system('echo system')"),
    ("os.write prints", "os.write(1, b'raw\\n')"),
    ("pprint", "import pprint; pprint.pprint({'a': list(range(30))})"),
    ("logging", "import logging; logging.warning('careful')"),
    ("display", "display(5)"),
    ("display of several", "display('a', [1])"),
    ("display returns nothing", "display(1) is None"),
    # errors
    ("division by zero", "1 / 0"),
    ("an unknown name", "unknown"),
    ("an unknown attribute", "math.nothing"),
    ("a key error", "{}['k']"),
    ("an index error", "[][0]"),
    ("a type error", "'a' + 1"),
    ("a value error", "int('x')"),
    ("a failed assertion", "assert False, 'why'"),
    ("a missing module", "import does_not_exist_at_all"),
    ("a missing file", "open('/does/not/exist')"),
    ("a raised class", "raise ValueError"),
    ("an own exception", "class Mine(Exception): pass\nraise Mine('x')"),
    ("the last error", "import sys; sys.last_type.__name__, str(sys.last_value)"),
    ("an exception with a cause", "raise KeyError('a') from ValueError('b')"),
    ("an exception in a function", "def boom():\n    raise OSError(2, 'no')\nboom()"),
    ("state before an error is kept", "before = 1\n1 / 0\nafter = 2"),
    ("a recursion without end", "def deep(): return deep()\ndeep()"),
    ("StopIteration", "next(iter([]))"),
    ("a generator that raises", "list(1 / i for i in (1, 0))"),
    ("KeyboardInterrupt raised by hand", "raise KeyboardInterrupt('by hand')"),
    ("SystemExit", "raise SystemExit(3)", WARNS_LATER),
    ("the last error after leaving", "sys.last_type.__name__, str(sys.last_value)"),
    ("sys.exit", "sys.exit()", WARNS_LATER),
    (
        "a broken repr",
        "class Bad:\n    def __repr__(self): raise ValueError('bad')\nBad()",
        BROKEN_REPR,
    ),
    (
        "an exception whose text fails",
        "class Odd(Exception):\n    def __str__(self): return 'odd'\nraise Odd",
    ),
    ("an error in a comprehension", "[1 / x for x in [0]]"),
    # errors of syntax
    ("an unfinished expression", "1 +"),
    ("an open parenthesis", "(1", INCOMPLETE),
    ("a bad indentation", "if 1:\nx = 2"),
    ("a print of Python 2", "print 'x'"),
    ("an open string", "'abc"),
    ("an assignment to a literal", "1 = x"),
    ("return outside", "print('ran')\nreturn 1", ALL_OR_NOTHING),
    ("break outside", "ran_break = 1\nbreak", ALL_OR_NOTHING),
    ("the same afterwards", "globals().pop('ran_break', None);"),
    ("an indented cell is taken", "    indented = 5\n    indented"),
    ("prompts are taken off", ">>> prompt = 6\n>>> prompt"),
    ("a future import", "from __future__ import annotations"),
    ("which lasts", "def later(x: not_there) -> nor_this: pass\nlater.__annotations__"),
    # await
    ("await", "import asyncio\nawait asyncio.sleep(0, 'done')"),
    ("await in an assignment", "got = await asyncio.sleep(0, 1)\ngot"),
    (
        "async for",
        "async def agen():\n    for i in range(3):\n        yield i\n[i async for i in agen()]",
    ),
    (
        "async with",
        "class Ctx:\n    async def __aenter__(self): return 9\n    async def __aexit__(self, *a): pass\nasync with Ctx() as nine:\n    pass\nnine",
    ),
    ("gather", "await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))"),
    ("an error under await", "async def fails():\n    raise ValueError('async')\nawait fails()"),
    ("asyncio.run in a plain cell", "asyncio.run(asyncio.sleep(0, 'ran'))"),
    ("a coroutine that is not awaited", "coro = asyncio.sleep(0); coro.close()"),
    # magics and commands
    ("%who_ls", "%who_ls int"),
    ("%timeit -o", "t = %timeit -n1 -r1 -q -o pass\nt.loops"),
    ("%%capture", "%%capture cap\nprint('caught')"),
    ("and what it caught", "cap.stdout"),
    ("%%writefile", "%%writefile table_made.py\nVALUE = 12"),
    ("a module in the workspace", "import table_made; table_made.VALUE"),
    ("%run", "%run table_made.py\nVALUE"),
    ("!command", "!echo from the shell"),
    ("!command with a variable", "word = 'given'\n!echo $word {a + 1}"),
    ("output of a command in a variable", "lines = !printf 'a\\nb\\n'\nlines"),
    ("the code of a command", "!exit 3\n_exit_code"),
    ("%%bash", "%%bash\necho bash $((1 + 2))"),
    ("%env", "%env TABLE_X=1\nos.environ['TABLE_X']"),
    ("a magic that does not exist", "%no_such_magic"),
    ("a magic without the percent sign", "who_ls complex"),
    ("%precision changes floats", "%precision 2\n3.14159"),
    ("%precision back", "%precision\n3.14159"),
    ("get_ipython", "get_ipython() is not None"),
    ("%%time returns the value", "%%time\n5 * 5", {"stdout": "times differ"}),
    ("%reset_selective", "%reset_selective -f ^word$\n'word' in globals()"),
    # libraries
    ("numpy", "import numpy as np\nnp.arange(6).reshape(2, 3)"),
    ("a numpy scalar", "np.float64(1) / 3"),
    ("a list of arrays", "[np.zeros(2), np.ones(2)]"),
    ("numpy warns", "np.array([1.0]) / 0", {"stderr": "the cell's file name differs"}),
    (
        "pandas: a frame",
        "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\ndf",
    ),
    ("pandas: a series", "df.a"),
    ("pandas: describe", "df.describe()"),
    ("pandas: group", "df.groupby('b').sum()"),
    ("sympy", "import sympy\nsympy.symbols('x') ** 2 + 1"),
    (
        "a rich object",
        "class Rich:\n    def _repr_html_(self): return '<b>r</b>'\n    def __repr__(self): return 'r'\nRich()",
    ),
    ("display of a rich object", "display(Rich())"),
    ("IPython's objects", "from IPython.display import HTML, Markdown\nHTML('<i>i</i>')"),
    (
        "IPython's display",
        "from IPython.display import display as show\nshow(HTML('<i>i</i>'), Markdown('*m*'))",
    ),
    ("_repr_pretty_", "class P:\n    def _repr_pretty_(self, p, cycle): p.text('pretty')\nP()"),
    (
        "a formatter of the guest",
        "get_ipython().display_formatter.formatters['text/html'].for_type(R, lambda r: '<r>')\nR()",
    ),
]

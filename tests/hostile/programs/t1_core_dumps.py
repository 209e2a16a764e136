# threat: T1
# tries: make the host write core files or run its core handler
import resource

print(resource.getrlimit(resource.RLIMIT_CORE))
if resource.getrlimit(resource.RLIMIT_CORE)[1] > 1:
    breach("core files are allowed")
try:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    breach("the core limit could be raised")
except (ValueError, OSError) as error:
    print(error)
before = set(os.listdir("/workspace"))
for number in (
    signal.SIGSEGV,
    signal.SIGABRT,
    signal.SIGQUIT,
    signal.SIGILL,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGTRAP,
    signal.SIGSYS,
):

    def work():
        os.kill(os.getpid(), number)

    status = in_child(work)
    print(number, status)
    if os.WCOREDUMP(status):
        breach("a core was dumped for", number)
print(set(os.listdir("/workspace")) - before)
print("END")

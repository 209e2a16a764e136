# threat: T5
# tries: timers, eventfds, epoll sets and semaphores without end
# timeout: 10
count = 0
timer = ctypes.c_void_p()
while count < 50000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0:
    count += 1
print("timers", count)
for name, make in (
    ("eventfd", lambda: libc.eventfd(0, 0)),
    ("epoll", lambda: libc.epoll_create1(0)),
    ("timerfd", lambda: libc.timerfd_create(1, 0)),
):
    made = []
    while len(made) < 5000 and (fd := make()) >= 0:
        made.append(fd)
    print(name, len(made))
    for fd in made:
        os.close(fd)
sets = 0
while sets < 40000 and libc.semget(0, 100, 0o1600) >= 0:
    sets += 1
print("semaphore sets", sets)
queues = 0
while queues < 40000 and libc.msgget(0, 0o1600) >= 0:
    queues += 1
print("queues", queues)
print("END")

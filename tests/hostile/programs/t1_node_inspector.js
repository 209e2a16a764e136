// threat: T1
// tries: turn other node processes into debuggees and load native code
const fs = require('fs');
for (const pid of ['1', String(process.ppid), ...'@PIDS@'.split(' ')]) {
    try { process._debugProcess(+pid); console.log('asked', pid); } catch (e) { console.log(e.code || e.message); }
    for (const number of ['SIGUSR1', 'SIGKILL', 'SIGSTOP']) { try { process.kill(+pid, number); console.log('sent', pid, number); } catch (e) { console.log(e.code); } }
}
try { process.dlopen({ exports: {} }, '/usr/lib/x86_64-linux-gnu/libc.so.6'); } catch (e) { console.log(e.message.slice(0, 80)); }
for (const name of ['setuid', 'setgid', 'seteuid', 'setegid']) { try { process[name](0); console.log('BREACH:', name); } catch (e) { console.log(e.code); } }
try { process.setgroups([0]); console.log('BREACH: setgroups'); } catch (e) { console.log(e.code); }
try { process.chroot && process.chroot('/tmp'); } catch (e) { console.log(e.code); }
console.log('END');

// threat: T1
// tries: node's own ways to host files, environment, processes and network
// trips: received
const fs = require('fs'), net = require('net'), cp = require('child_process'), os = require('os');
for (const file of '@FILES@'.split(' ')) {
    for (const form of [file, '/proc/1/root' + file, 'file://' + file, '../../../../../..' + file]) {
        try { console.log(fs.readFileSync(form.startsWith('file:') ? new URL(form) : form, 'utf8')); } catch (e) { console.log(e.code); }
        try { fs.writeFileSync(form, 'owned'); console.log('BREACH: wrote', form); } catch (e) { console.log(e.code); }
    }
}
console.log(JSON.stringify(process.env), process.argv, process.execArgv, os.userInfo(), os.networkInterfaces(), os.hostname());
console.log(JSON.stringify(process.report.getReport().environmentVariables));
for (const pid of fs.readdirSync('/proc').filter(n => /^\d+$/.test(n))) {
    for (const name of ['environ', 'cmdline', 'mem', 'maps']) {
        try { const fd = fs.openSync(`/proc/${pid}/${name}`, 'r'); const b = Buffer.alloc(2000); const n = fs.readSync(fd, b); if (name != 'maps') console.log(b.toString('utf8', 0, n)); } catch (e) { }
    }
}
console.log(cp.spawnSync('sh', ['-c', 'cat @FILES@; id; ls -la /; cat /etc/shadow'], { encoding: 'utf8' }));
for (const pid of '@PIDS@'.split(' ')) { try { process.kill(+pid, 'SIGKILL'); console.log('BREACH: killed', pid); } catch (e) { console.log(e.code); } }
let open = 0;
const doors = [{ host: '127.0.0.1', port: @PORT4@ }, { host: '::1', port: @PORT6@ }, { path: '@SOCKET@' }, { path: '\0@ABSTRACT@' }];
for (const door of doors) {
    open++;
    const s = net.connect(door);
    s.setTimeout(1000, () => s.destroy());
    s.on('data', d => console.log('BREACH: answered', String(d)));
    s.on('error', e => console.log(e.code));
    s.on('close', () => { if (--open == 0) console.log('END'); });
}

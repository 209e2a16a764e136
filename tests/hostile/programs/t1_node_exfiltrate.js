// threat: T1
// tries: send data out by HTTP, DNS and UDP
// trips: listeners
const http = require('http'), dns = require('dns'), dgram = require('dgram');
const left = new Set(['http', 'dns', 'udp', 'fetch']);
const done = (name, what) => { console.log(name, String(what)); left.delete(name); if (!left.size) console.log('END'); };
http.get({ host: '127.0.0.1', port: @PORT4@, path: '/?stolen', timeout: 1000 }, r => { console.log('BREACH: http', r.statusCode); done('http', r.statusCode); })
    .on('error', e => done('http', e.code)).on('timeout', function () { this.destroy(); });
dns.lookup('example.org', (e, a) => { if (a) console.log('BREACH: dns', a); done('dns', e && e.code); });
const sock = dgram.createSocket('udp4');
sock.send('stolen', @UDP@, '127.0.0.1', e => { sock.close(); done('udp', e); });
if (typeof fetch === 'function') fetch('http://127.0.0.1:@PORT4@/', { signal: AbortSignal.timeout(1000) }).then(r => { console.log('BREACH: fetch'); done('fetch', 1); }, e => done('fetch', e.cause ? e.cause.code : e));
else done('fetch', 'none');

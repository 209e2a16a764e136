// threat: T5
// tries: ignore signals in node
// outcome: timeout
// timeout: 2
// end: no
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(name, () => { });
console.log('begun');
for (; ;);

# threat: T3
# tries: links to nowhere, so that a write makes a file elsewhere
# paths: new1 new2 new3 new4/x loop chain0
cd /workspace && ln -s @DIR0@/planted new1 && ln -s /tmp/planted new2 && ln -s /run/belljar/code new3 && ln -s @DIR0@ new4 && ln -s loop loop
for i in $(seq 0 60); do ln -s chain$((i + 1)) chain$i; done; ln -s @FILE0@ chain61
echo END

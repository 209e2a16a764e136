# threat: T5
# tries: output without end on standard error, by many writers
# outcome: output_limit
# end: no
for i in 1 2 3 4; do yes "writer $i" >&2 & done
wait

# threat: T5
# tries: one line without end
# outcome: output_limit
# end: no
tr '\0' 'x' </dev/zero

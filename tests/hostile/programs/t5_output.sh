# threat: T5
# tries: output without end
# outcome: output_limit
# end: no
yes

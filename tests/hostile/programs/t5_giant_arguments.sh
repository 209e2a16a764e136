# threat: T5
# tries: arguments and environments as large as they can be
# timeout: 10
big=$(head -c 120000 /dev/zero | tr '\0' x)
for _ in $(seq 1 20); do
    env A="$big" B="$big" C="$big" D="$big" E="$big" F="$big" true "$big" "$big" "$big" 2>/dev/null
done
echo END

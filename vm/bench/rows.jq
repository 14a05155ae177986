# What measurements beside peers have in common: rows of `make bench` from runs.

def median: sort | if . == [] then null elif length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def rounded: if . == null then null else . * 10000 | round / 10000 end;

# Pair by pair; none of what was not measured.
def ratios($a; $b): [$a, $b] | transpose | map(select(.[0] != null) | .[0] / .[1]);

# A row of the runs $ours and $peer, in order.
def row($name; $unit; $ours; $peer; $peer_name):
    ratios($ours; $peer) as $ratios
    | {name: $name, unit: $unit, ours: ($ours | median), peer: ($peer | median),
       peer_name: $peer_name,
       ratio_median: ($ratios | median),
       ratio_min: ($ratios | min), ratio_max: ($ratios | max), runs: ($peer | length), goal: null, met: null}
    | map_values(if type == "number" then rounded else . end);

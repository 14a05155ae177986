# shellcheck shell=bash
# For measurements beside peers: reads the options --runs N and --binary HOTSET into `runs` and `binary`, and measures
# candidates in turn. Sourced.

binary=
runs=1
while [ $# -gt 0 ]; do
    case $1 in
        --binary)
            # shellcheck disable=SC2034  # for those who source this file
            binary=$2
            ;;
        --runs) runs=$2 ;;
        *)
            echo "${0##*/}: unknown option $1" >&2
            exit 2
            ;;
    esac
    shift 2
done
tools/install jq qemu-utils >&2
# What the guest prints.
results=$(mktemp)
trap 'rm -f -- "$results"' EXIT

# measure_all COMMAND CANDIDATE...: runs `COMMAND CANDIDATE LATENCY_NS RUN DEPTH...` for every candidate, in turn, on
# devices that answer at once and on those that take 80 us, into `results`.
measure_all() {
    local command=$1 run candidate latency_ns
    shift
    for run in $(seq "$runs"); do
        for candidate in "$@"; do
            for latency_ns in 0 80000; do
                "$command" "$candidate" "$latency_ns" "$run" 1 16 | tee -a "$results" >&2
            done
        done
    done
}

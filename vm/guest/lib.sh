# shellcheck shell=sh
# For scripts that run in the guest: `. /lib/guest.sh`.

fail() {
    echo "FAIL: $1"
    exit 1
}

# wait_until SECONDS COMMAND...: succeeds as soon as COMMAND does.
wait_until() {
    tenths_left=$(($1 * 10))
    shift
    until "$@"; do
        [ $((tenths_left -= 1)) -gt 0 ] || fail "gave up waiting for: $*"
        sleep 0.1
    done
}

# null_device NAME MIB LATENCY_NS: makes /dev/NAME, a RAM disk that answers each request after LATENCY_NS.
# With 0 it answers at once; otherwise by a high-resolution timer. It takes O_DIRECT and keeps what is written.
null_device() {
    [ -d /sys/kernel/config/nullb ] || {
        modprobe configfs
        mount -t configfs configfs /sys/kernel/config
        modprobe null_blk nr_devices=0
    }
    device=/sys/kernel/config/nullb/$1
    mkdir "$device"
    echo "$2" >"$device/size"
    echo 1 >"$device/memory_backed"
    echo 4096 >"$device/blocksize"
    echo 1 >"$device/submit_queues"
    if [ "$3" -gt 0 ]; then
        echo 2 >"$device/irqmode"
        echo "$3" >"$device/completion_nsec"
    else
        echo 0 >"$device/irqmode"
    fi
    echo 1 >"$device/power"
}

# unplug ID: takes a disk away, over the QMP socket that the host forwarded to port 4444.
unplug() {
    # Each command's answer must arrive before the next is sent, and the connection must outlive the last.
    { for command in '"qmp_capabilities"' "\"device_del\", \"arguments\": {\"id\": \"$1\"}"; do
        sleep 0.2
        echo "{\"execute\": $command}"
    done; sleep 0.5; } | nc 10.0.2.2 4444 >/dev/null
}

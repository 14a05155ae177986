# shellcheck shell=sh
# For measurements and tests in the guest: makes arrays of block devices. Follows /lib/caches.sh.

# make_array ARRAY LEVEL MEMBER...: raid1 or raid10 of the block devices, with a map of what was written, in sync; sets
# `device` to the result.
# shellcheck disable=SC2034  # `device` is for the caller
make_array() {
    array_kind=$1 array_level=$2
    shift 2
    case $array_kind in
        md)
            modprobe "$array_level"
            # Blank members are copies of each other.
            MDADM_NO_UDEV=1 mdadm --create /dev/md0 --run --quiet --assume-clean --bitmap=internal \
                --level="$array_level" --raid-devices=$# "$@" >&2
            device=/dev/md0
            ;;
        hotset | hotset-ublk)
            {
                array_sections "$array_level" "$@"
                [ "$array_kind" = hotset ] || printf '[[attach]]\nublk = "volume"\n'
            } | configure_hotset
            hotset array create --config /run/hotset.toml array --yes >&2
            if [ "$array_kind" = hotset ]; then serve_hotset; else serve_hotset_by_ublk; fi
            ;;
        *) fail "unknown array $array_kind" ;;
    esac
}

# array_sections LEVEL MEMBER...: sections for an array of the block devices, offered as a volume that nothing caches.
# The first half of them is on one controller, the second on another.
array_sections() {
    cat <<END
[[pool]]
name = "none"
devices = []
[[volume]]
name = "volume"
origin = "array"
pool = "none"
mode = "pass-through"
[[array]]
name = "array"
level = "$1"
detection = "2s"
END
    shift
    half=$(($# / 2)) number=0 names=
    sections=
    for member in "$@"; do
        names="$names${names:+, }\"${member##*/}\""
        sections="$sections
[[device]]
name = \"${member##*/}\"
path = \"$member\"
controller = \"side$((number / half))\""
        number=$((number + 1))
    done
    echo "members = [$names]$sections"
}

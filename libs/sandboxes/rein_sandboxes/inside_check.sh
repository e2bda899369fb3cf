# Process 1 of every sandbox: prove the walls from inside, say so, run the command, and take everything along at its end.
# Arguments: writable mount points (":"-separated), names allowed in the environment (":"-separated), the command.
# Nothing the agent wrote has run before the line "rein-check ok"; without that line the sandbox does not count.
writable=":$1:"
names=":$2:"
shift 2

refuse() {
    echo "rein-check failed: $1"
    exit 111
}

one_of() { # $1 in the ":"-separated list $2
    case "$2" in *":$1:"*) return 0 ;; *) return 1 ;; esac
}

while read -r key value; do
    case "$key" in
        CapInh: | CapPrm: | CapEff: | CapBnd: | CapAmb:)
            [ "$value" = 0000000000000000 ] || refuse "it holds capabilities ($key $value)" ;;
        NoNewPrivs:) [ "$value" = 1 ] || refuse "it could gain privileges" ;;
    esac
done < /proc/self/status || refuse "/proc cannot be read"

while read -r _ _ _ _ point options _; do
    case "$options" in rw | rw,*) ;; *) continue ;; esac
    one_of "$point" "$writable" || refuse "$point is writable"
done < /proc/self/mountinfo

[ ! -w /proc/sys/kernel/core_pattern ] || refuse "the kernel's settings are writable"
if unshare --user true 2>/dev/null; then refuse "it can make user namespaces"; fi

while read -r device _; do
    case "$device" in Inter-\|* | face | lo:*) ;; *) refuse "it has the network device $device" ;; esac
done < /proc/net/dev
while read -r device _; do
    [ "$device" = Iface ] || refuse "it has a route out by $device"
done < /proc/net/route
if [ -e /proc/net/ipv6_route ]; then
    while read -r _ _ _ _ _ _ _ _ _ device; do
        [ "$device" = lo ] || refuse "it has a route out by $device"
    done < /proc/net/ipv6_route
fi

for handle in /proc/self/fd/*; do
    case "${handle##*/}" in 0 | 1 | 2 | 10) continue ;; esac
    [ ! -e "$handle" ] || refuse "it was given an open file ($handle)"
done

export -p | while read -r _ entry; do
    one_of "${entry%%=*}" "$names" || { echo "${entry%%=*}"; exit 1; }
done || refuse "its environment holds more than was given"

echo "rein-check ok"
"$@"
exit $?

# Process 1 of every sandbox: prove the walls from inside, say so, run the command, and take everything along at its end.
# Arguments: writable mount points (":"-separated), names allowed in the environment (":"-separated), the command.
# Nothing the agent wrote has run before the line "rein-check ok"; without that line the sandbox does not count.
# Builtins only: this runs twice for every rollout. (That no user namespace can be made is asserted by bubblewrap.)
writable=":$1:"
names=":$2:"
shift 2

refuse() {
    echo "rein-check failed: $1"
    exit 111
}

for handle in /proc/self/fd/*; do
    case "${handle##*/}" in 0 | 1 | 2 | 255) ;; *) [[ ! -e $handle ]] || refuse "it was given an open file ($handle)" ;; esac
done

set -f # no name is a pattern from here on

mapfile -t status < /proc/self/status || refuse "/proc cannot be read"
num_proofs=0
for line in "${status[@]}"; do
    case "$line" in
        CapInh:* | CapPrm:* | CapEff:* | CapBnd:* | CapAmb:*)
            [[ $line == *:$'\t'0000000000000000 ]] || refuse "it holds capabilities ($line)" ;;
        NoNewPrivs:*) [[ $line == *$'\t'1 ]] || refuse "it could gain privileges" ;;
        *) continue ;;
    esac
    num_proofs=$((num_proofs + 1))
done
[[ $num_proofs == 6 ]] || refuse "the kernel does not say what it may do"

mapfile -t mounts < /proc/self/mountinfo
[[ ${#mounts[@]} -gt 3 ]] || refuse "the kernel does not say what is mounted"
for line in "${mounts[@]}"; do
    fields=($line)
    point=${fields[4]} options=${fields[5]}
    [[ $options != rw && $options != rw,* ]] || [[ $writable == *":$point:"* ]] || refuse "$point is writable"
done

[[ ! -w /proc/sys/kernel/core_pattern ]] || refuse "the kernel's settings are writable"

mapfile -t devices < /proc/net/dev
[[ ${#devices[@]} == 3 && ${devices[2]} == *lo:* ]] || refuse "it has network devices: ${devices[*]:2}"
mapfile -t routes < /proc/net/route
[[ ${#routes[@]} -le 1 ]] || refuse "it has a route out: ${routes[*]:1}"

mapfile -d '' -t environment < /proc/self/environ
for entry in "${environment[@]}"; do
    [[ $names == *":${entry%%=*}:"* ]] || refuse "its environment has ${entry%%=*}"
done

echo "rein-check ok"
"$@"
exit $?
